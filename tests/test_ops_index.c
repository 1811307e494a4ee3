/* test_ops_index.c - the operators that work by index: gather, scatter_add, top_k, embed and its
 * gradient. */
#include "support/gradient.h"
#include "support/tensors.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 2 };

/* Indices of a shape, each in [0, n), many of them repeated. */
static weft_tensor *random_indices(test_device *d, test_form form, int rank, const int64_t *shape, int64_t n,
                                   uint64_t seed) {
  return test_operand(d, form, WEFT_I32, rank, shape, 0, (double)n, seed);
}

/* ---- gather ---- */

/* Place in `t` of the element that a result of this shape has at `index`, with index `along` on the axis. */
static int64_t place_of(const weft_tensor *t, const int64_t *index, int axis, int64_t along) {
  int64_t place = 0;
  for (int i = 0; i < t->rank; i++) place = place * t->shape[i] + (i == axis ? along : t->shape[i] == 1 ? 0 : index[i]);
  return place;
}

/* The index on every axis of element e in row-major order. */
static void unravel(int rank, const int64_t *shape, int64_t e, int64_t *index) {
  for (int i = rank - 1; i >= 0; i--) {
    index[i] = e % shape[i];
    e /= shape[i];
  }
}

static void check_gather(test_device *d, weft_tensor *a, weft_tensor *b, int axis) {
  int64_t shape[WEFT_MAX_RANK], index[WEFT_MAX_RANK];
  for (int i = 0; i < a->rank; i++) shape[i] = i == axis || a->shape[i] == 1 ? b->shape[i] : a->shape[i];
  weft_tensor *y = weft_gather(d->scope, a, b, &(weft_gather_attrs){axis});
  test_expect_shape("gather", y, a->dtype, a->rank, shape);
  double *x = test_values(a), *indices = test_values(b), *want = test_doubles((size_t)weft_tensor_numel(y));
  for (int64_t e = 0; e < weft_tensor_numel(y); e++) {
    unravel(a->rank, shape, e, index);
    int64_t along = (int64_t)indices[place_of(b, index, axis, index[axis])];
    want[e] = x[place_of(a, index, axis, along)];
  }
  test_expect_values("gather", d, y, want, 0);
  free(x);
  free(indices);
  free(want);
}

/* Operands of gather; for scatter_add a, b and terms of b's extent along the axis. */
static const struct {
  int rank, axis;
  int64_t a[4], b[4];
} CASES[] = {
    {1, 0, {7}, {65}},
    {1, 0, {7}, {0}},
    {1, 0, {0}, {0}},
    {1, 0, {1}, {1500}},
    {2, 0, {9, 33}, {20, 1}}, /* whole rows */
    {2, 0, {9, 300}, {200, 1}},
    {2, 0, {9, 33}, {4, 33}},
    {2, 1, {9, 33}, {9, 70}},
    {2, 1, {9, 33}, {1, 5}}, /* the same places of every row */
    {2, 1, {9, 33}, {9, 0}},
    {2, 0, {5, 0}, {3, 1}},
    {3, 0, {4, 5, 6}, {7, 1, 1}},
    {3, 1, {4, 5, 6}, {4, 7, 6}},
    {3, 1, {4, 5, 6}, {1, 7, 1}},
    {3, 2, {4, 5, 6}, {4, 1, 9}},
    {4, 2, {2, 3, 4, 5}, {1, 3, 6, 5}},
};

static void check_gathers(test_device *d) {
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16, WEFT_I32};
  for (size_t i = 0; i < WEFT_COUNT(CASES); i++)
    for (int form = test_is_gpu(d) ? (int)i % 4 : 0; form < TEST_N_FORMS * TEST_N_FORMS;
         form += test_is_gpu(d) ? 4 : 1) {
      weft_dtype dtype = dtypes[(i + (size_t)form) % WEFT_COUNT(dtypes)];
      weft_tensor *a = test_operand(d, form % TEST_N_FORMS, dtype, CASES[i].rank, CASES[i].a, -9, 9, i);
      weft_tensor *b = random_indices(d, form / TEST_N_FORMS, CASES[i].rank, CASES[i].b, CASES[i].a[CASES[i].axis], i);
      check_gather(d, a, b, CASES[i].axis);
    }
  /* An operand that is broadcast itself. */
  check_gather(d, test_random(d, TEST_SHAPE(1, 6), 1, 1), random_indices(d, TEST_WHOLE, TEST_SHAPE(4, 3), 6, 2), 1);
}

