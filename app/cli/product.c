/* product.c - matrix products with seeded operands: their results and what they cost on a device. */
#include "product.h"
#include "bench.h"
#include "device.h"

#include "base/base.h"
#include "base/rng.h"
#include "weft/ops.h"

#include <math.h>
#include <stdlib.h>

enum {
  SEED = 1,
  MAX_TOGETHER = 20,
  TOGETHER_MS = 100, /* products in one submission last about this long, be there two or MAX_TOGETHER */
};

static const weft_matmul_attrs plain = {0};

/* ---- operands and results ---- */

/* A draw of the generator gives four numbers of 24 bits. */
void cli_fill_uniform(float *data, int64_t n, uint64_t stream) {
  uint32_t draw[4];
  for (int64_t i = 0; i < n; i++) {
    if (i % 4 == 0) weft__philox(SEED, (uint64_t)i / 4, stream, draw);
    data[i] = (float)(draw[i % 4] >> 8) * 0x1p-23f - 1;
  }
}

weft_status cli_product_fill(cli_product *p) {
  p->n_a = p->batch * p->m * p->k;
  p->n_b = (p->is_b_batched ? p->batch : 1) * p->k * p->n;
  p->n_c = p->batch * p->m * p->n;
  p->a = weft__alloc((size_t)p->n_a, sizeof *p->a);
  p->b = weft__alloc((size_t)p->n_b, sizeof *p->b);
  if (!p->a || !p->b) return WEFT_ENOMEM;
  cli_fill_uniform(p->a, p->n_a, 0);
  cli_fill_uniform(p->b, p->n_b, 1);
  return WEFT_OK;
}

void cli_product_clear(cli_product *p) {
  weft_free(p->a);
  weft_free(p->b);
  p->a = p->b = NULL;
}

/* Written so that a NaN, which compares as false, stays. */
static double larger(double x, double y) { return x >= y || isnan(x) ? x : y; }

double cli_relative_error(const float *x, const float *want, int64_t n) {
  double error = 0, scale = 0;
  for (int64_t i = 0; i < n; i++) {
    error = larger(error, fabs((double)x[i] - want[i]));
    scale = larger(scale, fabs((double)want[i]));
  }
  return error == 0 ? 0 : error / scale;
}

/* ---- running ---- */

static weft_tensor *upload_a(const cli_product *p, weft_scope *scope) {
  return weft_tensor_from(scope, WEFT_F32, 3, (const int64_t[]){p->batch, p->m, p->k}, p->a);
}

/* One matrix has no leading axis: broadcasting does the rest. */
static weft_tensor *upload_b(const cli_product *p, weft_scope *scope) {
  const int64_t shape[] = {p->batch, p->k, p->n};
  return weft_tensor_from(scope, WEFT_F32, p->is_b_batched ? 3 : 2, shape + !p->is_b_batched, p->b);
}

weft_status cli_product_run(const cli_product *p, weft_device *device, float *c) {
  weft_scope *scope;
  weft_status status = weft_scope_open(&scope, device, NULL);
  if (status) return status;
  weft_tensor *a = upload_a(p, scope), *b = upload_b(p, scope);
  weft_tensor *y = weft_matmul(scope, a, b, &plain);
  status = y ? weft_tensor_read(y, c, (size_t)p->n_c * sizeof *c) : weft_last_status();
  weft_scope_close(scope);
  return status;
}

/* ---- measuring ---- */

typedef weft_status (*work_function)(void *context);

/* Clocks of GPUs rise with the load, and first runs compile kernels and make buffers: hence the warm-up. */
static weft_status measure(work_function work, void *context, const cli_timing *timing, double *ms) {
  double *times = weft__alloc((size_t)timing->n_reps, sizeof *times);
  if (!times) return WEFT_ENOMEM;
  weft_status status;
  double start_ms = weft__now_ms();
  do status = work(context);
  while (!status && weft__now_ms() - start_ms < timing->warm_up_ms);
  for (int i = 0; i < timing->n_reps && !status; i++) {
    start_ms = weft__now_ms();
    status = work(context);
    times[i] = weft__now_ms() - start_ms;
  }
  if (!status) *ms = cli_bench_median(times, timing->n_reps);
  weft_free(times);
  return status;
}

typedef struct run_work {
  const cli_product *p;
  weft_device *device;
  float *c;
} run_work;

static weft_status do_run(void *context) {
  const run_work *w = context;
  return cli_product_run(w->p, w->device, w->c);
}

weft_status cli_product_time_run(const cli_product *p, weft_device *device, const cli_timing *timing, double *ms) {
  run_work w = {p, device, weft__alloc((size_t)p->n_c, sizeof *w.c)};
  weft_status status = w.c ? measure(do_run, &w, timing, ms) : WEFT_ENOMEM;
  weft_free(w.c);
  return status;
}

typedef struct resident_work {
  weft_device *device;
  weft_scope *scope;
  weft_tensor *a, *b;
  int n_together;
} resident_work;

/* A product that is not needed is freed at once, as in a chain of operators, so the next one gets its buffer. */
static weft_status do_resident(void *context) {
  const resident_work *w = context;
  for (int i = 0; i < w->n_together; i++) {
    weft_tensor *y = weft_matmul(w->scope, w->a, w->b, &plain);
    if (!y) return weft_last_status();
    weft_tensor_free(y);
  }
  return weft_device_sync(w->device);
}

/* On a GPU as many together as MAX_TOGETHER and TOGETHER_MS allow, by the time of one. */
static weft_status choose_together(resident_work *w, const cli_timing *timing) {
  double one_ms;
  w->n_together = 1;
  if (cli_device_is_cpu(w->device)) return WEFT_OK;
  weft_status status = measure(do_resident, w, &(cli_timing){timing->warm_up_ms, 1}, &one_ms);
  if (status) return status;
  w->n_together = (int)fmax(2, fmin(MAX_TOGETHER, TOGETHER_MS / one_ms));
  return WEFT_OK;
}

static weft_status time_uploaded(const cli_product *p, resident_work *w, const cli_timing *timing, double *ms) {
  w->a = upload_a(p, w->scope);
  w->b = upload_b(p, w->scope);
  weft_status status = choose_together(w, timing);
  if (!status) status = measure(do_resident, w, timing, ms);
  if (!status) *ms /= w->n_together;
  return status;
}

weft_status cli_product_time_resident(const cli_product *p, weft_device *device, const cli_timing *timing, double *ms,
                                      int *n_together) {
  resident_work w = {.device = device};
  weft_status status = weft_scope_open(&w.scope, device, NULL);
  if (status) return status;
  status = time_uploaded(p, &w, timing, ms);
  *n_together = w.n_together;
  weft_scope_close(w.scope);
  return status;
}
