/* test_dense_attention.c - the operator attention against its formula in double, on every CPU variant and every generation of
 * the WebGPU library: head sizes and lengths around the kernels' tiles, masks, grouped heads, views. */
#include "support/tensors.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct shape {
  int64_t n_batches, n_queries, n_keys, n_heads, n_kv_heads, head_size;
  weft_mask mask;
} shape;

/* One head of one query: keys and values lie `stride` apart. */
static void attend(const float *q, const float *k, const float *v, int64_t n_keys, int64_t stride, int64_t head_size,
                   double scale, double *out) {
  double *weights = test_alloc((size_t)n_keys, sizeof *weights), largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n_keys; i++) {
    weights[i] = 0;
    for (int64_t d = 0; d < head_size; d++) weights[i] += (double)q[d] * (double)k[i * stride + d];
    weights[i] *= scale;
    largest = fmax(largest, weights[i]);
  }
  for (int64_t i = 0; i < n_keys; i++) sum += weights[i] = exp(weights[i] - largest);
  for (int64_t d = 0; d < head_size; d++) {
    out[d] = 0;
    for (int64_t i = 0; i < n_keys; i++) out[d] += weights[i] / sum * (double)v[i * stride + d];
  }
  free(weights);
}

static void check_values(test_device *d, const shape *s, weft_tensor *q, weft_tensor *k, weft_tensor *v) {
  const weft_attention_attrs attrs = {(int)s->n_heads, 1.5f / sqrtf((float)s->head_size), s->mask};
  weft_tensor *y = weft_attention(d->scope, q, k, v, &attrs);
  int64_t width = s->n_heads * s->head_size, kv_width = s->n_kv_heads * s->head_size;
  float *rows = test_read(q), *keys = test_read(k), *values = test_read(v);
  double *want = test_alloc((size_t)(s->n_batches * s->n_queries * width), sizeof *want);
  for (int64_t row = 0; row < s->n_batches * s->n_queries; row++)
    for (int64_t h = 0; h < s->n_heads; h++) {
      int64_t batch = row / s->n_queries, first = row % s->n_queries;
      int64_t n_keys = s->mask == WEFT_MASK_CAUSAL ? first + s->n_keys - s->n_queries + 1 : s->n_keys;
      int64_t at = batch * s->n_keys * kv_width + h / (s->n_heads / s->n_kv_heads) * s->head_size;
      attend(rows + row * width + h * s->head_size, keys + at, values + at, n_keys, kv_width, s->head_size,
             (double)attrs.scale, want + row * width + h * s->head_size);
    }
  /* Values below 1; the error is that of scores of magnitude 10, an exponential and a sum of hundreds of terms. */
  test_compare("attention", d, y, want, NULL, 2e-5, 0);
  free(want);
  free(rows);
  free(keys);
  free(values);
}

static void check_shape(test_device *d, const shape *s) {
  int64_t width = s->n_heads * s->head_size, kv_width = s->n_kv_heads * s->head_size;
  check_values(d, s, test_random(d, TEST_SHAPE(s->n_batches, s->n_queries, width), 3, 1),
               test_random(d, TEST_SHAPE(s->n_batches, s->n_keys, kv_width), 1, 2),
               test_random(d, TEST_SHAPE(s->n_batches, s->n_keys, kv_width), 1, 3));
}

static void check_shapes(test_device *d) {
  static const shape SHAPES[] = {
      {1, 1, 1, 1, 1, 1, WEFT_MASK_NONE},       {1, 1, 257, 2, 1, 7, WEFT_MASK_CAUSAL},
      {2, 65, 65, 2, 2, 64, WEFT_MASK_CAUSAL},  {1, 63, 130, 4, 2, 63, WEFT_MASK_CAUSAL},
      {2, 7, 65, 3, 1, 65, WEFT_MASK_NONE},     {1, 129, 64, 2, 1, 16, WEFT_MASK_NONE},
      {1, 33, 33, 1, 1, 128, WEFT_MASK_NONE},   {1, 70, 96, 2, 1, 80, WEFT_MASK_CAUSAL},
      {1, 40, 72, 1, 1, 256, WEFT_MASK_CAUSAL}, {3, 2, 2, 6, 3, 33, WEFT_MASK_CAUSAL},
  };
  for (size_t i = 0; i < WEFT_COUNT(SHAPES); i++) check_shape(d, &SHAPES[i]);
}

