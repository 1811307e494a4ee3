/* test_accelerator.c - which products of the CPU path go to the accelerator in use, with what operands, and what happens
 * when it fails.
 *
 * The accelerator here is plain C that multiplies in double and remembers what it was called with.  Operands that are
 * views lie in storage full of NaN, so a product that reads or leaves out an element is wrong. */
#include "support/gpu_env.h"
#include "support/tensors.h"

#include "weft/accelerator.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- the accelerator ---- */

/* What the last call was given. */
typedef struct call {
  int64_t m, n, k, lda, ldb, ldc;
  int transpose_a, transpose_b;
} call;

typedef struct recorder {
  int n_calls;
  call last;
  weft_status status; /* what each call returns; not WEFT_OK: after spoiling c */
  bool
      writes_constant; /* c is MARK everywhere, which is quicker than a product and as good a proof of where it is from */
  atomic_int n_inside; /* calls going on */
  atomic_int n_overlaps;
} recorder;

static const float MARK = 1234.5f;

static float element(const float *x, int64_t ld, int is_transposed, int64_t row, int64_t column) {
  return is_transposed ? x[column * ld + row] : x[row * ld + column];
}

static void multiply(const call *p, const float *a, const float *b, float *c) {
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      double sum = 0;
      for (int64_t l = 0; l < p->k; l++)
        sum += (double)element(a, p->lda, p->transpose_a, i, l) * (double)element(b, p->ldb, p->transpose_b, l, j);
      c[i * p->ldc + j] = (float)sum;
    }
}

static void fill_result(const call *p, float *c, float value) {
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) c[i * p->ldc + j] = value;
}

static weft_status record(void *context, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, int transpose_a,
                          const float *b, int64_t ldb, int transpose_b, float *c, int64_t ldc) {
  recorder *r = context;
  if (atomic_fetch_add(&r->n_inside, 1) > 0) atomic_fetch_add(&r->n_overlaps, 1);
  r->n_calls++;
  r->last = (call){m, n, k, lda, ldb, ldc, transpose_a, transpose_b};
  if (r->status || r->writes_constant)
    fill_result(&r->last, c, r->status ? NAN : MARK);
  else
    multiply(&r->last, a, b, c);
  atomic_fetch_sub(&r->n_inside, 1);
  return r->status;
}

/* From now on all products of at least n_macs go to the recorder. */
static void use(recorder *r, int64_t n_macs) {
  weft_accelerator_use(&(weft_accelerator){r, record});
  weft_accelerator_set_threshold(n_macs);
}

static int stop_using(void **state) {
  (void)state;
  weft_accelerator_use(NULL);
  weft_accelerator_set_threshold(0);
  return 0;
}

static void assert_counts(int64_t n_done, int64_t n_failed) {
  int64_t done, failed;
  weft_accelerator_counts(&done, &failed);
  assert_int_equal(done, n_done);
  assert_int_equal(failed, n_failed);
}

/* ---- products ---- */

static const weft_matmul_attrs plain = {0};

static weft_tensor *product(test_device *d, weft_tensor *a, weft_tensor *b, const weft_matmul_attrs *attrs) {
  weft_tensor *y = weft_matmul(d->scope, a, b, attrs);
  if (!y) fail_msg("matmul: %s", weft_last_error());
  return y;
}

/* A product of m*n*k multiply-accumulates with operands of its own. */
static weft_tensor *small_product(test_device *d, int64_t m, int64_t k, int64_t n) {
  weft_tensor *a = test_random(d, TEST_SHAPE(m, k), 1, 1), *b = test_random(d, TEST_SHAPE(k, n), 1, 2);
  return product(d, a, b, &plain);
}

/* Rows of `width` numbers inside rows of NaN: a [rows,width] view at row 1, column 3 of a [rows+2,width+7] tensor. */
static weft_tensor *inner_view(test_device *d, int64_t rows, int64_t width, uint64_t seed) {
  int64_t outer = width + 7;
  float *data = test_alloc((size_t)((rows + 2) * outer), sizeof *data), *line = test_alloc((size_t)width, sizeof *line);
  for (int64_t i = 0; i < (rows + 2) * outer; i++) data[i] = NAN;
  for (int64_t i = 0; i < rows; i++) {
    test_fill(line, (size_t)width, 1, seed + (uint64_t)i);
    memcpy(data + (i + 1) * outer + 3, line, (size_t)width * sizeof *line);
  }
  weft_tensor *t = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(rows + 2, outer), data);
  free(data);
  free(line);
  t = weft_slice(d->scope, t, 0, 1, rows);
  t = weft_slice(d->scope, t, 1, 3, width);
  assert_non_null(t);
  return t;
}

