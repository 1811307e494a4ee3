/* bpe.c - merging by rank.
 *
 * The symbols of a piece form a doubly linked list inside one array, and a binary heap holds the merges that were
 * possible at some time, each as one number: rank << 32 | index of the left symbol.  The smallest number is thus the
 * lowest rank, leftmost first.  An entry is not removed when its symbols change; it is recognised as stale when it comes
 * up, because the symbol's rank is no longer the entry's. */
#include "tokenizer/bpe.h"
#include "tokenizer/bytes_unicode.h"

#include <string.h>

enum {
  NONE = -1,
  NO_RANK = INT32_MAX,
  MAX_MERGES = 1 << 26,
};

struct weft__symbol {
  int32_t id;
  int32_t previous, next; /* indices, NONE at the ends */
  int32_t rank;           /* of the merge with `next`, NO_RANK if there is none or this symbol was merged away */
  int32_t merged_id;      /* what that merge gives */
};

static const uint64_t EMPTY_PAIR = UINT64_MAX;

/* ---- the table of merges ---- */

static uint64_t make_pair(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

/* The slot that holds the pair, or the empty one where it would go.  The hash is Fibonacci's: a multiplication whose top
 * bits depend on all of the pair. */
static weft__merge *find_merge(const weft__bpe *bpe, uint64_t pair) {
  size_t i = (size_t)(pair * UINT64_C(0x9E3779B97F4A7C15) >> bpe->shift);
  while (bpe->slots[i].pair != pair && bpe->slots[i].pair != EMPTY_PAIR) i = (i + 1) & (bpe->n_slots - 1);
  return &bpe->slots[i];
}

static weft_status alloc_table(weft__bpe *bpe, size_t n_merges) {
  /* Two slots at least, so that one is always empty and a search ends. */
  bpe->n_slots = 2;
  bpe->shift = 63;
  while (bpe->n_slots < 2 * n_merges) {
    bpe->n_slots *= 2;
    bpe->shift--;
  }
  bpe->slots = weft__alloc(bpe->n_slots, sizeof *bpe->slots);
  if (!bpe->slots) return WEFT_ENOMEM;
  memset(bpe->slots, 0xFF, bpe->n_slots * sizeof *bpe->slots);
  return WEFT_OK;
}

/* Adds "LEFT RIGHT"; the joined spelling is put together in `joined` (room for the merge).  False: a token is missing.
 * Of two merges of one pair the first, which has the lower rank, counts. */
static bool add_merge(weft__bpe *bpe, const weft__vocab *vocab, weft_gguf_string merge, int32_t rank, char *joined) {
  const char *space = merge.n_bytes > 0 ? memchr(merge.data, ' ', merge.n_bytes) : NULL;
  if (!space) return false;
  size_t n_left = (size_t)(space - merge.data), n_right = merge.n_bytes - n_left - 1;
  memcpy(joined, merge.data, n_left);
  memcpy(joined + n_left, space + 1, n_right);
  int32_t left = weft__vocab_find(vocab, merge.data, n_left);
  int32_t right = weft__vocab_find(vocab, space + 1, n_right);
  int32_t id = weft__vocab_find(vocab, joined, n_left + n_right);
  if (left < 0 || right < 0 || id < 0) return false;
  weft__merge *slot = find_merge(bpe, make_pair(left, right));
  if (slot->pair == EMPTY_PAIR) *slot = (weft__merge){make_pair(left, right), rank, id};
  return true;
}

static weft_status add_merges(weft__bpe *bpe, const weft__vocab *vocab, const weft_gguf *gguf,
                              const weft_gguf_string *merges, size_t n) {
  size_t longest = 0;
  for (size_t i = 0; i < n; i++)
    if (merges[i].n_bytes > longest) longest = merges[i].n_bytes;
  char *joined = weft__alloc(longest, 1);
  weft_status status = joined ? alloc_table(bpe, n) : WEFT_ENOMEM;
  for (size_t i = 0; i < n && !status; i++)
    if (!add_merge(bpe, vocab, merges[i], (int32_t)i, joined))
      status =
          weft__error(WEFT_EFORMAT,
                      "%s: tokenizer.ggml.merges: merge %zu '%.*s' does not join two tokens of the vocabulary into "
                      "a third (convert the model again)",
                      weft_gguf_path(gguf), i, merges[i].n_bytes < 64 ? (int)merges[i].n_bytes : 64, merges[i].data);
  weft_free(joined);
  return status;
}

weft_status weft__bpe_read(weft__bpe *bpe, const weft__vocab *vocab, const weft_gguf *gguf) {
  const char *key = "tokenizer.ggml.merges";
  weft_gguf_string *merges = NULL;
  size_t n = 0;
  *bpe = (weft__bpe){0};
  for (int byte = 0; byte < 256; byte++) {
    char spelling[2];
    size_t n_spelling = weft__byte_to_spelling((unsigned char)byte, spelling);
    bpe->byte_ids[byte] = weft__vocab_find(vocab, spelling, n_spelling);
  }
  weft_status status = weft__read_strings(gguf, key, &merges, &n);
  if (status) return status;
  if (n > MAX_MERGES)
    status = weft__error(WEFT_EFORMAT, "%s: %s has %zu merges, at most %d are allowed (convert the model again)",
                         weft_gguf_path(gguf), key, n, MAX_MERGES);
  else
    status = add_merges(bpe, vocab, gguf, merges, n);
  weft_free(merges);
  return status;
}

void weft__bpe_clear(weft__bpe *bpe) {
  weft_free(bpe->slots);
  bpe->slots = NULL;
}

/* ---- the heap of possible merges ---- */

typedef struct merge_heap {
  uint64_t *entries; /* entries[0] is the smallest; entry i is not above its children 2i + 1 and 2i + 2 */
  size_t n;
} merge_heap;

/* The new entry rises from the last place until its parent is not above it. */
static void push(merge_heap *heap, uint64_t entry) {
  size_t i = heap->n++;
  for (size_t parent; i > 0 && heap->entries[parent = (i - 1) / 2] > entry; i = parent)
    heap->entries[i] = heap->entries[parent];
  heap->entries[i] = entry;
}

/* The last entry fills the hole at the top and sinks along the smaller children.  The heap is not empty. */
static uint64_t pop(merge_heap *heap) {
  uint64_t top = heap->entries[0], last = heap->entries[--heap->n];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < heap->n; i = child) {
    if (child + 1 < heap->n && heap->entries[child + 1] < heap->entries[child]) child++;
    if (heap->entries[child] >= last) break;
    heap->entries[i] = heap->entries[child];
  }
  heap->entries[i] = last;
  return top;
}

