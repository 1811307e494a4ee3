/* tensors.c - see tensors.h. */
#include "support/tensors.h"

#include "base/rng.h"
#include "support/gpu_env.h"
#include "cpu/half.h"

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

void *test_stored_weight(weft_dtype dtype, int64_t n_rows, int64_t n_cols, uint64_t seed, double *values) {
  const weft__dtype_info *info = weft__dtype_get(dtype);
  size_t n_bytes = 0;
  assert_true(weft__dtype_bytes(dtype, n_rows * n_cols, &n_bytes));
  uint8_t *bytes = test_alloc(n_bytes, 1);
  int64_t n_blocks = n_rows * n_cols / info->block_len;
  for (int64_t b = 0; b < n_blocks; b++) {
    uint8_t *block = bytes + b * info->block_bytes;
    double *value = values + b * info->block_len;
    if (dtype == WEFT_F32) {
      float x = (float)(2 * weft__rng_uniform(seed, (uint64_t)b, 0) - 1);
      memcpy(block, &x, 4);
      *value = (double)x;
    } else if (dtype == WEFT_F16) {
      *value = put_f16(block, seed, (uint64_t)b);
    } else { /* random quants, every value of a nibble or byte among them */
      double d = put_f16(block, seed, 2 * (uint64_t)b), m = 0;
      uint8_t *q = block + 2;
      if (dtype == WEFT_Q4_1) m = put_f16(q, seed, 2 * (uint64_t)b + 1), q += 2;
      for (int i = 0; i < (dtype == WEFT_Q4_1 ? 16 : 32); i++) {
        uint32_t draw[4];
        weft__philox(seed, (uint64_t)(b * 32 + i), 2, draw);
        q[i] = (uint8_t)draw[0];
        if (dtype == WEFT_Q8_0)
          value[i] = d * (int8_t)q[i];
        else
          value[i] = d * (q[i] & 15) + m, value[i + 16] = d * (q[i] >> 4) + m;
      }
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
