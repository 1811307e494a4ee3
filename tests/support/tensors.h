/* tensors.h - for suites that check operators: devices of every variant, seeded data, and comparison with a
 * double-precision reference. */
#ifndef WEFT_TEST_TENSORS_H
#define WEFT_TEST_TENSORS_H

#include "weft.h"
#include "tensor/tensor.h"

/* The two arguments rank and shape of a call: weft_tensor_new(scope, WEFT_F32, TEST_SHAPE(2, 3)). */
#define TEST_SHAPE(...)                                                                                                \
  (int)WEFT_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]) { __VA_ARGS__ }

/* One way to run operators. */
typedef struct test_device {
  const char *variant; /* "avx2" */
  weft_arithmetic arithmetic;
  weft_device *device; /* its new buffers are full of NaN */
  weft_scope *scope;
} test_device;

/* Calls `test` with every usable CPU variant, in both arithmetics, with n_threads threads; restores WEFT_CPU.  The scope
 * is fresh and closed afterwards. */
void test_each_device(int n_threads, void (*test)(test_device *d));

/* From now on test_each_device runs its test on every generation of the WebGPU library, too (first thing in main).  No
 * effect in a build without GPU code. */
void test_use_gpus(void);

/* Seeded numbers: uniform in [-scale, scale). */
void test_fill(float *data, size_t n, float scale, uint64_t seed);
weft_tensor *test_random(test_device *d, int rank, const int64_t *shape, float scale, uint64_t seed);

/* `n_rows` x `n_cols` of valid random stored bytes of a dtype (float or quantised; freed with free), and what they
 * mean, in `values` [n_rows*n_cols]. */
void *test_stored_weight(weft_dtype dtype, int64_t n_rows, int64_t n_cols, uint64_t seed, double *values);

/* Fails the running test with the operator's name and the first wrong element unless |y - want| <= tolerance[i] for all
 * elements (tolerance NULL: absolute + relative * |want|).  `y` NULL fails with the last error. */
void test_compare(const char *what, const test_device *d, const weft_tensor *y, const double *want,
                  const double *tolerance, double absolute, double relative);

/* The tensor's elements, freed with free; f32 only.  NULL fails with the last error. */
float *test_read(const weft_tensor *t);

/* malloc that fails the test instead of returning NULL; n may be 0. */
void *test_alloc(size_t n, size_t size);

#endif
