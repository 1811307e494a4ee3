/* merge.c - joining neighbours, lowest rank first.
 *
 * The symbols of a piece form a doubly linked list inside one array, and a binary heap holds the joins that were possible
 * at some time, each as one number: rank << 32 | index of the left symbol.  The smallest number is thus the lowest rank,
 * leftmost first.  An entry is not removed when its symbols change; it is recognised as stale when it comes up, because
 * the symbol's rank is no longer the entry's. */
#include "tokenizer/merge.h"

#include <string.h>

/* ---- the heap: entry i is not above its children 2i + 1 and 2i + 2 ---- */

/* The new entry rises from the last place until its parent is not above it. */
static void push(weft__merger *m, uint64_t entry) {
  size_t i = m->n_heap++;
  for (size_t parent; i > 0 && m->heap[parent = (i - 1) / 2] > entry; i = parent) m->heap[i] = m->heap[parent];
  m->heap[i] = entry;
}

/* The last entry fills the hole at the top and sinks along the smaller children.  The heap is not empty. */
static uint64_t pop(weft__merger *m) {
  uint64_t top = m->heap[0], last = m->heap[--m->n_heap];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
    if (child + 1 < m->n_heap && m->heap[child + 1] < m->heap[child]) child++;
    if (m->heap[child] >= last) break;
    m->heap[i] = m->heap[child];
  }
  m->heap[i] = last;
  return top;
}

/* ---- the symbols ---- */

/* Every symbol gives one entry at most, and every join takes one out before it adds two. */
weft_status weft__merger_reserve(weft__merger *m, size_t n) {
  /* Half of a heap entry is an index. */
  if (n > INT32_MAX) return weft__error(WEFT_ELIMIT, "text: a word of %zu bytes is too long (split the text)", n);
  if (n <= m->capacity) return WEFT_OK;
  size_t capacity = n < 64 ? 64 : n;
  weft__merger_clear(m);
  m->symbols = weft__alloc(capacity, sizeof *m->symbols);
  m->heap = weft__alloc(capacity, 2 * sizeof *m->heap);
  if (!m->symbols || !m->heap) return WEFT_ENOMEM;
  m->capacity = capacity;
  return WEFT_OK;
}

void weft__merger_clear(weft__merger *m) {
  weft_free(m->symbols);
  weft_free(m->heap);
  *m = (weft__merger){0};
}

/* Asks for the rank of symbol i and the one after it. */
static void offer(weft__merger *m, int32_t i, weft__rank_fn rank, const void *context) {
  weft__symbol *left = &m->symbols[i];
  left->rank = WEFT__NO_RANK;
  if (left->next == WEFT__NO_SYMBOL) return;
  rank(context, m->symbols, i);
  if (left->rank != WEFT__NO_RANK) push(m, (uint64_t)left->rank << 32 | (uint32_t)i);
}

/* Joins symbol i with the one after it, whose place in the list ends here. */
static void join(weft__merger *m, int32_t i) {
  weft__symbol *left = &m->symbols[i], *right = &m->symbols[left->next];
  left->id = left->joined_id;
  left->next = right->next;
  right->rank = WEFT__NO_RANK;
  if (left->next != WEFT__NO_SYMBOL) m->symbols[left->next].previous = i;
}

void weft__merger_run(weft__merger *m, int32_t first, weft__rank_fn rank, const void *context) {
  m->n_heap = 0;
  for (int32_t i = first; i != WEFT__NO_SYMBOL; i = m->symbols[i].next) offer(m, i, rank, context);
  while (m->n_heap > 0) {
    uint64_t entry = pop(m);
    int32_t i = (int32_t)(uint32_t)entry;
    if (m->symbols[i].rank != (uint32_t)(entry >> 32)) continue;
    join(m, i);
    offer(m, i, rank, context);
    if (m->symbols[i].previous != WEFT__NO_SYMBOL) offer(m, m->symbols[i].previous, rank, context);
  }
}

/* ---- ids ---- */

weft_status weft__ids_add(weft__ids *ids, const int32_t *more, size_t n) {
  if (!ids->data || n > ids->capacity - ids->n) {
    size_t capacity = 2 * ids->capacity + n + 16;
    int32_t *data = weft__realloc(ids->data, capacity, sizeof *data);
    if (!data) return WEFT_ENOMEM;
    ids->data = data;
    ids->capacity = capacity;
  }
  if (n > 0) memcpy(ids->data + ids->n, more, n * sizeof *more);
  ids->n += n;
  return WEFT_OK;
}
