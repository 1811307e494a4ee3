/* test_ops.c - the operators that work element by element, along a row or by looking rows up, on every variant of the
 * CPU's code and in both arithmetics, against references in double; every operator's shape rule; the f16 conversions.
 *
 * Results are computed in f32, so the unit of all tolerances is half an f32 step, 2^-24 of the value: what one rounding
 * may be off by.  The devices' new buffers are full of NaN, so an element that an operator leaves out fails as well. */
#include "support/tensors.h"

#include "base/rng.h"
#include "cpu/half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { N_THREADS = 2 };

static const double ROUNDING = 0x1p-24;

/* Around the widths of vectors and their multiples. */
static const int64_t SIZES[] = {0, 1, 7, 63, 65, 257};

static double *doubles(size_t n) { return test_alloc(n, sizeof(double)); }

static void expect_shape(const char *what, const weft_tensor *y, int rank, const int64_t *shape) {
  if (!y) fail_msg("%s: %s", what, weft_last_error());
  assert_int_equal(weft_tensor_dtype(y), WEFT_F32);
  assert_int_equal(weft_tensor_rank(y), rank);
  for (int i = 0; i < rank; i++) assert_int_equal(weft_tensor_shape(y)[i], shape[i]);
  assert_true(weft__is_contiguous(y));
}

static void expect_shape_of(const char *what, const weft_tensor *y, const weft_tensor *like) {
  expect_shape(what, y, weft_tensor_rank(like), weft_tensor_shape(like));
}

/* As test_compare, for results that are not all finite: NaN is NaN, infinities and zeros have their signs. */
static void expect_values(const char *what, const test_device *d, const weft_tensor *y, const double *want,
                          double relative) {
  if (!y) fail_msg("%s (%s): %s", what, d->variant, weft_last_error());
  float *got = test_read(y);
  for (int64_t i = 0; i < weft_tensor_numel(y); i++) {
    double x = (double)got[i];
    /* A GPU may take subnormals for 0. */
    if (!strncmp(d->variant, "gpu", 3) && fabs(want[i]) < 0x1p-126 && fabs(x) < 0x1p-126) continue;
    bool is_right = isnan(want[i])                                    ? isnan(x)
                    : isinf(want[i]) || want[i] == 0 || relative == 0 ? x == want[i] && !signbit(x) == !signbit(want[i])
                                                                      : fabs(x - want[i]) <= relative * fabs(want[i]);
    if (!is_right) fail_msg("%s (%s): element %lld is %g, not %g", what, d->variant, (long long)i, x, want[i]);
  }
  free(got);
}

static weft_tensor *from_i32(test_device *d, int64_t n, const int32_t *data) {
  weft_tensor *t = weft_tensor_from(d->scope, WEFT_I32, 1, &n, data);
  assert_non_null(t);
  return t;
}

/* Columns first .. first+n-1 of a random tensor that is wider. */
static weft_tensor *random_columns(test_device *d, int64_t n_rows, int64_t n, float scale, uint64_t seed) {
  weft_tensor *t = weft_slice(d->scope, test_random(d, TEST_SHAPE(n_rows, n + 9), scale, seed), 1, 5, n);
  assert_non_null(t);
  return t;
}

static weft_tensor *transposed(test_device *d, weft_tensor *t) {
  weft_tensor *view = weft_permute(d->scope, t, (const int[]){1, 0});
  assert_non_null(view);
  return view;
}

/* ---- add, mul: one operation an element, so nothing but the rounding of the exact result is right ---- */

/* Place of that element of `t`, in row-major order, that broadcasting brings to element e of a result like `y`. */
static int64_t broadcast_place(const weft_tensor *t, const weft_tensor *y, int64_t e) {
  int64_t place = 0, step = 1;
  int n_missing = weft_tensor_rank(y) - weft_tensor_rank(t);
  for (int i = weft_tensor_rank(y) - 1; i >= n_missing; i--) {
    int64_t extent = weft_tensor_shape(t)[i - n_missing], index = e % weft_tensor_shape(y)[i];
    e /= weft_tensor_shape(y)[i];
    if (extent != 1) place += index * step;
    step *= extent;
  }
  return place;
}

typedef weft_tensor *binary_function(weft_scope *scope, weft_tensor *a, weft_tensor *b);

static double sum_of(double x, double y) { return x + y; }
static double difference_of(double x, double y) { return x - y; }
static double product_of(double x, double y) { return x * y; }
static double quotient_of(double x, double y) { return x / y; }

/* One f32 rounding each, so the result is known to the bit; the shading language gives a quotient 2.5 ulp. */
static const struct {
  const char *name;
  binary_function *run;
  double (*formula)(double x, double y);
  double gpu_relative;
} BINARY[] = {
    {"add", weft_add, sum_of, 0},
    {"sub", weft_sub, difference_of, 0},
    {"mul", weft_mul, product_of, 0},
    {"div", weft_div, quotient_of, 5 * 0x1p-24},
};

static void check_binary(test_device *d, weft_tensor *a, weft_tensor *b, int rank, const int64_t *shape) {
  float *left = test_read(a), *right = test_read(b);
  for (size_t k = 0; k < WEFT_COUNT(BINARY); k++) {
    weft_tensor *y = BINARY[k].run(d->scope, a, b);
    expect_shape(BINARY[k].name, y, rank, shape);
    size_t n = (size_t)weft_tensor_numel(y);
    double *want = doubles(n);
    for (size_t e = 0; e < n; e++)
      want[e] = (double)(float)BINARY[k].formula((double)left[broadcast_place(a, y, (int64_t)e)],
                                                 (double)right[broadcast_place(b, y, (int64_t)e)]);
    bool is_gpu = !strncmp(d->variant, "gpu", 3);
    test_compare(BINARY[k].name, d, y, want, NULL, 0, is_gpu ? BINARY[k].gpu_relative : 0);
    free(want);
    weft_tensor_free(y);
  }
  free(left);
  free(right);
}

static void check_binary_sizes(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(SIZES); i++) {
    int64_t n = SIZES[i];
    weft_tensor *a = test_random(d, TEST_SHAPE(n), 3, 2 * i), *b = test_random(d, TEST_SHAPE(n), 3, 2 * i + 1);
    check_binary(d, a, b, TEST_SHAPE(n));
    check_binary(d, a, test_random(d, 0, NULL, 3, i), TEST_SHAPE(n));
    check_binary(d, test_random(d, TEST_SHAPE(3, n), 3, i), b, TEST_SHAPE(3, n));
  }
  /* Enough elements for several tasks. */
  check_binary(d, test_random(d, TEST_SHAPE(130, 257), 3, 1), test_random(d, TEST_SHAPE(130, 257), 3, 2),
               TEST_SHAPE(130, 257));
  check_binary(d, test_random(d, TEST_SHAPE(70000), 3, 1), test_random(d, TEST_SHAPE(1), 3, 2), TEST_SHAPE(70000));
}

static void check_binary_broadcasting(test_device *d) {
  static const struct {
    int ranks[3];
    int64_t a[4], b[4], y[4];
  } cases[] = {
      {{0, 0, 0}, {0}, {0}, {0}},
      {{0, 1, 1}, {0}, {1}, {1}},
      {{0, 3, 3}, {0}, {2, 3, 4}, {2, 3, 4}},
      {{1, 1, 1}, {1}, {9}, {9}},
      {{1, 2, 2}, {33}, {4, 33}, {4, 33}},
      {{2, 2, 2}, {5, 1}, {5, 33}, {5, 33}},
      {{2, 2, 2}, {5, 1}, {1, 33}, {5, 33}},
      {{2, 2, 2}, {1, 33}, {5, 33}, {5, 33}},
      {{3, 2, 3}, {2, 3, 17}, {3, 1}, {2, 3, 17}},
      {{3, 2, 3}, {2, 1, 17}, {3, 1}, {2, 3, 17}},
      {{3, 3, 3}, {2, 1, 4}, {1, 3, 1}, {2, 3, 4}},
      {{4, 4, 4}, {2, 1, 4, 1}, {1, 3, 1, 5}, {2, 3, 4, 5}},
      {{4, 1, 4}, {2, 3, 4, 5}, {5}, {2, 3, 4, 5}},
      {{4, 2, 4}, {2, 3, 4, 5}, {4, 1}, {2, 3, 4, 5}},
      {{1, 1, 1}, {1}, {0}, {0}},
      {{0, 2, 2}, {0}, {0, 3}, {0, 3}},
      {{2, 2, 2}, {0, 1}, {1, 5}, {0, 5}},
      {{2, 2, 2}, {4, 1}, {4, 0}, {4, 0}},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    weft_tensor *a = test_random(d, cases[i].ranks[0], cases[i].a, 2, 100 + i);
    weft_tensor *b = test_random(d, cases[i].ranks[1], cases[i].b, 2, 200 + i);
    check_binary(d, a, b, cases[i].ranks[2], cases[i].y);
    check_binary(d, b, a, cases[i].ranks[2], cases[i].y);
  }
  check_binary(d, test_random(d, TEST_SHAPE(2, 1, 2, 1, 2, 1, 2, 3), 2, 1),
               test_random(d, TEST_SHAPE(1, 2, 1, 2, 1, 2, 2, 1), 2, 2), TEST_SHAPE(2, 2, 2, 2, 2, 2, 2, 3));
}

