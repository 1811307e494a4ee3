/* cmd_bench_llm.c - weft bench llm: how fast a model reads a prompt and writes a reply.
 *
 * Times hold for one machine at one moment.  With --peer the other program runs after each repetition of ours, so what
 * else the machine does falls on both, and the ratio of the medians means something where the figures alone do not. */
#include "bench.h"
#include "cmd.h"
#include "device.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "peer.h"
#include "system.h"

#include "base/pool.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_options {
  cli_common common;
  int n_prefill, n_decode; /* tokens; 0 leaves the case out */
  int depth;               /* tokens before the decoded ones */
  int n_reps;
  int kv;           /* word of CLI_KV_CHOICES */
  const char *peer; /* NULL: none */
} bench_options;

enum {
  MAX_TOKENS = 1 << 20,
  MAX_REPS = 1000,
  WARM_UP_TOKENS = 8, /* decoded before the first timed repetition */
  TOKEN_SEED = 1,     /* of the random prompt: the same in every run */
};

/* One of the two things that are measured. */
typedef struct bench_case {
  char name[64];
  int n_tokens;       /* 0: left out */
  double *ms;         /* [n_reps] */
  double *peer_per_s; /* [n_reps]; tokens a second, with --peer */
} bench_case;

/* Everything that a benchmark holds; zero at first. */
typedef struct bench {
  const bench_options *o;
  cli_model model;
  weft_session *session;
  int32_t *tokens;     /* [n_tokens], random */
  int n_tokens, depth; /* at least 1: decoding continues something */
  int n_threads;
  bench_case prefill, decode;
  double first_token_ms; /* from the start of loading, session included */
} bench;

/* ---- measuring ---- */

/* Choosing the token is part of both times, as it is of a user's. */
static weft_status greedy_token(bench *b, const float *logits, int32_t *token) {
  const weft_sampler_options greedy = {0};
  return weft_sample(logits, weft_model_get_info(b->model.model)->n_vocab, &greedy, NULL, 0, token);
}

/* Reads the prompt into an empty session, up to the choice of the first token. */
static weft_status time_prefill(bench *b, double *ms) {
  const float *logits;
  int32_t token;
  weft_status status = weft_session_truncate(b->session, 0);
  if (status) return status;
  double start_ms = weft__now_ms();
  status = weft_session_append(b->session, b->tokens, (size_t)b->prefill.n_tokens, &logits);
  if (!status) status = greedy_token(b, logits, &token);
  *ms = weft__now_ms() - start_ms;
  return status;
}

/* Writes n tokens after `depth` others, whose reading is not timed. */
static weft_status time_decode(bench *b, int n, double *ms) {
  const float *logits;
  int32_t token;
  weft_status status = weft_session_truncate(b->session, 0);
  if (!status) status = weft_session_append(b->session, b->tokens, (size_t)b->depth, &logits);
  double start_ms = weft__now_ms();
  for (int i = 0; i < n && !status; i++) {
    status = greedy_token(b, logits, &token);
    if (!status) status = weft_session_append(b->session, &token, 1, &logits);
  }
  *ms = weft__now_ms() - start_ms;
  return status;
}

/* First passes touch the weights and make buffers; the very first is also what a user waits for. */
static weft_status warm_up(bench *b, double start_ms) {
  double ms;
  weft_status status = WEFT_OK;
  if (b->prefill.n_tokens > 0) {
    status = time_prefill(b, &ms);
    b->first_token_ms = weft__now_ms() - start_ms;
  }
  int n = b->decode.n_tokens < WARM_UP_TOKENS ? b->decode.n_tokens : WARM_UP_TOKENS;
  return status || n == 0 ? status : time_decode(b, n, &ms);
}

/* Ours, then the peer's; each repetition of both cases is one run of the peer. */
static cli_exit run_repetition(bench *b, int index) {
  if (b->prefill.n_tokens > 0 && time_prefill(b, &b->prefill.ms[index])) return cli_fail();
  if (b->decode.n_tokens > 0 && time_decode(b, b->decode.n_tokens, &b->decode.ms[index])) return cli_fail();
  if (!b->o->peer) return CLI_OK;
  cli_peer peer = {b->o->peer, b->model.path, b->n_threads, b->prefill.n_tokens, b->decode.n_tokens, b->o->depth};
  return cli_peer_run(&peer, &b->prefill.peer_per_s[index], &b->decode.peer_per_s[index]);
}

/* ---- preparing ---- */

/* Random ids cost what real text costs, as the work does not depend on what the tokens say. */
static weft_status draw_tokens(bench *b) {
  int n_vocab = weft_model_get_info(b->model.model)->n_vocab;
  b->n_tokens = b->prefill.n_tokens > b->depth ? b->prefill.n_tokens : b->depth;
  b->tokens = weft__alloc((size_t)b->n_tokens, sizeof *b->tokens);
  if (!b->tokens) return WEFT_ENOMEM;
  for (int i = 0; i < b->n_tokens; i++)
    b->tokens[i] = (int32_t)(weft__rng_uniform(TOKEN_SEED, (uint64_t)i, 0) * n_vocab);
  return WEFT_OK;
}

