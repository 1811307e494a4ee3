/* long.c - what takes gigabytes, outside the suites (make check-long): operators on a tensor of more than 2^30 elements,
 * whose bytes lie beyond 32 bits and, on a GPU, in several bindings; and attention over a long sequence, which must take no
 * memory beside its operands and its result.
 *
 * Runs on the CPU, with WEFT_TEST_GPU=1 on the GPU.  Results are looked at in PROBED rows: the first, the last, and those on
 * both sides of each 2^28 elements.  A case that the machine has no memory for is skipped, and says so; it is a failure
 * if nothing has run. */
#include "weft.h"
#include "base/base.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { C = 4096, R = (1 << 18) + 3, N_PROBED = 9, W = 8, POSITIONS = 100000, HEAD = 64 };

static const int64_t PROBED[N_PROBED] = {0,         (1 << 16) - 1, 1 << 16, (1 << 17) - 1, 1 << 17,
                                         R / 4 * 3, (1 << 18) - 1, 1 << 18, R - 1};

static struct {
  weft_device *device;
  weft_scope *scope; /* of the running case */
  const char *name;  /* of it */
  int n_wrong;
} state;

/* ---- reporting ---- */

/* Counts a number that is not what it should be; says so of the first few. */
static void expect(const char *what, int64_t row, int64_t column, double got, double want, double tolerance) {
  if (fabs(got - want) <= tolerance) return; /* a NaN is wrong */
  if (state.n_wrong++ < 5)
    printf("  %s, %s: element (%lld, %lld) is %.9g, not %.9g\n", state.name, what, (long long)row, (long long)column,
           got, want);
}

/* ---- operands ---- */

/* A probed row differs from all others, and so do its elements. */
static float probe_value(int64_t row, int64_t column) { return (float)((row * 31 + column * 7) % 1001) / 500 - 1; }

static weft_tensor *row_of(weft_tensor *t, int64_t row) { return weft_slice(state.scope, t, 0, row, 1); }

/* [R,C]: ones, and the probed rows.  NULL with the error set. */
static weft_tensor *long_tensor(void) {
  weft_tensor *t = weft_tensor_new(state.scope, WEFT_F32, 2, (const int64_t[]){R, C});
  if (!weft_fill(state.scope, t, &(weft_fill_attrs){1})) return NULL;
  static float row[C];
  for (int p = 0; p < N_PROBED; p++) {
    for (int c = 0; c < C; c++) row[c] = probe_value(PROBED[p], c);
    if (weft_tensor_write(row_of(t, PROBED[p]), row, sizeof row)) return NULL;
  }
  return t;
}

static weft_tensor *i32_tensor(int rank, const int64_t *shape, const int32_t *data) {
  return weft_tensor_from(state.scope, WEFT_I32, rank, shape, data);
}

/* Row `row` of y, n numbers, to `to`. */
static weft_status read_row(weft_tensor *y, int64_t row, float *to, size_t n) {
  weft_tensor *view = row_of(y, row);
  return view ? weft_tensor_read(view, to, n * sizeof *to) : weft_last_status();
}

/* What element (row, column) of a result should be, given the row of the operand. */
typedef double (*expected)(const float *x, int64_t row, int c);

/* Compares the probed rows of y [R,C] with a formula of the operand's. */
static weft_status check_rows(const char *what, weft_tensor *y, expected want, double tolerance) {
  static float got[C], x[C];
  for (int p = 0; p < N_PROBED; p++) {
    weft_status status = y ? read_row(y, PROBED[p], got, C) : weft_last_status();
    if (status) return status;
    for (int c = 0; c < C; c++) x[c] = probe_value(PROBED[p], c);
    for (int c = 0; c < C; c++) expect(what, PROBED[p], c, (double)got[c], want(x, PROBED[p], c), tolerance);
  }
  return WEFT_OK;
}

/* ---- the cases ---- */

static double constant_of(const float *x, int64_t row, int c) { return (void)x, (void)row, (void)c, 3.5; }

static double draw_of(const float *x, int64_t row, int c) {
  uint32_t words[4];
  uint64_t e = (uint64_t)row * C + (uint64_t)c;
  (void)x;
  weft__philox(5, e / 4, 6, words);
  return (double)(words[e % 4] >> 8) * 0x1p-24;
}