static void check_binary_views(test_device *d) {
  weft_tensor *plain = test_random(d, TEST_SHAPE(33, 20), 2, 1), *wide = random_columns(d, 33, 20, 2, 2);
  weft_tensor *turned = transposed(d, test_random(d, TEST_SHAPE(20, 33), 2, 3));
  weft_tensor *turned_part = transposed(d, random_columns(d, 20, 33, 2, 4));
  weft_tensor *all[] = {plain, wide, turned, turned_part};
  for (size_t i = 0; i < WEFT_COUNT(all); i++)
    for (size_t k = 0; k < WEFT_COUNT(all); k++) check_binary(d, all[i], all[k], TEST_SHAPE(33, 20));
  /* Views that are broadcast: a column, a row, one element far from the start. */
  weft_tensor *column = weft_slice(d->scope, plain, 1, 7, 1), *row = weft_slice(d->scope, turned, 0, 30, 1);
  weft_tensor *cell = weft_reshape(d->scope, weft_slice(d->scope, column, 0, 31, 1), 0, NULL);
  for (size_t i = 0; i < WEFT_COUNT(all); i++) {
    check_binary(d, all[i], column, TEST_SHAPE(33, 20));
    check_binary(d, row, all[i], TEST_SHAPE(33, 20));
    check_binary(d, all[i], cell, TEST_SHAPE(33, 20));
  }
  check_binary(d, column, row, TEST_SHAPE(33, 20));
  weft_tensor *cube = test_random(d, TEST_SHAPE(4, 5, 6), 2, 5);
  check_binary(d, weft_permute(d->scope, cube, (const int[]){2, 0, 1}),
               weft_permute(d->scope, test_random(d, TEST_SHAPE(5, 4, 6), 2, 6), (const int[]){2, 1, 0}),
               TEST_SHAPE(6, 4, 5));
  check_binary(d, plain, plain, TEST_SHAPE(33, 20));
}

static void binary_operators_of_any_size(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_binary_sizes);
}

static void binary_operators_broadcast(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_binary_broadcasting);
}

static void binary_operators_of_views(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_binary_views);
}

/* ---- operators along rows: the same forms of operands for each ---- */

typedef void (*rows_check)(test_device *d, weft_tensor *a);

/* All forms that rows come in: ranks 1 to 3, parts of the rows of a wider tensor, a column, no rows, many rows. */
static void for_each_rows(test_device *d, float scale, rows_check check) {
  for (size_t i = 0; i < WEFT_COUNT(SIZES); i++) {
    int64_t n = SIZES[i];
    check(d, test_random(d, TEST_SHAPE(n), scale, 10 * i));
    check(d, test_random(d, TEST_SHAPE(3, n), scale, 10 * i + 1));
    check(d, random_columns(d, 4, n, scale, 10 * i + 2));
    check(d, test_random(d, TEST_SHAPE(2, 3, n), scale, 10 * i + 3));
  }
  check(d, weft_slice(d->scope, test_random(d, TEST_SHAPE(9, 31), scale, 100), 0, 4, 3));
  check(d, test_random(d, TEST_SHAPE(0, 7), scale, 101));
  check(d, random_columns(d, 5, 1, scale, 102));
  check(d, test_random(d, TEST_SHAPE(130, 257), scale, 103));
  check(d, test_random(d, TEST_SHAPE(2, 20000), scale, 104));
}

/* ---- silu, silu_mul ---- */

/* exp is good to 3 units, the sum, the quotient and silu_mul's product to one each; 8 are allowed.  Where exp(-a)
 * exceeds f32 (a below -88.7) the result is 0 instead of at most 89 / 3.4e38. */
static const double SILU_RELATIVE = 8 * 0x1p-24, SILU_ABSOLUTE = 3e-37;

static double silu_of(double a) { return a / (1 + exp(-a)); }

static double relu_of(double a) { return a > 0 ? a : 0; }
static double gelu_of(double a) { return 0.5 * a * (1 + erf(a * M_SQRT1_2)); }
static double gelu_tanh_of(double a) { return a / (1 + exp(-2 * sqrt(2 / M_PI) * (a + 0.044715 * a * a * a))); }
static double scaled_of(double a) { return a * -2.5; }

static weft_tensor *scale_by_constant(weft_scope *scope, weft_tensor *a) {
  static const weft_scale_attrs attrs = {-2.5f};
  return weft_scale(scope, a, &attrs);
}

/* gelu: erf is within 2e-7 of 1, and that much of a is lost where 1 + erf nearly cancels.  gelu_tanh: an exponent's
 * rounding counts as often as the exponent is large, but then the exponential is small: at most 2e-7 of a. */
static const struct {
  const char *name;
  weft_tensor *(*run)(weft_scope *scope, weft_tensor *a);
  double (*formula)(double a);
  double absolute, relative, of_operand; /* tolerance: absolute + relative * |y| + of_operand * |a| */
} UNARY[] = {
    {"silu", weft_silu, silu_of, 3e-37, 8 * 0x1p-24, 0},
    {"relu", weft_relu, relu_of, 0, 0, 0},
    {"gelu", weft_gelu, gelu_of, 1e-37, 8 * 0x1p-24, 2e-7},
    {"gelu_tanh", weft_gelu_tanh, gelu_tanh_of, 1e-36, 8 * 0x1p-24, 2e-7},
    {"scale", scale_by_constant, scaled_of, 0, 0x1p-24, 0},
};

static void check_unary(test_device *d, weft_tensor *a) {
  float *x = test_read(a);
  size_t n = (size_t)weft_tensor_numel(a);
  double *want = doubles(n), *tolerance = doubles(n);
  for (size_t k = 0; k < WEFT_COUNT(UNARY); k++) {
    weft_tensor *y = UNARY[k].run(d->scope, a);
    expect_shape_of(UNARY[k].name, y, a);
    for (size_t i = 0; i < n; i++) {
      want[i] = UNARY[k].formula((double)x[i]);
      tolerance[i] = UNARY[k].absolute + UNARY[k].relative * fabs(want[i]) + UNARY[k].of_operand * fabs((double)x[i]);
    }
    test_compare(UNARY[k].name, d, y, want, tolerance, 0, 0);
    weft_tensor_free(y);
  }
  free(x);
  free(want);
  free(tolerance);
}

static void check_unary_scales(test_device *d) {
  for_each_rows(d, 8, check_unary);
  for_each_rows(d, 100, check_unary); /* beyond what exp can hold */
  check_unary(d, test_random(d, TEST_SHAPE(100), 1e-3f, 1));
  check_unary(d, test_random(d, TEST_SHAPE(100), 1e30f, 2));
  check_unary(d, test_random(d, TEST_SHAPE(70001), 3, 3));
  check_unary(d, transposed(d, test_random(d, TEST_SHAPE(20, 33), 2, 4)));
  /* Where exp goes over into infinity and into 0. */
  float edge[1000];
  for (int i = 0; i < 1000; i++) edge[i] = (float)(i % 2 ? -1 : 1) * (86.5f + 0.02f * (float)i);
  check_unary(d, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1000), edge));
}

static void unary_operators_are_their_formulas(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_unary_scales);
}

/* A second operand like `a`: contiguous, or columns of a wider tensor. */
static weft_tensor *random_like(test_device *d, const weft_tensor *a, bool is_wide, uint64_t seed) {
  if (is_wide) return random_columns(d, weft_tensor_shape(a)[0], weft_tensor_shape(a)[1], 3, seed);
  return test_random(d, weft_tensor_rank(a), weft_tensor_shape(a), 3, seed);
}

static void check_silu_mul_of(test_device *d, weft_tensor *a, weft_tensor *b) {
  weft_tensor *operands[] = {a, b};
  weft_tensor *fused = weft_silu_mul(d->scope, a, b);
  weft_tensor *lowered = weft__op_run(d->scope, WEFT_OP_ID_silu_mul, operands, NULL, true);
  expect_shape_of("silu_mul", fused, a);
  expect_shape_of("silu_mul, lowered", lowered, a);
  size_t n = (size_t)weft_tensor_numel(a);
  float *x = test_read(a), *y = test_read(b), *steps = test_read(lowered);
  double *want = doubles(n), *want_steps = doubles(n);
  for (size_t i = 0; i < n; i++) {
    want[i] = silu_of((double)x[i]) * (double)y[i];
    want_steps[i] = (double)steps[i];
  }
  test_compare("silu_mul", d, fused, want, NULL, 3 * SILU_ABSOLUTE, SILU_RELATIVE);
  /* The lowering rounds silu to f32 before the product: two roundings of difference, counted from either side. */
  test_compare("silu_mul against its lowering", d, fused, want_steps, NULL, 0x1p-147, 4 * ROUNDING);
  free(x);
  free(y);
  free(steps);
  free(want);
  free(want_steps);
}

static void check_silu_mul(test_device *d, weft_tensor *a) {
  check_silu_mul_of(d, a, random_like(d, a, false, 500));
  if (weft_tensor_rank(a) == 2) check_silu_mul_of(d, a, random_like(d, a, true, 501));
}

static void check_silu_mul_scales(test_device *d) {
  for_each_rows(d, 8, check_silu_mul);
  for_each_rows(d, 60, check_silu_mul);
}

static void silu_mul_is_the_formula_and_its_lowering(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_silu_mul_scales);
}

/* ---- numbers that are none: what C's arithmetic makes of them ---- */

static const float SPECIAL[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1.5f, -FLT_MAX, 0x1p-140f};
enum { N_SPECIAL = WEFT_COUNT(SPECIAL), N_PAIRS = N_SPECIAL * N_SPECIAL + 3 /* an incomplete vector */ };

