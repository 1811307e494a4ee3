/* vocab.h - the vocabulary: id -> bytes, id -> type, spelling -> id.
 *
 * A token has two texts.  Its spelling is how the model file writes it (normal tokens in GPT-2's alphabet), and is what
 * merges and special tokens are named by; its bytes are what it stands for in a text.  For all but normal tokens the
 * two are the same.  Of several tokens with one spelling, the lowest id is the one that is found. */
#ifndef WEFT_VOCAB_H
#define WEFT_VOCAB_H

#include "base/base.h"
#include "weft/format.h"

/* Numbered as in tokenizer.ggml.token_type. */
typedef enum weft__token_type {
  WEFT__TOKEN_NORMAL = 1,
  WEFT__TOKEN_UNKNOWN,
  WEFT__TOKEN_CONTROL,      /* "<|im_start|>": steers the model, is not text */
  WEFT__TOKEN_USER_DEFINED, /* text that is kept whole */
  WEFT__TOKEN_UNUSED,
  WEFT__TOKEN_BYTE,
} weft__token_type;

/* Texts of all tokens, one after the other: token i is data[start[i]] to data[start[i + 1]]. */
typedef struct weft__texts {
  char *data;
  size_t *start; /* [V + 1] */
} weft__texts;

typedef struct weft__vocab_slot {
  uint32_t hash;
  int32_t id; /* -1: empty */
} weft__vocab_slot;

typedef struct weft__vocab {
  int32_t n; /* V, at least 1 */
  weft__texts spellings, bytes;
  uint8_t *types;          /* [V] weft__token_type */
  weft__vocab_slot *slots; /* hash table of the spellings, n_slots a power of two, at most half of them taken */
  size_t n_slots;
} weft__vocab;

/* Reads tokenizer.ggml.tokens and token_type.  On failure, too, *vocab is fit for weft__vocab_clear. */
weft_status weft__vocab_read(weft__vocab *vocab, const weft_gguf *gguf);
void weft__vocab_clear(weft__vocab *vocab);

/* The id of a spelling, -1 if there is none. */
int32_t weft__vocab_find(const weft__vocab *vocab, const char *spelling, size_t n);

/* Text of a valid id, and its length. */
static inline const char *weft__text_at(const weft__texts *texts, int32_t id, size_t *n) {
  *n = texts->start[id + 1] - texts->start[id];
  return texts->data + texts->start[id];
}

/* What entry `key` holds as an array of strings, the caller's to free.  EFORMAT if it is missing or something else. */
weft_status weft__read_strings(const weft_gguf *gguf, const char *key, weft_gguf_string **strings, size_t *n);

#endif
