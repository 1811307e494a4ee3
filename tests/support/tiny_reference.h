/* tiny_reference.h - what a small model must answer, in double precision. */
#ifndef WEFT_TESTS_TINY_REFERENCE_H
#define WEFT_TESTS_TINY_REFERENCE_H

#include "support/tiny_model.h"

enum { TINY_REFERENCE_MAX_TOKENS = 128 };

/* Logits [n,V] after each of n tokens, rounded to f32 at the end; freed with free. */
float *tiny_reference(const tiny_model *t, const int32_t *ids, int n);

#endif
