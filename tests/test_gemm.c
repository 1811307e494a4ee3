/* test_gemm.c - matmul: every CPU variant and WebGPU generation, odd shapes, transposes, batches that broadcast, views,
 * against sums in double. */
#include "support/tensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const weft_matmul_attrs LAYOUTS[] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};

/* Element (i,j) of the matrix of tensor t that belongs to batch element `batch` of the result y. */
static double element(const weft_tensor *t, const float *data, const weft_tensor *y, int n_leading, int64_t batch,
                      bool is_transposed, int64_t i, int64_t j, bool is_right) {
  int64_t offset = 0, stride = 1;
  const int64_t *shape = t->shape;
  int rank = t->rank;
  int64_t rows_axis = is_transposed ? j : i, columns_axis = is_transposed ? i : j;
  if (rank == 1) return (double)data[is_right ? i : j];
  offset = rows_axis * shape[rank - 1] + columns_axis;
  stride = shape[rank - 1] * shape[rank - 2];
  for (int axis = n_leading - 1, own = rank - 3; axis >= 0; axis--, own--) {
    int64_t index = batch % y->shape[axis];
    batch /= y->shape[axis];
    if (own < 0) continue;
    if (shape[own] > 1) offset += index * stride;
    stride *= shape[own];
  }
  return (double)data[offset];
}

/* Compares y = matmul(a, b) with the definition.  f32 sums of k terms: about sqrt(k) roundings of 6e-8 of the terms. */
static void check_product(test_device *d, weft_tensor *a, weft_tensor *b, const weft_matmul_attrs *attrs) {
  weft_tensor *y = weft_matmul(d->scope, a, b, attrs);
  if (!y) fail_msg("matmul (%s): %s", d->variant, weft_last_error());
  bool has_rows = a->rank > 1, has_columns = b->rank > 1;
  int n_leading = y->rank - has_rows - has_columns;
  int64_t m = has_rows ? y->shape[n_leading] : 1, n = has_columns ? y->shape[y->rank - 1] : 1;
  int64_t k = a->shape[a->rank - (has_rows && attrs->transpose_a ? 2 : 1)], n_batch = 1;
  for (int i = 0; i < n_leading; i++) n_batch *= y->shape[i];
  float *left = test_read(a), *right = test_read(b);
  double *want = test_alloc((size_t)(n_batch * m * n), sizeof *want);
  double *tolerance = test_alloc((size_t)(n_batch * m * n), sizeof *tolerance);
  for (int64_t z = 0; z < n_batch; z++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        double sum = 0, magnitude = 0;
        for (int64_t l = 0; l < k; l++) {
          double term = element(a, left, y, n_leading, z, has_rows && attrs->transpose_a, i, l, false) *
                        element(b, right, y, n_leading, z, has_columns && attrs->transpose_b, l, j, true);
          sum += term;
          magnitude += fabs(term);
        }
        want[(z * m + i) * n + j] = sum;
        tolerance[(z * m + i) * n + j] = magnitude * 6e-8 * (2 + sqrt((double)k)) + 1e-30;
      }
  char what[80];
  snprintf(what, sizeof what, "matmul %lldx%lldx%lld t%d%d", (long long)m, (long long)n, (long long)k,
           attrs->transpose_a, attrs->transpose_b);
  test_compare(what, d, y, want, tolerance, 0, 0);
  free(left);
  free(right);
  free(want);
  free(tolerance);
  weft_tensor_free(y);
}

/* Extents m, n, k as a matrix stored the way attrs says. */
static void check_extents(test_device *d, int64_t m, int64_t n, int64_t k, const weft_matmul_attrs *attrs) {
  weft_tensor *a = attrs->transpose_a ? test_random(d, TEST_SHAPE(k, m), 1, 1) : test_random(d, TEST_SHAPE(m, k), 1, 1);
  weft_tensor *b = attrs->transpose_b ? test_random(d, TEST_SHAPE(n, k), 1, 2) : test_random(d, TEST_SHAPE(k, n), 1, 2);
  check_product(d, a, b, attrs);
  weft_tensor_free(a);
  weft_tensor_free(b);
}