static weft_status fills(void) {
  weft_tensor *t = weft_tensor_new(state.scope, WEFT_F32, 2, (const int64_t[]){R, C});
  weft_status status = check_rows("fill", weft_fill(state.scope, t, &(weft_fill_attrs){3.5f}), constant_of, 0);
  const weft_fill_uniform_attrs attrs = {.seed = 5, .stream = 6, .high = 1};
  return status ? status : check_rows("fill_uniform", weft_fill_uniform(state.scope, t, &attrs), draw_of, 0);
}

static double doubled(const float *x, int64_t row, int c) { return (void)row, 2 * (double)x[c]; }
static double shifted(const float *x, int64_t row, int c) { return (void)row, (double)(x[c] + (float)(c % 5)); }

static weft_status element_wise(void) {
  weft_tensor *x = long_tensor();
  static float row[C];
  for (int c = 0; c < C; c++) row[c] = (float)(c % 5);
  weft_tensor *y = weft_scale(state.scope, x, &(weft_scale_attrs){2});
  weft_status status = check_rows("scale", y, doubled, 0);
  weft_tensor_free(y);
  if (!status) status = check_rows("add", y = weft_add(state.scope, x, x), doubled, 0);
  if (status) return status;
  weft_tensor_free(y);
  weft_tensor *b = weft_tensor_from(state.scope, WEFT_F32, 1, (const int64_t[]){C}, row);
  return check_rows("add, broadcast", weft_add(state.scope, x, b), shifted, 0);
}

/* The transposed tensor, made contiguous: what was a row is a column. */
static weft_status strided_copy(void) {
  weft_tensor *x = long_tensor();
  weft_tensor *y = weft_contiguous(state.scope, weft_permute(state.scope, x, (const int[]){1, 0}));
  static float row[R];
  for (int c = 0; c < C; c += C / 3) { /* the last column, too */
    weft_status status = y ? read_row(y, c, row, R) : weft_last_status();
    if (status) return status;
    for (int p = 0; p < N_PROBED; p++)
      expect("transposed", c, PROBED[p], (double)row[PROBED[p]], (double)probe_value(PROBED[p], c), 0);
    expect("transposed", c, 5, (double)row[5], 1, 0);
    expect("transposed", c, R - 2, (double)row[R - 2], 1, 0);
  }
  return WEFT_OK;
}

/* Sums along either axis, and of all; the tolerance is that of f32 sums by trees. */
static weft_status sums(void) {
  weft_tensor *x = long_tensor();
  static float got[R];
  double rows[N_PROBED] = {0}, columns[C], all = ((double)R - N_PROBED) * C;
  for (int c = 0; c < C; c++) {
    columns[c] = R - N_PROBED;
    for (int p = 0; p < N_PROBED; p++) {
      rows[p] += (double)probe_value(PROBED[p], c);
      columns[c] += (double)probe_value(PROBED[p], c);
      all += (double)probe_value(PROBED[p], c);
    }
  }
  weft_tensor *y = weft_sum(state.scope, x, &(weft_sum_attrs){1, {1}, 0});
  if (!y || weft_tensor_read(y, got, R * sizeof *got)) return weft_last_status();
  for (int p = 0; p < N_PROBED; p++) expect("sum of a row", PROBED[p], 0, (double)got[PROBED[p]], rows[p], 1e-3);
  y = weft_sum(state.scope, x, &(weft_sum_attrs){1, {0}, 0});
  if (!y || weft_tensor_read(y, got, C * sizeof *got)) return weft_last_status();
  for (int c = 0; c < C; c++) expect("sum of a column", 0, c, (double)got[c], columns[c], 1e-6 * R);
  y = weft_sum(state.scope, x, &(weft_sum_attrs){0});
  if (!y || weft_tensor_read(y, got, sizeof *got)) return weft_last_status();
  expect("sum of all", 0, 0, (double)got[0], all, 1e-6 * all);
  return WEFT_OK;
}

static double softmax_of(const float *x, int64_t row, int c) {
  static int64_t last_row = -1;
  static double sum;
  if (row != last_row) {
    sum = 0;
    for (int i = 0; i < C; i++) sum += exp((double)x[i]);
    last_row = row;
  }
  return exp((double)x[c]) / sum;
}

static double normed(const float *x, int64_t row, int c) {
  static int64_t last_row = -1;
  static double squares;
  if (row != last_row) {
    squares = 0;
    for (int i = 0; i < C; i++) squares += (double)x[i] * (double)x[i];
    last_row = row;
  }
  return (double)x[c] / sqrt(squares / C + 1e-5);
}

