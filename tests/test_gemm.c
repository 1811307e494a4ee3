/* test_gemm.c - matmul on every variant of the CPU's code and on GPUs, against sums in double; what its results must not
 * depend on; and the CPU's products over plain memory.
 *
 * A sum of k products of f32 numbers is allowed 2^-24 * (4 + sqrt(k)) of the sum of the products' magnitudes: each of its
 * roundings may be off by 2^-24 of a partial sum, and they seldom all point one way.  The scalar variant sums in double
 * and rounds once, so it is allowed one rounding, wherever it runs.  New buffers are full of NaN, so an element that a
 * product leaves out fails as well. */
#include "support/tensors.h"

#include "base/rng.h"
#include "cpu/gemm.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N_THREADS = 2 };

static const double ROUNDING = 0x1p-24;

static bool is_cpu(const test_device *d) { return strncmp(d->variant, "gpu", 3) != 0; }

/* ---- references ---- */

/* Numbers that a position alone decides, so that a matrix and its transpose hold the same. */
static float number_at(uint64_t seed, uint64_t index) { return (float)(2 * weft__rng_uniform(seed, index, 3) - 1); }

/* A sum in double and what it may be off by. */
typedef struct sums {
  double *want, *tolerance;
} sums;

static sums alloc_sums(int64_t n) {
  return (sums){test_alloc((size_t)n, sizeof(double)), test_alloc((size_t)n, sizeof(double))};
}

static void free_sums(sums *s) {
  free(s->want);
  free(s->tolerance);
}

/* Sum number `index`: of k products of a[i * a_step] and b[i * b_step]. */
static void add_up(sums *s, int64_t index, int64_t k, const float *a, int64_t a_step, const float *b, int64_t b_step) {
  double sum = 0, magnitude = 0;
  for (int64_t i = 0; i < k; i++) {
    double term = (double)a[i * a_step] * (double)b[i * b_step];
    sum += term;
    magnitude += fabs(term);
  }
  s->want[index] = sum;
  s->tolerance[index] = magnitude * ROUNDING * (4 + sqrt((double)k));
}

static void check_sums(const char *what, const test_device *d, const weft_tensor *y, const sums *s) {
  bool rounds_once = strcmp(d->variant, "scalar") == 0;
  test_compare(what, d, y, s->want, rounds_once ? NULL : s->tolerance, 0x1p-149, 1.001 * ROUNDING);
}

/* ---- shapes and layouts ---- */

static const int64_t SIZES[] = {0, 1, 7, 63, 65, 257};
enum { N_SIZES = WEFT_COUNT(SIZES) };

/* References for every [m,k] @ [k,n], computed once for all devices. */
static struct {
  float *a, *b;
  sums sums[N_SIZES * N_SIZES * N_SIZES]; /* by grid_place */
} grid;

static int grid_place(int m, int n, int k) { return (m * N_SIZES + n) * N_SIZES + k; }

/* a [m,k] and b [k,n] are the upper left corners of two large matrices. */
enum { LARGEST = 257 };

static void make_grid(void) {
  grid.a = test_alloc(LARGEST * LARGEST, sizeof(float));
  grid.b = test_alloc(LARGEST * LARGEST, sizeof(float));
  for (uint64_t i = 0; i < LARGEST * LARGEST; i++) grid.a[i] = number_at(1, i), grid.b[i] = number_at(2, i);
  for (int m = 0; m < N_SIZES; m++)
    for (int n = 0; n < N_SIZES; n++)
      for (int k = 0; k < N_SIZES; k++) {
        sums s = alloc_sums(SIZES[m] * SIZES[n]);
        for (int64_t i = 0; i < SIZES[m]; i++)
          for (int64_t j = 0; j < SIZES[n]; j++)
            add_up(&s, i * SIZES[n] + j, SIZES[k], grid.a + i * LARGEST, 1, grid.b + j, LARGEST);
        grid.sums[grid_place(m, n, k)] = s;
      }
}

static void free_grid(void) {
  free(grid.a);
  free(grid.b);
  for (int i = 0; i < N_SIZES * N_SIZES * N_SIZES; i++) free_sums(&grid.sums[i]);
}

