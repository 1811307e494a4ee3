/* fuzz_split.c - a fuzz target: any two files are either refused as the two parts of a model or safe to read all through,
 * whichever of the two is named.
 *
 * The first four bytes of an input are the length of the first file, little-endian; the second is what is left. */
#include "support/gguf_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, weft_last_error());
  abort();
}

static void save(const char *path, const uint8_t *data, size_t n_bytes) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, n_bytes, file) != n_bytes || fclose(file) != 0) {
    perror(path);
    abort();
  }
}

/* A refusal is explained in one line that names a file of the two. */
static int try_part(const char *path, const char *stem) {
  weft_gguf *gguf = NULL;
  if (weft_gguf_open(&gguf, path) != WEFT_OK) {
    const char *message = weft_last_error();
    if (strncmp(message, stem, strlen(stem)) != 0 || strpbrk(message, "\r\n\033")) fail("bad message");
    return 0;
  }
  size_t n_parts = weft_gguf_n_parts(gguf);
  if (n_parts > 2) fail("too many parts");
  gguf_walk(gguf);
  for (size_t i = 0; i < weft_gguf_n_tensors(gguf); i++) weft_gguf_release(gguf, weft_gguf_tensor_at(gguf, i));
  gguf_walk(gguf);
  weft_gguf_close(gguf);
  return n_parts == 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  char stem[] = "/tmp/weft-fuzz-XXXXXX", paths[2][64];
  if (n_bytes < 4) return 0;
  uint32_t n_first = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
  size_t n_left = n_bytes - 4;
  if (n_first > n_left) n_first = (uint32_t)n_left;
  int descriptor = mkstemp(stem); /* a name that no other fuzzer has */
  if (descriptor < 0 || close(descriptor) != 0) {
    perror(stem);
    abort();
  }
  for (int i = 0; i < 2; i++) snprintf(paths[i], sizeof paths[i], "%s-%05d-of-%05d.gguf", stem, i + 1, 2);
  save(paths[0], data + 4, n_first);
  save(paths[1], data + 4 + n_first, n_left - n_first);
  if (try_part(paths[0], stem) != try_part(paths[1], stem)) fail("one part opens the model and the other does not");
  for (int i = 0; i < 2; i++) unlink(paths[i]);
  unlink(stem);
  return 0;
}
