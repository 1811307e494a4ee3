/* spm_vocab.c - a small SentencePiece vocabulary. */
#include "support/spm_vocab.h"

#include <stdio.h>
#include <stdlib.h>

#define SPACE "\xE2\x96\x81" /* U+2581 */

/* Spellings of the 256 bytes, made once. */
static struct { char text[256][7]; } spellings;

int32_t spm_vocab_add(spm_vocab *vocab, const char *spelling, float score, int type) {
  if (vocab->n_tokens == SPM_VOCAB_MAX_TOKENS) abort();
  vocab->tokens[vocab->n_tokens] = spelling;
  vocab->scores[vocab->n_tokens] = score;
  vocab->types[vocab->n_tokens] = type;
  vocab->n_scores = vocab->n_tokens + 1;
  return (int32_t)vocab->n_tokens++;
}

void spm_vocab_init(spm_vocab *vocab) {
  /* By falling score, two of the same one. */
  static const struct {
    const char *spelling;
    float score;
  } pieces[] = {
      {"ab", -1},   {"bc", -1},        {SPACE "a", -2}, {"aa", -3},        {"abc", -4},  {SPACE "ab", -5},
      {"aaaa", -6}, {SPACE SPACE, -7}, {"xx", -8},      {"b" SPACE, -9},   {SPACE, -20}, {"a", -21},
      {"b", -22},   {"c", -23},        {"x", -24},      {"\xC3\xA9", -25},
  };
  *vocab = (spm_vocab){.adds_space = -1};
  spm_vocab_add(vocab, "<unk>", 0, TOKEN_UNKNOWN);
  spm_vocab_add(vocab, "<s>", 0, TOKEN_CONTROL);
  spm_vocab_add(vocab, "</s>", 0, TOKEN_CONTROL);
  for (int byte = 0; byte < 256; byte++) {
    snprintf(spellings.text[byte], sizeof spellings.text[byte], "<0x%02X>", byte);
    spm_vocab_add(vocab, spellings.text[byte], 0, TOKEN_BYTE);
  }
  for (size_t i = 0; i < WEFT_COUNT(pieces); i++)
    spm_vocab_add(vocab, pieces[i].spelling, pieces[i].score, TOKEN_NORMAL);
  spm_vocab_add(vocab, "\n\n", 0, TOKEN_USER_DEFINED);
  spm_vocab_add(vocab, "<x>", 0, TOKEN_USER_DEFINED);
  spm_vocab_add(vocab, "<x>y", 0, TOKEN_CONTROL);
}

void spm_vocab_write(const spm_vocab *vocab, gguf_writer *w) {
  gguf_writer_string(w, "tokenizer.ggml.model", "llama");
  if (vocab->n_tokens) gguf_writer_strings(w, "tokenizer.ggml.tokens", vocab->tokens, vocab->n_tokens);
  if (vocab->n_scores) gguf_writer_array(w, "tokenizer.ggml.scores", WEFT_GGUF_F32, vocab->scores, vocab->n_scores);
  gguf_writer_array(w, "tokenizer.ggml.token_type", WEFT_GGUF_I32, vocab->types, vocab->n_tokens);
  gguf_writer_u32(w, "tokenizer.ggml.unknown_token_id", 0);
  gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", 1);
  gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
  gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", 0);
  if (vocab->adds_space >= 0) gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", vocab->adds_space);
}
