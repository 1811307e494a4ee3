/* spm.c - ranks from scores, and encoding by them.
 *
 * The symbols of a word are indexed by the byte that they start at, so where a symbol ends is where the next one starts,
 * and the text of a pair needs no bookkeeping. */
#include "tokenizer/spm.h"

#include <math.h>
#include <string.h>

/* ---- ranks ---- */

/* A number that falls as the score rises: the bits of a float order as integers once negative numbers are reversed.
 * Never WEFT__NO_RANK, which only the bits of a NaN would give. */
static uint32_t rank_of(float score) {
  uint32_t bits;
  score += 0.0f; /* of the two zeros, the positive one */
  memcpy(&bits, &score, sizeof bits);
  uint32_t ascending = bits & 0x80000000 ? ~bits : bits | 0x80000000;
  return ~ascending;
}

static bool is_text(uint8_t type) {
  return type == WEFT__TOKEN_NORMAL || type == WEFT__TOKEN_USER_DEFINED || type == WEFT__TOKEN_UNUSED;
}

/* Takes token `id` of this score into the tables. */
static void add_token(weft__spm *spm, const weft__vocab *vocab, int32_t id, float score) {
  size_t n;
  const char *spelling = weft__text_at(&vocab->spellings, id, &n);
  spm->ranks[id] = WEFT__NO_RANK;
  if (vocab->types[id] == WEFT__TOKEN_BYTE)
    spm->byte_ids[(unsigned char)vocab->bytes.data[vocab->bytes.start[id]]] = id;
  if (!is_text(vocab->types[id])) return;
  spm->ranks[id] = rank_of(score);
  if (n > spm->longest) spm->longest = n;
  for (size_t i = 1; i < n; i++)
    if (weft__is_space_mark(spelling + i, n - i)) spm->precedes_space[(unsigned char)spelling[i - 1]] = true;
}

static weft_status read_scores(weft__spm *spm, const weft__vocab *vocab, const weft_gguf *gguf) {
  const char *key = "tokenizer.ggml.scores", *path = weft_gguf_path(gguf);
  const weft_gguf_entry *entry = weft_gguf_find(gguf, key);
  if (!entry || entry->type != WEFT_GGUF_ARRAY || entry->n_elements != (uint64_t)vocab->n)
    return weft__error(WEFT_EFORMAT,
                       "%s: %s is not an array of %d numbers, one for each token (convert the model again)", path, key,
                       (int)vocab->n);
  spm->ranks = weft__alloc((size_t)vocab->n, sizeof *spm->ranks);
  if (!spm->ranks) return WEFT_ENOMEM;
  for (int32_t id = 0; id < vocab->n; id++) {
    double score;
    weft_status status = weft_gguf_number(entry, (uint64_t)id, &score);
    if (status) return status;
    if (!isfinite((float)score))
      return weft__error(WEFT_EFORMAT,
                         "%s: %s: the score of token %d is %g, not a finite number (convert the model again)", path,
                         key, (int)id, score);
    add_token(spm, vocab, id, (float)score);
  }
  return WEFT_OK;
}

/* The unknown token stands for what has no token, if the bytes have none either. */
static weft_status read_unknown(weft__spm *spm, const weft__vocab *vocab, const weft_gguf *gguf) {
  int64_t unknown = -1;
  weft_status status = weft_gguf_get_int(gguf, "tokenizer.ggml.unknown_token_id", 0, vocab->n - 1, &unknown);
  if (status) return status;
  spm->unknown = (int32_t)unknown;
  for (int byte = 0; byte < 256 && spm->unknown < 0; byte++)
    if (spm->byte_ids[byte] < 0)
      return weft__error(WEFT_EFORMAT,
                         "%s: tokenizer.ggml.tokens: there is no token for the byte 0x%02X, and unknown_token_id is "
                         "missing (convert the model again)",
                         weft_gguf_path(gguf), byte);
  return WEFT_OK;
}

weft_status weft__spm_read(weft__spm *spm, const weft__vocab *vocab, const weft_gguf *gguf) {
  *spm = (weft__spm){0};
  for (int byte = 0; byte < 256; byte++) spm->byte_ids[byte] = -1;
  weft_status status = read_scores(spm, vocab, gguf);
  return status ? status : read_unknown(spm, vocab, gguf);
}

void weft__spm_clear(weft__spm *spm) {
  weft_free(spm->ranks);
  spm->ranks = NULL;
}

/* ---- one word ---- */

typedef struct word {
  const weft__spm *spm;
  const weft__vocab *vocab;
  const char *text;
  size_t n;
  size_t n_ids_before; /* of the list of ids, when this stretch of text began */
} word;

/* The token that a text is, -1 if it is none. */
static int32_t find_token(const word *w, const char *text, size_t n) {
  if (n > w->spm->longest) return -1;
  int32_t id = weft__vocab_find(w->vocab, text, n);
  return id >= 0 && w->spm->ranks[id] != WEFT__NO_RANK ? id : -1;
}