static void gather_takes_by_index(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_gathers);
}

/* ---- scatter_add ---- */

/* In f32, in the order of the indices: known to the bit, but on a GPU, where the order is open: within an error that grows
 * with what was summed and is far below any one term. */
static void check_scatter(test_device *d, weft_tensor *a, weft_tensor *b, weft_tensor *c, int axis) {
  int64_t index[WEFT_MAX_RANK], n = weft_tensor_numel(a);
  weft_tensor *y = weft_scatter_add(d->scope, a, b, c, &(weft_scatter_add_attrs){axis});
  test_expect_shape("scatter_add", y, WEFT_F32, a->rank, a->shape);
  double *want = test_values(a), *indices = test_values(b), *terms = test_values(c), *open = test_doubles((size_t)n);
  for (int64_t e = 0; e < weft_tensor_numel(c); e++) { /* ascending along the axis for each place */
    unravel(c->rank, c->shape, e, index);
    int64_t to = place_of(a, index, axis, (int64_t)indices[place_of(b, index, axis, index[axis])]);
    want[to] = (double)((float)want[to] + (float)terms[e]);
    if (test_is_gpu(d)) open[to] += fabs(terms[e]) * 0x1p-23;
  }
  test_compare("scatter_add", d, y, want, open, 0, 0);
  free(want);
  free(open);
  free(indices);
  free(terms);
}

static void check_scatters(test_device *d) {
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
  for (size_t i = 0; i < WEFT_COUNT(CASES); i++)
    for (int form = test_is_gpu(d) ? (int)i % 4 : 0; form < TEST_N_FORMS * TEST_N_FORMS;
         form += test_is_gpu(d) ? 4 : 1) {
      int rank = CASES[i].rank, axis = CASES[i].axis;
      int64_t terms[4];
      memcpy(terms, CASES[i].a, sizeof terms);
      terms[axis] = CASES[i].b[axis];
      weft_tensor *a = test_operand(d, form % TEST_N_FORMS, dtypes[i % 3], rank, CASES[i].a, -9, 9, i);
      weft_tensor *b = random_indices(d, form / TEST_N_FORMS, rank, CASES[i].b, CASES[i].a[axis], i);
      weft_tensor *c =
          test_operand(d, (form + 1) % TEST_N_FORMS, dtypes[(i + (size_t)form) % 3], rank, terms, -9, 9, i + 50);
      check_scatter(d, a, b, c, axis);
    }
}

static void scatter_adds_every_term(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_scatters);
}

/* What gather and scatter_add refuse: they name the index and where it stands. */
static void check_index_refusals(test_device *d) {
  static const int32_t wrong[] = {-1, 10, INT32_MAX, INT32_MIN};
  weft_tensor *a = test_random(d, TEST_SHAPE(10, 4), 1, 1), *c = test_random(d, TEST_SHAPE(3, 4), 1, 2);
  for (size_t i = 0; i < WEFT_COUNT(wrong); i++)
    for (int place = 0; place < 3; place++) {
      int32_t indices[3] = {0, 9, 5};
      indices[place] = wrong[i];
      weft_tensor *b = weft_reshape(d->scope, test_i32(d, 3, indices), TEST_SHAPE(3, 1));
      char text[96];
      for (int is_scatter = 0; is_scatter < 2; is_scatter++) {
        weft__error(WEFT_EIO, "left from an earlier check");
        snprintf(text, sizeof text, "%s: index %d (element %d of b) is outside the 10 elements of axis 0",
                 is_scatter ? "scatter_add" : "gather", (int)wrong[i], place);
        test_expect_fault(d,
                          is_scatter ? weft_scatter_add(d->scope, a, b, c, &(weft_scatter_add_attrs){0})
                                     : weft_gather(d->scope, a, b, &(weft_gather_attrs){0}),
                          text);
      }
    }
}

