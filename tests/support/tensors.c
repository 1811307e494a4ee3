/* tensors.c - see tensors.h. */
#include "support/tensors.h"

#include "base/rng.h"
#include "support/amx_program.h"
#include "support/gpu_env.h"
#include "cpu/cpu.h"
#include "cpu/half.h"
#include "cpu/quant.h"
#ifdef WEFT_GPU
#include "gpu/gpu.h"
#endif

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

void *test_alloc(size_t n, size_t size) {
  void *p = calloc(n ? n : 1, size);
  assert_non_null(p);
  return p;
}

/* Opens a device with poisoned buffers and a scope on it, and runs the test; on a CPU perhaps with other kernels. */
static void with_options(const char *variant, const weft_device_options *options, const weft__cpu_kernels *kernels,
                         void (*test)(test_device *)) {
  test_device d = {.variant = variant, .arithmetic = options->arithmetic};
  if (weft_device_open(&d.device, options)) fail_msg("%s: %s", variant, weft_last_error());
  d.device->backend->poison = true;
  if (kernels) weft__cpu_of(d.device->backend)->kernels = kernels;
  assert_int_equal(weft_scope_open(&d.scope, d.device, NULL), WEFT_OK);
  test(&d);
  weft_scope_close(d.scope);
  weft_device_close(d.device);
}

static void with_cpu(const char *variant, weft_arithmetic arithmetic, int n_threads, void (*test)(test_device *)) {
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .arithmetic = arithmetic, .n_threads = n_threads};
  setenv("WEFT_CPU", variant, 1);
  with_options(variant, &options, NULL, test);
}

/* The variant amx where there is no matrix unit; its exact arithmetic is AVX-512's. */
static void with_amx_program(int n_threads, void (*test)(test_device *)) {
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .n_threads = n_threads};
  const weft__cpu_kernels *kernels = test_amx_program();
  if (!kernels) return;
  setenv("WEFT_CPU", "avx512", 1);
  with_options("amx by a program", &options, kernels, test);
}

static struct { bool use_gpus; } state;

void test_use_gpus(void) { state.use_gpus = true; }

void test_each_gpu(weft_arithmetic arithmetic, void (*test)(test_device *d)) {
#ifdef WEFT_GPU
  gpu_env_prepare();
  const weft_device_options options = {.kind = WEFT_DEVICE_GPU, .arithmetic = arithmetic};
  setenv("WEFT_STRICT", "1", 1);
  for (int i = 0; gpu_env_generations[i]; i++) {
    char variant[32];
    snprintf(variant, sizeof variant, "gpu %s", gpu_env_generations[i]);
    gpu_env_use(gpu_env_generations[i]);
    with_options(variant, &options, NULL, test);
    if (i > 0) continue;
    setenv("WEFT_GPU_CHECKED", "1", 1);
    with_options("gpu checked", &options, NULL, test);
    unsetenv("WEFT_GPU_CHECKED");
    setenv("WEFT_GPU_LIMITS", "min", 1);
    with_options("gpu lowest limits", &options, NULL, test);
    unsetenv("WEFT_GPU_LIMITS");
  }
  gpu_env_use(NULL);
  unsetenv("WEFT_STRICT");
#else
  (void)arithmetic, (void)test;
#endif
}

const char *test_next_variant(int *index) {
  const char *only = getenv("WEFT_TEST_CPU"), *name;
  while ((name = weft_cpu_variant_name((*index)++)))
    if (weft_cpu_variant_usable(*index - 1) && (!only || !*only || strcmp(name, only) == 0)) return name;
  return NULL;
}

void test_each_device(int n_threads, void (*test)(test_device *d)) {
  const char *set = getenv("WEFT_CPU");
  char *before = set ? strdup(set) : NULL;
  int n_run = 0;
  const char *variant;
  for (int i = 0; (variant = test_next_variant(&i));) {
    with_cpu(variant, WEFT_FAST, n_threads, test);
    with_cpu(variant, WEFT_EXACT, n_threads, test);
    n_run++;
  }
  with_amx_program(n_threads, test);
  if (before)
    setenv("WEFT_CPU", before, 1);
  else
    unsetenv("WEFT_CPU");
  free(before);
  assert_true(n_run > 0);
  if (state.use_gpus) test_each_gpu(WEFT_EXACT, test);
}

void test_fill(float *data, size_t n, float scale, uint64_t seed) {
  for (size_t i = 0; i < n; i++) data[i] = (float)(2 * weft__rng_uniform(seed, i, 7) - 1) * scale;
}

