/* session.c - one timeline: a cache with one slot, its position, and the generation loop. */
#include "llm/sampler.h"
#include "llm/session.h"
#include "llm/text_stream.h"

#include <string.h>

enum { DEFAULT_PREFILL = 512 };

static weft_status build(weft_session *s, const weft_session_options *o) {
  s->n_prefill = o->n_prefill ? o->n_prefill : DEFAULT_PREFILL;
  if (s->n_prefill < 0) return weft__error(WEFT_EINVAL, "session: n_prefill is %d", o->n_prefill);
  weft_status status =
      weft_kv_cache_create(&s->cache, s->model, &(weft_kv_options){.n_ctx = o->n_ctx, .dtype = o->kv_dtype});
  if (status) return status;
  size_t n = (size_t)s->n_prefill;
  s->logits = weft__alloc((size_t)s->model->info.n_vocab, sizeof *s->logits);
  s->tokens = weft__alloc((size_t)weft_session_n_ctx(s), sizeof *s->tokens);
  s->positions = weft__alloc(n, sizeof *s->positions);
  s->slots = weft__calloc(n, sizeof *s->slots);
  s->want_logits = weft__calloc(n, sizeof *s->want_logits);
  return s->tokens && s->logits && s->positions && s->slots && s->want_logits ? WEFT_OK : WEFT_ENOMEM;
}

weft_status weft_session_create(weft_session **out, weft_model *model, const weft_session_options *options) {
  weft_session_options o = options ? *options : (weft_session_options){0};
  weft_session *s = weft__calloc(1, sizeof *s);
  if (!s) return WEFT_ENOMEM;
  s->model = model;
  weft_status status = build(s, &o);
  if (status) {
    weft_session_free(s);
    return status;
  }
  *out = s;
  return WEFT_OK;
}

void weft_session_free(weft_session *s) {
  if (!s) return;
  weft_kv_cache_free(s->cache);
  weft_free(s->tokens);
  weft_free(s->logits);
  weft_free(s->positions);
  weft_free(s->slots);
  weft_free(s->want_logits);
  weft_free(s);
}

int weft_session_length(const weft_session *session) { return weft_kv_cache_length(session->cache, 0); }
int weft_session_n_ctx(const weft_session *session) { return weft_kv_cache_n_ctx(session->cache); }

weft_status weft_session_truncate(weft_session *session, int length) {
  return weft_kv_cache_truncate(session->cache, 0, length);
}

const int32_t *weft_session_tokens(const weft_session *session) { return session->tokens; }

size_t weft_session_reuse(weft_session *session, const int32_t *tokens, size_t n_tokens) {
  size_t length = (size_t)weft_session_length(session), n = 0;
  while (n < length && n + 1 < n_tokens && tokens[n] == session->tokens[n]) n++;
  weft_session_truncate(session, (int)n);
  return n;
}

/* ---- appending ---- */

/* One chunk; logits after its last token if they are wanted. */
static weft_status append_chunk(weft_session *s, const int32_t *tokens, int n, int want_logits) {
  int start = weft_session_length(s);
  for (int i = 0; i < n; i++) s->positions[i] = start + i;
  s->want_logits[n - 1] = (uint8_t)want_logits;
  const weft_batch batch = {n, tokens, s->positions, s->slots, s->want_logits};
  weft_status status = weft_forward(s->model, s->cache, &batch, s->logits);
  s->want_logits[n - 1] = 0;
  if (!status) memcpy(s->tokens + start, tokens, (size_t)n * sizeof *tokens);
  return status;
}

/* Asks the callback, if there is one. */
static int is_canceled(const weft_generate_options *o) { return o && o->is_canceled && o->is_canceled(o->context); }

static weft_status append(weft_session *s, const int32_t *tokens, size_t n_tokens, const weft_generate_options *o) {
  int start = weft_session_length(s), n_ctx = weft_session_n_ctx(s);
  if (n_tokens == 0) return weft__error(WEFT_EINVAL, "session: no tokens to append");
  if (n_tokens > (size_t)(n_ctx - start))
    return weft__error(WEFT_ELIMIT,
                       "context: %zu tokens after %d do not fit into %d positions (shorten the prompt or raise --ctx)",
                       n_tokens, start, n_ctx);
  for (size_t done = 0; done < n_tokens;) {
    size_t n = n_tokens - done < (size_t)s->n_prefill ? n_tokens - done : (size_t)s->n_prefill;
    weft_status status = is_canceled(o) ? weft__error(WEFT_ECANCELED, "session: canceled")
                                        : append_chunk(s, tokens + done, (int)n, done + n == n_tokens);
    if (status) {
      weft_session_truncate(s, start);
      return status;
    }
    done += n;
  }
  return WEFT_OK;
}

weft_status weft_session_append(weft_session *session, const int32_t *tokens, size_t n_tokens, const float **logits) {
  weft_status status = append(session, tokens, n_tokens, NULL);
  if (!status) *logits = session->logits;
  return status;
}

/* ---- generating ---- */