/* The corner [rows,cols] of a large matrix as a tensor of its own, or its transpose. */
static weft_tensor *corner(test_device *d, const float *large, int64_t rows, int64_t cols, bool is_transposed) {
  float *data = test_alloc((size_t)(rows * cols), sizeof *data);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) data[is_transposed ? j * rows + i : i * cols + j] = large[i * LARGEST + j];
  weft_tensor *t = is_transposed ? weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(cols, rows), data)
                                 : weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(rows, cols), data);
  assert_non_null(t);
  free(data);
  return t;
}

static void check_layouts(test_device *d, int m, int n, int k) {
  for (int layout = 0; layout < 4; layout++) {
    const weft_matmul_attrs attrs = {.transpose_a = layout / 2, .transpose_b = layout % 2};
    char what[64];
    snprintf(what, sizeof what, "matmul %s%s %lldx%lldx%lld", attrs.transpose_a ? "T" : "N",
             attrs.transpose_b ? "T" : "N", (long long)SIZES[m], (long long)SIZES[k], (long long)SIZES[n]);
    weft_tensor *a = corner(d, grid.a, SIZES[m], SIZES[k], attrs.transpose_a);
    weft_tensor *b = corner(d, grid.b, SIZES[k], SIZES[n], attrs.transpose_b);
    weft_tensor *y = weft_matmul(d->scope, a, b, &attrs);
    check_sums(what, d, y, &grid.sums[grid_place(m, n, k)]);
    weft_tensor_free(y);
    weft_tensor_free(a);
    weft_tensor_free(b);
  }
}

static void check_sizes(test_device *d) {
  for (int m = 0; m < N_SIZES; m++)
    for (int n = 0; n < N_SIZES; n++)
      for (int k = 0; k < N_SIZES; k++) check_layouts(d, m, n, k);
}

static void products_of_any_size_and_layout(void **state) {
  (void)state;
  make_grid();
  test_each_device(N_THREADS, check_sizes);
  free_grid();
}

/* ---- any tensors: the reference follows NumPy's rule literally ---- */

/* A tensor seen as matrices: extents and strides of rows and columns, of the contiguous copy that test_read makes. */
typedef struct operand {
  const weft_tensor *t;
  int n_leading;
  int64_t rows, cols, row_step, col_step;
} operand;

static operand operand_of(const weft_tensor *t, bool is_b, bool is_transposed) {
  int rank = weft_tensor_rank(t);
  const int64_t *shape = weft_tensor_shape(t);
  if (rank == 1 && is_b) return (operand){t, 0, shape[0], 1, 1, 0};
  if (rank == 1) return (operand){t, 0, 1, shape[0], 0, 1};
  int64_t rows = shape[rank - 2], cols = shape[rank - 1];
  if (is_transposed) return (operand){t, rank - 2, cols, rows, 1, cols};
  return (operand){t, rank - 2, rows, cols, cols, 1};
}

/* Place of the matrix that meets matrix `index` of a result with these leading extents. */
static int64_t matrix_place(const operand *o, int n_leading, const int64_t *leading, int64_t index) {
  int64_t place = 0, step = o->rows * o->cols;
  for (int i = n_leading - 1; i >= 0; i--) {
    int own = i - (n_leading - o->n_leading);
    int64_t extent = own < 0 ? 1 : weft_tensor_shape(o->t)[own];
    if (extent > 1) place += index % leading[i] * step;
    step *= extent;
    index /= leading[i];
  }
  return place;
}

static sums reference(const operand *a, const operand *b, int n_leading, const int64_t *leading) {
  int64_t n_matrices = 1;
  for (int i = 0; i < n_leading; i++) n_matrices *= leading[i];
  float *left = test_read(a->t), *right = test_read(b->t);
  sums s = alloc_sums(n_matrices * a->rows * b->cols);
  for (int64_t e = 0; e < n_matrices * a->rows * b->cols; e++) {
    int64_t matrix = e / (a->rows * b->cols), i = e / b->cols % a->rows, j = e % b->cols;
    add_up(&s, e, a->cols, left + matrix_place(a, n_leading, leading, matrix) + i * a->row_step, a->col_step,
           right + matrix_place(b, n_leading, leading, matrix) + j * b->col_step, b->row_step);
  }
  free(left);
  free(right);
  return s;
}

