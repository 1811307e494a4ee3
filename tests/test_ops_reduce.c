/* test_ops_reduce.c - sum, mean, max, min and argmax over every set of axes of any view, against references in double. */
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 2 };

/* What has been seen of the elements that make one result. */
typedef struct seen {
  double sum, magnitude, most, least; /* magnitude: the sum of all |x| */
  int64_t n, place;                   /* of the largest */
} seen;

static void see(seen *s, double x) {
  bool is_first = s->n == 0;
  s->sum += x;
  s->magnitude += fabs(x);
  if (is_first || (!isnan(s->most) && (isnan(x) || x > s->most))) {
    s->most = x;
    s->place = s->n;
  }
  if (is_first || (!isnan(s->least) && (isnan(x) || x < s->least))) s->least = x;
  s->n++;
}

static double sum_of(const seen *s) { return (double)(float)s->sum; }
static double mean_of(const seen *s) { return (double)(float)(s->sum / (double)s->n); }
static double most_of(const seen *s) { return s->most; }
static double least_of(const seen *s) { return s->least; }
static double place_of(const seen *s) { return (double)s->place; }

/* The CPU takes sums in double, so they are within one rounding of the reference's, whose order is another.  On a GPU a term
 * takes part in some twenty additions in f32, so its share of the error is as many roundings at most. */
static const struct {
  weft_op op;
  weft_dtype dtype;
  double (*result)(const seen *s);
  double relative;
  bool takes_none; /* has a result without elements */
} REDUCTIONS[] = {
    {WEFT_OP_ID_sum, WEFT_F32, sum_of, 0x1p-23, true}, {WEFT_OP_ID_mean, WEFT_F32, mean_of, 0x1p-23, true},
    {WEFT_OP_ID_max, WEFT_F32, most_of, 0, false},     {WEFT_OP_ID_min, WEFT_F32, least_of, 0, false},
    {WEFT_OP_ID_argmax, WEFT_I32, place_of, 0, false},
};

/* Collects what makes each result; the caller frees it.  `to` gives the result of element e. */
static seen *collect(const weft_tensor *a, unsigned mask, size_t n_results) {
  seen *all = test_alloc(n_results, sizeof *all);
  double *x = test_values(a);
  for (int64_t e = 0; e < weft_tensor_numel(a); e++) {
    int64_t rest = e, to = 0, step = 1;
    for (int axis = a->rank - 1; axis >= 0; axis--) {
      int64_t index = rest % a->shape[axis];
      rest /= a->shape[axis];
      if (mask & 1u << axis) continue;
      to += index * step;
      step *= a->shape[axis];
    }
    see(&all[to], x[e]);
  }
  free(x);
  return all;
}

static const double GPU_UNITS =
    4 * TEST_ROUNDING; /* of the terms' magnitude; test_compare allows a GPU 8 times as much */

static void expect_sums(const char *name, const test_device *d, const weft_tensor *y, const seen *all, bool is_mean) {
  size_t n = (size_t)weft_tensor_numel(y);
  double *want = test_doubles(n), *tolerance = test_doubles(n);
  for (size_t i = 0; i < n; i++) {
    double n_terms = is_mean ? (double)all[i].n : 1;
    want[i] = all[i].sum / n_terms;
    tolerance[i] = all[i].magnitude / n_terms * GPU_UNITS;
  }
  test_compare(name, d, y, want, tolerance, 0, 0);
  free(want);
  free(tolerance);
}

static weft_reduce_attrs attrs_of(unsigned mask, int rank, int keep_dims) {
  weft_reduce_attrs attrs = {.keep_dims = keep_dims};
  for (int axis = rank - 1; axis >= 0; axis--) /* in any order */
    if (mask & 1u << axis) attrs.axes[attrs.n_axes++] = axis;
  return attrs;
}

static void check_axes(test_device *d, weft_tensor *a, unsigned mask, int keep_dims) {
  const weft_reduce_attrs attrs = attrs_of(mask, a->rank, keep_dims);
  int rank = 0;
  int64_t shape[WEFT_MAX_RANK];
  size_t n_results = 1, n_reduced = 1;
  for (int axis = 0; axis < a->rank; axis++) {
    bool is_reduced = mask & 1u << axis;
    if (!is_reduced || keep_dims) shape[rank++] = is_reduced ? 1 : a->shape[axis];
    *(is_reduced ? &n_reduced : &n_results) *= (size_t)a->shape[axis];
  }
  seen *all = collect(a, mask, n_results);
  double *want = test_doubles(n_results);
  for (size_t k = 0; k < WEFT_COUNT(REDUCTIONS); k++) {
    if (n_reduced == 0 && n_results > 0 && !REDUCTIONS[k].takes_none) continue; /* refused: test_ops.c */
    const char *name = weft__op_get(REDUCTIONS[k].op)->name;
    weft_tensor *y = weft__op_run(d->scope, REDUCTIONS[k].op, &a, &attrs, false);
    test_expect_shape(name, y, REDUCTIONS[k].dtype, rank, shape);
    for (size_t i = 0; i < n_results; i++) want[i] = REDUCTIONS[k].result(&all[i]);
    if (test_is_gpu(d) && REDUCTIONS[k].relative > 0 && n_reduced > 0)
      expect_sums(name, d, y, all, REDUCTIONS[k].op == WEFT_OP_ID_mean);
    else
      test_expect_values(name, d, y, want, REDUCTIONS[k].relative);
  }
  free(all);
  free(want);
}

