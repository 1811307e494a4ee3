/* test_ops_softmax.c - softmax_grad, cross_entropy and cross_entropy_grad: against their formulas in double, and the gradients
 * against central differences.  (softmax itself is in test_ops_rows.c.) */
#include "support/gradient.h"
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 2 };

static const weft_dtype REAL[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
static const int64_t WIDTHS[] = {1, 7, 257, 5003};

/* What a sum of n terms walks off by, in roundings; the sums are added up in 8 lanes or more. */
static double sum_units(int64_t n) { return sqrt((double)n); }

/* ---- formulas of one row ---- */

static double exp_sum(const double *a, int64_t n, double *largest) {
  double sum = 0;
  *largest = -(double)INFINITY;
  for (int64_t i = 0; i < n; i++) *largest = fmax(*largest, a[i]);
  for (int64_t i = 0; i < n; i++) sum += exp(a[i] - *largest);
  return sum;
}

static double loss_of(const double *a, int64_t n, int32_t target) {
  double largest, sum = exp_sum(a, n, &largest);
  return target < 0 ? 0 : log(sum) + largest - a[target];
}

/* ---- central differences ---- */

enum { MAX_ROWS = 2 };
static const double SLOPE_ERROR = 1e-8; /* of a central difference */

/* Rows, the weights of their results, and the slopes: computed once for all devices. */
typedef struct slopes {
  int64_t n_rows, n;
  int32_t targets[MAX_ROWS];
  double *x, *dy, *dsoftmax, *dloss; /* [n_rows,n]; of dloss the first n_rows of dy are the weights */
} slopes;

static struct { slopes *current; } state;

static void softmax_formula(const void *context, const double *const *in, double *y) {
  const slopes *s = context;
  for (int64_t row = 0; row < s->n * s->n_rows; row += s->n) {
    double largest, sum = exp_sum(in[0] + row, s->n, &largest);
    for (int64_t i = row; i < row + s->n; i++) y[i] = exp(in[0][i] - largest) / sum;
  }
}

static void loss_formula(const void *context, const double *const *in, double *y) {
  const slopes *s = context;
  for (int64_t row = 0; row < s->n_rows; row++) y[row] = loss_of(in[0] + row * s->n, s->n, s->targets[row]);
}

static void expect_near(const char *what, const test_device *d, const weft_tensor *y, const double *want) {
  test_compare(what, d, y, want, NULL, SLOPE_ERROR + 16 * TEST_ROUNDING, 0);
}

static weft_tensor *of_doubles(test_device *d, int rank, const int64_t *shape, const double *x) {
  int64_t n = 1;
  for (int i = 0; i < rank; i++) n *= shape[i];
  float *data = test_alloc((size_t)n, sizeof *data);
  for (int64_t i = 0; i < n; i++) data[i] = (float)x[i];
  weft_tensor *t = weft_tensor_from(d->scope, WEFT_F32, rank, shape, data);
  free(data);
  return t;
}

static void check_slopes(test_device *d) {
  const slopes *s = state.current;
  weft_tensor *x = of_doubles(d, TEST_SHAPE(s->n_rows, s->n), s->x),
              *dy = of_doubles(d, TEST_SHAPE(s->n_rows, s->n), s->dy);
  expect_near("softmax_grad", d, weft_softmax_grad(d->scope, weft_softmax(d->scope, x), dy), s->dsoftmax);
  weft_tensor *targets = test_i32(d, s->n_rows, s->targets), *weights = of_doubles(d, TEST_SHAPE(s->n_rows), s->dy);
  expect_near("cross_entropy_grad", d, weft_cross_entropy_grad(d->scope, x, targets, weights), s->dloss);
}

static void gradients_are_slopes(void **unused) {
  (void)unused;
  for (size_t w = 0; w < WEFT_COUNT(WIDTHS); w++) {
    int64_t n_rows = WIDTHS[w] < 1000 ? MAX_ROWS : 1; /* the differences take the square of the elements */
    size_t n = (size_t)(n_rows * WIDTHS[w]);
    slopes s = {.n_rows = n_rows, .n = WIDTHS[w], .targets = {(int32_t)WIDTHS[w] - 1, (int32_t)WIDTHS[w] / 2}};
    float *data = test_alloc(n, sizeof *data);
    s.x = test_doubles(n), s.dy = test_doubles(n);
    test_fill(data, n, 4, w);
    for (size_t i = 0; i < n; i++) s.x[i] = (double)data[i];
    test_fill(data, n, 1, 100 + w);
    for (size_t i = 0; i < n; i++) s.dy[i] = (double)data[i];
    s.dsoftmax = test_gradient(softmax_formula, &s, &s.x, 0, n, s.dy, n);
    s.dloss = test_gradient(loss_formula, &s, &s.x, 0, n, s.dy, (size_t)n_rows);
    state.current = &s;
    test_each_device(N_THREADS, check_slopes);
    free(data);
    free(s.x);
    free(s.dy);
    free(s.dsoftmax);
    free(s.dloss);
  }
}

/* ---- softmax_grad ---- */

/* The sum of the products and the difference are rounded relative to the terms' magnitudes. */
static void check_softmax_grad_of(test_device *d, weft_tensor *a, weft_tensor *b) {
  weft_tensor *y = weft_softmax_grad(d->scope, a, b);
  test_expect_shape("softmax_grad", y, WEFT_F32, weft_tensor_rank(a), weft_tensor_shape(a));
  int64_t n = weft__n_cols(a), numel = weft_tensor_numel(a);
  double *x = test_values(a), *dy = test_values(b);
  double *want = test_doubles((size_t)numel), *tolerance = test_doubles((size_t)numel);
  for (int64_t row = 0; row < numel; row += n) {
    double sum = 0, magnitude = 0;
    for (int64_t i = row; i < row + n; i++) sum += x[i] * dy[i], magnitude += fabs(x[i] * dy[i]);
    for (int64_t i = row; i < row + n; i++) {
      want[i] = x[i] * (dy[i] - sum);
      tolerance[i] = fabs(x[i]) * (fabs(dy[i]) + magnitude) * (4 + sum_units(n)) * TEST_ROUNDING;
    }
  }
  test_compare("softmax_grad", d, y, want, tolerance, 0, 0);
  free(x);
  free(dy);
  free(want);
  free(tolerance);
}

static void check_softmax_grad(test_device *d, weft_tensor *a) {
  check_softmax_grad_of(d, a, test_random(d, weft_tensor_rank(a), weft_tensor_shape(a), 3, 7));
}

static void check_softmax_grads(test_device *d) {
  test_each_rows(d, 1, check_softmax_grad);
  for (int form = 0; form < TEST_N_FORMS; form++)
    for (size_t t = 0; t < WEFT_COUNT(REAL); t++) {
      const int64_t shape[] = {3, 4, 33};
      weft_tensor *a = test_operand(d, (test_form)form, REAL[t], 3, shape, 0, 1, t);
      test_form other = (test_form)((form + 1) % TEST_N_FORMS);
      check_softmax_grad_of(d, a, test_operand(d, other, REAL[(t + 1) % 3], 3, shape, -2, 2, 10 + t));
    }
}

static void softmax_grad_is_the_formula(void **unused) {
  (void)unused;
  test_each_device(N_THREADS, check_softmax_grads);
}

/* ---- cross_entropy ---- */

enum { N_TARGETS = 6 };

/* As of softmax: exp is good to 3 units, a difference of large elements loses its own; both pass through the logarithm as they
 * are, and the sum's units do. */
static void expect_losses(const test_device *d, const weft_tensor *y, const weft_tensor *a, const int32_t *targets) {
  int64_t n_rows = weft_tensor_shape(a)[0], n = weft_tensor_shape(a)[1];
  test_expect_shape("cross_entropy", y, WEFT_F32, 1, &n_rows);
  double *x = test_values(a), *want = test_doubles((size_t)n_rows), *tolerance = test_doubles((size_t)n_rows);
  for (int64_t row = 0; row < n_rows; row++) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[row * n + i]));
    want[row] = loss_of(x + row * n, n, targets[row]);
    tolerance[row] = targets[row] < 0 ? 0 : (8 + sum_units(n) + 2 * most + want[row]) * TEST_ROUNDING;
  }
  test_compare("cross_entropy", d, y, want, tolerance, 0, 0);
  free(x);
  free(want);
  free(tolerance);
}