/* An axis of more places than an i32 reaches, all of them one row. */
static void check_endless_axis(test_device *d) {
  static const int32_t indices[] = {0, 7, INT32_MAX};
  weft_tensor *row = test_random(d, TEST_SHAPE(1, 4), 1, 1), rows = *row;
  rows.shape[0] = ((int64_t)1 << 32) + 5;
  rows.strides[0] = 0;
  weft_tensor *b = weft_reshape(d->scope, test_i32(d, 3, indices), TEST_SHAPE(3, 1));
  double *one = test_values(row), *want = test_doubles(3 * 4);
  for (int i = 0; i < 3 * 4; i++) want[i] = one[i % 4];
  test_compare("gather", d, weft_gather(d->scope, &rows, b, &(weft_gather_attrs){0}), want, NULL, 0, 0);
  free(one);
  free(want);
}

static void gather_reaches_as_far_as_indices(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_endless_axis);
}

/* Of two operators with wrong indices a GPU tells of the first, with its own numbers. */
static void check_first_of_two(test_device *d) {
  static const int32_t indices[] = {12, 34};
  weft_tensor *a = test_random(d, TEST_SHAPE(10, 4), 1, 1), *c = test_random(d, TEST_SHAPE(1, 4), 1, 2), *b[2];
  for (int i = 0; i < 2; i++) b[i] = weft_reshape(d->scope, test_i32(d, 1, &indices[i]), TEST_SHAPE(1, 1));
  for (int is_scatter_first = 0; is_scatter_first < 2; is_scatter_first++) {
    for (int i = 0; i < 2; i++) {
      weft_tensor *y = i == is_scatter_first ? weft_gather(d->scope, a, b[i], &(weft_gather_attrs){0})
                                             : weft_scatter_add(d->scope, a, b[i], c, &(weft_scatter_add_attrs){0});
      assert_non_null(y);
    }
    assert_int_equal(weft_device_sync(d->device), WEFT_EINVAL);
    assert_string_equal(weft_last_error(),
                        is_scatter_first ? "scatter_add: index 12 (element 0 of b) is outside the 10 elements of axis 0"
                                         : "gather: index 12 (element 0 of b) is outside the 10 elements of axis 0");
    assert_int_equal(weft_device_sync(d->device), WEFT_OK);
  }
}

static void a_gpu_tells_of_the_first(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_first_of_two);
}

/* A write of part of a word reads the word first; what is told then is not the writer's. */
static void check_writes_tell_nothing(test_device *d) {
  const uint16_t halves[] = {0x3c00, 0x4000, 0x4200};
  const int32_t wrong = 12;
  uint16_t read[3];
  weft_tensor *a = test_random(d, TEST_SHAPE(10, 4), 1, 1), *y = weft_tensor_new(d->scope, WEFT_F16, TEST_SHAPE(3));
  weft_tensor *b = weft_reshape(d->scope, test_i32(d, 1, &wrong), TEST_SHAPE(1, 1));
  assert_non_null(weft_gather(d->scope, a, b, &(weft_gather_attrs){0}));
  assert_int_equal(weft_tensor_write(y, halves, sizeof halves), WEFT_OK);
  assert_int_equal(weft_device_sync(d->device), WEFT_EINVAL);
  assert_int_equal(weft_tensor_read(y, read, sizeof read), WEFT_OK);
  assert_memory_equal(read, halves, sizeof halves);
}

static void a_gpu_tells_no_writer_of_faults(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_writes_tell_nothing);
}

static void indices_outside_are_named(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_index_refusals);
}

/* A GPU goes on with what follows a wrong index, tells of one that is wrong at the next read, whatever is read, once, and
 * leaves what the right ones fetched. */