/* Just as many positions as the cases need: a larger cache would count as memory that the model needs. */
static weft_status open_session(bench *b) {
  int n_decode_ctx = b->decode.n_tokens > 0 ? b->depth + b->decode.n_tokens : 0;
  weft_session_options session = {
      .n_ctx = b->prefill.n_tokens > n_decode_ctx ? b->prefill.n_tokens : n_decode_ctx,
      .kv_dtype = cli_kv_dtype(b->o->kv),
  };
  return weft_session_create(&b->session, b->model.model, &session);
}

/* Both arrays are freed by clear_bench. */
static weft_status alloc_times(bench_case *c, int n_reps) {
  c->ms = weft__calloc((size_t)n_reps, sizeof *c->ms);
  c->peer_per_s = weft__calloc((size_t)n_reps, sizeof *c->peer_per_s);
  return c->ms && c->peer_per_s ? WEFT_OK : WEFT_ENOMEM;
}

/* The names tell the shapes, so that rows of different runs can stand in one table. */
static void prepare_cases(bench *b) {
  const bench_options *o = b->o;
  b->depth = o->depth > 0 ? o->depth : 1;
  b->prefill.n_tokens = o->n_prefill;
  b->decode.n_tokens = o->n_decode;
  snprintf(b->prefill.name, sizeof b->prefill.name, "prefill %d", o->n_prefill);
  snprintf(b->decode.name, sizeof b->decode.name, "decode %d at depth %d", o->n_decode, b->depth);
}

/* ---- reporting ---- */

/* What is printed of a case; NAN where there is no peer. */
typedef struct bench_row {
  double median_ms, min_ms, tokens_per_s, peer_tokens_per_s, ratio;
} bench_row;

/* Sorts the case's times, so the least is the first.  Rates are of the median: a mean would follow a single hiccup. */
static bench_row summarise(const bench *b, bench_case *c) {
  bench_row row = {.peer_tokens_per_s = NAN};
  row.median_ms = cli_bench_median(c->ms, b->o->n_reps);
  row.min_ms = c->ms[0];
  row.tokens_per_s = c->n_tokens / (row.median_ms / 1e3);
  if (b->o->peer) row.peer_tokens_per_s = cli_bench_median(c->peer_per_s, b->o->n_reps);
  row.ratio = row.tokens_per_s / row.peer_tokens_per_s;
  return row;
}

/* A case of no tokens was not measured and has no row. */
static void add_json_case(const bench *b, bench_case *c, json_t *cases) {
  if (c->n_tokens == 0) return;
  bench_row row = summarise(b, c);
  json_t *object = json_object();
  cli_json_set(object, "name", json_string(c->name));
  cli_json_set(object, "median_ms", cli_json_number(row.median_ms));
  cli_json_set(object, "min_ms", cli_json_number(row.min_ms));
  cli_json_set(object, "tokens_per_s", cli_json_number(row.tokens_per_s));
  cli_json_set(object, "peer_tokens_per_s", cli_json_number(row.peer_tokens_per_s));
  cli_json_set(object, "ratio", cli_json_number(row.ratio));
  cli_json_add(cases, object);
}

/* What one needs to compare runs stands beside the rows. */
static cli_exit print_json(bench *b, int64_t peak_bytes) {
  json_t *root = json_object(), *cases = json_array();
  add_json_case(b, &b->prefill, cases);
  add_json_case(b, &b->decode, cases);
  cli_json_set(root, "model", cli_json_text(b->model.path, strlen(b->model.path)));
  cli_json_set(root, "device", json_string(weft_device_name(b->model.device)));
  cli_json_set(root, "n_threads", json_integer(b->n_threads));
  cli_json_set(root, "n_reps", json_integer(b->o->n_reps));
  cli_json_set(root, "load_ms", cli_json_number(b->model.load_ms));
  cli_json_set(root, "first_token_ms", b->prefill.n_tokens ? cli_json_number(b->first_token_ms) : json_null());
  cli_json_set(root, "peak_bytes", json_integer(peak_bytes));
  cli_json_set(root, "cases", cases);
  return cli_json_print(root);
}

/* The peer's columns are there only if there is a peer. */
static void print_row(const bench *b, bench_case *c) {
  if (c->n_tokens == 0) return;
  bench_row row = summarise(b, c);
  cli_outf("%-26s %12.2f %12.2f %10.2f", c->name, row.median_ms, row.min_ms, row.tokens_per_s);
  if (b->o->peer) cli_outf(" %10.2f %8.3f", row.peer_tokens_per_s, row.ratio);
  cli_out("\n", 1);
}

