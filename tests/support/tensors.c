/* tensors.c - see tensors.h. */
#include "support/tensors.h"

#include "base/rng.h"
#include "support/gpu_env.h"
#include "cpu/half.h"
#include "cpu/quant.h"

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

/* Opens a device with poisoned buffers and a scope on it, and runs the test. */
static void with_options(const char *variant, const weft_device_options *options, void (*test)(test_device *)) {
  test_device d = {.variant = variant, .arithmetic = options->arithmetic};
  if (weft_device_open(&d.device, options)) fail_msg("%s: %s", variant, weft_last_error());
  d.device->backend->poison = true;
  assert_int_equal(weft_scope_open(&d.scope, d.device, NULL), WEFT_OK);
  test(&d);
  weft_scope_close(d.scope);
  weft_device_close(d.device);
}

static void with_cpu(const char *variant, weft_arithmetic arithmetic, int n_threads, void (*test)(test_device *)) {
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .arithmetic = arithmetic, .n_threads = n_threads};
  setenv("WEFT_CPU", variant, 1);
  with_options(variant, &options, test);
}

static struct { bool use_gpus; } state;

void test_use_gpus(void) {
#ifdef WEFT_GPU
  gpu_env_prepare();
  state.use_gpus = true;
#endif
}

/* Every generation; the first also with its shaders' checks on, and with the lowest limits. */
static void each_gpu(void (*test)(test_device *d)) {
#ifdef WEFT_GPU
  const weft_device_options options = {.kind = WEFT_DEVICE_GPU, .arithmetic = WEFT_EXACT};
  for (int i = 0; gpu_env_generations[i]; i++) {
    char variant[32];
    snprintf(variant, sizeof variant, "gpu %s", gpu_env_generations[i]);
    gpu_env_use(gpu_env_generations[i]);
    with_options(variant, &options, test);
    if (i > 0) continue;
    setenv("WEFT_GPU_CHECKED", "1", 1);
    with_options("gpu checked", &options, test);
    unsetenv("WEFT_GPU_CHECKED");
    setenv("WEFT_GPU_LIMITS", "min", 1);
    with_options("gpu lowest limits", &options, test);
    unsetenv("WEFT_GPU_LIMITS");
  }
  gpu_env_use(NULL);
#else
  (void)test;
#endif
}

void test_each_device(int n_threads, void (*test)(test_device *d)) {
  const char *set = getenv("WEFT_CPU");
  char *before = set ? strdup(set) : NULL;
  int n_run = 0;
  for (int i = 0; weft_cpu_variant_name(i); i++) {
    if (!weft_cpu_variant_usable(i)) continue;
    with_cpu(weft_cpu_variant_name(i), WEFT_FAST, n_threads, test);
    with_cpu(weft_cpu_variant_name(i), WEFT_EXACT, n_threads, test);
    n_run++;
  }
  if (before)
    setenv("WEFT_CPU", before, 1);
  else
    unsetenv("WEFT_CPU");
  free(before);
  assert_true(n_run > 0);
  if (state.use_gpus) each_gpu(test);
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
    if (f->values == WEFT__VALUE_SIGNED) value = (int8_t)code;
    if (f->values == WEFT__VALUE_IQ4) value = WEFT__IQ4_VALUES[code];
    if (f->values == WEFT__VALUE_FP4) value = WEFT__FP4_VALUES[code];
    values[c] = (n_scales ? d * (int8_t)block.scales[c / run] : d) * value;
    if (f->minimum == WEFT__MIN_ADDED) values[c] += m;
    if (f->minimum > WEFT__MIN_ADDED) values[c] -= m * block.minima[c / run];
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

void test_compare(const char *what, const test_device *d, const weft_tensor *y, const double *want,
                  const double *tolerance, double absolute, double relative) {
  const char *arithmetic = d->arithmetic == WEFT_EXACT ? "exact" : "fast";
  if (!y) fail_msg("%s (%s, %s): %s", what, d->variant, arithmetic, weft_last_error());
  /* The shading language allows a division 2.5 ulp, need not fuse fma, and may take subnormals for 0. */
  bool is_gpu = !strncmp(d->variant, "gpu", 3);
  double slack = is_gpu ? 8 : 1, tiny = is_gpu ? 0x1p-126 : 0;
  float *got = test_read(y);
  for (int64_t i = 0; i < weft_tensor_numel(y); i++) {
    double allowed = (tolerance ? tolerance[i] : absolute + relative * fabs(want[i])) * slack + tiny;
    if (fabs((double)got[i] - want[i]) <= allowed) continue; /* a NaN fails here */
    fail_msg("%s (%s, %s): element %lld is %.9g, expected %.9g +- %.3g", what, d->variant, arithmetic, (long long)i,
             (double)got[i], want[i], allowed);
  }
  free(got);
}
