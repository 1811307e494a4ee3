/* bpe.c - the table of merges, and encoding by it. */
#include "tokenizer/bpe.h"
#include "tokenizer/bytes_unicode.h"

#include <string.h>

enum {
  MAX_MERGES = 1 << 26,
  MAX_WORD_BYTES = 512 /* of a token that a whole piece may be; the longest in use are runs of 128 spaces or dashes */
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
static bool add_merge(weft__bpe *bpe, const weft__vocab *vocab, weft_gguf_string merge, uint32_t rank, char *joined) {
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
    if (!add_merge(bpe, vocab, merges[i], (uint32_t)i, joined))
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

/* ---- one piece ---- */

/* Looks up the merge of symbol i with the one after it. */
static void rank_pair(const void *context, weft__symbol *symbols, int32_t i) {
  weft__symbol *left = &symbols[i];
  uint64_t pair = make_pair(left->id, symbols[left->next].id);
  const weft__merge *merge = find_merge(context, pair);
  if (merge->pair != pair) return;
  left->rank = merge->rank;
  left->joined_id = merge->id;
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
  if (n_symbols > 0) symbols[n_symbols - 1].next = WEFT__NO_SYMBOL;
  return n_symbols;
}

int32_t weft__bpe_find(const weft__vocab *vocab, const char *piece, size_t n) {
  char spelling[2 * MAX_WORD_BYTES];
  size_t n_spelling = 0;
  if (n > MAX_WORD_BYTES) return -1;
  for (size_t i = 0; i < n; i++) n_spelling += weft__byte_to_spelling((unsigned char)piece[i], spelling + n_spelling);
  int32_t id = weft__vocab_find(vocab, spelling, n_spelling);
  return id >= 0 && vocab->types[id] == WEFT__TOKEN_NORMAL ? id : -1;
}

weft_status weft__bpe_encode(const weft__bpe *bpe, weft__merger *merger, const char *piece, size_t n, weft__ids *ids) {
  weft_status status = weft__merger_reserve(merger, n);
  if (status) return status;
  weft__symbol *symbols = merger->symbols;
  if (make_symbols(bpe, symbols, piece, n) == 0) return WEFT_OK;
  weft__merger_run(merger, 0, rank_pair, bpe);
  for (int32_t i = 0; i != WEFT__NO_SYMBOL && !status; i = symbols[i].next)
    status = weft__ids_add(ids, &symbols[i].id, 1);
  return status;
}
