/* gguf_cases.h - small GGUF files of every kind that the reader must tell apart.  The tests open each one, and the
 * fuzzer starts from them. */
#ifndef WEFT_TESTS_GGUF_CASES_H
#define WEFT_TESTS_GGUF_CASES_H

#include "support/gguf_writer.h"

typedef struct gguf_case {
  const char *name;             /* also of the seed file */
  void (*make)(gguf_writer *w); /* w is an initialised writer */
  weft_status status;           /* what weft_gguf_open must answer */
  const char *why;              /* must be part of the error message; NULL if the file opens */
} gguf_case;

extern const gguf_case gguf_cases[];
extern const size_t gguf_n_cases;

/* A valid file with an entry of every type and tensors of several types and ranks; its last byte is a tensor's. */
void gguf_make_full(gguf_writer *w);

#endif