/* Every pair of special numbers. */
static void check_special_pairs(test_device *d) {
  float a[N_PAIRS], b[N_PAIRS];
  double sum[N_PAIRS], product[N_PAIRS], gate[N_PAIRS], gated[N_PAIRS];
  for (int i = 0; i < N_PAIRS; i++) {
    a[i] = SPECIAL[i / N_SPECIAL % N_SPECIAL];
    b[i] = SPECIAL[i % N_SPECIAL];
    if (!strncmp(d->variant, "gpu", 3)) { /* which may take subnormals for 0, and 0 times infinity is NaN */
      if (fpclassify(a[i]) == FP_SUBNORMAL) a[i] = 0;
      if (fpclassify(b[i]) == FP_SUBNORMAL) b[i] = 0;
    }
    sum[i] = (double)(a[i] + b[i]);
    product[i] = (double)(a[i] * b[i]);
    gate[i] = (double)(float)silu_of((double)a[i]);
    gated[i] = (double)(float)(silu_of((double)a[i]) * (double)b[i]);
  }
  weft_tensor *x = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_PAIRS), a);
  weft_tensor *y = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_PAIRS), b);
  weft_tensor *operands[] = {x, y};
  expect_values("add", d, weft_add(d->scope, x, y), sum, 0);
  expect_values("mul", d, weft_mul(d->scope, x, y), product, 0);
  expect_values("silu", d, weft_silu(d->scope, x), gate, SILU_RELATIVE);
  expect_values("silu_mul", d, weft_silu_mul(d->scope, x, y), gated, SILU_RELATIVE);
  expect_values("silu_mul, lowered", d, weft__op_run(d->scope, WEFT_OP_ID_silu_mul, operands, NULL, true), gated,
                SILU_RELATIVE);
}

static void special_values_are_computed_with(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_special_pairs);
}

static void check_special_copies(test_device *d) {
  double want[2 * N_SPECIAL];
  for (int i = 0; i < 2 * N_SPECIAL; i++) want[i] = (double)SPECIAL[i % N_SPECIAL];
  weft_tensor *x = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1, N_SPECIAL), SPECIAL);
  expect_values("concat", d, weft_concat(d->scope, x, x, &(weft_concat_attrs){.axis = 0}), want, 0);
  const int32_t ids[] = {0, 0};
  expect_values("embed", d, weft_embed(d->scope, x, from_i32(d, 2, ids)), want, 0);
}

static void special_values_are_copied(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_special_copies);
}

/* A NaN anywhere makes its own row NaN, as a sum over the row must, and no other row. */
static void check_nan_rows(test_device *d) {
  enum { N_ROWS = 40, N = 35 };
  float data[N_ROWS * N], gain[N];
  double is_nan[N_ROWS * N];
  test_fill(data, N_ROWS * N, 1, 1);
  test_fill(gain, N, 1, 2);
  for (int row = 0; row < N_ROWS; row++) {
    if (row < N) data[row * N + row] = NAN;
    for (int i = 0; i < N; i++) is_nan[row * N + i] = row < N;
  }
  const weft_rms_norm_attrs attrs = {.eps = 1e-5f};
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_ROWS, N), data);
  weft_tensor *b = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N), gain);
  weft_tensor *results[] = {weft_softmax(d->scope, a), weft_rms_norm(d->scope, a, b, &attrs)};
  for (size_t r = 0; r < WEFT_COUNT(results); r++) {
    float *got = test_read(results[r]);
    for (int i = 0; i < N_ROWS * N; i++) assert_int_equal(isnan(got[i]) != 0, is_nan[i] != 0);
    free(got);
  }
}

static void nan_spoils_its_row_alone(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_nan_rows);
}

/* ---- softmax ---- */

/* The sum of n terms walks off by its roundings: by less than sqrt(n) units, added up in 8 lanes or more. */
static double sum_units(int64_t n) { return sqrt((double)n); }

/* The row's largest, and the sum of exp(a - largest). */
static double softmax_sum(const float *a, int64_t n, double *largest) {
  *largest = -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < n; i++) *largest = fmax(*largest, (double)a[i]);
  for (int64_t i = 0; i < n; i++) sum += exp((double)a[i] - *largest);
  return sum;
}

/* Besides exp (3 units), the quotient and the sum: the difference a - largest is rounded before exp turns its unit into
 * as many as it is large.  Results below f32's normal numbers are multiples of 2^-149. */
static void check_softmax(test_device *d, weft_tensor *a) {
  weft_tensor *y = weft_softmax(d->scope, a);
  expect_shape_of("softmax", y, a);
  size_t numel = (size_t)weft_tensor_numel(a);
  int64_t n = weft__n_cols(a);
  float *x = test_read(a), *got = test_read(y);
  double *want = doubles(numel), *tolerance = doubles(numel);
  for (size_t row = 0; row < numel; row += (size_t)n) {
    double largest, sum = softmax_sum(x + row, n, &largest), total = 0;
    for (size_t i = row; i < row + (size_t)n; i++) {
      want[i] = exp((double)x[i] - largest) / sum;
      double units = 8 + (largest - (double)x[i]) + sum_units(n);
      tolerance[i] = want[i] * units * ROUNDING + 0x1p-147;
      total += (double)got[i];
    }
    if (!(fabs(total - 1) <= (8 + sum_units(n)) * ROUNDING))
      fail_msg("softmax (%s): a row sums to %.9g", d->variant, total);
  }
  test_compare("softmax", d, y, want, tolerance, 0, 0);
  free(x);
  free(got);
  free(want);
  free(tolerance);
}

static void check_softmax_scales(test_device *d) {
  for_each_rows(d, 1, check_softmax);
  for_each_rows(d, 30, check_softmax);
  for_each_rows(d, 1e4f, check_softmax);
  float row[4][33];
  for (int i = 0; i < 33; i++) {
    row[0][i] = 1e4f;                      /* all equal */
    row[1][i] = i % 2 ? 1e4f : -1e4f;      /* the half of them all, the others nothing */
    row[2][i] = i == 32 ? FLT_MAX : -1e4f; /* the last alone, which is no whole vector */
    row[3][i] = -100.0f * (float)i;        /* down to 0 step by step */
  }
  check_softmax(d, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(4, 33), row));
  row[0][16] = -INFINITY; /* a masked element */
  weft_tensor *masked = weft_softmax(d->scope, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(33), row[0]));
  double want[33];
  for (int i = 0; i < 33; i++) want[i] = i == 16 ? 0 : 1.0 / 32;
  test_compare("softmax, masked", d, masked, want, NULL, 0, 8 * ROUNDING);
}

static void softmax_is_the_formula(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_softmax_scales);
}

/* ---- rms_norm ---- */

/* The sum's units are halved by the root; the root's quotient and two products follow. */
static void check_rms_norm_with(test_device *d, weft_tensor *a, float eps) {
  int64_t n = weft__n_cols(a);
  const weft_rms_norm_attrs attrs = {.eps = eps};
  weft_tensor *b = test_random(d, TEST_SHAPE(n), 2, 900), *y = weft_rms_norm(d->scope, a, b, &attrs);
  expect_shape_of("rms_norm", y, a);
  size_t numel = (size_t)weft_tensor_numel(a);
  float *x = test_read(a), *gain = test_read(b);
  double *want = doubles(numel);
  for (size_t row = 0; row < numel; row += (size_t)n) {
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += (double)x[row + (size_t)i] * (double)x[row + (size_t)i];
    for (int64_t i = 0; i < n; i++)
      want[row + (size_t)i] = (double)x[row + (size_t)i] / sqrt(squares / (double)n + (double)eps) * (double)gain[i];
  }
  test_compare("rms_norm", d, y, want, NULL, 0x1p-147, (5 + sum_units(n) / 2) * ROUNDING);
  free(x);
  free(gain);
  free(want);
}

static void check_rms_norm(test_device *d, weft_tensor *a) {
  check_rms_norm_with(d, a, 0);
  check_rms_norm_with(d, a, 1e-5f);
  check_rms_norm_with(d, a, 2);
}

static void check_rms_norm_scales(test_device *d) {
  for_each_rows(d, 1, check_rms_norm);
  for_each_rows(d, 1e4f, check_rms_norm);
  weft_tensor *heads = weft_reshape(d->scope, random_columns(d, 4, 90, 1, 3), 3, (int64_t[]){4, 6, 15});
  check_rms_norm_with(d, heads, 1e-5f);
  check_rms_norm_with(d, test_random(d, TEST_SHAPE(4, 100), 1e-6f, 1), 1e-5f); /* eps outweighs the squares */
  check_rms_norm_with(d, test_random(d, TEST_SHAPE(2, 576), 1, 2), 1e-5f);
  const float zeros[2 * 35] = {0};
  weft_tensor *nothing = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(2, 35), zeros);
  check_rms_norm_with(d, nothing, 1e-5f); /* zeros, not 0/0 */
}

static void rms_norm_is_the_formula(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rms_norm_scales);
}

/* ---- concat ---- */

/* Every element of the result, found by its index along the axis in one operand or the other. */
static void check_concat(test_device *d, int rank, const int64_t *a_shape, const int64_t *b_shape, int axis) {
  weft_tensor *a = test_random(d, rank, a_shape, 1, 1), *b = test_random(d, rank, b_shape, 1, 2);
  weft_tensor *y = weft_concat(d->scope, a, b, &(weft_concat_attrs){.axis = axis});
  int64_t shape[WEFT_MAX_RANK], n_inner = 1;
  for (int i = 0; i < rank; i++) shape[i] = a_shape[i] + (i == axis ? b_shape[i] : 0);
  for (int i = axis + 1; i < rank; i++) n_inner *= a_shape[i];
  expect_shape("concat", y, rank, shape);
  float *x = test_read(a), *z = test_read(b);
  double *want = doubles((size_t)weft_tensor_numel(y));
  for (int64_t e = 0; e < weft_tensor_numel(y); e++) {
    int64_t inner = e % n_inner, along = e / n_inner % shape[axis], outer = e / n_inner / shape[axis];
    int64_t in_b = along - a_shape[axis];
    want[e] = in_b < 0 ? (double)x[(outer * a_shape[axis] + along) * n_inner + inner]
                       : (double)z[(outer * b_shape[axis] + in_b) * n_inner + inner];
  }
  test_compare("concat", d, y, want, NULL, 0, 0);
  free(x);
  free(z);
  free(want);
}

