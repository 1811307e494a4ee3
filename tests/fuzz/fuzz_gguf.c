/* fuzz_gguf.c - a fuzz target: any bytes are either refused by weft_gguf_open or safe to read all through. */
#include "support/gguf_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* The reader maps a file, so every input becomes one, under a name of its own because fuzzers run side by side. */
static void save(char *path, const uint8_t *data, size_t n_bytes) {
  int descriptor = mkstemp(path);
  if (descriptor < 0 || write(descriptor, data, n_bytes) != (ssize_t)n_bytes || close(descriptor) != 0) {
    perror(path);
    abort();
  }
}

/* A refusal is explained in one line that names the file. */
static void check_message(const char *path) {
  const char *message = weft_last_error();
  if (strncmp(message, path, strlen(path)) == 0 && !strpbrk(message, "\r\n\033")) return;
  fprintf(stderr, "bad message: %s\n", message);
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  char path[] = "/tmp/weft-fuzz-XXXXXX";
  weft_gguf *gguf = NULL;
  save(path, data, n_bytes);
  weft_status status = weft_gguf_open(&gguf, path);
  unlink(path); /* the mapping stays, and a crash leaves nothing behind */
  if (status == WEFT_OK) {
    gguf_walk(gguf);
    weft_gguf_close(gguf);
  } else {
    check_message(path);
  }
  return 0;
}
