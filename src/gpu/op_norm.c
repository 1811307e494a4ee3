/* op_norm.c - operators along the last axis, softmax and rms_norm: a workgroup a row, in as many windows as the bindings
 * ask for.  Rows that fit the registers of a workgroup are read once, by the kernels called ..._quads. */
#include "gpu/gpu.h"

enum { MAX_QUADS = 8, QUAD_ELEMENTS = 1024 }; /* of the quads kernels: what 256 invocations hold in registers */

typedef struct row_op {
  const char *name;
  weft__gpu_kernel kernel, quads;
  const weft_tensor *gain; /* [n], or NULL: the kernel has no such operand */
  float eps;
} row_op;

static weft_status dispatch(weft__gpu *gpu, const row_op *op, const weft__gpu_rows_params *p,
                            const weft__gpu_range *ranges) {
  bool is_aligned =
      p->n % 4 == 0 && p->a_stride % 4 == 0 && p->a_offset % 4 == 0 && p->b_offset % 4 == 0 && p->y_offset % 4 == 0;
  if (!is_aligned || p->n > MAX_QUADS * QUAD_ELEMENTS)
    return weft__gpu_dispatch(gpu, op->kernel, NULL, ranges, p, p->n_rows);
  const weft__wgsl_const constants[] = {{"QUADS", (p->n + QUAD_ELEMENTS - 1) / QUAD_ELEMENTS}, {NULL, 0}};
  return weft__gpu_dispatch(gpu, op->quads, constants, ranges, p, p->n_rows);
}

static weft_status run_rows(weft__gpu *gpu, const row_op *op, const weft_tensor *a, const weft_tensor *y) {
  int64_t n = weft__n_cols(a), n_rows = weft__n_rows(a), stride = a->rank == 2 ? a->strides[0] : n;
  if (n == 0 || n_rows == 0) return WEFT_OK;
  int64_t widest = stride > n ? stride : n, window = weft__gpu_window_elements(gpu) / widest;
  if (window < 1)
    return weft__error(WEFT_EUNSUPPORTED, "%s: %s over rows of %lld elements, beyond one binding", gpu->info.name,
                       op->name, (long long)n);
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n_rows && !status; first += window) {
    int64_t count = n_rows - first < window ? n_rows - first : window;
    weft__gpu_rows_params p = {.n_rows = (uint32_t)count,
                               .n = (uint32_t)n,
                               .a_stride = (uint32_t)stride,
                               .y_stride = (uint32_t)n,
                               .eps = op->eps};
    weft__gpu_range ranges[3];
    int n_ranges = 0;
    ranges[n_ranges++] = weft__gpu_window(gpu, a, first * stride, (count - 1) * stride + n, &p.a_offset);
    if (op->gain) ranges[n_ranges++] = weft__gpu_window(gpu, op->gain, 0, n, &p.b_offset);
    ranges[n_ranges] = weft__gpu_window(gpu, y, first * n, count * n, &p.y_offset);
    status = dispatch(gpu, op, &p, ranges);
  }
  return status;
}

weft_status weft__gpu_softmax(weft__backend *backend, const weft__op_call *call) {
  const row_op op = {"softmax", WEFT__KERNEL_softmax, WEFT__KERNEL_softmax_quads, NULL, 0};
  return run_rows(weft__gpu_of(backend), &op, call->in[0], call->out);
}

weft_status weft__gpu_rms_norm(weft__backend *backend, const weft__op_call *call) {
  const weft_rms_norm_attrs *attrs = call->attrs;
  const row_op op = {"rms_norm", WEFT__KERNEL_rms_norm, WEFT__KERNEL_rms_norm_quads, call->in[1], attrs->eps};
  return run_rows(weft__gpu_of(backend), &op, call->in[0], call->out);
}