/* Fails unless y [M,N] is a @ b, each stored as its transpose if so said, up to the rounding of sums in f32. */
static void assert_product(test_device *d, const weft_tensor *y, const weft_tensor *a, int transpose_a,
                           const weft_tensor *b, int transpose_b) {
  float *x = test_read(a), *w = test_read(b);
  int64_t m = weft_tensor_shape(y)[0], n = weft_tensor_shape(y)[1], k = weft_tensor_shape(a)[transpose_a ? 0 : 1];
  const call p = {.m = m,
                  .n = n,
                  .k = k,
                  .lda = transpose_a ? m : k,
                  .ldb = transpose_b ? k : n,
                  .ldc = n,
                  .transpose_a = transpose_a,
                  .transpose_b = transpose_b};
  float *exact = test_alloc((size_t)(m * n), sizeof *exact);
  double *want = test_alloc((size_t)(m * n), sizeof *want);
  multiply(&p, x, w, exact);
  for (int64_t i = 0; i < m * n; i++) want[i] = (double)exact[i];
  test_compare("matmul", d, y, want, NULL, 1e-6 * sqrt((double)k), 1e-6);
  free(x);
  free(w);
  free(exact);
  free(want);
}

/* ---- the threshold ---- */

static void check_threshold(test_device *d) {
  recorder r = {.writes_constant = true};
  use(&r, 1000);
  small_product(d, 10, 10, 9);
  assert_int_equal(r.n_calls, 0);
  float *y = test_read(small_product(d, 10, 10, 10));
  assert_int_equal(r.n_calls, 1);
  for (int i = 0; i < 100; i++) assert_true(y[i] == MARK);
  free(y);
  small_product(d, 11, 10, 10);
  assert_counts(2, 0);
  weft_accelerator_set_threshold(1101);
  small_product(d, 11, 10, 10);
  assert_counts(2, 0);
}

static void test_threshold(void **state) {
  (void)state;
  test_each_device(2, check_threshold);
}

/* 400 x 1000 x 1000 is the default threshold; 0 brings it back. */
static void test_default_threshold(void **state) {
  (void)state;
  recorder r = {.writes_constant = true};
  test_device d = {.variant = "default"};
  assert_int_equal(weft_device_open(&d.device, &(weft_device_options){.kind = WEFT_DEVICE_CPU}), WEFT_OK);
  assert_int_equal(weft_scope_open(&d.scope, d.device, NULL), WEFT_OK);
  use(&r, 1);
  weft_accelerator_set_threshold(0);
  small_product(&d, 399, 1000, 1000);
  assert_int_equal(r.n_calls, 0);
  small_product(&d, 400, 1000, 1000);
  assert_int_equal(r.n_calls, 1);
  weft_scope_close(d.scope);
  weft_device_close(d.device);
}

/* What counts is the whole operator: a batch of many small matrices is a large product. */
static void check_batch_threshold(test_device *d) {
  recorder r = {0};
  use(&r, 10 * 100 * 7);
  weft_tensor *a = test_random(d, TEST_SHAPE(100, 2, 5), 1, 1), *b = test_random(d, TEST_SHAPE(100, 5, 7), 1, 2);
  weft_tensor *y = product(d, a, b, &plain);
  assert_int_equal(r.n_calls, 100);
  for (int i = 0; i < 100; i += 33) {
    weft_tensor *y_i = weft_reshape(d->scope, weft_slice(d->scope, y, 0, i, 1), TEST_SHAPE(2, 7));
    weft_tensor *a_i = weft_reshape(d->scope, weft_slice(d->scope, a, 0, i, 1), TEST_SHAPE(2, 5));
    weft_tensor *b_i = weft_reshape(d->scope, weft_slice(d->scope, b, 0, i, 1), TEST_SHAPE(5, 7));
    assert_product(d, y_i, a_i, 0, b_i, 0);
  }
  weft_accelerator_set_threshold(10 * 100 * 7 + 1);
  product(d, a, b, &plain);
  assert_int_equal(r.n_calls, 100);
}

