/* test_ops_norm.c - rms_norm and layer_norm, what their gains multiply, and their gradients, on every variant against
 * references in double; the references' own gradients are compared with central differences. */
#include "support/gradient.h"
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { N_THREADS = 2 };

static const weft_dtype REAL[] = {WEFT_F32, WEFT_F16, WEFT_BF16};

/* ---- references ---- */

/* A norm of rows of n elements in double. */
typedef struct norm_case {
  bool is_centred;
  double eps;
  int64_t n;
} norm_case;

/* The row's mean (0 for rms_norm) and the factor 1 / sqrt(variance + eps). */
static void measure_row(const norm_case *c, const double *a, double *mean, double *factor) {
  double squares = 0;
  *mean = 0;
  for (int64_t i = 0; i < c->n && c->is_centred; i++) *mean += a[i] / (double)c->n;
  for (int64_t i = 0; i < c->n; i++) squares += (a[i] - *mean) * (a[i] - *mean);
  *factor = 1 / sqrt(squares / (double)c->n + c->eps);
}

static void xhat_row(const norm_case *c, const double *a, double *x) {
  double mean, factor;
  measure_row(c, a, &mean, &factor);
  for (int64_t i = 0; i < c->n; i++) x[i] = (a[i] - mean) * factor;
}

/* The gradient by a row, and with `tolerance` how far f32 may be from it: g, its mean and the mean of g * x are off by
 * their sums' roundings (sum_units), and x by those and by its mean's, which is off by as much of the deviation. */
static double sum_units(int64_t n) { return sqrt((double)n); }

static void grad_row(const norm_case *c, const double *a, const double *gain, const double *dy, double *da,
                     double *tolerance) {
  double mean, factor, mean_g = 0, mean_gx = 0, size_g = 0, size_gx = 0, n = (double)c->n;
  measure_row(c, a, &mean, &factor);
  for (int64_t i = 0; i < c->n; i++) {
    double g = dy[i] * gain[i], x = (a[i] - mean) * factor;
    mean_g += c->is_centred ? g / n : 0;
    mean_gx += g * x / n;
    size_g += fabs(g) / n;
    size_gx += fabs(g * x) / n;
  }
  for (int64_t i = 0; i < c->n; i++) {
    double g = dy[i] * gain[i], x = (a[i] - mean) * factor;
    da[i] = factor * (g - mean_g - x * mean_gx);
    if (tolerance)
      tolerance[i] =
          (8 + sum_units(c->n)) * TEST_ROUNDING * factor * (fabs(g) + size_g + (fabs(x) + 1) * size_gx) + 0x1p-147;
  }
}

/* y of one row, from {a, gain, bias}. */
static void norm_formula(const void *context, const double *const *in, double *y) {
  const norm_case *c = context;
  xhat_row(c, in[0], y);
  for (int64_t i = 0; i < c->n; i++) y[i] = y[i] * in[1][i] + (c->is_centred ? in[2][i] : 0);
}

static void fill_doubles(double *x, int64_t n, double offset, double scale, uint64_t seed) {
  float *values = test_alloc((size_t)n, sizeof *values);
  test_fill(values, (size_t)n, 1, seed);
  for (int64_t i = 0; i < n; i++) x[i] = offset + scale * (double)values[i];
  free(values);
}

static void expect_near(const char *what, int64_t n, const double *got, const double *want) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
  for (int64_t i = 0; i < n; i++)
    if (!(fabs(got[i] - want[i]) <= 1e-6 * (largest + 1)))
      fail_msg("%s of %lld: element %lld is %g, not %g", what, (long long)n, (long long)i, got[i], want[i]);
}

/* da, dgain = dy * x and dbias = dy against central differences. */
static void check_differences(const norm_case *c) {
  size_t n = (size_t)c->n;
  double *in[] = {test_doubles(n), test_doubles(n), test_doubles(n)}, *dy = test_doubles(n), *da = test_doubles(n);
  double *x = test_doubles(n);
  fill_doubles(in[0], c->n, 0.5, 2, 1);
  fill_doubles(in[1], c->n, 1, 0.5, 2);
  fill_doubles(in[2], c->n, 0, 1, 3);
  fill_doubles(dy, c->n, 0, 1, 4);
  grad_row(c, in[0], in[1], dy, da, NULL);
  xhat_row(c, in[0], x);
  for (size_t i = 0; i < n; i++) x[i] *= dy[i];
  const double *mine[] = {da, x, dy};
  const char *const names[] = {"da", "dgain", "dbias"};
  for (int which = 0; which < (c->is_centred ? 3 : 2); which++) {
    double *want = test_gradient(norm_formula, c, in, which, n, dy, n);
    expect_near(names[which], c->n, mine[which], want);
    free(want);
  }
  for (int i = 0; i < 3; i++) free(in[i]);
  free(dy);
  free(da);
  free(x);
}