/* Multiplies and compares; the result's shape must be `rank`, `shape`. */
static void check_product(const char *what, test_device *d, weft_tensor *a, weft_tensor *b,
                          const weft_matmul_attrs *attrs, int rank, const int64_t *shape) {
  operand left = operand_of(a, false, attrs->transpose_a), right = operand_of(b, true, attrs->transpose_b);
  weft_tensor *y = weft_matmul(d->scope, a, b, attrs);
  if (!y) fail_msg("%s (%s): %s", what, d->variant, weft_last_error());
  assert_int_equal(weft_tensor_dtype(y), WEFT_F32);
  assert_int_equal(weft_tensor_rank(y), rank);
  for (int i = 0; i < rank; i++) assert_int_equal(weft_tensor_shape(y)[i], shape[i]);
  int n_leading = rank - (weft_tensor_rank(a) > 1) - (weft_tensor_rank(b) > 1);
  sums s = reference(&left, &right, n_leading, shape);
  check_sums(what, d, y, &s);
  free_sums(&s);
}

static const weft_matmul_attrs PLAIN = {0};

/* ---- broadcasting ---- */

static void check_broadcasting(test_device *d) {
  static const struct {
    int ranks[3];
    int64_t a[8], b[8], y[8];
  } cases[] = {
      {{1, 1, 0}, {9}, {9}, {0}},
      {{1, 1, 0}, {0}, {0}, {0}},
      {{1, 2, 1}, {9}, {9, 33}, {33}},
      {{2, 1, 1}, {33, 9}, {9}, {33}},
      {{1, 3, 2}, {9}, {4, 9, 20}, {4, 20}},
      {{3, 1, 2}, {4, 20, 9}, {9}, {4, 20}},
      {{3, 2, 3}, {4, 13, 9}, {9, 20}, {4, 13, 20}}, /* one matrix for all */
      {{3, 3, 3}, {4, 13, 9}, {1, 9, 20}, {4, 13, 20}},
      {{2, 3, 3}, {13, 9}, {4, 9, 20}, {4, 13, 20}},
      {{3, 3, 3}, {4, 13, 9}, {4, 9, 20}, {4, 13, 20}},
      {{3, 3, 3}, {1, 13, 9}, {4, 9, 20}, {4, 13, 20}},
      {{3, 3, 3}, {4, 1, 9}, {4, 9, 20}, {4, 1, 20}}, /* a row, a column each */
      {{3, 3, 3}, {4, 13, 9}, {4, 9, 1}, {4, 13, 1}},
      {{3, 2, 3}, {5, 1, 9}, {9, 20}, {5, 1, 20}},
      {{3, 3, 3}, {4, 13, 1}, {4, 1, 20}, {4, 13, 20}},
      {{4, 4, 4}, {2, 1, 5, 6}, {1, 3, 6, 7}, {2, 3, 5, 7}},
      {{4, 3, 4}, {2, 3, 5, 6}, {3, 6, 7}, {2, 3, 5, 7}},
      {{4, 3, 4}, {2, 1, 5, 6}, {3, 6, 7}, {2, 3, 5, 7}},
      {{5, 3, 5}, {2, 1, 3, 5, 6}, {1, 6, 7}, {2, 1, 3, 5, 7}},
      {{8, 8, 8}, {2, 1, 2, 1, 2, 1, 3, 4}, {1, 2, 1, 2, 2, 1, 4, 5}, {2, 2, 2, 2, 2, 1, 3, 5}},
      {{8, 1, 7}, {2, 1, 2, 1, 2, 1, 3, 4}, {4}, {2, 1, 2, 1, 2, 1, 3}},
      {{2, 8, 8}, {3, 4}, {2, 1, 2, 1, 2, 1, 4, 5}, {2, 1, 2, 1, 2, 1, 3, 5}},
      {{3, 3, 3}, {0, 3, 4}, {1, 4, 5}, {0, 3, 5}}, /* nothing, in each place */
      {{3, 2, 3}, {0, 3, 4}, {4, 5}, {0, 3, 5}},
      {{3, 3, 3}, {3, 0, 4}, {3, 4, 5}, {3, 0, 5}},
      {{3, 3, 3}, {3, 2, 0}, {3, 0, 5}, {3, 2, 5}},
      {{3, 3, 3}, {3, 2, 4}, {3, 4, 0}, {3, 2, 0}},
      {{3, 3, 3}, {200, 3, 17}, {200, 17, 5}, {200, 3, 5}},     /* more matrices than are handed over at a time */
      {{3, 3, 3}, {3, 200, 170}, {3, 170, 190}, {3, 200, 190}}, /* large enough to be shared out each */
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char what[32];
    snprintf(what, sizeof what, "broadcasting, case %zu", i);
    check_product(what, d, test_random(d, cases[i].ranks[0], cases[i].a, 1, 2 * i),
                  test_random(d, cases[i].ranks[1], cases[i].b, 1, 2 * i + 1), &PLAIN, cases[i].ranks[2], cases[i].y);
  }
  /* Transposes leave leading axes alone, and vectors. */
  const weft_matmul_attrs both = {.transpose_a = 1, .transpose_b = 1};
  check_product("a batch of transposes", d, test_random(d, TEST_SHAPE(2, 1, 9, 13), 1, 1),
                test_random(d, TEST_SHAPE(3, 20, 9), 1, 2), &both, TEST_SHAPE(2, 3, 13, 20));
  check_product("a vector and a transpose", d, test_random(d, TEST_SHAPE(9), 1, 3),
                test_random(d, TEST_SHAPE(20, 9), 1, 4), &both, TEST_SHAPE(20));
  check_product("a transpose and a vector", d, test_random(d, TEST_SHAPE(9, 20), 1, 5),
                test_random(d, TEST_SHAPE(9), 1, 6), &both, TEST_SHAPE(20));
}