weft_tensor *test_random(test_device *d, int rank, const int64_t *shape, float scale, uint64_t seed) {
  size_t n = 1;
  for (int i = 0; i < rank; i++) n *= (size_t)shape[i];
  float *data = test_alloc(n, sizeof *data);
  test_fill(data, n, scale, seed);
  weft_tensor *t = weft_tensor_from(d->scope, WEFT_F32, rank, shape, data);
  assert_non_null(t);
  free(data);
  return t;
}

weft_tensor *test_i32(test_device *d, int64_t n, const int32_t *data) {
  weft_tensor *t = weft_tensor_from(d->scope, WEFT_I32, 1, &n, data);
  assert_non_null(t);
  return t;
}

weft_tensor *test_columns(test_device *d, int64_t n_rows, int64_t n, float scale, uint64_t seed) {
  weft_tensor *t = weft_slice(d->scope, test_random(d, TEST_SHAPE(n_rows, n + 9), scale, seed), 1, 5, n);
  assert_non_null(t);
  return t;
}

weft_tensor *test_transposed(test_device *d, weft_tensor *t) {
  weft_tensor *view = weft_permute(d->scope, t, (const int[]){1, 0});
  assert_non_null(view);
  return view;
}

const int64_t test_sizes[TEST_N_SIZES] = {0, 1, 7, 63, 65, 257};

void test_each_rows(test_device *d, float scale, void (*check)(test_device *d, weft_tensor *a)) {
  for (size_t i = 0; i < TEST_N_SIZES; i++) {
    int64_t n = test_sizes[i];
    check(d, test_random(d, TEST_SHAPE(n), scale, 10 * i));
    check(d, test_random(d, TEST_SHAPE(3, n), scale, 10 * i + 1));
    check(d, test_columns(d, 4, n, scale, 10 * i + 2));
    check(d, test_random(d, TEST_SHAPE(2, 3, n), scale, 10 * i + 3));
  }
  check(d, weft_slice(d->scope, test_random(d, TEST_SHAPE(9, 31), scale, 100), 0, 4, 3));
  check(d, test_random(d, TEST_SHAPE(0, 7), scale, 101));
  check(d, test_columns(d, 5, 1, scale, 102));
  check(d, test_random(d, TEST_SHAPE(130, 257), scale, 103));
  check(d, test_random(d, TEST_SHAPE(2, 20000), scale, 104));
}

/* Element e of a seeded tensor, in storage. */
static void put_element(weft_dtype dtype, double value, void *data, size_t e) {
  if (dtype == WEFT_F32)
    ((float *)data)[e] = (float)value;
  else if (dtype == WEFT_I32)
    ((int32_t *)data)[e] = (int32_t)floor(value);
  else
    ((uint16_t *)data)[e] = dtype == WEFT_F16 ? weft__f32_to_f16((float)value) : weft__f32_to_bf16((float)value);
}

weft_tensor *test_operand(test_device *d, test_form form, weft_dtype dtype, int rank, const int64_t *shape, double low,
                          double high, uint64_t seed) {
  int64_t stored[WEFT_MAX_RANK] = {0}, n = 1;
  int axes[WEFT_MAX_RANK];
  if ((form == TEST_TURNED && rank < 2) || rank == 0) form = TEST_WHOLE;
  for (int i = 0; i < rank; i++) axes[i] = i, stored[i] = shape[i];
  if (form == TEST_TURNED) {
    axes[rank - 2] = rank - 1, axes[rank - 1] = rank - 2;
    stored[rank - 2] = shape[rank - 1], stored[rank - 1] = shape[rank - 2];
  }
  if (form == TEST_COLUMNS) stored[rank - 1] += 3;
  for (int i = 0; i < rank; i++) n *= stored[i];
  void *data = test_alloc((size_t)n, 4);
  for (int64_t e = 0; e < n; e++)
    put_element(dtype, low + (high - low) * weft__rng_uniform(seed, (uint64_t)e, 3), data, (size_t)e);
  weft_tensor *t = weft_tensor_from(d->scope, dtype, rank, stored, data);
  free(data);
  if (form == TEST_TURNED) t = weft_permute(d->scope, t, axes);
  if (form == TEST_COLUMNS) t = weft_slice(d->scope, t, rank - 1, 2, shape[rank - 1]);
  if (!t) fail_msg("test_operand: %s", weft_last_error());
  return t;
}

/* A random f16 in [-0.05, 0.05); returns its value. */
static double put_f16(uint8_t *to, uint64_t seed, uint64_t counter) {
  uint16_t half = weft__f32_to_f16((float)(weft__rng_uniform(seed, counter, 1) - 0.5) * 0.1f);
  memcpy(to, &half, 2);
  return (double)weft__f16_to_f32(half);
}