static void check_concat_axes(test_device *d) {
  static const struct {
    int rank, axis;
    int64_t a[4], b[4];
  } cases[] = {
      {1, 0, {5}, {3}},
      {1, 0, {0}, {3}},
      {1, 0, {3}, {0}},
      {1, 0, {0}, {0}},
      {2, 0, {2, 7}, {3, 7}},
      {2, 0, {0, 7}, {3, 7}},
      {2, 0, {2, 0}, {3, 0}},
      {2, 1, {3, 65}, {3, 7}},
      {2, 1, {3, 0}, {3, 7}},
      {2, 1, {3, 7}, {3, 0}},
      {2, 1, {0, 5}, {0, 7}},
      {3, 0, {1, 3, 4}, {2, 3, 4}},
      {3, 1, {2, 1, 4}, {2, 5, 4}},
      {3, 2, {2, 3, 4}, {2, 3, 1}},
      {3, 1, {2, 0, 4}, {2, 5, 4}},
      {3, 2, {2, 3, 0}, {2, 3, 4}},
      {4, 2, {2, 1, 3, 2}, {2, 1, 1, 2}},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) check_concat(d, cases[i].rank, cases[i].a, cases[i].b, cases[i].axis);
}

static void concat_joins_along_any_axis(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_concat_axes);
}

/* ---- embed ---- */

/* A quantised element is d*q (+ m) in f32: d*q is exact there, so rounding the exact value once gives the same bits.  Not so
 * with integer scales: test_quant.c compares these formats with values of another program. */
static void check_embed_ids(test_device *d, weft_tensor *table, const double *values, int64_t n, uint64_t seed) {
  int64_t n_rows = weft_tensor_shape(table)[0], n_cols = weft_tensor_shape(table)[1];
  int32_t *ids = test_alloc((size_t)n, sizeof *ids);
  double *want = doubles((size_t)(n * n_cols));
  for (int64_t i = 0; i < n; i++) {
    ids[i] = i == 0 ? (int32_t)n_rows - 1 : (int32_t)(weft__rng_uniform(seed, (uint64_t)i, 0) * (double)n_rows);
    for (int64_t c = 0; c < n_cols; c++) want[i * n_cols + c] = (double)(float)values[ids[i] * n_cols + c];
  }
  weft_tensor *y = weft_embed(d->scope, table, from_i32(d, n, ids));
  expect_shape("embed", y, TEST_SHAPE(n, n_cols));
  test_compare(weft_dtype_name(weft_tensor_dtype(table)), d, y, want, NULL, 0, 0);
  free(ids);
  free(want);
}

static void check_embed_dtypes(test_device *d) {
  enum { N_ROWS = 37, N_COLS = 96 };
  static const weft_dtype dtypes[] = {WEFT_F32,  WEFT_F16,  WEFT_BF16, WEFT_Q8_0,   WEFT_Q4_0,
                                      WEFT_Q4_1, WEFT_Q5_0, WEFT_Q5_1, WEFT_IQ4_NL, WEFT_MXFP4};
  double *values = doubles(N_ROWS * N_COLS);
  for (size_t t = 0; t < WEFT_COUNT(dtypes); t++) {
    void *stored = test_stored_weight(dtypes[t], N_ROWS, N_COLS, 11 + t, values);
    weft_tensor *loaded =
        weft__weight_load(d->scope, dtypes[t], TEST_SHAPE(N_ROWS, N_COLS), stored, WEFT__WEIGHT_PLAIN);
    weft_tensor *copied = weft_tensor_from(d->scope, dtypes[t], TEST_SHAPE(N_ROWS, N_COLS), stored);
    static const int64_t n_ids[] = {0, 1, 5, 700};
    for (size_t i = 0; i < WEFT_COUNT(n_ids); i++) {
      check_embed_ids(d, loaded, values, n_ids[i], i);
      check_embed_ids(d, copied, values, n_ids[i], i);
    }
    weft_tensor_free(loaded); /* before the memory it borrows */
    free(stored);
  }
  free(values);
}

/* Widths that no block and no vector divides, and tables of one row or one column. */
static void check_embed_widths(test_device *d) {
  static const int64_t shapes[][2] = {{5, 1}, {1, 7}, {9, 65}, {3, 0}};
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
  for (size_t i = 0; i < WEFT_COUNT(shapes); i++)
    for (size_t t = 0; t < WEFT_COUNT(dtypes); t++) {
      double *values = doubles((size_t)(shapes[i][0] * shapes[i][1]));
      void *stored = test_stored_weight(dtypes[t], shapes[i][0], shapes[i][1], i, values);
      check_embed_ids(d, weft_tensor_from(d->scope, dtypes[t], 2, shapes[i], stored), values, 6, i);
      free(stored);
      free(values);
    }
}

static void embed_looks_rows_up_in_every_dtype(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_embed_dtypes);
  test_each_device(N_THREADS, check_embed_widths);
}

static void check_embed_refusals(test_device *d) {
  weft_tensor *table = test_random(d, TEST_SHAPE(10, 4), 1, 1);
  static const int32_t wrong[] = {-1, 10, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < WEFT_COUNT(wrong); i++)
    for (int place = 0; place < 3; place++) {
      int32_t ids[3] = {0, 9, 5};
      char text[64];
      ids[place] = wrong[i];
      weft__error(WEFT_EIO, "left from an earlier check");
      assert_null(weft_embed(d->scope, table, from_i32(d, 3, ids)));
      assert_int_equal(weft_last_status(), WEFT_EINVAL);
      snprintf(text, sizeof text, "embed: id %d ", (int)wrong[i]);
      assert_memory_equal(weft_last_error(), text, strlen(text));
      assert_non_null(strstr(weft_last_error(), "10 rows"));
    }
  const int32_t first = 0;
  assert_null(weft_embed(d->scope, test_random(d, TEST_SHAPE(0, 4), 1, 1), from_i32(d, 1, &first)));
}

/* The result of an operator that failed goes back at once, not when its scope closes. */
static void check_embed_failure_memory(test_device *d) {
  const int32_t outside = 10;
  weft_tensor *table = test_random(d, TEST_SHAPE(10, 1000), 1, 1), *ids = from_i32(d, 1, &outside);
  size_t peak = 0;
  for (int i = 0; i < 100; i++) {
    assert_null(weft_embed(d->scope, table, ids));
    if (i == 0) peak = weft_device_peak_bytes(d->device);
  }
  assert_int_equal(weft_device_peak_bytes(d->device), peak);
}

static void embed_refuses_ids_outside(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_embed_refusals);
  test_each_device(N_THREADS, check_embed_failure_memory);
}

/* ---- rope ---- */

/* Frequencies divided by the powers of two 1, 2, 4, 1, 2 ..., or by nothing. */
static double rope_factor(bool is_plain, int64_t i) { return is_plain ? 1 : (double)(1 << i % 3); }

static weft_tensor *rope_factors(test_device *d, int n_dims, bool is_plain) {
  float factors[128];
  for (int i = 0; i < n_dims / 2; i++) factors[i] = (float)rope_factor(is_plain, i);
  return weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(n_dims / 2), factors);
}

static weft_tensor *plain_rope_table(test_device *d, int64_t n, const int32_t *positions,
                                     const weft_rope_table_attrs *attrs) {
  return weft_rope_table(d->scope, from_i32(d, n, positions), rope_factors(d, attrs->n_dims, true), attrs);
}

/* The angle of pair i of n_dims/2 at a position, by exponential and logarithm instead of a power. */
static long double rope_angle(const weft_rope_table_attrs *attrs, int32_t position, int64_t i) {
  long double frequency = expl(-2.0L * (long double)i / (long double)attrs->n_dims * logl((long double)attrs->base));
  return (long double)position * (long double)attrs->scale * frequency;
}

static const int32_t POSITIONS[] = {0, 1, 2, 31, 500, 8191, 100000, -3};
enum { N_POSITIONS = WEFT_COUNT(POSITIONS) };

/* Cosines and sines are rounded once, after arithmetic in double whose angle is off by 1e-11 at most. */
static void check_rope_table_of(test_device *d, bool is_plain) {
  static const weft_rope_table_attrs cases[] = {{64, 10000, 1},  {64, 500000, 1}, {2, 10000, 1},
                                                {6, 100, 0.25f}, {128, 1e6f, 8},  {4, 1, 1}};
  for (size_t t = 0; t < WEFT_COUNT(cases); t++) {
    int64_t half = cases[t].n_dims / 2;
    double *want = doubles((size_t)(N_POSITIONS * 2 * half));
    for (int64_t n = 0; n < N_POSITIONS; n++)
      for (int64_t i = 0; i < half; i++) {
        long double angle = rope_angle(&cases[t], POSITIONS[n], i) / (long double)rope_factor(is_plain, i);
        want[(n * 2 + 0) * half + i] = (double)cosl(angle);
        want[(n * 2 + 1) * half + i] = (double)sinl(angle);
      }
    weft_tensor *factors = rope_factors(d, cases[t].n_dims, is_plain);
    weft_tensor *y = weft_rope_table(d->scope, from_i32(d, N_POSITIONS, POSITIONS), factors, &cases[t]);
    expect_shape("rope_table", y, TEST_SHAPE(N_POSITIONS, 2, half));
    test_compare("rope_table", d, y, want, NULL, 1e-9, ROUNDING);
    free(want);
  }
  expect_shape("rope_table", plain_rope_table(d, 0, NULL, &cases[0]), TEST_SHAPE(0, 2, 32));
}

static void check_rope_table(test_device *d) {
  check_rope_table_of(d, true);
  check_rope_table_of(d, false);
}

static void rope_table_holds_cosines_and_sines(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_table);
}

