/* added.h - finding added tokens in a text: special and user-defined ones, longest first at each position.
 *
 * Their spellings are in the vocabulary's table already; all that is kept here is which lengths are worth a look-up,
 * given the two bytes that a token starts with. */
#ifndef WEFT_ADDED_H
#define WEFT_ADDED_H

#include "tokenizer/vocab.h"
#include "weft/tokenizer.h"

/* Tokens that share their first two bytes and their length. */
typedef struct weft__added_group {
  size_t length;
  unsigned char first, second; /* second: 0 where the length is 1 */
} weft__added_group;

typedef struct weft__added {
  weft__added_group *groups; /* by first byte, longest first, each once */
  size_t start[257];         /* the groups of first byte b are groups[start[b]] to groups[start[b + 1]] */
} weft__added;

/* A text in which added tokens are looked for. */
typedef struct weft__added_scan {
  const weft__added *added;
  const weft__vocab *vocab;
  const char *text;
  size_t n_bytes;
  int flags;                     /* WEFT_TOKENIZE_NO_SPECIAL: special tokens do not match */
  const weft_text_span *literal; /* what overlaps one of these spans is no special token */
  size_t n_literal;
} weft__added_scan;

weft_status weft__added_build(weft__added *added, const weft__vocab *vocab);
void weft__added_clear(weft__added *added);

/* Finds the first added token at or after `from`: its position and id, or n_bytes and -1.  Successive calls go forward:
 * spans that end before `from` are dropped from the scan. */
size_t weft__added_next(weft__added_scan *scan, size_t from, int32_t *id, size_t *n_token);

#endif