/* A block of random bits, every code among them, in which d and m are small numbers instead: where they are. */
static const struct scale_places {
  int d, m; /* bytes into the block; m 0: there is none */
} SCALE_PLACES[WEFT_DTYPE_COUNT] = {
    [WEFT_Q4_1] = {0, 2}, [WEFT_Q5_1] = {0, 2}, [WEFT_Q2_K] = {80, 82}, [WEFT_Q3_K] = {108, 0},
    [WEFT_Q4_K] = {0, 2}, [WEFT_Q5_K] = {0, 2}, [WEFT_Q6_K] = {208, 0},
};

static void put_quantised(weft_dtype dtype, uint8_t *block, uint64_t seed, uint64_t counter) {
  for (int i = 0; i < weft__dtype_get(dtype)->block_bytes; i += 4) {
    uint32_t draw[4];
    weft__philox(seed, counter * 256 + (uint64_t)i, 2, draw);
    for (int byte = i; byte < i + 4 && byte < weft__dtype_get(dtype)->block_bytes; byte++)
      block[byte] = (uint8_t)(draw[0] >> (8 * (byte - i)));
  }
  const struct scale_places *at = &SCALE_PLACES[dtype];
  if (dtype == WEFT_MXFP4)
    block[0] = (uint8_t)(115 + block[0] % 12);
  else
    put_f16(block + at->d, seed, 2 * counter);
  if (at->m) put_f16(block + at->m, seed, 2 * counter + 1);
}

/* What a block means, in double. */
static void quantised_values(weft_dtype dtype, const uint8_t *stored, double *values) {
  const weft__quant_format *f = &WEFT__QUANT_FORMATS[dtype];
  weft__quant_block block;
  weft__quant_read(dtype, stored, &block);
  double d = f->is_e8m0 ? ldexp(1, block.d - 128) : (double)weft__f16_to_f32(block.d);
  double m = (double)weft__f16_to_f32(block.m);
  int n_scales = weft__quant_n_scales(f), run = n_scales == 2 ? 16 : 32;
  for (int c = 0; c < f->n_columns; c++) {
    int code = block.codes[c], value = code - f->offset;
    if (f->values == WEFT__VALUE_SIGNED) value = code < 128 ? code : code - 256;
    if (f->values == WEFT__VALUE_IQ4) value = 1 * WEFT__IQ4_VALUES[code];
    if (f->values == WEFT__VALUE_FP4) value = 1 * WEFT__FP4_VALUES[code];
    int part = c / run;
    values[c] = (n_scales ? d * (int8_t)block.scales[part] : d) * value;
    if (f->minimum == WEFT__MIN_ADDED) values[c] += m;
    if (f->minimum > WEFT__MIN_ADDED) values[c] -= m * block.minima[part];
  }
}

void *test_stored_weight(weft_dtype dtype, int64_t n_rows, int64_t n_cols, uint64_t seed, double *values) {
  const weft__dtype_info *info = weft__dtype_get(dtype);
  size_t n_bytes = 0;
  assert_true(weft__dtype_bytes(dtype, n_rows * n_cols, &n_bytes));
  uint8_t *bytes = test_alloc(n_bytes, 1);
  int64_t n_blocks = n_rows * n_cols / info->block_len;
  for (int64_t b = 0; b < n_blocks; b++) {
    uint8_t *block = bytes + b * info->block_bytes;
    double *value = values + b * info->block_len;
    if (info->is_quantised) {
      put_quantised(dtype, block, seed, (uint64_t)b);
      quantised_values(dtype, block, value);
    } else if (dtype == WEFT_F16) {
      *value = put_f16(block, seed, (uint64_t)b);
    } else {
      float x = (float)(2 * weft__rng_uniform(seed, (uint64_t)b, 0) - 1);
      uint16_t upper = (uint16_t)(weft__f32_bits(x) >> 16);
      memcpy(block, dtype == WEFT_BF16 ? (void *)&upper : (void *)&x, (size_t)info->block_bytes);
      *value = (double)(dtype == WEFT_BF16 ? weft__bf16_to_f32(upper) : x);
    }
  }
  return bytes;
}

float *test_read(const weft_tensor *t) {
  if (!t) fail_msg("no tensor to read: %s", weft_last_error());
  float *data = test_alloc((size_t)weft_tensor_numel(t), sizeof *data);
  assert_int_equal(weft_tensor_read(t, data, weft_tensor_bytes(t)), WEFT_OK);
  return data;
}

double *test_doubles(size_t n) { return test_alloc(n, sizeof(double)); }

