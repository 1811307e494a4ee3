/* byte_vocab.c - a small byte-level vocabulary. */
#include "support/byte_vocab.h"
#include "tokenizer/bytes_unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Spellings of the 256 bytes, made once. */
static struct { char text[256][3]; } spellings;

int32_t byte_vocab_add(byte_vocab *vocab, const char *spelling, int type) {
  if (vocab->n_tokens == BYTE_VOCAB_MAX_TOKENS) abort();
  vocab->tokens[vocab->n_tokens] = spelling;
  vocab->types[vocab->n_tokens] = type;
  vocab->n_types = vocab->n_tokens + 1;
  return (int32_t)vocab->n_tokens++;
}

void byte_vocab_add_merge(byte_vocab *vocab, const char *merge, const char *joined) {
  if (vocab->n_merges == BYTE_VOCAB_MAX_MERGES) abort();
  vocab->merges[vocab->n_merges++] = merge;
  byte_vocab_add(vocab, joined, TOKEN_NORMAL);
}

void byte_vocab_init(byte_vocab *vocab) {
  *vocab = (byte_vocab){.model = "gpt2", .pre = "smollm"};
  for (int byte = 0; byte < 256; byte++) {
    weft__byte_to_spelling((unsigned char)byte, spellings.text[byte]);
    byte_vocab_add(vocab, spellings.text[byte], TOKEN_NORMAL);
  }
  byte_vocab_add_merge(vocab, "b c", "bc");
  byte_vocab_add_merge(vocab, "a b", "ab");
  byte_vocab_add_merge(vocab, "ab bc", "abbc");
  byte_vocab_add_merge(vocab, "a a", "aa");
  byte_vocab_add_merge(vocab, "c a", "ca");
  byte_vocab_add_merge(vocab, "aa aa", "aaaa");
  byte_vocab_add_merge(vocab, "ab ca", "abca");
  byte_vocab_add_merge(vocab, "ca b", "cab");
  byte_vocab_add_merge(vocab, "abbc aaaa", "abbcaaaa");
  byte_vocab_add_merge(vocab, "\xC4\xA0 a",
                       "\xC4\xA0"
                       "a");                                            /* " a" */
  byte_vocab_add_merge(vocab, "\xC4\xA0 \xC4\xA0", "\xC4\xA0\xC4\xA0"); /* two spaces */
  byte_vocab_add_merge(vocab, "\xC3\x83 \xC2\xA9", "\xC3\x83\xC2\xA9"); /* U+00E9 */
  byte_vocab_add_merge(vocab, "\xC3\xBF \xC3\xBF", "\xC3\xBF\xC3\xBF"); /* FF FF */
  /* Most of these are possible at some time and overtaken: "xy" repeated leaves many outdated merges behind. */
  byte_vocab_add_merge(vocab, "x y", "xy");
  byte_vocab_add_merge(vocab, "xy xy", "xyxy");
  byte_vocab_add_merge(vocab, "xy x", "xyx");
  byte_vocab_add_merge(vocab, "y x", "yx");
  byte_vocab_add(vocab, "<s>", TOKEN_CONTROL);
  byte_vocab_add(vocab, "</s>", TOKEN_CONTROL);
  byte_vocab_add(vocab, "<|im_end|>", TOKEN_CONTROL);
  byte_vocab_add(vocab, "<|end|>", TOKEN_NORMAL); /* the name of an end token, but text */
  byte_vocab_add(vocab, "<x>", TOKEN_CONTROL);
  byte_vocab_add(vocab, "<x>y", TOKEN_USER_DEFINED);
  byte_vocab_add(vocab, "<x>yz", TOKEN_CONTROL);
}

void byte_vocab_write(const byte_vocab *vocab, gguf_writer *w) {
  if (vocab->model) gguf_writer_string(w, "tokenizer.ggml.model", vocab->model);
  if (vocab->pre) gguf_writer_string(w, "tokenizer.ggml.pre", vocab->pre);
  if (vocab->n_tokens) gguf_writer_strings(w, "tokenizer.ggml.tokens", vocab->tokens, vocab->n_tokens);
  if (vocab->n_types) gguf_writer_array(w, "tokenizer.ggml.token_type", WEFT_GGUF_I32, vocab->types, vocab->n_types);
  if (vocab->n_merges) gguf_writer_strings(w, "tokenizer.ggml.merges", vocab->merges, vocab->n_merges);
}

weft_gguf *byte_vocab_open(gguf_writer *w) {
  char path[] = "/tmp/weft-vocab-XXXXXX";
  int descriptor = mkstemp(path);
  if (descriptor < 0) {
    perror(path);
    abort();
  }
  close(descriptor);
  gguf_writer_save(w, path);
  weft_gguf *gguf = NULL;
  weft_status status = weft_gguf_open(&gguf, path);
  unlink(path);
  if (status) {
    fprintf(stderr, "%s\n", weft_last_error());
    abort();
  }
  return gguf;
}
