/* test_ops_copy.c - the operators that copy, convert or set elements: cast, contiguous, concat, copy_rows_into, fill,
 * fill_uniform, fill_normal, dropout.  Their results are known to the bit, but for logarithms and quotients. */
#include "support/tensors.h"

#include "base/rng.h"
#include "support/gradient.h"
#include "cpu/half.h"
#ifdef WEFT_GPU
#include "gpu/gpu.h"
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 2 };

static const weft_dtype DTYPES[] = {WEFT_F32, WEFT_F16, WEFT_BF16, WEFT_I32};

/* Shapes of every rank, with zeros and ones among the extents. */
static const struct {
  int rank;
  int64_t shape[8];
} SHAPES[] = {
    {0, {0}},           {1, {0}},
    {1, {1}},           {1, {7}},
    {1, {1025}},        {1, {70001}},
    {2, {5, 33}},       {2, {0, 3}},
    {2, {3, 0}},        {2, {1, 65}},
    {3, {4, 5, 6}},     {3, {2, 63, 3}},
    {4, {3, 1, 65, 2}}, {8, {2, 1, 3, 1, 2, 1, 2, 3}},
};

/* ---- cast, contiguous ---- */

/* What a number becomes: the formulas of weft/ops.h. */
static double converted(double x, weft_dtype dtype) {
  switch (dtype) {
  case WEFT_I32:
    return isnan(x) ? 0 : fmin(fmax(trunc(x), INT32_MIN), INT32_MAX) + 0.0; /* i32 has one zero */
  case WEFT_F16:
    return (double)weft__f16_to_f32(weft__f32_to_f16((float)x));
  case WEFT_BF16:
    return (double)weft__bf16_to_f32(weft__f32_to_bf16((float)x));
  default:
    return (double)(float)x;
  }
}

static void check_cast(test_device *d, weft_tensor *a, weft_dtype dtype) {
  const weft_cast_attrs attrs = {dtype};
  weft_tensor *y = weft_cast(d->scope, a, &attrs);
  test_expect_shape("cast", y, dtype, a->rank, a->shape);
  double *x = test_values(a);
  for (int64_t i = 0; i < weft_tensor_numel(a); i++) x[i] = converted(x[i], dtype);
  test_expect_values("cast", d, y, x, 0);
  free(x);
}

static void check_contiguous(test_device *d, weft_tensor *a) {
  weft_tensor *y = weft_contiguous(d->scope, a);
  test_expect_shape("contiguous", y, a->dtype, a->rank, a->shape);
  double *x = test_values(a);
  test_expect_values("contiguous", d, y, x, 0);
  free(x);
}

/* Every pair of dtypes on a CPU; on a GPU, where each is a shader, another one for every view. */
static void check_casts(test_device *d) {
  size_t n_seen = 0;
  for (size_t s = 0; s < WEFT_COUNT(SHAPES); s += test_is_gpu(d) ? 3 : 1)
    for (int form = 0; form < TEST_N_FORMS; form++)
      for (size_t from = 0; from < WEFT_COUNT(DTYPES); from++) {
        weft_tensor *a =
            test_operand(d, (test_form)form, DTYPES[from], SHAPES[s].rank, SHAPES[s].shape, -300, 300, 10 * s + from);
        size_t step = test_is_gpu(d) ? 3 : 1, n_to = WEFT_COUNT(DTYPES);
        for (size_t to = n_seen++ / n_to % step; to < n_to; to += step) check_cast(d, a, DTYPES[to]);
        check_contiguous(d, a);
      }
}

static void casts_and_copies_of_any_view(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_casts);
}

/* Permuted tensors and parts of them: what there are kernels for, and what falls between them. */
static const struct {
  int rank, axes[8];
  int64_t shape[8];
} TURNS[] = {
    {2, {1, 0}, {64, 128}},
    {2, {1, 0}, {68, 76}},
    {2, {1, 0}, {67, 77}},
    {2, {1, 0}, {17, 260}},
    {3, {2, 0, 1}, {20, 33, 64}},
    {3, {2, 1, 0}, {64, 3, 64}},
    {3, {1, 0, 2}, {9, 7, 48}},
    {4, {0, 2, 1, 3}, {2, 6, 8, 16}},
    {4, {0, 2, 1, 3}, {2, 5, 3, 15}},
    {4, {3, 1, 2, 0}, {18, 2, 3, 20}},
    {6, {5, 4, 3, 2, 1, 0}, {2, 3, 2, 3, 2, 3}},
    {8, {7, 6, 5, 4, 3, 2, 1, 0}, {2, 1, 3, 2, 2, 1, 3, 2}},
    {8, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 2, 2, 3, 2, 2, 4}},
};