/* Every set of axes; none stands for all. */
static void check_all_axes(test_device *d, weft_tensor *a) {
  unsigned all = (1u << a->rank) - 1;
  for (unsigned mask = a->rank ? 1 : 0; mask <= all; mask += test_is_gpu(d) ? 3 : 1)
    check_axes(d, a, mask, mask % 2 == 0);
}

static const struct {
  int rank;
  int64_t shape[8];
} SHAPES[] = {
    {0, {0}},
    {1, {1}},
    {1, {0}},
    {1, {257}},
    {1, {70001}},
    {2, {5, 33}},
    {2, {0, 3}},
    {2, {3, 0}},
    {2, {1, 65}},
    {2, {65, 1}},
    {2, {33, 300}},
    {3, {4, 5, 6}},
    {3, {2, 63, 3}},
    {3, {3, 0, 2}},
    {4, {3, 1, 65, 2}},
    {4, {2, 3, 4, 5}},
    {8, {2, 1, 3, 1, 2, 1, 2, 3}},
};

static void check_shapes(test_device *d) {
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
  for (size_t s = 0; s < WEFT_COUNT(SHAPES); s += test_is_gpu(d) ? 6 : 1)
    for (int form = 0; form < TEST_N_FORMS; form++)
      for (size_t t = 0; t < WEFT_COUNT(dtypes); t += test_is_gpu(d) ? 2 : 1)
        check_all_axes(d, test_operand(d, (test_form)form, dtypes[t], SHAPES[s].rank, SHAPES[s].shape, 1, 9, s));
}

static void reductions_over_any_axes(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_shapes);
}

/* Orders of the axes that no slice of a contiguous tensor has. */
static void check_permuted(test_device *d) {
  static const int orders[][3] = {{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (size_t i = 0; i < WEFT_COUNT(orders); i++)
    check_all_axes(d, weft_permute(d->scope, test_random(d, TEST_SHAPE(7, 12, 10), 5, i), orders[i]));
}

static void reductions_of_permuted_axes(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_permuted);
}

/* Elements enough for chunks, in one row, in rows and in columns. */
static void check_chunks(test_device *d) {
  if (test_is_gpu(d)) { /* a device slow at this is among them, and chunks begin earlier */
    check_all_axes(d, test_random(d, TEST_SHAPE(3, 20011), 1, 2));
    check_all_axes(d, test_operand(d, TEST_TURNED, WEFT_F16, TEST_SHAPE(20011, 5), -1, 1, 4));
    return;
  }
  check_all_axes(d, test_random(d, TEST_SHAPE(300001), 1, 1));
  check_all_axes(d, test_random(d, TEST_SHAPE(3, 100003), 1, 2));
  check_all_axes(d, test_random(d, TEST_SHAPE(100003, 3), 1, 3));
  check_all_axes(d, test_operand(d, TEST_TURNED, WEFT_F16, TEST_SHAPE(70001, 5), -1, 1, 4));
  check_all_axes(d, test_operand(d, TEST_COLUMNS, WEFT_F32, TEST_SHAPE(50, 41, 101), -1, 1, 5));
}

/* More than the lowest limit of a binding, with the largest in the last part. */
static void check_large(test_device *d) {
  enum { N_ROWS = 3, N = 11 << 20, PLACE = N_ROWS * N - 7 };
  if (strcmp(d->variant, "gpu lowest limits")) return;
  float *data = test_alloc((size_t)N_ROWS * N, sizeof *data);
  for (int i = 0; i < N_ROWS * N; i++) data[i] = (float)(i % 3);
  data[PLACE] = 5;
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_ROWS, N), data);
  check_axes(d, a, 3, 0);
  check_axes(d, a, 1, 0);
  free(data);
}

static void reductions_beyond_a_binding(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_large);
}

static void long_reductions_are_cut(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_chunks);
}

