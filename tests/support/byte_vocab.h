/* byte_vocab.h - a small byte-level vocabulary, right or wrong, as the tokenizer entries of a GGUF file.
 *
 * The right one has a token for each byte (id = byte), a few merges over "abc", spaces and Latin-1, and special tokens.
 * A test changes the fields before they are written. */
#ifndef WEFT_TESTS_BYTE_VOCAB_H
#define WEFT_TESTS_BYTE_VOCAB_H

#include "support/gguf_writer.h"
#include "weft/tokenizer.h"

enum {
  BYTE_VOCAB_MAX_TOKENS = 320,
  BYTE_VOCAB_MAX_MERGES = 32,
  /* Types of tokens, as the format numbers them. */
  TOKEN_NORMAL = 1,
  TOKEN_CONTROL = 3,
  TOKEN_USER_DEFINED = 4,
};

typedef struct byte_vocab {
  const char *model, *pre; /* entries of this name; NULL: none */
  const char *tokens[BYTE_VOCAB_MAX_TOKENS], *merges[BYTE_VOCAB_MAX_MERGES];
  int32_t types[BYTE_VOCAB_MAX_TOKENS];
  size_t n_tokens, n_types, n_merges; /* 0: no entry */
} byte_vocab;

void byte_vocab_init(byte_vocab *vocab);
/* Returns the id. */
int32_t byte_vocab_add(byte_vocab *vocab, const char *spelling, int type);
/* Adds the merge and the token that it makes. */
void byte_vocab_add_merge(byte_vocab *vocab, const char *merge, const char *joined);
void byte_vocab_write(const byte_vocab *vocab, gguf_writer *w);

/* Finishes `w` into a file that is gone again when this returns, and opens it.  A failure ends the program. */
weft_gguf *byte_vocab_open(gguf_writer *w);

#endif
