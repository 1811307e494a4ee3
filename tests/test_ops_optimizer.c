/* test_ops_optimizer.c - steps of optimizers, sums of squares and the factor that clips a gradient, on every variant
 * against references in double. */
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 2, N_STEPS = 20 };

static const int64_t LENGTHS[] = {0, 1, 7, 63, 65, 257, 5003};
static const weft_dtype REAL[] = {WEFT_F32, WEFT_F16, WEFT_BF16};

static weft_tensor *from_doubles(test_device *d, int rank, const int64_t *shape, const double *x) {
  size_t n = 1;
  for (int i = 0; i < rank; i++) n *= (size_t)shape[i];
  float *values = test_alloc(n, sizeof *values);
  for (size_t i = 0; i < n; i++) values[i] = (float)x[i];
  weft_tensor *t = weft_tensor_from(d->scope, WEFT_F32, rank, shape, values);
  assert_non_null(t);
  free(values);
  return t;
}

static weft_tensor *one_element(test_device *d, float x) {
  return weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1), &x);
}

/* What a step changes, on the device and in double. */
typedef struct training {
  weft_tensor *p, *m, *v;
  double *want_p, *want_m, *want_v;
  size_t n;
} training;

static training training_begin(test_device *d, int rank, const int64_t *shape) {
  training t = {.p = test_random(d, rank, shape, 1, 1)};
  t.n = (size_t)weft_tensor_numel(t.p);
  t.want_p = test_values(t.p);
  t.want_m = test_doubles(t.n);
  t.want_v = test_doubles(t.n);
  t.m = from_doubles(d, rank, shape, t.want_m);
  t.v = from_doubles(d, rank, shape, t.want_v);
  return t;
}

static void training_end(training *t) {
  free(t->want_p);
  free(t->want_m);
  free(t->want_v);
}

/* Gradients of size 2 at most, the same at no two steps. */
static weft_tensor *gradient_of_step(test_device *d, const training *t, test_form form, weft_dtype dtype, int step) {
  return test_operand(d, form, dtype, weft_tensor_rank(t->p), weft_tensor_shape(t->p), -2, 2, 100 + (uint64_t)step);
}

/* Both moments are weighted sums of N_STEPS terms, each rounded a few times; a parameter is the sum of as many moves of at
 * most about lr (Adam) or lr * 40 (SGD), and of what the moments' roundings move it.  A second moment near 0 is as exact as
 * any, so no quotient is worse than the others. */
static void expect_training(const char *what, test_device *d, const training *t, double p_size, double m_size) {
  test_compare(what, d, t->p, t->want_p, NULL, 2 * N_STEPS * p_size * TEST_ROUNDING, 2 * N_STEPS * TEST_ROUNDING);
  test_compare(what, d, t->m, t->want_m, NULL, 2 * N_STEPS * m_size * TEST_ROUNDING, 2 * N_STEPS * TEST_ROUNDING);
  test_compare(what, d, t->v, t->want_v, NULL, 0x1p-147, 4 * N_STEPS * TEST_ROUNDING);
}

/* ---- Adam ---- */

static const weft_adam_step_attrs ADAMW = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1},
                                  ADAM_L2 = {.lr = 0.02,
                                             .beta1 = 0.8,
                                             .beta2 = 0.95,
                                             .eps = 1e-3,
                                             .weight_decay = 0.05,
                                             .decay = WEFT_DECAY_L2},
                                  ADAM_PLAIN = {.lr = 0.01, .beta2 = 0.9, .eps = 1e-8};

/* One step of the formula in weft/ops.h. */
static void adam_in_double(const weft_adam_step_attrs *o, const double *gradient, double factor, training *t) {
  double steps = (double)o->step, first = 1 - pow(o->beta1, steps), second = 1 - pow(o->beta2, steps);
  for (size_t i = 0; i < t->n; i++) {
    double g = gradient[i] * factor;
    if (o->decay == WEFT_DECAY_L2)
      g += o->weight_decay * t->want_p[i];
    else
      t->want_p[i] -= o->lr * o->weight_decay * t->want_p[i];
    t->want_m[i] = o->beta1 * t->want_m[i] + (1 - o->beta1) * g;
    t->want_v[i] = o->beta2 * t->want_v[i] + (1 - o->beta2) * g * g;
    t->want_p[i] -= o->lr * (t->want_m[i] / first) / (sqrt(t->want_v[i] / second) + o->eps);
  }
}

