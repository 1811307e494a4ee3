/* added.c - finding added tokens in a text. */
#include "tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

/* ---- which lengths occur ---- */

/* First byte ascending, length descending. */
static int compare(const void *a, const void *b) {
  const weft__added_group *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  if (x->length != y->length) return x->length > y->length ? -1 : 1;
  return (x->second > y->second) - (x->second < y->second);
}

/* Fills `groups` (room for V) with one for each token and returns how many there are.  An empty token matches nothing. */
static size_t collect(const weft__vocab *vocab, weft__added_group *groups) {
  size_t n_groups = 0;
  for (int32_t id = 0; id < vocab->n; id++) {
    size_t n;
    const char *spelling = weft__text_at(&vocab->spellings, id, &n);
    if (!weft__is_added(vocab, id) || n == 0) continue;
    groups[n_groups++] = (weft__added_group){n, (unsigned char)spelling[0], n > 1 ? (unsigned char)spelling[1] : 0};
  }
  return n_groups;
}

weft_status weft__added_build(weft__added *added, const weft__vocab *vocab) {
  *added = (weft__added){0};
  weft__added_group *groups = weft__alloc((size_t)vocab->n, sizeof *groups);
  if (!groups) return WEFT_ENOMEM;
  added->groups = groups;
  size_t n_tokens = collect(vocab, groups), n = 0;
  qsort(groups, n_tokens, sizeof *groups, compare);
  for (size_t i = 0; i < n_tokens; i++) {
    if (n > 0 && compare(&groups[n - 1], &groups[i]) == 0) continue;
    groups[n++] = groups[i];
    added->start[groups[i].first + 1] = n;
  }
  /* A byte that no token starts with has an empty range behind that of the byte before it. */
  for (int first = 0; first < 256; first++)
    if (added->start[first + 1] < added->start[first]) added->start[first + 1] = added->start[first];
  return WEFT_OK;
}

void weft__added_clear(weft__added *added) {
  weft_free(added->groups);
  added->groups = NULL;
}

/* ---- matching ---- */

/* Whether n bytes at `position`, which is not before an earlier call's, overlap a literal span. */
static bool is_literal(weft__added_scan *scan, size_t position, size_t n) {
  while (scan->n_literal > 0 &&
         (scan->literal->n_bytes == 0 || scan->literal->start + scan->literal->n_bytes <= position)) {
    scan->literal++;
    scan->n_literal--;
  }
  return scan->n_literal > 0 && scan->literal->start < position + n;
}

static bool may_match(weft__added_scan *scan, int32_t id, size_t position, size_t n) {
  if (id < 0 || !weft__is_added(scan->vocab, id)) return false;
  if (!weft__is_special(scan->vocab, id)) return true;
  return !(scan->flags & WEFT_TOKENIZE_NO_SPECIAL) && !is_literal(scan, position, n);
}

/* The longest added token at `position`, or -1.  One that may not match here leaves the place to a shorter one. */
static int32_t match(weft__added_scan *scan, size_t position, size_t *n_token) {
  const weft__added *added = scan->added;
  const unsigned char *text = (const unsigned char *)scan->text + position;
  size_t n_left = scan->n_bytes - position;
  for (size_t i = added->start[text[0]]; i < added->start[text[0] + 1]; i++) {
    const weft__added_group *group = &added->groups[i];
    size_t n = group->length;
    if (n > n_left || (n > 1 && group->second != text[1])) continue;
    int32_t id = weft__vocab_find(scan->vocab, scan->text + position, n);
    if (!may_match(scan, id, position, n)) continue;
    *n_token = n;
    return id;
  }
  return -1;
}

size_t weft__added_next(weft__added_scan *scan, size_t from, int32_t *id, size_t *n_token) {
  for (size_t position = from; position < scan->n_bytes; position++) {
    *id = match(scan, position, n_token);
    if (*id >= 0) return position;
  }
  *id = -1;
  *n_token = 0;
  return scan->n_bytes;
}
