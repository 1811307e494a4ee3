/* test_matmul.c - matmul_nt, matmul_nt3 and matmul_nt_gated: every variant, arithmetic, weight type and layout, on odd
 * shapes, against sums in double.
 *
 * In the fast arithmetic the reference quantises the activations itself, by the definition (blocks of 32, d = max/127,
 * ties to even), so that integer paths are held to the rounding of a few f32 additions, not to the loss of 8 bits. */
#include "support/tensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A product: x [rows,k] f32 with w [columns,k], the exact result and the sum of the terms' magnitudes. */
typedef struct problem {
  int64_t rows, columns, k;
  weft_dtype dtype;
  float *x;
  void *stored;
  double *w, *want, *magnitude;
} problem;

static bool is_quantised(weft_dtype dtype) { return weft__dtype_get(dtype)->is_quantised; }

/* d*q and a minimum may cancel in a weight: both parts are terms of a sum.  m is below 0.05, n at most 15 or 63. */
static double largest_minimum(weft_dtype dtype) {
  switch (dtype) {
  case WEFT_Q4_1:
  case WEFT_Q5_1:
    return 0.05;
  case WEFT_Q2_K:
    return 0.05 * 15;
  case WEFT_Q4_K:
  case WEFT_Q5_K:
    return 0.05 * 63;
  default:
    return 0;
  }
}

/* What the activations are after quantisation: values in double. */
static void quantise(const float *x, int64_t n, double *y) {
  for (int64_t b = 0; b < n; b += 32) {
    float largest = 0;
    for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(x[b + i]));
    float d = largest / 127, inverse = d > 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++) y[b + i] = (double)d * (double)nearbyintf(x[b + i] * inverse);
  }
}

static problem make_problem(int64_t rows, int64_t columns, int64_t k, weft_dtype dtype, bool is_fast, uint64_t seed) {
  problem p = {.rows = rows, .columns = columns, .k = k, .dtype = dtype};
  p.x = test_alloc((size_t)(rows * k), sizeof *p.x);
  test_fill(p.x, (size_t)(rows * k), 3, seed);
  if (rows * k > 40) p.x[33] = 40; /* an outlier: its block's scale is coarse */
  p.w = test_alloc((size_t)(columns * k), sizeof *p.w);
  p.stored = test_stored_weight(dtype, columns, k, seed + 1, p.w);
  double *x = test_alloc((size_t)(rows * k), sizeof *x);
  for (int64_t i = 0; i < rows * k; i++) x[i] = (double)p.x[i];
  if (is_fast && is_quantised(dtype)) quantise(p.x, rows * k, x);
  p.want = test_alloc((size_t)(rows * columns), sizeof *p.want);
  p.magnitude = test_alloc((size_t)(rows * columns), sizeof *p.magnitude);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      for (int64_t i = 0; i < k; i++) {
        double term = x[r * k + i] * p.w[c * k + i];
        p.want[r * columns + c] += term;
        p.magnitude[r * columns + c] += fabs(term) + 2 * largest_minimum(dtype) * fabs(x[r * k + i]);
      }
  free(x);
  return p;
}

static void free_problem(problem *p) {
  free(p->x);
  free(p->stored);
  free(p->w);
  free(p->want);
  free(p->magnitude);
}

/* Sums of k terms in f32: each of about k/8 roundings on the way loses at most 6e-8 of a partial sum, which is below the
 * sum of magnitudes; observed errors are a tenth of this. */
static double *tolerances(const problem *p) {
  double *t = test_alloc((size_t)(p->rows * p->columns), sizeof *t);
  for (int64_t i = 0; i < p->rows * p->columns; i++) t[i] = 1e-7 + p->magnitude[i] * 6e-8 * (4 + sqrt((double)p->k));
  return t;
}

static weft_tensor *input(test_device *d, const problem *p) {
  return weft_tensor_from(d->scope, WEFT_F32, 2, (int64_t[]){p->rows, p->k}, p->x);
}

static weft_tensor *weight(test_device *d, const problem *p, weft__weight_use use) {
  weft_tensor *w = weft__weight_load(d->scope, p->dtype, 2, (int64_t[]){p->columns, p->k}, p->stored, use, NULL);
  assert_non_null(w);
  return w;
}

static const int64_t ROWS[] = {0, 1, 2, 5, 7, 12, 13, 65}, COLUMNS[] = {0, 1, 7, 16, 63, 257},
                     FLOAT_K[] = {1, 7, 32, 63, 65, 257}, QUANT_K[] = {32, 64, 96, 288}, SUPER_K[] = {256, 768};