static void check_adam_run(test_device *d, const weft_adam_step_attrs *options, test_form form, weft_dtype dtype,
                           int rank, const int64_t *shape) {
  weft_adam_step_attrs attrs = *options;
  training t = training_begin(d, rank, shape);
  for (attrs.step = 1; attrs.step <= N_STEPS; attrs.step++) {
    float factor = attrs.step % 3 ? 1 : 0.25f;
    weft_tensor *g = gradient_of_step(d, &t, form, dtype, (int)attrs.step);
    weft_tensor *y = weft_adam_step(d->scope, t.p, g, t.m, t.v, one_element(d, factor), &attrs);
    if (!y) fail_msg("adam_step (%s): %s", d->variant, weft_last_error());
    assert_ptr_equal(y->storage, t.p->storage); /* a view of the parameters */
    double *gradient = test_values(g);
    adam_in_double(&attrs, gradient, (double)factor, &t);
    free(gradient);
  }
  expect_training("adam_step", d, &t, 0.1, 1);
  training_end(&t);
}

static void check_adam(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(LENGTHS); i++)
    check_adam_run(d, &ADAMW, TEST_WHOLE, REAL[i % 3], TEST_SHAPE(LENGTHS[i]));
  for (int form = 0; form < TEST_N_FORMS; form++)
    check_adam_run(d, form % 2 ? &ADAM_PLAIN : &ADAM_L2, (test_form)form, REAL[form % 3], TEST_SHAPE(5, 3, 33));
}

/* ---- SGD ---- */

static void sgd_in_double(const weft_sgd_step_attrs *o, const double *gradient, double factor, training *t) {
  for (size_t i = 0; i < t->n; i++) {
    double g = gradient[i] * factor + o->weight_decay * t->want_p[i];
    if (o->momentum != 0) {
      t->want_m[i] = o->momentum * t->want_m[i] + g;
      g = o->nesterov ? g + o->momentum * t->want_m[i] : t->want_m[i];
    }
    t->want_p[i] -= o->lr * g;
  }
}

static void check_sgd_run(test_device *d, const weft_sgd_step_attrs *attrs, test_form form, weft_dtype dtype, int rank,
                          const int64_t *shape) {
  training t = training_begin(d, rank, shape);
  for (int step = 0; step < N_STEPS; step++) {
    float factor = step % 3 ? 1 : 0.25f;
    weft_tensor *g = gradient_of_step(d, &t, form, dtype, step);
    weft_tensor *m = attrs->momentum != 0 ? t.m : t.p;
    if (!weft_sgd_step(d->scope, t.p, g, m, one_element(d, factor), attrs))
      fail_msg("sgd_step (%s): %s", d->variant, weft_last_error());
    double *gradient = test_values(g);
    sgd_in_double(attrs, gradient, (double)factor, &t);
    free(gradient);
  }
  expect_training("sgd_step", d, &t, 4, 20);
  training_end(&t);
}

static void check_sgd(test_device *d) {
  const weft_sgd_step_attrs kinds[] = {{.lr = 0.01, .weight_decay = 0.1},
                                       {.lr = 0.01, .momentum = 0.9},
                                       {.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1, .nesterov = 1}};
  for (size_t k = 0; k < WEFT_COUNT(kinds); k++) {
    check_sgd_run(d, &kinds[k], (test_form)k, REAL[k], TEST_SHAPE(5, 3, 33));
    check_sgd_run(d, &kinds[k], TEST_WHOLE, REAL[k], TEST_SHAPE(LENGTHS[2 * k]));
    check_sgd_run(d, &kinds[k], TEST_WHOLE, WEFT_F32, TEST_SHAPE(5003));
  }
}

/* ---- steps that are skipped ---- */

