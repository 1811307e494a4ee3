/* op_elementwise.c - add, sub, mul, div with broadcasting; scale, relu, gelu, silu.
 *
 * Operands of one shape that lie contiguously go through the flat kernels, window by window where a tensor is larger than
 * one binding; everything else through the broadcasting kernel. */
#include "gpu/gpu.h"

enum { ADD, SUB, MUL, DIV };      /* OP of binary.wgsl and binary_flat.wgsl */
enum { SCALE, RELU, GELU, SILU }; /* OP of unary.wgsl */
enum { FLAT_PER_GROUP = 256 * 4 * 4, STRIDED_PER_GROUP = 256 };

/* ---- contiguous elements ---- */

/* Runs a flat kernel over n elements of `in` (n_in operands of them) and `out`. */
static weft_status run_flat(weft__gpu *gpu, weft__gpu_kernel kernel, uint32_t op, const weft_tensor *const *in,
                            int n_in, const weft_tensor *out, float factor) {
  const weft__wgsl_const constants[] = {{"OP", op}, {NULL, 0}};
  int64_t n = weft_tensor_numel(out), window = weft__gpu_window_elements(gpu);
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window) {
    int64_t count = weft__min_i64(n - first, window);
    weft__gpu_flat_params p = {.n = (uint32_t)count, .factor = factor};
    weft__gpu_range ranges[3];
    ranges[0] = weft__gpu_window(gpu, in[0], first, count, &p.a_offset);
    if (n_in == 2) ranges[1] = weft__gpu_window(gpu, in[1], first, count, &p.b_offset);
    ranges[n_in] = weft__gpu_window(gpu, out, first, count, &p.y_offset);
    status = weft__gpu_dispatch(gpu, kernel, constants, ranges, &p,
                                (uint64_t)((count + FLAT_PER_GROUP - 1) / FLAT_PER_GROUP));
  }
  return status;
}

/* Contiguous, and on a boundary of four elements: what the flat kernels take. */
static bool is_flat(const weft_tensor *t) { return weft__is_contiguous(t) && t->offset % 4 == 0; }

/* ---- strided and broadcast operands ---- */

static weft_status run_strided(weft__gpu *gpu, uint32_t op, const weft_tensor *a, const weft_tensor *b,
                               const weft_tensor *out) {
  const weft__wgsl_const constants[] = {{"OP", op}, {NULL, 0}};
  int64_t n = weft_tensor_numel(out), window = weft__gpu_window_elements(gpu);
  if (weft__gpu_span(a) > window || weft__gpu_span(b) > window)
    return weft__error(WEFT_EUNSUPPORTED, "%s: a strided or broadcast operand larger than one binding (%lld elements)",
                       gpu->info.name, (long long)window);
  weft__gpu_binary_params p = {.rank = (uint32_t)out->rank};
  for (int i = 0; i < out->rank; i++) {
    p.shape[i] = (uint32_t)out->shape[i];
    p.a_strides[i] = (uint32_t)weft__broadcast_stride(a, out->rank, i);
    p.b_strides[i] = (uint32_t)weft__broadcast_stride(b, out->rank, i);
  }
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window) {
    int64_t count = weft__min_i64(n - first, window);
    p.n = (uint32_t)count;
    p.first = (uint32_t)first;
    weft__gpu_range ranges[3];
    ranges[0] = weft__gpu_window(gpu, a, 0, weft__gpu_span(a), &p.a_offset);
    ranges[1] = weft__gpu_window(gpu, b, 0, weft__gpu_span(b), &p.b_offset);
    ranges[2] = weft__gpu_window(gpu, out, first, count, &p.y_offset);
    status = weft__gpu_dispatch(gpu, WEFT__KERNEL_binary, constants, ranges, &p,
                                (uint64_t)((count + STRIDED_PER_GROUP - 1) / STRIDED_PER_GROUP));
  }
  return status;
}

static weft_status run_binary(weft__backend *backend, const weft__op_call *call, uint32_t op) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *a = call->in[0], *b = call->in[1];
  if (weft_tensor_numel(call->out) == 0) return WEFT_OK;
  if (weft__same_shape(a, b) && is_flat(a) && is_flat(b))
    return run_flat(gpu, WEFT__KERNEL_binary_flat, op, (const weft_tensor *[]){a, b}, 2, call->out, 0);
  return run_strided(gpu, op, a, b, call->out);
}

weft_status weft__gpu_add(weft__backend *backend, const weft__op_call *call) { return run_binary(backend, call, ADD); }
weft_status weft__gpu_sub(weft__backend *backend, const weft__op_call *call) { return run_binary(backend, call, SUB); }
weft_status weft__gpu_mul(weft__backend *backend, const weft__op_call *call) { return run_binary(backend, call, MUL); }
weft_status weft__gpu_div(weft__backend *backend, const weft__op_call *call) { return run_binary(backend, call, DIV); }

/* ---- one operand ---- */

static weft_status run_unary(weft__backend *backend, const weft__op_call *call, uint32_t op, float factor) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *a = call->in[0];
  if (weft_tensor_numel(a) == 0) return WEFT_OK;
  if (is_flat(a)) return run_flat(gpu, WEFT__KERNEL_unary, op, &a, 1, call->out, factor);
  /* Strided: gathered into a buffer of its own first. */
  weft_tensor whole = *call->out;
  weft__storage storage = {.backend = backend, .n_bytes = weft_tensor_bytes(call->out)};
  whole.storage = &storage;
  weft_status status = weft__gpu_alloc(backend, storage.n_bytes, &storage.buffer);
  if (status) return status;
  const weft_tensor *gathered = &whole;
  status = weft__gpu_copy_strided(gpu, a, gathered);
  if (!status) status = run_flat(gpu, WEFT__KERNEL_unary, op, &gathered, 1, call->out, factor);
  weft__gpu_free(backend, storage.buffer, storage.n_bytes);
  return status;
}

weft_status weft__gpu_scale(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, SCALE, ((const weft_scale_attrs *)call->attrs)->factor);
}
weft_status weft__gpu_relu(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, RELU, 0);
}
weft_status weft__gpu_gelu(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, GELU, 0);
}
weft_status weft__gpu_silu(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, SILU, 0);
}
