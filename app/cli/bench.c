/* bench.c - timing operators on a device, and the parts of what weft bench gemm, matvec, ops and attention print. */
#include "bench.h"
#include "device.h"
#include "options.h"
#include "output.h"
#include "product.h"

#include "weft/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  MAX_TOGETHER = 200, /* N: operators of the shorter of two runs at most */
  TOGETHER_MS = 50,   /* both runs last about this long, if MAX_TOGETHER allows */
  FLUSH_EVERY = 32,   /* operators: the device works on them while the next are recorded */
  GPU_WARM_UP_MS = 300,
  CPU_WARM_UP_MS = 100,
  GPU_COPY_MIB = 256, /* several times a large GPU's cache */
  CPU_COPY_MIB = 64,  /* the CPU's pool keeps no larger buffers, and new pages would cost more than the copy */
};

/* ---- the device ---- */

/* Software drivers have no clocks that rise, and take their time. */
cli_exit cli_bench_open(cli_bench *bench, const cli_common *common, int gemm_tile, int n_reps) {
  *bench = (cli_bench){.common = common, .n_reps = n_reps, .copy_gb_per_s = NAN, .peak_gflops = NAN};
  cli_exit code = cli_device_open_tile(&bench->device, common, gemm_tile);
  if (code) return code;
  bench->is_cpu = cli_device_is_cpu(bench->device);
  bench->is_software = !bench->is_cpu && cli_device_is_software(bench->device);
  bench->warm_up_ms = bench->is_cpu ? CPU_WARM_UP_MS : bench->is_software ? 0 : GPU_WARM_UP_MS;
  bench->copy_bytes = (int64_t)(bench->is_cpu ? CPU_COPY_MIB : GPU_COPY_MIB) << 20;
  return CLI_OK;
}

static void print_profile(const weft_device *device) {
  weft_profile_row rows[WEFT_OP_COUNT];
  size_t n = weft_device_profile(device, rows, WEFT_COUNT(rows));
  if (n > WEFT_COUNT(rows)) n = WEFT_COUNT(rows);
  if (n > 0) cli_note("%-16s %10s %12s", "operator", "runs", "ms");
  for (size_t i = 0; i < n; i++)
    cli_note("%-16s %10lld %12.3f", rows[i].op, (long long)rows[i].n_runs, rows[i].total_ms);
}

void cli_bench_close(cli_bench *bench) {
  if (!bench->device) return;
  print_profile(bench->device);
  weft_device_close(bench->device);
  bench->device = NULL;
}

/* ---- timing ---- */

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double cli_bench_median(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, compare_doubles);
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

typedef struct work {
  const cli_bench *bench;
  cli_bench_operator run;
  void *context;
  weft_scope *scope;
} work;

/* n operators and the wait for all of them.  A result is freed at once, as in a chain, so the next gets its buffer. */
static weft_status submit(const work *w, int n, double *ms) {
  double start_ms = weft__now_ms();
  for (int i = 0; i < n; i++) {
    weft_tensor *y = w->run(w->context, w->scope);
    if (!y) return weft_last_status();
    weft_tensor_free(y);
    if ((i + 1) % FLUSH_EVERY == 0 && weft_device_flush(w->bench->device)) return weft_last_status();
  }
  weft_status status = weft_device_sync(w->bench->device);
  *ms = weft__now_ms() - start_ms;
  return status;
}

/* First runs compile kernels and make buffers, and clocks of GPUs rise with the load.  *one_ms gets the time of the last
 * submission of one operator. */
static weft_status warm_up(const work *w, double *one_ms) {
  double start_ms = weft__now_ms();
  weft_status status = submit(w, 1, one_ms);
  if (!status) status = submit(w, 1, one_ms);
  while (!status && weft__now_ms() - start_ms < w->bench->warm_up_ms) status = submit(w, 1, one_ms);
  return status;
}

/* Of times that noise has turned round, the longer run alone is an upper bound. */
static double difference(double n_ms, double twice_ms, int n) {
  return twice_ms > n_ms ? (twice_ms - n_ms) / n : twice_ms / (2 * n);
}

/* The median and least of each kind of run are taken before the difference: those of single differences would
 * be made of the noise of both. */
static weft_status time_together(const work *w, int n, double *n_ms, double *twice_ms, cli_bench_time *time) {
  int n_reps = w->bench->n_reps;
  weft_status status = WEFT_OK;
  for (int i = 0; i < n_reps && !status; i++) {
    status = submit(w, n, &n_ms[i]);
    if (!status) status = submit(w, 2 * n, &twice_ms[i]);
  }
  if (status) return status;
  time->median_ms = difference(cli_bench_median(n_ms, n_reps), cli_bench_median(twice_ms, n_reps), n);
  time->min_ms = difference(n_ms[0], twice_ms[0], n);
  if (time->min_ms > time->median_ms) time->min_ms = time->median_ms;
  return WEFT_OK;
}

static weft_status time_alone(const work *w, double *ms, cli_bench_time *time) {
  weft_status status = WEFT_OK;
  for (int i = 0; i < w->bench->n_reps && !status; i++) status = submit(w, 1, &ms[i]);
  if (status) return status;
  time->median_ms = cli_bench_median(ms, w->bench->n_reps);
  time->min_ms = ms[0];
  return WEFT_OK;
}