static void expect_loss_grads(const test_device *d, const weft_tensor *y, const weft_tensor *a, const int32_t *targets,
                              const weft_tensor *dlosses) {
  int64_t n_rows = weft_tensor_shape(a)[0], n = weft_tensor_shape(a)[1];
  test_expect_shape("cross_entropy_grad", y, WEFT_F32, 2, weft_tensor_shape(a));
  double *x = test_values(a), *c = test_values(dlosses);
  double *want = test_doubles((size_t)(n_rows * n)), *tolerance = test_doubles((size_t)(n_rows * n));
  for (int64_t row = 0; row < n_rows; row++) {
    double largest, sum = exp_sum(x + row * n, n, &largest);
    for (int64_t i = row * n; i < (row + 1) * n && targets[row] >= 0; i++) {
      double share = exp(x[i] - largest) / sum, taken = i - row * n == targets[row];
      want[i] = (share - taken) * c[row];
      double units = share * (8 + (largest - x[i]) + sum_units(n)) + 2 * taken;
      double lost = test_is_gpu(d) ? 0x1p-126 : 0; /* a share that a GPU takes for 0 */
      tolerance[i] = fabs(c[row]) * (units * TEST_ROUNDING + lost) + 0x1p-147;
    }
  }
  test_compare("cross_entropy_grad", d, y, want, tolerance, 0, 0);
  free(x);
  free(c);
  free(want);
  free(tolerance);
}

