/* test_ops_rows.c - operators that work along rows, softmax and silu_mul (norms: test_ops_norm.c), on every variant against
 * references in double.  The devices' new buffers are full of NaN, so an element that is left out fails as well. */
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { N_THREADS = 2 };

/* Elements of any real type as f32, in row-major order. */
static float *read_real(const weft_tensor *a) {
  double *values = test_values(a);
  size_t n = (size_t)weft_tensor_numel(a);
  float *x = test_alloc(n, sizeof *x);
  for (size_t i = 0; i < n; i++) x[i] = (float)values[i];
  free(values);
  return x;
}

/* Halves and views that are no rows. */
static void each_other_view(test_device *d, void (*check)(test_device *d, weft_tensor *a)) {
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
  for (int form = 0; form < TEST_N_FORMS; form++)
    for (size_t t = 0; t < WEFT_COUNT(dtypes); t++) {
      check(d, test_operand(d, (test_form)form, dtypes[t], TEST_SHAPE(5, 67), -2, 2, 300 + t));
      check(d, test_operand(d, (test_form)form, dtypes[t], TEST_SHAPE(3, 4, 33), -2, 2, 400 + t));
    }
}

/* ---- silu_mul ---- */

/* exp is good to 3 units, the sum, the quotient and the product to one each; 8 are allowed.  Where exp(-a) exceeds f32
 * (a below -88.7) the result is 0 instead of at most 89 / 3.4e38. */
static const double SILU_RELATIVE = 8 * TEST_ROUNDING, SILU_ABSOLUTE = 3e-37;

static double silu_of(double a) { return a / (1 + exp(-a)); }

/* A second operand like `a`: contiguous, or columns of a wider tensor. */
static weft_tensor *random_like(test_device *d, const weft_tensor *a, bool is_wide, uint64_t seed) {
  if (is_wide) return test_columns(d, weft_tensor_shape(a)[0], weft_tensor_shape(a)[1], 3, seed);
  return test_random(d, weft_tensor_rank(a), weft_tensor_shape(a), 3, seed);
}

/* gelu_mul rounds as its lowering does: gelu, then the product. */
static void check_gelu_mul_of(test_device *d, weft_tensor *a, weft_tensor *b) {
  weft_tensor *operands[] = {a, b};
  weft_tensor *fused = weft_gelu_mul(d->scope, a, b);
  weft_tensor *lowered = weft__op_run(d->scope, WEFT_OP_ID_gelu_mul, operands, NULL, true);
  test_expect_shape("gelu_mul", fused, WEFT_F32, weft_tensor_rank(a), weft_tensor_shape(a));
  size_t n = (size_t)weft_tensor_numel(a);
  double *x = test_values(a), *y = test_values(b), *steps = test_values(lowered), *tolerance = test_doubles(n);
  double *want = test_doubles(n);
  for (size_t i = 0; i < n; i++) {
    want[i] = x[i] * erfc(-x[i] * M_SQRT1_2) / 2 * y[i];
    tolerance[i] = 1e-37 + 10 * TEST_ROUNDING * fabs(want[i]) + 2e-7 * fabs(x[i] * y[i]);
  }
  test_compare("gelu_mul", d, fused, want, tolerance, 0, 0);
  test_compare("gelu_mul against its lowering", d, fused, steps, NULL, 0x1p-147, 4 * TEST_ROUNDING);
  free(x);
  free(y);
  free(steps);
  free(tolerance);
  free(want);
}