static void attention_is_the_formula(void **state) {
  (void)state;
  test_each_device(2, check_shapes);
}

/* Queries, keys and values side by side in one tensor, and batches that are not evenly spaced in the rows' stride. */
static void check_views(test_device *d) {
  const shape s = {2, 66, 66, 3, 3, 20, WEFT_MASK_CAUSAL};
  weft_tensor *qkv = test_random(d, TEST_SHAPE(2, 66, 180), 1, 7);
  check_values(d, &s, weft_slice(d->scope, qkv, 2, 0, 60), weft_slice(d->scope, qkv, 2, 60, 60),
               weft_slice(d->scope, qkv, 2, 120, 60));
  const shape part = {2, 31, 31, 3, 3, 20, WEFT_MASK_CAUSAL};
  weft_tensor *rows = weft_slice(d->scope, qkv, 1, 5, 31);
  check_values(d, &part, weft_slice(d->scope, rows, 2, 0, 60), weft_slice(d->scope, rows, 2, 60, 60),
               weft_slice(d->scope, rows, 2, 120, 60));
}

static void attention_reads_views(void **state) {
  (void)state;
  test_each_device(2, check_views);
}

/* Scores of magnitude 1000 must not overflow, and the largest one takes all. */
static void check_large_scores(test_device *d) {
  const shape s = {1, 65, 130, 1, 1, 16, WEFT_MASK_CAUSAL};
  check_values(d, &s, test_random(d, TEST_SHAPE(1, 65, 16), 300, 1), test_random(d, TEST_SHAPE(1, 130, 16), 30, 2),
               test_random(d, TEST_SHAPE(1, 130, 16), 1e-3f, 3));
}

static void attention_of_large_scores(void **state) {
  (void)state;
  test_each_device(1, check_large_scores);
}

static void expect_refusal(test_device *d, weft_tensor *q, weft_tensor *k, weft_tensor *v, int n_heads,
                           weft_mask mask) {
  const weft_attention_attrs attrs = {n_heads, 1, mask};
  assert_null(weft_attention(d->scope, q, k, v, &attrs));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
}

static void check_refusals(test_device *d) {
  weft_tensor *q = test_random(d, TEST_SHAPE(1, 5, 12), 1, 1), *k = test_random(d, TEST_SHAPE(1, 4, 6), 1, 2);
  weft_tensor *none = test_random(d, TEST_SHAPE(1, 0, 6), 1, 3), *two = test_random(d, TEST_SHAPE(2, 4, 6), 1, 4);
  expect_refusal(d, q, k, k, 2, WEFT_MASK_CAUSAL); /* fewer keys than queries */
  expect_refusal(d, q, none, none, 2, WEFT_MASK_NONE);
  expect_refusal(d, q, two, two, 2, WEFT_MASK_NONE);
  expect_refusal(d, q, k, two, 2, WEFT_MASK_NONE);
  expect_refusal(d, q, k, k, 5, WEFT_MASK_NONE); /* 5 does not divide 12 */
  expect_refusal(d, q, k, k, 0, WEFT_MASK_NONE);
  expect_refusal(d, q, k, k, 3, WEFT_MASK_NONE); /* heads of 4 do not divide 6 */
  weft_tensor *empty = weft_attention(d->scope, test_random(d, TEST_SHAPE(1, 0, 12), 1, 1), k, k,
                                      &(weft_attention_attrs){2, 1, WEFT_MASK_CAUSAL});
  assert_non_null(empty);
  assert_int_equal(weft_tensor_numel(empty), 0);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  test_each_device(1, check_refusals);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_is_the_formula),
      cmocka_unit_test(attention_reads_views),
      cmocka_unit_test(attention_of_large_scores),
      cmocka_unit_test(what_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests_name("dense_attention", tests, NULL, NULL);
}