static void check_losses_of(test_device *d, weft_tensor *a) {
  int32_t n = (int32_t)weft_tensor_shape(a)[1];
  const int32_t targets[2 * N_TARGETS] = {n - 1, 99, -1, 99, 0, 99, n / 2, 99, -7, 99, n / 3, 99};
  int32_t every[N_TARGETS];
  for (int i = 0; i < N_TARGETS; i++) every[i] = targets[2 * i];
  /* Targets and weights at a stride, as columns of a matrix are. */
  weft_tensor *b = weft_reshape(d->scope, test_i32(d, 2 * N_TARGETS, targets), TEST_SHAPE(N_TARGETS, 2));
  b = weft_reshape(d->scope, weft_slice(d->scope, b, 1, 0, 1), TEST_SHAPE(N_TARGETS));
  weft_tensor *c = weft_slice(d->scope, test_random(d, TEST_SHAPE(N_TARGETS, 3), 2, 5), 1, 1, 1);
  c = weft_reshape(d->scope, c, TEST_SHAPE(N_TARGETS));
  expect_losses(d, weft_cross_entropy(d->scope, a, b), a, every);
  expect_loss_grads(d, weft_cross_entropy_grad(d->scope, a, b, c), a, every, c);
}

static void check_losses(test_device *d) {
  for (size_t w = 0; w < WEFT_COUNT(WIDTHS); w++) {
    check_losses_of(d, test_random(d, TEST_SHAPE(N_TARGETS, WIDTHS[w]), 1, w));
    check_losses_of(d, test_random(d, TEST_SHAPE(N_TARGETS, WIDTHS[w]), 60, 10 + w));
    for (int form = 0; form < TEST_N_FORMS; form++) {
      weft_dtype dtype = REAL[(w + (size_t)form) % 3];
      check_losses_of(d, test_operand(d, (test_form)form, dtype, TEST_SHAPE(N_TARGETS, WIDTHS[w]), -8, 8, 20 + w));
    }
  }
  weft_tensor *none = test_random(d, TEST_SHAPE(0, 7), 1, 1);
  weft_tensor *b = test_i32(d, 0, NULL), *c = test_random(d, TEST_SHAPE(0), 1, 1);
  test_expect_shape("no rows", weft_cross_entropy(d->scope, none, b), WEFT_F32, TEST_SHAPE(0));
  test_expect_shape("no rows", weft_cross_entropy_grad(d->scope, none, b, c), WEFT_F32, TEST_SHAPE(0, 7));
}

static void cross_entropy_is_the_formula(void **unused) {
  (void)unused;
  test_each_device(N_THREADS, check_losses);
}

/* Rows of a few elements among many that are not finite.  Rows of 40 are a vector and a rest, rows of 3000 pieces. */
static void check_special_losses(test_device *d, int n) {
  enum { MINUS, LOST_TARGET, NONE, PLUS, SPOILED, MASKED, N_KINDS };
  const int32_t targets[N_KINDS] = {3, 4, 3, 3, 3, -1};
  float *data = test_alloc((size_t)(N_KINDS * n), sizeof *data), ones[N_KINDS];
  for (int i = 0; i < N_KINDS * n; i++) data[i] = -INFINITY;
  for (int kind = 0; kind < N_KINDS; kind++) {
    ones[kind] = 1;
    if (kind == NONE) continue;
    data[kind * n + 3] = 2;
    data[kind * n + n - 1] = 2;
  }
  data[PLUS * n + 5] = INFINITY;
  data[SPOILED * n + 5] = NAN;
  data[MASKED * n + 5] = NAN;
  const double nan = (double)NAN, losses[N_KINDS] = {log(2), (double)INFINITY, nan, nan, nan, 0};
  double *want = test_doubles((size_t)(N_KINDS * n));
  for (int i = 0; i < N_KINDS * n; i++) want[i] = i / n == NONE || i / n == PLUS || i / n == SPOILED ? nan : 0;
  want[MINUS * n + 3] = -0.5;
  want[MINUS * n + n - 1] = want[LOST_TARGET * n + 3] = want[LOST_TARGET * n + n - 1] = 0.5;
  want[LOST_TARGET * n + 4] = -1;
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_KINDS, n), data);
  weft_tensor *b = test_i32(d, N_KINDS, targets), *c = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_KINDS), ones);
  test_expect_values("cross_entropy", d, weft_cross_entropy(d->scope, a, b), losses, 0x1p-21);
  test_expect_values("cross_entropy_grad", d, weft_cross_entropy_grad(d->scope, a, b, c), want, 0x1p-21);
  free(data);
  free(want);
}