/* Under WEFT_TEST_QUICK=1 each size of each axis is tested, but not each with all others. */
static bool is_left_out(size_t r, size_t c, size_t i) {
  const char *quick = getenv("WEFT_TEST_QUICK");
  return quick && strcmp(quick, "1") == 0 && (r + c + i) % 4 != 0;
}

static void check_shapes(test_device *d, weft_dtype dtype, const int64_t *ks, size_t n_ks) {
  for (size_t r = 0; r < WEFT_COUNT(ROWS); r++)
    for (size_t c = 0; c < WEFT_COUNT(COLUMNS); c++)
      for (size_t i = 0; i < n_ks; i++) {
        if (is_left_out(r, c, i)) continue;
        problem p = make_problem(ROWS[r], COLUMNS[c], ks[i], dtype, d->arithmetic == WEFT_FAST, r * 100 + c * 10 + i);
        double *tolerance = tolerances(&p);
        char what[96];
        snprintf(what, sizeof what, "matmul_nt %s %lldx%lldx%lld", weft_dtype_name(dtype), (long long)p.rows,
                 (long long)p.columns, (long long)p.k);
        weft_tensor *x = input(d, &p);
        test_compare(what, d, weft_matmul_nt(d->scope, x, weight(d, &p, WEFT__WEIGHT_PRODUCT)), p.want, tolerance, 0,
                     0);
        test_compare(what, d, weft_matmul_nt(d->scope, x, weight(d, &p, WEFT__WEIGHT_PLAIN)), p.want, tolerance, 0, 0);
        free(tolerance);
        free_problem(&p);
      }
}

static void check_all_types(test_device *d) {
  for (int i = 0; i < WEFT_DTYPE_COUNT; i++)
    if (weft__dtype_get((weft_dtype)i)->block_len == 1 && i != WEFT_I32)
      check_shapes(d, (weft_dtype)i, FLOAT_K, WEFT_COUNT(FLOAT_K));
    else if (weft__dtype_get((weft_dtype)i)->block_len == 32)
      check_shapes(d, (weft_dtype)i, QUANT_K, WEFT_COUNT(QUANT_K));
    else if (i != WEFT_I32)
      check_shapes(d, (weft_dtype)i, SUPER_K, WEFT_COUNT(SUPER_K));
}

static void test_products(void **state) {
  (void)state;
  test_each_device(2, check_all_types);
}

/* ---- on GPUs ---- */

/* Weights that a GPU keeps packed meet activations of 8 bits in fast arithmetic; all others are made f32. */
static void check_on_gpu(test_device *d) {
  static const int64_t SHAPES[][3] = {{1, 1, 32},   {1, 257, 96},  {2, 63, 288},   {3, 7, 1056},
                                      {4, 65, 64},  {5, 1, 32},    {7, 130, 160},  {65, 63, 288},
                                      {1, 3, 4256}, {1, 8200, 32}, {130, 257, 96}, {0, 7, 32},
                                      {64, 0, 64},  {2, 3, 2144},  {3, 7, 0},      {4, 2048, 64}};
  for (int t = 0; t < WEFT_DTYPE_COUNT; t++) {
    weft_dtype dtype = (weft_dtype)t;
    bool is_packed = dtype == WEFT_Q8_0 || dtype == WEFT_Q4_0;
    int64_t block = weft__dtype_get(dtype)->block_len;
    for (size_t i = 0; i < WEFT_COUNT(SHAPES) && dtype != WEFT_I32; i += is_packed ? 1 : 4) {
      int64_t k = (SHAPES[i][2] + block - 1) / block * block;
      bool is_fast = is_packed && d->arithmetic == WEFT_FAST;
      problem p = make_problem(SHAPES[i][0], SHAPES[i][1], k, dtype, is_fast, 30 + i);
      double *tolerance = tolerances(&p);
      weft_tensor *x = input(d, &p), *w = weight(d, &p, is_fast || i % 8 ? WEFT__WEIGHT_PRODUCT : WEFT__WEIGHT_PLAIN);
      test_compare(weft_dtype_name(dtype), d, weft_matmul_nt(d->scope, x, w), p.want, tolerance, 0, 0);
      weft_tensor *y = weft_matmul(d->scope, x, w, &(weft_matmul_attrs){.transpose_b = 1});
      test_compare(weft_dtype_name(dtype), d, y, p.want, tolerance, 0, 0);
      free(tolerance);
      free_problem(&p);
    }
  }
}

