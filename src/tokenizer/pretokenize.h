/* pretokenize.h - splitting text into the pieces inside which BPE merges, by the patterns that a model names. */
#ifndef WEFT_PRETOKENIZE_H
#define WEFT_PRETOKENIZE_H

#include "base/base.h"

typedef struct weft__pretokenizer weft__pretokenizer;

/* What else goes with a pre-tokenizer's name. */
typedef struct weft__pretokenizer_traits {
  bool keeps_tokens; /* a piece that is a token is not merged, whatever merges would make of it */
  bool wants_bos;    /* texts start with the beginning-of-text token, unless the file says otherwise */
} weft__pretokenizer_traits;

/* Receives the pieces in order; a failure ends the splitting and is passed on. */
typedef weft_status (*weft__piece_fn)(void *context, const char *piece, size_t n);

/* `name` is a value of tokenizer.ggml.pre, n bytes.  EUNSUPPORTED: an unknown one; the message has it and the known. */
weft_status weft__pretokenizer_create(weft__pretokenizer **out, const char *name, size_t n);
void weft__pretokenizer_free(weft__pretokenizer *pretokenizer);
weft__pretokenizer_traits weft__pretokenizer_get_traits(const weft__pretokenizer *pretokenizer);

/* Splits n bytes: together the pieces are the text, or its normalisation form C if the name asks for that, and none is
 * empty.  A run of bytes that are not UTF-8 is a piece of
 * its own.  May be called by several threads. */
weft_status weft__pretokenize(const weft__pretokenizer *pretokenizer, const char *text, size_t n, weft__piece_fn piece,
                              void *context);

#endif