/* Linear scaling by 4 moves position 4n to where n was. */
static void check_rope_scaling(test_device *d) {
  static const int32_t near[] = {1, 2, 250}, far[] = {4, 8, 1000};
  weft_rope_table_attrs attrs = {.n_dims = 32, .base = 10000, .scale = 1};
  float *plain = test_read(plain_rope_table(d, 3, near, &attrs));
  attrs.scale = 0.25f;
  float *scaled = test_read(plain_rope_table(d, 3, far, &attrs));
  assert_memory_equal(plain, scaled, 3 * 32 * sizeof *plain);
  free(plain);
  free(scaled);
}

static void rope_table_scales_positions(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_scaling);
}

/* One way to rotate. */
typedef struct rope_case {
  weft_rope_table_attrs table;
  weft_rope_attrs rope;
  int n_heads;
} rope_case;

static const rope_case ROPE_CASES[] = {
    {{64, 10000, 1}, {64, WEFT_ROPE_INTERLEAVED}, 3}, {{64, 10000, 1}, {64, WEFT_ROPE_HALVES}, 3},
    {{32, 10000, 1}, {80, WEFT_ROPE_INTERLEAVED}, 2}, /* partial */
    {{32, 10000, 1}, {80, WEFT_ROPE_HALVES}, 2},      {{6, 1000, 0.5f}, {6, WEFT_ROPE_INTERLEAVED}, 1},
    {{6, 1000, 0.5f}, {7, WEFT_ROPE_HALVES}, 5},      {{2, 10000, 1}, {2, WEFT_ROPE_INTERLEAVED}, 4},
    {{2, 10000, 1}, {2, WEFT_ROPE_HALVES}, 4},
};

/* The places of pair i within a head. */
static void pair_places(const rope_case *c, int64_t i, int64_t *real, int64_t *imaginary) {
  bool is_interleaved = c->rope.pairing == WEFT_ROPE_INTERLEAVED;
  *real = is_interleaved ? 2 * i : i;
  *imaginary = is_interleaved ? 2 * i + 1 : i + c->table.n_dims / 2;
}

/* Pairs as complex numbers times exp(i angle).  The table's two entries are rounded, the products and their sum: 4
 * units of |real| + |imaginary| are allowed.  Elements beyond the rotated ones stay as they are. */
static void check_rope_of(test_device *d, const rope_case *c, weft_tensor *a) {
  int64_t width = (int64_t)c->rope.head_size * c->n_heads;
  weft_tensor *table = plain_rope_table(d, N_POSITIONS, POSITIONS, &c->table);
  weft_tensor *y = weft_rope(d->scope, a, table, &c->rope);
  expect_shape("rope", y, TEST_SHAPE(N_POSITIONS, width));
  float *x = test_read(a);
  double *want = doubles((size_t)(N_POSITIONS * width)), *tolerance = doubles((size_t)(N_POSITIONS * width));
  for (int64_t e = 0; e < N_POSITIONS * width; e++) want[e] = (double)x[e];
  for (int64_t n = 0; n < N_POSITIONS; n++)
    for (int64_t h = n * width; h < (n + 1) * width; h += c->rope.head_size)
      for (int64_t i = 0; i < c->table.n_dims / 2; i++) {
        int64_t r, m;
        pair_places(c, i, &r, &m);
        double angle = (double)rope_angle(&c->table, POSITIONS[n], i), x_r = (double)x[h + r], x_m = (double)x[h + m];
        want[h + r] = x_r * cos(angle) - x_m * sin(angle);
        want[h + m] = x_m * cos(angle) + x_r * sin(angle);
        tolerance[h + r] = tolerance[h + m] = 4 * ROUNDING * (fabs(x_r) + fabs(x_m));
      }
  test_compare("rope", d, y, want, tolerance, 0, 0);
  free(x);
  free(want);
  free(tolerance);
}

static void check_rope(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(ROPE_CASES); i++) {
    int64_t width = (int64_t)ROPE_CASES[i].rope.head_size * ROPE_CASES[i].n_heads;
    check_rope_of(d, &ROPE_CASES[i], test_random(d, TEST_SHAPE(N_POSITIONS, width), 4, i));
    check_rope_of(d, &ROPE_CASES[i], random_columns(d, N_POSITIONS, width, 4, i)); /* as out of a joint product */
  }
}

static void rope_rotates_pairs(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope);
}

/* A quarter of a turn, to be followed by eye. */
static void check_rope_quarter(test_device *d) {
  const float head[6] = {1, 2, 3, 4, 5, 6}, table[4] = {0, 0, 1, 1}; /* cosines, then sines */
  const double interleaved[6] = {-2, 1, -4, 3, 5, 6}, halves[6] = {-3, -4, 1, 2, 5, 6};
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1, 6), head);
  weft_tensor *b = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1, 2, 2), table);
  weft_rope_attrs attrs = {.head_size = 6, .pairing = WEFT_ROPE_INTERLEAVED};
  test_compare("rope, interleaved", d, weft_rope(d->scope, a, b, &attrs), interleaved, NULL, 0, 0);
  attrs.pairing = WEFT_ROPE_HALVES;
  test_compare("rope, halves", d, weft_rope(d->scope, a, b, &attrs), halves, NULL, 0, 0);
}

static void rope_pairs_by_layout(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_quarter);
}

/* There and back: two rotations, each as exact as above. */
static void check_rope_inverse(test_device *d) {
  int32_t negative[N_POSITIONS];
  for (int n = 0; n < N_POSITIONS; n++) negative[n] = -POSITIONS[n];
  for (size_t k = 0; k < WEFT_COUNT(ROPE_CASES); k++) {
    const rope_case *c = &ROPE_CASES[k];
    int64_t width = (int64_t)c->rope.head_size * c->n_heads;
    weft_tensor *a = test_random(d, TEST_SHAPE(N_POSITIONS, width), 1, k);
    weft_tensor *forth = plain_rope_table(d, N_POSITIONS, POSITIONS, &c->table);
    weft_tensor *back = plain_rope_table(d, N_POSITIONS, negative, &c->table);
    weft_tensor *y = weft_rope(d->scope, weft_rope(d->scope, a, forth, &c->rope), back, &c->rope);
    float *x = test_read(a);
    double *want = doubles((size_t)(N_POSITIONS * width));
    for (int64_t e = 0; e < N_POSITIONS * width; e++) want[e] = (double)x[e];
    test_compare("rope, there and back", d, y, want, NULL, 20 * ROUNDING, 0);
    free(x);
    free(want);
  }
}

static void rope_is_undone_by_its_inverse(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_inverse);
}

/* Rows enough for several tasks, no rows, and a table that rotates nothing. */
static void check_rope_extremes(test_device *d) {
  enum { N = 400, WIDTH = 128 };
  const weft_rope_table_attrs table_attrs = {.n_dims = 64, .base = 10000, .scale = 1};
  const weft_rope_attrs attrs = {.head_size = 64, .pairing = WEFT_ROPE_HALVES};
  int32_t positions[N];
  for (int n = 0; n < N; n++) positions[n] = n;
  weft_tensor *a = test_random(d, TEST_SHAPE(N, WIDTH), 1, 1);
  weft_tensor *table = plain_rope_table(d, N, positions, &table_attrs);
  weft_tensor *y = weft_rope(d->scope, a, table, &attrs);
  /* Row by row the same, to the bit. */
  for (int n = 0; n < N; n += 37) {
    weft_tensor *alone = weft_rope(d->scope, weft_slice(d->scope, a, 0, n, 1),
                                   plain_rope_table(d, 1, positions + n, &table_attrs), &attrs);
    float *one = test_read(alone), *all = test_read(weft_slice(d->scope, y, 0, n, 1));
    assert_memory_equal(one, all, WIDTH * sizeof *one);
    free(one);
    free(all);
  }
  weft_tensor *no_rows =
      weft_rope(d->scope, weft_slice(d->scope, a, 0, 0, 0), plain_rope_table(d, 0, NULL, &table_attrs), &attrs);
  expect_shape("rope", no_rows, TEST_SHAPE(0, WIDTH));
  float *before = test_read(a);
  float *after = test_read(weft_rope(d->scope, a, weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(N, 2, 0)), &attrs));
  assert_memory_equal(after, before, N * WIDTH * sizeof *before);
  free(before);
  free(after);
}

static void rope_of_many_rows_and_of_none(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_extremes);
}

/* ---- shape rules ---- */

/* An operand to be made: of zeros, as `form` says. */
typedef struct operand {
  weft_dtype dtype;
  enum { WHOLE, TURNED /* the last two axes change places */, COLUMNS /* of rows one longer */, PACKED } form;
  int rank;
  int64_t shape[4];
} operand;

#define EXTENTS(...)                                                                                                   \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), { __VA_ARGS__ }
#define F32(...)                                                                                                       \
  { WEFT_F32, WHOLE, EXTENTS(__VA_ARGS__) }
#define F16(...)                                                                                                       \
  { WEFT_F16, WHOLE, EXTENTS(__VA_ARGS__) }
#define I32(...)                                                                                                       \
  { WEFT_I32, WHOLE, EXTENTS(__VA_ARGS__) }
#define Q8(...)                                                                                                        \
  { WEFT_Q8_0, WHOLE, EXTENTS(__VA_ARGS__) }
#define TURNED_F32(...)                                                                                                \
  { WEFT_F32, TURNED, EXTENTS(__VA_ARGS__) }
#define COLUMNS_F32(...)                                                                                               \
  { WEFT_F32, COLUMNS, EXTENTS(__VA_ARGS__) }
#define PACKED_F32(...)                                                                                                \
  { WEFT_F32, PACKED, EXTENTS(__VA_ARGS__) }
