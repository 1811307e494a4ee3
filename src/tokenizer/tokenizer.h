/* tokenizer.h - what a weft_tokenizer is made of. */
#ifndef WEFT_TOKENIZER_INTERNAL_H
#define WEFT_TOKENIZER_INTERNAL_H

#include "tokenizer/bpe.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/special.h"
#include "tokenizer/vocab.h"
#include "weft/tokenizer.h"

enum { WEFT__MAX_END_TOKENS = 16 };

/* Immutable once created. */
struct weft_tokenizer {
  weft__vocab vocab;
  weft__bpe bpe;
  weft__specials specials;
  weft__pretokenizer *pretokenizer;
  int32_t bos, eos; /* -1: none */
  int adds_bos;
  int32_t end_ids[WEFT__MAX_END_TOKENS];
  int n_end_ids;
};

#endif