static void test_batch_threshold(void **state) {
  (void)state;
  test_each_device(1, check_batch_threshold);
}

/* ---- which accelerator ---- */

static void check_exchange(test_device *d) {
  recorder first = {.writes_constant = true}, second = {.writes_constant = true};
  use(&first, 1);
  small_product(d, 2, 3, 4);
  assert_counts(1, 0);
  weft_accelerator_use(&(weft_accelerator){&second, record});
  assert_counts(0, 0);
  small_product(d, 2, 3, 4);
  small_product(d, 2, 3, 4);
  assert_counts(2, 0);
  weft_accelerator_use(NULL);
  assert_counts(0, 0);
  weft_tensor *a = test_random(d, TEST_SHAPE(9, 17), 1, 1), *b = test_random(d, TEST_SHAPE(17, 5), 1, 2);
  assert_product(d, product(d, a, b, &plain), a, 0, b, 0);
  assert_int_equal(first.n_calls, 1);
  assert_int_equal(second.n_calls, 2);
}

/* The latest counts, NULL means none, and the threshold outlives both. */
static void test_exchange(void **state) {
  (void)state;
  test_each_device(1, check_exchange);
}

/* ---- failures ---- */

static void check_failure(test_device *d) {
  recorder r = {.status = WEFT_EDEVICE};
  weft_accelerator_use(NULL);
  weft_tensor *a = test_random(d, TEST_SHAPE(3, 33, 70), 1, 1), *b = test_random(d, TEST_SHAPE(3, 70, 29), 1, 2);
  float *want = test_read(product(d, a, b, &plain));
  use(&r, 1);
  float *y = test_read(product(d, a, b, &plain));
  assert_int_equal(r.n_calls, 3);
  assert_counts(0, 3);
  assert_memory_equal(y, want, 3 * 33 * 29 * sizeof *y);
  free(y);
  r.status = WEFT_OK;
  free(test_read(product(d, a, b, &plain)));
  assert_counts(3, 3);
  free(want);
}

/* The accelerator filled the result with NaN before it gave up. */
static void test_failure(void **state) {
  (void)state;
  test_each_device(2, check_failure);
}

/* ---- operands ---- */

typedef struct sides {
  int64_t m, k, n;
} sides;

/* Views are handed over where they lie, with the length of their storage's rows. */
static void check_operands(test_device *d) {
  static const sides shapes[] = {{5, 7, 9}, {1, 6, 4}, {6, 4, 1}, {3, 1, 8}, {33, 20, 17}};
  recorder r = {0};
  use(&r, 1);
  for (size_t i = 0; i < WEFT_COUNT(shapes); i++)
    for (int form = 0; form < 4; form++) {
      sides s = shapes[i];
      const weft_matmul_attrs attrs = {.transpose_a = form & 1, .transpose_b = form >> 1};
      weft_tensor *a = attrs.transpose_a ? inner_view(d, s.k, s.m, 1) : inner_view(d, s.m, s.k, 1);
      weft_tensor *b = attrs.transpose_b ? inner_view(d, s.n, s.k, 99) : inner_view(d, s.k, s.n, 99);
      weft_tensor *y = product(d, a, b, &attrs);
      assert_product(d, y, a, attrs.transpose_a, b, attrs.transpose_b);
      assert_int_equal(r.last.m, s.m);
      assert_int_equal(r.last.n, s.n);
      assert_int_equal(r.last.k, s.k);
      if (s.m < 2 || s.k < 2 || s.n < 2) continue; /* one row or column is both transposed and not */
      assert_int_equal(r.last.transpose_a, attrs.transpose_a);
      assert_int_equal(r.last.transpose_b, attrs.transpose_b);
      assert_int_equal(r.last.lda, weft_tensor_strides(a)[0]);
      assert_int_equal(r.last.ldb, weft_tensor_strides(b)[0]);
      assert_int_equal(r.last.ldc, s.n);
    }
  assert_counts(4 * (int64_t)WEFT_COUNT(shapes), 0);
}

