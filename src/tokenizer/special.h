/* special.h - finding special tokens in a text: control and user-defined ones, longest first at each position.
 *
 * Their spellings are in the vocabulary's table already; all that is kept here is which lengths are worth a look-up,
 * given the byte that a token starts with. */
#ifndef WEFT_SPECIAL_H
#define WEFT_SPECIAL_H

#include "tokenizer/vocab.h"
#include "weft/tokenizer.h"

typedef struct weft__specials {
  size_t *lengths;   /* for each first byte the lengths of its tokens, each once, longest first */
  size_t start[257]; /* the lengths of first byte b are lengths[start[b]] to lengths[start[b + 1]] */
} weft__specials;

/* A text in which special tokens are looked for. */
typedef struct weft__special_scan {
  const weft__specials *specials;
  const weft__vocab *vocab;
  const char *text;
  size_t n_bytes;
  int flags;                     /* WEFT_TOKENIZE_NO_SPECIAL: control tokens do not match */
  const weft_text_span *literal; /* what overlaps one of these spans is no control token */
  size_t n_literal;
} weft__special_scan;

weft_status weft__specials_build(weft__specials *specials, const weft__vocab *vocab);
void weft__specials_clear(weft__specials *specials);

/* Finds the first special token at or after `from`: its position and id, or n_bytes and -1.  Successive calls go forward:
 * spans that end before `from` are dropped from the scan. */
size_t weft__special_next(weft__special_scan *scan, size_t from, int32_t *id, size_t *n_token);

static inline bool weft__is_special(const weft__vocab *vocab, int32_t id) {
  return vocab->types[id] == WEFT__TOKEN_CONTROL || vocab->types[id] == WEFT__TOKEN_USER_DEFINED;
}

#endif
