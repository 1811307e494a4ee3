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

/* The next CPU variant to test from *index on, which begins at 0: a usable one, and if WEFT_TEST_CPU is set the one that it
 * names.  NULL after the last. */
const char *test_next_variant(int *index);

/* Calls `test` with every such CPU variant, in both arithmetics, with n_threads threads; restores WEFT_CPU.  The scope
 * is fresh and closed afterwards. */
void test_each_device(int n_threads, void (*test)(test_device *d));

/* From now on test_each_device runs its test on GPUs, too, in exact arithmetic (first thing in main). */
void test_use_gpus(void);

/* Calls `test` with every generation of the WebGPU library; with the first also with its shaders' checks on, and with the
 * lowest limits.  Under WEFT_STRICT: an operator that would run on the CPU fails.  No effect in a build without GPU
 * code. */
void test_each_gpu(weft_arithmetic arithmetic, void (*test)(test_device *d));

/* Seeded numbers: uniform in [-scale, scale). */
void test_fill(float *data, size_t n, float scale, uint64_t seed);
weft_tensor *test_random(test_device *d, int rank, const int64_t *shape, float scale, uint64_t seed);

/* The forms that a view of the same elements can take. */
typedef enum test_form {
  TEST_WHOLE,   /* contiguous */
  TEST_TURNED,  /* the last two axes changed places; below rank 2: whole */
  TEST_COLUMNS, /* part of a wider last axis; rank 0: whole */
  TEST_N_FORMS
} test_form;

/* A seeded tensor of f32, f16, bf16 or i32 in one of the forms: uniform in [low, high), i32 without fraction. */
weft_tensor *test_operand(test_device *d, test_form form, weft_dtype dtype, int rank, const int64_t *shape, double low,
                          double high, uint64_t seed);

/* A vector of i32. */
weft_tensor *test_i32(test_device *d, int64_t n, const int32_t *data);

/* Columns 5 .. n+4 of a random tensor that is wider. */
weft_tensor *test_columns(test_device *d, int64_t n_rows, int64_t n, float scale, uint64_t seed);

/* The view with both axes swapped. */
weft_tensor *test_transposed(test_device *d, weft_tensor *t);

/* Around the widths of vectors and their multiples. */
enum { TEST_N_SIZES = 6 };
extern const int64_t test_sizes[TEST_N_SIZES];

/* Calls `check` with all forms that rows come in: ranks 1 to 3, parts of the rows of a wider tensor, a column, no rows,
 * many rows. */
void test_each_rows(test_device *d, float scale, void (*check)(test_device *d, weft_tensor *a));

/* Place of that element of `t`, in row-major order, that broadcasting brings to element e of a result like `y`. */
int64_t test_broadcast_place(const weft_tensor *t, const weft_tensor *y, int64_t e);

/* Fails unless `y` is contiguous and of this dtype and shape. */
void test_expect_shape(const char *what, const weft_tensor *y, weft_dtype dtype, int rank, const int64_t *shape);

/* As test_compare, for results that are not all finite: NaN is NaN, infinities and zeros have their signs. */
void test_expect_values(const char *what, const test_device *d, const weft_tensor *y, const double *want,
                        double relative);

/* Fails unless what an operand holds was refused with EINVAL and this text: `y` is NULL, or on a GPU the next sync tells,
 * and the one after it no more. */
void test_expect_fault(const test_device *d, const weft_tensor *y, const char *text);

/* Is it one of the GPU's variants? */
bool test_is_gpu(const test_device *d);

/* From now on the GPU's operators take no more than n_bytes into one binding, so that small tensors are worked on in
 * parts.  No effect on a CPU. */
void test_narrow_bindings(test_device *d, uint64_t n_bytes);

/* `n_rows` x `n_cols` of valid random stored bytes of a dtype (float or quantised; freed with free), and what they
 * mean, in `values` [n_rows*n_cols]. */
void *test_stored_weight(weft_dtype dtype, int64_t n_rows, int64_t n_cols, uint64_t seed, double *values);

/* Fails the running test with the operator's name and the first wrong element unless |y - want| <= tolerance[i] for all
 * elements (tolerance NULL: absolute + relative * |want|).  `y` NULL fails with the last error. */
void test_compare(const char *what, const test_device *d, const weft_tensor *y, const double *want,
                  const double *tolerance, double absolute, double relative);

/* The tensor's elements, freed with free; f32 only.  NULL fails with the last error. */
float *test_read(const weft_tensor *t);

/* The tensor's elements as doubles: f32, f16, bf16 or i32. */
double *test_values(const weft_tensor *t);

/* Room for n doubles, zeros. */
double *test_doubles(size_t n);

/* Half an f32 step: what one rounding may be off by, relative to the value. */
#define TEST_ROUNDING 0x1p-24

/* malloc that fails the test instead of returning NULL; n may be 0. */
void *test_alloc(size_t n, size_t size);

#endif
