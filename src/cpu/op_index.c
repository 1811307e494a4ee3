/* op_index.c - operators by index: gather, scatter_add, embed_grad, top_k.
 *
 * Indices are checked before anything is written.  What is added to one element of scatter_add's result is added by one
 * task in the order of the indices, so the sum does not depend on the number of threads. */
#include "cpu/cpu.h"

#include <string.h> /* memcpy */

static weft_status check_indices(const weft__op_call *call, int axis) {
  const weft_tensor *b = call->in[1];
  int64_t n = weft__n_cols(b), extent = call->in[0]->shape[axis];
  for (int64_t row = 0; row < (n ? weft__n_rows(b) : 0); row++) {
    const int32_t *indices = (const int32_t *)weft__cpu_data(b) + weft__row_offset(b, b->rank, b->shape, -1, row);
    for (int64_t i = 0; i < n; i++) {
      int32_t index = indices[i * b->strides[b->rank - 1]];
      if (index < 0 || index >= extent)
        return weft__fault(call->op, WEFT__FAULT_INDEX, (const int64_t[4]){index, row * n + i, extent, axis});
    }
  }
  return WEFT_OK;
}

/* ---- gather ---- */

typedef struct gather_loop {
  const weft_tensor *a, *b, *y;
  int axis;
} gather_loop;

/* One row of the result: y[i] = a[indices[i * b_step] * a_axis + i * a_step], elements of `size` bytes. */
static void gather_row(size_t size, const void *a, int64_t a_axis, int64_t a_step, const int32_t *indices,
                       int64_t b_step, int64_t n, void *y) {
  if (b_step == 0 && a_step == 1)
    memcpy(y, (const char *)a + (size_t)(indices[0] * a_axis) * size, (size_t)n * size);
  else if (size == 2)
    for (int64_t i = 0; i < n; i++)
      ((uint16_t *)y)[i] = ((const uint16_t *)a)[indices[i * b_step] * a_axis + i * a_step];
  else
    for (int64_t i = 0; i < n; i++)
      ((uint32_t *)y)[i] = ((const uint32_t *)a)[indices[i * b_step] * a_axis + i * a_step];
}

static void gather_rows(void *context, int64_t first, int64_t end) {
  const gather_loop *l = context;
  int rank = l->y->rank, last = rank - 1;
  int64_t n = weft__n_cols(l->y);
  size_t size = (size_t)weft__dtype_get(l->a->dtype)->block_bytes;
  int64_t a_step = l->axis == last ? 0 : weft__broadcast_stride(l->a, rank, last);
  for (int64_t row = first; row < end; row++) {
    int64_t a = weft__row_offset(l->a, rank, l->y->shape, l->axis, row),
            b = weft__row_offset(l->b, rank, l->y->shape, -1, row);
    gather_row(size, (const char *)weft__cpu_data(l->a) + (size_t)a * size, l->a->strides[l->axis], a_step,
               (const int32_t *)weft__cpu_data(l->b) + b, weft__broadcast_stride(l->b, rank, last), n,
               (char *)weft__cpu_data(l->y) + (size_t)(row * n) * size);
  }
}

weft_status weft__cpu_gather(weft__backend *backend, const weft__op_call *call) {
  gather_loop l = {call->in[0], call->in[1], call->out, ((const weft_gather_attrs *)call->attrs)->axis};
  weft_status status = check_indices(call, l.axis);
  if (status || weft_tensor_numel(l.y) == 0) return status;
  weft__cpu_rows(weft__cpu_of(backend), weft__n_rows(l.y), weft__n_cols(l.y), gather_rows, &l);
  return WEFT_OK;
}

/* ---- scatter_add ---- */

enum { SCATTER_COLUMNS = 128 }; /* of the last axis that one task adds to */

typedef struct scatter_loop {
  const weft_tensor *b, *c, *y;
  int axis;
  int64_t outer[WEFT_MAX_RANK]; /* c's shape with extent 1 along the axis */
  int64_t n_column_blocks;
} scatter_loop;

