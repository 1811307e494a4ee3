/* fuzz_tokenizer.c - a fuzz target: encoding any bytes and decoding the ids gives the bytes back, whatever the tokenizer,
 * the flags and the literal spans.
 *
 * The first byte of an input holds the flags and which tokenizer, the second the length of a literal span; the rest is
 * the text. */
#include "support/spm_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* Where a tokenizer changes a text, what comes back is compared with what comes back of that. */
static const struct {
  const char *pre;  /* of byte-level BPE; NULL: SentencePiece */
  int adds_space;   /* SentencePiece */
  int changes_text; /* normalises, or reads U+2581 as a space */
} kinds[] = {{"smollm", 0, 0}, {"llama-bpe", 0, 0}, {"qwen2", 0, 1}, {NULL, 0, 1}, {NULL, 1, 1}};

static struct { weft_tokenizer *tokenizers[WEFT_COUNT(kinds)]; /* made by the first input, kept for all */ } fuzz;

static void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "%s: %s\n", what, weft_last_error());
  abort();
}

static void write_vocab(size_t kind, gguf_writer *w) {
  static byte_vocab bytes;
  static spm_vocab pieces;
  byte_vocab_init(&bytes);
  spm_vocab_init(&pieces);
  bytes.pre = kinds[kind].pre;
  pieces.adds_space = kinds[kind].adds_space;
  if (bytes.pre)
    byte_vocab_write(&bytes, w);
  else
    spm_vocab_write(&pieces, w);
}

static void make_tokenizers(void) {
  for (size_t kind = 0; kind < WEFT_COUNT(kinds); kind++) {
    gguf_writer w;
    gguf_writer_init(&w);
    write_vocab(kind, &w);
    weft_gguf *gguf = byte_vocab_open(&w);
    require(weft_tokenizer_create(&fuzz.tokenizers[kind], gguf) == WEFT_OK, "create");
    weft_gguf_close(gguf);
  }
}

/* The text that a text's ids stand for; the caller's to free. */
static char *come_back(const weft_tokenizer *t, const char *text, size_t n, int flags, const weft_text_span *literal,
                       size_t *n_back) {
  int32_t *ids;
  size_t n_ids;
  char *back;
  require(weft_tokenizer_encode(t, text, n, flags, literal, literal != NULL, &ids, &n_ids) == WEFT_OK, "encode");
  require(weft_tokenizer_decode(t, ids, n_ids, 0, &back, n_back) == WEFT_OK, "decode");
  weft_free(ids);
  return back;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  if (!fuzz.tokenizers[0]) make_tokenizers();
  if (n_bytes < 2) return 0;
  const char *text = (const char *)data + 2;
  size_t n_text = n_bytes - 2, n_back, n_again;
  /* The span begins in the middle, so that special tokens before, across and behind its ends occur. */
  weft_text_span literal = {n_text / 2, data[1] < n_text - n_text / 2 ? data[1] : n_text - n_text / 2};
  int flags = data[0] & (WEFT_TOKENIZE_NO_SPECIAL | WEFT_TOKENIZE_NO_BOS);
  size_t kind = (size_t)(data[0] >> 2) % WEFT_COUNT(kinds);
  const weft_tokenizer *t = fuzz.tokenizers[kind];
  char *back = come_back(t, text, n_text, flags, &literal, &n_back);
  if (kinds[kind].changes_text) {
    char *again = come_back(t, back, n_back, flags, NULL, &n_again);
    require(n_again == n_back && memcmp(again, back, n_back) == 0, "decoded text differs the second time");
    weft_free(again);
  } else {
    require(n_back == n_text && memcmp(back, text, n_text) == 0, "decoded text differs");
  }
  weft_free(back);
  return 0;
}
