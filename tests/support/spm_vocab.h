/* spm_vocab.h - a small SentencePiece vocabulary, right or wrong, as the tokenizer entries of a GGUF file.
 *
 * The right one has the unknown token, <s> and </s>, the 256 bytes (id = 3 + byte), the characters space, a, b, c and x, a
 * few longer pieces, and user-defined tokens.  A test changes the fields before they are written. */
#ifndef WEFT_TESTS_SPM_VOCAB_H
#define WEFT_TESTS_SPM_VOCAB_H

#include "support/byte_vocab.h"

enum {
  SPM_VOCAB_MAX_TOKENS = 1024,
  TOKEN_UNKNOWN = 2,
  TOKEN_BYTE = 6,
};

typedef struct spm_vocab {
  const char *tokens[SPM_VOCAB_MAX_TOKENS];
  float scores[SPM_VOCAB_MAX_TOKENS];
  int32_t types[SPM_VOCAB_MAX_TOKENS];
  size_t n_tokens, n_scores; /* 0: no entry */
  int adds_space;            /* -1: no entry */
} spm_vocab;

void spm_vocab_init(spm_vocab *vocab);
/* Returns the id. */
int32_t spm_vocab_add(spm_vocab *vocab, const char *spelling, float score, int type);
/* Writes the entries, with <unk>, <s> and </s> as ids 0, 1 and 2; texts do not start with <s>. */
void spm_vocab_write(const spm_vocab *vocab, gguf_writer *w);

#endif