static void print_text(bench *b, int64_t peak_bytes) {
  cli_outf("%s%s, kv %s, %d repetitions\n", weft_device_name(b->model.device), b->o->common.exact ? ", exact" : "",
           weft_dtype_name(cli_kv_dtype(b->o->kv)), b->o->n_reps);
  cli_outf("load %.1f ms", b->model.load_ms);
  if (b->prefill.n_tokens) cli_outf(", load to first token %.1f ms", b->first_token_ms);
  cli_outf(", memory at most %.1f MB\n\n", (double)peak_bytes / 1e6);
  cli_outf("%-26s %12s %12s %10s%s\n", "case", "median ms", "min ms", "tokens/s",
           b->o->peer ? "     peer/s    ratio" : "");
  print_row(b, &b->prefill);
  print_row(b, &b->decode);
}

/* ---- the command ---- */

/* Everything up to the first timed repetition. */
static cli_exit open_bench(bench *b, const char *model_name) {
  double start_ms = weft__now_ms();
  prepare_cases(b);
  cli_exit code = cli_model_open(&b->model, model_name, &b->o->common);
  if (code) return code;
  b->n_threads = cli_device_n_threads(b->model.device);
  if (b->o->common.verbose) cli_model_note(&b->model);
  if (draw_tokens(b) || open_session(b) || alloc_times(&b->prefill, b->o->n_reps) ||
      alloc_times(&b->decode, b->o->n_reps) || warm_up(b, start_ms))
    return cli_fail();
  return CLI_OK;
}

/* Memory is read before anything is printed, which takes some too. */
static cli_exit run_and_print(bench *b) {
  for (int i = 0; i < b->o->n_reps; i++) {
    cli_exit code = run_repetition(b, i);
    if (code) return code;
  }
  int64_t peak_bytes = cli_peak_bytes();
  if (b->o->common.json) return print_json(b, peak_bytes);
  print_text(b, peak_bytes);
  return CLI_OK;
}

static void clear_bench(bench *b) {
  weft_session_free(b->session);
  cli_model_close(&b->model);
  weft_free(b->tokens);
  weft_free(b->prefill.ms);
  weft_free(b->prefill.peer_per_s);
  weft_free(b->decode.ms);
  weft_free(b->decode.peer_per_s);
}

static cli_exit run_bench_llm(void *options, const cli_args *args) {
  bench b = {.o = options};
  if (b.o->n_prefill == 0 && b.o->n_decode == 0) {
    cli_error("bench llm: there is nothing to measure (give -p or -n at least 1)");
    return CLI_USAGE;
  }
  cli_exit code = open_bench(&b, args->values[0]);
  if (!code) code = run_and_print(&b);
  clear_bench(&b);
  return code;
}

static const cli_option bench_llm_table[] = {
    CLI_INT(bench_options, n_prefill, "prefill", 'p', "P", 0, MAX_TOKENS,
            "tokens of the prompt, random; 0 leaves this case out (default 512)"),
    CLI_INT(bench_options, n_decode, "decode", 'n', "N", 0, MAX_TOKENS,
            "tokens of the reply, chosen greedily; 0 leaves this case out (default 128)"),
    CLI_INT(bench_options, depth, "depth", 'd', "DEPTH", 0, MAX_TOKENS,
            "tokens in the cache before the reply; 0 counts as 1 (default 0)"),
    CLI_INT(bench_options, n_reps, "reps", 'r', "R", 1, MAX_REPS, "repetitions, after one warm-up (default 3)"),
    CLI_CHOICE(bench_options, kv, "kv", 0, CLI_KV_CHOICES, "element type of the key/value cache (default f16)"),
    CLI_TEXT(bench_options, peer, "peer", 0, "PROGRAM",
             "after each repetition run PROGRAM -m MODEL -t THREADS -p P -n N -d DEPTH -r 1, which prints lines "
             "\"PREFILL ... median X t/s\" and \"DECODE ... median X t/s\", and compare"),
    CLI_END,
};

static const bench_options defaults = {
    .common = CLI_COMMON_DEFAULTS, .n_prefill = 512, .n_decode = 128, .n_reps = 3, .kv = CLI_KV_F16};

const cli_command cli_cmd_bench_llm = {
    .name = "bench llm",
    .arguments = "MODEL",
    .summary = "measure the speed of a model, beside another program's if wanted",
    .details =
        "Prints the median and least time of reading a prompt and of writing a reply, and tokens a second by the "
        "median. The first token is timed from the start of loading, with an empty cache.\n"
        "With --json the object has model, device, n_threads, n_reps, load_ms, first_token_ms, peak_bytes and "
        "cases, a list of name, median_ms, min_ms, tokens_per_s, peer_tokens_per_s and ratio (null without "
        "--peer).",
    .examples = "weft bench llm model.gguf\n"
                "weft bench llm model.gguf -p 512 -n 128 -d 1024 -r 5 -t 2 --json\n"
                "weft bench llm model.gguf --peer ./lbench",
    .min_args = 1,
    .max_args = 1,
    .uses = CLI_USES_DEVICE | CLI_USES_MODEL,
    .options = bench_llm_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_bench_llm,
};