/* Parts of one tensor: parameters, moments, and a gradient beside them. */
static void check_parts(test_device *d) {
  enum { N = 37 };
  weft_tensor *all = test_random(d, TEST_SHAPE(4 * N + 1), 1, 5), *part[5];
  double *values = test_values(all);
  for (int i = 0; i < 5; i++) part[i] = weft_slice(d->scope, all, 0, i * N, i == 4 ? 1 : N);
  for (int i = 3 * N; i < 4 * N; i++) values[i] = 0.5 + fabs(values[i]); /* second moments are not negative */
  float set[4 * N + 1];
  for (int i = 0; i <= 4 * N; i++) set[i] = (float)values[i];
  assert_int_equal(weft_tensor_write(all, set, sizeof set), WEFT_OK);
  weft_adam_step_attrs attrs = ADAMW;
  attrs.step = 4;
  training t = {.n = N, .want_p = values, .want_m = values + 2 * N, .want_v = values + 3 * N};
  for (int i = 3 * N; i < 4 * N; i++) values[i] = (double)set[i];
  if (!weft_adam_step(d->scope, part[0], part[1], part[2], part[3], part[4], &attrs))
    fail_msg("adam_step of parts (%s): %s", d->variant, weft_last_error());
  adam_in_double(&attrs, values + N, values[4 * N], &t);
  test_compare("adam_step of parts", d, all, values, NULL, 1e-6, 1e-6);
  assert_null(weft_adam_step(d->scope, part[0], part[1], part[2], part[2], part[4], &attrs));
  assert_null(weft_adam_step(d->scope, part[0], part[0], part[2], part[3], part[4], &attrs));
  assert_null(weft_adam_step(d->scope, part[0], part[1], part[2], part[3], weft_slice(d->scope, all, 0, 3, 1), &attrs));
  free(values);
}

/* A tensor that is not changed by what is done. */
static void expect_same(const weft_tensor *t, const float *before) {
  float *after = test_read(t);
  assert_memory_equal(after, before, weft_tensor_bytes(t));
  free(after);
}

static void check_skipped(test_device *d) {
  const float factors[] = {NAN, INFINITY, -INFINITY};
  weft_tensor *t[4];
  float *before[4];
  for (int i = 0; i < 4; i++) {
    t[i] = test_random(d, TEST_SHAPE(257), 1, 60 + (uint64_t)i);
    before[i] = test_read(t[i]);
  }
  weft_adam_step_attrs adam = ADAMW;
  adam.step = 1;
  const weft_sgd_step_attrs sgd = {.lr = 0.1, .momentum = 0.9};
  for (size_t k = 0; k < WEFT_COUNT(factors); k++) {
    weft_tensor *factor = one_element(d, factors[k]);
    assert_non_null(weft_adam_step(d->scope, t[0], t[1], t[2], t[3], factor, &adam));
    assert_non_null(weft_sgd_step(d->scope, t[0], t[1], t[2], factor, &sgd));
  }
  for (int i = 0; i < 4; i++) {
    expect_same(t[i], before[i]);
    free(before[i]);
  }
}

/* ---- norms of gradients ---- */

static void check_sum_of(test_device *d, weft_tensor *a) {
  double *x = test_values(a), want = 0;
  size_t n = (size_t)weft_tensor_numel(a);
  for (size_t i = 0; i < n; i++) want += x[i] * x[i];
  weft_tensor *y = weft_sum_squares(d->scope, a);
  test_expect_shape("sum_squares", y, WEFT_F32, 0, NULL);
  /* In double, rounded once; a GPU's sums are trees of f32, which are off by a unit a level. */
  test_compare("sum_squares", d, y, &want, NULL, 0x1p-147, test_is_gpu(d) ? 4 * TEST_ROUNDING : TEST_ROUNDING);
  free(x);
}

static void check_sums(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(LENGTHS); i++)
    for (int form = 0; form < TEST_N_FORMS; form++)
      check_sum_of(d,
                   test_operand(d, (test_form)form, REAL[(i + (size_t)form) % 3], TEST_SHAPE(3, LENGTHS[i]), -2, 2, i));
  check_sum_of(d, test_random(d, TEST_SHAPE(300, 4001), 1, 3));
  check_sum_of(d, test_random(d, TEST_SHAPE(63), 1e18f, 4));
}

