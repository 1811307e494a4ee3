/* encode.c - text to ids and back.
 *
 * Encoding cuts the text at special tokens; what lies between goes through the pre-tokenizer piece by piece into BPE.
 * Decoding is a concatenation of the tokens' bytes. */
#include "tokenizer/tokenizer.h"

#include <string.h>

/* ---- encoding ---- */

typedef struct encoder {
  const weft_tokenizer *tokenizer;
  weft__bpe_scratch scratch;
  weft__ids ids;
} encoder;

/* The search for special tokens goes through the spans once, in order. */
static weft_status check_literal(const weft_text_span *literal, size_t n_literal, size_t n_bytes) {
  size_t end = 0;
  for (size_t i = 0; i < n_literal; i++) {
    bool fits = literal[i].start <= n_bytes && literal[i].n_bytes <= n_bytes - literal[i].start;
    if (!fits || literal[i].start < end)
      return weft__error(WEFT_EINVAL,
                         "literal span %zu: it leaves the text or does not follow the one before it (give "
                         "ascending spans)",
                         i);
    end = literal[i].start + literal[i].n_bytes;
  }
  return WEFT_OK;
}

static weft_status encode_piece(void *context, const char *piece, size_t n) {
  encoder *e = context;
  return weft__bpe_encode(&e->tokenizer->bpe, &e->scratch, piece, n, &e->ids);
}

/* Alternates between a stretch of ordinary text, which may be empty, and the special token behind it. */
static weft_status encode_text(encoder *e, weft__special_scan *scan) {
  weft_status status = WEFT_OK;
  for (size_t position = 0; position < scan->n_bytes && !status;) {
    int32_t id;
    size_t n_token, special = weft__special_next(scan, position, &id, &n_token);
    status = weft__pretokenize(e->tokenizer->pretokenizer, scan->text + position, special - position, encode_piece, e);
    if (!status && id >= 0) status = weft__ids_add(&e->ids, &id, 1);
    position = special + n_token;
  }
  return status;
}

/* A text that brings its own beginning-of-text token keeps that one alone. */
static void drop_second_bos(weft__ids *ids, int32_t bos) {
  if (ids->n < 2 || ids->data[1] != bos) return;
  ids->n--;
  memmove(ids->data, ids->data + 1, ids->n * sizeof *ids->data);
}

weft_status weft_tokenizer_encode(const weft_tokenizer *tokenizer, const char *text, size_t n_bytes, int flags,
                                  const weft_text_span *literal, size_t n_literal, int32_t **ids, size_t *n_ids) {
  encoder e = {.tokenizer = tokenizer};
  weft__special_scan scan = {&tokenizer->specials, &tokenizer->vocab, text, n_bytes, flags, literal, n_literal};
  bool adds_bos = tokenizer->adds_bos && !(flags & WEFT_TOKENIZE_NO_BOS);
  weft_status status = check_literal(literal, n_literal, n_bytes);
  /* Adding nothing makes sure that the caller gets a block even for no ids. */
  if (!status) status = weft__ids_add(&e.ids, &tokenizer->bos, adds_bos ? 1 : 0);
  if (!status) status = encode_text(&e, &scan);
  if (!status && adds_bos) drop_second_bos(&e.ids, tokenizer->bos);
  weft__bpe_scratch_clear(&e.scratch);
  if (status) {
    weft_free(e.ids.data);
    return status;
  }
  *ids = e.ids.data;
  *n_ids = e.ids.n;
  return WEFT_OK;
}

/* ---- decoding ---- */

weft_status weft_tokenizer_decode(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, int flags,
                                  char **text, size_t *n_bytes) {
  weft__bytes bytes = {0};
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < n_ids && !status; i++) {
    size_t n;
    const char *piece = weft_tokenizer_piece(tokenizer, ids[i], &n);
    if (!piece)
      status = weft__error(WEFT_EINVAL, "token %zu: id %d is not in the vocabulary (give ids from 0 to %d)", i,
                           (int)ids[i], (int)tokenizer->vocab.n - 1);
    else if (!(flags & WEFT_TOKENIZE_NO_SPECIAL) || tokenizer->vocab.types[ids[i]] != WEFT__TOKEN_CONTROL)
      status = weft__bytes_add(&bytes, piece, n);
  }
  size_t n = bytes.n;
  char *data = status ? NULL : weft__bytes_take(&bytes);
  weft__bytes_clear(&bytes);
  if (!status && !data) status = WEFT_ENOMEM;
  if (status) return status;
  *text = data;
  *n_bytes = n;
  return WEFT_OK;
}