/* A view of a whole tensor: what it should hold is found in that. */
static void check_view(test_device *d, const weft_tensor *whole, weft_tensor *view) {
  double *stored = test_values(whole), *want = test_doubles((size_t)weft_tensor_numel(view));
  for (int64_t e = 0; e < weft_tensor_numel(view); e++) {
    int64_t rest = e, at = view->offset;
    for (int i = view->rank - 1; i >= 0; rest /= view->shape[i--]) at += rest % view->shape[i] * view->strides[i];
    want[e] = stored[at];
  }
  weft_tensor *y = weft_contiguous(d->scope, view);
  test_expect_shape("contiguous", y, view->dtype, view->rank, view->shape);
  test_expect_values("contiguous", d, y, want, 0);
  free(stored);
  free(want);
}

static void check_turned(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(TURNS); i++)
    for (size_t size = 0; size < 2; size++) { /* of 4 and of 2 bytes */
      weft_dtype dtype = DTYPES[i % 2 ? 3 - size : size];
      weft_tensor *a = test_operand(d, TEST_WHOLE, dtype, TURNS[i].rank, TURNS[i].shape, -300, 300, i);
      check_view(d, a, weft_permute(d->scope, a, TURNS[i].axes));
      int axis = size ? 0 : TURNS[i].rank - 1; /* without its first, to an odd end */
      int64_t extent = TURNS[i].shape[axis];
      weft_tensor *part = weft_slice(d->scope, a, axis, extent > 2, extent > 3 ? extent - 2 : 1);
      check_view(d, a, weft_permute(d->scope, part, TURNS[i].axes));
    }
}

static void permuted_tensors_are_made_contiguous(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_turned);
}

/* Where the target runs out: to either side, in steps, and numbers that are none. */
static void check_cast_edges(test_device *d) {
  static const float edges[] = {NAN,
                                INFINITY,
                                -INFINITY,
                                0.0f,
                                -0.0f,
                                2147483520.0f,
                                2147483648.0f,
                                -2147483648.0f,
                                -2147483904.0f,
                                1e10f,
                                -1e10f,
                                0.99f,
                                -0.99f,
                                1.5f,
                                -1.5f,
                                65504,
                                65520,
                                1e30f,
                                FLT_MAX,
                                0x1p-14f,
                                0x1.ffep-15f,
                                0x1.8p-24f,
                                0x1.4p-23f,
                                0x1p-24f,
                                0x1p-25f,
                                0x1.000002p-25f,
                                0x1p-26f,
                                65519.996f,
                                0x1p-140f,
                                2049,
                                2051,
                                257,
                                259};
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(WEFT_COUNT(edges)), edges);
  for (size_t to = 0; to < WEFT_COUNT(DTYPES); to++) {
    const weft_cast_attrs attrs = {DTYPES[to]};
    double want[WEFT_COUNT(edges)];
    for (size_t i = 0; i < WEFT_COUNT(edges); i++) {
      want[i] = converted((double)edges[i], DTYPES[to]);
    }
    weft_tensor *y = weft_cast(d->scope, a, &attrs);
    test_expect_values("cast", d, y, want, 0);
  }
  static const int32_t words[] = {INT32_MAX, INT32_MIN, 16777217, 16777219, -1, 65536, 2049};
  weft_tensor *b = test_i32(d, WEFT_COUNT(words), words);
  const double reals[] = {0x1p31, -0x1p31, 16777216, 16777220, -1, 65536, 2049};
  test_expect_values("cast", d, weft_cast(d->scope, b, &(weft_cast_attrs){WEFT_F32}), reals, 0);
  const double halves[] = {INFINITY, -INFINITY, INFINITY, INFINITY, -1, INFINITY, 2048};
  test_expect_values("cast", d, weft_cast(d->scope, b, &(weft_cast_attrs){WEFT_F16}), halves, 0);
}

static void casts_end_where_the_type_does(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_cast_edges);
}

/* ---- concat ---- */