static void leading_axes_broadcast(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_broadcasting);
}

/* ---- views ---- */

static weft_tensor *part(test_device *d, weft_tensor *t, int axis, int64_t start, int64_t length) {
  weft_tensor *view = weft_slice(d->scope, t, axis, start, length);
  assert_non_null(view);
  return view;
}

static weft_tensor *turned(test_device *d, weft_tensor *t, const int *axes) {
  weft_tensor *view = weft_permute(d->scope, t, axes);
  assert_non_null(view);
  return view;
}

enum { N_VIEWS = 6 };

/* Matrices [rows,cols] of random numbers: contiguous, at distant rows, transposed, both, at distant rows and columns, and
 * the latter transposed; the last two have an axis of one matrix. */
static void make_views(test_device *d, int64_t rows, int64_t cols, uint64_t seed, weft_tensor *views[N_VIEWS]) {
  static const int SWAP[] = {1, 0}, LAST_FIRST[] = {2, 0, 1}, REVERSE[] = {2, 1, 0};
  views[0] = test_random(d, TEST_SHAPE(rows, cols), 1, seed);
  views[1] = part(d, test_random(d, TEST_SHAPE(rows, cols + 5), 1, seed + 1), 1, 3, cols);
  views[2] = turned(d, test_random(d, TEST_SHAPE(cols, rows), 1, seed + 2), SWAP);
  views[3] = turned(d, part(d, test_random(d, TEST_SHAPE(cols, rows + 4), 1, seed + 3), 1, 2, rows), SWAP);
  views[4] = turned(d, part(d, test_random(d, TEST_SHAPE(rows, cols, 3), 1, seed + 4), 2, 1, 1), LAST_FIRST);
  views[5] = turned(d, part(d, test_random(d, TEST_SHAPE(cols, rows, 2), 1, seed + 5), 2, 1, 1), REVERSE);
}

static void check_views(test_device *d) {
  weft_tensor *a[N_VIEWS], *b[N_VIEWS], *b_turned[N_VIEWS];
  make_views(d, 30, 41, 1, a);
  make_views(d, 41, 35, 20, b);
  make_views(d, 35, 41, 40, b_turned);
  const weft_matmul_attrs transpose_b = {.transpose_b = 1};
  for (int i = 0; i < N_VIEWS; i++)
    for (int k = 0; k < N_VIEWS; k++) {
      char what[32];
      snprintf(what, sizeof what, "views %d and %d", i, k);
      const int64_t shape[] = {1, 30, 35};
      int rank = i > 3 || k > 3 ? 3 : 2;
      check_product(what, d, a[i], b[k], &PLAIN, rank, shape + 3 - rank);
      check_product(what, d, a[i], b_turned[k], &transpose_b, rank, shape + 3 - rank);
    }
}

