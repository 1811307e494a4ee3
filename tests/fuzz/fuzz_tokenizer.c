/* fuzz_tokenizer.c - a fuzz target: encoding any bytes and decoding the ids gives the bytes back, whatever the flags and
 * the literal spans.
 *
 * The first byte of an input holds the flags, the second the length of a literal span; the rest is the text. */
#include "support/byte_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static struct { weft_tokenizer *tokenizer; /* made by the first input, kept for all */ } fuzz;

static void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "%s: %s\n", what, weft_last_error());
  abort();
}

static weft_tokenizer *make_tokenizer(void) {
  byte_vocab vocab;
  gguf_writer w;
  weft_tokenizer *tokenizer = NULL;
  byte_vocab_init(&vocab);
  gguf_writer_init(&w);
  byte_vocab_write(&vocab, &w);
  weft_gguf *gguf = byte_vocab_open(&w);
  require(weft_tokenizer_create(&tokenizer, gguf) == WEFT_OK, "create");
  weft_gguf_close(gguf);
  return tokenizer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  if (!fuzz.tokenizer) fuzz.tokenizer = make_tokenizer();
  if (n_bytes < 2) return 0;
  const char *text = (const char *)data + 2;
  size_t n_text = n_bytes - 2, n_ids, n_decoded;
  /* The span begins in the middle, so that special tokens before, across and behind its ends occur. */
  weft_text_span literal = {n_text / 2, data[1] < n_text - n_text / 2 ? data[1] : n_text - n_text / 2};
  int flags = data[0] & (WEFT_TOKENIZE_NO_SPECIAL | WEFT_TOKENIZE_NO_BOS);
  int32_t *ids;
  char *decoded;
  require(weft_tokenizer_encode(fuzz.tokenizer, text, n_text, flags, &literal, 1, &ids, &n_ids) == WEFT_OK, "encode");
  require(weft_tokenizer_decode(fuzz.tokenizer, ids, n_ids, 0, &decoded, &n_decoded) == WEFT_OK, "decode");
  require(n_decoded == n_text && memcmp(decoded, text, n_text) == 0, "decoded text differs");
  weft_free(ids);
  weft_free(decoded);
  return 0;
}