/* Every element of the result, found by its index along the axis in one operand or the other. */
static void check_concat(test_device *d, weft_tensor *a, weft_tensor *b, int axis) {
  weft_tensor *y = weft_concat(d->scope, a, b, &(weft_concat_attrs){.axis = axis});
  assert_in_range(axis, 0, a->rank - 1);
  int64_t shape[WEFT_MAX_RANK] = {0}, n_inner = 1, n_along = a->shape[axis] + b->shape[axis];
  for (int i = 0; i < a->rank; i++) shape[i] = a->shape[i] + (i == axis ? b->shape[i] : 0);
  for (int i = axis + 1; i < a->rank; i++) n_inner *= a->shape[i];
  test_expect_shape("concat", y, a->dtype, a->rank, shape);
  double *x = test_values(a), *z = test_values(b), *want = test_doubles((size_t)weft_tensor_numel(y));
  for (int64_t e = 0; e < weft_tensor_numel(y); e++) {
    int64_t inner = e % n_inner, along = e / n_inner % n_along, outer = e / n_inner / n_along;
    int64_t in_b = along - a->shape[axis];
    want[e] = in_b < 0 ? x[(outer * a->shape[axis] + along) * n_inner + inner]
                       : z[(outer * b->shape[axis] + in_b) * n_inner + inner];
  }
  test_expect_values("concat", d, y, want, 0);
  free(x);
  free(z);
  free(want);
}

static void check_concat_axes(test_device *d) {
  static const struct {
    int rank, axis;
    int64_t a[8], b[8];
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
      {8, 4, {2, 1, 2, 1, 3, 1, 2, 2}, {2, 1, 2, 1, 1, 1, 2, 2}},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    for (int form = 0; form < TEST_N_FORMS * TEST_N_FORMS; form += test_is_gpu(d) ? 4 : 1) {
      weft_dtype dtype = DTYPES[(i + (size_t)form) % WEFT_COUNT(DTYPES)];
      check_concat(d, test_operand(d, form % TEST_N_FORMS, dtype, cases[i].rank, cases[i].a, -9, 9, i),
                   test_operand(d, form / TEST_N_FORMS, dtype, cases[i].rank, cases[i].b, -9, 9, i + 100),
                   cases[i].axis);
    }
  for (int form = 0; form < TEST_N_FORMS; form++) /* f32 in every form: what devices have kernels for */
    check_concat(d, test_operand(d, (test_form)form, WEFT_F32, TEST_SHAPE(66, 70), -1, 1, 1),
                 test_operand(d, (test_form)form, WEFT_F32, TEST_SHAPE(66, 3), -1, 1, 2), 1);
}

static void concat_joins_along_any_axis(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_concat_axes);
}

/* Copies keep what is no number. */
static void check_special_copies(test_device *d) {
  static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1.5f, -FLT_MAX, 0x1p-140f};
  enum { N = WEFT_COUNT(special) };
  double want[2 * N];
  for (int i = 0; i < 2 * N; i++) want[i] = (double)special[i % N];
  weft_tensor *x = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1, N), special);
  test_expect_values("concat", d, weft_concat(d->scope, x, x, &(weft_concat_attrs){.axis = 0}), want, 0);
  test_expect_values("contiguous", d, weft_contiguous(d->scope, x), want, 0);
  const int32_t ids[] = {0, 0};
  test_expect_values("embed", d, weft_embed(d->scope, x, test_i32(d, 2, ids)), want, 0);
}

static void special_values_are_copied(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_special_copies);
}

/* ---- copy_rows_into ---- */

static void check_copy_rows(test_device *d, weft_tensor *a, weft_tensor *b, int64_t first) {
  double *want = test_values(a), *rows = test_values(b);
  int64_t n_row = 1;
  for (int i = 1; i < a->rank; i++) n_row *= a->shape[i];
  for (int64_t e = 0; e < weft_tensor_numel(b); e++) want[first * n_row + e] = converted(rows[e], a->dtype);
  weft_tensor *y = weft_copy_rows_into(d->scope, a, b, &(weft_copy_rows_into_attrs){first});
  test_expect_shape("copy_rows_into", y, a->dtype, a->rank, a->shape);
  test_expect_values("copy_rows_into", d, a, want, 0);
  test_expect_values("copy_rows_into, the view", d, y, want, 0);
  free(want);
  free(rows);
}

