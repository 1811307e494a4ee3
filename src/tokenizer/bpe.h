/* bpe.h - byte-pair encoding: the bytes of one piece of text become tokens by merging neighbours, lowest rank first.
 *
 * A merge's rank is its place in tokenizer.ggml.merges.  The table is immutable; what one call needs lives in a
 * weft__merger, which a thread reuses from piece to piece. */
#ifndef WEFT_BPE_H
#define WEFT_BPE_H

#include "tokenizer/merge.h"
#include "tokenizer/vocab.h"

typedef struct weft__merge {
  uint64_t pair; /* left id << 32 | right id; all ones: an empty slot */
  uint32_t rank;
  int32_t id; /* of the result */
} weft__merge;

typedef struct weft__bpe {
  int32_t byte_ids[256]; /* -1: the vocabulary has no token for this byte */
  weft__merge *slots;    /* hash table by pair, n_slots a power of two, at most half of them taken */
  size_t n_slots;
  int shift; /* of the hash: 64 - log2(n_slots) */
} weft__bpe;

/* Reads tokenizer.ggml.merges.  EFORMAT names a merge that is not two tokens whose joined spelling is a token.  On
 * failure, too, *bpe is fit for weft__bpe_clear. */
weft_status weft__bpe_read(weft__bpe *bpe, const weft__vocab *vocab, const weft_gguf *gguf);
void weft__bpe_clear(weft__bpe *bpe);

/* The token whose bytes are this piece, -1 if there is none. */
int32_t weft__bpe_find(const weft__vocab *vocab, const char *piece, size_t n);

/* Appends the ids of one piece.  Bytes that have no token are left out before anything is merged, as in the tokenizers
 * that these models were trained with.  O(n log n) in the length of the piece. */
weft_status weft__bpe_encode(const weft__bpe *bpe, weft__merger *merger, const char *piece, size_t n, weft__ids *ids);

#endif
