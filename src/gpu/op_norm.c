/* op_norm.c - norms and their gradients: a workgroup a row.  Rows of f32 that fit the registers
 * of a workgroup are read once, by the kernels called ..._quads. */
#include "gpu/gpu.h"

#include <float.h> /* FLT_MAX */
#include <math.h>

typedef struct norm_op {
  bool is_centred;                /* the mean is taken off */
  const weft_tensor *gain, *bias; /* [n] or NULL; a gradient has a gain alone */
  float eps;
} norm_op;

static void set_norm(const norm_op *norm, weft__gpu_rows_params *p) {
  p->eps = norm->eps;
  p->shrink = 0x1p-80f;
  p->stretch = 0x1p80f;
  /* The second matters where eps is tiny. */
  p->shrunk_eps = (float)(0x1p-160 * (double)norm->eps);
  p->stretched_eps = (float)fmin(0x1p160 * (double)norm->eps, (double)FLT_MAX);
}

static weft_status norm_rows(weft__gpu *gpu, const weft__gpu_row_call *call, weft__gpu_rows_params *p,
                             const weft__gpu_range *ranges) {
  const norm_op *norm = call->context;
  /* What is not there is not read: the rows stand in its place. */
  weft__gpu_range bound[] = {ranges[0], ranges[0], ranges[0], ranges[2]};
  if (norm->gain) bound[1] = weft__gpu_window(gpu, norm->gain, 0, p->n, &p->gain_offset);
  if (norm->bias) bound[2] = weft__gpu_window(gpu, norm->bias, 0, p->n, &p->bias_offset);
  set_norm(norm, p);
  const weft__gpu_row_shape shape = weft__gpu_row_quads(call, p);
  bool in_quads = shape.n_quads > 0 && p->gain_offset % 4 == 0 && p->bias_offset % 4 == 0;
  const weft__wgsl_const constants[] = {{"CENTRED", norm->is_centred},
                                        {"HAS_GAIN", norm->gain != NULL},
                                        {"HAS_BIAS", norm->bias != NULL},
                                        {in_quads ? "QUADS" : "A_DTYPE", in_quads ? shape.n_quads : call->a->dtype},
                                        {in_quads ? "THREADS" : NULL, shape.n_threads}, /* NULL ends the list */
                                        {NULL, 0}};
  return weft__gpu_dispatch(gpu, in_quads ? WEFT__KERNEL_norm_quads : WEFT__KERNEL_norm, constants, bound, p,
                            p->n_rows);
}

static weft_status run_norm(weft__backend *backend, const weft__op_call *call, bool is_centred) {
  const norm_op norm = {.is_centred = is_centred,
                        .gain = call->n_inputs > 1 ? call->in[1] : NULL,
                        .bias = call->n_inputs > 2 ? call->in[2] : NULL,
                        .eps = ((const weft_rms_norm_attrs *)call->attrs)->eps};
  const weft__gpu_row_call rows = {
      .op = call->op, .a = call->in[0], .y = call->out, .run = norm_rows, .context = &norm};
  return weft__gpu_each_rows(weft__gpu_of(backend), &rows);
}

weft_status weft__gpu_rms_norm(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, false);
}
weft_status weft__gpu_rms_norm_xhat(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, false);
}
weft_status weft__gpu_layer_norm(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, true);
}
weft_status weft__gpu_layer_norm_xhat(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, true);
}

/* ---- their gradients ---- */

static weft_status grad_rows(weft__gpu *gpu, const weft__gpu_row_call *call, weft__gpu_rows_params *p,
                             const weft__gpu_range *ranges) {
  const norm_op *norm = call->context;
  const weft__gpu_range bound[] = {ranges[0], ranges[1], weft__gpu_window(gpu, norm->gain, 0, p->n, &p->gain_offset),
                                   ranges[2]};
  set_norm(norm, p);
  const weft__gpu_row_shape shape = weft__gpu_row_quads(call, p);
  if (shape.n_quads > 0 && p->gain_offset % 4 == 0) {
    const weft__wgsl_const constants[] = {
        {"CENTRED", norm->is_centred}, {"QUADS", shape.n_quads}, {"THREADS", shape.n_threads}, {NULL, 0}};
    return weft__gpu_dispatch(gpu, WEFT__KERNEL_norm_grad_quads, constants, bound, p, p->n_rows);
  }
  const weft__wgsl_const constants[] = {
      {"CENTRED", norm->is_centred}, {"A_DTYPE", call->a->dtype}, {"B_DTYPE", call->b->dtype}, {NULL, 0}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_norm_grad, constants, bound, p, p->n_rows);
}

static weft_status run_grad(weft__backend *backend, const weft__op_call *call, bool is_centred) {
  const norm_op norm = {
      .is_centred = is_centred, .gain = call->in[1], .eps = ((const weft_rms_norm_attrs *)call->attrs)->eps};
  const weft__gpu_row_call rows = {
      .op = call->op, .a = call->in[0], .b = call->in[2], .y = call->out, .run = grad_rows, .context = &norm};
  return weft__gpu_each_rows(weft__gpu_of(backend), &rows);
}

weft_status weft__gpu_rms_norm_grad(weft__backend *backend, const weft__op_call *call) {
  return run_grad(backend, call, false);
}
weft_status weft__gpu_layer_norm_grad(weft__backend *backend, const weft__op_call *call) {
  return run_grad(backend, call, true);
}