static void check_copy_rows_cases(test_device *d) {
  static const weft_dtype pairs[][2] = {{WEFT_F32, WEFT_F32}, {WEFT_F16, WEFT_F32},  {WEFT_F32, WEFT_BF16},
                                        {WEFT_I32, WEFT_I32}, {WEFT_BF16, WEFT_F16}, {WEFT_F16, WEFT_F16}};
  for (size_t p = 0; p < WEFT_COUNT(pairs); p++)
    for (int form = 0; form < TEST_N_FORMS; form++) {
      weft_tensor *a = test_operand(d, TEST_WHOLE, pairs[p][0], TEST_SHAPE(9, 33), -5, 5, p);
      for (int64_t first = 0; first <= 9; first += 4)
        for (int64_t n = 0; n <= 9 - first; n += 3)
          check_copy_rows(d, a, test_operand(d, (test_form)form, pairs[p][1], TEST_SHAPE(n, 33), -5, 5, p + 10), first);
    }
  /* Part of a larger storage, as a cache is. */
  weft_tensor *part = weft_slice(d->scope, test_random(d, TEST_SHAPE(8, 2, 5), 1, 1), 0, 2, 4);
  check_copy_rows(d, part, test_random(d, TEST_SHAPE(3, 2, 5), 1, 2), 1);
  /* A tensor that shares its memory with its own rows is refused: the order of the copies would show. */
  assert_null(
      weft_copy_rows_into(d->scope, part, weft_slice(d->scope, part, 0, 0, 2), &(weft_copy_rows_into_attrs){1}));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  /* And memory that belongs to a file. */
  static const float stored[4];
  weft_tensor *weight = weft__weight_load(d->scope, WEFT_F32, TEST_SHAPE(2, 2), stored, WEFT__WEIGHT_PLAIN, NULL);
  if (weight->storage->is_borrowed) assert_null(weft_fill(d->scope, weight, &(weft_fill_attrs){1}));
}

static void rows_are_copied_in_place(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_copy_rows_cases);
}

/* ---- fills ---- */

static void check_fill(test_device *d) {
  for (size_t s = 0; s < WEFT_COUNT(SHAPES); s += test_is_gpu(d) ? 5 : 1)
    for (size_t t = 0; t < WEFT_COUNT(DTYPES); t++) {
      weft_tensor *a = weft_tensor_new(d->scope, DTYPES[t], SHAPES[s].rank, SHAPES[s].shape);
      double *want = test_doubles((size_t)weft_tensor_numel(a));
      for (int64_t i = 0; i < weft_tensor_numel(a); i++) want[i] = converted(-2.7, DTYPES[t]);
      test_expect_values("fill", d, weft_fill(d->scope, a, &(weft_fill_attrs){-2.7f}), want, 0);
      test_expect_values("fill", d, a, want, 0);
      free(want);
    }
}

static void fill_sets_every_element(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_fill);
}

/* Element e of the draws under (seed, stream), by the formulas of weft/ops.h. */
static uint32_t word_of(uint64_t seed, uint64_t stream, int64_t e) {
  uint32_t block[4];
  weft__philox(seed, (uint64_t)e / 4, stream, block);
  return block[e % 4];
}

static double unit_of(uint64_t seed, uint64_t stream, int64_t e) {
  return floor(word_of(seed, stream, e) / 256.0) * 0x1p-24;
}

static double normal_of(uint64_t seed, uint64_t stream, int64_t e) {
  int64_t first = e / 2 * 2;
  double r = sqrt(-2 * log(unit_of(seed, stream, first) + 0x1p-24));
  double angle = 2 * M_PI * unit_of(seed, stream, first + 1);
  return e == first ? r * cos(angle) : r * sin(angle);
}

/* Fills and copies of rows into elements first .. first + n - 1 of a tensor: the others stay, also those that share a word
 * with one that changes. */
