/* cmd_score.c - weft score: how well a model predicts a text.
 *
 * The text is cut into windows of the context's length, each evaluated from an empty cache.  A window begins with the
 * token that the one before it predicted last, so every token but the first of the text is predicted exactly once. */
#include "cmd.h"
#include "model.h"
#include "output.h"
#include "system.h"

#include <limits.h>
#include <math.h>

typedef struct score_options {
  cli_common common;
  const char *text_file;
  int n_ctx;      /* 0 = the model's */
  int max_tokens; /* 0 = all */
  int kv;         /* word of CLI_KV_CHOICES */
} score_options;

enum {
  MAX_BATCH = 64,               /* tokens a forward pass takes */
  MAX_LOGITS = 4 * 1024 * 1024, /* floats that a batch's logits may have */
};

/* The batch's arrays, and the sum so far. */
typedef struct scorer {
  weft_model *model;
  weft_kv_cache *cache;
  const int32_t *ids; /* n_ids of the text */
  int n_ids, n_vocab, batch_size;
  float *logits; /* [batch_size, V] */
  int32_t position[MAX_BATCH], slot[MAX_BATCH];
  uint8_t want_logits[MAX_BATCH];
  double nll_sum; /* nats */
} scorer;

/* -log softmax(logits)[id], in double: 49 152 small terms would vanish in a float sum. */
static double negative_log_likelihood(const float *logits, int n_vocab, int32_t id) {
  double largest = -INFINITY, sum = 0;
  for (int i = 0; i < n_vocab; i++)
    if ((double)logits[i] > largest) largest = (double)logits[i];
  for (int i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - largest);
  return largest + log(sum) - (double)logits[id];
}

/* Evaluates n tokens from `start` of the text, at `position` of the window, and adds how they predict what follows. */
static weft_status score_batch(scorer *s, int start, int position, int n) {
  for (int i = 0; i < n; i++) s->position[i] = position + i;
  weft_batch batch = {n, s->ids + start, s->position, s->slot, s->want_logits};
  weft_status status = weft_forward(s->model, s->cache, &batch, s->logits);
  if (status) return status;
  for (int i = 0; i < n; i++)
    s->nll_sum +=
        negative_log_likelihood(s->logits + (size_t)i * (size_t)s->n_vocab, s->n_vocab, s->ids[start + i + 1]);
  return WEFT_OK;
}

/* Scores n predictions from `start` on, in an emptied cache. */
static weft_status score_window(scorer *s, int start, int n) {
  weft_status status = weft_kv_cache_truncate(s->cache, 0, 0);
  for (int done = 0; done < n && !status;) {
    int n_batch = n - done < s->batch_size ? n - done : s->batch_size;
    status = score_batch(s, start + done, done, n_batch);
    done += n_batch;
  }
  return status;
}

/* The last token predicts nothing that is known, so n_ids - 1 are evaluated. */
static weft_status score_text(scorer *s) {
  int n_ctx = weft_kv_cache_n_ctx(s->cache);
  weft_status status = WEFT_OK;
  for (int start = 0; start < s->n_ids - 1 && !status;) {
    int n = s->n_ids - 1 - start < n_ctx ? s->n_ids - 1 - start : n_ctx;
    status = score_window(s, start, n);
    start += n;
  }
  return status;
}

/* Large vocabularies get smaller batches, so that the logits stay small beside the model. */
static weft_status open_scorer(scorer *s, const score_options *o, weft_model *model) {
  weft_kv_options kv = {.n_slots = 1, .n_ctx = o->n_ctx, .dtype = cli_kv_dtype(o->kv)};
  s->model = model;
  s->n_vocab = weft_model_get_info(model)->n_vocab;
  s->batch_size = MAX_LOGITS / s->n_vocab < MAX_BATCH ? MAX_LOGITS / s->n_vocab : MAX_BATCH;
  if (s->batch_size < 1) s->batch_size = 1;
  for (int i = 0; i < MAX_BATCH; i++) s->want_logits[i] = 1;
  s->logits = weft__alloc((size_t)s->batch_size * sizeof *s->logits, (size_t)s->n_vocab);
  return s->logits ? weft_kv_cache_create(&s->cache, model, &kv) : WEFT_ENOMEM;
}