#define SCALAR                                                                                                         \
  {                                                                                                                    \
    WEFT_F32, WHOLE, 0, { 0 }                                                                                          \
  }
/* Caches of 4 blocks, 2 heads of 8; 3 tokens in 2 slots. */
#define CACHES F32(4, 2, 8, 32), F32(4, 2, 32, 8)
#define PLACES I32(2, 2), I32(3), I32(3)

static const weft_scale_attrs TWICE = {2};
static const weft_matmul_attrs PLAIN_PRODUCT = {0};
static const weft_concat_attrs AXIS[] = {{0}, {1}, {2}, {-1}};
static const weft_rms_norm_attrs EPS = {1e-5f};
static const weft_rope_table_attrs TABLE = {4, 10000, 1}, ODD_TABLE = {5, 10000, 1}, EMPTY_TABLE = {0, 10000, 1},
                                   NEGATIVE_TABLE = {-2, 10000, 1}, BASE_0 = {4, 0, 1}, BASE_NAN = {4, NAN, 1},
                                   BASE_INFINITE = {4, INFINITY, 1}, SCALE_NAN = {4, 10000, NAN};
static const weft_rope_attrs HEADS_OF_8 = {8, WEFT_ROPE_HALVES}, HEADS_OF_3 = {3, WEFT_ROPE_HALVES},
                             HEADS_OF_2 = {2, WEFT_ROPE_HALVES}, HEADS_OF_0 = {0, WEFT_ROPE_HALVES};
static const weft_paged_attention_attrs HEADS_4 = {4, 1, 0}, HEADS_3 = {3, 1, 0}, HEADS_0 = {0, 1, 0},
                                        HEADS_2 = {2, 1, 0}, NAN_SCALE = {4, NAN, 0}, WINDOW_5 = {4, 1, 5},
                                        WINDOW_NEGATIVE = {4, 1, -1};
static const weft_matmul_nt_gated_attrs SILU = {WEFT_GATE_SILU}, GELU_TANH = {WEFT_GATE_GELU_TANH},
                                        NO_GATE = {(weft_gate)2};
static const weft_attention_attrs TWO_HEADS = {2, 0.5f, WEFT_MASK_CAUSAL};

/* One operator, operands that fit it and operands that do not. */
typedef struct rule_case {
  weft_op op;
  bool fits;
  const void *attrs;
  operand in[WEFT__OP_MAX_INPUTS];
} rule_case;

#define FITS(name, attrs, ...)                                                                                         \
  {                                                                                                                    \
    WEFT_OP_ID_##name, true, attrs, { __VA_ARGS__ }                                                                    \
  }
#define WRONG(name, attrs, ...)                                                                                        \
  {                                                                                                                    \
    WEFT_OP_ID_##name, false, attrs, { __VA_ARGS__ }                                                                   \
  }