static void check_place(test_device *d, weft_dtype dtype, int64_t size, int64_t first, int64_t n) {
  weft_tensor *a = test_operand(d, TEST_WHOLE, dtype, 1, &size, -9, 9, 5), *rows = test_random(d, 1, &n, 3, 6);
  weft_tensor *part = weft_slice(d->scope, a, 0, first, n);
  const weft_fill_uniform_attrs uniform = {.seed = 4, .low = -1, .high = 3};
  const weft_fill_normal_attrs normal = {.seed = 4, .mean = 10, .deviation = 1};
  double *want = test_values(a), *of_rows = test_values(rows);
  for (int64_t e = 0; e < n; e++) want[first + e] = converted(4.7, dtype);
  weft_fill(d->scope, part, &(weft_fill_attrs){4.7f});
  test_expect_values("fill of a part", d, a, want, 0);
  if (dtype == WEFT_I32) rows = weft_cast(d->scope, rows, &(weft_cast_attrs){WEFT_I32});
  for (int64_t e = 0; e < n; e++) want[first + e] = converted(of_rows[e], dtype);
  weft_copy_rows_into(d->scope, a, rows, &(weft_copy_rows_into_attrs){first});
  test_expect_values("copy_rows_into of a part", d, a, want, 0);
  if (dtype != WEFT_I32) {
    for (int64_t e = 0; e < n; e++)
      want[first + e] = converted(-1 + 4 * unit_of(uniform.seed, uniform.stream, e), dtype);
    weft_fill_uniform(d->scope, part, &uniform);
    test_expect_values("fill_uniform of a part", d, a, want, 0);
    for (int64_t e = 0; e < n; e++) want[first + e] = 10 + normal_of(normal.seed, normal.stream, e);
    weft_fill_normal(d->scope, part, &normal);
    test_compare("fill_normal of a part", d, a, want, NULL, 1e-6, dtype == WEFT_F32 ? 0 : 0x1p-8);
  }
  free(want);
  free(of_rows);
}

static void check_places(test_device *d) {
  for (size_t t = 0; t < WEFT_COUNT(DTYPES); t++)
    for (int64_t first = 2; first < 4; first++)
      for (int64_t n = 0; n < 20; n += n < 3 ? 1 : 15) check_place(d, DTYPES[t], 23, first, n);
}

static void neighbours_of_what_is_set_stay(void **state) {
  (void)state;
  test_each_device(1, check_places);
}

static void check_draws(test_device *d) {
  const weft_fill_uniform_attrs uniform = {.seed = 1234567890123, .stream = 5, .low = 0, .high = 1};
  const weft_fill_uniform_attrs ranged = {.seed = 7, .stream = 1, .low = -3, .high = 5};
  const weft_fill_normal_attrs normal = {.seed = 99, .stream = 1ull << 40, .mean = 2, .deviation = 0.5f};
  for (size_t s = 0; s < WEFT_COUNT(SHAPES); s += test_is_gpu(d) ? 5 : 1)
    for (size_t t = 0; t < 3; t++) {
      weft_tensor *a = weft_tensor_new(d->scope, DTYPES[t], SHAPES[s].rank, SHAPES[s].shape);
      int64_t n = weft_tensor_numel(a);
      double *want = test_doubles((size_t)n);
      for (int64_t e = 0; e < n; e++) want[e] = converted(unit_of(uniform.seed, uniform.stream, e), DTYPES[t]);
      test_compare("fill_uniform", d, weft_fill_uniform(d->scope, a, &uniform), want, NULL, 0, 0);
      for (int64_t e = 0; e < n; e++)
        want[e] = converted((double)(-3 + (float)unit_of(ranged.seed, ranged.stream, e) * 8), DTYPES[t]);
      test_compare("fill_uniform, ranged", d, weft_fill_uniform(d->scope, a, &ranged), want, NULL, 0, 0);
      for (int64_t e = 0; e < n; e++)
        want[e] = converted(2 + 0.5 * normal_of(normal.seed, normal.stream, e), DTYPES[t]);
      double step = DTYPES[t] == WEFT_F32   ? 0x1p-22
                    : DTYPES[t] == WEFT_F16 ? 0x1p-9
                                            : 0x1p-6; /* one place of the last */
      test_compare("fill_normal", d, weft_fill_normal(d->scope, a, &normal), want, NULL, step, 0);
      free(want);
    }
}

static void draws_are_their_formulas(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_draws);
}