static void check_special_rows(test_device *d) {
  check_special_losses(d, 40);
  check_special_losses(d, 3000);
}

static void losses_of_infinities_and_nan(void **unused) {
  (void)unused;
  test_each_device(N_THREADS, check_special_rows);
}

static void check_wrong_targets(test_device *d) {
  const int32_t targets[] = {0, -1, 7, 2};
  weft_tensor *a = test_random(d, TEST_SHAPE(4, 7), 1, 1), *b = test_i32(d, 4, targets);
  weft_tensor *c = test_random(d, TEST_SHAPE(4), 1, 2);
  test_expect_fault(d, weft_cross_entropy(d->scope, a, b),
                    "cross_entropy: index 7 (element 2 of b) is outside the 7 elements of axis 1");
  test_expect_fault(d, weft_cross_entropy_grad(d->scope, a, b, c),
                    "cross_entropy_grad: index 7 (element 2 of b) is outside the 7 elements of axis 1");
}

static void targets_outside_are_named(void **unused) {
  (void)unused;
  test_each_device(N_THREADS, check_wrong_targets);
}

/* More rows than an axis of a grid. */
static void check_many_losses(test_device *d) {
  enum { N_ROWS = 70001 };
  int32_t *targets = test_alloc(N_ROWS, sizeof *targets);
  for (int i = 0; i < N_ROWS; i++) targets[i] = i % 4 - 1;
  weft_tensor *a = test_random(d, TEST_SHAPE(N_ROWS, 3), 3, 1);
  expect_losses(d, weft_cross_entropy(d->scope, a, test_i32(d, N_ROWS, targets)), a, targets);
  free(targets);
}

/* Logits 0, 1, 2, 0 ... beyond the lowest limit of a binding, and a wrong target in the last part. */
static void check_large_logits(test_device *d) {
  enum { N_ROWS = 3, N = 11184813 };
  float *data = test_alloc(N_ROWS * (size_t)N, sizeof *data);
  for (int i = 0; i < N_ROWS * N; i++) data[i] = (float)(i % 3);
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_ROWS, N), data);
  const int32_t few[] = {N - 1, -1, 4}, wrong[] = {N - 1, -1, N};
  const float weights[] = {1, 2, 3};
  weft_tensor *b = test_i32(d, N_ROWS, few), *c = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_ROWS), weights);
  double sum = (exp(-2) + exp(-1) + 1) * (N / 3.0), losses[] = {log(sum), 0, log(sum) + 1}; /* N is a multiple of 3 */
  /* An invocation adds up N / 2048 sums of eight terms, whose roundings all go the same way here. */
  test_compare("cross_entropy", d, weft_cross_entropy(d->scope, a, b), losses, NULL, 0x1p-18, 0);
  float *got = test_read(weft_cross_entropy_grad(d->scope, a, b, c));
  for (int row = 0; row < N_ROWS; row++)
    for (int i = 0; i < N; i++) {
      double share = exp(i % 3 - 2) / sum, want = few[row] < 0 ? 0 : (share - (i == few[row])) * (double)weights[row];
      if (!(fabs((double)got[row * N + i] - want) <= 0x1p-15 * fabs(want)))
        fail_msg("cross_entropy_grad: element %d of row %d is %g, not %g", i, row, (double)got[row * N + i], want);
    }
  char text[128];
  snprintf(text, sizeof text, "cross_entropy: index %d (element 2 of b) is outside the %d elements of axis 1", N, N);
  test_expect_fault(d, weft_cross_entropy(d->scope, a, test_i32(d, N_ROWS, wrong)), text);
  free(got);
  free(data);
}

static void check_large_losses(test_device *d) {
  if (strcmp(d->variant, "gpu lowest limits")) return;
  check_many_losses(d);
  check_large_logits(d);
}

static void losses_beyond_a_grid_and_a_binding(void **unused) {
  (void)unused;
  test_each_gpu(WEFT_EXACT, check_large_losses);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_slopes),         cmocka_unit_test(softmax_grad_is_the_formula),
      cmocka_unit_test(cross_entropy_is_the_formula), cmocka_unit_test(losses_of_infinities_and_nan),
      cmocka_unit_test(targets_outside_are_named),    cmocka_unit_test(losses_beyond_a_grid_and_a_binding),
  };
  return cmocka_run_group_tests_name("ops_softmax", tests, NULL, NULL);
}