static void check_late_telling(test_device *d) {
  const int32_t indices[] = {2, 70, 1, -5}, right[] = {2, 0, 1, 2};
  weft_tensor *a = test_random(d, TEST_SHAPE(3, 300), 1, 1), *other = test_random(d, TEST_SHAPE(5), 1, 2);
  weft_tensor *b = weft_reshape(d->scope, test_i32(d, 4, indices), TEST_SHAPE(4, 1));
  float read[4 * 300], *all = test_read(a);
  weft_tensor *y = weft_gather(d->scope, a, b, &(weft_gather_attrs){0});
  assert_int_equal(weft_device_flush(d->device), WEFT_OK);
  weft_tensor *sum = weft_add(d->scope, other, other);
  assert_int_equal(weft_tensor_read(sum, read, 5 * sizeof *read), WEFT_EINVAL);
  assert_non_null(strstr(weft_last_error(), "gather: index "));
  assert_non_null(strstr(weft_last_error(), " of b) is outside the 3 elements of axis 0"));
  assert_int_equal(weft_tensor_read(sum, read, 5 * sizeof *read), WEFT_OK);
  assert_int_equal(weft_tensor_read(y, read, sizeof read), WEFT_OK);
  assert_memory_equal(read, all + 2 * 300, 300 * sizeof *read);
  assert_memory_equal(read + 2 * 300, all + 300, 300 * sizeof *read);
  b = weft_reshape(d->scope, test_i32(d, 4, right), TEST_SHAPE(4, 1));
  check_gather(d, a, b, 0);
  free(all);
}

static void a_gpu_tells_of_indices_at_the_next_read(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_late_telling);
}

/* ---- top_k ---- */

/* Of lines along the axis: each place that is chosen beats, or comes before, all that follow and all that are not. */
static void check_top_k(test_device *d, weft_tensor *a, int axis, int64_t k) {
  weft_tensor *y = weft_top_k(d->scope, a, &(weft_top_k_attrs){axis, k});
  int64_t shape[WEFT_MAX_RANK], n = a->shape[axis], n_inner = 1;
  memcpy(shape, a->shape, sizeof shape);
  shape[axis] = k;
  test_expect_shape("top_k", y, WEFT_I32, a->rank, shape);
  for (int i = axis + 1; i < a->rank; i++) n_inner *= a->shape[i];
  double *x = test_values(a), *places = test_values(y), *want = test_doubles((size_t)weft_tensor_numel(y));
  for (int64_t line = 0; line < weft_tensor_numel(a) / (n ? n : 1); line++) {
    int64_t from = line / n_inner * n * n_inner + line % n_inner, to = line / n_inner * k * n_inner + line % n_inner;
    for (int64_t i = 0; i < n; i++) { /* its rank: how many come before it */
      int64_t rank = 0;
      double own = x[from + i * n_inner];
      for (int64_t j = 0; j < n; j++) {
        double other = x[from + j * n_inner];
        bool is_equal = other == own || (isnan(other) && isnan(own));
        rank += is_equal ? j < i : isnan(other) || (!isnan(own) && other > own);
      }
      if (rank < k) want[to + rank * n_inner] = (double)i;
    }
  }
  test_expect_values("top_k", d, y, want, 0);
  free(x);
  free(places);
  free(want);
}

static void check_top_ks(test_device *d) {
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
  static const struct {
    int rank, axis;
    int64_t shape[3], k;
  } cases[] = {
      {1, 0, {1}, 1},     {1, 0, {7}, 1},         {1, 0, {7}, 7},        {1, 0, {257}, 40},  {2, 1, {3, 65}, 5},
      {2, 0, {65, 3}, 5}, {3, 1, {2, 33, 4}, 33}, {3, 0, {33, 2, 4}, 2}, {2, 1, {0, 65}, 5}, {2, 1, {40, 300}, 10},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i += test_is_gpu(d) ? 3 : 1)
    for (int form = 0; form < TEST_N_FORMS; form++)
      for (size_t t = 0; t < WEFT_COUNT(dtypes); t += test_is_gpu(d) ? 3 : 1) {
        int64_t width = (int64_t)i % 2 ? 4 : 1000; /* a few values only: many equals */
        weft_tensor *a =
            test_operand(d, (test_form)form, WEFT_I32, cases[i].rank, cases[i].shape, 0, (double)width, 7 * i + t);
        check_top_k(d, weft_cast(d->scope, a, &(weft_cast_attrs){dtypes[t]}), cases[i].axis, cases[i].k);
        check_top_k(d, test_operand(d, (test_form)form, dtypes[t], cases[i].rank, cases[i].shape, -1, 1, i),
                    cases[i].axis, cases[i].k);
      }
  const float special[] = {1, NAN, -INFINITY, INFINITY, NAN, 0.0f, -0.0f, 1};
  check_top_k(d, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(8), special), 0, 8);
}