static size_t symbol_end(const word *w, const weft__symbol *symbol) {
  return symbol->next == WEFT__NO_SYMBOL ? w->n : (size_t)symbol->next;
}

/* Looks up the text of symbol i and the one after it. */
static void rank_pair(const void *context, weft__symbol *symbols, int32_t i) {
  const word *w = context;
  weft__symbol *left = &symbols[i];
  int32_t id = find_token(w, w->text + i, symbol_end(w, &symbols[left->next]) - (size_t)i);
  if (id < 0) return;
  left->rank = w->spm->ranks[id];
  left->joined_id = id;
}

/* A symbol for each character; a byte that is not part of one is a symbol, too. */
static void make_symbols(const word *w, weft__symbol *symbols) {
  int32_t previous = WEFT__NO_SYMBOL;
  for (size_t i = 0; i < w->n;) {
    int n_char = weft__utf8_length(w->text + i, w->n - i);
    size_t end = i + (n_char > 0 ? (size_t)n_char : 1);
    symbols[i] = (weft__symbol){.id = n_char > 0 ? find_token(w, w->text + i, end - i) : -1,
                                .previous = previous,
                                .next = end < w->n ? (int32_t)end : WEFT__NO_SYMBOL};
    previous = (int32_t)i;
    i = end;
  }
}

/* The tokens of n bytes that are none themselves.  A run of unknown ones in a stretch is one. */
static weft_status add_bytes(const word *w, const char *text, size_t n, weft__ids *ids) {
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < n && !status; i++) {
    int32_t id = w->spm->byte_ids[(unsigned char)text[i]];
    if (id < 0) id = w->spm->unknown;
    bool is_run = id == w->spm->unknown && ids->n > w->n_ids_before && ids->data[ids->n - 1] == id;
    if (!is_run) status = weft__ids_add(ids, &id, 1);
  }
  return status;
}

static weft_status encode_word(const word *w, weft__merger *merger, weft__ids *ids) {
  weft_status status = weft__merger_reserve(merger, w->n);
  if (status) return status;
  weft__symbol *symbols = merger->symbols;
  make_symbols(w, symbols);
  weft__merger_run(merger, 0, rank_pair, w);
  for (int32_t i = 0; i != WEFT__NO_SYMBOL && !status; i = symbols[i].next)
    status = symbols[i].id >= 0 ? weft__ids_add(ids, &symbols[i].id, 1)
                                : add_bytes(w, w->text + i, symbol_end(w, &symbols[i]) - (size_t)i, ids);
  return status;
}

/* ---- a stretch of text ---- */

static weft_status escape_spaces(weft__bytes *escaped, const char *text, size_t n, bool space_first) {
  escaped->n = 0;
  weft_status status = space_first ? weft__bytes_add(escaped, WEFT__SPACE_MARK, WEFT__SPACE_MARK_BYTES) : WEFT_OK;
  for (size_t i = 0; i < n && !status;) {
    const char *space = memchr(text + i, ' ', n - i);
    size_t end = space ? (size_t)(space - text) : n;
    status = weft__bytes_add(escaped, text + i, end - i);
    if (space && !status) status = weft__bytes_add(escaped, WEFT__SPACE_MARK, WEFT__SPACE_MARK_BYTES);
    i = end + 1;
  }
  return status;
}

/* Where the word that starts at `start` ends: before a space that no token holds together with the byte before it.  No
 * pair across such a place can be joined, so words do not depend on one another, and what is in work at a time is
 * small. */
static size_t word_end(const weft__spm *spm, const weft__bytes *text, size_t start) {
  size_t i = start + 1;
  while (i < text->n &&
         (!weft__is_space_mark(text->data + i, text->n - i) || spm->precedes_space[(unsigned char)text->data[i - 1]]))
    i++;
  return i;
}

weft_status weft__spm_encode(const weft__spm *spm, const weft__vocab *vocab, weft__spm_scratch *scratch,
                             const char *text, size_t n, bool space_first, weft__ids *ids) {
  if (n == 0) return WEFT_OK;
  weft__bytes *escaped = &scratch->escaped;
  size_t n_ids_before = ids->n;
  weft_status status = escape_spaces(escaped, text, n, space_first);
  for (size_t start = 0, end; start < escaped->n && !status; start = end) {
    end = word_end(spm, escaped, start);
    word w = {spm, vocab, escaped->data + start, end - start, n_ids_before};
    status = encode_word(&w, &scratch->merger, ids);
  }
  return status;
}

void weft__spm_scratch_clear(weft__spm_scratch *scratch) {
  weft__merger_clear(&scratch->merger);
  weft__bytes_clear(&scratch->escaped);
}