static const rule_case RULE_CASES[] = {
    FITS(add, NULL, F32(2, 3), F32(3)),
    FITS(add, NULL, TURNED_F32(2, 3), SCALAR),
    WRONG(add, NULL, F32(2, 3), F32(2, 4)),
    WRONG(add, NULL, F32(2, 3), F32(2)),
    WRONG(add, NULL, F32(0, 3), F32(2, 3)),
    WRONG(add, NULL, F32(2, 3), I32(2, 3)),
    WRONG(add, NULL, F16(2, 3), F32(2, 3)),
    WRONG(add, NULL, F32(2, 32), Q8(2, 32)),
    WRONG(add, NULL, F32(2, 3), PACKED_F32(2, 3)),
    FITS(mul, NULL, F32(2, 3), F32(2, 1)),
    WRONG(mul, NULL, F32(2, 3), F32(3, 2)),
    WRONG(mul, NULL, I32(2), I32(2)),
    WRONG(mul, NULL, PACKED_F32(2, 3), F32(2, 3)),
    FITS(sub, NULL, F32(2, 3), F32(2, 1)),
    WRONG(sub, NULL, F32(2, 3), F32(3, 2)),
    WRONG(sub, NULL, F32(2, 3), F16(2, 3)),
    FITS(div, NULL, F32(2, 3), F32(2, 1)),
    WRONG(div, NULL, F32(2, 3), F32(4, 3)),
    WRONG(div, NULL, F32(2, 3), I32(2, 3)),
    FITS(relu, NULL, TURNED_F32(2, 3)),
    WRONG(relu, NULL, F16(2, 3)),
    WRONG(relu, NULL, PACKED_F32(2, 3)),
    FITS(gelu, NULL, TURNED_F32(2, 3)),
    WRONG(gelu, NULL, I32(2, 3)),
    WRONG(gelu, NULL, PACKED_F32(2, 3)),
    FITS(scale, &TWICE, TURNED_F32(2, 3)),
    WRONG(scale, &TWICE, I32(2, 3)),
    WRONG(scale, &TWICE, PACKED_F32(2, 3)),
    FITS(matmul, &PLAIN_PRODUCT, F32(2, 3), F32(3, 4)),
    WRONG(matmul, &PLAIN_PRODUCT, F32(2, 3), F32(4, 3)),
    WRONG(matmul, &PLAIN_PRODUCT, F32(2, 3), F16(3, 4)),
    FITS(silu, NULL, COLUMNS_F32(2, 3)),
    WRONG(silu, NULL, F16(2, 3)),
    WRONG(silu, NULL, I32(3)),
    FITS(silu, NULL, TURNED_F32(2, 3)),
    WRONG(silu, NULL, PACKED_F32(2, 3)),
    FITS(gelu_tanh, NULL, TURNED_F32(2, 3)),
    WRONG(gelu_tanh, NULL, F16(2, 3)),
    WRONG(gelu_tanh, NULL, PACKED_F32(2, 3)),
    FITS(softmax, NULL, COLUMNS_F32(2, 3)),
    WRONG(softmax, NULL, F16(2, 3)),
    WRONG(softmax, NULL, SCALAR),
    WRONG(softmax, NULL, TURNED_F32(2, 3)),
    WRONG(softmax, NULL, COLUMNS_F32(2, 2, 3)),
    FITS(concat, &AXIS[1], F32(2, 3), F32(2, 5)),
    WRONG(concat, &AXIS[0], F32(2, 3), F32(2, 5)),
    WRONG(concat, &AXIS[1], F32(2, 3), F32(3, 3)),
    WRONG(concat, &AXIS[1], F32(2, 3), F32(2, 3, 1)),
    WRONG(concat, &AXIS[2], F32(2, 3), F32(2, 3)),
    WRONG(concat, &AXIS[3], F32(2, 3), F32(2, 3)),
    WRONG(concat, &AXIS[0], SCALAR, SCALAR),
    WRONG(concat, &AXIS[0], F32(2), I32(2)),
    WRONG(concat, &AXIS[0], F32(3, 2), TURNED_F32(3, 2)),
    WRONG(concat, &AXIS[1], F32(0, INT64_MAX), F32(0, INT64_MAX)), /* an extent that overflows */
    FITS(rms_norm, &EPS, COLUMNS_F32(2, 3), F32(3)),
    WRONG(rms_norm, &EPS, F32(2, 3), F32(2)),
    WRONG(rms_norm, &EPS, F32(2, 3), F32(1, 3)),
    WRONG(rms_norm, &EPS, F32(2, 3), F16(3)),
    WRONG(rms_norm, &EPS, F16(2, 3), F32(3)),
    WRONG(rms_norm, &EPS, TURNED_F32(2, 3), F32(3)),
    WRONG(rms_norm, &EPS, SCALAR, F32(1)),
    FITS(embed, NULL, Q8(5, 32), I32(2)),
    WRONG(embed, NULL, F32(5, 3), F32(2)),
    WRONG(embed, NULL, F32(5, 3), I32(1, 2)),
    WRONG(embed, NULL, F32(15), I32(2)),
    WRONG(embed, NULL, I32(5, 3), I32(2)),
    WRONG(embed, NULL, TURNED_F32(5, 3), I32(2)),
    WRONG(embed, NULL, COLUMNS_F32(5, 3), I32(2)),
    WRONG(embed, NULL, PACKED_F32(5, 3), I32(2)),
    FITS(matmul_nt, NULL, F32(2, 3), F32(4, 3)),
    FITS(matmul_nt, NULL, F32(2, 3), PACKED_F32(4, 3)),
    WRONG(matmul_nt, NULL, F32(2, 3), F32(3, 4)),
    WRONG(matmul_nt, NULL, F32(2, 3), F32(3)),
    WRONG(matmul_nt, NULL, F32(2, 3), I32(4, 3)),
    WRONG(matmul_nt, NULL, F16(2, 3), F32(4, 3)),
    WRONG(matmul_nt, NULL, PACKED_F32(2, 3), F32(4, 3)),
    WRONG(matmul_nt, NULL, TURNED_F32(2, 3), F32(4, 3)),
    WRONG(matmul_nt, NULL, F32(2, 3), TURNED_F32(4, 3)),
    FITS(rope_table, &TABLE, I32(3), F32(2)),
    WRONG(rope_table, &TABLE, I32(3), F32(3)),
    WRONG(rope_table, &TABLE, I32(3), F32(2, 1)),
    WRONG(rope_table, &TABLE, I32(3), F16(2)),
    WRONG(rope_table, &TABLE, F32(3), F32(2)),
    WRONG(rope_table, &TABLE, I32(3, 1), F32(2)),
    WRONG(rope_table, &ODD_TABLE, I32(3), F32(2)),
    WRONG(rope_table, &EMPTY_TABLE, I32(3), F32(2)),
    WRONG(rope_table, &NEGATIVE_TABLE, I32(3), F32(2)),
    WRONG(rope_table, &BASE_0, I32(3), F32(2)),
    WRONG(rope_table, &BASE_NAN, I32(3), F32(2)),
    WRONG(rope_table, &BASE_INFINITE, I32(3), F32(2)),
    WRONG(rope_table, &SCALE_NAN, I32(3), F32(2)),
    FITS(rope, &HEADS_OF_8, COLUMNS_F32(3, 16), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), F32(2, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), F32(3, 1, 4)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), F32(3, 2, 5)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), F32(3, 8)),
    WRONG(rope, &HEADS_OF_8, F32(3, 12), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_3, F32(3, 16), F32(3, 2, 1)),
    WRONG(rope, &HEADS_OF_2, F32(3, 16), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_0, F32(3, 16), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F32(48), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F16(3, 16), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), I32(3, 2, 4)),
    FITS(kv_append, NULL, CACHES, COLUMNS_F32(3, 16), COLUMNS_F32(3, 16), PLACES),
    WRONG(kv_append, NULL, CACHES, F32(3, 16), F32(3, 15), PLACES),
    WRONG(kv_append, NULL, CACHES, F32(3, 15), F32(3, 15), PLACES),
    WRONG(kv_append, NULL, CACHES, F32(2, 16), F32(2, 16), PLACES),
    WRONG(kv_append, NULL, CACHES, F16(3, 16), F16(3, 16), PLACES),
    WRONG(kv_append, NULL, F32(4, 2, 8, 32), F32(4, 2, 8, 32), F32(3, 16), F32(3, 16), PLACES),
    WRONG(kv_append, NULL, F32(4, 2, 8, 32), F16(4, 2, 32, 8), F32(3, 16), F32(3, 16), PLACES),
    WRONG(kv_append, NULL, I32(4, 2, 8, 32), I32(4, 2, 32, 8), F32(3, 16), F32(3, 16), PLACES),
    WRONG(kv_append, NULL, F32(4, 2, 8, 16), F32(4, 2, 16, 8), F32(3, 16), F32(3, 16), PLACES),
    WRONG(kv_append, NULL, CACHES, F32(3, 16), F32(3, 16), I32(4), I32(3), I32(3)),
    WRONG(kv_append, NULL, CACHES, F32(3, 16), F32(3, 16), I32(2, 2), F32(3), I32(3)),
    WRONG(kv_append, NULL, CACHES, F32(3, 16), F32(3, 16), I32(2, 2), I32(3), I32(2)),
    FITS(paged_attention, &HEADS_4, COLUMNS_F32(3, 32), CACHES, PLACES),
    FITS(paged_attention, &WINDOW_5, F32(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &WINDOW_NEGATIVE, F32(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_3, F32(3, 24), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_0, F32(3, 0), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_2, F32(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &NAN_SCALE, F32(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_4, F32(2, 32), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_4, F16(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_4, F32(3, 32), F32(4, 2, 8, 32), F32(3, 2, 32, 8), PLACES),
    WRONG(paged_attention, &HEADS_4, F32(3, 32), CACHES, I32(2, 2), I32(3), F32(3)),
    FITS(attention, &TWO_HEADS, F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3)),
    FITS(attention, &TWO_HEADS, COLUMNS_F32(5, 6), F32(5, 6), F32(5, 6)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F32(2, 7, 4), F32(2, 7, 4)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F32(2, 4, 6), F32(2, 4, 6)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F32(2, 7, 6), F32(2, 6, 6)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F32(7, 6), F32(7, 6)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F16(2, 7, 6), F16(2, 7, 6)),
    FITS(silu_mul, NULL, COLUMNS_F32(2, 3), F32(2, 3)),
    WRONG(silu_mul, NULL, F32(2, 3), F32(3)),
    WRONG(silu_mul, NULL, F32(2, 3), F32(2, 4)),
    WRONG(silu_mul, NULL, F32(2, 3), F16(2, 3)),
    WRONG(silu_mul, NULL, F32(3, 2), TURNED_F32(3, 2)),
    FITS(matmul_nt3, NULL, F32(2, 3), F32(4, 3), PACKED_F32(5, 3), F32(6, 3)),
    WRONG(matmul_nt3, NULL, F32(2, 3), F32(4, 3), F32(5, 3), F32(6, 4)),
    WRONG(matmul_nt3, NULL, F32(2, 3), F32(4, 3), I32(5, 3), F32(6, 3)),
    WRONG(matmul_nt3, NULL, F32(2, 0), F32(INT64_MAX, 0), F32(INT64_MAX, 0), F32(INT64_MAX, 0)), /* overflow again */
    FITS(matmul_nt_gated, &GELU_TANH, F32(2, 3), F32(4, 3), F32(4, 3)),
    WRONG(matmul_nt_gated, &NO_GATE, F32(2, 3), F32(4, 3), F32(4, 3)),
    FITS(matmul_nt_gated, &SILU, F32(2, 3), F32(4, 3), PACKED_F32(4, 3)),
    WRONG(matmul_nt_gated, &SILU, F32(2, 3), F32(4, 3), F32(5, 3)),
    WRONG(matmul_nt_gated, &SILU, F32(2, 3), F32(4, 3), F32(4, 2)),
    WRONG(matmul_nt_gated, &SILU, F32(2, 3), I32(4, 3), I32(4, 3)),
};

static weft_tensor *make_whole(weft_scope *scope, const operand *o, const int64_t *shape) {
  weft_tensor *t = weft_tensor_new(scope, o->dtype, o->rank, shape);
  assert_non_null(t);
  void *zeros = test_alloc(weft_tensor_bytes(t), 1);
  assert_int_equal(weft_tensor_write(t, zeros, weft_tensor_bytes(t)), WEFT_OK);
  free(zeros);
  return t;
}

static weft_tensor *make_turned(weft_scope *scope, const operand *o) {
  int64_t shape[4];
  int axes[4];
  for (int i = 0; i < o->rank; i++) axes[i] = i;
  axes[o->rank - 2] = o->rank - 1, axes[o->rank - 1] = o->rank - 2;
  for (int i = 0; i < o->rank; i++) shape[i] = o->shape[axes[i]];
  return weft_permute(scope, make_whole(scope, o, shape), axes);
}

static weft_tensor *make_columns(weft_scope *scope, const operand *o) {
  int64_t shape[4];
  memcpy(shape, o->shape, sizeof shape);
  shape[o->rank - 1]++;
  return weft_slice(scope, make_whole(scope, o, shape), o->rank - 1, 0, o->shape[o->rank - 1]);
}

static weft_tensor *make_packed(weft_scope *scope, const operand *o) {
  static const float zeros[64];
  assert_true(o->shape[0] * o->shape[1] <= (int64_t)WEFT_COUNT(zeros));
  return weft__weight_load(scope, o->dtype, o->rank, o->shape, zeros, WEFT__WEIGHT_PRODUCT);
}

static weft_tensor *make_operand(weft_scope *scope, const operand *o) {
  weft_tensor *t = o->form == TURNED    ? make_turned(scope, o)
                   : o->form == COLUMNS ? make_columns(scope, o)
                   : o->form == PACKED  ? make_packed(scope, o)
                                        : make_whole(scope, o, o->shape);
  assert_non_null(t);
  return t;
}

/* "b [2,3] f32": how a message names operand `index`. */
static void describe(const operand *o, int index, char *text, size_t n_bytes) {
  size_t n = (size_t)snprintf(text, n_bytes, "%c [", 'a' + index);
  for (int i = 0; i < o->rank; i++)
    n += (size_t)snprintf(text + n, n_bytes - n, i ? ",%lld" : "%lld", (long long)o->shape[i]);
  snprintf(text + n, n_bytes - n, "] %s", weft_dtype_name(o->dtype));
}

static void expect_rule_error(const rule_case *c, const weft_tensor *y) {
  const weft__op_row *row = weft__op_get(c->op);
  char start[64], shape[128];
  snprintf(start, sizeof start, "%s: ", row->name);
  if (y) fail_msg("%s: wrong operands were taken (row %d)", row->name, (int)(c - RULE_CASES));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  if (strncmp(weft_last_error(), start, strlen(start)) != 0)
    fail_msg("\"%s\" does not begin with \"%s\"", weft_last_error(), start);
  for (int i = 0; i < row->n_inputs; i++) {
    describe(&c->in[i], i, shape, sizeof shape);
    if (!strstr(weft_last_error(), shape)) fail_msg("\"%s\" does not show \"%s\"", weft_last_error(), shape);
  }
}

/* Operands that fit differ from those beside them in one thing, so that is what is refused. */
static void check_rules(test_device *d) {
  int n_fits[WEFT_OP_COUNT] = {0}, n_wrong[WEFT_OP_COUNT] = {0};
  for (size_t k = 0; k < WEFT_COUNT(RULE_CASES); k++) {
    const rule_case *c = &RULE_CASES[k];
    weft__op_call call = {.op = c->op, .n_inputs = weft__op_get(c->op)->n_inputs, .attrs = c->attrs};
    weft__shape shape;
    weft_scope *scope = NULL;
    assert_int_equal(weft_scope_open(&scope, d->device, NULL), WEFT_OK);
    for (int i = 0; i < call.n_inputs; i++) call.in[i] = make_operand(scope, &c->in[i]);
    weft__error(WEFT_EIO, "left from an earlier check");
    bool lacks_layout = false; /* wants a layout that this device has not */
    for (int i = 0; i < call.n_inputs; i++)
      lacks_layout |= c->in[i].form == PACKED && call.in[i]->storage->layout == WEFT__LAYOUT_PLAIN;
    if (!c->fits && !lacks_layout)
      expect_rule_error(c, weft__op_run(scope, c->op, call.in, c->attrs, false));
    else if (c->fits && weft__op_get(c->op)->shape_rule(&call, &shape))
      fail_msg("row %zu: %s", k, weft_last_error());
    (c->fits ? n_fits : n_wrong)[c->op]++;
    weft_scope_close(scope);
  }
  for (int op = 0; op < WEFT_OP_COUNT; op++)
    if (!n_fits[op] || n_wrong[op] < 2)
      fail_msg("%s: RULE_CASES wants operands that fit, a wrong shape and a wrong dtype",
               weft__op_get((weft_op)op)->name);
}

static void shape_rules_refuse_what_does_not_fit(void **state) {
  (void)state;
  test_each_device(1, check_rules);
}

/* ---- coverage ---- */

/* The suite that tests an operator's results: tests/test_SUITE.c.  A row of ops.def without one fails. */
static const char *const SUITES[WEFT_OP_COUNT] = {
    [WEFT_OP_ID_add] = "ops",
    [WEFT_OP_ID_mul] = "ops",
    [WEFT_OP_ID_sub] = "ops",
    [WEFT_OP_ID_div] = "ops",
    [WEFT_OP_ID_scale] = "ops",
    [WEFT_OP_ID_relu] = "ops",
    [WEFT_OP_ID_gelu] = "ops",
    [WEFT_OP_ID_matmul] = "gemm",
    [WEFT_OP_ID_gelu_tanh] = "ops",
    [WEFT_OP_ID_silu] = "ops",
    [WEFT_OP_ID_softmax] = "ops",
    [WEFT_OP_ID_concat] = "ops",
    [WEFT_OP_ID_rms_norm] = "ops",
    [WEFT_OP_ID_embed] = "ops",
    [WEFT_OP_ID_matmul_nt] = "matmul",
    [WEFT_OP_ID_rope_table] = "ops",
    [WEFT_OP_ID_rope] = "ops",
    [WEFT_OP_ID_kv_append] = "attention",
    [WEFT_OP_ID_paged_attention] = "attention",
    [WEFT_OP_ID_attention] = "dense_attention",
    [WEFT_OP_ID_silu_mul] = "ops",
    [WEFT_OP_ID_matmul_nt3] = "matmul",
    [WEFT_OP_ID_matmul_nt_gated] = "matmul",
};

/* The text of a suite, freed with free. */
static char *read_suite(const char *suite) {
  char path[64];
  snprintf(path, sizeof path, "tests/test_%s.c", suite);
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("%s: there is no such suite (run the tests in the repository's top folder)", path);
  enum { ROOM = 1 << 20 };
  char *text = test_alloc(ROOM + 1, 1);
  text[fread(text, 1, ROOM, file)] = 0;
  fclose(file);
  return text;
}

/* Is the operator's function called by name? */
static bool calls(const char *text, const char *operator) {
  char name[64];
  snprintf(name, sizeof name, "weft_%s", operator);
  for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
    char after = at[strlen(name)];
    if (!isalnum((unsigned char)after) && after != '_') return true;
  }
  return false;
}

static void every_operator_has_a_suite(void **state) {
  (void)state;
  for (int op = 0; op < WEFT_OP_COUNT; op++) {
    const char *name = weft__op_get((weft_op)op)->name;
    if (!SUITES[op]) fail_msg("%s: no suite tests it; write the test, then name its suite in SUITES", name);
    char *text = read_suite(SUITES[op]);
    bool is_called = calls(text, name);
    free(text);
    if (!is_called) fail_msg("%s: the suite %s does not call it", name, SUITES[op]);
  }
}

/* ---- f16 ---- */

static bool is_nan_half(uint16_t h) { return (h & 0x7fff) > 0x7c00; }

/* The value of a finite f16 by its definition: sign, exponent of 5 bits, 10 bits of fraction. */
static double half_value(uint16_t h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  return h & 0x8000 ? -magnitude : magnitude;
}

/* The f16 nearest to a number, ties to even, by whole multiples of the last place. */
static uint16_t nearest_half(float x) {
  int sign = signbit(x) ? 0x8000 : 0, exponent;
  double magnitude = fabs((double)x);
  if (magnitude == 0) return (uint16_t)sign;
  if (magnitude >= 65520) return (uint16_t)(sign | 0x7c00);
  frexp(magnitude, &exponent);
  int last_place = exponent - 11 > -24 ? exponent - 11 : -24;
  return (uint16_t)(sign | ((last_place + 24) * 1024 + (int)lrint(ldexp(magnitude, -last_place))));
}

/* What the processor or the compiler makes of a number, where one of the two knows f16. */
#if defined(__x86_64__)
/* F16C came before AVX2, and clang 14 cannot be asked for it. */
static bool has_hardware_half(void) { return __builtin_cpu_supports("avx2"); }
__attribute__((target("f16c"))) static uint16_t hardware_to_half(float x) {
  return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0);
}
__attribute__((target("f16c"))) static float hardware_from_half(uint16_t h) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
#elif defined(__FLT16_MANT_DIG__)
static bool has_hardware_half(void) { return true; }
static uint16_t hardware_to_half(float x) {
  _Float16 half = (_Float16)x;
  uint16_t bits;
  memcpy(&bits, &half, sizeof bits);
  return bits;
}
static float hardware_from_half(uint16_t h) {
  _Float16 half;
  memcpy(&half, &h, sizeof half);
  return (float)half;
}
#else
static bool has_hardware_half(void) { return false; }
static uint16_t hardware_to_half(float x) { return nearest_half(x); }
static float hardware_from_half(uint16_t h) { return (float)half_value(h); }
#endif

static void every_half_survives_f32(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits <= 0xffff; bits++) {
    uint16_t h = (uint16_t)bits, back;
    float x = weft__f16_to_f32(h);
    back = weft__f32_to_f16(x);
    if (is_nan_half(h)) {
      assert_true(isnan(x) && is_nan_half(back) && (back & 0x8000) == (h & 0x8000));
      continue;
    }
    assert_int_equal(back, h);
    if ((h & 0x7fff) == 0x7c00)
      assert_true(isinf(x) && !signbit(x) == !(h & 0x8000));
    else
      assert_true((double)x == half_value(h) && !signbit(x) == !(h & 0x8000));
    if (has_hardware_half()) assert_int_equal(weft__f32_bits(hardware_from_half(h)), weft__f32_bits(x));
  }
}