/* Lines of many blocks, with few of them wanted (sorted again), half a block and most of them (merged). */
static void check_long_top_ks(test_device *d) {
  static const struct {
    int axis;
    int64_t shape[2], k;
  } cases[] = {{1, {1, 4100}, 40}, {0, {2500, 1}, 1}, {1, {1, 3100}, 600}, {0, {2100, 1}, 2100}, {1, {2, 1025}, 1025}};
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    double width = i % 2 ? 30 : 1e6;
    weft_tensor *a = test_operand(d, TEST_COLUMNS, WEFT_I32, 2, cases[i].shape, 0, width, i);
    check_top_k(d, weft_cast(d->scope, a, &(weft_cast_attrs){WEFT_F32}), cases[i].axis, cases[i].k);
  }
}

static void top_k_ranks(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_top_ks);
  test_each_device(N_THREADS, check_long_top_ks);
}

/* The elements themselves: gather at what top_k chose. */
static void check_top_values(test_device *d) {
  weft_tensor *a = test_random(d, TEST_SHAPE(4, 100), 1, 1);
  weft_tensor *places = weft_top_k(d->scope, a, &(weft_top_k_attrs){1, 3});
  double *top = test_values(weft_gather(d->scope, a, places, &(weft_gather_attrs){1}));
  float *most = test_read(weft_max(d->scope, a, &(weft_max_attrs){1, {1}, 0}));
  for (int row = 0; row < 4; row++) {
    assert_true(top[3 * row] == (double)most[row]);
    assert_true(top[3 * row] >= top[3 * row + 1] && top[3 * row + 1] >= top[3 * row + 2]);
  }
  free(top);
  free(most);
}

static void top_k_and_gather_give_values(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_top_values);
}

/* ---- embed ---- */

/* A quantised element is d*q (+ m) in f32: d*q is exact there, so rounding the exact value once gives the same bits.  Not so
 * with integer scales: test_quant.c compares these formats with values of another program. */
static void check_embed_ids(test_device *d, weft_tensor *table, const double *values, int64_t n, uint64_t seed) {
  int64_t n_rows = weft_tensor_shape(table)[0], n_cols = weft_tensor_shape(table)[1];
  int32_t *ids = test_alloc((size_t)n, sizeof *ids);
  double *want = test_doubles((size_t)(n * n_cols));
  for (int64_t i = 0; i < n; i++) {
    ids[i] = i == 0 ? (int32_t)n_rows - 1 : (int32_t)(weft__rng_uniform(seed, (uint64_t)i, 0) * (double)n_rows);
    for (int64_t c = 0; c < n_cols; c++) want[i * n_cols + c] = (double)(float)values[ids[i] * n_cols + c];
  }
  weft_tensor *y = weft_embed(d->scope, table, test_i32(d, n, ids));
  test_expect_shape("embed", y, WEFT_F32, TEST_SHAPE(n, n_cols));
  test_compare(weft_dtype_name(weft_tensor_dtype(table)), d, y, want, NULL, 0, 0);
  free(ids);
  free(want);
}

static void check_embed_dtypes(test_device *d) {
  enum { N_ROWS = 37, N_COLS = 96 };
  static const weft_dtype dtypes[] = {WEFT_F32,  WEFT_F16,  WEFT_BF16, WEFT_Q8_0,   WEFT_Q4_0,
                                      WEFT_Q4_1, WEFT_Q5_0, WEFT_Q5_1, WEFT_IQ4_NL, WEFT_MXFP4};
  double *values = test_doubles(N_ROWS * N_COLS);
  for (size_t t = 0; t < WEFT_COUNT(dtypes); t++) {
    void *stored = test_stored_weight(dtypes[t], N_ROWS, N_COLS, 11 + t, values);
    weft_tensor *loaded =
        weft__weight_load(d->scope, dtypes[t], TEST_SHAPE(N_ROWS, N_COLS), stored, WEFT__WEIGHT_PLAIN, NULL);
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
      double *values = test_doubles((size_t)(shapes[i][0] * shapes[i][1]));
      void *stored = test_stored_weight(dtypes[t], shapes[i][0], shapes[i][1], i, values);
      check_embed_ids(d, weft_tensor_from(d->scope, dtypes[t], 2, shapes[i], stored), values, 6, i);
      free(stored);
      free(values);
    }
}

