/* merge.h - joining neighbours: the loop that byte-level BPE and SentencePiece share.
 *
 * A piece of text is a list of symbols.  The pair of neighbours with the lowest rank, the leftmost of several, becomes one
 * symbol, until no pair has a rank.  Which rank a pair has is the caller's knowledge. */
#ifndef WEFT_MERGE_H
#define WEFT_MERGE_H

#include "base/base.h"

enum { WEFT__NO_SYMBOL = -1 };
#define WEFT__NO_RANK UINT32_MAX

typedef struct weft__symbol {
  int32_t id;             /* a token, or -1 */
  int32_t previous, next; /* indices, WEFT__NO_SYMBOL at the ends */
  uint32_t rank;     /* of joining it with `next`; no rank if that cannot be, or if this symbol was joined to another */
  int32_t joined_id; /* what that gives */
} weft__symbol;

/* What joining symbol `left` with the one after it gives: sets rank and joined_id, or leaves them. */
typedef void (*weft__rank_fn)(const void *context, weft__symbol *symbols, int32_t left);

/* Room for one piece, kept from piece to piece.  Zero-initialise, free with weft__merger_clear. */
typedef struct weft__merger {
  weft__symbol *symbols;
  uint64_t *heap; /* see merge.c */
  size_t n_heap;
  size_t capacity; /* symbols of the longest piece that fits */
} weft__merger;

/* A growing list of ids; zero-initialise, free `data` with weft_free. */
typedef struct weft__ids {
  int32_t *data;
  size_t n, capacity;
} weft__ids;

/* Makes room for n symbols, whose contents are undefined.  ELIMIT: more than an index can tell apart. */
weft_status weft__merger_reserve(weft__merger *merger, size_t n);
void weft__merger_clear(weft__merger *merger);

/* Joins what can be joined in the list that starts with symbol `first`, which is its first afterwards, too: a symbol is
 * always joined to the one before it.  The caller has set id, previous and next.  O(n log n). */
void weft__merger_run(weft__merger *merger, int32_t first, weft__rank_fn rank, const void *context);

weft_status weft__ids_add(weft__ids *ids, const int32_t *more, size_t n);

#endif
