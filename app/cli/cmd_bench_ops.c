/* cmd_bench_ops.c - weft bench ops: operators that memory bounds, forward and backward, against the speed of a copy.
 *
 * Each works on operands of one shape [R,C]; a row counts the bytes that the operator must read and write at least. */
#include "bench.h"
#include "cmd.h"
#include "output.h"
#include "product.h"

#include "weft/ops.h"

#include <stdio.h>
#include <string.h>

typedef struct bench_options {
  cli_common common;
  int n_reps;
} bench_options;

/* What the operators work on. */
typedef struct operands {
  weft_tensor *a, *b;        /* [R,C] */
  weft_tensor *gain, *bias;  /* [C] */
  weft_tensor *heads;        /* a as [R/16,16,C], its outer axes exchanged; NULL if 16 does not divide R */
  weft_tensor *ids, *tokens; /* N_TOKENS rows of a, and the gradient by what they look up */
} operands;

enum { N_TOKENS = 8192, N_HEADS = 16 };

/* ---- the operators ---- */

static const weft_rms_norm_attrs rms_attrs = {1e-5f};
static const weft_layer_norm_attrs layer_attrs = {1e-5f};

static weft_tensor *run_scale(void *context, weft_scope *scope) {
  static const weft_scale_attrs half = {0.5f};
  return weft_scale(scope, ((const operands *)context)->a, &half);
}

#define OPERATOR(name, call)                                                                                           \
  static weft_tensor *run_##name(void *context, weft_scope *scope) {                                                   \
    const operands *o = context;                                                                                       \
    return call;                                                                                                       \
  }
OPERATOR(add, weft_add(scope, o->a, o->b))
OPERATOR(gelu, weft_gelu(scope, o->a))
OPERATOR(gelu_grad, weft_gelu_grad(scope, o->a, o->b))
OPERATOR(softmax, weft_softmax(scope, o->a))
OPERATOR(softmax_grad, weft_softmax_grad(scope, o->a, o->b))
OPERATOR(layer_norm, weft_layer_norm(scope, o->a, o->gain, o->bias, &layer_attrs))
OPERATOR(layer_norm_grad, weft_layer_norm_grad(scope, o->a, o->gain, o->b, &layer_attrs))
OPERATOR(rms_norm, weft_rms_norm(scope, o->a, o->gain, &rms_attrs))
OPERATOR(rms_norm_grad, weft_rms_norm_grad(scope, o->a, o->gain, o->b, &rms_attrs))
OPERATOR(permute, weft_contiguous(scope, o->heads))
OPERATOR(transpose, weft_contiguous(scope, weft_permute(scope, o->a, (const int[]){1, 0})))
OPERATOR(sum_rows, weft_sum(scope, o->a, &(weft_sum_attrs){1, {1}, 0}))
OPERATOR(sum_columns, weft_sum(scope, o->a, &(weft_sum_attrs){1, {0}, 0}))

static weft_tensor *run_embed_grad(void *context, weft_scope *scope) {
  const operands *o = context;
  return weft_embed_grad(scope, o->ids, o->tokens, &(weft_embed_grad_attrs){.n_rows = weft_tensor_shape(o->a)[0]});
}

/* Elements of [R,C] that are read and written, in units of R*C, of [R] and [C] besides none count; embed_grad also reads and
 * adds N_TOKENS rows. */
static const struct measured_op {
  const char *name;
  cli_bench_operator run;
  int n_tensors, n_token_rows;
} measured_ops[] = {
    {"scale", run_scale, 2, 0},
    {"add", run_add, 3, 0},
    {"gelu", run_gelu, 2, 0},
    {"gelu_grad", run_gelu_grad, 3, 0},
    {"softmax", run_softmax, 2, 0},
    {"softmax_grad", run_softmax_grad, 3, 0},
    {"layer_norm", run_layer_norm, 2, 0},
    {"layer_norm_grad", run_layer_norm_grad, 3, 0},
    {"rms_norm", run_rms_norm, 2, 0},
    {"rms_norm_grad", run_rms_norm_grad, 3, 0},
    {"permute", run_permute, 2, 0},
    {"transpose", run_transpose, 2, 0},
    {"sum_rows", run_sum_rows, 1, 0},
    {"sum_columns", run_sum_columns, 1, 0},
    {"embed_grad", run_embed_grad, 1, 3},
};

enum { N_OPS = WEFT_COUNT(measured_ops) };

typedef struct row {
  char name[64];
  double n_bytes;
  cli_bench_time time;
  double same_gb_per_s; /* of the scale of the same shape */
} row;

static double rate(const row *r) { return 1e-6 * r->n_bytes / r->time.median_ms; }

/* ---- measuring ---- */

static weft_tensor *random_ids(weft_scope *scope, int64_t n_rows) {
  int32_t ids[N_TOKENS];
  uint32_t state = 1;
  for (int i = 0; i < N_TOKENS; i++) {
    state = state * 1664525u + 1013904223u;
    ids[i] = (int32_t)((uint64_t)state * (uint64_t)n_rows >> 32);
  }
  return weft_tensor_from(scope, WEFT_I32, 1, (const int64_t[]){N_TOKENS}, ids);
}