static void check_rounding(float magnitude) {
  for (int i = 0; i < 2; i++) {
    float x = i ? -magnitude : magnitude;
    uint16_t got = weft__f32_to_f16(x), want = nearest_half(x);
    if (got != want) fail_msg("%a becomes the f16 %#x, not %#x", (double)x, (unsigned)got, (unsigned)want);
    if (has_hardware_half()) assert_int_equal(hardware_to_half(x), want);
  }
}

/* Each f16, the middle between it and the next (65520 after the last), and the f32 on both sides of the two. */
static void f32_is_rounded_to_the_nearest_half(void **state) {
  (void)state;
  for (int h = 0; h <= 0x7bff; h++) {
    float x = (float)half_value((uint16_t)h);
    float next = h < 0x7bff ? (float)half_value((uint16_t)(h + 1)) : 65536.0f, middle = (x + next) / 2;
    const float near[] = {x,      nextafterf(x, INFINITY),      nextafterf(middle, 0),
                          middle, nextafterf(middle, INFINITY), nextafterf(next, 0)};
    for (size_t i = 0; i < WEFT_COUNT(near); i++) check_rounding(near[i]);
  }
  static const float far[] = {0x1p-149f, 0x1p-126f, 0x1p-25f, 65519.99609375f, 65520, 65536, 1e30f, FLT_MAX, INFINITY};
  for (size_t i = 0; i < WEFT_COUNT(far); i++) check_rounding(far[i]);
}

/* Any bits at all, NaN among them. */
static void any_f32_is_rounded_right(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 1 << 19; i++) {
    uint32_t draw[4];
    weft__philox(16, i, 0, draw);
    for (int k = 0; k < 4; k++) {
      float x = weft__f32_from_bits(draw[k]),
            in_range = weft__f32_from_bits(draw[k] % (0x48000000 - 0x32000000) + 0x32000000);
      if (isnan(x))
        assert_true(is_nan_half(weft__f32_to_f16(x)) && weft__f32_to_f16(x) >> 15 == draw[k] >> 31);
      else
        check_rounding(fabsf(x));
      check_rounding(in_range); /* 2^-27 to 2^17, where results are neither 0 nor infinite */
    }
  }
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(binary_operators_of_any_size),
      cmocka_unit_test(binary_operators_broadcast),
      cmocka_unit_test(binary_operators_of_views),
      cmocka_unit_test(unary_operators_are_their_formulas),
      cmocka_unit_test(silu_mul_is_the_formula_and_its_lowering),
      cmocka_unit_test(special_values_are_computed_with),
      cmocka_unit_test(special_values_are_copied),
      cmocka_unit_test(nan_spoils_its_row_alone),
      cmocka_unit_test(softmax_is_the_formula),
      cmocka_unit_test(rms_norm_is_the_formula),
      cmocka_unit_test(concat_joins_along_any_axis),
      cmocka_unit_test(embed_looks_rows_up_in_every_dtype),
      cmocka_unit_test(embed_refuses_ids_outside),
      cmocka_unit_test(rope_table_holds_cosines_and_sines),
      cmocka_unit_test(rope_table_scales_positions),
      cmocka_unit_test(rope_rotates_pairs),
      cmocka_unit_test(rope_pairs_by_layout),
      cmocka_unit_test(rope_is_undone_by_its_inverse),
      cmocka_unit_test(rope_of_many_rows_and_of_none),
      cmocka_unit_test(shape_rules_refuse_what_does_not_fit),
      cmocka_unit_test(every_operator_has_a_suite),
      cmocka_unit_test(every_half_survives_f32),
      cmocka_unit_test(f32_is_rounded_to_the_nearest_half),
      cmocka_unit_test(any_f32_is_rounded_right),
  };
  return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
