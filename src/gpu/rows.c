/* rows.c - operators along the last axis: which rows of their operands go into one dispatch, and where they lie.
 *
 * Leading axes that all operands step through alike are merged: rows at one stride are one axis.  What spans more than a
 * binding is halved along its widest leading axis, until each part fits. */
#include "gpu/gpu.h"

enum { A, B, Y, C, N_TENSORS };

/* Rows of the operands: their leading axes, outermost first, and the first element of each. */
typedef struct block {
  int rank;
  int64_t shape[WEFT_MAX_RANK], strides[N_TENSORS][WEFT_MAX_RANK], first[N_TENSORS];
} block;

static block merged_axes(const weft_tensor *const tensors[N_TENSORS]) {
  block m = {.rank = 0};
  const weft_tensor *y = tensors[Y];
  for (int i = 0; i < y->rank - 1; i++) {
    if (y->shape[i] == 1) continue;
    bool merges = m.rank > 0;
    for (int t = 0; t < N_TENSORS && merges; t++)
      if (tensors[t]) merges = m.strides[t][m.rank - 1] == y->shape[i] * tensors[t]->strides[i];
    if (!merges) m.shape[m.rank++] = 1;
    m.shape[m.rank - 1] *= y->shape[i];
    for (int t = 0; t < N_TENSORS; t++)
      if (tensors[t]) m.strides[t][m.rank - 1] = tensors[t]->strides[i];
  }
  return m;
}

/* Elements from the first to the last of an operand's rows. */
static int64_t span(const block *m, const weft_tensor *t, const int64_t *strides) {
  int64_t last = (weft__n_cols(t) - 1) * t->strides[t->rank - 1];
  for (int i = 0; i < m->rank; i++) last += (m->shape[i] - 1) * strides[i];
  return last + 1;
}

static weft_status run_block(weft__gpu *gpu, const weft__gpu_row_call *call, const weft_tensor *const *tensors,
                             const block *m) {
  weft__gpu_rows_params p = {.n = (uint32_t)weft__n_cols(call->a), .n_rows = 1, .rank = (uint32_t)m->rank};
  weft__gpu_range ranges[N_TENSORS] = {{0}};
  uint32_t *strides[] = {p.a_strides, p.b_strides, p.y_strides, p.c_strides};
  uint32_t *offsets[] = {&p.a_offset, &p.b_offset, &p.y_offset, &p.c_offset};
  for (int i = 0; i < m->rank; i++) {
    p.shape[i] = (uint32_t)m->shape[i];
    p.n_rows *= (uint32_t)m->shape[i];
    for (int t = 0; t < N_TENSORS; t++) strides[t][i] = (uint32_t)m->strides[t][i];
  }
  for (int t = 0; t < N_TENSORS; t++)
    if (tensors[t])
      ranges[t] = weft__gpu_window(gpu, tensors[t], m->first[t], span(m, tensors[t], m->strides[t]), offsets[t]);
  p.first_row = (uint32_t)(m->first[Y] / weft__n_cols(call->y));
  p.op = (uint32_t)call->op;
  p.a_step = (uint32_t)call->a->strides[call->a->rank - 1];
  p.b_step = call->b ? (uint32_t)call->b->strides[call->b->rank - 1] : 1;
  return call->run(gpu, call, &p, ranges);
}

/* The leading axis with the most elements between its first and its last row; -1 if there is one row. */
static int widest_axis(const block *m) {
  int widest = -1;
  int64_t most = -1;
  for (int i = 0; i < m->rank; i++) {
    int64_t stride = 0;
    for (int t = 0; t < N_TENSORS; t++) stride = weft__max_i64(stride, m->strides[t][i]);
    if (m->shape[i] > 1 && (m->shape[i] - 1) * stride > most) most = (m->shape[i] - 1) * stride, widest = i;
  }
  return widest;
}

static weft_status run_blocks(weft__gpu *gpu, const weft__gpu_row_call *call, const weft_tensor *const *tensors,
                              const block *m) {
  int64_t window = weft__gpu_window_elements(gpu);
  bool fits = true;
  for (int t = 0; t < N_TENSORS; t++) fits = fits && (!tensors[t] || span(m, tensors[t], m->strides[t]) <= window);
  if (fits) return run_block(gpu, call, tensors, m);
  int widest = widest_axis(m);
  if (widest < 0)
    return weft__error(WEFT_EUNSUPPORTED, "%s: a row of %lld elements, beyond one binding of %s",
                       weft__op_get(call->op)->name, (long long)weft__n_cols(call->a), gpu->info.name);
  block half = *m;
  half.shape[widest] /= 2;
  weft_status status = run_blocks(gpu, call, tensors, &half);
  if (status) return status;
  for (int t = 0; t < N_TENSORS; t++) half.first[t] += half.shape[widest] * m->strides[t][widest];
  half.shape[widest] = m->shape[widest] - half.shape[widest];
  return run_blocks(gpu, call, tensors, &half);
}

weft_status weft__gpu_each_rows(weft__gpu *gpu, const weft__gpu_row_call *call) {
  const weft_tensor *const tensors[N_TENSORS] = {call->a, call->b, call->y, call->c};
  if (weft_tensor_numel(call->y) == 0) return WEFT_OK;
  block m = merged_axes(tensors);
  return run_blocks(gpu, call, tensors, &m);
}

weft__gpu_row_shape weft__gpu_row_quads(const weft__gpu_row_call *call, const weft__gpu_rows_params *p) {
  enum { LEAST_THREADS = 32, MOST_THREADS = 256, MAX_ELEMENTS = 4 * 8 /* of an invocation */ };
  uint32_t all = p->n | p->a_offset | p->b_offset | p->y_offset; /* all are multiples of four if this is */
  for (uint32_t i = 0; i < p->rank; i++) all |= p->a_strides[i] | p->b_strides[i] | p->y_strides[i];
  bool are_quads = call->a->dtype == WEFT_F32 && (!call->b || call->b->dtype == WEFT_F32) && p->a_step == 1 &&
                   p->b_step == 1 && all % 4 == 0 && p->n <= MOST_THREADS * MAX_ELEMENTS;
  weft__gpu_row_shape shape = {.n_threads = LEAST_THREADS};
  while (shape.n_threads < MOST_THREADS && p->n > shape.n_threads * MAX_ELEMENTS) shape.n_threads *= 2;
  if (are_quads) shape.n_quads = (p->n + 4 * shape.n_threads - 1) / (4 * shape.n_threads);
  return shape;
}
