/* test_ops_quantize.c - quantize, the way back by cast, and products with what it makes, on every variant. */
#include "support/tensors.h"

#include "cpu/half.h"
#include "cpu/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 2, BLOCK = 32 };

/* One target: the code of the element that decides d, and the bounds of codes. */
static const struct target {
  weft_quantize_attrs attrs;
  size_t block_bytes;
  double divisor; /* d = the deciding element / divisor */
  bool is_signed; /* the deciding element counts with its sign */
  double least, most;
} TARGETS[] = {
    {{WEFT_Q8_0}, 34, 127, false, -127, 127},
    {{WEFT_Q4_0}, 18, -8, true, -8, 7},
};

/* What n <= 32 elements become, by the definitions of weft/ops.h. */
static void quantised_values(const struct target *t, int64_t n, const double *x, double *values) {
  double extreme = 0;
  for (int64_t i = 0; i < n; i++)
    if (fabs(x[i]) > fabs(extreme)) extreme = x[i];
  float quotient = (float)(t->is_signed ? extreme : fabs(extreme)) / (float)t->divisor;
  double d = (double)weft__f16_to_f32(weft__f32_to_f16(quotient));
  for (int64_t i = 0; i < n; i++)
    values[i] = d == 0 ? 0 : d * fmin(fmax(rint((double)(float)(x[i] / d)), t->least), t->most);
}

static void check_quantize(test_device *d, const struct target *t, weft_tensor *a) {
  weft_tensor *y = weft_quantize(d->scope, a, &t->attrs);
  test_expect_shape("quantize", y, t->attrs.dtype, a->rank, a->shape);
  int64_t n = weft__n_cols(a), n_rows = weft_tensor_numel(a) ? weft_tensor_numel(a) / n : weft__n_rows(a);
  assert_int_equal(weft_tensor_bytes(y), (size_t)(n_rows * ((n + BLOCK - 1) / BLOCK)) * t->block_bytes);
  double *x = test_values(a), *want = test_doubles((size_t)weft_tensor_numel(a));
  for (int64_t row = 0; row < (n ? n_rows : 0); row++)
    for (int64_t i = 0; i < n; i += BLOCK)
      quantised_values(t, n - i < BLOCK ? n - i : BLOCK, x + row * n + i, want + row * n + i);
  weft_tensor *back = weft_cast(d->scope, y, &(weft_cast_attrs){WEFT_F32});
  test_expect_shape("cast", back, WEFT_F32, a->rank, a->shape);
  test_compare("quantize, and back", d, back, want, NULL, 0, 0);
  free(x);
  free(want);
}

static const struct {
  int rank;
  int64_t shape[4];
} SHAPES[] = {
    {1, {0}},    {1, {1}},    {1, {31}},     {1, {32}},       {1, {33}},           {1, {70001}},
    {2, {0, 5}}, {2, {5, 0}}, {2, {7, 257}}, {3, {3, 2, 65}}, {4, {2, 1, 3, 100}},
};

static void check_shapes(test_device *d) {
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
  for (size_t s = 0; s < WEFT_COUNT(SHAPES); s++)
    for (int form = 0; form < TEST_N_FORMS; form++)
      for (size_t k = 0; k < WEFT_COUNT(TARGETS); k++)
        check_quantize(d, &TARGETS[k],
                       test_operand(d, (test_form)form, dtypes[(s + k + (size_t)form) % 3], SHAPES[s].rank,
                                    SHAPES[s].shape, -3, 2, s));
}

static void any_shape_is_quantised(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_shapes);
}

/* Elements beyond the axis are zeros: a product that reads whole blocks adds nothing. */
static void check_padding(test_device *d) {
  weft_tensor *a = test_operand(d, TEST_WHOLE, WEFT_F32, TEST_SHAPE(2, 5), 1, 2, 1);
  for (size_t k = 0; k < WEFT_COUNT(TARGETS); k++) {
    uint8_t stored[2 * 34];
    size_t n_bytes = 2 * TARGETS[k].block_bytes;
    weft_tensor *y = weft_quantize(d->scope, a, &TARGETS[k].attrs);
    assert_int_equal(weft_tensor_read(y, stored, n_bytes), WEFT_OK);
    for (int row = 0; row < 2; row++) {
      weft__quant_block block;
      float values[BLOCK];
      weft__quant_read(TARGETS[k].attrs.dtype, stored + (size_t)row * TARGETS[k].block_bytes, &block);
      weft__quant_compute(TARGETS[k].attrs.dtype, &block, values);
      for (int i = 0; i < BLOCK; i++) assert_true((values[i] != 0) == (i < 5));
    }
  }
}