static const int64_t LENGTHS[] = {1, 7, 63, 65, 257, 4096, 5003};

static void references_are_gradients(void **state) {
  (void)state;
  for (size_t i = 0; i < WEFT_COUNT(LENGTHS); i++)
    for (int is_centred = 0; is_centred < 2; is_centred++)
      check_differences(&(norm_case){is_centred, 1e-3, LENGTHS[i]});
}

/* ---- the norms ---- */

static weft_tensor *norm_of(test_device *d, bool is_centred, weft_tensor *a, weft_tensor *gain, weft_tensor *bias,
                            float eps) {
  const weft_layer_norm_attrs attrs = {.eps = eps};
  return is_centred ? weft_layer_norm(d->scope, a, gain, bias, &attrs) : weft_rms_norm(d->scope, a, gain, &attrs);
}

static weft_tensor *xhat_of(test_device *d, bool is_centred, weft_tensor *a, float eps) {
  const weft_layer_norm_attrs attrs = {.eps = eps};
  return is_centred ? weft_layer_norm_xhat(d->scope, a, &attrs) : weft_rms_norm_xhat(d->scope, a, &attrs);
}

static weft_tensor *grad_of(test_device *d, bool is_centred, weft_tensor *a, weft_tensor *gain, weft_tensor *dy,
                            float eps) {
  const weft_layer_norm_attrs attrs = {.eps = eps};
  return is_centred ? weft_layer_norm_grad(d->scope, a, gain, dy, &attrs)
                    : weft_rms_norm_grad(d->scope, a, gain, dy, &attrs);
}

/* The sum's units are halved by the root; the root's quotient and two products follow.  A mean that is off moves all
 * elements by as many units of the deviation. */
static void check_norm(test_device *d, bool is_centred, weft_tensor *a, float eps) {
  const norm_case c = {is_centred, (double)eps, weft__n_cols(a)};
  const char *what = is_centred ? "layer_norm" : "rms_norm";
  weft_tensor *gain = test_random(d, TEST_SHAPE(c.n), 2, 900), *bias = test_random(d, TEST_SHAPE(c.n), 1, 901);
  weft_tensor *y = norm_of(d, is_centred, a, gain, bias, eps), *x = xhat_of(d, is_centred, a, eps);
  test_expect_shape(what, y, WEFT_F32, weft_tensor_rank(a), weft_tensor_shape(a));
  test_expect_shape(what, x, WEFT_F32, weft_tensor_rank(a), weft_tensor_shape(a));
  size_t numel = (size_t)weft_tensor_numel(a), n = (size_t)c.n;
  double *in = test_values(a), *b = test_values(gain), *bias_values = test_values(bias);
  double *want_x = test_doubles(numel), *want_y = test_doubles(numel);
  double *x_tolerance = test_doubles(numel), *y_tolerance = test_doubles(numel);
  for (size_t row = 0; row < numel; row += n) {
    xhat_row(&c, in + row, want_x + row);
    for (size_t e = row; e < row + n; e++) {
      double added = is_centred ? bias_values[e - row] : 0, units = 5 + sum_units(c.n) / 2;
      want_y[e] = want_x[e] * b[e - row] + added;
      x_tolerance[e] = units * TEST_ROUNDING * (fabs(want_x[e]) + (is_centred ? 1 : 0)) + 0x1p-147;
      y_tolerance[e] = x_tolerance[e] * fabs(b[e - row]) + TEST_ROUNDING * (fabs(want_y[e]) + fabs(added)) + 0x1p-147;
    }
  }
  test_compare(what, d, x, want_x, x_tolerance, 0, 0);
  test_compare(what, d, y, want_y, y_tolerance, 0, 0);
  free(in);
  free(b);
  free(bias_values);
  free(want_x);
  free(want_y);
  free(x_tolerance);
  free(y_tolerance);
}

