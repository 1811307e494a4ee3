/* fuzz_vocab.c - a fuzz target: the tokenizer of any file is either refused or encodes and decodes whatever it is given.
 *
 * The text is in the file, too: its general.description, if it has one. */
#include "weft/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "%s: %s\n", what, weft_last_error());
  abort();
}

/* The reader maps a file, so every input becomes one, under a name of its own because fuzzers run side by side. */
static weft_gguf *open_input(const uint8_t *data, size_t n_bytes) {
  char path[] = "/tmp/weft-fuzz-XXXXXX";
  weft_gguf *gguf = NULL;
  int descriptor = mkstemp(path);
  if (descriptor < 0 || write(descriptor, data, n_bytes) != (ssize_t)n_bytes || close(descriptor) != 0) {
    perror(path);
    abort();
  }
  (void)weft_gguf_open(&gguf, path);
  unlink(path); /* the mapping stays, and a crash leaves nothing behind */
  return gguf;
}

static void use(const weft_tokenizer *t, weft_gguf_string text) {
  for (int flags = 0; flags <= WEFT_TOKENIZE_NO_SPECIAL; flags += WEFT_TOKENIZE_NO_SPECIAL) {
    int32_t *ids;
    char *decoded;
    size_t n_ids, n_decoded;
    require(weft_tokenizer_encode(t, text.data, text.n_bytes, flags, NULL, 0, &ids, &n_ids) == WEFT_OK, "encode");
    for (size_t i = 0; i < n_ids; i++) require(ids[i] >= 0 && ids[i] < weft_tokenizer_n_vocab(t), "id outside");
    require(weft_tokenizer_decode(t, ids, n_ids, flags, &decoded, &n_decoded) == WEFT_OK, "decode");
    weft_free(ids);
    weft_free(decoded);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  static const char text[] = "<s>ab  bc\n\n12 'S <x>y\xCC\x81\xE2\x96\x81\xFF";
  weft_gguf *gguf = open_input(data, n_bytes);
  if (!gguf) return 0;
  weft_tokenizer *tokenizer = NULL;
  weft_gguf_string description = {text, sizeof text - 1};
  weft_status status = weft_tokenizer_create(&tokenizer, gguf);
  if (status == WEFT_OK) {
    (void)weft_gguf_get_string(gguf, "general.description", &description);
    use(tokenizer, description);
  } else {
    require(weft_last_error()[0] && !strpbrk(weft_last_error(), "\r\n\033"), "bad message");
  }
  weft_tokenizer_free(tokenizer);
  weft_gguf_close(gguf);
  return 0;
}
