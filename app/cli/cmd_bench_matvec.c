/* cmd_bench_matvec.c - weft bench matvec: products of weights with one vector or a few, against the speed of a copy. */
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
  int n_rows;          /* vectors that a weight of a format meets at once */
  const char *formats; /* "q4_k,q8_0" or "all"; NULL: f32 by matmul alone */
} bench_options;

/* A measured product; bytes are those of the matrix. */
typedef struct row {
  char name[64];
  double n_bytes, n_flops;
  cli_bench_time time;
} row;

static double rate(const row *r) { return 1e-6 * r->n_bytes / r->time.median_ms; }

static double gflops(const row *r) { return 1e-6 * r->n_flops / r->time.median_ms; }

/* ---- measuring ---- */

typedef struct operands {
  weft_tensor *a, *b;
} operands;

static weft_tensor *run_matvec(void *context, weft_scope *scope) {
  static const weft_matmul_attrs plain = {0};
  const operands *o = context;
  return weft_matmul(scope, o->a, o->b, &plain);
}

/* The formats that weights can have, from the library's table; bytes of a block. */
static const struct weight_format {
  const char *name;
  weft_dtype dtype;
  int64_t block_len, block_bytes;
} weight_formats[] = {
#define WEFT_DTYPE(id, name, block_len, block_bytes, gguf_type, quantised) {name, WEFT_##id, block_len, block_bytes},
#include "weft/dtype.def"
#undef WEFT_DTYPE
};
typedef struct weight_format weight_format;

static weft_tensor *run_product(void *context, weft_scope *scope) {
  const operands *o = context;
  return weft_matmul_nt(scope, o->b, o->a);
}

/* Stored bytes of a weight.  Every byte is in 0x20 .. 0x3f, so that whatever they are part of, no number is subnormal or
 * infinite, which would take the processor longer. */
static weft_tensor *stored_weight(weft_scope *scope, const weight_format *f, cli_bench_shape s, double *n_bytes) {
  size_t n = (size_t)(s.rows * (s.columns / f->block_len) * f->block_bytes);
  uint8_t *data = weft__alloc(n, 1);
  if (!data) return NULL;
  uint32_t state = 1;
  for (size_t i = 0; i < n; i++) {
    state = state * 1664525u + 1013904223u;
    data[i] = (uint8_t)(0x20 | state >> 27);
  }
  weft_tensor *weight = weft_weight_from(scope, f->dtype, s.rows, s.columns, data);
  weft_free(data);
  *n_bytes = (double)n;
  return weight;
}

/* A product with a weight in one of the formats; the rate is that of its stored bytes. */
static weft_status measure_format(const cli_bench *bench, const weight_format *f, cli_bench_shape s, int n_rows,
                                  row *r) {
  weft_scope *scope;
  weft_status status = weft_scope_open(&scope, bench->device, NULL);
  if (status) return status;
  operands o = {stored_weight(scope, f, s, &r->n_bytes), cli_bench_uniform(scope, n_rows, s.columns, 1)};
  r->n_flops = 2.0 * n_rows * (double)s.rows * (double)s.columns;
  snprintf(r->name, sizeof r->name, "%lldx%lld %s", (long long)s.rows, (long long)s.columns, f->name);
  status = o.a && o.b ? cli_bench_measure(bench, run_product, &o, &r->time) : weft_last_status();
  weft_scope_close(scope);
  return status;
}

/* Only the matrix counts: the vectors are small beside it. */
static weft_status measure_matvec(const cli_bench *bench, cli_bench_shape s, row *r) {
  weft_scope *scope;
  weft_status status = weft_scope_open(&scope, bench->device, NULL);
  if (status) return status;
  operands o = {cli_bench_uniform(scope, s.rows, s.columns, 0), cli_bench_uniform(scope, s.columns, 0, 1)};
  snprintf(r->name, sizeof r->name, "%lldx%lld", (long long)s.rows, (long long)s.columns);
  r->n_bytes = 4.0 * (double)s.rows * (double)s.columns;
  r->n_flops = r->n_bytes / 2;
  status = o.a && o.b ? cli_bench_measure(bench, run_matvec, &o, &r->time) : weft_last_status();
  weft_scope_close(scope);
  return status;
}

static cli_exit print_matvec(const cli_bench *bench, const row *rows, int n) {
  json_t *cases = bench->common->json ? json_array() : NULL;
  if (!cases) {
    cli_bench_print_head(bench);
    cli_outf("%-20s %12s %12s %10s %8s %10s\n", "shape", "median ms", "min ms", "GB/s", "of copy", "GFLOP/s");
  }
  for (int i = 0; i < n; i++) {
    const row *r = &rows[i];
    double fraction = rate(r) / bench->copy_gb_per_s;
    if (!bench->common->json) {
      cli_outf("%-20s %12.4f %12.4f %10.1f %8.3f %10.1f\n", r->name, r->time.median_ms, r->time.min_ms, rate(r),
               fraction, gflops(r));
      continue;
    }
    json_t *object = cli_bench_row_json(r->name, r->time);
    cli_json_set(object, "gb_per_s", cli_json_number(rate(r)));
    cli_json_set(object, "fraction_of_peak", cli_json_number(fraction));
    cli_json_set(object, "gflops", cli_json_number(gflops(r)));
    cli_json_add(cases, object);
  }
  return bench->common->json ? cli_bench_print_json(bench, cases) : CLI_OK;
}