typedef struct generator {
  weft_session *session;
  const weft_generate_options *options;
  weft__text_stream stream;
  size_t n_told;  /* bytes of the text that the callback has had */
  int is_refused; /* the callback wants no more */
  weft__bytes tokens;
  weft_generation *out;
} generator;

/* Hands the callback what has become certain. */
static void tell(generator *g) {
  size_t n = g->stream.n_released - g->n_told;
  if (n == 0 || g->is_refused) return;
  const char *text = g->stream.text.data + g->n_told;
  g->n_told = g->stream.n_released;
  g->is_refused = g->options->on_text && g->options->on_text(g->options->context, text, n);
}

/* A special token may be a stop string itself, though it is not part of the text. */
static int is_stop_token(const generator *g, const char *piece, size_t n_bytes) {
  for (size_t k = 0; k < g->options->n_stop; k++)
    if (strlen(g->options->stop[k]) == n_bytes && !memcmp(g->options->stop[k], piece, n_bytes)) return 1;
  return 0;
}

/* Takes one drawn token into the result.  Sets *is_done and the reason when it ends the generation. */
static weft_status take_token(generator *g, int32_t token, int *is_done) {
  const weft_tokenizer *tokenizer = g->session->model->tokenizer;
  weft_status status = weft__bytes_add(&g->tokens, &token, sizeof token);
  if (status) return status;
  size_t n_bytes;
  const char *piece = weft_tokenizer_piece(tokenizer, token, &n_bytes);
  int is_special = weft_tokenizer_is_special(tokenizer, token);
  int is_end = weft_tokenizer_is_end(tokenizer, token) && !g->options->ignore_end;
  if (!is_special) status = weft__text_stream_add(&g->stream, piece, n_bytes);
  if (status) return status;
  if (is_end || g->stream.is_stopped || (is_special && is_stop_token(g, piece, n_bytes))) {
    g->out->finish_reason = WEFT_FINISH_STOP;
    *is_done = 1;
  }
  tell(g);
  if (g->is_refused) {
    g->out->finish_reason = WEFT_FINISH_CANCELED;
    *is_done = 1;
  }
  return WEFT_OK;
}

/* Draws, takes and appends tokens until something ends it. */
static weft_status loop(generator *g) {
  weft_session *s = g->session;
  int room = weft_session_n_ctx(s) - weft_session_length(s);
  int limit = g->options->max_tokens > 0 && g->options->max_tokens < room ? g->options->max_tokens : room;
  int is_done = 0;
  g->out->finish_reason = WEFT_FINISH_LENGTH;
  for (int n = 0; n < limit && !is_done; n++) {
    int32_t token = 0;
    if (is_canceled(g->options)) {
      g->out->finish_reason = WEFT_FINISH_CANCELED;
      break;
    }
    weft_status status = weft_sample(s->logits, s->model->info.n_vocab, &g->options->sampler, s->tokens,
                                     (size_t)weft_session_length(s), &token);
    if (!status) status = take_token(g, token, &is_done);
    if (!status && !is_done && n + 1 < limit) status = append_chunk(s, &token, 1, 1);
    if (status) return status;
  }
  return WEFT_OK;
}

/* Moves what was generated to the caller, whatever the outcome. */
static weft_status finish(generator *g, weft_status status) {
  weft_status ended = WEFT_OK;
  if (g->is_refused) { /* the text is what the callback has had */
    g->stream.text.n = g->n_told;
    g->stream.text.data[g->n_told] = 0;
  } else {
    ended = weft__text_stream_end(&g->stream);
    tell(g);
  }
  g->out->n_tokens = g->tokens.n / sizeof(int32_t);
  g->out->tokens = (int32_t *)(void *)weft__bytes_take(&g->tokens);
  g->out->n_text_bytes = g->stream.text.n;
  g->out->text = weft__bytes_take(&g->stream.text);
  if (!g->out->tokens || !g->out->text) return WEFT_ENOMEM;
  return status ? status : ended;
}

weft_status weft_session_generate(weft_session *session, const int32_t *prompt, size_t n_prompt,
                                  const weft_generate_options *options, weft_generation *out) {
  *out = (weft_generation){0};
  generator g = {.session = session, .options = options, .out = out};
  g.stream.stop = options->stop;
  g.stream.n_stop = options->n_stop;
  double start = weft__now_ms();
  weft_status status = weft__sampler_check(&options->sampler, session->model->info.n_vocab);
  if (!status) status = append(session, prompt, n_prompt, options);
  double prefilled = weft__now_ms();
  out->prefill_ms = prefilled - start;
  if (status == WEFT_ECANCELED) {
    out->finish_reason = WEFT_FINISH_CANCELED;
    return finish(&g, WEFT_OK);
  }
  if (!status) status = loop(&g);
  out->decode_ms = weft__now_ms() - prefilled;
  return finish(&g, status);
}

void weft_generation_clear(weft_generation *generation) {
  weft_free(generation->tokens);
  weft_free(generation->text);
  *generation = (weft_generation){0};
}