double *test_values(const weft_tensor *t) {
  if (!t) fail_msg("no tensor to read: %s", weft_last_error());
  int64_t n = weft_tensor_numel(t);
  void *data = test_alloc((size_t)n, 4);
  assert_int_equal(weft_tensor_read(t, data, weft_tensor_bytes(t)), WEFT_OK);
  double *values = test_doubles((size_t)n);
  for (int64_t i = 0; i < n; i++)
    values[i] = t->dtype == WEFT_F32   ? (double)((const float *)data)[i]
                : t->dtype == WEFT_I32 ? (double)((const int32_t *)data)[i]
                : t->dtype == WEFT_F16 ? (double)weft__f16_to_f32(((const uint16_t *)data)[i])
                                       : (double)weft__bf16_to_f32(((const uint16_t *)data)[i]);
  free(data);
  return values;
}

bool test_is_gpu(const test_device *d) { return !strncmp(d->variant, "gpu", 3); }

void test_narrow_bindings(test_device *d, uint64_t n_bytes) {
#ifdef WEFT_GPU
  if (test_is_gpu(d)) weft__gpu_of(d->device->backend)->info.limits.max_binding_bytes = n_bytes;
#else
  (void)d, (void)n_bytes;
#endif
}

void test_expect_fault(const test_device *d, const weft_tensor *y, const char *text) {
  bool is_told_later = y && test_is_gpu(d);
  if (y && !is_told_later) fail_msg("(%s): taken, not \"%s\"", d->variant, text);
  assert_int_equal(is_told_later ? weft_device_sync(d->device) : weft_last_status(), WEFT_EINVAL);
  assert_string_equal(weft_last_error(), text);
  if (is_told_later) assert_int_equal(weft_device_sync(d->device), WEFT_OK);
}

int64_t test_broadcast_place(const weft_tensor *t, const weft_tensor *y, int64_t e) {
  int64_t place = 0, step = 1;
  int n_missing = weft_tensor_rank(y) - weft_tensor_rank(t);
  for (int i = weft_tensor_rank(y) - 1; i >= n_missing; i--) {
    int64_t extent = weft_tensor_shape(t)[i - n_missing], index = e % weft_tensor_shape(y)[i];
    e /= weft_tensor_shape(y)[i];
    if (extent != 1) place += index * step;
    step *= extent;
  }
  return place;
}

void test_expect_shape(const char *what, const weft_tensor *y, weft_dtype dtype, int rank, const int64_t *shape) {
  if (!y) fail_msg("%s: %s", what, weft_last_error());
  assert_int_equal(weft_tensor_dtype(y), dtype);
  assert_int_equal(weft_tensor_rank(y), rank);
  for (int i = 0; i < rank; i++) assert_int_equal(weft_tensor_shape(y)[i], shape[i]);
  assert_true(weft__is_contiguous(y));
}

void test_expect_values(const char *what, const test_device *d, const weft_tensor *y, const double *want,
                        double relative) {
  if (!y) fail_msg("%s (%s): %s", what, d->variant, weft_last_error());
  double *got = test_values(y);
  for (int64_t i = 0; i < weft_tensor_numel(y); i++) {
    double x = got[i];
    /* A GPU may take subnormals for 0. */
    if (test_is_gpu(d) && fabs(want[i]) < 0x1p-126 && fabs(x) < 0x1p-126) continue;
    bool is_right = isnan(want[i])                                    ? isnan(x)
                    : isinf(want[i]) || want[i] == 0 || relative == 0 ? x == want[i] && !signbit(x) == !signbit(want[i])
                                                                      : fabs(x - want[i]) <= relative * fabs(want[i]);
    if (!is_right) fail_msg("%s (%s): element %lld is %g, not %g", what, d->variant, (long long)i, x, want[i]);
  }
  free(got);
}

void test_compare(const char *what, const test_device *d, const weft_tensor *y, const double *want,
                  const double *tolerance, double absolute, double relative) {
  const char *arithmetic = d->arithmetic == WEFT_EXACT ? "exact" : "fast";
  if (!y) fail_msg("%s (%s, %s): %s", what, d->variant, arithmetic, weft_last_error());
  /* The shading language allows a division 2.5 ulp, need not fuse fma, and may take subnormals for 0. */
  bool is_gpu = test_is_gpu(d);
  double slack = is_gpu ? 8 : 1, tiny = is_gpu ? 0x1p-126 : 0;
  double *got = test_values(y);
  for (int64_t i = 0; i < weft_tensor_numel(y); i++) {
    double allowed = (tolerance ? tolerance[i] : absolute + relative * fabs(want[i])) * slack + tiny;
    if (fabs(got[i] - want[i]) <= allowed) continue; /* a NaN fails here */
    fail_msg("%s (%s, %s): element %lld is %.9g, expected %.9g +- %.3g", what, d->variant, arithmetic, (long long)i,
             got[i], want[i], allowed);
  }
  free(got);
}