/* A vector gives what it gives as a matrix of one row, whatever the format and the place of the weight. */
static void check_vectors(test_device *d) {
  for (int t = 0; t < WEFT_DTYPE_COUNT; t++)
    for (int i = 0; i < 4; i++) {
      weft_dtype dtype = (weft_dtype)t;
      int64_t k = i < 2 ? 2 * weft__dtype_get(dtype)->block_len : 0;
      if (dtype == WEFT_I32) continue;
      bool is_packed = (dtype == WEFT_Q8_0 || dtype == WEFT_Q4_0) && i % 2 == 0; /* by a GPU */
      bool is_fast = d->arithmetic == WEFT_FAST && (is_packed || !test_is_gpu(d));
      problem p = make_problem(1, 33, k, dtype, is_fast, 50 + (uint64_t)t);
      double *tolerance = tolerances(&p);
      weft_tensor *x = weft_tensor_from(d->scope, WEFT_F32, 1, &k, p.x);
      weft_tensor *w = weight(d, &p, i % 2 ? WEFT__WEIGHT_PLAIN : WEFT__WEIGHT_PRODUCT);
      weft_tensor *y = weft_matmul_nt(d->scope, x, w);
      assert_non_null(y);
      assert_int_equal(weft_tensor_rank(y), 1);
      test_compare(weft_dtype_name(dtype), d, y, p.want, tolerance, 0, 0);
      if (test_is_gpu(d)) y = weft_matmul(d->scope, x, w, &(weft_matmul_attrs){.transpose_b = 1});
      test_compare(weft_dtype_name(dtype), d, y, p.want, tolerance, 0, 0);
      free(tolerance);
      free_problem(&p);
    }
}

static void test_vectors(void **state) {
  (void)state;
  test_each_device(1, check_vectors);
  test_each_gpu(WEFT_FAST, check_vectors);
  test_each_gpu(WEFT_EXACT, check_vectors);
}

/* One more row of W than a grid of 65535 groups multiplies: all are zeros but the first and the last two. */
static void check_grid(test_device *d) {
  enum { ROWS_OF_X = 5, ROWS_OF_W = 65535 * 64 + 1, BLOCK_BYTES = 18 };
  if (strcmp(d->variant, "gpu lowest limits")) return; /* once is enough */
  static const int64_t places[] = {0, ROWS_OF_W - 2, ROWS_OF_W - 1};
  uint8_t *stored = test_alloc(ROWS_OF_W, BLOCK_BYTES);
  memset(stored, 0, (size_t)ROWS_OF_W * BLOCK_BYTES);
  for (int i = 0; i < 3; i++) {
    uint8_t *block = stored + places[i] * BLOCK_BYTES;
    block[1] = 0x3c;                        /* a scale of 1, */
    memset(block + 2, 0x99 + 0x11 * i, 16); /* and 32 numbers of 1 + i */
  }
  float x[ROWS_OF_X * 32];
  for (int i = 0; i < ROWS_OF_X * 32; i++) x[i] = 127;
  weft_tensor *w =
      weft__weight_load(d->scope, WEFT_Q4_0, TEST_SHAPE(ROWS_OF_W, 32), stored, WEFT__WEIGHT_PRODUCT, NULL);
  weft_tensor *y = weft_matmul_nt(d->scope, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(ROWS_OF_X, 32), x), w);
  float *values = test_alloc((size_t)ROWS_OF_X * ROWS_OF_W, sizeof *values);
  if (!y || weft_tensor_read(y, values, weft_tensor_bytes(y))) fail_msg("%s", weft_last_error());
  for (int64_t i = 0, next = 0; i < (int64_t)ROWS_OF_X * ROWS_OF_W; i++) {
    bool is_set = i % ROWS_OF_W == places[next % 3];
    double want = is_set ? 127 * 32 * (1 + next++ % 3) : 0;
    if (!((double)values[i] == want)) fail_msg("element %lld is %g, not %g", (long long)i, (double)values[i], want);
  }
  free(values);
  free(stored);
}

static void test_grids(void **state) {
  (void)state;
  test_each_gpu(WEFT_FAST, check_grid);
}

static void test_products_on_gpus(void **state) {
  (void)state;
  test_each_gpu(WEFT_FAST, check_on_gpu);
  test_each_gpu(WEFT_EXACT, check_on_gpu);
}