static void check_silu_mul_of(test_device *d, weft_tensor *a, weft_tensor *b) {
  weft_tensor *operands[] = {a, b};
  weft_tensor *fused = weft_silu_mul(d->scope, a, b);
  weft_tensor *lowered = weft__op_run(d->scope, WEFT_OP_ID_silu_mul, operands, NULL, true);
  test_expect_shape("silu_mul", fused, WEFT_F32, weft_tensor_rank(a), weft_tensor_shape(a));
  test_expect_shape("silu_mul, lowered", lowered, WEFT_F32, weft_tensor_rank(a), weft_tensor_shape(a));
  size_t n = (size_t)weft_tensor_numel(a);
  float *x = read_real(a), *y = read_real(b), *steps = test_read(lowered);
  double *want = test_doubles(n), *want_steps = test_doubles(n);
  for (size_t i = 0; i < n; i++) {
    want[i] = silu_of((double)x[i]) * (double)y[i];
    want_steps[i] = (double)steps[i];
  }
  test_compare("silu_mul", d, fused, want, NULL, 3 * SILU_ABSOLUTE, SILU_RELATIVE);
  /* The lowering rounds silu to f32 before the product: two roundings of difference, counted from either side. */
  test_compare("silu_mul against its lowering", d, fused, want_steps, NULL, 0x1p-147, 4 * TEST_ROUNDING);
  free(x);
  free(y);
  free(steps);
  free(want);
  free(want_steps);
}

static void check_gelu_mul(test_device *d, weft_tensor *a) {
  check_gelu_mul_of(d, a, random_like(d, a, false, 500));
  if (weft_tensor_rank(a) == 2) check_gelu_mul_of(d, a, random_like(d, a, true, 501));
}

static void check_gelu_mul_scales(test_device *d) {
  test_each_rows(d, 8, check_gelu_mul);
  each_other_view(d, check_gelu_mul);
}

static void gelu_mul_is_the_formula_and_its_lowering(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_gelu_mul_scales);
}

static void check_silu_mul(test_device *d, weft_tensor *a) {
  check_silu_mul_of(d, a, random_like(d, a, false, 500));
  if (weft_tensor_rank(a) == 2) check_silu_mul_of(d, a, random_like(d, a, true, 501));
}

static void check_silu_mul_scales(test_device *d) {
  test_each_rows(d, 8, check_silu_mul);
  each_other_view(d, check_silu_mul);
  test_each_rows(d, 60, check_silu_mul);
}

static void silu_mul_is_the_formula_and_its_lowering(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_silu_mul_scales);
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
  test_expect_shape("softmax", y, WEFT_F32, weft_tensor_rank(a), weft_tensor_shape(a));
  size_t numel = (size_t)weft_tensor_numel(a);
  int64_t n = weft__n_cols(a);
  float *x = read_real(a), *got = test_read(y);
  double *want = test_doubles(numel), *tolerance = test_doubles(numel);
  for (size_t row = 0; row < numel; row += (size_t)n) {
    double largest, sum = softmax_sum(x + row, n, &largest), total = 0;
    for (size_t i = row; i < row + (size_t)n; i++) {
      want[i] = exp((double)x[i] - largest) / sum;
      double units = 8 + (largest - (double)x[i]) + sum_units(n);
      tolerance[i] = want[i] * units * TEST_ROUNDING + 0x1p-147;
      total += (double)got[i];
    }
    if (!(fabs(total - 1) <= (8 + sum_units(n)) * TEST_ROUNDING))
      fail_msg("softmax (%s): a row sums to %.9g", d->variant, total);
  }
  test_compare("softmax", d, y, want, tolerance, 0, 0);
  free(x);
  free(got);
  free(want);
  free(tolerance);
}

static void check_softmax_scales(test_device *d) {
  test_each_rows(d, 1, check_softmax);
  each_other_view(d, check_softmax);
  test_each_rows(d, 30, check_softmax);
  test_each_rows(d, 1e4f, check_softmax);
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
  test_compare("softmax, masked", d, masked, want, NULL, 0, 8 * TEST_ROUNDING);
}

static void softmax_is_the_formula(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_softmax_scales);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(silu_mul_is_the_formula_and_its_lowering),
      cmocka_unit_test(gelu_mul_is_the_formula_and_its_lowering),
      cmocka_unit_test(nan_spoils_its_row_alone),
      cmocka_unit_test(softmax_is_the_formula),
  };
  return cmocka_run_group_tests_name("ops_rows", tests, NULL, NULL);
}