/* Batches whose matrices do not lie behind one another, and vectors that are columns. */
static void check_views_of_batches(test_device *d) {
  static const int HEADS[] = {1, 0, 2}, HEADS_TURNED[] = {1, 2, 0}, MIDDLE_LAST[] = {0, 2, 1};
  weft_tensor *q = turned(d, test_random(d, TEST_SHAPE(12, 3, 8), 1, 1), HEADS); /* [H,T,D] of [T,H,D] */
  weft_tensor *k = turned(d, test_random(d, TEST_SHAPE(15, 3, 8), 1, 2), HEADS_TURNED);
  check_product("heads", d, q, k, &PLAIN, TEST_SHAPE(3, 12, 15));
  weft_tensor *matrix = test_random(d, TEST_SHAPE(8, 20), 1, 3), *cube = test_random(d, TEST_SHAPE(4, 9, 8), 1, 4);
  check_product("every part of a cube", d, part(d, cube, 1, 2, 5), matrix, &PLAIN, TEST_SHAPE(4, 5, 20));
  check_product("some of a cube", d, part(d, cube, 0, 1, 2), matrix, &PLAIN, TEST_SHAPE(2, 9, 20));
  check_product("a row of each", d, part(d, cube, 1, 3, 1), matrix, &PLAIN, TEST_SHAPE(4, 1, 20));
  check_product("a cube of transposes", d, turned(d, test_random(d, TEST_SHAPE(4, 8, 9), 1, 5), MIDDLE_LAST), matrix,
                &PLAIN, TEST_SHAPE(4, 9, 20));
  weft_tensor *square = test_random(d, TEST_SHAPE(40, 40), 1, 6);
  weft_tensor *column = part(d, square, 1, 7, 1);
  weft_tensor *row = turned(d, column, (const int[]){1, 0});
  check_product("a column", d, square, column, &PLAIN, TEST_SHAPE(40, 1));
  check_product("a column as a row", d, row, square, &PLAIN, TEST_SHAPE(1, 40));
  check_product("an outer product", d, column, row, &PLAIN, TEST_SHAPE(40, 40));
  check_product("an inner product", d, row, column, &PLAIN, TEST_SHAPE(1, 1));
  const weft_matmul_attrs transpose_a = {.transpose_a = 1}, transpose_b = {.transpose_b = 1};
  check_product("a row against rows", d, row, square, &transpose_b, TEST_SHAPE(1, 40));
  check_product("columns against a column", d, square, column, &transpose_a, TEST_SHAPE(40, 1));
  check_product("a matrix with itself", d, square, square, &transpose_b, TEST_SHAPE(40, 40));
}

static void views_are_multiplied(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_views);
  test_each_device(N_THREADS, check_views_of_batches);
}

/* ---- beyond one block ---- */

static void check_blocks(test_device *d) {
  check_product("many terms", d, test_random(d, TEST_SHAPE(20, 5000), 1, 1), test_random(d, TEST_SHAPE(5000, 40), 1, 2),
                &PLAIN, TEST_SHAPE(20, 40));
  check_product("many rows", d, test_random(d, TEST_SHAPE(8200, 5), 1, 3), test_random(d, TEST_SHAPE(5, 40), 1, 4),
                &PLAIN, TEST_SHAPE(8200, 40));
  check_product("many columns", d, test_random(d, TEST_SHAPE(20, 300), 1, 5),
                test_random(d, TEST_SHAPE(300, 8200), 1, 6), &PLAIN, TEST_SHAPE(20, 8200));
  check_product("a long row", d, test_random(d, TEST_SHAPE(3, 70000), 1, 7), test_random(d, TEST_SHAPE(70000), 1, 8),
                &PLAIN, TEST_SHAPE(3));
  check_product("a wide matrix", d, test_random(d, TEST_SHAPE(70), 1, 9), test_random(d, TEST_SHAPE(70, 5000), 1, 10),
                &PLAIN, TEST_SHAPE(5000));
}

static void products_exceed_blocks(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_blocks);
}

/* More tiles than the 65535 of a grid, along n and along m; the latter without terms, which cost the most time. */
static void check_grids(test_device *d) {
  enum { LONG = 65535 * 64 + 1 };
  if (strcmp(d->variant, "gpu lowest limits")) return; /* once is enough */
  check_product("a wide matrix", d, test_random(d, TEST_SHAPE(1, 1), 1, 1), test_random(d, TEST_SHAPE(1, LONG), 1, 2),
                &PLAIN, TEST_SHAPE(1, LONG));
  check_product("a tall matrix", d, test_random(d, TEST_SHAPE(LONG, 0), 1, 3), test_random(d, TEST_SHAPE(0, 2), 1, 4),
                &PLAIN, TEST_SHAPE(LONG, 2));
}

