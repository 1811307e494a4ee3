/* op_norm.c - operators along the last axis: softmax; rms_norm, layer_norm and their gradients. */
#include "cpu/cpu.h"

/* ---- softmax ---- */

typedef struct row_loop {
  const weft__cpu_kernels *kernels;
  weft__norm norm; /* but of softmax */
  const weft_tensor *a, *dy /* of a gradient */;
  float *y;
} row_loop;

static row_loop loop_of(weft__backend *backend, const weft__op_call *call) {
  return (row_loop){.kernels = weft__cpu_of(backend)->kernels, .a = call->in[0], .y = weft__cpu_data(call->out)};
}

/* A row as f32: where it lies, or in `scratch`. */
static const float *read_row(const weft_tensor *t, int64_t row, float *scratch) {
  int64_t index = weft__row_offset(t, t->rank, t->shape, -1, row);
  return weft__real_run(t, index, t->strides[t->rank - 1], weft__n_cols(t), scratch);
}

static weft_status run_rows(weft__backend *backend, weft__row_range task, row_loop *l) {
  int64_t n = weft__n_cols(l->a);
  if (n > 0) weft__cpu_rows(weft__cpu_of(backend), weft__n_rows(l->a), n, task, l);
  return WEFT_OK;
}

/* What is no contiguous f32 is read into the row of the result, and changed there; so it is in norm_rows. */
static void softmax_rows(void *context, int64_t first, int64_t end) {
  const row_loop *l = context;
  int64_t n = weft__n_cols(l->a);
  for (int64_t row = first; row < end; row++) {
    float *y = l->y + row * n;
    l->kernels->softmax(n, read_row(l->a, row, y), y);
  }
}

weft_status weft__cpu_softmax(weft__backend *backend, const weft__op_call *call) {
  row_loop l = loop_of(backend, call);
  return run_rows(backend, softmax_rows, &l);
}

/* ---- norms ---- */

static void norm_rows(void *context, int64_t first, int64_t end) {
  const row_loop *l = context;
  int64_t n = weft__n_cols(l->a);
  for (int64_t row = first; row < end; row++) {
    float *y = l->y + row * n;
    l->kernels->norm(&l->norm, n, read_row(l->a, row, y), y);
  }
}

static weft_status run_norm(weft__backend *backend, const weft__op_call *call, bool is_centred) {
  row_loop l = loop_of(backend, call);
  l.norm = (weft__norm){.is_centred = is_centred, .eps = ((const weft_rms_norm_attrs *)call->attrs)->eps};
  if (call->n_inputs > 1) l.norm.gain = weft__cpu_data(call->in[1]);
  if (call->n_inputs > 2) l.norm.bias = weft__cpu_data(call->in[2]);
  return run_rows(backend, norm_rows, &l);
}

weft_status weft__cpu_rms_norm(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, false);
}
weft_status weft__cpu_rms_norm_xhat(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, false);
}
weft_status weft__cpu_layer_norm(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, true);
}
weft_status weft__cpu_layer_norm_xhat(weft__backend *backend, const weft__op_call *call) {
  return run_norm(backend, call, true);
}

/* ---- their gradients ---- */

static void grad_rows(void *context, int64_t first, int64_t end) {
  const row_loop *l = context;
  int64_t n = weft__n_cols(l->a);
  for (int64_t row = first; row < end; row++) {
    float *da = l->y + row * n;
    l->kernels->norm_grad(&l->norm, n, read_row(l->a, row, NULL), read_row(l->dy, row, da), da);
  }
}

/* There is room for the row of one operand in the result: an `a` that is no rows of f32 is copied. */
static weft_status run_grad(weft__backend *backend, const weft__op_call *call, bool is_centred) {
  weft__cpu *cpu = weft__cpu_of(backend);
  row_loop l = loop_of(backend, call);
  l.dy = call->in[2];
  l.norm = (weft__norm){.is_centred = is_centred,
                        .gain = weft__cpu_data(call->in[1]),
                        .eps = ((const weft_rms_norm_attrs *)call->attrs)->eps};
  if (l.a->dtype == WEFT_F32 && (l.a->strides[l.a->rank - 1] == 1 || weft__n_cols(l.a) == 1))
    return run_rows(backend, grad_rows, &l);
  weft__storage storage = {.n_bytes = weft_tensor_bytes(call->out)};
  storage.buffer = weft__buffers_get(cpu->buffers, storage.n_bytes);
  if (!storage.buffer) return WEFT_ENOMEM;
  weft_tensor copy = *call->out;
  copy.offset = 0;
  copy.storage = &storage;
  weft__copy(cpu, l.a, &copy);
  l.a = &copy;
  weft_status status = run_rows(backend, grad_rows, &l);
  weft__buffers_put(cpu->buffers, storage.buffer, storage.n_bytes);
  return status;
}

weft_status weft__cpu_rms_norm_grad(weft__backend *backend, const weft__op_call *call) {
  return run_grad(backend, call, false);
}
weft_status weft__cpu_layer_norm_grad(weft__backend *backend, const weft__op_call *call) {
  return run_grad(backend, call, true);
}