static void test_operands(void **state) {
  (void)state;
  test_each_device(1, check_operands);
}

/* A view with its axes exchanged is a transposed matrix in place. */
static void check_permuted(test_device *d) {
  recorder r = {0};
  use(&r, 1);
  weft_tensor *stored = inner_view(d, 12, 10, 1), *b = inner_view(d, 12, 5, 99);
  weft_tensor *a = weft_permute(d->scope, stored, (const int[]){1, 0});
  assert_product(d, product(d, a, b, &plain), stored, 1, b, 0);
  assert_int_equal(r.last.transpose_a, 1);
  assert_int_equal(r.last.lda, weft_tensor_strides(stored)[0]);
}

static void test_permuted(void **state) {
  (void)state;
  test_each_device(1, check_permuted);
}

/* One right operand for all of a batch. */
static void check_shared(test_device *d) {
  recorder r = {0};
  use(&r, 8 * 32 * 24 * 40);
  weft_tensor *a = test_random(d, TEST_SHAPE(8, 32, 24), 1, 1), *b = test_random(d, TEST_SHAPE(24, 40), 1, 2);
  weft_tensor *y = product(d, a, b, &plain);
  assert_true(r.n_calls > 0);
  assert_int_equal(r.last.m * r.n_calls, 8 * 32);
  assert_product(d, weft_reshape(d->scope, y, TEST_SHAPE(8 * 32, 40)),
                 weft_reshape(d->scope, a, TEST_SHAPE(8 * 32, 24)), 0, b, 0);
}

static void test_shared(void **state) {
  (void)state;
  test_each_device(1, check_shared);
}

/* ---- threads ---- */

enum { N_THREADS = 4, N_PRODUCTS = 50 };

/* Products on a device of the thread's own; NULL unless all are right. */
static void *multiply_often(void *context) {
  float *want = context, y[12];
  weft_device *device;
  weft_scope *scope = NULL;
  if (weft_device_open(&device, &(weft_device_options){.kind = WEFT_DEVICE_CPU, .n_threads = 1})) return context;
  bool is_right = weft_scope_open(&scope, device, NULL) == WEFT_OK;
  weft_tensor *a = weft_tensor_from(scope, WEFT_F32, TEST_SHAPE(3, 2), want);
  weft_tensor *b = weft_tensor_from(scope, WEFT_F32, TEST_SHAPE(2, 4), want + 6);
  for (int i = 0; i < N_PRODUCTS && is_right; i++) {
    weft_tensor *c = weft_matmul(scope, a, b, &plain);
    is_right = c && weft_tensor_read(c, y, sizeof y) == WEFT_OK;
    for (int j = 0; j < 12 && is_right; j++) is_right = y[j] == want[14 + j];
  }
  weft_scope_close(scope);
  weft_device_close(device);
  return is_right ? NULL : context;
}

/* However many threads multiply, the accelerator is called by one at a time. */
static void test_threads(void **state) {
  (void)state;
  recorder r = {0};
  float data[6 + 8 + 12]; /* a [3,2], b [2,4], their product */
  pthread_t threads[N_THREADS];
  test_fill(data, 14, 1, 1);
  multiply(&(call){.m = 3, .n = 4, .k = 2, .lda = 2, .ldb = 4, .ldc = 4}, data, data + 6, data + 14);
  use(&r, 1);
  for (int i = 0; i < N_THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, multiply_often, data), 0);
  for (int i = 0; i < N_THREADS; i++) {
    void *failure;
    assert_int_equal(pthread_join(threads[i], &failure), 0);
    assert_null(failure);
  }
  assert_int_equal(atomic_load(&r.n_overlaps), 0);
  assert_counts(N_THREADS * N_PRODUCTS, 0);
}

/* ---- devices as accelerators ---- */

static void test_no_device(void **state) {
  (void)state;
  weft_accelerator accelerator;
  weft_device *cpu;
  assert_int_equal(weft_accelerator_from_device(NULL, &accelerator), WEFT_EINVAL);
  /* A CPU would hand its products back to itself. */
  assert_int_equal(weft_device_open(&cpu, &(weft_device_options){.kind = WEFT_DEVICE_CPU}), WEFT_OK);
  assert_int_equal(weft_accelerator_from_device(cpu, &accelerator), WEFT_EINVAL);
  weft_device_close(cpu);
}