/* The bits that one thread computes. */
static void reductions_do_not_depend_on_threads(void **state) {
  (void)state;
  static const weft_reduce_attrs over[] = {{0, {0}, 0}, {1, {0}, 0}, {1, {1}, 0}};
  float *first[WEFT_COUNT(over)] = {NULL};
  for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
    test_device d = {.variant = "best"};
    const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .n_threads = n_threads};
    assert_int_equal(weft_device_open(&d.device, &options), WEFT_OK);
    assert_int_equal(weft_scope_open(&d.scope, d.device, NULL), WEFT_OK);
    weft_tensor *a = test_random(&d, TEST_SHAPE(1003, 701), 1e3f, 1);
    for (size_t i = 0; i < WEFT_COUNT(over); i++) {
      weft_tensor *y = weft_sum(d.scope, a, &over[i]);
      float *got = test_read(y);
      if (!first[i])
        first[i] = got;
      else {
        assert_memory_equal(got, first[i], weft_tensor_bytes(y));
        free(got);
      }
    }
    weft_scope_close(d.scope);
    weft_device_close(d.device);
  }
  for (size_t i = 0; i < WEFT_COUNT(over); i++) free(first[i]);
}

/* A large term does not swallow the small ones: f32, one term after the other, would lose them all.  A mean is finite where
 * the sum of its terms is not. */
static void check_accuracy(test_device *d) {
  enum { N = 1 << 17 };
  float *data = test_alloc(N, sizeof *data);
  for (int i = 0; i < N; i++) data[i] = i == 5 ? 0x1p30f : 0.5f;
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N), data);
  const double sum = 0x1p30 + 0.5 * (N - 1), mean = sum / N, relative = test_is_gpu(d) ? GPU_UNITS / 8 : TEST_ROUNDING;
  test_compare("sum", d, weft_sum(d->scope, a, &(weft_sum_attrs){0}), &sum, NULL, 0, relative);
  test_compare("mean", d, weft_mean(d->scope, a, &(weft_mean_attrs){0}), &mean, NULL, 0, relative);
  for (int i = 0; i < N; i++) data[i] = FLT_MAX / 4;
  const double most = (double)FLT_MAX / 4;
  a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N), data);
  test_compare("mean", d, weft_mean(d->scope, a, &(weft_mean_attrs){0}), &most, NULL, 0, relative);
  free(data);
}

static void sums_are_accurate(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_accuracy);
}

/* Along rows and along columns of the same numbers: NaN wins, then the first of equals; infinities are numbers. */
static void check_special_values(test_device *d) {
  enum { N = 19 };
  static const struct {
    float x[N];
    double most, least;
    int place;
  } cases[] = {
      {{1, 3, 2, 3, 3}, 3, 0, 1},
      {{1, NAN, 2, INFINITY, NAN}, (double)NAN, (double)NAN, 1},
      {{[18] = NAN}, (double)NAN, (double)NAN, 18},
      {{-INFINITY, [7] = INFINITY, [9] = INFINITY}, (double)INFINITY, -(double)INFINITY, 7},
      {{[3] = -1}, 0, -1, 0},
      {{[17] = 5, [18] = 5}, 5, 0, 17},
  };
  enum { N_CASES = WEFT_COUNT(cases) };
  float rows[N_CASES][N], columns[N][N_CASES];
  double most[N_CASES], least[N_CASES], place[N_CASES];
  for (int c = 0; c < N_CASES; c++) {
    memcpy(rows[c], cases[c].x, sizeof rows[c]);
    for (int i = 0; i < N; i++) columns[i][c] = rows[c][i];
    most[c] = cases[c].most, least[c] = cases[c].least, place[c] = cases[c].place;
  }
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_CASES, N), rows);
  weft_tensor *turned = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N, N_CASES), columns);
  const weft_reduce_attrs over[] = {{1, {1}, 0}, {1, {0}, 0}};
  for (int i = 0; i < 2; i++) {
    weft_tensor *in = i ? turned : a;
    test_expect_values("max", d, weft_max(d->scope, in, &over[i]), most, 0);
    test_expect_values("min", d, weft_min(d->scope, in, &over[i]), least, 0);
    test_expect_values("argmax", d, weft_argmax(d->scope, in, &over[i]), place, 0);
  }
  const float low = -INFINITY; /* the least there is, alone */
  const double want = -(double)INFINITY, first = 0;
  a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1), &low);
  test_expect_values("max", d, weft_max(d->scope, a, &(weft_max_attrs){0}), &want, 0);
  test_expect_values("argmax", d, weft_argmax(d->scope, a, &(weft_argmax_attrs){0}), &first, 0);
}

static void the_largest_of_special_values(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_special_values);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reductions_over_any_axes),      cmocka_unit_test(reductions_of_permuted_axes),
      cmocka_unit_test(long_reductions_are_cut),       cmocka_unit_test(reductions_do_not_depend_on_threads),
      cmocka_unit_test(reductions_beyond_a_binding),   cmocka_unit_test(sums_are_accurate),
      cmocka_unit_test(the_largest_of_special_values),
  };
  return cmocka_run_group_tests_name("ops_reduce", tests, NULL, NULL);
}
