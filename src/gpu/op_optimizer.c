/* op_optimizer.c - steps of optimizers, in place, window by window, and the factor that clips a gradient. */
#include "gpu/gpu.h"
#include "tensor/optimizer.h"

enum { ADAM, MOMENTUM, NESTEROV, PLAIN }; /* STEP of optimizer.wgsl */
enum { PER_GROUP = 256 * 4 };

/* One step's operands; what it lacks, the factor stands in for. */
typedef struct step {
  uint32_t kind;
  const weft_tensor *parameters, *gradient, *first, *second, *factor;
} step;

/* The gradient's window, or all of it by its strides. */
static weft__gpu_range gradient_range(const weft__gpu *gpu, const weft_tensor *t, bool is_strided, int64_t first,
                                      int64_t n, weft__gpu_optimizer_params *p) {
  if (!is_strided) return weft__gpu_window(gpu, t, first, n, &p->b_offset);
  p->first = (uint32_t)first;
  p->rank = (uint32_t)t->rank;
  for (int i = 0; i < t->rank; i++) {
    p->shape[i] = (uint32_t)t->shape[i];
    p->b_strides[i] = (uint32_t)t->strides[i];
  }
  return weft__gpu_window(gpu, t, 0, weft__tensor_span(t), &p->b_offset);
}

static weft_status run_step(weft__gpu *gpu, const weft__op_call *call, const step *s, weft__gpu_optimizer_params *p) {
  int64_t n = weft_tensor_numel(s->parameters), window = weft__gpu_window_elements(gpu);
  bool is_strided = !weft__is_contiguous(s->gradient);
  if (is_strided && n > 0 && (weft__tensor_span(s->gradient) > window || n > UINT32_MAX))
    return weft__error(WEFT_EUNSUPPORTED, "%s: %s over a strided gradient larger than one binding (make it contiguous)",
                       gpu->info.name, weft__op_get(call->op)->name);
  const weft__wgsl_const constants[] = {
      {"STEP", s->kind}, {"B_DTYPE", s->gradient->dtype}, {"STRIDED", is_strided}, {NULL, 0}};
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window) {
    int64_t count = weft__min_i64(n - first, window);
    weft__gpu_range factor = weft__gpu_window(gpu, s->factor, 0, 1, &p->e_offset);
    weft__gpu_range ranges[] = {weft__gpu_window(gpu, s->parameters, first, count, &p->a_offset),
                                gradient_range(gpu, s->gradient, is_strided, first, count, p), factor, factor, factor};
    if (s->first) ranges[2] = weft__gpu_window(gpu, s->first, first, count, &p->c_offset);
    if (s->second) ranges[3] = weft__gpu_window(gpu, s->second, first, count, &p->d_offset);
    p->n = (uint32_t)count;
    status = weft__gpu_dispatch(gpu, WEFT__KERNEL_optimizer, constants, ranges, p,
                                (uint64_t)((count + PER_GROUP - 1) / PER_GROUP));
  }
  return status;
}

weft_status weft__gpu_adam_step(weft__backend *backend, const weft__op_call *call) {
  const weft__adam adam = weft__adam_of(call->attrs, 1);
  const step s = {ADAM, call->in[0], call->in[1], call->in[2], call->in[3], call->in[4]};
  weft__gpu_optimizer_params p = {.l2 = adam.l2,
                                  .old_first = adam.old_first,
                                  .new_first = adam.new_first,
                                  .old_second = adam.old_second,
                                  .new_second = adam.new_second,
                                  .root_scale = adam.root_scale,
                                  .eps = adam.eps,
                                  .shrink = adam.shrink,
                                  .rate = adam.rate};
  return run_step(weft__gpu_of(backend), call, &s, &p);
}

weft_status weft__gpu_sgd_step(weft__backend *backend, const weft__op_call *call) {
  const weft__sgd sgd = weft__sgd_of(call->attrs, 1);
  bool has_momentum = sgd.momentum != 0;
  uint32_t kind = !has_momentum ? PLAIN : sgd.is_nesterov ? NESTEROV : MOMENTUM;
  const step s = {kind, call->in[0], call->in[1], has_momentum ? call->in[2] : NULL, NULL, call->in[3]};
  weft__gpu_optimizer_params p = {
      .l2 = sgd.l2, .old_first = sgd.momentum, .new_first = 1, .shrink = 1, .rate = sgd.rate};
  return run_step(weft__gpu_of(backend), call, &s, &p);
}

weft_status weft__gpu_clip_factor(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  weft__gpu_clip_factor_params p = {.max_norm = (float)weft__clip_norm(call->attrs), .nan = 0x7fc00000};
  const weft__gpu_range ranges[] = {weft__gpu_window(gpu, call->in[0], 0, 1, &p.a_offset),
                                    weft__gpu_window(gpu, call->out, 0, 1, &p.y_offset)};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_clip_factor, NULL, ranges, &p, 1);
}
