/* weft/llm.h - language models: loading, the forward pass, sessions, sampling.
 *
 * A weft_model is weights, tokenizer and chat template: immutable and shareable.  Underneath everything is one
 * forward pass over a batch of tokens that belong to any number of slots (sequences) of one paged key/value cache.  A
 * weft_session is one timeline on top of it: its tokens, its position, its sampler. */
#ifndef WEFT_LLM_H
#define WEFT_LLM_H

#include "weft/device.h"
#include "weft/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- model ---- */

typedef struct weft_model weft_model;

/* What a model is; 0 where a family lacks it. */
typedef struct weft_model_info {
  const char *architecture; /* "llama" */
  const char *name;         /* general.name, or "" */
  const char *weight_types; /* "q4_1, q8_0, f32" */
  int64_t n_params;
  uint64_t file_bytes;
  int n_layers, n_heads, n_kv_heads, head_size, width, ffn_width, n_vocab;
  int n_ctx_train;   /* positions the model was trained for */
  float temperature; /* that its makers recommend (general.sampling.temp), -1 if they say nothing */
} weft_model_info;

typedef struct weft_model_options {
  /* Told after each weight which part of the file's weights is on the device, in (0,1]; may be NULL. */
  void (*on_progress)(void *context, double fraction);
  void *context;
  int no_mmap; /* 1: the file is read into memory instead of mapped, so that nobody can change or cut it meanwhile */
} weft_model_options;

/* Loads a GGUF file onto `device`, which must outlive the model; `options` may be NULL.  EUNSUPPORTED names an
 * architecture, a weight type or a tokenizer that weft lacks; EFORMAT names a missing or misshapen tensor. */
WEFT_API weft_status weft_model_load(weft_model **out, weft_device *device, const char *path,
                                     const weft_model_options *options);
WEFT_API void weft_model_free(weft_model *model); /* after its caches and sessions */

WEFT_API const weft_model_info *weft_model_get_info(const weft_model *model);
WEFT_API const weft_tokenizer *weft_model_tokenizer(const weft_model *model);
WEFT_API weft_device *weft_model_device(const weft_model *model);

/* One turn of a conversation. */
typedef struct weft_chat_message {
  const char *role; /* "system", "user", "assistant" */
  const char *content;
} weft_chat_message;

/* Encodes a conversation by the model's chat template, ending where the assistant's reply begins.  What messages say is
 * never read as special tokens.  Without a system message the template's own default is used, if it has one.  *ids is
 * the caller's (weft_free).  EUNSUPPORTED: no template, or one that weft does not recognise (it does ChatML, Llama 3 and
 * Gemma).  EINVAL: turns that the template refuses. */
WEFT_API weft_status weft_model_apply_chat(const weft_model *model, const weft_chat_message *messages,
                                           size_t n_messages, int32_t **ids, size_t *n_ids);

/* ---- key/value cache and forward pass ---- */

typedef struct weft_kv_cache weft_kv_cache;

typedef struct weft_kv_options {
  int n_slots;      /* sequences; 0 = 1 */
  int n_ctx;        /* positions a slot can hold; 0 = the model's, at most 4096 */
  weft_dtype dtype; /* WEFT_F32 (0, the enum's first), WEFT_F16 or WEFT_Q8_0 (heads of a multiple of 32) */
} weft_kv_options;

WEFT_API weft_status weft_kv_cache_create(weft_kv_cache **out, weft_model *model, const weft_kv_options *options);
WEFT_API void weft_kv_cache_free(weft_kv_cache *cache);
WEFT_API int weft_kv_cache_n_ctx(const weft_kv_cache *cache);
WEFT_API int weft_kv_cache_length(const weft_kv_cache *cache, int slot); /* positions held */
/* Forgets the positions of `slot` from `length` on; EINVAL if it holds fewer. */
WEFT_API weft_status weft_kv_cache_truncate(weft_kv_cache *cache, int slot, int length);
/* Makes `to` (emptied first) share the first `length` positions of `from`: the cache blocks are shared, and copied when
 * one of the two writes to a block that both hold. */
WEFT_API weft_status weft_kv_cache_share(weft_kv_cache *cache, int from, int to, int length);

/* N tokens for one forward pass.  The tokens of one slot stand in the order of their positions and continue what the
 * slot holds; slots may alternate. */
typedef struct weft_batch {
  int n_tokens;
  const int32_t *token;       /* [N] ids */
  const int32_t *position;    /* [N] */
  const int32_t *slot;        /* [N] */
  const uint8_t *want_logits; /* [N] 0 or 1 */
} weft_batch;

/* Runs the batch, appends it to the cache and writes a row of logits for each token that wants one: `logits`
 * [sum(want_logits), V] f32, in batch order (may be NULL if none is wanted).  On failure the cache is as before.
 * EINVAL: an id, slot or position is out of range.  ELIMIT: a slot is full.  ENUMERIC: a logit is not finite. */
WEFT_API weft_status weft_forward(weft_model *model, weft_kv_cache *cache, const weft_batch *batch, float *logits);

/* ---- sampling ---- */

/* Added to one token's logit; -INFINITY excludes it. */
typedef struct weft_logit_bias {
  int32_t token;
  float bias;
} weft_logit_bias;

/* The steps in their order: biases; penalties on the tokens that stand among the last ones; then, if the temperature is
 * not 0, top_k, top_p and min_p on the probabilities at temperature 1; the temperature; one draw. */