/* The indexed axis is the last: a row of y takes the terms of one row of c. */
static void scatter_along(const scatter_loop *l, int64_t row) {
  int rank = l->c->rank, last = rank - 1;
  int64_t n = l->c->shape[last], c = weft__row_offset(l->c, rank, l->outer, -1, row), step = l->c->strides[last];
  const int32_t *indices = (const int32_t *)weft__cpu_data(l->b) + weft__row_offset(l->b, rank, l->outer, -1, row);
  float *y = (float *)weft__cpu_data(l->y) + row * l->y->shape[last], scratch[WEFT__PIECE];
  for (int64_t first = 0; first < n; first += WEFT__PIECE) {
    int64_t n_run = n - first < WEFT__PIECE ? n - first : WEFT__PIECE;
    const float *x = weft__real_run(l->c, c + first * step, step, n_run, scratch);
    for (int64_t i = 0; i < n_run; i++) y[indices[(first + i) * l->b->strides[last]]] += x[i];
  }
}

/* It is another: rows of c are added to rows of y, `n` columns from `column` on. */
static void scatter_rows(const scatter_loop *l, int64_t row, int64_t column, int64_t n) {
  int rank = l->c->rank, last = rank - 1;
  int64_t c = weft__row_offset(l->c, rank, l->outer, -1, row) + column * l->c->strides[last];
  int64_t b_step = weft__broadcast_stride(l->b, rank, last);
  const int32_t *indices =
      (const int32_t *)weft__cpu_data(l->b) + weft__row_offset(l->b, rank, l->outer, -1, row) + column * b_step;
  float *y = (float *)weft__cpu_data(l->y) + weft__row_offset(l->y, rank, l->outer, -1, row) + column;
  float scratch[SCATTER_COLUMNS];
  for (int64_t j = 0; j < l->c->shape[l->axis]; j++, indices += l->b->strides[l->axis]) {
    const float *x = weft__real_run(l->c, c + j * l->c->strides[l->axis], l->c->strides[last], n, scratch);
    for (int64_t i = 0; i < n; i++) y[indices[i * b_step] * l->y->strides[l->axis] + i] += x[i];
  }
}

static void scatter_units(void *context, int64_t first, int64_t end) {
  const scatter_loop *l = context;
  for (int64_t unit = first; unit < end; unit++) {
    int64_t column = unit % l->n_column_blocks * SCATTER_COLUMNS, n = weft__n_cols(l->c) - column;
    if (l->axis == l->c->rank - 1)
      scatter_along(l, unit);
    else
      scatter_rows(l, unit / l->n_column_blocks, column, n < SCATTER_COLUMNS ? n : SCATTER_COLUMNS);
  }
}

/* Adds c to y at the indices b, which have been checked. */
static void scatter(weft__cpu *cpu, const weft_tensor *b, const weft_tensor *c, const weft_tensor *y, int axis) {
  scatter_loop l = {b, c, y, axis, {0}, 1};
  if (weft_tensor_numel(c) == 0) return;
  int64_t n_rows = 1, n_terms = l.c->shape[l.axis];
  for (int i = 0; i < l.c->rank; i++) {
    l.outer[i] = i == l.axis ? 1 : l.c->shape[i];
    if (i < l.c->rank - 1) n_rows *= l.outer[i];
  }
  if (l.axis != l.c->rank - 1) l.n_column_blocks = (weft__n_cols(l.c) + SCATTER_COLUMNS - 1) / SCATTER_COLUMNS;
  int64_t width = l.axis == l.c->rank - 1 ? 1 : SCATTER_COLUMNS;
  weft__cpu_rows(cpu, n_rows * l.n_column_blocks, n_terms * width, scatter_units, &l);
}

weft_status weft__cpu_scatter_add(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  int axis = ((const weft_scatter_add_attrs *)call->attrs)->axis;
  weft_status status = check_indices(call, axis);
  if (status) return status;
  weft__copy(cpu, call->in[0], call->out);
  scatter(cpu, call->in[1], call->in[2], call->out, axis);
  return WEFT_OK;
}