static weft_status rows(void) {
  weft_tensor *x = long_tensor(), *y = weft_softmax(state.scope, x);
  weft_status status = check_rows("softmax", y, softmax_of, 1e-8);
  if (status) return status;
  weft_tensor_free(y);
  weft_tensor *gain = weft_tensor_new(state.scope, WEFT_F32, 1, (const int64_t[]){C});
  weft_fill(state.scope, gain, &(weft_fill_attrs){1});
  return check_rows("rms_norm", weft_rms_norm(state.scope, x, gain, &(weft_rms_norm_attrs){1e-5f}), normed, 1e-5);
}

static weft_status look_ups(void) {
  weft_tensor *x = long_tensor();
  static float got[N_PROBED * C];
  int32_t ids[N_PROBED];
  for (int p = 0; p < N_PROBED; p++) ids[p] = (int32_t)PROBED[N_PROBED - 1 - p];
  weft_tensor *results[] = {
      weft_embed(state.scope, x, i32_tensor(1, (const int64_t[]){N_PROBED}, ids)),
      weft_gather(state.scope, x, i32_tensor(2, (const int64_t[]){N_PROBED, 1}, ids), &(weft_gather_attrs){0})};
  for (size_t i = 0; i < WEFT_COUNT(results); i++) {
    if (!results[i] || weft_tensor_read(results[i], got, sizeof got)) return weft_last_status();
    for (int e = 0; e < N_PROBED * C; e++)
      expect(i ? "gather" : "embed", ids[e / C], e % C, (double)got[e], (double)probe_value(ids[e / C], e % C), 0);
  }
  return WEFT_OK;
}

/* x @ w and v @ x, for w [C,W] and v [W,R] of few ones: sums of few elements. */
static weft_status products(void) {
  weft_tensor *x = long_tensor();
  static float w[C * W], got[R * W > C * W ? R * W : C * W];
  for (int i = 0; i < W; i++) w[(C - 1 - i) * W + i] = 1, w[i * W + i] = 2;
  weft_tensor *y = weft_matmul(state.scope, x, weft_tensor_from(state.scope, WEFT_F32, 2, (const int64_t[]){C, W}, w),
                               &(weft_matmul_attrs){0, 0});
  if (!y || weft_tensor_read(y, got, sizeof *got * R * W)) return weft_last_status();
  for (int p = 0; p < N_PROBED; p++)
    for (int i = 0; i < W; i++)
      expect("left operand", PROBED[p], i, (double)got[PROBED[p] * W + i],
             (double)probe_value(PROBED[p], C - 1 - i) + 2 * (double)probe_value(PROBED[p], i), 1e-6);
  static float v[W * R];
  for (int i = 0; i < W; i++) v[(int64_t)i * R + PROBED[i]] = 1, v[(int64_t)i * R + PROBED[i + 1]] += 2;
  y = weft_matmul(state.scope, weft_tensor_from(state.scope, WEFT_F32, 2, (const int64_t[]){W, R}, v), x,
                  &(weft_matmul_attrs){0, 0});
  if (!y || weft_tensor_read(y, got, sizeof *got * W * C)) return weft_last_status();
  for (int i = 0; i < W; i++)
    for (int c = 0; c < C; c++)
      expect("right operand", i, c, (double)got[i * C + c],
             (double)probe_value(PROBED[i], c) + 2 * (double)probe_value(PROBED[i + 1], c), 1e-6);
  return WEFT_OK;
}

/* ---- attention ---- */

static weft_tensor *positions_tensor(uint64_t seed, float *copy) {
  weft_tensor *t = weft_tensor_new(state.scope, WEFT_F32, 2, (const int64_t[]){POSITIONS, HEAD});
  if (!weft_fill_normal(state.scope, t, &(weft_fill_normal_attrs){.seed = seed, .deviation = 1})) return NULL;
  return weft_tensor_read(t, copy, sizeof *copy * POSITIONS * HEAD) ? NULL : t;
}

/* Query `at` of the formula, in double. */
static void attend(const float *q, const float *k, const float *v, int at, double *y) {
  double most = -INFINITY, sum = 0;
  static double scores[POSITIONS];
  for (int s = 0; s <= at; s++) {
    scores[s] = 0;
    for (int d = 0; d < HEAD; d++) scores[s] += (double)q[at * HEAD + d] * (double)k[s * HEAD + d] / 8;
    most = fmax(most, scores[s]);
  }
  for (int d = 0; d < HEAD; d++) y[d] = 0;
  for (int s = 0; s <= at; s++) {
    double weight = exp(scores[s] - most);
    sum += weight;
    for (int d = 0; d < HEAD; d++) y[d] += weight * (double)v[s * HEAD + d];
  }
  for (int d = 0; d < HEAD; d++) y[d] /= sum;
}