/* Formats with integer scales: a GPU's rows are the CPU's but for a last place, where a product may be fused with a sum. */
static void check_embed_super_blocks(test_device *d) {
  enum { N_ROWS = 5, N_COLS = 512 };
  static const weft_dtype dtypes[] = {WEFT_Q2_K, WEFT_Q3_K, WEFT_Q4_K, WEFT_Q5_K, WEFT_Q6_K, WEFT_IQ4_XS};
  static const int32_t ids[] = {4, 0, 3, 3, 1, 2};
  double *values = test_doubles(N_ROWS * N_COLS), *want = test_doubles(WEFT_COUNT(ids) * N_COLS);
  double *tolerance = test_doubles(WEFT_COUNT(ids) * N_COLS);
  for (size_t t = 0; t < WEFT_COUNT(dtypes); t++) {
    void *stored = test_stored_weight(dtypes[t], N_ROWS, N_COLS, 3 + t, values);
    for (size_t e = 0; e < WEFT_COUNT(ids) * N_COLS; e++) { /* the minimum is at most 0.05 * 63, rounded to f32 */
      want[e] = values[ids[e / N_COLS] * N_COLS + (int64_t)e % N_COLS];
      tolerance[e] = (fabs(want[e]) + 4) * 2 * TEST_ROUNDING;
    }
    weft_tensor *table = weft_tensor_from(d->scope, dtypes[t], TEST_SHAPE(N_ROWS, N_COLS), stored);
    weft_tensor *y = weft_embed(d->scope, table, test_i32(d, WEFT_COUNT(ids), ids));
    test_compare(weft_dtype_name(dtypes[t]), d, y, want, tolerance, 0, 0);
    free(stored);
  }
  free(values);
  free(want);
  free(tolerance);
}

static void embed_looks_rows_up_in_every_dtype(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_embed_dtypes);
  test_each_device(N_THREADS, check_embed_widths);
  test_each_device(N_THREADS, check_embed_super_blocks);
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
      snprintf(text, sizeof text, "embed: id %d is outside the table's 10 rows", (int)wrong[i]);
      test_expect_fault(d, weft_embed(d->scope, table, test_i32(d, 3, ids)), text);
      snprintf(text, sizeof text, "embed_grad: id %d is outside the table's 10 rows", (int)wrong[i]);
      weft_tensor *dy = test_random(d, TEST_SHAPE(3, 4), 1, 2);
      test_expect_fault(d, weft_embed_grad(d->scope, test_i32(d, 3, ids), dy, &(weft_embed_grad_attrs){10}), text);
    }
  const int32_t first = 0;
  test_expect_fault(d, weft_embed(d->scope, test_random(d, TEST_SHAPE(0, 4), 1, 1), test_i32(d, 1, &first)),
                    "embed: id 0 is outside the table's 0 rows");
}