/* ---- embed_grad ---- */

weft_status weft__cpu_embed_grad(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  weft_tensor ids = *call->in[0];
  weft_status status = weft__check_ids(call, &ids, call->out->shape[0]);
  if (status) return status;
  weft__fill(cpu, 0, call->out);
  ids.rank = 2, ids.shape[1] = ids.strides[1] = 1; /* [N,1]: whole rows */
  scatter(cpu, &ids, call->in[1], call->out, 0);
  return WEFT_OK;
}

/* ---- top_k ---- */

/* Elements of one line of the operand, and the places chosen among them: a heap whose root ranks last. */
typedef struct chosen {
  const weft_tensor *a;
  int64_t index, a_step; /* of the line's first element, and from one to the next */
  int32_t *places;
  int64_t step, n; /* of the places */
} chosen;

static bool ranks_before(const chosen *c, int32_t place, int32_t other) {
  float x, y;
  weft__read_real(c->a->dtype, weft__cpu_data(c->a), c->index + place * c->a_step, 1, 1, &x);
  weft__read_real(c->a->dtype, weft__cpu_data(c->a), c->index + other * c->a_step, 1, 1, &y);
  return weft__ranks_before(x, place, y, other);
}

static void swap_places(chosen *c, int64_t i, int64_t j) {
  int32_t place = c->places[i * c->step];
  c->places[i * c->step] = c->places[j * c->step];
  c->places[j * c->step] = place;
}

/* Lets element `i` of the heap's first n sink below all that rank after it. */
static void sink(chosen *c, int64_t i, int64_t n) {
  for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
    if (child + 1 < n && ranks_before(c, c->places[child * c->step], c->places[(child + 1) * c->step])) child++;
    if (!ranks_before(c, c->places[i * c->step], c->places[child * c->step])) return;
    swap_places(c, i, child);
    i = child;
  }
}

static void choose(chosen *c, int64_t n_line) {
  for (int64_t i = 0; i < c->n; i++) c->places[i * c->step] = (int32_t)i;
  for (int64_t i = c->n / 2 - 1; i >= 0; i--) sink(c, i, c->n);
  for (int64_t place = c->n; place < n_line; place++) {
    if (!ranks_before(c, (int32_t)place, c->places[0])) continue;
    c->places[0] = (int32_t)place;
    sink(c, 0, c->n);
  }
  for (int64_t n = c->n - 1; n > 0; n--) { /* the last of those that are left goes to the end */
    swap_places(c, 0, n);
    sink(c, 0, n);
  }
}

typedef struct top_k_loop {
  const weft_tensor *a, *y;
  int axis;
  int64_t outer[WEFT_MAX_RANK]; /* a's shape with extent 1 along the axis */
} top_k_loop;

static void top_k_lines(void *context, int64_t first, int64_t end) {
  const top_k_loop *l = context;
  for (int64_t line = first; line < end; line++) {
    int64_t rest = line, a = 0, y = 0;
    for (int i = l->a->rank - 1; i >= 0; i--) {
      a += rest % l->outer[i] * l->a->strides[i];
      y += rest % l->outer[i] * l->y->strides[i];
      rest /= l->outer[i];
    }
    chosen c = {l->a,
                a,
                l->a->strides[l->axis],
                (int32_t *)weft__cpu_data(l->y) + y,
                l->y->strides[l->axis],
                l->y->shape[l->axis]};
    choose(&c, l->a->shape[l->axis]);
  }
}

weft_status weft__cpu_top_k(weft__backend *backend, const weft__op_call *call) {
  top_k_loop l = {.a = call->in[0], .y = call->out, .axis = ((const weft_top_k_attrs *)call->attrs)->axis};
  int64_t n_lines = 1;
  for (int i = 0; i < l.a->rank; i++) n_lines *= l.outer[i] = i == l.axis ? 1 : l.a->shape[i];
  weft__cpu_rows(weft__cpu_of(backend), n_lines, 4 * l.a->shape[l.axis], top_k_lines, &l);
  return WEFT_OK;
}