/* On a device of its own, whose peak tells what attention takes. */
static weft_status attention(void) {
  static float q[POSITIONS * HEAD], k[POSITIONS * HEAD], v[POSITIONS * HEAD], got[POSITIONS * HEAD];
  weft_tensor *a = positions_tensor(1, q), *b = positions_tensor(2, k), *c = positions_tensor(3, v);
  weft_tensor *y = weft_attention(state.scope, a, b, c,
                                  &(weft_attention_attrs){.n_heads = 1, .scale = 0.125f, .mask = WEFT_MASK_CAUSAL});
  if (!y || weft_tensor_read(y, got, sizeof got)) return weft_last_status();
  static const int at[] = {0, 1, 4095, POSITIONS / 2, POSITIONS - 1};
  for (size_t i = 0; i < WEFT_COUNT(at); i++) {
    double want[HEAD];
    attend(q, k, v, at[i], want);
    for (int d = 0; d < HEAD; d++) expect("attention", at[i], d, (double)got[at[i] * HEAD + d], want[d], 2e-5);
  }
  /* Buffers come in steps of a quarter at most. */
  double peak = (double)weft_device_peak_bytes(state.device), least = 4.0 * sizeof got;
  printf("  attention of %d positions: %.0f MiB at the most, operands and result are %.0f\n", POSITIONS,
         peak / (1 << 20), least / (1 << 20));
  if (peak > 1.25 * least + (16 << 20)) {
    state.n_wrong++;
    printf("  attention takes memory of its own\n");
  }
  return WEFT_OK;
}

/* ---- running them ---- */

static const struct {
  const char *name;
  int n_tensors; /* of R x C that live at once */
  weft_status (*run)(void);
} CASES[] = {
    {"attention", 0, attention},       {"fills", 1, fills},       {"element_wise", 2, element_wise},
    {"strided_copy", 2, strided_copy}, {"sums", 1, sums},         {"rows", 2, rows},
    {"look_ups", 1, look_ups},         {"products", 1, products},
};

/* Memory that is free on this machine, as the kernel estimates it; 0 if it does not say. */
static double available_bytes(void) {
  char line[128];
  unsigned long long kib = 0;
  FILE *file = fopen("/proc/meminfo", "r");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
  if (file) fclose(file);
  return (double)kib * 1024;
}

/* Runs a case on a device of its own: 0 if it is right, 1 if wrong, -1 if it was skipped. */
static int run_case(size_t i, const weft_device_options *options) {
  double need = (CASES[i].n_tensors + 0.5) * 4.0 * R * C;
  if (options->kind == WEFT_DEVICE_CPU && available_bytes() < need) {
    printf("skipped %s: it takes %.1f GiB, and %.1f are free\n", CASES[i].name, need / (1 << 30),
           available_bytes() / (1 << 30));
    return -1;
  }
  state.name = CASES[i].name;
  state.n_wrong = 0;
  weft_status status = weft_device_open(&state.device, options);
  if (status) {
    printf("failed %s: %s\n", state.name, weft_last_error());
    return 1;
  }
  status = weft_scope_open(&state.scope, state.device, NULL);
  if (!status) {
    status = CASES[i].run();
    weft_scope_close(state.scope);
  }
  bool is_short = status == WEFT_ENOMEM;
  if (is_short)
    printf("skipped %s: %s\n", state.name, weft_last_error());
  else if (status)
    printf("failed %s: %s\n", state.name, weft_last_error());
  else
    printf("%s %s on %s\n", state.n_wrong ? "failed" : "right:", state.name, weft_device_name(state.device));
  weft_device_close(state.device);
  fflush(stdout);
  return is_short ? -1 : status || state.n_wrong;
}

int main(void) {
  const char *on_gpu = getenv("WEFT_TEST_GPU");
  const weft_device_options options = {.kind = on_gpu && !strcmp(on_gpu, "1") ? WEFT_DEVICE_GPU : WEFT_DEVICE_CPU,
                                       .arithmetic = WEFT_EXACT};
  int n_run = 0, n_failed = 0;
  for (size_t i = 0; i < WEFT_COUNT(CASES); i++) {
    int result = run_case(i, &options);
    n_run += result >= 0;
    n_failed += result > 0;
  }
  printf("%d cases ran, %d failed, %d were skipped\n", n_run, n_failed, (int)WEFT_COUNT(CASES) - n_run);
  return n_run == 0 || n_failed > 0;
}