/* Leading axes, and rows at a stride, give what contiguous rows give. */
static void check_layouts(test_device *d) {
  problem p = make_problem(6, 33, 64, WEFT_Q4_1, d->arithmetic == WEFT_FAST, 5);
  double *tolerance = tolerances(&p);
  weft_tensor *w = weight(d, &p, WEFT__WEIGHT_PRODUCT), *x = input(d, &p);
  weft_tensor *cube = weft_reshape(d->scope, x, 3, (int64_t[]){2, 3, 64});
  weft_tensor *y = weft_matmul_nt(d->scope, cube, w);
  assert_non_null(y);
  assert_int_equal(weft_tensor_rank(y), 3);
  assert_int_equal(weft_tensor_shape(y)[1], 3);
  test_compare("matmul_nt of [2,3,K]", d, y, p.want, tolerance, 0, 0);
  float *wide = test_alloc(6 * 100, sizeof *wide);
  for (int r = 0; r < 6; r++) memcpy(wide + r * 100 + 36, p.x + r * 64, 64 * sizeof *wide);
  weft_tensor *rows = weft_tensor_from(d->scope, WEFT_F32, 2, (int64_t[]){6, 100}, wide);
  y = weft_matmul_nt(d->scope, weft_slice(d->scope, rows, 1, 36, 64), w);
  test_compare("matmul_nt of strided rows", d, y, p.want, tolerance, 0, 0);
  free(wide);
  weft_tensor *turned = weft_permute(d->scope, x, (const int[]){1, 0});
  turned = weft_permute(d->scope, weft_contiguous(d->scope, turned), (const int[]){1, 0});
  test_compare("matmul_nt of columns", d, weft_matmul_nt(d->scope, turned, w), p.want, tolerance, 0, 0);
  free(tolerance);
  free_problem(&p);
}

/* Halves give what the same numbers give in f32. */
static void check_halves(test_device *d) {
  for (int t = WEFT_F16; t <= WEFT_BF16; t++)
    for (int64_t n = 1; n <= 7; n += 3) {
      problem p = make_problem(n, 33, 64, WEFT_Q8_0, false, 5 + (uint64_t)n);
      weft_tensor *w = weight(d, &p, WEFT__WEIGHT_PRODUCT);
      weft_tensor *x = weft_cast(d->scope, input(d, &p), &(weft_cast_attrs){(weft_dtype)t});
      double *want = test_values(weft_matmul_nt(d->scope, weft_cast(d->scope, x, &(weft_cast_attrs){WEFT_F32}), w));
      test_compare("matmul_nt of halves", d, weft_matmul_nt(d->scope, x, w), want, NULL, 1e-6, 1e-6);
      free(want);
      free_problem(&p);
    }
}

static void test_layouts(void **state) {
  (void)state;
  test_each_device(1, check_layouts);
  test_each_device(1, check_halves);
  test_each_gpu(WEFT_EXACT, check_layouts);
  test_each_gpu(WEFT_FAST, check_halves);
}

/* ---- composites ---- */

/* Bit-equal to the lowering in one arithmetic: the same kernels compute the same outputs. */
static void assert_same_bits(const char *what, const test_device *d, const weft_tensor *a, const weft_tensor *b) {
  if (!a || !b) fail_msg("%s (%s): %s", what, d->variant, weft_last_error());
  assert_int_equal(weft_tensor_bytes(a), weft_tensor_bytes(b));
  float *left = test_read(a), *right = test_read(b);
  if (memcmp(left, right, weft_tensor_bytes(a))) fail_msg("%s (%s): not the same bits", what, d->variant);
  free(left);
  free(right);
}

/* The lowering of a gelu rounds it to f32 before the product: on the scalar variant, which computes in double, two
 * roundings of difference. */
static void assert_same_gate(const test_device *d, weft_tensor *fused, weft_tensor *lowered, weft_gate gate) {
  if (gate == WEFT_GATE_SILU) {
    assert_same_bits("matmul_nt_gated", d, fused, lowered);
    return;
  }
  if (!lowered) fail_msg("%s", weft_last_error());
  size_t n = (size_t)weft_tensor_numel(lowered);
  float *steps = test_read(lowered);
  double *want = test_alloc(n, sizeof *want);
  for (size_t i = 0; i < n; i++) want[i] = (double)steps[i];
  /* Half a subnormal, 7e-46, meets an ungated product below 1e4. */
  test_compare("matmul_nt_gated by gelu_tanh", d, fused, want, NULL, 1e-41, 4 * 0x1p-24);
  free(want);
  free(steps);
}

