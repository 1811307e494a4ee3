/* tokenizer.c - creating a tokenizer from a model file, and what may be asked of it.
 *
 * The parts (vocabulary, merges, scores, added tokens, pre-tokenizer) read their own entries; here are the entries about the
 * whole: the kind of tokenizer, the ids with a role, and which tokens end a reply. */
#include "tokenizer/tokenizer.h"

#include <string.h>

/* ---- creation ---- */

static bool is_text(weft_gguf_string s, const char *text) {
  return s.n_bytes == strlen(text) && memcmp(s.data, text, s.n_bytes) == 0;
}

/* Which of the two kinds of tokenizer the file holds. */
static weft_status read_model(const weft_gguf *gguf, bool *is_spm) {
  const char *path = weft_gguf_path(gguf);
  weft_gguf_string model = {NULL, 0};
  weft_status status = weft_gguf_get_string(gguf, "tokenizer.ggml.model", &model);
  if (status) return status;
  if (!model.data)
    return weft__error(WEFT_EFORMAT,
                       "%s: tokenizer.ggml.model is missing (use a model file that contains its tokenizer)", path);
  *is_spm = is_text(model, "llama");
  if (*is_spm || is_text(model, "gpt2")) return WEFT_OK;
  return weft__error(WEFT_EUNSUPPORTED, "%s: tokenizer model '%.*s': not known (weft knows gpt2, llama)", path,
                     model.n_bytes < 64 ? (int)model.n_bytes : 64, model.data);
}

/* Refuses a switch that is on: what it asks for would change the ids. */
static weft_status refuse_switch(const weft_gguf *gguf, const char *key, const char *kind) {
  int is_on = 0;
  weft_status status = weft_gguf_get_bool(gguf, key, &is_on);
  if (status || !is_on) return status;
  return weft__error(WEFT_EUNSUPPORTED, "%s: %s: not supported for %s (set it to false)", weft_gguf_path(gguf), key,
                     kind);
}

static weft_status create_pretokenizer(weft_tokenizer *t, const weft_gguf *gguf) {
  weft_gguf_string name = {"default", 7};
  weft_status status = weft_gguf_get_string(gguf, "tokenizer.ggml.pre", &name);
  if (!status) status = weft__pretokenizer_create(&t->pretokenizer, name.data, name.n_bytes);
  return status == WEFT_EUNSUPPORTED ? weft__error(status, "%s: %s", weft_gguf_path(gguf), weft_last_error()) : status;
}

static weft_status read_bpe(weft_tokenizer *t, const weft_gguf *gguf) {
  weft_status status = refuse_switch(gguf, "tokenizer.ggml.add_space_prefix", "gpt2");
  if (!status) status = create_pretokenizer(t, gguf);
  if (status) return status;
  t->keeps_tokens = weft__pretokenizer_get_traits(t->pretokenizer).keeps_tokens;
  status = weft__vocab_read(&t->vocab, WEFT__SPELLED_BYTE_LEVEL, gguf);
  return status ? status : weft__bpe_read(&t->bpe, &t->vocab, gguf);
}

/* SentencePiece puts a space before the text unless the model says otherwise. */
static weft_status read_spm(weft_tokenizer *t, const weft_gguf *gguf) {
  t->adds_space = 1;
  weft_status status = refuse_switch(gguf, "tokenizer.ggml.remove_extra_whitespaces", "llama");
  if (!status) status = weft_gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", &t->adds_space);
  if (!status) status = weft__vocab_read(&t->vocab, WEFT__SPELLED_UTF8, gguf);
  return status ? status : weft__spm_read(&t->spm, &t->vocab, gguf);
}

/* Sets *id to -1 if the key is absent. */
static weft_status read_id(const weft_tokenizer *t, const weft_gguf *gguf, const char *key, int32_t *id) {
  int64_t value = -1;
  weft_status status = weft_gguf_get_int(gguf, key, 0, t->vocab.n - 1, &value);
  if (!status) *id = (int32_t)value;
  return status;
}

/* Where the file does not say whether texts start with it, SentencePiece models and those of some pre-tokenizers do. */
static weft_status read_bos(weft_tokenizer *t, const weft_gguf *gguf) {
  weft_status status = read_id(t, gguf, "tokenizer.ggml.bos_token_id", &t->bos);
  bool wants_bos = !t->pretokenizer || weft__pretokenizer_get_traits(t->pretokenizer).wants_bos;
  t->adds_bos = wants_bos && t->bos >= 0;
  if (!status) status = weft_gguf_get_bool(gguf, "tokenizer.ggml.add_bos_token", &t->adds_bos);
  if (!status && t->adds_bos && t->bos < 0)
    status = weft__error(WEFT_EFORMAT,
                         "%s: tokenizer.ggml.add_bos_token is true, but bos_token_id is missing (convert "
                         "the model again)",
                         weft_gguf_path(gguf));
  return status;
}