/* min(1, max_norm / (norm + 1e-6)); NaN without a finite norm. */
static void check_clip(test_device *d) {
  static const double norms[] = {0, 1e-9, 0.5, 1, 2, 1e6, 1.8e19}, bounds[] = {0, 1e-3, 1, 1e9, INFINITY};
  for (size_t i = 0; i < WEFT_COUNT(norms); i++)
    for (size_t k = 0; k < WEFT_COUNT(bounds); k++) {
      float squares = (float)(norms[i] * norms[i]);
      const weft_clip_factor_attrs attrs = {bounds[k]};
      double want = fmin(1, bounds[k] / (sqrt((double)squares) + 1e-6));
      weft_tensor *y = weft_clip_factor(d->scope, one_element(d, squares), &attrs);
      test_compare("clip_factor", d, y, &want, NULL, 0, 2 * TEST_ROUNDING);
    }
  const float infinite[] = {INFINITY, NAN};
  for (size_t i = 0; i < WEFT_COUNT(infinite); i++) {
    const weft_clip_factor_attrs attrs = {INFINITY};
    float *y = test_read(weft_clip_factor(d->scope, one_element(d, infinite[i]), &attrs));
    assert_true(isnan(y[0]));
    free(y);
  }
}

/* Two tensors clipped to a norm together; then again with one element that is infinite or NaN, which skips both steps. */
static void check_global_norm(test_device *d) {
  enum { N = 65 };
  weft_tensor *p = test_random(d, TEST_SHAPE(N), 1, 1), *m = from_doubles(d, TEST_SHAPE(N), (double[N]){0});
  weft_tensor *g[] = {test_random(d, TEST_SHAPE(N), 3, 2), test_random(d, TEST_SHAPE(3, 7), 3, 3)};
  const weft_clip_factor_attrs clip = {1};
  const weft_sgd_step_attrs sgd = {.lr = 1};
  const float bad[] = {0, INFINITY, NAN};
  for (size_t k = 0; k < WEFT_COUNT(bad); k++) {
    double *before = test_values(p), squares = 0;
    if (k) assert_int_equal(weft_tensor_write(weft_slice(d->scope, g[1], 0, 0, 1), (float[7]){bad[k]}, 28), WEFT_OK);
    for (int i = 0; i < 2; i++) {
      double *x = test_values(g[i]);
      for (int64_t e = 0; e < weft_tensor_numel(g[i]); e++) squares += x[e] * x[e];
      free(x);
    }
    weft_tensor *sum = weft_add(d->scope, weft_sum_squares(d->scope, g[0]), weft_sum_squares(d->scope, g[1]));
    assert_non_null(weft_sgd_step(d->scope, p, g[0], m, weft_clip_factor(d->scope, sum, &clip), &sgd));
    double *x = test_values(g[0]);
    for (int i = 0; i < N && k == 0; i++) before[i] -= x[i] / (sqrt(squares) + 1e-6);
    test_compare("a clipped step", d, p, before, NULL, 4 * TEST_ROUNDING, 0);
    free(x);
    free(before);
  }
}

static void adam_is_its_formula(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_adam);
}

static void sgd_is_its_formula(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_sgd);
}

static void operands_may_be_parts_of_one_tensor(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_parts);
}

static void a_factor_that_is_not_finite_skips_the_step(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_skipped);
}

static void squares_are_summed(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_sums);
}

static void factors_clip(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_clip);
}

static void a_norm_over_tensors_clips_or_skips(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_global_norm);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adam_is_its_formula),
      cmocka_unit_test(sgd_is_its_formula),
      cmocka_unit_test(operands_may_be_parts_of_one_tensor),
      cmocka_unit_test(a_factor_that_is_not_finite_skips_the_step),
      cmocka_unit_test(squares_are_summed),
      cmocka_unit_test(factors_clip),
      cmocka_unit_test(a_norm_over_tensors_clips_or_skips),
  };
  return cmocka_run_group_tests_name("ops_optimizer", tests, NULL, NULL);
}
