/* op_softmax.c - softmax over the last axis: a workgroup a row, in as many windows as the bindings ask for. */
#include "gpu/gpu.h"

enum { MAX_QUADS = 8, QUAD_ELEMENTS = 1024 }; /* of softmax_quads.wgsl: what 256 invocations hold in registers */

static weft_status dispatch(weft__gpu *gpu, const weft__gpu_rows_params *p, const weft__gpu_range *ranges) {
  bool is_aligned = p->n % 4 == 0 && p->a_stride % 4 == 0 && p->a_offset % 4 == 0 && p->y_offset % 4 == 0;
  if (!is_aligned || p->n > MAX_QUADS * QUAD_ELEMENTS)
    return weft__gpu_dispatch(gpu, WEFT__KERNEL_softmax, NULL, ranges, p, p->n_rows);
  const weft__wgsl_const constants[] = {{"QUADS", (p->n + QUAD_ELEMENTS - 1) / QUAD_ELEMENTS}, {NULL, 0}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_softmax_quads, constants, ranges, p, p->n_rows);
}

weft_status weft__gpu_softmax(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *a = call->in[0], *y = call->out;
  int64_t n = weft__n_cols(a), n_rows = weft__n_rows(a), stride = a->rank == 2 ? a->strides[0] : n;
  if (n == 0 || n_rows == 0) return WEFT_OK;
  int64_t widest = stride > n ? stride : n, window = weft__gpu_window_elements(gpu) / widest;
  if (window < 1)
    return weft__error(WEFT_EUNSUPPORTED, "%s: softmax over rows of %lld elements, beyond one binding", gpu->info.name,
                       (long long)n);
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n_rows && !status; first += window) {
    int64_t count = n_rows - first < window ? n_rows - first : window;
    weft__gpu_rows_params p = {
        .n_rows = (uint32_t)count, .n = (uint32_t)n, .a_stride = (uint32_t)stride, .y_stride = (uint32_t)n};
    weft__gpu_range ranges[2];
    ranges[0] = weft__gpu_window(gpu, a, first * stride, (count - 1) * stride + n, &p.a_offset);
    ranges[1] = weft__gpu_window(gpu, y, first * n, count * n, &p.y_offset);
    status = dispatch(gpu, &p, ranges);
  }
  return status;
}
