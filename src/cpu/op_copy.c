/* op_copy.c - operators that move or set elements: cast, contiguous, concat, copy_rows_into, fill. */
#include "cpu/cpu.h"
#include "cpu/half.h"

#include <string.h> /* memcpy */

/* A row of a packed weight. */
static void unpack_row(const weft_tensor *a, int64_t row, float *y) {
  int64_t n = weft__n_cols(a), n_block = weft__dtype_get(a->dtype)->block_len;
  for (int64_t i = 0; i * n_block < n; i++) {
    weft__quant_block block;
    float values[WEFT__SUPER_BLOCK];
    weft__unpack_block(a, row, i, &block);
    weft__quant_compute(a->dtype, &block, values);
    memcpy(y + i * n_block, values, (size_t)weft__min_i64(n - i * n_block, n_block) * sizeof *y);
  }
}

static void dequantise_rows(void *context, int64_t first, int64_t end) {
  const weft__op_call *call = context;
  const weft_tensor *a = call->in[0];
  int64_t n = weft__n_cols(a);
  size_t row_bytes = 0;
  weft__row_bytes(a->dtype, n, &row_bytes);
  for (int64_t row = first; row < end; row++) {
    float *y = (float *)weft__cpu_data(call->out) + row * n;
    if (a->storage->layout == WEFT__LAYOUT_PACKED)
      unpack_row(a, row, y);
    else
      weft__read_row(a->dtype, (const uint8_t *)weft__cpu_data(a) + (size_t)row * row_bytes, n, y);
  }
}

weft_status weft__cpu_cast(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  if (weft__dtype_get(call->in[0]->dtype)->is_quantised)
    weft__cpu_rows(cpu, weft__n_rows(call->out), weft__n_cols(call->out), dequantise_rows, (void *)(uintptr_t)call);
  else
    weft__copy(cpu, call->in[0], call->out);
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

void weft__fill(weft__cpu *cpu, float value, const weft_tensor *to) {
  weft__storage storage = {.buffer = &value};
  const weft_tensor one = {.dtype = WEFT_F32, .storage = &storage}; /* of rank 0 */
  weft__copy(cpu, &one, to);
}

weft_status weft__cpu_fill(weft__backend *backend, const weft__op_call *call) {
  weft__fill(weft__cpu_of(backend), ((const weft_fill_attrs *)call->attrs)->value, call->out);
  return WEFT_OK;
}
