/* bpe.h - byte-pair encoding: the bytes of one piece of text become tokens by merging neighbours, lowest rank first.
 *
 * A merge's rank is its place in tokenizer.ggml.merges.  The table is immutable; what one call needs lives in a
 * weft__bpe_scratch, which a thread reuses from piece to piece. */
#ifndef WEFT_BPE_H
#define WEFT_BPE_H

#include "tokenizer/vocab.h"

typedef struct weft__merge {
  uint64_t pair; /* left id << 32 | right id; all ones: an empty slot */
  int32_t rank;
  int32_t id; /* of the result */
} weft__merge;

typedef struct weft__bpe {
  int32_t byte_ids[256]; /* -1: the vocabulary has no token for this byte */
  weft__merge *slots;    /* hash table by pair, n_slots a power of two, at most half of them taken */
  size_t n_slots;
  int shift; /* of the hash: 64 - log2(n_slots) */
} weft__bpe;

/* A growing list of ids; zero-initialise, free `data` with weft_free. */
typedef struct weft__ids {
  int32_t *data;
  size_t n, capacity;
} weft__ids;

typedef struct weft__symbol weft__symbol;

/* Zero-initialise, free with weft__bpe_scratch_clear. */
typedef struct weft__bpe_scratch {
  weft__symbol *symbols;
  uint64_t *heap;
  size_t capacity; /* bytes of the longest piece that fits */
} weft__bpe_scratch;

/* Reads tokenizer.ggml.merges.  EFORMAT names a merge that is not two tokens whose joined spelling is a token.  On
 * failure, too, *bpe is fit for weft__bpe_clear. */
weft_status weft__bpe_read(weft__bpe *bpe, const weft__vocab *vocab, const weft_gguf *gguf);
void weft__bpe_clear(weft__bpe *bpe);

/* Appends the ids of one piece.  Bytes that have no token are left out before anything is merged, as in the tokenizers
 * that these models were trained with.  O(n log n) in the length of the piece. */
weft_status weft__bpe_encode(const weft__bpe *bpe, weft__bpe_scratch *scratch, const char *piece, size_t n,
                             weft__ids *ids);
void weft__bpe_scratch_clear(weft__bpe_scratch *scratch);

weft_status weft__ids_add(weft__ids *ids, const int32_t *more, size_t n);

#endif