typedef struct weft_sampler_options {
  float temperature; /* 0 = greedy: the largest logit, ties to the lowest id */
  int top_k;         /* 0 or less = off */
  float top_p;       /* in (0,1]; 0 or 1 = off */
  float min_p;       /* in [0,1]; 0 = off: drop tokens below min_p times the best probability */
  uint64_t seed;
  float repeat_penalty;    /* above 0; 0 or 1 = off: a positive logit is divided by it, another multiplied (CTRL) */
  float frequency_penalty; /* subtracted as often as the token occurs */
  float presence_penalty;  /* subtracted once if it occurs */
  int repeat_last;         /* how many last tokens, prompt and reply, the penalties look at; 0 = 64, less = all */
  const weft_logit_bias *logit_bias; /* n_logit_bias of them; several for one token add up; may be NULL */
  size_t n_logit_bias;
} weft_sampler_options;

/* Draws from logits [V] after `tokens` [n_tokens], which only the penalties look at (may be NULL if there are none).  The
 * random number depends on (seed, n_tokens) alone, so a run can be repeated from anywhere.
 * EINVAL: an option or a token is out of range.  ENUMERIC: no finite logit, or a NaN. */
WEFT_API weft_status weft_sample(const float *logits, int n_vocab, const weft_sampler_options *options,
                                 const int32_t *tokens, size_t n_tokens, int32_t *token);

/* ---- session ---- */

typedef struct weft_session weft_session;

typedef struct weft_session_options {
  int n_ctx;           /* 0 = the model's, at most 4096 */
  weft_dtype kv_dtype; /* as in weft_kv_options */
  int n_prefill;       /* tokens a forward pass takes at most; 0 = 512 */
} weft_session_options;

WEFT_API weft_status weft_session_create(weft_session **out, weft_model *model, const weft_session_options *options);
WEFT_API void weft_session_free(weft_session *session);
WEFT_API int weft_session_length(const weft_session *session); /* tokens so far */
WEFT_API int weft_session_n_ctx(const weft_session *session);
/* Forgets the tokens from `length` on. */
WEFT_API weft_status weft_session_truncate(weft_session *session, int length);

/* The tokens so far, borrowed until the session changes. */
WEFT_API const int32_t *weft_session_tokens(const weft_session *session);
/* Keeps what the session has in common with the beginning of `tokens`, all but the last of them at most, and forgets the
 * rest.  Returns how many it kept: what is left of `tokens` is what to append or to generate from. */
WEFT_API size_t weft_session_reuse(weft_session *session, const int32_t *tokens, size_t n_tokens);

/* Appends tokens.  *logits gets the logits [V] after the last one, borrowed until the next call on the session.
 * ELIMIT: they do not fit; the message has both numbers, and the session is as before. */
WEFT_API weft_status weft_session_append(weft_session *session, const int32_t *tokens, size_t n_tokens,
                                         const float **logits);

/* Writes the session's tokens, its key/value cache and `note` (n_note_bytes of the caller's own, may be NULL) to a file, so
 * that a prompt is computed once.  An older file is replaced as a whole or stays as it is.  The format is in
 * src/llm/session_file.c. */
WEFT_API weft_status weft_session_save(const weft_session *session, const char *path, const void *note,
                                       size_t n_note_bytes);
/* Replaces what the session holds by what was saved, or by as much of its beginning as fits into the context.  *note (may
 * be NULL) gets the note with a NUL behind it, the caller's (weft_free).  On failure the session stays as it was (unless the
 * device fails, which leaves it empty), and the message says what to do: EIO (cannot be read), EFORMAT (cut or damaged), EUNSUPPORTED (another version or layout), EINVAL (saved
 * with another model or cache type). */
WEFT_API weft_status weft_session_load(weft_session *session, const char *path, char **note, size_t *n_note_bytes);

typedef enum weft_finish_reason {
  WEFT_FINISH_STOP,     /* an end token or a stop string */
  WEFT_FINISH_LENGTH,   /* max_tokens, or the context is full */
  WEFT_FINISH_CANCELED, /* the callback asked */
} weft_finish_reason;

/* Receives whole UTF-8 characters as they become certain (bytes that no character can come of become U+FFFD), never a
 * part of a stop string.  Returns 0 to go on, anything else to stop. */
typedef int (*weft_text_callback)(void *context, const char *text, size_t n_bytes);

typedef struct weft_generate_options {
  weft_sampler_options sampler;
  int max_tokens;          /* 0 or less = as many as fit */
  int ignore_end;          /* 1: end tokens do not stop */
  const char *const *stop; /* n_stop strings that end the text and are not part of it; may be NULL */
  size_t n_stop;
  weft_text_callback on_text; /* may be NULL */
  void *context;
  int (*is_canceled)(void *context); /* asked between tokens and prefill chunks; may be NULL */
} weft_generate_options;

typedef struct weft_generation {
  int32_t *tokens; /* drawn, the end token included */
  size_t n_tokens;
  char *text; /* what on_text received, NUL-terminated */
  size_t n_text_bytes;
  weft_finish_reason finish_reason;
  double prefill_ms, decode_ms; /* decode: from the first drawn token to the last */
} weft_generation;

/* Appends the prompt (at least one token) and generates.  The last token drawn is not in the session yet: append it with
 * what follows it.  Fills *out, which the caller releases with
 * weft_generation_clear, on failure too (it then holds what came before the failure). */
WEFT_API weft_status weft_session_generate(weft_session *session, const int32_t *prompt, size_t n_prompt,
                                           const weft_generate_options *options, weft_generation *out);
WEFT_API void weft_generation_clear(weft_generation *generation);

#ifdef __cplusplus
}
#endif
#endif
