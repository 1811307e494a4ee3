/* vocab.c - reading the vocabulary and finding spellings in it.
 *
 * The table of spellings is open-addressed over flat arrays.  A model has 50 000 to 250 000 tokens and three look-ups a
 * merge, all of it between the start of the program and its first word: a node and a chain of pointers for each token
 * would cost more than reading the file. */
#include "tokenizer/vocab.h"
#include "tokenizer/bytes_unicode.h"

#include <string.h>

#include <xxhash.h>

enum { MAX_TOKENS = 1 << 24 };

weft_status weft__read_strings(const weft_gguf *gguf, const char *key, weft_gguf_string **strings, size_t *n) {
  const weft_gguf_entry *entry = weft_gguf_find(gguf, key);
  if (!entry)
    return weft__error(WEFT_EFORMAT, "%s: %s is missing (use a model file that contains its tokenizer)",
                       weft_gguf_path(gguf), key);
  weft_status status = weft_gguf_strings(gguf, entry, strings);
  if (!status) *n = (size_t)entry->n_elements;
  return status;
}

/* ---- types ---- */

/* A file without types has normal tokens only. */
static weft_status read_types(weft__vocab *vocab, const weft_gguf *gguf) {
  const char *key = "tokenizer.ggml.token_type";
  vocab->types = weft__alloc((size_t)vocab->n, sizeof *vocab->types);
  if (!vocab->types) return WEFT_ENOMEM;
  memset(vocab->types, WEFT__TOKEN_NORMAL, (size_t)vocab->n);
  const weft_gguf_entry *entry = weft_gguf_find(gguf, key);
  if (!entry) return WEFT_OK;
  if (entry->type != WEFT_GGUF_ARRAY || entry->n_elements != (uint64_t)vocab->n)
    return weft__error(WEFT_EFORMAT,
                       "%s: %s is not an array of %d numbers, one for each token (convert the model again)",
                       weft_gguf_path(gguf), key, (int)vocab->n);
  for (int32_t id = 0; id < vocab->n; id++) {
    double type;
    weft_status status = weft_gguf_number(entry, (uint64_t)id, &type);
    if (status) return status;
    if (!(type >= WEFT__TOKEN_NORMAL && type <= WEFT__TOKEN_BYTE))
      return weft__error(WEFT_EFORMAT, "%s: %s: token %d has type %g, 1 to 6 exist (convert the model again)",
                         weft_gguf_path(gguf), key, (int)id, type);
    vocab->types[id] = (uint8_t)type;
  }
  return WEFT_OK;
}

/* ---- texts ---- */

static weft_status alloc_texts(weft__texts *texts, int32_t n, size_t n_bytes) {
  texts->start = weft__alloc((size_t)n + 1, sizeof *texts->start);
  texts->data = weft__alloc(n_bytes, 1);
  if (!texts->start || !texts->data) return WEFT_ENOMEM;
  texts->start[0] = 0;
  return WEFT_OK;
}

/* The byte that "<0xHH>" stands for, -1 if it is spelled otherwise. */
static int parse_byte(const char *spelling, size_t n) {
  int value = 0;
  if (n != 6 || memcmp(spelling, "<0x", 3) != 0 || spelling[5] != '>') return -1;
  for (int i = 3; i < 5; i++) {
    static const char digits[] = "0123456789ABCDEF";
    const char *digit = spelling[i] ? strchr(digits, spelling[i]) : NULL;
    if (!digit) return -1;
    value = 16 * value + (int)(digit - digits);
  }
  return value;
}

/* Replaces U+2581 by a space; returns the number of bytes. */
static size_t unescape_spaces(const char *spelling, size_t n, char *bytes) {
  size_t n_out = 0;
  for (size_t i = 0; i < n;) {
    bool is_space = weft__is_space_mark(spelling + i, n - i);
    bytes[n_out++] = is_space ? ' ' : spelling[i];
    i += is_space ? WEFT__SPACE_MARK_BYTES : 1;
  }
  return n_out;
}

/* Writes the bytes of a token (room for as many as its spelling has) and their number; false if it is not spelled as it
 * must be. */
static bool to_bytes(weft__spelling kind, uint8_t type, weft_gguf_string spelling, char *bytes, size_t *n) {
  bool is_byte_level = kind == WEFT__SPELLED_BYTE_LEVEL;
  if (is_byte_level && type == WEFT__TOKEN_NORMAL)
    return weft__spelling_to_bytes(spelling.data, spelling.n_bytes, bytes, n);
  if (!is_byte_level && type == WEFT__TOKEN_BYTE) {
    int byte = parse_byte(spelling.data, spelling.n_bytes);
    if (byte >= 0) bytes[0] = (char)byte;
    *n = 1;
    return byte >= 0;
  }
  if (!is_byte_level && type != WEFT__TOKEN_CONTROL && type != WEFT__TOKEN_UNKNOWN) {
    *n = unescape_spaces(spelling.data, spelling.n_bytes, bytes);
    return true;
  }
  memcpy(bytes, spelling.data, spelling.n_bytes);
  *n = spelling.n_bytes;
  return true;
}