/* Moments and bounds of a million draws: five standard deviations of each. */
static void draws_are_distributed(void **state) {
  (void)state;
  enum { N = 1 << 20 };
  weft_device *device;
  weft_scope *scope;
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .n_threads = 2};
  assert_int_equal(weft_device_open(&device, &options), WEFT_OK);
  assert_int_equal(weft_scope_open(&scope, device, NULL), WEFT_OK);
  for (int is_normal = 0; is_normal < 2; is_normal++) {
    weft_tensor *a = weft_tensor_new(scope, WEFT_F32, TEST_SHAPE(N));
    if (is_normal)
      weft_fill_normal(scope, a, &(weft_fill_normal_attrs){.seed = 3, .deviation = 1});
    else
      weft_fill_uniform(scope, a, &(weft_fill_uniform_attrs){.seed = 3, .high = 1});
    float *x = test_read(a);
    double sum = 0, squares = 0, products = 0;
    for (int i = 0; i < N; i++) {
      double v = (double)x[i] - (is_normal ? 0 : 0.5);
      assert_true(isfinite(x[i]) && (is_normal || (x[i] >= 0 && x[i] < 1)));
      sum += v, squares += v * v, products += i ? v * ((double)x[i - 1] - (is_normal ? 0 : 0.5)) : 0;
    }
    double variance = is_normal ? 1 : 1.0 / 12;
    assert_true(fabs(sum / N) < 5 * sqrt(variance / N));
    assert_true(fabs(squares / N - variance) < 5 * sqrt((is_normal ? 2.0 : 1.0 / 180) / N));
    assert_true(fabs(products / N) < 5 * variance / sqrt(N)); /* neighbours have nothing in common */
    free(x);
  }
  weft_scope_close(scope);
  weft_device_close(device);
}

/* Between neighbours half of the sums round to `high`, which no draw is, whichever end is the larger. */
static void check_ends(test_device *d) {
  const float above = nextafterf(1, 2), ends[][2] = {{1, above}, {above, 1}, {1, 1}};
  for (size_t i = 0; i < WEFT_COUNT(ends); i++) {
    double want[65];
    for (int e = 0; e < 65; e++) want[e] = (double)ends[i][0];
    weft_tensor *a = weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(65));
    const weft_fill_uniform_attrs attrs = {.seed = 11, .low = ends[i][0], .high = ends[i][1]};
    test_compare("fill_uniform between neighbours", d, weft_fill_uniform(d->scope, a, &attrs), want, NULL, 0, 0);
  }
}

static void draws_leave_the_end_out(void **state) {
  (void)state;
  test_each_device(1, check_ends);
}

/* ---- dropout ---- */

static const weft_dropout_attrs DROP = {.seed = 0x123456789abcdef, .stream = 1ull << 33, .p = 0.3f};

static void dropout_formula(const void *context, const double *const *in, double *y) {
  int64_t n = *(const int64_t *)context;
  double keep = (double)(1 - DROP.p);
  for (int64_t e = 0; e < n; e++) y[e] = unit_of(DROP.seed, DROP.stream, e) >= (double)DROP.p ? in[0][e] / keep : 0;
}

/* What is 0 in the result is what the draws say, as no operand is. */
static void check_dropout(test_device *d, weft_tensor *a) {
  int64_t n = weft_tensor_numel(a);
  double *x = test_values(a), *want = test_doubles((size_t)n);
  weft_tensor *y = weft_dropout(d->scope, a, &DROP);
  test_expect_shape("dropout", y, WEFT_F32, a->rank, a->shape);
  dropout_formula(&n, (const double *const[]){x}, want);
  test_expect_values("dropout", d, y, want, test_is_gpu(d) ? 4 * 0x1p-23 : TEST_ROUNDING);
  free(x);
  free(want);
}

static void check_dropouts(test_device *d) {
  for (size_t s = 0; s < WEFT_COUNT(SHAPES); s += test_is_gpu(d) ? 3 : 1)
    for (int form = 0; form < TEST_N_FORMS; form++)
      check_dropout(d, test_operand(d, (test_form)form, DTYPES[s % 3], SHAPES[s].rank, SHAPES[s].shape, 1, 2, s));
  check_dropout(d, weft_slice(d->scope, test_operand(d, TEST_WHOLE, WEFT_BF16, TEST_SHAPE(99), 1, 2, 1), 0, 3, 90));
}

static void dropout_drops_what_the_draws_say(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_dropouts);
}