/* ---- one piece ---- */

/* Every byte gives one entry at most, and every merge takes one out before it adds two. */
static weft_status reserve_scratch(weft__bpe_scratch *scratch, size_t n) {
  if (n <= scratch->capacity) return WEFT_OK;
  size_t capacity = n < 64 ? 64 : n;
  weft__bpe_scratch_clear(scratch);
  scratch->symbols = weft__alloc(capacity, sizeof *scratch->symbols);
  scratch->heap = weft__alloc(capacity, 2 * sizeof *scratch->heap);
  if (!scratch->symbols || !scratch->heap) return WEFT_ENOMEM;
  scratch->capacity = capacity;
  return WEFT_OK;
}

/* Looks up the merge of symbol i with the one after it. */
static void offer_merge(const weft__bpe *bpe, weft__symbol *symbols, int32_t i, merge_heap *heap) {
  weft__symbol *left = &symbols[i];
  left->rank = NO_RANK;
  if (left->next == NONE) return;
  uint64_t pair = make_pair(left->id, symbols[left->next].id);
  const weft__merge *merge = find_merge(bpe, pair);
  if (merge->pair != pair) return;
  left->rank = merge->rank;
  left->merged_id = merge->id;
  push(heap, (uint64_t)(uint32_t)merge->rank << 32 | (uint32_t)i);
}

/* Joins symbol i with the one after it, whose place in the list ends here. */
static void apply_merge(const weft__bpe *bpe, weft__symbol *symbols, int32_t i, merge_heap *heap) {
  weft__symbol *left = &symbols[i], *right = &symbols[left->next];
  left->id = left->merged_id;
  left->next = right->next;
  right->rank = NO_RANK;
  if (left->next != NONE) symbols[left->next].previous = i;
  offer_merge(bpe, symbols, i, heap);
  if (left->previous != NONE) offer_merge(bpe, symbols, left->previous, heap);
}

/* One symbol for each byte that has a token; returns their number. */
static int32_t make_symbols(const weft__bpe *bpe, weft__symbol *symbols, const char *piece, size_t n) {
  int32_t n_symbols = 0;
  for (size_t i = 0; i < n; i++) {
    int32_t id = bpe->byte_ids[(unsigned char)piece[i]];
    if (id < 0) continue;
    symbols[n_symbols] = (weft__symbol){.id = id, .previous = n_symbols - 1, .next = n_symbols + 1};
    n_symbols++;
  }
  if (n_symbols > 0) symbols[n_symbols - 1].next = NONE;
  return n_symbols;
}

weft_status weft__bpe_encode(const weft__bpe *bpe, weft__bpe_scratch *scratch, const char *piece, size_t n,
                             weft__ids *ids) {
  /* Half of a heap entry is an index. */
  if (n > INT32_MAX) return weft__error(WEFT_ELIMIT, "text: a word of %zu bytes is too long (split the text)", n);
  weft_status status = reserve_scratch(scratch, n);
  if (status) return status;
  weft__symbol *symbols = scratch->symbols;
  merge_heap heap = {scratch->heap, 0};
  int32_t n_symbols = make_symbols(bpe, symbols, piece, n);
  for (int32_t i = 0; i < n_symbols; i++) offer_merge(bpe, symbols, i, &heap);
  while (heap.n > 0) {
    uint64_t entry = pop(&heap);
    int32_t i = (int32_t)(uint32_t)entry;
    if (symbols[i].rank == (int32_t)(entry >> 32)) apply_merge(bpe, symbols, i, &heap);
  }
  /* The first symbol is never merged into another, so the list still starts with it. */
  for (int32_t i = n_symbols > 0 ? 0 : NONE; i != NONE && !status; i = symbols[i].next)
    status = weft__ids_add(ids, &symbols[i].id, 1);
  return status;
}

void weft__bpe_scratch_clear(weft__bpe_scratch *scratch) {
  weft_free(scratch->symbols);
  weft_free(scratch->heap);
  *scratch = (weft__bpe_scratch){0};
}

weft_status weft__ids_add(weft__ids *ids, const int32_t *more, size_t n) {
  if (!ids->data || n > ids->capacity - ids->n) {
    size_t capacity = 2 * ids->capacity + n + 16;
    int32_t *data = weft__realloc(ids->data, capacity, sizeof *data);
    if (!data) return WEFT_ENOMEM;
    ids->data = data;
    ids->capacity = capacity;
  }
  memcpy(ids->data + ids->n, more, n * sizeof *more);
  ids->n += n;
  return WEFT_OK;
}