/* Appends token `id` to both texts.  The bytes never outgrow the spelling. */
static weft_status add_token(weft__vocab *vocab, weft__spelling kind, int32_t id, weft_gguf_string spelling,
                             const weft_gguf *gguf) {
  size_t spelling_end = vocab->spellings.start[id], bytes_end = vocab->bytes.start[id], n = spelling.n_bytes;
  memcpy(vocab->spellings.data + spelling_end, spelling.data, n);
  if (!to_bytes(kind, vocab->types[id], spelling, vocab->bytes.data + bytes_end, &n))
    return weft__error(WEFT_EFORMAT,
                       "%s: tokenizer.ggml.tokens: token %d '%.*s' is not spelled %s (convert the model again)",
                       weft_gguf_path(gguf), (int)id, spelling.n_bytes < 64 ? (int)spelling.n_bytes : 64, spelling.data,
                       kind == WEFT__SPELLED_BYTE_LEVEL ? "in the byte-level alphabet" : "<0xHH>, as its type says");
  vocab->spellings.start[id + 1] = spelling_end + spelling.n_bytes;
  vocab->bytes.start[id + 1] = bytes_end + n;
  return WEFT_OK;
}

static weft_status read_texts(weft__vocab *vocab, weft__spelling kind, const weft_gguf_string *spellings,
                              const weft_gguf *gguf) {
  size_t n_bytes = 0;
  /* The sum cannot overflow: all strings lie inside one mapped file. */
  for (int32_t id = 0; id < vocab->n; id++) n_bytes += spellings[id].n_bytes;
  weft_status status = alloc_texts(&vocab->spellings, vocab->n, n_bytes);
  if (!status) status = alloc_texts(&vocab->bytes, vocab->n, n_bytes);
  for (int32_t id = 0; id < vocab->n && !status; id++) status = add_token(vocab, kind, id, spellings[id], gguf);
  return status;
}

/* ---- the table of spellings ---- */

static uint32_t hash_spelling(const char *spelling, size_t n) { return (uint32_t)XXH3_64bits(spelling, n); }

/* The slot that holds the spelling, or the empty one where it would go. */
static weft__vocab_slot *find_slot(const weft__vocab *vocab, const char *spelling, size_t n, uint32_t hash) {
  for (size_t i = hash;; i++) {
    weft__vocab_slot *slot = &vocab->slots[i & (vocab->n_slots - 1)];
    if (slot->id < 0) return slot;
    if (slot->hash != hash) continue;
    size_t n_other;
    const char *other = weft__text_at(&vocab->spellings, slot->id, &n_other);
    if (n_other == n && memcmp(other, spelling, n) == 0) return slot;
  }
}

static weft_status build_table(weft__vocab *vocab) {
  /* At least half of the slots stay empty, so a search is short and ends. */
  vocab->n_slots = 2;
  while (vocab->n_slots < 2 * (size_t)vocab->n) vocab->n_slots *= 2;
  vocab->slots = weft__alloc(vocab->n_slots, sizeof *vocab->slots);
  if (!vocab->slots) return WEFT_ENOMEM;
  memset(vocab->slots, 0xFF, vocab->n_slots * sizeof *vocab->slots);
  for (int32_t id = 0; id < vocab->n; id++) {
    size_t n;
    const char *spelling = weft__text_at(&vocab->spellings, id, &n);
    uint32_t hash = hash_spelling(spelling, n);
    weft__vocab_slot *slot = find_slot(vocab, spelling, n, hash);
    if (slot->id < 0) *slot = (weft__vocab_slot){hash, id};
  }
  return WEFT_OK;
}

int32_t weft__vocab_find(const weft__vocab *vocab, const char *spelling, size_t n) {
  return find_slot(vocab, spelling, n, hash_spelling(spelling, n))->id;
}

/* ---- the vocabulary ---- */

weft_status weft__vocab_read(weft__vocab *vocab, weft__spelling spelling, const weft_gguf *gguf) {
  const char *key = "tokenizer.ggml.tokens";
  weft_gguf_string *spellings = NULL;
  size_t n = 0;
  *vocab = (weft__vocab){0};
  weft_status status = weft__read_strings(gguf, key, &spellings, &n);
  if (status) return status;
  if (n < 1 || n > MAX_TOKENS) {
    weft_free(spellings);
    return weft__error(WEFT_EFORMAT, "%s: %s has %zu tokens, 1 to %d are allowed (convert the model again)",
                       weft_gguf_path(gguf), key, n, MAX_TOKENS);
  }
  vocab->n = (int32_t)n;
  status = read_types(vocab, gguf);
  if (!status) status = read_texts(vocab, spelling, spellings, gguf);
  if (!status) status = build_table(vocab);
  weft_free(spellings);
  return status;
}

void weft__vocab_clear(weft__vocab *vocab) {
  weft_free(vocab->spellings.data);
  weft_free(vocab->spellings.start);
  weft_free(vocab->bytes.data);
  weft_free(vocab->bytes.start);
  weft_free(vocab->types);
  weft_free(vocab->slots);
  *vocab = (weft__vocab){0};
}
