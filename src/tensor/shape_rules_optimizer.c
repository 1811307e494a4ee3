/* shape_rules_optimizer.c - the rules of the optimizers' operators. */
#include "tensor/rule.h"

#include <math.h> /* isfinite, isnan */

/* Do two tensors have no byte in common? */
static bool are_apart(const weft_tensor *x, const weft_tensor *y) {
  if (x->storage != y->storage || weft_tensor_numel(x) == 0 || weft_tensor_numel(y) == 0) return true;
  const weft_tensor *both[] = {x, y};
  int64_t first[2], end[2];
  for (int t = 0; t < 2; t++) {
    int64_t size = weft__dtype_get(both[t]->dtype)->block_bytes;
    first[t] = both[t]->offset * size;
    end[t] = first[t] + weft__tensor_span(both[t]) * size;
  }
  return end[0] <= first[1] || end[1] <= first[0];
}

/* Contiguous f32 that the step changes. */
static bool is_state(const weft_tensor *t, const weft_tensor *parameters) {
  return is_plain(t, WEFT_F32) && is_writable(t) && weft__same_shape(t, parameters);
}

/* Parameters, a gradient, n_moments and a factor; the step changes the parameters and n_changed of the moments. */
static weft_status step_rule(const weft__op_call *call, int n_moments, int n_changed, weft__shape *out) {
  const weft_tensor *const *in = (const weft_tensor *const *)call->in;
  bool fits = is_state(in[0], in[0]) && is_real(in[1]) && weft__same_shape(in[0], in[1]) &&
              is_plain(in[2 + n_moments], WEFT_F32) && weft_tensor_numel(in[2 + n_moments]) == 1;
  for (int i = 0; i < n_moments && fits; i++) fits = is_state(in[2 + i], in[0]);
  if (!fits)
    return mismatch(call,
                    "wants contiguous f32 parameters and moments, a real gradient of their shape, and a factor of "
                    "one f32");
  for (int i = 0; i < 2 + n_changed; i++)
    for (int k = 0; k < call->n_inputs && i != 1; k++) {
      bool is_used = k < 2 + n_changed || k == call->n_inputs - 1;
      if (k != i && is_used && !are_apart(in[i], in[k]))
        return mismatch(call, "wants operands that do not overlap, as it writes to the parameters and the moments");
    }
  shape_of(in[0], out);
  return WEFT_OK;
}

static bool is_beta(double x) { return x >= 0 && x < 1; }
static bool is_rate(double x) { return x >= 0 && isfinite(x); }

weft_status weft__shape_adam_step(const weft__op_call *call, weft__shape *out) {
  const weft_adam_step_attrs *attrs = call->attrs;
  if (!is_beta(attrs->beta1) || !is_beta(attrs->beta2)) return mismatch(call, "wants betas from 0 to below 1");
  if (!is_rate(attrs->lr) || !is_rate(attrs->eps) || !is_rate(attrs->weight_decay))
    return mismatch(call, "wants a rate, an eps and a decay that are finite and not negative");
  if (attrs->step < 1) return mismatch(call, "counts steps from 1");
  if (attrs->decay != WEFT_DECAY_DECOUPLED && attrs->decay != WEFT_DECAY_L2)
    return mismatch(call, "wants a decay it knows");
  return step_rule(call, 2, 2, out);
}

weft_status weft__shape_sgd_step(const weft__op_call *call, weft__shape *out) {
  const weft_sgd_step_attrs *attrs = call->attrs;
  if (!is_rate(attrs->lr) || !is_rate(attrs->weight_decay) || !is_rate(attrs->momentum))
    return mismatch(call, "wants a rate, a momentum and a decay that are finite and not negative");
  if (attrs->nesterov && attrs->momentum == 0) return mismatch(call, "wants a momentum for Nesterov's step");
  return step_rule(call, 1, attrs->momentum != 0, out);
}

weft_status weft__shape_sum_squares(const weft__op_call *call, weft__shape *out) {
  if (!is_real(call->in[0])) return mismatch(call, "wants a tensor of f32, f16 or bf16");
  *out = (weft__shape){WEFT_F32, 0, {0}};
  return WEFT_OK;
}

weft_status weft__shape_clip_factor(const weft__op_call *call, weft__shape *out) {
  const weft_clip_factor_attrs *attrs = call->attrs;
  if (!is_plain(call->in[0], WEFT_F32) || weft_tensor_numel(call->in[0]) != 1) return mismatch(call, "wants one f32");
  if (!(attrs->max_norm >= 0)) return mismatch(call, "wants a largest norm that is not negative");
  *out = (weft__shape){WEFT_F32, 0, {0}};
  return WEFT_OK;
}
