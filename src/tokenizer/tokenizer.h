/* tokenizer.h - what a weft_tokenizer is made of. */
#ifndef WEFT_TOKENIZER_INTERNAL_H
#define WEFT_TOKENIZER_INTERNAL_H

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/spm.h"
#include "tokenizer/vocab.h"
#include "weft/tokenizer.h"

enum { WEFT__MAX_END_TOKENS = 16 };

/* Immutable once created. */
struct weft_tokenizer {
  weft__vocab vocab;
  weft__added added;
  weft__pretokenizer *pretokenizer; /* of byte-level BPE; NULL: the model is SentencePiece's */
  weft__bpe bpe;                    /* byte-level BPE */
  weft__spm spm;                    /* SentencePiece */
  int32_t bos, eos;                 /* -1: none */
  int adds_bos;
  bool keeps_tokens; /* byte-level BPE: see weft__pretokenizer_traits */
  int adds_space;    /* SentencePiece: before the text, and behind added tokens */
  int32_t end_ids[WEFT__MAX_END_TOKENS];
  int n_end_ids;
};

#endif
