/* gguf_split.h - a small split model, right or wrong, for tests and the fuzzer. */
#ifndef WEFT_TESTS_GGUF_SPLIT_H
#define WEFT_TESTS_GGUF_SPLIT_H

#include "support/gguf_writer.h"

enum { GGUF_SPLIT_PARTS = 3 };

/* What a part says, which a test may change before it is written. */
typedef struct gguf_split_part {
  uint16_t no, count;
  int32_t n_tensors;      /* of all parts; -1: no such entry */
  const char *tensors[2]; /* names, of 3 floats each: part, place, 0.5; NULL: none */
  uint32_t alignment;
  size_t max_bytes; /* of the file */
} gguf_split_part;

/* The right model: its first part has no tensors, the second "a" and "b", the third "c" with an alignment of its own. */
void gguf_split_init(gguf_split_part parts[GGUF_SPLIT_PARTS]);

/* The file of one part; the first says general.name "split". */
weft__bytes gguf_split_make(const gguf_split_part *part);

/* Splits the model in the file `path` into two: STEM-00001-of-00002.gguf, with the entries and half of the tensors, and
 * STEM-00002-of-00002.gguf. */
void gguf_split_file(const char *path, const char *stem);

#endif
