/* lower.c - composite operators in terms of primitives: what a tape differentiates, what a backend without a fused
 * kernel runs, and what the tests compare a fused kernel with. */
#include "tensor/tensor.h"

weft_tensor *weft__lower_silu_mul(weft_scope *scope, const weft__op_call *call) {
  return weft_mul(scope, weft_silu(scope, call->in[0]), call->in[1]);
}

weft_tensor *weft__lower_gelu_mul(weft_scope *scope, const weft__op_call *call) {
  return weft_mul(scope, weft_gelu(scope, call->in[0]), call->in[1]);
}

weft_tensor *weft__lower_matmul_nt3(weft_scope *scope, const weft__op_call *call) {
  const weft_concat_attrs last = {.axis = call->in[0]->rank - 1};
  weft_tensor *y = weft_matmul_nt(scope, call->in[0], call->in[1]);
  for (int i = 2; i < 4; i++) y = weft_concat(scope, y, weft_matmul_nt(scope, call->in[0], call->in[i]), &last);
  return y;
}

weft_tensor *weft__lower_matmul_nt_gated(weft_scope *scope, const weft__op_call *call) {
  weft_tensor *gate = weft_matmul_nt(scope, call->in[0], call->in[1]);
  weft_tensor *up = weft_matmul_nt(scope, call->in[0], call->in[2]);
  if (((const weft_matmul_nt_gated_attrs *)call->attrs)->gate == WEFT_GATE_GELU_TANH)
    return weft_mul(scope, weft_gelu_tanh(scope, gate), up);
  return weft_silu_mul(scope, gate, up);
}