#ifdef WEFT_GPU

/* Operands and a result whose rows are longer than the matrices: the rest is NaN, and that of c must stay as it is. */
static void check_leading_dimensions(const weft_accelerator *accelerator, int transpose_a, int transpose_b) {
  enum { M = 37, N = 29, K = 41, LDA = 50, LDB = 49, LDC = 33 };
  const call p = {M, N, K, LDA, LDB, LDC, transpose_a, transpose_b};
  float a[LDA * LDA], b[LDA * LDA], c[M * LDC], want[M * LDC];
  for (int i = 0; i < LDA * LDA; i++) a[i] = b[i] = NAN;
  for (int i = 0; i < M * LDC; i++) c[i] = want[i] = MARK;
  for (int i = 0; i < (transpose_a ? K : M); i++) test_fill(a + i * LDA, transpose_a ? M : K, 1, (uint64_t)i);
  for (int i = 0; i < (transpose_b ? N : K); i++) test_fill(b + i * LDB, transpose_b ? K : N, 1, 99 + (uint64_t)i);
  multiply(&p, a, b, want);
  if (accelerator->matmul(accelerator->context, M, N, K, a, LDA, transpose_a, b, LDB, transpose_b, c, LDC))
    fail_msg("%s", weft_last_error());
  for (int i = 0; i < M * LDC; i++) assert_true(i % LDC < N ? fabsf(c[i] - want[i]) < 1e-5f : c[i] == MARK);
}

/* A product of the CPU that goes through the device. */
static void check_cpu_product(weft_device *gpu, const weft_accelerator *accelerator) {
  test_device d = {.variant = weft_device_name(gpu)};
  assert_int_equal(weft_device_open(&d.device, &(weft_device_options){.kind = WEFT_DEVICE_CPU}), WEFT_OK);
  assert_int_equal(weft_scope_open(&d.scope, d.device, NULL), WEFT_OK);
  weft_accelerator_use(accelerator);
  weft_accelerator_set_threshold(100 * 60 * 80);
  weft_tensor *a = test_random(&d, TEST_SHAPE(100, 60), 1, 1), *b = test_random(&d, TEST_SHAPE(60, 80), 1, 2);
  assert_product(&d, product(&d, a, b, &plain), a, 0, b, 0);
  assert_counts(1, 0);
  small_product(&d, 99, 60, 80);
  assert_counts(1, 0);
  weft_accelerator_use(NULL);
  weft_scope_close(d.scope);
  weft_device_close(d.device);
}

static void test_from_device(void **state) {
  (void)state;
  for (int i = 0; gpu_env_generations[i]; i++) {
    weft_device *gpu;
    weft_accelerator accelerator;
    gpu_env_use(gpu_env_generations[i]);
    if (weft_device_open(&gpu, &(weft_device_options){.kind = WEFT_DEVICE_GPU})) fail_msg("%s", weft_last_error());
    assert_int_equal(weft_accelerator_from_device(gpu, &accelerator), WEFT_OK);
    for (int form = 0; form < 4; form++) check_leading_dimensions(&accelerator, form & 1, form >> 1);
    check_cpu_product(gpu, &accelerator);
    weft_device_close(gpu);
  }
  gpu_env_use(NULL);
}

#endif

int main(void) {
#ifdef WEFT_GPU
  gpu_env_prepare();
#endif
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_threshold, stop_using),
      cmocka_unit_test_teardown(test_default_threshold, stop_using),
      cmocka_unit_test_teardown(test_batch_threshold, stop_using),
      cmocka_unit_test_teardown(test_exchange, stop_using),
      cmocka_unit_test_teardown(test_failure, stop_using),
      cmocka_unit_test_teardown(test_operands, stop_using),
      cmocka_unit_test_teardown(test_permuted, stop_using),
      cmocka_unit_test_teardown(test_shared, stop_using),
      cmocka_unit_test_teardown(test_threads, stop_using),
      cmocka_unit_test(test_no_device),
#ifdef WEFT_GPU
      cmocka_unit_test_teardown(test_from_device, stop_using),
#endif
  };
  return cmocka_run_group_tests_name("accelerator", tests, NULL, NULL);
}
