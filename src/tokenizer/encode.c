/* encode.c - text to ids and back.
 *
 * Encoding cuts the text at added tokens; what lies between goes through the pre-tokenizer piece by piece into BPE, or into
 * SentencePiece's.  Decoding is a concatenation of the tokens' bytes, without the spaces that encoding put there. */
#include "tokenizer/tokenizer.h"

#include <string.h>

/* ---- encoding ---- */

typedef struct encoder {
  const weft_tokenizer *tokenizer;
  weft__spm_scratch scratch; /* byte-level BPE uses its merger only */
  weft__ids ids;
} encoder;

/* The search for added tokens goes through the spans once, in order. */
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
  const weft_tokenizer *t = e->tokenizer;
  int32_t id = t->keeps_tokens ? weft__bpe_find(&t->vocab, piece, n) : -1;
  if (id >= 0) return weft__ids_add(&e->ids, &id, 1);
  return weft__bpe_encode(&t->bpe, &e->scratch.merger, piece, n, &e->ids);
}

/* Text without added tokens; at its start there is the text's start or such a token, so this is where models that want a
 * space before the first word get it. */
static weft_status encode_stretch(encoder *e, const char *text, size_t n) {
  const weft_tokenizer *t = e->tokenizer;
  if (t->pretokenizer) return weft__pretokenize(t->pretokenizer, text, n, encode_piece, e);
  return weft__spm_encode(&t->spm, &t->vocab, &e->scratch, text, n, t->adds_space, &e->ids);
}

/* Alternates between a stretch of ordinary text, which may be empty, and the added token behind it. */
static weft_status encode_text(encoder *e, weft__added_scan *scan) {
  weft_status status = WEFT_OK;
  for (size_t position = 0; position < scan->n_bytes && !status;) {
    int32_t id;
    size_t n_token, token = weft__added_next(scan, position, &id, &n_token);
    status = encode_stretch(e, scan->text + position, token - position);
    if (!status && id >= 0) status = weft__ids_add(&e->ids, &id, 1);
    position = token + n_token;
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
  weft__added_scan scan = {&tokenizer->added, &tokenizer->vocab, text, n_bytes, flags, literal, n_literal};
  bool adds_bos = tokenizer->adds_bos && !(flags & WEFT_TOKENIZE_NO_BOS);
  weft_status status = check_literal(literal, n_literal, n_bytes);
  /* Adding nothing makes sure that the caller gets a block even for no ids. */
  if (!status) status = weft__ids_add(&e.ids, &tokenizer->bos, adds_bos ? 1 : 0);
  if (!status) status = encode_text(&e, &scan);
  if (!status && adds_bos) drop_second_bos(&e.ids, tokenizer->bos);
  weft__spm_scratch_clear(&e.scratch);
  if (status) {
    weft_free(e.ids.data);
    return status;
  }
  *ids = e.ids.data;
  *n_ids = e.ids.n;
  return WEFT_OK;
}

/* ---- decoding ---- */

/* Appends the bytes of token `id`.  Encoding puts a space before every stretch of text, so where one starts it goes. */
static weft_status decode_token(const weft_tokenizer *t, int32_t id, bool starts_stretch, weft__bytes *bytes) {
  size_t n;
  const char *piece = weft_tokenizer_piece(t, id, &n);
  bool has_added_space = t->adds_space && starts_stretch && !weft__is_added(&t->vocab, id) && n > 0 && piece[0] == ' ';
  return weft__bytes_add(bytes, piece + has_added_space, n - has_added_space);
}

weft_status weft_tokenizer_decode(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, int flags,
                                  char **text, size_t *n_bytes) {
  const weft__vocab *vocab = &tokenizer->vocab;
  weft__bytes bytes = {0};
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < n_ids && !status; i++) {
    if (ids[i] < 0 || ids[i] >= vocab->n)
      status = weft__error(WEFT_EINVAL, "token %zu: id %d is not in the vocabulary (give ids from 0 to %d)", i,
                           (int)ids[i], (int)vocab->n - 1);
    else if (!(flags & WEFT_TOKENIZE_NO_SPECIAL) || !weft__is_special(vocab, ids[i]))
      status = decode_token(tokenizer, ids[i], i == 0 || weft__is_added(vocab, ids[i - 1]), &bytes);
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
