/* spm.h - SentencePiece's BPE: the characters of a text become tokens by joining neighbours, and the pair whose joined
 * text has the highest score comes first.
 *
 * There is no list of merges: two symbols can be joined if the text of both together is a token.  Spaces are written as
 * U+2581 before anything else, and belong to the word behind them.  A character that is no token becomes the tokens of
 * its bytes, or the unknown token in vocabularies that have none of those.  Control tokens never come out of joining,
 * whatever the text says. */
#ifndef WEFT_SPM_H
#define WEFT_SPM_H

#include "tokenizer/merge.h"
#include "tokenizer/vocab.h"

typedef struct weft__spm {
  uint32_t *ranks;          /* [V] ascending as the scores descend; no rank for tokens that are never a text */
  int32_t byte_ids[256];    /* -1: the vocabulary has no token for this byte */
  int32_t unknown;          /* -1: none, then every byte has its token */
  size_t longest;           /* bytes of the longest token that has a rank */
  bool precedes_space[256]; /* the bytes behind which U+2581 stands inside a token */
} weft__spm;

/* What one call needs, reused from stretch to stretch.  Zero-initialise, free with weft__spm_scratch_clear. */
typedef struct weft__spm_scratch {
  weft__merger merger;
  weft__bytes escaped;
} weft__spm_scratch;

/* Reads tokenizer.ggml.scores and unknown_token_id.  EFORMAT: missing, of the wrong kind, not finite, or bytes without a
 * token and no unknown one.  On failure, too, *spm is fit for weft__spm_clear. */
weft_status weft__spm_read(weft__spm *spm, const weft__vocab *vocab, const weft_gguf *gguf);
void weft__spm_clear(weft__spm *spm);

/* Appends the ids of a stretch of text; `space_first` puts a space before it.  Bytes that are not UTF-8 are characters
 * without a token.  O(n log n) in the length of the stretch. */
weft_status weft__spm_encode(const weft__spm *spm, const weft__vocab *vocab, weft__spm_scratch *scratch,
                             const char *text, size_t n, bool space_first, weft__ids *ids);
void weft__spm_scratch_clear(weft__spm_scratch *scratch);

#endif
