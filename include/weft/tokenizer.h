/* weft/tokenizer.h - text to token ids and back.
 *
 * Byte-level BPE as GPT-2 defined it (a text is split by a pre-tokenizer pattern, each piece's bytes are merged by rank),
 * with the pattern that the model names; and SentencePiece's BPE with bytes for what has no token.  Added tokens are
 * matched in the text before anything else, longest first.  They are of two kinds: special tokens steer the model and are
 * not text ("<|im_start|>"; the files call them control tokens, and the unknown token is one, too); user-defined ones are
 * text that is kept whole.  A tokenizer is immutable after creation and may be used by several threads. */
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H

#include "weft/format.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_tokenizer weft_tokenizer;

/* Reads the tokenizer.ggml.* entries of `gguf`; copies what it needs, so `gguf` may be closed.  EFORMAT: entries missing,
 * of the wrong type or inconsistent.  EUNSUPPORTED: another tokenizer model or pre-tokenizer, named. */
WEFT_API weft_status weft_tokenizer_create(weft_tokenizer **out, const weft_gguf *gguf);
WEFT_API void weft_tokenizer_free(weft_tokenizer *tokenizer);

/* Flags of encode and decode. */
enum {
  WEFT_TOKENIZE_NO_SPECIAL = 1, /* encode: special tokens in the text are ordinary text; decode: leave them out */
  WEFT_TOKENIZE_NO_BOS = 2,     /* encode: no beginning-of-text token even if the model wants one */
};

/* A stretch of text no byte of which may be read as part of a special token (what a user typed, inside a template). */
typedef struct weft_text_span {
  size_t start, n_bytes;
} weft_text_span;

/* Encodes n_bytes of UTF-8 (invalid bytes are encoded as bytes).  *ids is the caller's, freed with weft_free; *n_ids may
 * be 0.  `literal` (n_literal spans, ascending and disjoint, may be NULL) marks text in which special tokens do not match;
 * EINVAL if a span leaves the text.  The beginning-of-text token is added unless the text starts with it.
 *
 * What a vocabulary cannot spell is lost, as in the tokenizers that such models were trained with.  Byte-level BPE leaves
 * out a byte that has no token: SmolLM2 lacks six control characters, the bytes that UTF-8 never uses, and the first bytes
 * of the unassigned planes 4 to 11.  SentencePiece reads U+2581 as a space, and has the unknown token for what neither
 * is a token nor has tokens for its bytes. */
WEFT_API weft_status weft_tokenizer_encode(const weft_tokenizer *tokenizer, const char *text, size_t n_bytes, int flags,
                                           const weft_text_span *literal, size_t n_literal, int32_t **ids,
                                           size_t *n_ids);

/* The text of n_ids ids: *text is NUL-terminated besides, the caller's, freed with weft_free.  Ids that end inside a
 * UTF-8 sequence give its bytes as they are.  The spaces that encoding adds before words, if the model wants them, are
 * left out where it would add them: at the start, and behind an added token.  EINVAL names an id outside the vocabulary. */
WEFT_API weft_status weft_tokenizer_decode(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, int flags,
                                           char **text, size_t *n_bytes);

/* The bytes of one token (a special token: its name), borrowed; NULL and *n_bytes 0 outside the vocabulary. */
WEFT_API const char *weft_tokenizer_piece(const weft_tokenizer *tokenizer, int32_t id, size_t *n_bytes);

WEFT_API int32_t weft_tokenizer_n_vocab(const weft_tokenizer *tokenizer);
WEFT_API int32_t weft_tokenizer_bos(const weft_tokenizer *tokenizer); /* -1 if the model has none */
WEFT_API int32_t weft_tokenizer_eos(const weft_tokenizer *tokenizer); /* -1 if the model has none */
/* The id of a token as the model file spells it; -1 if there is none. */
WEFT_API int32_t weft_tokenizer_find(const weft_tokenizer *tokenizer, const char *token);
WEFT_API int weft_tokenizer_is_special(const weft_tokenizer *tokenizer, int32_t id); /* 1: steers the model, no text */
WEFT_API int weft_tokenizer_is_end(const weft_tokenizer *tokenizer, int32_t id);     /* 1: generation stops at it */

#ifdef __cplusplus
}
#endif
#endif
