/* op_random.c - what sets elements without reading any: fill, fill_uniform, fill_normal; and dropout, which draws as they do.
 * Results are contiguous, so all of them go window by window. */
#include "gpu/gpu.h"

#include <math.h>   /* nextafterf */
#include <string.h> /* memcpy */

enum { PER_GROUP = 256, FILL_PER_GROUP = PER_GROUP * 4, DRAWS = 4 /* of a block of Philox */ };

static uint64_t n_groups(int64_t n, int64_t per_group) {
  return ((uint64_t)n + (uint64_t)per_group - 1) / (uint64_t)per_group;
}

static bool is_half(const weft_tensor *t) { return weft__dtype_get(t->dtype)->block_bytes == 2; }

/* ---- fill ---- */

static weft_status fill_window(weft__gpu *gpu, weft__gpu_kernel kernel, const weft_tensor *y, int64_t first,
                               int64_t count, uint32_t value) {
  const weft__wgsl_const constants[] = {{"Y_DTYPE", y->dtype}, {NULL, 0}};
  weft__gpu_fill_params p = {.value = value, .first_mask = UINT32_MAX, .last_mask = UINT32_MAX};
  uint32_t start;
  const weft__gpu_range range = weft__gpu_window(gpu, y, first, count, &start);
  p.n = (uint32_t)count;
  p.y_offset = start;
  if (is_half(y)) {
    uint32_t end = start + (uint32_t)count;
    p.y_offset = start / 2;
    p.n = (end + 1) / 2 - start / 2;
    if (start % 2) p.first_mask = 0xffff0000u;
    if (end % 2) p.last_mask = 0x0000ffffu;
  }
  return weft__gpu_dispatch(gpu, kernel, constants, &range, &p, n_groups(p.n, FILL_PER_GROUP));
}

weft_status weft__gpu_each_word(weft__gpu *gpu, weft__gpu_kernel kernel, const weft_tensor *y, float value) {
  int64_t n = weft_tensor_numel(y), window = weft__gpu_window_elements(gpu);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window)
    status = fill_window(gpu, kernel, y, first, weft__min_i64(n - first, window), bits);
  return status;
}

weft_status weft__gpu_fill(weft__backend *backend, const weft__op_call *call) {
  return weft__gpu_each_word(weft__gpu_of(backend), WEFT__KERNEL_fill, call->out,
                             ((const weft_fill_attrs *)call->attrs)->value);
}

/* ---- fill_uniform, fill_normal ---- */

static uint32_t low_word(uint64_t x) { return (uint32_t)x; }
static uint32_t high_word(uint64_t x) { return (uint32_t)(x >> 32); }

/* Draws for all of `y`: `p` has everything but the window. */
static weft_status run_random(weft__gpu *gpu, const weft_tensor *y, bool is_normal, weft__gpu_random_params p) {
  int64_t n = weft_tensor_numel(y), window = weft__gpu_window_elements(gpu); /* a multiple of DRAWS */
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window) {
    int64_t count = weft__min_i64(n - first, window);
    const weft__gpu_range range = weft__gpu_window(gpu, y, first, count, &p.y_offset);
    uint32_t odd = is_half(y) ? p.y_offset % 2 : 0;
    const weft__wgsl_const constants[] = {{"Y_DTYPE", y->dtype}, {"NORMAL", is_normal}, {"ODD", odd}, {NULL, 0}};
    p.n = (uint32_t)count;
    p.block_low = low_word((uint64_t)first / DRAWS);
    p.block_high = high_word((uint64_t)first / DRAWS);
    status =
        weft__gpu_dispatch(gpu, WEFT__KERNEL_random, constants, &range, &p, n_groups(count + odd, PER_GROUP * DRAWS));
  }
  return status;
}

weft_status weft__gpu_fill_uniform(weft__backend *backend, const weft__op_call *call) {
  const weft_fill_uniform_attrs *attrs = call->attrs;
  return run_random(weft__gpu_of(backend), call->out, false,
                    (weft__gpu_random_params){.seed_low = low_word(attrs->seed),
                                              .seed_high = high_word(attrs->seed),
                                              .stream_low = low_word(attrs->stream),
                                              .stream_high = high_word(attrs->stream),
                                              .shift = attrs->low,
                                              .scale = attrs->high - attrs->low,
                                              .last = nextafterf(attrs->high, attrs->low)});
}

weft_status weft__gpu_fill_normal(weft__backend *backend, const weft__op_call *call) {
  const weft_fill_normal_attrs *attrs = call->attrs;
  return run_random(weft__gpu_of(backend), call->out, true,
                    (weft__gpu_random_params){.seed_low = low_word(attrs->seed),
                                              .seed_high = high_word(attrs->seed),
                                              .stream_low = low_word(attrs->stream),
                                              .stream_high = high_word(attrs->stream),
                                              .shift = attrs->mean,
                                              .scale = attrs->deviation});
}

/* ---- dropout ---- */

/* y = dropout of a contiguous a. */
static weft_status run_dropout(weft__gpu *gpu, const weft_tensor *a, const weft_dropout_attrs *attrs,
                               const weft_tensor *y) {
  const weft__wgsl_const constants[] = {{"A_DTYPE", a->dtype}, {NULL, 0}};
  int64_t n = weft_tensor_numel(y), window = weft__gpu_window_elements(gpu);
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window) {
    int64_t count = weft__min_i64(n - first, window);
    weft__gpu_dropout_params p = {.n = (uint32_t)count,
                                  .seed_low = low_word(attrs->seed),
                                  .seed_high = high_word(attrs->seed),
                                  .stream_low = low_word(attrs->stream),
                                  .stream_high = high_word(attrs->stream),
                                  .block_low = low_word((uint64_t)first / DRAWS),
                                  .block_high = high_word((uint64_t)first / DRAWS),
                                  .rate = attrs->p,
                                  .keep = 1 - attrs->p};
    const weft__gpu_range ranges[] = {weft__gpu_window(gpu, a, first, count, &p.a_offset),
                                      weft__gpu_window(gpu, y, first, count, &p.y_offset)};
    status = weft__gpu_dispatch(gpu, WEFT__KERNEL_dropout, constants, ranges, &p, n_groups(count, PER_GROUP * DRAWS));
  }
  return status;
}

weft_status weft__gpu_dropout(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *a = call->in[0];
  if (weft_tensor_numel(a) == 0) return WEFT_OK;
  if (weft__is_contiguous(a)) return run_dropout(gpu, a, call->attrs, call->out);
  /* Another view is gathered into a buffer of its own first. */
  weft_tensor whole = *call->out;
  weft__storage storage = {.backend = backend, .n_bytes = weft_tensor_bytes(call->out)};
  whole.storage = &storage;
  weft_status status = weft__gpu_alloc(backend, storage.n_bytes, &storage.buffer);
  if (status) return status;
  status = weft__gpu_copy_strided(gpu, a, &whole);
  if (!status) status = run_dropout(gpu, &whole, call->attrs, call->out);
  weft__gpu_free(backend, storage.buffer, storage.n_bytes);
  return status;
}