/* The mean of many ones, within five standard deviations; and dropped elements are 0 whatever they were. */
static void check_dropout_mean(test_device *d) {
  enum { N = 1 << 14 };
  weft_tensor *a = weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(N));
  weft_fill(d->scope, a, &(weft_fill_attrs){1});
  float *y = test_read(weft_dropout(d->scope, a, &DROP));
  double sum = 0;
  for (int i = 0; i < N; i++) sum += (double)y[i];
  double variance = (double)DROP.p / (double)(1 - DROP.p);
  assert_true(fabs(sum / N - 1) < 5 * sqrt(variance / N));
  weft_fill(d->scope, a, &(weft_fill_attrs){NAN});
  float *none = test_read(weft_dropout(d->scope, a, &DROP));
  for (int i = 0; i < N; i++) assert_true(y[i] == 0 ? none[i] == 0 : isnan(none[i]));
  float *all = test_read(weft_dropout(d->scope, a, &(weft_dropout_attrs){.p = 0}));
  for (int i = 0; i < N; i++) assert_true(isnan(all[i]));
  free(y);
  free(none);
  free(all);
}

static void dropout_keeps_the_mean(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_dropout_mean);
}

/* The gradient of sum(dy * dropout(a)) by a is dropout(dy). */
static void check_dropout_gradient(test_device *d) {
  const int64_t n = 65;
  double *dy, *in[] = {test_doubles((size_t)n)};
  for (int64_t e = 0; e < n; e++) in[0][e] = 1 + (double)e / 8;
  weft_tensor *upstream = test_random(d, TEST_SHAPE(5, 13), 1, 7);
  dy = test_values(upstream);
  double *want = test_gradient(dropout_formula, &n, in, 0, (size_t)n, dy, (size_t)n);
  test_compare("dropout's gradient", d, weft_dropout(d->scope, upstream, &DROP), want, NULL, 1e-7, 1e-6);
  free(want);
  free(dy);
  free(in[0]);
}

static void dropout_is_its_own_gradient(void **state) {
  (void)state;
  test_each_device(1, check_dropout_gradient);
}

/* ---- windows ---- */

#ifdef WEFT_GPU

/* The same where a binding holds 3072 words at the most: everything goes in several dispatches. */
static void check_windows(test_device *d) {
  weft__gpu_of(d->device->backend)->info.limits.max_binding_bytes = 16384;
  check_turned(d);
  for (size_t t = 0; t < WEFT_COUNT(DTYPES); t++) {
    check_place(d, DTYPES[t], 9001, 3, 8995);
    weft_tensor *a = test_operand(d, TEST_TURNED, DTYPES[t], TEST_SHAPE(61, 201), 1, 2, t);
    check_cast(d, a, DTYPES[(t + 1) % WEFT_COUNT(DTYPES)]);
    if (DTYPES[t] != WEFT_I32) check_dropout(d, a);
    check_concat(d, a, test_operand(d, TEST_COLUMNS, DTYPES[t], TEST_SHAPE(61, 100), -1, 1, 2), 1);
    a = test_operand(d, TEST_WHOLE, DTYPES[t], TEST_SHAPE(9003), 1, 2, t);
    check_cast(d, a, DTYPES[(t + 1) % WEFT_COUNT(DTYPES)]);
    if (DTYPES[t] != WEFT_I32) check_dropout(d, a);
  }
}

#endif

static void what_is_beyond_a_binding_is_cut(void **state) {
  (void)state;
#ifdef WEFT_GPU
  test_each_gpu(WEFT_EXACT, check_windows);
#endif
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(casts_and_copies_of_any_view),     cmocka_unit_test(casts_end_where_the_type_does),
      cmocka_unit_test(concat_joins_along_any_axis),      cmocka_unit_test(special_values_are_copied),
      cmocka_unit_test(rows_are_copied_in_place),         cmocka_unit_test(fill_sets_every_element),
      cmocka_unit_test(draws_are_their_formulas),         cmocka_unit_test(draws_are_distributed),
      cmocka_unit_test(draws_leave_the_end_out),          cmocka_unit_test(permuted_tensors_are_made_contiguous),
      cmocka_unit_test(what_is_beyond_a_binding_is_cut),  cmocka_unit_test(neighbours_of_what_is_set_stay),
      cmocka_unit_test(dropout_drops_what_the_draws_say), cmocka_unit_test(dropout_keeps_the_mean),
      cmocka_unit_test(dropout_is_its_own_gradient),
  };
  return cmocka_run_group_tests_name("ops_copy", tests, NULL, NULL);
}