static void check_grad(test_device *d, bool is_centred, weft_tensor *a, weft_tensor *dy, float eps) {
  const norm_case c = {is_centred, (double)eps, weft__n_cols(a)};
  const char *what = is_centred ? "layer_norm_grad" : "rms_norm_grad";
  weft_tensor *gain = test_random(d, TEST_SHAPE(c.n), 2, 900), *da = grad_of(d, is_centred, a, gain, dy, eps);
  test_expect_shape(what, da, WEFT_F32, weft_tensor_rank(a), weft_tensor_shape(a));
  size_t numel = (size_t)weft_tensor_numel(a);
  double *in = test_values(a), *b = test_values(gain), *up = test_values(dy);
  double *want = test_doubles(numel), *tolerance = test_doubles(numel);
  for (size_t row = 0; row < numel; row += (size_t)c.n)
    grad_row(&c, in + row, b, up + row, want + row, tolerance + row);
  test_compare(what, d, da, want, tolerance, 0, 0);
  free(in);
  free(b);
  free(up);
  free(want);
  free(tolerance);
}

/* Both norms and both gradients of a tensor; dy is like it, but elsewhere. */
static void check_all_with(test_device *d, weft_tensor *a, float eps) {
  weft_tensor *dy = test_random(d, weft_tensor_rank(a), weft_tensor_shape(a), 3, 950);
  for (int is_centred = 0; is_centred < 2; is_centred++) {
    if (is_centred && eps == 0 && weft__n_cols(a) == 1) continue; /* 0 / 0 */
    check_norm(d, is_centred, a, eps);
    check_grad(d, is_centred, a, dy, eps);
  }
}

static void check_eps(test_device *d, weft_tensor *a) {
  check_all_with(d, a, 0);
  check_all_with(d, a, 1e-5f);
}

static void check_large_eps(test_device *d, weft_tensor *a) { check_all_with(d, a, 2); }

/* Lengths that fill vectors, quads and workgroups, and those that do not; all dtypes and views of a and dy. */
static void check_lengths(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(LENGTHS); i++) check_eps(d, test_random(d, TEST_SHAPE(3, LENGTHS[i]), 1, 700 + i));
  test_each_rows(d, 1e4f, check_large_eps);
}

static void check_views(test_device *d) {
  for (int form = 0; form < TEST_N_FORMS; form++)
    for (size_t t = 0; t < WEFT_COUNT(REAL); t++) {
      weft_tensor *a = test_operand(d, (test_form)form, REAL[t], TEST_SHAPE(3, 4, 33), -2, 2, 400 + t);
      check_eps(d, a);
      size_t other = (t + 1 + (size_t)form) % WEFT_COUNT(REAL);
      test_form other_form = (test_form)((form + 1) % TEST_N_FORMS);
      weft_tensor *dy = test_operand(d, other_form, REAL[other], TEST_SHAPE(3, 4, 33), -2, 2, 500 + other);
      check_grad(d, true, a, dy, 1e-5f);
      check_grad(d, false, a, dy, 1e-5f);
    }
  check_eps(d, weft_reshape(d->scope, test_columns(d, 4, 90, 1, 3), 3, (int64_t[]){4, 6, 15}));
}

/* Rows whose squares leave f32's range or are lost below it, and those that lie far from 0. */
static void check_ranges(test_device *d) {
  check_all_with(d, test_random(d, TEST_SHAPE(4, 100), 1e-6f, 1), 1e-5f); /* eps outweighs the squares */
  static const float scales[] = {1e20f, 1e36f, 1e-25f};
  for (size_t i = 0; i < WEFT_COUNT(scales); i++)
    for (size_t k = 1; k < WEFT_COUNT(LENGTHS); k++)
      check_all_with(d, test_random(d, TEST_SHAPE(2, LENGTHS[k]), scales[i], 3), 0);
  weft_tensor *largest = test_random(d, TEST_SHAPE(4, 4096), 3e38f, 4);
  check_norm(d, false, largest, 1e-5f);
  check_grad(d, false, largest, test_random(d, TEST_SHAPE(4, 4096), 1, 5), 1e-5f);
  if (!test_is_gpu(d)) check_all_with(d, largest, 1e-5f); /* whose sum of a quad's elements is infinite */
  const float zeros[2 * 35] = {0};
  check_all_with(d, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(2, 35), zeros), 1e-5f); /* zeros, not 0/0 */
}