static void check_odd_shapes(test_device *d) {
  static const int64_t EXTENTS[] = {0, 1, 7, 63, 65};
  for (size_t l = 0; l < WEFT_COUNT(LAYOUTS); l++) {
    for (size_t i = 0; i < WEFT_COUNT(EXTENTS); i++)
      for (size_t j = 0; j < WEFT_COUNT(EXTENTS); j++)
        for (size_t r = 0; r < WEFT_COUNT(EXTENTS); r++)
          check_extents(d, EXTENTS[i], EXTENTS[j], EXTENTS[r], &LAYOUTS[l]);
    check_extents(d, 257, 65, 33, &LAYOUTS[l]);
    check_extents(d, 31, 257, 257, &LAYOUTS[l]);
  }
}

/* Whole tiles of the GPU's kernels, slices of k, vectors. */
static void check_tiles(test_device *d) {
  for (size_t l = 0; l < WEFT_COUNT(LAYOUTS); l++) {
    check_extents(d, 128, 256, 64, &LAYOUTS[l]);
    check_extents(d, 256, 128, 32, &LAYOUTS[l]);
    check_extents(d, 64, 64, 96, &LAYOUTS[l]);
    check_extents(d, 32, 64, 1024, &LAYOUTS[l]);
    check_extents(d, 3, 4, 2048, &LAYOUTS[l]);
    check_extents(d, 100, 1, 512, &LAYOUTS[l]);
    check_extents(d, 1, 100, 512, &LAYOUTS[l]);
  }
}

static void check_batches(test_device *d) {
  const weft_matmul_attrs *plain = &LAYOUTS[0];
  static const struct {
    int ranks[2];
    int64_t a[5], b[5];
  } CASES[] = {
      {{1, 1}, {9}, {9}},
      {{1, 2}, {9}, {9, 5}},
      {{2, 1}, {5, 9}, {9}},
      {{1, 3}, {9}, {4, 9, 5}},
      {{3, 1}, {4, 5, 9}, {9}},
      {{3, 2}, {4, 5, 9}, {9, 6}},
      {{2, 3}, {5, 9}, {4, 9, 6}},
      {{3, 3}, {4, 5, 9}, {4, 9, 6}},
      {{3, 3}, {1, 5, 9}, {4, 9, 6}},
      {{4, 4}, {3, 1, 5, 9}, {1, 2, 9, 6}},
      {{4, 3}, {3, 2, 5, 9}, {2, 9, 6}},
      {{5, 3}, {2, 1, 3, 5, 9}, {3, 9, 6}},
      {{3, 3}, {0, 5, 9}, {1, 9, 6}},
      {{3, 3}, {2, 64, 32}, {2, 32, 64}},
      {{3, 2}, {2, 32, 64}, {64, 64}},
  };
  for (size_t i = 0; i < WEFT_COUNT(CASES); i++)
    check_product(d, test_random(d, CASES[i].ranks[0], CASES[i].a, 1, 10 + i),
                  test_random(d, CASES[i].ranks[1], CASES[i].b, 1, 50 + i), plain);
  for (size_t l = 1; l < WEFT_COUNT(LAYOUTS); l++)
    check_product(d, test_random(d, TEST_SHAPE(3, 7, 7), 1, 3), test_random(d, TEST_SHAPE(2, 1, 7, 7), 1, 4), &LAYOUTS[l]);
}