static void rows_are_padded_with_zeros(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_padding);
}

/* Zeros, ties, scales that f16 hardly holds; and what it does not hold. */
static void check_extremes(test_device *d) {
  for (size_t k = 0; k < WEFT_COUNT(TARGETS); k++) {
    float x[4 * BLOCK] = {0};
    for (int i = 0; i < BLOCK; i++) {
      x[BLOCK + i] = i == 0 ? 127.0f : (float)i + 0.5f; /* d = 1: halves go to the even code */
      x[2 * BLOCK + i] = (float)(i - 16) * 1e-7f;       /* d is subnormal in f16 */
      x[3 * BLOCK + i] = (float)(i - 16) * 1e-9f;       /* d is 0 there */
    }
    check_quantize(d, &TARGETS[k], weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(4, BLOCK), x));
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e8f, -1e8f};
    for (size_t i = 0; i < WEFT_COUNT(bad); i++)
      for (int place = 0; place < 2; place++) {
        x[2 * BLOCK + 31 * place] = bad[i];
        weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(4, BLOCK), x);
        test_expect_fault(d, weft_quantize(d->scope, a, &TARGETS[k].attrs),
                          "quantize: row 2 has an element that is not finite, or too large for its block's scale");
        x[2 * BLOCK + 31 * place] = 0;
      }
  }
}

static void extremes_are_stored_or_refused(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_extremes);
}

/* ---- products ---- */

/* Against the product with what the codes mean.  Fast arithmetic takes activations in 8 bits: half a step each. */
static void check_product(test_device *d, const struct target *t, int64_t n_rows, int64_t n_weights, int64_t k) {
  weft_tensor *x = test_random(d, TEST_SHAPE(n_rows, k), 1, 1), *w = test_random(d, TEST_SHAPE(n_weights, k), 1, 2);
  weft_tensor *q = weft_quantize(d->scope, w, &t->attrs);
  float *left = test_read(x), *right = test_read(weft_cast(d->scope, q, &(weft_cast_attrs){WEFT_F32}));
  double *want = test_doubles((size_t)(n_rows * n_weights)), *tolerance = test_doubles((size_t)(n_rows * n_weights));
  double step = d->arithmetic == WEFT_EXACT ? 0x1p-20 : 0.51 / 127;
  for (int64_t e = 0; e < n_rows * n_weights; e++)
    for (int64_t i = 0; i < k; i++) {
      double weight = (double)right[e % n_weights * k + i];
      want[e] += (double)left[e / n_weights * k + i] * weight;
      tolerance[e] += step * fabs(weight) + 0x1p-20 * fabs(weight);
    }
  test_compare("matmul_nt, quantised", d, weft_matmul_nt(d->scope, x, q), want, tolerance, 0, 0);
  test_compare("matmul, quantised", d, weft_matmul(d->scope, x, q, &(weft_matmul_attrs){.transpose_b = 1}), want,
               tolerance, 0, 0);
  free(left);
  free(right);
  free(want);
  free(tolerance);
}

static void check_products(test_device *d) {
  static const int64_t sizes[][3] = {{1, 1, 1},   {1, 40, 31}, {3, 17, 32},  {13, 33, 65},
                                     {5, 16, 96}, {2, 3, 257}, {30, 7, 1000}};
  for (size_t i = 0; i < WEFT_COUNT(sizes); i++)
    for (size_t k = 0; k < WEFT_COUNT(TARGETS); k++)
      check_product(d, &TARGETS[k], sizes[i][0], sizes[i][1], sizes[i][2]);
  weft_tensor *q = weft_quantize(d->scope, test_random(d, TEST_SHAPE(4, 0), 1, 1), &TARGETS[0].attrs);
  const double zeros[8] = {0};
  test_compare("matmul_nt of nothing", d, weft_matmul_nt(d->scope, test_random(d, TEST_SHAPE(2, 0), 1, 1), q), zeros,
               NULL, 0, 0);
}

static void products_take_quantised_weights(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_products);
  test_each_gpu(WEFT_FAST, check_products);
}