/* The result of an operator that failed goes back at once, not when its scope closes.  (On a GPU none fails so.) */
static void check_embed_failure_memory(test_device *d) {
  if (test_is_gpu(d)) return;
  const int32_t outside = 10;
  weft_tensor *table = test_random(d, TEST_SHAPE(10, 1000), 1, 1), *ids = test_i32(d, 1, &outside);
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

/* ---- embed_grad ---- */

/* Tokens of which some are repeated, from one id on. */
static void check_embed_grad_of(test_device *d, test_form form, weft_dtype dtype, int64_t n, int64_t n_rows,
                                int64_t n_cols, int64_t n_ids) {
  weft_tensor *ids = random_indices(d, TEST_WHOLE, TEST_SHAPE(n), n_ids, (uint64_t)n);
  weft_tensor *dy = test_operand(d, form, dtype, TEST_SHAPE(n, n_cols), -9, 9, (uint64_t)n_cols);
  weft_tensor *y = weft_embed_grad(d->scope, ids, dy, &(weft_embed_grad_attrs){n_rows});
  test_expect_shape("embed_grad", y, WEFT_F32, TEST_SHAPE(n_rows, n_cols));
  size_t numel = (size_t)(n_rows * n_cols);
  double *id = test_values(ids), *terms = test_values(dy), *want = test_doubles(numel), *open = test_doubles(numel);
  for (int64_t e = 0; e < n * n_cols; e++) {
    int64_t to = (int64_t)id[e / n_cols] * n_cols + e % n_cols;
    want[to] = (double)((float)want[to] + (float)terms[e]);
    if (test_is_gpu(d)) open[to] += fabs(terms[e]) * 0x1p-23;
  }
  test_compare("embed_grad", d, y, want, open, 0, 0);
  free(id);
  free(terms);
  free(want);
  free(open);
}

static void check_embed_grads(test_device *d) {
  static const struct {
    int64_t n, n_rows, n_cols, n_ids;
  } cases[] = {{0, 5, 7, 5},      {1, 1, 1, 1},    {7, 65, 63, 65}, {65, 3, 257, 3}, {300, 9, 33, 1},  {257, 1, 1, 1},
               {63, 257, 65, 40}, {1500, 7, 3, 7}, {5, 4, 0, 4},    {0, 0, 3, 1},    {40, 50, 768, 30}};
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    for (int form = 0; form < TEST_N_FORMS; form++)
      check_embed_grad_of(d, (test_form)form, dtypes[(i + (size_t)form) % 3], cases[i].n, cases[i].n_rows,
                          cases[i].n_cols, cases[i].n_ids);
}

static void embed_grad_sums_rows(void **state) {
  (void)state;
  test_each_device(1, check_embed_grads);
  test_each_device(5, check_embed_grads);
}

enum { GRAD_TOKENS = 6, GRAD_ROWS = 4, GRAD_COLS = 3 };
static const int32_t GRAD_IDS[GRAD_TOKENS] = {2, 0, 2, 3, 2, 0};

/* embed in double. */
static void embed_formula(const void *context, const double *const *in, double *y) {
  (void)context;
  for (int e = 0; e < GRAD_TOKENS * GRAD_COLS; e++) y[e] = in[0][GRAD_IDS[e / GRAD_COLS] * GRAD_COLS + e % GRAD_COLS];
}

static void check_embed_gradient(test_device *d) {
  weft_tensor *dy = test_random(d, TEST_SHAPE(GRAD_TOKENS, GRAD_COLS), 1, 1);
  double *table = test_doubles(GRAD_ROWS * GRAD_COLS), *weights = test_values(dy);
  double *want = test_gradient(embed_formula, NULL, (double *[]){table}, 0, GRAD_ROWS * GRAD_COLS, weights,
                               GRAD_TOKENS * GRAD_COLS);
  weft_tensor *y =
      weft_embed_grad(d->scope, test_i32(d, GRAD_TOKENS, GRAD_IDS), dy, &(weft_embed_grad_attrs){GRAD_ROWS});
  test_compare("embed_grad", d, y, want, NULL, 1e-6, 0);
  free(table);
  free(weights);
  free(want);
}

static void embed_grad_is_the_gradient_of_embed(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_embed_gradient);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gather_takes_by_index),
      cmocka_unit_test(scatter_adds_every_term),
      cmocka_unit_test(indices_outside_are_named),
      cmocka_unit_test(top_k_ranks),
      cmocka_unit_test(top_k_and_gather_give_values),
      cmocka_unit_test(embed_looks_rows_up_in_every_dtype),
      cmocka_unit_test(embed_refuses_ids_outside),
      cmocka_unit_test(a_gpu_tells_of_indices_at_the_next_read),
      cmocka_unit_test(gather_reaches_as_far_as_indices),
      cmocka_unit_test(a_gpu_tells_of_the_first),
      cmocka_unit_test(a_gpu_tells_no_writer_of_faults),
      cmocka_unit_test(embed_grad_sums_rows),
      cmocka_unit_test(embed_grad_is_the_gradient_of_embed),
  };
  return cmocka_run_group_tests_name("ops_index", tests, NULL, NULL);
}
