/* cmd_bench_attention.c - weft bench attention: causal attention of f32, forward, and forward with its gradients.
 *
 * Operations are those of the visible half of the scores: 4 a score and dimension forward, 10 more backward. */
#include "bench.h"
#include "cmd.h"
#include "output.h"

#include "weft/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct bench_options {
  cli_common common;
  int n_reps;
} bench_options;

typedef struct shape {
  int64_t n_heads, n_positions, head_size;
} shape;

/* Tensors [T,H*D], but lse [T,H]. */
typedef struct operands {
  weft_attention_attrs attrs;
  weft_tensor *q, *k, *v, *y, *lse, *dy, *dq, *dk, *dv;
} operands;

typedef struct row {
  char name[64];
  double n_flops;
  cli_bench_time time;
} row;

static double gflops(const row *r) { return 1e-6 * r->n_flops / r->time.median_ms; }

/* ---- measuring ---- */

static weft_tensor *run_forward(void *context, weft_scope *scope) {
  const operands *o = context;
  return weft_attention(scope, o->q, o->k, o->v, &o->attrs);
}

static weft_tensor *run_both(void *context, weft_scope *scope) {
  const operands *o = context;
  weft_tensor *y = weft_attention_lse(scope, o->y, o->lse, o->q, o->k, o->v, &o->attrs);
  weft_tensor *dq = weft_attention_grad(scope, o->dq, o->dk, o->dv, o->q, o->k, o->v, y, o->lse, o->dy, &o->attrs);
  weft_tensor_free(y);
  return dq;
}

static weft_status upload(weft_scope *scope, const shape *s, operands *o) {
  int64_t n = s->n_heads * s->head_size;
  weft_tensor **all[] = {&o->q, &o->k, &o->v, &o->dy, &o->y, &o->dq, &o->dk, &o->dv};
  o->attrs = (weft_attention_attrs){
      .n_heads = (int)s->n_heads, .scale = 1 / sqrtf((float)s->head_size), .mask = WEFT_MASK_CAUSAL};
  for (size_t i = 0; i < WEFT_COUNT(all); i++) {
    *all[i] = cli_bench_uniform(scope, s->n_positions, n, i);
    if (!*all[i]) return weft_last_status();
  }
  o->lse = cli_bench_uniform(scope, s->n_positions, s->n_heads, 0);
  return o->lse ? WEFT_OK : weft_last_status();
}

/* Two rows a shape. */
static weft_status measure_shape(const cli_bench *bench, const shape *s, row *rows) {
  static const struct {
    const char *name;
    cli_bench_operator run;
    double n_flops; /* a visible score and dimension */
  } works[] = {{"forward", run_forward, 4}, {"forward + backward", run_both, 14}};
  weft_scope *scope;
  operands o;
  weft_status status = weft_scope_open(&scope, bench->device, NULL);
  if (status) return status;
  status = upload(scope, s, &o);
  for (size_t i = 0; i < WEFT_COUNT(works) && !status; i++) {
    double n_scores = (double)s->n_heads * (double)s->n_positions * (double)s->n_positions / 2;
    rows[i].n_flops = works[i].n_flops * n_scores * (double)s->head_size;
    snprintf(rows[i].name, sizeof rows[i].name, "%s %lldx%lldx%lld", works[i].name, (long long)s->n_heads,
             (long long)s->n_positions, (long long)s->head_size);
    status = cli_bench_measure(bench, works[i].run, &o, &rows[i].time);
  }
  weft_scope_close(scope);
  return status;
}

/* ---- the command ---- */

static cli_exit read_shapes(const cli_args *args, shape *shapes, int *n) {
  const double max_elements = 0x1p31;
  *n = args->n;
  if (args->n == 0) shapes[(*n)++] = (shape){32, 2048, 64};
  for (int i = 0; i < args->n; i++) {
    const char *text = args->values[i];
    int64_t extents[3];
    if (cli_bench_parse_extents(text, strlen(text), extents, 3) != 3 ||
        (double)extents[0] * (double)extents[1] * (double)extents[2] > max_elements) {
      cli_error("bench attention: '%s' is no shape (give HEADSxPOSITIONSxSIZE, as in 32x2048x64, of at most 2^31 "
                "elements)",
                text);
      return CLI_USAGE;
    }
    shapes[i] = (shape){extents[0], extents[1], extents[2]};
  }
  return CLI_OK;
}

static cli_exit print_rows(const cli_bench *bench, const row *rows, int n) {
  json_t *cases = bench->common->json ? json_array() : NULL;
  if (!cases) {
    cli_outf("%s, median of %d\n\n", weft_device_name(bench->device), bench->n_reps);
    cli_outf("%-36s %12s %12s %10s\n", "causal attention", "median ms", "min ms", "GFLOP/s");
  }
  for (int i = 0; i < n; i++) {
    const row *r = &rows[i];
    if (!bench->common->json) {
      cli_outf("%-36s %12.4f %12.4f %10.1f\n", r->name, r->time.median_ms, r->time.min_ms, gflops(r));
      continue;
    }
    json_t *object = cli_bench_row_json(r->name, r->time);
    cli_json_set(object, "gflops", cli_json_number(gflops(r)));
    cli_json_add(cases, object);
  }
  return bench->common->json ? cli_bench_print_json(bench, cases) : CLI_OK;
}

static cli_exit run_bench_attention(void *options, const cli_args *args) {
  const bench_options *o = options;
  shape shapes[CLI_BENCH_MAX_SHAPES];
  row rows[2 * CLI_BENCH_MAX_SHAPES];
  memset(rows, 0, sizeof rows);
  cli_bench bench;
  int n;
  cli_exit code = read_shapes(args, shapes, &n);
  if (!code) code = cli_bench_open(&bench, &o->common, 0, o->n_reps);
  if (code) return code;
  weft_status status = WEFT_OK;
  for (int i = 0; i < n && !status; i++) status = measure_shape(&bench, &shapes[i], &rows[2 * i]);
  code = status ? cli_fail() : print_rows(&bench, rows, 2 * n);
  cli_bench_close(&bench);
  return code;
}

static const cli_option option_table[] = {
    CLI_INT(bench_options, n_reps, "reps", 'r', "R", 1, CLI_BENCH_MAX_REPS,
            "measurements of each case, after a warm-up (default 5)"),
    CLI_END,
};

static const bench_options defaults = {.common = CLI_COMMON_DEFAULTS, .n_reps = 5};

const cli_command cli_cmd_bench_attention = {
    .name = "bench attention",
    .arguments = "[HEADSxPOSITIONSxSIZE...]",
    .summary = "measure causal attention and its gradients",
    .details = "Causal attention in f32 over one sequence (default 32x2048x64): forward, and forward and backward "
               "together. GFLOP/s of the visible half of the scores: 4 operations a score and dimension forward, 10 "
               "backward.\n" CLI_BENCH_GPU_TIMES
               "With --json the object has device, n_reps, peak_gflops and copy_gb_per_s (both null) and cases, a list "
               "of name, median_ms, min_ms and gflops.",
    .examples = "weft bench attention\n"
                "weft bench attention 32x2048x64 32x4096x128 --device gpu",
    .max_args = CLI_BENCH_MAX_SHAPES,
    .uses = CLI_USES_DEVICE,
    .options = option_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_bench_attention,
};
