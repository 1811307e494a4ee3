/* op_rope.c - rotary position embedding: the table of angles, and the rotation.
 *
 * Frequencies are computed on the host, in double, and go to the device as mantissas and exponents; what depends on
 * tensors, positions and factors, is the kernel's. */
#include "gpu/gpu.h"

#include <math.h>

enum { PER_GROUP = 256 };

/* ---- rope_table ---- */

/* A frequency as rope_table.wgsl takes it. */
typedef struct turns {
  uint32_t upper, lower; /* 24 bits each */
  uint32_t is_negative;
  int32_t exponent; /* of the lower one's last bit */
} turns;

static turns turns_of(double radians) {
  const double two_pi = 6.283185307179586;
  int exponent = 0;
  double mantissa = frexp(fabs(radians) / two_pi, &exponent) * 0x1p24, upper = floor(mantissa);
  return (turns){(uint32_t)upper, (uint32_t)((mantissa - upper) * 0x1p24), radians < 0, exponent - 48};
}

static weft_status upload_frequencies(weft__gpu *gpu, const weft_rope_table_attrs *attrs, weft__storage *storage) {
  int64_t n = attrs->n_dims / 2;
  turns *all = weft__alloc((size_t)n, sizeof *all);
  if (!all) return WEFT_ENOMEM;
  for (int64_t i = 0; i < n; i++) all[i] = turns_of(weft__rope_frequency(attrs, i));
  *storage = (weft__storage){.backend = &gpu->base, .n_bytes = (size_t)n * sizeof *all};
  weft_status status = weft__gpu_alloc(&gpu->base, storage->n_bytes, &storage->buffer);
  if (!status) status = weft__gpu_write(&gpu->base, storage->buffer, 0, all, storage->n_bytes);
  weft_free(all);
  return status;
}

/* Rows of n words that fit a window. */
static weft_status rows_of_window(const weft__gpu *gpu, int64_t n, const char *what, int64_t *rows) {
  *rows = weft__gpu_window_elements(gpu) / weft__max_i64(n, 1);
  if (*rows > 0) return WEFT_OK;
  return weft__error(WEFT_EUNSUPPORTED, "%s: %s: rows of %lld elements, beyond one binding", gpu->info.name, what,
                     (long long)n);
}

static uint64_t groups_of(uint32_t n) { return ((uint64_t)n + PER_GROUP - 1) / PER_GROUP; }

weft_status weft__gpu_rope_table(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_rope_table_attrs *attrs = call->attrs;
  int64_t n_rows = call->in[0]->shape[0], n_pairs = attrs->n_dims / 2, part;
  weft__storage frequencies = {.buffer = NULL};
  weft_status status = rows_of_window(gpu, 4 * n_pairs, "rope_table", &part);
  if (status || n_rows == 0) return status;
  status = upload_frequencies(gpu, attrs, &frequencies);
  for (int64_t first = 0; first < n_rows && !status; first += part) {
    int64_t n = weft__min_i64(part, n_rows - first);
    weft__gpu_rope_table_params p = {
        .n = (uint32_t)(n * n_pairs), .n_pairs = (uint32_t)n_pairs, .magnitude = (float)weft__rope_magnitude(attrs)};
    const weft__gpu_range ranges[] = {
        weft__gpu_window(gpu, call->in[0], first, n, &p.positions_offset),
        {frequencies.buffer, 0, frequencies.n_bytes},
        weft__gpu_window(gpu, call->in[1], 0, n_pairs, &p.factors_offset),
        weft__gpu_window(gpu, call->out, first * 2 * n_pairs, n * 2 * n_pairs, &p.y_offset)};
    status = weft__gpu_dispatch(gpu, WEFT__KERNEL_rope_table, NULL, ranges, &p, groups_of(p.n));
  }
  if (frequencies.buffer) weft__gpu_free(backend, frequencies.buffer, frequencies.n_bytes);
  return status;
}

/* ---- rope ---- */

weft_status weft__gpu_rope(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_rope_attrs *attrs = call->attrs;
  const weft_tensor *a = call->in[0], *table = call->in[1];
  int64_t n_rows = a->shape[0], width = a->shape[1], n_pairs = table->shape[2], part;
  int64_t row = n_rows > 1 ? a->strides[0] : width;
  if (weft_tensor_numel(a) == 0) return WEFT_OK;
  weft_status status = rows_of_window(gpu, weft__max_i64(row, width), "rope", &part);
  const weft__wgsl_const constants[] = {
      {"INTERLEAVED", attrs->pairing == WEFT_ROPE_INTERLEAVED}, {"INVERSE", attrs->inverse != 0}, {NULL, 0}};
  for (int64_t first = 0; first < n_rows && !status; first += part) {
    int64_t n = weft__min_i64(part, n_rows - first);
    weft__gpu_rope_params p = {.n = (uint32_t)(n * width),
                               .width = (uint32_t)width,
                               .head_size = (uint32_t)attrs->head_size,
                               .n_pairs = (uint32_t)n_pairs,
                               .a_row = (uint32_t)row};
    const weft__gpu_range ranges[] = {
        weft__gpu_window(gpu, a, first * row, (n - 1) * row + width, &p.a_offset),
        weft__gpu_window(gpu, table, first * 2 * n_pairs, n * 2 * n_pairs, &p.table_offset),
        weft__gpu_window(gpu, call->out, first * width, n * width, &p.y_offset)};
    status = weft__gpu_dispatch(gpu, WEFT__KERNEL_rope, constants, ranges, &p, groups_of(p.n));
  }
  return status;
}