/* Is the format one of the list's? */
static bool is_chosen(const char *formats, const weight_format *f) {
  size_t n = strlen(f->name);
  if (f->dtype == WEFT_I32) return false;
  if (strcmp(formats, "all") == 0) return true;
  for (const char *name = formats; name; name = strchr(name, ','), name += name != NULL)
    if (strcspn(name, ",") == n && memcmp(name, f->name, n) == 0) return true;
  return false;
}

/* Every name of the list must be one that is_chosen finds. */
static cli_exit check_formats(const char *formats) {
  for (const char *name = formats; name; name = strchr(name, ','), name += name != NULL) {
    size_t n = strcspn(name, ","), i = 0;
    if (strcmp(formats, "all") == 0) return CLI_OK;
    while (i < WEFT_COUNT(weight_formats) &&
           (strlen(weight_formats[i].name) != n || memcmp(name, weight_formats[i].name, n) != 0))
      i++;
    if (i < WEFT_COUNT(weight_formats) && weight_formats[i].dtype != WEFT_I32) continue;
    cli_error("--format: '%.*s' is no weight format (give names like q4_k,q8_0, with commas between, or all)", (int)n,
              name);
    return CLI_USAGE;
  }
  return CLI_OK;
}

static cli_exit check_columns(const char *formats, const cli_bench_shape *shapes, int n) {
  for (int i = 0; i < n; i++)
    for (size_t j = 0; j < WEFT_COUNT(weight_formats); j++) {
      const weight_format *f = &weight_formats[j];
      if (!is_chosen(formats, f) || shapes[i].columns % f->block_len == 0) continue;
      cli_error("bench matvec: %lld columns are no whole blocks of %s (give a multiple of %d)",
                (long long)shapes[i].columns, f->name, (int)f->block_len);
      return CLI_USAGE;
    }
  return CLI_OK;
}

/* One row a shape, or one a shape and format. */
static weft_status measure_shapes(const cli_bench *bench, const bench_options *o, const cli_bench_shape *shapes, int n,
                                  row *rows, int *n_cases) {
  weft_status status = WEFT_OK;
  for (int i = 0; i < n && !status; i++) {
    if (!o->formats) status = measure_matvec(bench, shapes[i], &rows[(*n_cases)++]);
    for (size_t j = 0; o->formats && j < WEFT_COUNT(weight_formats) && !status; j++)
      if (is_chosen(o->formats, &weight_formats[j]))
        status = measure_format(bench, &weight_formats[j], shapes[i], o->n_rows, &rows[(*n_cases)++]);
  }
  return status;
}

static cli_exit run_bench_matvec(void *options, const cli_args *args) {
  const bench_options *o = options;
  cli_bench_shape shapes[CLI_BENCH_MAX_SHAPES];
  row rows[CLI_BENCH_MAX_SHAPES * WEFT_COUNT(weight_formats)];
  cli_bench bench;
  int n, n_cases = 0;
  cli_exit code = cli_bench_read_shapes("bench matvec", args, (cli_bench_shape){16384, 4096}, shapes, &n);
  if (!code && o->formats) code = check_formats(o->formats);
  if (!code && !o->formats && o->n_rows > 1) {
    cli_error("--rows: it is for weights of --format (give that too, or measure with bench gemm)");
    code = CLI_USAGE;
  }
  if (!code && o->formats) code = check_columns(o->formats, shapes, n);
  if (!code) code = cli_bench_open(&bench, &o->common, 0, o->n_reps);
  if (code) return code;
  weft_status status = cli_bench_copy(&bench, bench.copy_bytes, &bench.copy_gb_per_s);
  if (!status) status = measure_shapes(&bench, o, shapes, n, rows, &n_cases);
  code = status ? cli_fail() : print_matvec(&bench, rows, n_cases);
  cli_bench_close(&bench);
  return code;
}

/* ---- the command ---- */

static const cli_option matvec_table[] = {
    CLI_INT(bench_options, n_reps, "reps", 'r', "R", 1, CLI_BENCH_MAX_REPS,
            "measurements of each case, after a warm-up (default 5)"),
    CLI_TEXT(bench_options, formats, "format", 0, "NAMES",
             "multiply by weights in these formats, such as q4_k,q8_0, or in all"),
    CLI_INT(bench_options, n_rows, "rows", 0, "N", 1, 65536, "vectors that such a weight meets at once (default 1)"),
    CLI_END,
};

static const bench_options defaults = {.common = CLI_COMMON_DEFAULTS, .n_reps = 5, .n_rows = 1};

const cli_command cli_cmd_bench_matvec = {
    .name = "bench matvec",
    .arguments = "[ROWSxCOLUMNS...]",
    .summary = "measure matrix times vector against the speed of a copy",
    .details =
        "y = A x in f32; GB/s of A's bytes (default shape 16384x4096), and that as a fraction of the copy: a "
        "scale of 256 MiB (64 on a CPU), whose read and written bytes both count. With --format A is a weight "
        "as models have them, stored in that format, and x, one vector or --rows of them, is quantised as in the "
        "device's arithmetic.\n" CLI_BENCH_GPU_TIMES
        "With --json the object has device, n_reps, peak_gflops (null), copy_gb_per_s and cases, a list of name, "
        "median_ms, min_ms, gb_per_s, fraction_of_peak (of the copy) and gflops.",
    .examples = "weft bench matvec\n"
                "weft bench matvec --format all --threads 1\n"
                "weft bench matvec 4096x4096 --format q8_0 --rows 4096 --device gpu\n"
                "weft bench matvec 16384x4096 65535x8192 --device gpu --reps 20 --json",
    .max_args = CLI_BENCH_MAX_SHAPES,
    .uses = CLI_USES_DEVICE,
    .options = matvec_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_bench_matvec,
};
