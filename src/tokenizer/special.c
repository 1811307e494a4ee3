/* special.c - finding special tokens in a text. */
#include "tokenizer/special.h"

#include <stdlib.h>
#include <string.h>

/* ---- which lengths occur ---- */

typedef struct first_and_length {
  unsigned char first;
  size_t length;
} first_and_length;

/* First byte ascending, length descending. */
static int compare(const void *a, const void *b) {
  const first_and_length *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x->length == y->length ? 0 : x->length > y->length ? -1 : 1;
}

/* Fills `found` (room for V) and returns how many there are.  An empty token matches nothing. */
static size_t collect(const weft__vocab *vocab, first_and_length *found) {
  size_t n_found = 0;
  for (int32_t id = 0; id < vocab->n; id++) {
    size_t n;
    const char *spelling = weft__text_at(&vocab->spellings, id, &n);
    if (weft__is_special(vocab, id) && n > 0) found[n_found++] = (first_and_length){(unsigned char)spelling[0], n};
  }
  return n_found;
}

weft_status weft__specials_build(weft__specials *specials, const weft__vocab *vocab) {
  *specials = (weft__specials){0};
  first_and_length *found = weft__alloc((size_t)vocab->n, sizeof *found);
  if (!found) return WEFT_ENOMEM;
  size_t n_found = collect(vocab, found), n_lengths = 0;
  specials->lengths = weft__alloc(n_found, sizeof *specials->lengths);
  if (!specials->lengths) {
    weft_free(found);
    return WEFT_ENOMEM;
  }
  qsort(found, n_found, sizeof *found, compare);
  for (size_t i = 0; i < n_found; i++) {
    if (i > 0 && compare(&found[i - 1], &found[i]) == 0) continue;
    specials->lengths[n_lengths++] = found[i].length;
    specials->start[found[i].first + 1] = n_lengths;
  }
  /* A byte that no token starts with has an empty range behind that of the byte before it. */
  for (int first = 0; first < 256; first++)
    if (specials->start[first + 1] < specials->start[first]) specials->start[first + 1] = specials->start[first];
  weft_free(found);
  return WEFT_OK;
}

void weft__specials_clear(weft__specials *specials) {
  weft_free(specials->lengths);
  specials->lengths = NULL;
}

/* ---- matching ---- */

/* Whether n bytes at `position`, which is not before an earlier call's, overlap a literal span. */
static bool is_literal(weft__special_scan *scan, size_t position, size_t n) {
  while (scan->n_literal > 0 &&
         (scan->literal->n_bytes == 0 || scan->literal->start + scan->literal->n_bytes <= position)) {
    scan->literal++;
    scan->n_literal--;
  }
  return scan->n_literal > 0 && scan->literal->start < position + n;
}

/* The longest special token at `position`, or -1.  One that may not match here leaves the place to a shorter one. */
static int32_t match(weft__special_scan *scan, size_t position, size_t *n_token) {
  const weft__specials *specials = scan->specials;
  unsigned char first = (unsigned char)scan->text[position];
  for (size_t i = specials->start[first]; i < specials->start[first + 1]; i++) {
    size_t n = specials->lengths[i];
    if (n > scan->n_bytes - position) continue;
    int32_t id = weft__vocab_find(scan->vocab, scan->text + position, n);
    if (id < 0 || !weft__is_special(scan->vocab, id)) continue;
    bool is_control = scan->vocab->types[id] == WEFT__TOKEN_CONTROL;
    if (is_control && (scan->flags & WEFT_TOKENIZE_NO_SPECIAL || is_literal(scan, position, n))) continue;
    *n_token = n;
    return id;
  }
  return -1;
}

size_t weft__special_next(weft__special_scan *scan, size_t from, int32_t *id, size_t *n_token) {
  for (size_t position = from; position < scan->n_bytes; position++) {
    *id = match(scan, position, n_token);
    if (*id >= 0) return position;
  }
  *id = -1;
  *n_token = 0;
  return scan->n_bytes;
}
