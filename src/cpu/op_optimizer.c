/* op_optimizer.c - steps of optimizers, in place, and the factor that clips a gradient. */
#include "cpu/cpu.h"

#include <math.h> /* isfinite, sqrt */

/* The step's numbers and what it changes: pieces of the parameters lead to those of the moments. */
typedef struct step {
  const weft__cpu_kernels *kernels;
  weft__adam adam;
  weft__sgd sgd;
  float *p, *m, *v; /* m NULL: no momentum */
} step;

/* The factor of a gradient, a tensor of one element. */
static float factor_of(const weft_tensor *t) { return *(const float *)weft__cpu_data(t); }

static void adam_piece(const void *context, const weft__piece *piece) {
  const step *s = context;
  float *p = piece->y;
  int64_t first = p - s->p;
  s->kernels->adam(&s->adam, piece->n, piece->in[0], p, s->m + first, s->v + first);
}

weft_status weft__cpu_adam_step(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  const float factor = factor_of(call->in[4]);
  if (!isfinite(factor)) return WEFT_OK;
  const step s = {.kernels = cpu->kernels,
                  .adam = weft__adam_of(call->attrs, factor),
                  .p = weft__cpu_data(call->in[0]),
                  .m = weft__cpu_data(call->in[2]),
                  .v = weft__cpu_data(call->in[3])};
  weft__each(cpu, 1, &call->in[1], call->in[0], WEFT__AS_REAL, adam_piece, &s);
  return WEFT_OK;
}

static void sgd_piece(const void *context, const weft__piece *piece) {
  const step *s = context;
  float *p = piece->y;
  s->kernels->sgd(&s->sgd, piece->n, piece->in[0], p, s->m ? s->m + (p - s->p) : NULL);
}

weft_status weft__cpu_sgd_step(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  const float factor = factor_of(call->in[3]);
  if (!isfinite(factor)) return WEFT_OK;
  const weft__sgd sgd = weft__sgd_of(call->attrs, factor);
  const step s = {.kernels = cpu->kernels,
                  .sgd = sgd,
                  .p = weft__cpu_data(call->in[0]),
                  .m = sgd.momentum != 0 ? weft__cpu_data(call->in[2]) : NULL};
  weft__each(cpu, 1, &call->in[1], call->in[0], WEFT__AS_REAL, sgd_piece, &s);
  return WEFT_OK;
}

weft_status weft__cpu_clip_factor(weft__backend *backend, const weft__op_call *call) {
  const double squares = (double)factor_of(call->in[0]), max_norm = weft__clip_norm(call->attrs);
  float *y = weft__cpu_data(call->out);
  *y = isfinite(squares) ? (float)fmin(1, max_norm / (sqrt(squares) + WEFT__CLIP_EPS)) : NAN;
  (void)backend;
  return WEFT_OK;
}