/* Slices, permuted axes, broadcast leading axes: used where they lie, or copied. */
static void check_views(test_device *d) {
  weft_tensor *wide = test_random(d, TEST_SHAPE(40, 50), 1, 5), *cube = test_random(d, TEST_SHAPE(6, 7, 8), 1, 6);
  weft_tensor *left = weft_slice(d->scope, weft_slice(d->scope, wide, 1, 3, 33), 0, 5, 20);
  weft_tensor *turned = weft_permute(d->scope, weft_slice(d->scope, wide, 0, 7, 33), (const int[]){0, 1});
  check_product(d, left, turned, &LAYOUTS[0]);
  weft_tensor *flipped = weft_permute(d->scope, left, (const int[]){1, 0});
  check_product(d, flipped, left, &LAYOUTS[0]);
  check_product(d, flipped, flipped, &LAYOUTS[1]);
  check_product(d, weft_permute(d->scope, cube, (const int[]){1, 0, 2}),
                weft_permute(d->scope, cube, (const int[]){1, 2, 0}), &LAYOUTS[0]);
  check_product(d, weft_permute(d->scope, cube, (const int[]){2, 1, 0}),
                weft_permute(d->scope, cube, (const int[]){2, 0, 1}), &LAYOUTS[0]);
}

static void check_refusals(test_device *d) {
  weft_tensor *a = test_random(d, TEST_SHAPE(3, 4), 1, 1), *b = test_random(d, TEST_SHAPE(3, 4), 1, 2);
  assert_null(weft_matmul(d->scope, a, b, &LAYOUTS[0]));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  assert_non_null(strstr(weft_last_error(), "matmul: wants"));
  assert_null(weft_matmul(d->scope, test_random(d, TEST_SHAPE(2, 3, 4), 1, 1), test_random(d, TEST_SHAPE(3, 4, 5), 1, 2),
                          &LAYOUTS[0]));
  assert_null(weft_matmul(d->scope, test_random(d, 0, NULL, 1, 1), b, &LAYOUTS[0]));
  assert_null(weft_matmul(d->scope, a, b, NULL));
}

static void products_of_odd_shapes(void **state) {
  (void)state;
  test_each_device(2, check_odd_shapes);
}

static void products_of_whole_tiles(void **state) {
  (void)state;
  test_each_device(2, check_tiles);
}

static void batches_broadcast(void **state) {
  (void)state;
  test_each_device(2, check_batches);
}

static void views_are_operands(void **state) {
  (void)state;
  test_each_device(2, check_views);
}

static void wrong_operands_are_refused(void **state) {
  (void)state;
  test_each_device(1, check_refusals);
}

/* The bits of a product, computed with n threads. */
static float *product_bits(const char *variant, int n_threads) {
  test_device d = {.variant = variant};
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .n_threads = n_threads};
  setenv("WEFT_CPU", variant, 1);
  assert_int_equal(weft_device_open(&d.device, &options), WEFT_OK);
  assert_int_equal(weft_scope_open(&d.scope, d.device, NULL), WEFT_OK);
  float *bits = test_read(weft_matmul(d.scope, test_random(&d, TEST_SHAPE(150, 301), 1, 1),
                                      test_random(&d, TEST_SHAPE(301, 333), 1, 2), &LAYOUTS[0]));
  weft_scope_close(d.scope);
  weft_device_close(d.device);
  return bits;
}

static void threads_do_not_change_bits(void **state) {
  (void)state;
  for (int i = 0; weft_cpu_variant_name(i); i++) {
    if (!weft_cpu_variant_usable(i)) continue;
    float *one = product_bits(weft_cpu_variant_name(i), 1);
    for (int n = 2; n <= 5; n++) {
      float *several = product_bits(weft_cpu_variant_name(i), n);
      assert_memory_equal(one, several, 150 * 333 * sizeof *one);
      free(several);
    }
    free(one);
  }
  unsetenv("WEFT_CPU");
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_of_odd_shapes),     cmocka_unit_test(products_of_whole_tiles),
      cmocka_unit_test(batches_broadcast),          cmocka_unit_test(views_are_operands),
      cmocka_unit_test(wrong_operands_are_refused), cmocka_unit_test(threads_do_not_change_bits),
  };
  return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