static void products_exceed_grids(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_grids);
}

/* As many tiles of 64 x 64 as a GPU multiplies by two groups that share a step, and add up afterwards. */
static void check_shared_steps(test_device *d) {
  for (int layout = 0; layout < 4; layout++) {
    const weft_matmul_attrs attrs = {.transpose_a = layout / 2, .transpose_b = layout % 2};
    weft_tensor *a =
        attrs.transpose_a ? test_random(d, TEST_SHAPE(48, 1024), 1, 1) : test_random(d, TEST_SHAPE(1024, 48), 1, 1);
    weft_tensor *b =
        attrs.transpose_b ? test_random(d, TEST_SHAPE(512, 48), 1, 2) : test_random(d, TEST_SHAPE(48, 512), 1, 2);
    check_product("groups that share a step", d, a, b, &attrs, TEST_SHAPE(1024, 512));
  }
}

static void groups_add_up_their_sums(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_shared_steps);
}

/* ---- what results must not depend on ---- */

static void assert_same_bits(const char *what, const test_device *d, const weft_tensor *a, const weft_tensor *b) {
  float *left = test_read(a), *right = test_read(b);
  assert_int_equal(weft_tensor_bytes(a), weft_tensor_bytes(b));
  if (memcmp(left, right, weft_tensor_bytes(a))) fail_msg("%s (%s): not the same bits", what, d->variant);
  free(left);
  free(right);
}

/* Rows alone are what they are among others, as long as they are more than one. */
static void check_rows_alone(test_device *d) {
  weft_tensor *a = test_random(d, TEST_SHAPE(29, 300), 1, 1), *b = test_random(d, TEST_SHAPE(300, 50), 1, 2);
  weft_tensor *all = weft_matmul(d->scope, a, b, &PLAIN);
  for (int64_t n = 2; is_cpu(d) && n <= 29; n++)
    assert_same_bits("rows alone", d, weft_matmul(d->scope, part(d, a, 0, 29 - n, n), b, &PLAIN),
                     part(d, all, 0, 29 - n, n));
}

static void rows_do_not_depend_on_each_other(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rows_alone);
}

/* A large product, small ones side by side, large ones in turn, and both kinds of matrix times vector. */
static const struct {
  int ranks[2];
  int64_t a[3], b[3];
} THREAD_CASES[] = {
    {{2, 2}, {301, 600}, {600, 260}}, {{3, 3}, {70, 9, 33}, {70, 33, 40}}, {{3, 3}, {3, 200, 170}, {3, 170, 190}},
    {{2, 1}, {3000, 130}, {130}},     {{1, 2}, {130}, {130, 3000}},
};
enum { N_THREAD_CASES = WEFT_COUNT(THREAD_CASES), MAX_THREADS = 5 };

/* Results of one number of threads after another, of one variant. */
static float *results[MAX_THREADS + 1][N_THREAD_CASES];
static size_t result_bytes[N_THREAD_CASES];

static void keep_results(test_device *d, int n_threads) {
  for (int i = 0; i < N_THREAD_CASES; i++) {
    weft_tensor *y = weft_matmul(d->scope, test_random(d, THREAD_CASES[i].ranks[0], THREAD_CASES[i].a, 1, 1),
                                 test_random(d, THREAD_CASES[i].ranks[1], THREAD_CASES[i].b, 1, 2), &PLAIN);
    results[n_threads][i] = test_read(y);
    result_bytes[i] = weft_tensor_bytes(y);
  }
}

static void run_with_threads(const char *variant, int n_threads) {
  test_device d = {.variant = variant};
  setenv("WEFT_CPU", variant, 1);
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .n_threads = n_threads};
  assert_int_equal(weft_device_open(&d.device, &options), WEFT_OK);
  assert_int_equal(weft_scope_open(&d.scope, d.device, NULL), WEFT_OK);
  keep_results(&d, n_threads);
  weft_scope_close(d.scope);
  weft_device_close(d.device);
  unsetenv("WEFT_CPU");
}

static void results_do_not_depend_on_threads(void **state) {
  (void)state;
  const char *variant;
  for (int v = 0; (variant = test_next_variant(&v));) {
    for (int n = 1; n <= MAX_THREADS; n++) {
      run_with_threads(variant, n);
      for (int i = 0; i < N_THREAD_CASES; i++) assert_memory_equal(results[n][i], results[1][i], result_bytes[i]);
    }
    for (int n = 1; n <= MAX_THREADS; n++)
      for (int i = 0; i < N_THREAD_CASES; i++) free(results[n][i]);
  }
}

