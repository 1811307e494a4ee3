/* op_copy.c - operators that move or set elements: cast, contiguous, concat, copy_rows_into, fill. */
#include "cpu/cpu.h"
#include "cpu/half.h"

weft_status weft__cpu_cast(weft__backend *backend, const weft__op_call *call) {
  weft__copy(weft__cpu_of(backend), call->in[0], call->out);
  return WEFT_OK;
}

weft_status weft__cpu_contiguous(weft__backend *backend, const weft__op_call *call) {
  weft__copy(weft__cpu_of(backend), call->in[0], call->out);
  return WEFT_OK;
}

weft_status weft__cpu_concat(weft__backend *backend, const weft__op_call *call) {
  int axis = ((const weft_concat_attrs *)call->attrs)->axis;
  weft_tensor part = *call->out; /* where the operand goes */
  for (int i = 0; i < call->n_inputs; i++) {
    part.shape[axis] = call->in[i]->shape[axis];
    weft__copy(weft__cpu_of(backend), call->in[i], &part);
    part.offset += part.shape[axis] * part.strides[axis];
  }
  return WEFT_OK;
}

weft_status weft__cpu_copy_rows_into(weft__backend *backend, const weft__op_call *call) {
  weft_tensor rows = *call->out;
  rows.shape[0] = call->in[1]->shape[0];
  rows.offset += ((const weft_copy_rows_into_attrs *)call->attrs)->first * rows.strides[0];
  weft__copy(weft__cpu_of(backend), call->in[1], &rows);
  return WEFT_OK;
}

weft_status weft__cpu_fill(weft__backend *backend, const weft__op_call *call) {
  float value = ((const weft_fill_attrs *)call->attrs)->value;
  weft__storage storage = {.buffer = &value};
  const weft_tensor one = {.dtype = WEFT_F32, .storage = &storage}; /* of rank 0 */
  weft__copy(weft__cpu_of(backend), &one, call->out);
  return WEFT_OK;
}