static void add_end(weft_tokenizer *t, int32_t id) {
  if (id >= 0 && !weft_tokenizer_is_end(t, id)) t->end_ids[t->n_end_ids++] = id;
}

/* Files name one end token, sometimes two, but chat models stop at others as well. */
static weft_status read_ends(weft_tokenizer *t, const weft_gguf *gguf) {
  static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"};
  static const char *const names[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>",      "<|eom_id|>",
                                      "<|end|>",    "<end_of_turn>", "<|end_of_text|>", "</s>"};
  _Static_assert(WEFT_COUNT(keys) + WEFT_COUNT(names) <= WEFT__MAX_END_TOKENS, "end_ids holds every candidate");
  int32_t ids[WEFT_COUNT(keys)];
  for (size_t i = 0; i < WEFT_COUNT(keys); i++) {
    weft_status status = read_id(t, gguf, keys[i], &ids[i]);
    if (status) return status;
    add_end(t, ids[i]);
  }
  t->eos = ids[0];
  for (size_t i = 0; i < WEFT_COUNT(names); i++) {
    int32_t id = weft_tokenizer_find(t, names[i]);
    if (id >= 0 && weft__is_special(&t->vocab, id)) add_end(t, id);
  }
  return WEFT_OK;
}

/* Some files call the marks of turns user-defined.  As such they would match in what a user says. */
static void make_marks_special(weft__vocab *vocab) {
  static const char *const marks[] = {"<|im_start|>",    "<|im_end|>",    "<|start_header_id|>", "<|end_header_id|>",
                                      "<start_of_turn>", "<end_of_turn>", "<|eot_id|>"};
  for (size_t i = 0; i < WEFT_COUNT(marks); i++) {
    int32_t id = weft__vocab_find(vocab, marks[i], strlen(marks[i]));
    if (id >= 0 && vocab->types[id] == WEFT__TOKEN_USER_DEFINED) vocab->types[id] = WEFT__TOKEN_CONTROL;
  }
}

weft_status weft_tokenizer_create(weft_tokenizer **out, const weft_gguf *gguf) {
  bool is_spm;
  weft_status status = read_model(gguf, &is_spm);
  if (status) return status;
  weft_tokenizer *t = weft__calloc(1, sizeof *t);
  if (!t) return WEFT_ENOMEM;
  status = is_spm ? read_spm(t, gguf) : read_bpe(t, gguf);
  if (!status) make_marks_special(&t->vocab);
  if (!status) status = weft__added_build(&t->added, &t->vocab);
  if (!status) status = read_bos(t, gguf);
  if (!status) status = read_ends(t, gguf);
  if (status)
    weft_tokenizer_free(t);
  else
    *out = t;
  return status;
}

void weft_tokenizer_free(weft_tokenizer *tokenizer) {
  if (!tokenizer) return;
  weft__pretokenizer_free(tokenizer->pretokenizer);
  weft__added_clear(&tokenizer->added);
  weft__bpe_clear(&tokenizer->bpe);
  weft__spm_clear(&tokenizer->spm);
  weft__vocab_clear(&tokenizer->vocab);
  weft_free(tokenizer);
}

/* ---- questions ---- */

static bool is_id(const weft_tokenizer *t, int32_t id) { return id >= 0 && id < t->vocab.n; }

const char *weft_tokenizer_piece(const weft_tokenizer *tokenizer, int32_t id, size_t *n_bytes) {
  *n_bytes = 0;
  return is_id(tokenizer, id) ? weft__text_at(&tokenizer->vocab.bytes, id, n_bytes) : NULL;
}

int32_t weft_tokenizer_n_vocab(const weft_tokenizer *tokenizer) { return tokenizer->vocab.n; }

int32_t weft_tokenizer_bos(const weft_tokenizer *tokenizer) { return tokenizer->bos; }

int32_t weft_tokenizer_eos(const weft_tokenizer *tokenizer) { return tokenizer->eos; }

int32_t weft_tokenizer_find(const weft_tokenizer *tokenizer, const char *token) {
  return weft__vocab_find(&tokenizer->vocab, token, strlen(token));
}

int weft_tokenizer_is_special(const weft_tokenizer *tokenizer, int32_t id) {
  return is_id(tokenizer, id) && weft__is_special(&tokenizer->vocab, id);
}

int weft_tokenizer_is_end(const weft_tokenizer *tokenizer, int32_t id) {
  for (int i = 0; i < tokenizer->n_end_ids; i++)
    if (tokenizer->end_ids[i] == id) return 1;
  return 0;
}
