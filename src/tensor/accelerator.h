/* accelerator.h - where a backend offers a matrix product to the accelerator in use (weft/accelerator.h). */
#ifndef WEFT_ACCELERATOR_INTERNAL_H
#define WEFT_ACCELERATOR_INTERNAL_H

#include "weft/accelerator.h"

#include <stdbool.h>

/* True if products of this many multiply-accumulates are to be offered. */
bool weft__accelerator_wants(int64_t n_macs);

/* Offers one product; true if it was computed.  False: the caller computes it (c may hold anything). */
bool weft__accelerator_matmul(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, bool transpose_a,
                              const float *b, int64_t ldb, bool transpose_b, float *c, int64_t ldc);

#endif