/* ---- numbers that are none ---- */

/* NaN and infinity stay in their row or column, whatever shares a tile with it. */
static void check_not_numbers(test_device *d) {
  enum { M = 19, K = 20, N = 37 };
  float a[M * K], b[K * N];
  for (uint64_t i = 0; i < M * K; i++) a[i] = number_at(5, i);
  for (uint64_t i = 0; i < K * N; i++) b[i] = number_at(6, i);
  a[4 * K + 7] = NAN;
  a[9 * K + 2] = INFINITY;
  b[11 * N + 30] = -INFINITY;
  weft_tensor *y = weft_matmul(d->scope, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(M, K), a),
                               weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(K, N), b), &PLAIN);
  float *got = test_read(y);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++)
      if (isfinite(got[i * N + j]) != (i != 4 && i != 9 && j != 30))
        fail_msg("element %d,%d is %g (%s)", i, j, (double)got[i * N + j], d->variant);
  free(got);
}

static void numbers_that_are_none_stay_where_they_are(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_not_numbers);
}

/* ---- products over plain memory ---- */

/* c may have gaps between its rows, which stay as they are. */
static void check_gaps(test_device *d) {
  static const int64_t SHAPES[][3] = {{13, 21, 9}, {13, 1, 9}, {1, 21, 9}, {40, 70, 300}, {13, 21, 0}};
  enum { GAP = 3 };
  if (!is_cpu(d)) return;
  for (size_t s = 0; s < WEFT_COUNT(SHAPES); s++) {
    int64_t m = SHAPES[s][0], n = SHAPES[s][1], k = SHAPES[s][2], ldc = n + GAP;
    float *a = test_alloc((size_t)(m * k), sizeof *a), *b = test_alloc((size_t)(k * n), sizeof *b);
    float *c = test_alloc((size_t)(m * ldc), sizeof *c);
    test_fill(a, (size_t)(m * k), 1, 1);
    test_fill(b, (size_t)(k * n), 1, 2);
    for (int64_t i = 0; i < m * ldc; i++) c[i] = 77;
    const weft__gemm product = {.m = m, .n = n, .k = k, .a = a, .lda = k, .b = b, .ldb = n, .c = c, .ldc = ldc};
    assert_int_equal(weft__gemm_run(weft__cpu_of(d->device->backend), 1, &product), WEFT_OK);
    sums one = alloc_sums(1);
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < ldc; j++) {
        if (j < n)
          add_up(&one, 0, k, a + i * k, 1, b + j, n);
        else
          one.want[0] = 77, one.tolerance[0] = 0;
        if (!(fabs((double)c[i * ldc + j] - one.want[0]) <= one.tolerance[0]))
          fail_msg("shape %zu (%s): element %lld,%lld is %g, not %g", s, d->variant, (long long)i, (long long)j,
                   (double)c[i * ldc + j], one.want[0]);
      }
    free_sums(&one);
    free(a);
    free(b);
    free(c);
  }
}

static void gaps_between_rows_are_left_alone(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_gaps);
}

/* The first allocation that fails makes the operator fail, and the next one works again. */
static void check_no_memory(test_device *d) {
  if (!is_cpu(d)) return;
  static const int ODD[] = {2, 0, 1};
  weft_tensor *a = turned(d, part(d, test_random(d, TEST_SHAPE(64, 70, 2), 1, 1), 2, 1, 1), ODD);
  weft_tensor *b = test_random(d, TEST_SHAPE(70, 900), 1, 2);
  int n_failures = 0;
  for (long n = 1;; n++) {
    weft__alloc_fail_at(n);
    weft_tensor *y = weft_matmul(d->scope, a, b, &PLAIN);
    weft__alloc_fail_at(0);
    if (y) break;
    assert_int_equal(weft_last_status(), WEFT_ENOMEM);
    n_failures++;
  }
  assert_true(n_failures >= 2);
}

static void no_memory_is_a_status(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_no_memory);
}

/* ---- refusals ---- */

static void refuse(test_device *d, weft_tensor *a, weft_tensor *b, const weft_matmul_attrs *attrs,
                   const char *message) {
  assert_null(weft_matmul(d->scope, a, b, attrs));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  if (!strstr(weft_last_error(), message)) fail_msg("\"%s\" lacks \"%s\"", weft_last_error(), message);
}