static void check_composites(test_device *d) {
  static const weft_dtype TYPES[][3] = {{WEFT_Q4_1, WEFT_Q4_1, WEFT_Q4_1},
                                        {WEFT_Q4_1, WEFT_Q8_0, WEFT_F32},
                                        {WEFT_Q4_K, WEFT_Q6_K, WEFT_Q5_0},
                                        {WEFT_BF16, WEFT_IQ4_XS, WEFT_MXFP4}};
  for (size_t t = 0; t < WEFT_COUNT(TYPES); t++)
    for (size_t r = 0; r < WEFT_COUNT(ROWS); r += test_is_gpu(d) ? 3 : 1) {
      const int64_t columns[] = {33, 16, 7};
      weft_tensor *in[4];
      problem p[3];
      for (int i = 0; i < 3; i++) {
        p[i] = make_problem(ROWS[r], columns[i], 256, TYPES[t][i], false, 40 + (uint64_t)i);
        in[i + 1] = weight(d, &p[i], i == 1 ? WEFT__WEIGHT_PLAIN : WEFT__WEIGHT_PRODUCT);
      }
      in[0] = input(d, &p[0]);
      assert_same_bits("matmul_nt3", d, weft_matmul_nt3(d->scope, in[0], in[1], in[2], in[3]),
                       weft__op_run(d->scope, WEFT_OP_ID_matmul_nt3, in, NULL, true));
      problem up = make_problem(ROWS[r], 33, 256, TYPES[t][1], false, 60);
      in[2] = weight(d, &up, WEFT__WEIGHT_PRODUCT);
      for (int gate = WEFT_GATE_SILU; gate <= WEFT_GATE_GELU_TANH; gate++) {
        const weft_matmul_nt_gated_attrs attrs = {(weft_gate)gate};
        weft_tensor *y = weft_matmul_nt_gated(d->scope, in[0], in[1], in[2], &attrs);
        assert_same_gate(d, y, weft__op_run(d->scope, WEFT_OP_ID_matmul_nt_gated, in, &attrs, true), attrs.gate);
      }
      free_problem(&up);
      for (int i = 0; i < 3; i++) free_problem(&p[i]);
    }
}

static void test_composites(void **state) {
  (void)state;
  test_each_device(2, check_composites);
  test_each_gpu(WEFT_FAST, check_composites);
}

/* ---- what results must not depend on ---- */

/* A row's result does not depend on the rows beside it: decoding one by one equals prefill in one. */
static void check_batch_invariance(test_device *d) {
  for (int t = 0; t < WEFT_DTYPE_COUNT; t++) {
    if (t == WEFT_I32) continue;
    int64_t k = weft__dtype_get((weft_dtype)t)->block_len == 256 ? 512 : 160;
    problem p = make_problem(29, 70, k, (weft_dtype)t, false, 80 + (uint64_t)t);
    weft_tensor *w = weight(d, &p, WEFT__WEIGHT_PRODUCT), *x = input(d, &p);
    weft_tensor *all = weft_matmul_nt(d->scope, x, w);
    for (int64_t n = 1; n <= 29; n++) {
      weft_tensor *some = weft_matmul_nt(d->scope, weft_slice(d->scope, x, 0, 29 - n, n), w);
      assert_same_bits("rows alone", d, some, weft_slice(d->scope, all, 0, 29 - n, n));
    }
    free_problem(&p);
  }
}

static void test_batch_invariance(void **state) {
  (void)state;
  test_each_device(2, check_batch_invariance);
}

static float *first_result; /* of the run with one thread */
static weft_dtype thread_dtype;

static void compare_with_first(test_device *d) {
  problem p = make_problem(37, 180, 512, thread_dtype, false, 3);
  weft_tensor *y = weft_matmul_nt(d->scope, input(d, &p), weight(d, &p, WEFT__WEIGHT_PRODUCT));
  assert_non_null(y);
  float *got = test_read(y);
  size_t n_bytes = weft_tensor_bytes(y);
  free_problem(&p);
  if (!first_result) {
    first_result = got;
    return;
  }
  assert_memory_equal(got, first_result, n_bytes);
  free(got);
}

static void run_with_threads(const char *variant, weft_arithmetic arithmetic, int n_threads) {
  test_device d = {.variant = variant, .arithmetic = arithmetic};
  setenv("WEFT_CPU", variant, 1);
  const weft_device_options options = {.arithmetic = arithmetic, .n_threads = n_threads};
  assert_int_equal(weft_device_open(&d.device, &options), WEFT_OK);
  assert_int_equal(weft_scope_open(&d.scope, d.device, NULL), WEFT_OK);
  compare_with_first(&d);
  weft_scope_close(d.scope);
  weft_device_close(d.device);
}