/* Perplexity is the exponential of the mean: how many equally likely tokens the model hesitates between. */
static cli_exit print_score(const score_options *o, const scorer *s) {
  double mean = s->nll_sum / (s->n_ids - 1);
  if (!o->common.json) {
    cli_outf("tokens      %d\nnll mean    %.6f\nperplexity  %.4f\n", s->n_ids, mean, exp(mean));
    return CLI_OK;
  }
  json_t *root = json_object();
  cli_json_set(root, "n_tokens", json_integer(s->n_ids));
  cli_json_set(root, "nll_mean", cli_json_number(mean));
  cli_json_set(root, "perplexity", cli_json_number(exp(mean)));
  return cli_json_print(root);
}

/* Scores the ids and prints. */
static cli_exit score(const score_options *o, weft_model *model, const int32_t *ids, size_t n_ids) {
  scorer s = {.ids = ids};
  cli_exit code;
  if (o->max_tokens > 0 && n_ids > (size_t)o->max_tokens) n_ids = (size_t)o->max_tokens;
  if (n_ids < 2 || n_ids > INT_MAX) {
    cli_error("%s: it has %zu tokens (give a text of 2 to %d)", o->text_file, n_ids, INT_MAX);
    return CLI_FAILED;
  }
  s.n_ids = (int)n_ids;
  double start_ms = weft__now_ms();
  code = open_scorer(&s, o, model) || score_text(&s) ? cli_fail() : print_score(o, &s);
  if (!code && o->common.verbose) {
    double seconds = (weft__now_ms() - start_ms) / 1e3;
    cli_note("scored %d tokens in %.1f s (%.1f tokens/s), %.1f MB at most", s.n_ids, seconds, s.n_ids / seconds,
             (double)cli_peak_bytes() / 1e6);
  }
  weft_kv_cache_free(s.cache);
  weft_free(s.logits);
  return code;
}

/* The whole text is encoded even if --max-tokens takes a part: where a token ends depends on what follows. */
static cli_exit score_file(const score_options *o, const cli_model *m, const weft__bytes *text) {
  int32_t *ids;
  size_t n_ids;
  if (weft_tokenizer_encode(weft_model_tokenizer(m->model), text->data, text->n, 0, NULL, 0, &ids, &n_ids))
    return cli_fail();
  cli_exit code = score(o, m->model, ids, n_ids);
  weft_free(ids);
  return code;
}

/* The text is read before the model is loaded. */
static cli_exit run_score(void *options, const cli_args *args) {
  const score_options *o = options;
  cli_model m = {0};
  weft__bytes text = {0};
  if (!o->text_file) {
    cli_error("score: there is no text (give --text-file FILE)");
    return CLI_USAGE;
  }
  cli_exit code = cli_read_file(o->text_file, &text);
  if (!code) code = cli_model_open(&m, args->values[0], &o->common);
  if (!code && o->common.verbose) cli_model_note(&m);
  if (!code) code = score_file(o, &m, &text);
  cli_model_close(&m);
  weft__bytes_clear(&text);
  return code;
}

static const cli_option score_table[] = {
    CLI_TEXT(score_options, text_file, "text-file", 0, "FILE",
             "the text, - for standard input; special tokens in it are read as such"),
    CLI_INT(score_options, max_tokens, "max-tokens", 'n', "N", 2, INT_MAX,
            "use the first N tokens only (default: all)"),
    CLI_INT(score_options, n_ctx, "ctx", 0, "N", 1, INT_MAX,
            "tokens of a window (default: the model's context, at most 4096)"),
    CLI_CHOICE(score_options, kv, "kv", 0, CLI_KV_CHOICES, "element type of the key/value cache (default f16)"),
    CLI_END,
};

static const score_options defaults = {.common = CLI_COMMON_DEFAULTS, .kv = CLI_KV_F16};

const cli_command cli_cmd_score = {
    .name = "score",
    .arguments = "MODEL",
    .summary = "measure how well a model predicts a text",
    .details =
        "Prints the mean negative log likelihood a token, in nats, and the perplexity, its exponential. Every token "
        "but the first is predicted once. A text longer than the context is cut into windows of its length that "
        "know nothing of each other; a window begins with the last token that the one before predicted.\n"
        "With --json the object has n_tokens, nll_mean and perplexity.",
    .examples =
        "weft score model.gguf --text-file book.txt\nweft score model.gguf --text-file book.txt -n 512 --exact --json",
    .min_args = 1,
    .max_args = 1,
    .uses = CLI_USES_DEVICE | CLI_USES_MODEL,
    .options = score_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_score,
};