static weft_status time_warm(const work *w, double one_ms, cli_bench_time *time) {
  double *ms = weft__alloc((size_t)w->bench->n_reps * 2, sizeof *ms);
  if (!ms) return WEFT_ENOMEM;
  int n = (int)fmax(1, fmin(MAX_TOGETHER, TOGETHER_MS / (3 * one_ms)));
  weft_status status =
      w->bench->is_cpu ? time_alone(w, ms, time) : time_together(w, n, ms, ms + w->bench->n_reps, time);
  weft_free(ms);
  return status;
}

weft_status cli_bench_measure(const cli_bench *bench, cli_bench_operator run, void *context, cli_bench_time *time) {
  work w = {bench, run, context, NULL};
  double one_ms = 0;
  weft_status status = weft_scope_open(&w.scope, bench->device, NULL);
  if (status) return status;
  status = warm_up(&w, &one_ms);
  if (!status) status = time_warm(&w, one_ms, time);
  weft_scope_close(w.scope);
  return status;
}

/* ---- what others are compared with ---- */

weft_tensor *cli_bench_uniform(weft_scope *scope, int64_t rows, int64_t columns, uint64_t stream) {
  int64_t n = columns ? rows * columns : rows;
  float *data = weft__alloc((size_t)n, sizeof *data);
  if (!data) return NULL;
  cli_fill_uniform(data, n, stream);
  weft_tensor *tensor = weft_tensor_from(scope, WEFT_F32, columns ? 2 : 1, (const int64_t[]){rows, columns}, data);
  weft_free(data);
  return tensor;
}

static weft_tensor *run_scale(void *context, weft_scope *scope) {
  static const weft_scale_attrs half = {0.5f};
  return weft_scale(scope, context, &half);
}

static weft_status time_scale(const cli_bench *bench, int64_t n, cli_bench_time *time) {
  weft_scope *scope;
  weft_status status = weft_scope_open(&scope, bench->device, NULL);
  if (status) return status;
  weft_tensor *a = cli_bench_uniform(scope, n, 0, 0);
  status = a ? cli_bench_measure(bench, run_scale, a, time) : weft_last_status();
  weft_scope_close(scope);
  return status;
}

weft_status cli_bench_copy(const cli_bench *bench, int64_t n_bytes, double *gb_per_s) {
  cli_bench_time time = {0};
  weft_status status = time_scale(bench, n_bytes / (int64_t)sizeof(float), &time);
  if (!status) *gb_per_s = 2e-6 * (double)n_bytes / time.median_ms;
  return status;
}

weft_status cli_bench_smallest(const cli_bench *bench, double *ms) {
  cli_bench_time time = {0};
  weft_status status = time_scale(bench, 1, &time);
  if (!status) *ms = time.median_ms;
  return status;
}

/* ---- shapes ---- */

int cli_bench_parse_extents(const char *text, size_t n_bytes, int64_t *values, int max) {
  enum { MAX_EXTENT = 1 << 24 };
  char number[16];
  int n = 0;
  for (size_t start = 0; start <= n_bytes; n++) {
    size_t end = start;
    while (end < n_bytes && text[end] != 'x') end++;
    if (n == max || end - start >= sizeof number) return 0;
    memcpy(number, text + start, end - start);
    number[end - start] = 0;
    if (!cli_parse_int(number, 1, MAX_EXTENT, &values[n])) return 0;
    start = end + 1;
  }
  return n;
}

cli_exit cli_bench_read_shapes(const char *command, const cli_args *args, cli_bench_shape fallback,
                               cli_bench_shape *shapes, int *n) {
  const double max_elements = 0x1p33;
  int64_t extents[2];
  *n = args->n;
  if (args->n == 0) shapes[(*n)++] = fallback;
  for (int i = 0; i < args->n; i++) {
    const char *text = args->values[i];
    if (cli_bench_parse_extents(text, strlen(text), extents, 2) != 2 ||
        (double)extents[0] * (double)extents[1] > max_elements) {
      cli_error("%s: '%s' is no shape (give ROWSxCOLUMNS, as in 4096x4096, of at most 2^33 elements)", command, text);
      return CLI_USAGE;
    }
    shapes[i] = (cli_bench_shape){extents[0], extents[1]};
  }
  return CLI_OK;
}

/* ---- printing ---- */

void cli_bench_print_head(const cli_bench *bench) {
  cli_outf("%s\ncopy %.1f GB/s (scale of %d MiB), median of %d\n\n", weft_device_name(bench->device),
           bench->copy_gb_per_s, (int)(bench->copy_bytes >> 20), bench->n_reps);
}

json_t *cli_bench_row_json(const char *name, cli_bench_time time) {
  json_t *row = json_object();
  cli_json_set(row, "name", json_string(name));
  cli_json_set(row, "median_ms", cli_json_number(time.median_ms));
  cli_json_set(row, "min_ms", cli_json_number(time.min_ms));
  return row;
}

cli_exit cli_bench_print_json(const cli_bench *bench, json_t *cases) {
  json_t *root = json_object();
  const char *name = weft_device_name(bench->device);
  cli_json_set(root, "device", cli_json_text(name, strlen(name)));
  cli_json_set(root, "n_reps", json_integer(bench->n_reps));
  cli_json_set(root, "peak_gflops", cli_json_number(bench->peak_gflops));
  cli_json_set(root, "copy_gb_per_s", cli_json_number(bench->copy_gb_per_s));
  cli_json_set(root, "cases", cases);
  return cli_json_print(root);
}