static weft_status upload(weft_scope *scope, cli_bench_shape s, operands *o) {
  *o = (operands){.a = cli_bench_uniform(scope, s.rows, s.columns, 0),
                  .b = cli_bench_uniform(scope, s.rows, s.columns, 1),
                  .gain = cli_bench_uniform(scope, s.columns, 0, 2),
                  .bias = cli_bench_uniform(scope, s.columns, 0, 3),
                  .ids = random_ids(scope, s.rows),
                  .tokens = cli_bench_uniform(scope, N_TOKENS, s.columns, 4)};
  if (!o->a || !o->b || !o->gain || !o->bias || !o->ids || !o->tokens) return weft_last_status();
  if (s.rows % N_HEADS) return WEFT_OK;
  o->heads = weft_permute(scope, weft_reshape(scope, o->a, 3, (const int64_t[]){s.rows / N_HEADS, N_HEADS, s.columns}),
                          (const int[]){1, 0, 2});
  return o->heads ? WEFT_OK : weft_last_status();
}

/* The scale comes first: it is the copy that the others of this size are compared with. */
static weft_status measure_uploaded(const cli_bench *bench, cli_bench_shape s, operands *o, row *rows, int *n) {
  weft_status status = WEFT_OK;
  const row *scale = &rows[*n];
  for (int i = 0; i < (int)N_OPS && !status; i++) {
    const struct measured_op *op = &measured_ops[i];
    if (op->run == run_permute && !o->heads) continue;
    row *r = &rows[(*n)++];
    snprintf(r->name, sizeof r->name, "%s %lldx%lld", op->name, (long long)s.rows, (long long)s.columns);
    r->n_bytes = 4.0 * (op->n_tensors * (double)s.rows + (double)op->n_token_rows * N_TOKENS) * (double)s.columns;
    status = cli_bench_measure(bench, op->run, o, &r->time);
    if (!status) r->same_gb_per_s = rate(scale);
  }
  return status;
}

static weft_status measure_ops(const cli_bench *bench, cli_bench_shape s, row *rows, int *n) {
  weft_scope *scope;
  operands o;
  weft_status status = weft_scope_open(&scope, bench->device, NULL);
  if (status) return status;
  status = upload(scope, s, &o);
  if (!status) status = measure_uploaded(bench, s, &o, rows, n);
  weft_scope_close(scope);
  return status;
}

/* ---- printing ---- */

static cli_exit print_ops(const cli_bench *bench, const row *rows, int n) {
  json_t *cases = bench->common->json ? json_array() : NULL;
  if (!cases) {
    cli_bench_print_head(bench);
    cli_outf("%-28s %12s %12s %10s %10s %10s\n", "operator", "median ms", "min ms", "GB/s", "of scale", "of copy");
  }
  for (int i = 0; i < n; i++) {
    const row *r = &rows[i];
    double of_same = rate(r) / r->same_gb_per_s, of_copy = rate(r) / bench->copy_gb_per_s;
    if (!bench->common->json) {
      cli_outf("%-28s %12.4f %12.4f %10.1f %10.3f %10.3f\n", r->name, r->time.median_ms, r->time.min_ms, rate(r),
               of_same, of_copy);
      continue;
    }
    json_t *object = cli_bench_row_json(r->name, r->time);
    cli_json_set(object, "gb_per_s", cli_json_number(rate(r)));
    cli_json_set(object, "fraction_of_peak", cli_json_number(of_same));
    cli_json_set(object, "fraction_of_copy", cli_json_number(of_copy));
    cli_json_add(cases, object);
  }
  return bench->common->json ? cli_bench_print_json(bench, cases) : CLI_OK;
}

static cli_exit run_bench_ops(void *options, const cli_args *args) {
  const bench_options *o = options;
  cli_bench_shape shapes[CLI_BENCH_MAX_SHAPES];
  row rows[CLI_BENCH_MAX_SHAPES * N_OPS];
  memset(rows, 0, sizeof rows);
  cli_bench bench;
  int n, n_rows = 0;
  cli_exit code = cli_bench_read_shapes("bench ops", args, (cli_bench_shape){4096, 4096}, shapes, &n);
  if (!code) code = cli_bench_open(&bench, &o->common, 0, o->n_reps);
  if (code) return code;
  weft_status status = cli_bench_copy(&bench, bench.copy_bytes, &bench.copy_gb_per_s);
  for (int i = 0; i < n && !status; i++) status = measure_ops(&bench, shapes[i], rows, &n_rows);
  code = status ? cli_fail() : print_ops(&bench, rows, n_rows);
  cli_bench_close(&bench);
  return code;
}

/* ---- the command ---- */

static const cli_option option_table[] = {
    CLI_INT(bench_options, n_reps, "reps", 'r', "R", 1, CLI_BENCH_MAX_REPS,
            "measurements of each case, after a warm-up (default 5)"),
    CLI_END,
};

static const bench_options defaults = {.common = CLI_COMMON_DEFAULTS, .n_reps = 5};

const cli_command cli_cmd_bench_ops = {
    .name = "bench ops",
    .arguments = "[ROWSxCOLUMNS...]",
    .summary = "measure operators and gradients against the speed of a copy",
    .details =
        "scale, add, gelu, softmax, layer_norm, rms_norm and their gradients, two permutations (permute exchanges the "
        "outer axes of [R/16,16,C], if 16 divides R), sums and the embedding gradient (8192 rows added into zeros). "
        "GB/s of the bytes that the operator must read and write (default shape 4096x4096), as a fraction of the "
        "scale of the same shape, which counts as a copy, and of a scale of 256 MiB (64 on a "
        "CPU).\n" CLI_BENCH_GPU_TIMES
        "With --json the object has device, n_reps, peak_gflops (null), copy_gb_per_s and cases, a list of name, "
        "median_ms, min_ms, gb_per_s, fraction_of_peak (of the scale of the same shape) and fraction_of_copy.",
    .examples = "weft bench ops\n"
                "weft bench ops 4096x4096 50304x768 --device 0 --json",
    .max_args = CLI_BENCH_MAX_SHAPES,
    .uses = CLI_USES_DEVICE,
    .options = option_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_bench_ops,
};