/* Mean 1000, deviation 0.0058: as good as a row about 0, as the elements' differences are exact. */
static void check_offset(test_device *d) {
  for (size_t i = 1; i < WEFT_COUNT(LENGTHS); i++) {
    size_t n = (size_t)LENGTHS[i];
    float *x = test_alloc(2 * n, sizeof *x);
    test_fill(x, 2 * n, 1e-2f, 40 + i);
    for (size_t e = 0; e < 2 * n; e++) x[e] += 1e3f;
    weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(2, (int64_t)n), x);
    check_norm(d, true, a, 0);
    check_grad(d, true, a, test_random(d, TEST_SHAPE(2, (int64_t)n), 1, 50), 0);
    free(x);
  }
}

static void norms_are_their_formulas(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_lengths);
}

static void any_view_and_dtype_will_do(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_views);
}

static void the_range_of_f32_is_no_limit(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_ranges);
}

static void offsets_cost_nothing(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_offset);
}

/* ---- gradients of gain and bias ---- */

/* dgain = sum of dy * xhat and dbias = sum of dy, over the rows. */
static void check_parameters(test_device *d) {
  enum { N_ROWS = 9 };
  const weft_sum_attrs over_rows = {1, {0}, 0};
  for (size_t k = 0; k < 5; k++)
    for (int is_centred = 0; is_centred < 2; is_centred++) {
      const norm_case c = {is_centred, 1e-5, LENGTHS[k]};
      size_t n = (size_t)c.n;
      weft_tensor *a = test_random(d, TEST_SHAPE(N_ROWS, c.n), 2, 10 + k), *x = xhat_of(d, is_centred, a, 1e-5f);
      weft_tensor *dy = test_random(d, TEST_SHAPE(N_ROWS, c.n), 3, 20 + k);
      double *in = test_values(a), *up = test_values(dy), *row = test_doubles(n);
      double *dgain = test_doubles(n), *dbias = test_doubles(n), *tolerance = test_doubles(n);
      for (size_t r = 0; r < N_ROWS; r++) {
        xhat_row(&c, in + r * n, row);
        for (size_t i = 0; i < n; i++) {
          dgain[i] += up[r * n + i] * row[i];
          dbias[i] += up[r * n + i];
          tolerance[i] += (8 + sum_units(c.n)) * TEST_ROUNDING * fabs(up[r * n + i]) * (fabs(row[i]) + 1);
        }
      }
      test_compare("dgain", d, weft_sum(d->scope, weft_mul(d->scope, dy, x), &over_rows), dgain, tolerance, 0, 0);
      test_compare("dbias", d, weft_sum(d->scope, dy, &over_rows), dbias, tolerance, 0, 0);
      double *all[] = {in, up, row, dgain, dbias, tolerance};
      for (size_t i = 0; i < WEFT_COUNT(all); i++) free(all[i]);
    }
}

static void gains_and_biases_have_gradients(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_parameters);
}

/* ---- NaN ---- */

/* A NaN anywhere makes its own row NaN, and no other row. */
static void check_nan_rows(test_device *d) {
  enum { N_ROWS = 40, N = 36 };
  float data[N_ROWS * N];
  test_fill(data, N_ROWS * N, 1, 1);
  for (int row = 0; row < N; row++) data[row * N + row] = NAN;
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_ROWS, N), data);
  weft_tensor *gain = test_random(d, TEST_SHAPE(N), 1, 2), *dy = test_random(d, TEST_SHAPE(N_ROWS, N), 1, 3);
  for (int is_centred = 0; is_centred < 2; is_centred++) {
    weft_tensor *results[] = {norm_of(d, is_centred, a, gain, gain, 1e-5f), xhat_of(d, is_centred, a, 1e-5f),
                              grad_of(d, is_centred, a, gain, dy, 1e-5f), grad_of(d, is_centred, dy, gain, a, 1e-5f)};
    for (size_t r = 0; r < WEFT_COUNT(results); r++) {
      float *got = test_read(results[r]);
      for (int i = 0; i < N_ROWS * N; i++) assert_int_equal(isnan(got[i]) != 0, i / N < N);
      free(got);
    }
  }
}

static void nan_spoils_its_row_alone(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_nan_rows);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(references_are_gradients),
      cmocka_unit_test(norms_are_their_formulas),
      cmocka_unit_test(any_view_and_dtype_will_do),
      cmocka_unit_test(the_range_of_f32_is_no_limit),
      cmocka_unit_test(offsets_cost_nothing),
      cmocka_unit_test(nan_spoils_its_row_alone),
      cmocka_unit_test(gains_and_biases_have_gradients),
  };
  return cmocka_run_group_tests_name("ops_norm", tests, NULL, NULL);
}