static void check_refusals(test_device *d) {
  const weft_matmul_attrs transpose_a = {.transpose_a = 1}, transpose_b = {.transpose_b = 1};
  weft_tensor *a = test_random(d, TEST_SHAPE(2, 3, 4), 1, 1), *b = test_random(d, TEST_SHAPE(4, 5), 1, 2);
  weft_tensor *scalar = test_random(d, 0, NULL, 1, 3), *vector = test_random(d, TEST_SHAPE(3), 1, 4);
  refuse(d, a, test_random(d, TEST_SHAPE(3, 5), 1, 5), &PLAIN, "matmul: ");
  refuse(d, a, b, &transpose_a, "a [2,3,4] f32, b [4,5] f32");
  refuse(d, a, b, &transpose_b, "matmul: ");
  refuse(d, a, vector, &PLAIN, "matmul: ");
  refuse(d, vector, b, &PLAIN, "matmul: ");
  refuse(d, scalar, b, &PLAIN, "matmul: ");
  refuse(d, a, scalar, &PLAIN, "matmul: ");
  refuse(d, a, test_random(d, TEST_SHAPE(3, 4, 5), 1, 6), &PLAIN, "leading axes");
  refuse(d, test_random(d, TEST_SHAPE(0, 3, 4), 1, 6), test_random(d, TEST_SHAPE(2, 4, 5), 1, 6), &PLAIN, "leading");
  refuse(d, a, b, NULL, "attributes");
  refuse(d, weft_tensor_new(d->scope, WEFT_I32, TEST_SHAPE(3, 4)), b, &PLAIN, "i32");
  weft_tensor *no_rows = weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(INT64_C(1) << 40, 0));
  weft_tensor *no_columns = weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(0, INT64_C(1) << 40));
  refuse(d, no_rows, no_columns, &PLAIN, "overflow"); /* of no terms, but 2^80 elements */
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  test_each_device(1, check_refusals);
}

/* ---- threads ---- */

typedef struct sharing {
  weft_device *device;
  bool is_right;
} sharing;

/* Products in a scope of this thread's own; every result is the first one's, to the bit. */
static void *multiply_often(void *context) {
  enum { N = 33, N_PRODUCTS = 60 };
  static const weft_matmul_attrs attrs = {0};
  sharing *s = context;
  float first[N * N], next[N * N], data[N * N];
  weft_scope *scope;
  if (weft_scope_open(&scope, s->device, NULL)) return NULL;
  test_fill(data, N * N, 1, 1);
  weft_tensor *a = weft_tensor_from(scope, WEFT_F32, TEST_SHAPE(N, N), data);
  s->is_right = a != NULL;
  for (int i = 0; i < N_PRODUCTS && s->is_right; i++) {
    weft_tensor *y = weft_matmul(scope, a, a, &attrs);
    s->is_right = y && !weft_tensor_read(y, i ? next : first, sizeof first);
    for (int e = 0; e < N * N && i > 0; e++) s->is_right = s->is_right && first[e] == next[e];
    weft_tensor_free(y);
  }
  weft_scope_close(scope);
  return NULL;
}

static void check_threads_share(test_device *d) {
  sharing s[3];
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) {
    s[i] = (sharing){d->device, false};
    assert_int_equal(pthread_create(&threads[i], NULL, multiply_often, &s[i]), 0);
  }
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 3; i++) assert_true(s[i].is_right);
}

static void threads_share_a_device(void **state) {
  (void)state;
  test_each_device(2, check_threads_share);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_of_any_size_and_layout),
      cmocka_unit_test(leading_axes_broadcast),
      cmocka_unit_test(views_are_multiplied),
      cmocka_unit_test(products_exceed_blocks),
      cmocka_unit_test(products_exceed_grids),
      cmocka_unit_test(groups_add_up_their_sums),
      cmocka_unit_test(rows_do_not_depend_on_each_other),
      cmocka_unit_test(results_do_not_depend_on_threads),
      cmocka_unit_test(numbers_that_are_none_stay_where_they_are),
      cmocka_unit_test(gaps_between_rows_are_left_alone),
      cmocka_unit_test(no_memory_is_a_status),
      cmocka_unit_test(what_does_not_fit_is_refused),
      cmocka_unit_test(threads_share_a_device),
  };
  return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
