/* cmd_logits.c - weft logits: the likeliest next tokens after a prompt. */
#include "cmd.h"
#include "model.h"
#include "output.h"
#include "prompt.h"

#include <limits.h>
#include <stdlib.h>

typedef struct logits_options {
  cli_common common;
  cli_prompt prompt;
  int n_top;
  int n_ctx; /* 0 = the model's */
  int kv;    /* word of CLI_KV_CHOICES */
} logits_options;

/* A token that may come next. */
typedef struct candidate {
  int32_t id;
  float logit;
} candidate;

/* Largest logit first, ties by id. */
static int compare_candidates(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
  return (x->id > y->id) - (x->id < y->id);
}

/* The whole vocabulary, freed by the caller: sorting 50 000 entries is nothing beside the forward pass. */
static candidate *sort_logits(const float *logits, int n_vocab) {
  candidate *list = weft__alloc((size_t)n_vocab, sizeof *list);
  if (!list) return NULL;
  for (int i = 0; i < n_vocab; i++) list[i] = (candidate){i, logits[i]};
  qsort(list, (size_t)n_vocab, sizeof *list, compare_candidates);
  return list;
}

/* `ids` are the prompt's. */
static cli_exit print_json(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, const candidate *top,
                           int n_top) {
  json_t *root = json_object(), *rows = json_array();
  for (int i = 0; i < n_top; i++) {
    size_t n_bytes;
    const char *piece = weft_tokenizer_piece(tokenizer, top[i].id, &n_bytes);
    json_t *row = json_object();
    cli_json_set(row, "id", json_integer(top[i].id));
    cli_json_set(row, "piece", cli_json_text(piece, n_bytes));
    cli_json_set(row, "logit", cli_json_number((double)top[i].logit));
    cli_json_add(rows, row);
  }
  cli_json_set(root, "tokens", cli_json_ids(ids, n_ids));
  cli_json_set(root, "top", rows);
  return cli_json_print(root);
}

static void print_lines(const weft_tokenizer *tokenizer, const candidate *top, int n_top) {
  for (int i = 0; i < n_top; i++) {
    size_t n_bytes;
    const char *piece = weft_tokenizer_piece(tokenizer, top[i].id, &n_bytes);
    cli_outf("%d\t%.6f\t", top[i].id, (double)top[i].logit);
    cli_out_quoted(piece, n_bytes, 0);
    cli_out("\n", 1);
  }
}

/* `logits` [V] are those after the last of the ids. */
static cli_exit print_top(const logits_options *o, const weft_model *model, const float *logits, const int32_t *ids,
                          size_t n_ids) {
  const weft_tokenizer *tokenizer = weft_model_tokenizer(model);
  int n_vocab = weft_model_get_info(model)->n_vocab;
  int n_top = o->n_top < n_vocab ? o->n_top : n_vocab;
  candidate *sorted = sort_logits(logits, n_vocab);
  cli_exit code = CLI_OK;
  if (!sorted) return cli_fail();
  if (o->common.json)
    code = print_json(tokenizer, ids, n_ids, sorted, n_top);
  else
    print_lines(tokenizer, sorted, n_top);
  weft_free(sorted);
  return code;
}

/* Runs the ids through a session of their own and prints what may follow them. */
static cli_exit evaluate(const logits_options *o, weft_model *model, const int32_t *ids, size_t n_ids) {
  weft_session *session = NULL;
  const float *logits;
  weft_session_options options = {.n_ctx = o->n_ctx, .kv_dtype = cli_kv_dtype(o->kv)};
  weft_status status = weft_session_create(&session, model, &options);
  if (!status) status = weft_session_append(session, ids, n_ids, &logits);
  cli_exit code = status ? cli_fail() : print_top(o, model, logits, ids, n_ids);
  weft_session_free(session);
  return code;
}

/* Words are checked before the model is loaded, as in run. */
static cli_exit run_logits(void *options, const cli_args *args) {
  const logits_options *o = options;
  cli_model m = {0};
  weft__bytes text = {0};
  int32_t *ids = NULL;
  size_t n_ids = 0;
  cli_exit code = cli_prompt_read(&o->prompt, args->n > 1 ? args->values[1] : NULL, &text);
  if (!code) code = cli_model_open(&m, args->values[0], &o->common);
  if (!code && o->common.verbose) cli_model_note(&m);
  if (!code) code = cli_prompt_encode(&o->prompt, &text, m.model, &ids, &n_ids);
  if (!code) code = evaluate(o, m.model, ids, n_ids);
  weft_free(ids);
  cli_model_close(&m);
  weft__bytes_clear(&text);
  return code;
}

static const cli_option logits_table[] = {
    CLI_PROMPT_OPTIONS(logits_options),
    CLI_INT(logits_options, n_top, "top", 0, "K", 1, INT_MAX, "how many tokens to print (default 10)"),
    CLI_INT(logits_options, n_ctx, "ctx", 0, "N", 1, INT_MAX,
            "positions there is room for (default: the model's, at most 4096)"),
    CLI_CHOICE(logits_options, kv, "kv", 0, CLI_KV_CHOICES, "element type of the key/value cache (default f16)"),
    CLI_END,
};

static const logits_options defaults = {.common = CLI_COMMON_DEFAULTS, .n_top = 10, .kv = CLI_KV_F16};

const cli_command cli_cmd_logits = {
    .name = "logits",
    .arguments = "MODEL [PROMPT]",
    .summary = "print the likeliest next tokens",
    .details =
        "Prints a line a token: the id, the logit and the token's bytes in quotes, separated by tabs. With --json the "
        "object has tokens (the prompt's) and top, a list of id, piece and logit.",
    .examples = "weft logits model.gguf --raw -p \"The capital of France is\"\n"
                "weft logits model.gguf -p \"Yes or no?\" --top 3 --json --exact",
    .min_args = 1,
    .max_args = 2,
    .uses = CLI_USES_DEVICE | CLI_USES_MODEL,
    .options = logits_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_logits,
};