static void test_thread_invariance(void **state) {
  (void)state;
  const char *variant;
  for (int i = 0; (variant = test_next_variant(&i));) {
    for (int j = 0; j < 2 * WEFT_DTYPE_COUNT; j++) {
      thread_dtype = (weft_dtype)(j / 2);
      if (thread_dtype == WEFT_I32) continue;
      for (int n = 1; n <= 5; n += 2) run_with_threads(variant, j % 2 ? WEFT_EXACT : WEFT_FAST, n);
      free(first_result);
      first_result = NULL;
    }
  }
  unsetenv("WEFT_CPU");
}

/* ---- extremes ---- */

/* Activations of 1e5 and more stay finite; NaN and infinity come out as NaN or infinity, never as numbers. */
static void check_extremes(test_device *d) {
  problem p = make_problem(3, 16, 64, WEFT_Q4_1, false, 9);
  for (int64_t i = 0; i < 64; i++) p.x[i] *= 1e5f, p.x[64 + i] *= 1e30f;
  p.x[128] = NAN;
  p.x[129] = INFINITY;
  weft_tensor *y = weft_matmul_nt(d->scope, input(d, &p), weight(d, &p, WEFT__WEIGHT_PRODUCT));
  assert_non_null(y);
  float *got = test_read(y);
  for (int i = 0; i < 32; i++) assert_true(isfinite(got[i]));
  for (int i = 32; i < 48; i++) assert_false(isfinite(got[i]));
  free(got);
  /* Subnormal activations are as good as zero. */
  for (int64_t i = 0; i < 192; i++) p.x[i] = 1e-42f;
  y = weft_matmul_nt(d->scope, input(d, &p), weight(d, &p, WEFT__WEIGHT_PRODUCT));
  got = test_read(y);
  for (int i = 0; i < 48; i++) assert_true(fabsf(got[i]) < 1e-36f);
  free(got);
  free_problem(&p);
}

static void test_extremes(void **state) {
  (void)state;
  test_each_device(1, check_extremes);
  test_each_gpu(WEFT_FAST, check_extremes);
}

/* ---- refusals ---- */

static void refuse(weft_tensor *y, const char *part) {
  assert_null(y);
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  if (!strstr(weft_last_error(), part)) fail_msg("\"%s\" lacks \"%s\"", weft_last_error(), part);
}

static void check_refusals(test_device *d) {
  problem p = make_problem(2, 16, 64, WEFT_Q4_1, false, 1), q = make_problem(2, 17, 64, WEFT_Q4_1, false, 1);
  weft_tensor *x = input(d, &p), *w = weight(d, &p, WEFT__WEIGHT_PRODUCT), *other = weight(d, &q, WEFT__WEIGHT_PRODUCT);
  const int64_t short_shape[] = {2, 32};
  refuse(weft_matmul_nt(d->scope, test_random(d, 2, short_shape, 1, 1), w), "matmul_nt: ");
  refuse(weft_matmul_nt(d->scope, w, x), "[16,64] q4_1");
  refuse(weft_matmul_nt_gated(d->scope, x, w, other, &(weft_matmul_nt_gated_attrs){WEFT_GATE_SILU}), "one shape");
  refuse(weft_add(d->scope, x, w), "add: ");
  refuse(weft_reshape(d->scope, w, 1, (int64_t[]){16 * 64}), "reshape");
  float values[16 * 64];
  weft_status status = weft_tensor_read(w, values, weft_tensor_bytes(w));
  assert_int_equal(status, test_is_gpu(d) ? WEFT_OK : WEFT_EUNSUPPORTED); /* a GPU keeps this format as stored */
  free_problem(&p);
  free_problem(&q);
}

static void test_refusals(void **state) {
  (void)state;
  test_each_device(1, check_refusals);
  test_each_gpu(WEFT_EXACT, check_refusals);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_products),          cmocka_unit_test(test_layouts),
      cmocka_unit_test(test_composites),        cmocka_unit_test(test_batch_invariance),
      cmocka_unit_test(test_thread_invariance), cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_refusals),          cmocka_unit_test(test_products_on_gpus),
      cmocka_unit_test(test_vectors),           cmocka_unit_test(test_grids),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