/* f16 and bf16 operands of a product give the bits of the same numbers in f32. */
static void check_half_products(test_device *d) {
  static const weft_dtype dtypes[] = {WEFT_F16, WEFT_BF16};
  for (int form = 0; form < TEST_N_FORMS; form++)
    for (size_t t = 0; t < WEFT_COUNT(dtypes); t++) {
      weft_tensor *a = test_operand(d, (test_form)form, dtypes[t], TEST_SHAPE(3, 7, 33), -1, 1, 1);
      weft_tensor *b = test_operand(d, (test_form)form, dtypes[1 - t], TEST_SHAPE(33, 20), -1, 1, 2);
      const weft_cast_attrs f32 = {WEFT_F32};
      const weft_matmul_attrs attrs = {0};
      weft_tensor *wide = weft_matmul(d->scope, weft_cast(d->scope, a, &f32), weft_cast(d->scope, b, &f32), &attrs);
      double *want = test_values(wide);
      test_compare("matmul of halves", d, weft_matmul(d->scope, a, b, &attrs), want, NULL, 1e-6, 0);
      free(want);
    }
}

/* Rows of halves that meet one vector, on either side. */
static void check_half_vectors(test_device *d) {
  static const weft_dtype dtypes[] = {WEFT_F16, WEFT_BF16};
  for (int form = 0; form < TEST_N_FORMS; form++)
    for (size_t t = 0; t < WEFT_COUNT(dtypes); t++) {
      const weft_cast_attrs f32 = {WEFT_F32};
      weft_tensor *w = test_operand(d, (test_form)form, dtypes[t], TEST_SHAPE(20, 72), -1, 1, 1);
      weft_tensor *x = test_operand(d, TEST_WHOLE, dtypes[t], TEST_SHAPE(72), -1, 1, 2);
      weft_tensor *row = weft_reshape(d->scope, x, TEST_SHAPE(1, 72));
      double *left = test_values(w), *right = test_values(x), want[20] = {0};
      for (int i = 0; i < 20 * 72; i++) want[i / 72] += left[i] * right[i % 72];
      test_compare("halves @ vector", d, weft_matmul(d->scope, w, x, &(weft_matmul_attrs){0}), want, NULL, 1e-5, 0);
      test_compare("row @ halves", d, weft_matmul(d->scope, row, w, &(weft_matmul_attrs){.transpose_b = 1}), want, NULL,
                   1e-5, 0);
      test_compare("f32 row by halves", d,
                   weft_matmul_nt(d->scope, weft_cast(d->scope, row, &f32), weft_contiguous(d->scope, w)), want, NULL,
                   1e-5, 0);
      free(left);
      free(right);
    }
}

static void products_take_halves(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_half_products);
  test_each_device(N_THREADS, check_half_vectors);
}

/* ---- the way back from every format ---- */

/* cast gives what embed gives, which other suites compare with other programs. */
static void check_dequantise(test_device *d) {
  enum { N_ROWS = 5, N_COLS = 512 };
  static const int32_t ids[N_ROWS] = {0, 1, 2, 3, 4};
  double *values = test_doubles(N_ROWS * N_COLS);
  for (int dtype = 0; dtype < WEFT_DTYPE_COUNT; dtype++) {
    if (!weft__dtype_get((weft_dtype)dtype)->is_quantised) continue;
    void *stored = test_stored_weight((weft_dtype)dtype, N_ROWS, N_COLS, 3, values);
    weft_tensor *a = weft_tensor_from(d->scope, (weft_dtype)dtype, TEST_SHAPE(N_ROWS, N_COLS), stored);
    float *looked_up = test_read(weft_embed(d->scope, a, test_i32(d, N_ROWS, ids)));
    float *cast = test_read(weft_cast(d->scope, a, &(weft_cast_attrs){WEFT_F32}));
    assert_memory_equal(cast, looked_up, N_ROWS * N_COLS * sizeof *cast);
    weft_tensor *packed = weft_weight_from(d->scope, (weft_dtype)dtype, N_ROWS, N_COLS, stored);
    float *unpacked = test_read(weft_cast(d->scope, packed, &(weft_cast_attrs){WEFT_F32}));
    assert_memory_equal(unpacked, looked_up, N_ROWS * N_COLS * sizeof *cast);
    free(unpacked);
    free(looked_up);
    free(cast);
    free(stored);
  }
  free(values);
}

static void every_format_is_dequantised(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_dequantise);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(any_shape_is_quantised),         cmocka_unit_test(rows_are_padded_with_zeros),
      cmocka_unit_test(extremes_are_stored_or_refused), cmocka_unit_test(products_take_quantised_weights),
      cmocka_unit_test(products_take_halves),           cmocka_unit_test(every_format_is_dequantised),
  };
  return cmocka_run_group_tests_name("ops_quantize", tests, NULL, NULL);
}
