/* vocab.h - the vocabulary: id -> bytes, id -> type, spelling -> id.
 *
 * A token has two texts.  Its spelling is how the model file writes it, and is what merges and added tokens are named by;
 * its bytes are what it stands for in a text.  They differ as the kind of the vocabulary says (weft__spelling).  Of
 * several tokens with one spelling, the lowest id is the one that is found.
 *
 * Kinds of tokens: added ones are matched in a text before anything else.  Those of them that steer the model and are not
 * text are special; the rest are user-defined, text that is kept whole. */
#ifndef WEFT_VOCAB_H
#define WEFT_VOCAB_H

#include "base/base.h"
#include "weft/format.h"

#include <string.h>

/* Numbered as in tokenizer.ggml.token_type. */
typedef enum weft__token_type {
  WEFT__TOKEN_NORMAL = 1,
  WEFT__TOKEN_UNKNOWN,      /* "<unk>": special */
  WEFT__TOKEN_CONTROL,      /* "<|im_start|>": special */
  WEFT__TOKEN_USER_DEFINED, /* added, but text */
  WEFT__TOKEN_UNUSED,
  WEFT__TOKEN_BYTE, /* "<0x0A>" */
} weft__token_type;

typedef enum weft__spelling {
  WEFT__SPELLED_BYTE_LEVEL, /* normal tokens in GPT-2's alphabet, the others as they read */
  WEFT__SPELLED_UTF8        /* special tokens as they read, bytes as <0xHH>, in all others U+2581 stands for a space */
} weft__spelling;

/* U+2581, which stands for a space. */
#define WEFT__SPACE_MARK "\xE2\x96\x81"
enum { WEFT__SPACE_MARK_BYTES = sizeof WEFT__SPACE_MARK - 1 };

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

/* Reads tokenizer.ggml.tokens and token_type.  EFORMAT: a token is not spelled as it must be, among others.  On failure,
 * too, *vocab is fit for weft__vocab_clear. */
weft_status weft__vocab_read(weft__vocab *vocab, weft__spelling spelling, const weft_gguf *gguf);
void weft__vocab_clear(weft__vocab *vocab);

/* The id of a spelling, -1 if there is none. */
int32_t weft__vocab_find(const weft__vocab *vocab, const char *spelling, size_t n);

/* Text of a valid id, and its length. */
static inline const char *weft__text_at(const weft__texts *texts, int32_t id, size_t *n) {
  *n = texts->start[id + 1] - texts->start[id];
  return texts->data + texts->start[id];
}

static inline bool weft__is_special(const weft__vocab *vocab, int32_t id) {
  return vocab->types[id] == WEFT__TOKEN_CONTROL || vocab->types[id] == WEFT__TOKEN_UNKNOWN;
}

static inline bool weft__is_added(const weft__vocab *vocab, int32_t id) {
  return weft__is_special(vocab, id) || vocab->types[id] == WEFT__TOKEN_USER_DEFINED;
}

/* Whether n bytes start with U+2581. */
static inline bool weft__is_space_mark(const char *text, size_t n) {
  return n >= WEFT__SPACE_MARK_BYTES && memcmp(text, WEFT__SPACE_MARK, WEFT__SPACE_MARK_BYTES) == 0;
}

/* What entry `key` holds as an array of strings, the caller's to free.  EFORMAT if it is missing or something else. */
weft_status weft__read_strings(const weft_gguf *gguf, const char *key, weft_gguf_string **strings, size_t *n);

#endif
