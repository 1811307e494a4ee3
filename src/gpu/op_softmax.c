/* op_softmax.c - softmax, its gradient, the cross-entropy of logits and its gradient: a workgroup a row.  Rows of f32 that
 * fit the registers of a workgroup are read once, by the kernels called ..._quads. */
#include "gpu/gpu.h"

enum { SOFTMAX, LOSS, LOSS_GRAD }; /* OP of softmax.wgsl */

/* ---- softmax and the loss ---- */

/* The operation is the call's context. */
static weft_status softmax_rows(weft__gpu *gpu, const weft__gpu_row_call *call, weft__gpu_rows_params *p,
                                const weft__gpu_range *ranges) {
  uint32_t op = *(const uint32_t *)call->context;
  /* What is not there is not read: the rows stand in its place. */
  const weft__gpu_range bound[] = {ranges[0], ranges[call->b ? 1 : 0], ranges[call->c ? 3 : 0], ranges[2]};
  const weft__wgsl_const constants[] = {{"OP", op}, {"A_DTYPE", call->a->dtype}, {NULL, 0}};
  const weft__gpu_row_shape shape = weft__gpu_row_quads(call, p);
  const weft__wgsl_const quads[] = {{"QUADS", shape.n_quads}, {"THREADS", shape.n_threads}, {NULL, 0}};
  if (op != SOFTMAX || !shape.n_quads)
    return weft__gpu_dispatch(gpu, WEFT__KERNEL_softmax, constants, bound, p, p->n_rows);
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_softmax_quads, quads, (const weft__gpu_range[]){ranges[0], ranges[2]}, p,
                            p->n_rows);
}

weft_status weft__gpu_softmax(weft__backend *backend, const weft__op_call *call) {
  static const uint32_t op = SOFTMAX;
  const weft__gpu_row_call rows = {call->op, .a = call->in[0], .y = call->out, .run = softmax_rows, .context = &op};
  return weft__gpu_each_rows(weft__gpu_of(backend), &rows);
}

/* A vector of one element a row, as rows of one element. */
static weft_tensor as_column(const weft_tensor *t) {
  weft_tensor column = *t;
  column.rank = 2;
  column.shape[1] = 1;
  column.strides[1] = 1;
  return column;
}

weft_status weft__gpu_cross_entropy(weft__backend *backend, const weft__op_call *call) {
  static const uint32_t op = LOSS;
  weft_tensor targets = as_column(call->in[1]), losses = as_column(call->out);
  const weft__gpu_row_call rows = {call->op,     .a = call->in[0],    .b = &targets,
                                   .y = &losses, .run = softmax_rows, .context = &op};
  return weft__gpu_each_rows(weft__gpu_of(backend), &rows);
}

weft_status weft__gpu_cross_entropy_grad(weft__backend *backend, const weft__op_call *call) {
  static const uint32_t op = LOSS_GRAD;
  weft_tensor targets = as_column(call->in[1]), dlosses = as_column(call->in[2]);
  const weft__gpu_row_call rows = {call->op,       .a = call->in[0],    .b = &targets, .c = &dlosses,
                                   .y = call->out, .run = softmax_rows, .context = &op};
  return weft__gpu_each_rows(weft__gpu_of(backend), &rows);
}

/* ---- the gradient of softmax ---- */

static weft_status softmax_grad_rows(weft__gpu *gpu, const weft__gpu_row_call *call, weft__gpu_rows_params *p,
                                     const weft__gpu_range *ranges) {
  const weft__wgsl_const dtypes[] = {{"A_DTYPE", call->a->dtype}, {"B_DTYPE", call->b->dtype}, {NULL, 0}};
  const weft__gpu_row_shape shape = weft__gpu_row_quads(call, p);
  const weft__wgsl_const quads[] = {{"QUADS", shape.n_quads}, {"THREADS", shape.n_threads}, {NULL, 0}};
  if (!shape.n_quads) return weft__gpu_dispatch(gpu, WEFT__KERNEL_softmax_grad, dtypes, ranges, p, p->n_rows);
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_softmax_grad_quads, quads, ranges, p, p->n_rows);
}

weft_status weft__gpu_softmax_grad(weft__backend *backend, const weft__op_call *call) {
  const weft__gpu_row_call rows = {call->op, .a = call->in[0], .b = call->in[1], .y = call->out,
                                   .run = softmax_grad_rows};
  return weft__gpu_each_rows(weft__gpu_of(backend), &rows);
}
