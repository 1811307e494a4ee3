/* op_norm.c - operators along the last axis: softmax, rms_norm. */
#include "cpu/cpu.h"

typedef struct norm_loop {
  const weft__cpu_kernels *kernels;
  const weft_tensor *a;
  const float *gain; /* NULL: softmax */
  float eps;
  float *y;
} norm_loop;

static void norm_rows(void *context, int64_t first, int64_t end) {
  const norm_loop *l = context;
  int64_t n = weft__n_cols(l->a);
  for (int64_t row = first; row < end; row++) {
    /* What is no contiguous f32 is read into the row of the result, and changed there. */
    float *y = l->y + row * n;
    int64_t index = weft__row_offset(l->a, l->a->rank, l->a->shape, -1, row);
    const float *a = weft__real_run(l->a, index, l->a->strides[l->a->rank - 1], n, y);
    if (l->gain)
      l->kernels->rms_norm(n, a, l->gain, l->eps, y);
    else
      l->kernels->softmax(n, a, y);
  }
}

static weft_status run_norm(weft__backend *backend, const weft__op_call *call, const float *gain, float eps) {
  weft__cpu *cpu = weft__cpu_of(backend);
  norm_loop l = {cpu->kernels, call->in[0], gain, eps, weft__cpu_data(call->out)};
  if (weft__n_cols(l.a) > 0) weft__cpu_rows(cpu, weft__n_rows(l.a), weft__n_cols(l.a), norm_rows, &l);
  return WEFT_OK;
}

weft_status weft__cpu_softmax(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, NULL, 0);
}

weft_status weft__cpu_rms_norm(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, weft__cpu_data(call->in[1]), ((const weft_rms_norm_attrs *)call->attrs)->eps);
}
