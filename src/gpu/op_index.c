/* op_index.c - operators by index: gather, scatter_add, embed and its gradient.
 *
 * Kernels check each index and note the first that is wrong (faults.c).  The result is written in as many windows as
 * bindings ask for; an operand beyond one binding is read in windows along the indexed axis, of which each element of the
 * result finds its own. */
#include "gpu/gpu.h"

enum { PER_GROUP = 256 };

/* ---- gather ---- */

typedef struct gather_loop {
  weft__gpu *gpu;
  const weft_tensor *a, *b, *y;
  int axis;
} gather_loop;

static weft__gpu_gather_params gather_params(const gather_loop *l) {
  int rank = l->y->rank;
  weft__gpu_gather_params p = {.rank = (uint32_t)rank,
                               .axis = (uint32_t)l->axis,
                               .op = l->gpu->base.current_op,
                               .extent = (uint32_t)weft__min_i64(l->a->shape[l->axis], UINT32_MAX),
                               .a_axis_stride = (uint32_t)l->a->strides[l->axis]};
  int64_t place = 1;
  for (int i = rank - 1; i >= 0; i--) {
    p.shape[i] = (uint32_t)l->y->shape[i];
    p.a_strides[i] = i == l->axis ? 0 : (uint32_t)weft__broadcast_stride(l->a, rank, i);
    p.b_strides[i] = (uint32_t)weft__broadcast_stride(l->b, rank, i);
    p.b_places[i] = l->b->shape[i] == 1 ? 0 : (uint32_t)place;
    place *= l->b->shape[i];
  }
  return p;
}

/* Elements of y from `first` on, one window of them, out of `n_indices` of a's axis from `index_first` on. */
static weft_status gather_window(const gather_loop *l, int64_t first, int64_t index_first, int64_t n_indices) {
  weft__gpu_gather_params p = gather_params(l);
  int64_t n = weft__min_i64(weft_tensor_numel(l->y) - first, weft__gpu_window_elements(l->gpu));
  weft_tensor part = *l->a;
  part.shape[l->axis] = n_indices;
  p.n = (uint32_t)n;
  p.first = (uint32_t)first;
  p.index_first = (uint32_t)index_first;
  p.n_indices = (uint32_t)n_indices;
  const weft__gpu_range ranges[] = {
      weft__gpu_window(l->gpu, l->a, index_first * l->a->strides[l->axis], weft__tensor_span(&part), &p.a_offset),
      weft__gpu_window(l->gpu, l->b, 0, weft__tensor_span(l->b), &p.b_offset),
      weft__gpu_window(l->gpu, l->y, first, n, &p.y_offset),
  };
  bool is_half = l->y->dtype == WEFT_F16 || l->y->dtype == WEFT_BF16;
  int64_t n_words = is_half ? (n + 1) / 2 : n;
  if (is_half) p.y_offset /= 2; /* windows of a whole tensor begin with a word */
  const weft__wgsl_const constants[] = {{"DTYPE", l->y->dtype}, {NULL, 0}};
  return weft__gpu_dispatch(l->gpu, WEFT__KERNEL_gather, constants, ranges, &p,
                            (uint64_t)((n_words + PER_GROUP - 1) / PER_GROUP));
}

/* The places of an axis that an index, an i32, can reach. */
static int64_t reach_of(int64_t extent) { return weft__min_i64(extent, (int64_t)INT32_MAX + 1); }

/* Indices of an axis whose elements, with those of the other axes, fit a window; 0 if not even one does. */
static int64_t indices_of_window(const weft__gpu *gpu, const weft_tensor *t, int axis) {
  weft_tensor one = *t;
  one.shape[axis] = 1;
  int64_t room = weft__gpu_window_elements(gpu) - weft__tensor_span(&one), stride = t->strides[axis];
  if (room < 0) return 0;
  return stride == 0 || t->shape[axis] <= 1 ? weft__max_i64(t->shape[axis], 1) : room / stride + 1;
}

weft_status weft__gpu_gather(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const gather_loop l = {gpu, call->in[0], call->in[1], call->out, ((const weft_gather_attrs *)call->attrs)->axis};
  int64_t n = weft_tensor_numel(l.y), window = weft__gpu_window_elements(gpu), reach = reach_of(l.a->shape[l.axis]);
  int64_t n_indices = indices_of_window(gpu, l.a, l.axis);
  if (n > UINT32_MAX || weft__tensor_span(l.b) > window || n_indices == 0) return weft__gpu_too_large(gpu, "gather");
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window)
    for (int64_t index = 0; (index == 0 || index < reach) && !status; index += n_indices)
      status = gather_window(&l, first, index, weft__min_i64(n_indices, reach - index));
  return status;
}

/* ---- scatter_add ---- */

typedef struct scatter_loop {
  weft__gpu *gpu;
  const weft_tensor *b, *c, *y;
  int axis;
} scatter_loop;

/* To the elements of one window of y. */
static weft_status scatter_window(const scatter_loop *l, int64_t y_first) {
  int rank = l->c->rank;
  int64_t n = weft_tensor_numel(l->c), place = 1;
  int64_t n_y = weft__min_i64(weft_tensor_numel(l->y) - y_first, weft__gpu_window_elements(l->gpu));
  weft__gpu_scatter_add_params p = {.n = (uint32_t)n,
                                    .rank = (uint32_t)rank,
                                    .axis = (uint32_t)l->axis,
                                    .op = l->gpu->base.current_op,
                                    .extent = (uint32_t)l->y->shape[l->axis],
                                    .y_axis_stride = (uint32_t)l->y->strides[l->axis],
                                    .y_first = (uint32_t)y_first,
                                    .n_y = (uint32_t)weft__max_i64(n_y, 0)};
  for (int i = rank - 1; i >= 0; i--) {
    p.shape[i] = (uint32_t)l->c->shape[i];
    p.b_strides[i] = (uint32_t)weft__broadcast_stride(l->b, rank, i);
    p.b_places[i] = l->b->shape[i] == 1 ? 0 : (uint32_t)place;
    p.c_strides[i] = (uint32_t)weft__broadcast_stride(l->c, rank, i);
    p.y_strides[i] = i == l->axis ? 0 : (uint32_t)l->y->strides[i];
    place *= l->b->shape[i];
  }
  const weft__gpu_range ranges[] = {
      weft__gpu_window(l->gpu, l->b, 0, weft__tensor_span(l->b), &p.b_offset),
      weft__gpu_window(l->gpu, l->c, 0, weft__tensor_span(l->c), &p.c_offset),
      weft__gpu_window(l->gpu, l->y, y_first, n_y, &p.y_offset),
  };
  const weft__wgsl_const constants[] = {{"DTYPE", l->c->dtype}, {NULL, 0}};
  return weft__gpu_dispatch(l->gpu, WEFT__KERNEL_scatter_add, constants, ranges, &p,
                            (uint64_t)((n + PER_GROUP - 1) / PER_GROUP));
}

weft_status weft__gpu_scatter_add(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const scatter_loop l = {gpu, call->in[1], call->in[2], call->out,
                          ((const weft_scatter_add_attrs *)call->attrs)->axis};
  int64_t n = weft_tensor_numel(l.y), window = weft__gpu_window_elements(gpu);
  if (n > UINT32_MAX || weft__tensor_span(l.b) > window || weft__tensor_span(l.c) > window)
    return weft__gpu_too_large(gpu, "scatter_add");
  weft_status status = weft__gpu_copy_strided(gpu, call->in[0], l.y);
  if (weft_tensor_numel(l.c) == 0) return status;
  for (int64_t first = 0; (first == 0 || first < n) && !status; first += window) status = scatter_window(&l, first);
  return status;
}

/* ---- embed ---- */

/* Rows `first` .. of a table; *byte is the first one's place in the range. */
static weft__gpu_range row_window(const weft__gpu *gpu, const weft_tensor *table, size_t row_bytes, int64_t first,
                                  int64_t n, uint32_t *byte) {
  const weft__dtype_info *info = weft__dtype_get(table->dtype);
  uint64_t start =
      (uint64_t)first * row_bytes + (uint64_t)(table->offset / info->block_len) * (uint64_t)info->block_bytes;
  uint64_t words = (start % 4 + (uint64_t)n * row_bytes + 3) / 4;
  weft__gpu_range range = weft__gpu_words(gpu, table->storage, start / 4, (int64_t)words, byte);
  *byte = *byte * 4 + start % 4;
  return range;
}

weft_status weft__gpu_read_rows(weft__gpu *gpu, const weft_tensor *table, const weft_tensor *ids,
                                const weft_tensor *y) {
  const weft__dtype_info *info = weft__dtype_get(table->dtype);
  int64_t n = weft_tensor_numel(y), n_rows = weft__n_rows(table), window = weft__gpu_window_elements(gpu);
  int64_t reach = ids ? reach_of(n_rows) : n_rows; /* without ids no more rows than elements of y */
  size_t row_bytes = 0;
  weft__row_bytes(table->dtype, weft__n_cols(table), &row_bytes);
  int64_t window_rows = row_bytes ? (window - 1) * 4 / (int64_t)row_bytes : n_rows;
  if (n == 0) return WEFT_OK;
  if (n > UINT32_MAX || (ids && weft__tensor_span(ids) > window) || window_rows == 0)
    return weft__gpu_too_large(gpu, "rows");
  const weft__wgsl_const constants[] = {{"DTYPE", table->dtype},
                                        {"LOOKS_UP", ids != NULL},
                                        {"BLOCK_LEN", (uint32_t)info->block_len},
                                        {"BLOCK_BYTES", (uint32_t)info->block_bytes},
                                        {NULL, 0}};
  weft__gpu_read_rows_params p = {.op = gpu->base.current_op,
                                  .n_columns = (uint32_t)weft__n_cols(table),
                                  .n_rows = (uint32_t)weft__min_i64(n_rows, UINT32_MAX),
                                  .row_bytes = (uint32_t)row_bytes};
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window)
    for (int64_t row = 0; (row == 0 || row < reach) && !status; row += window_rows) {
      int64_t count = weft__min_i64(n - first, window);
      p.n = (uint32_t)count;
      p.first = (uint32_t)first;
      p.row_first = (uint32_t)row;
      p.n_window = (uint32_t)weft__min_i64(window_rows, reach - row);
      weft__gpu_range ranges[3];
      ranges[0] = row_window(gpu, table, row_bytes, row, p.n_window, &p.blocks_byte);
      ranges[1] = ids ? weft__gpu_window(gpu, ids, 0, weft__tensor_span(ids), &p.ids_offset) : ranges[0];
      ranges[2] = weft__gpu_window(gpu, y, first, count, &p.y_offset);
      status = weft__gpu_dispatch(gpu, WEFT__KERNEL_read_rows, constants, ranges, &p,
                                  (uint64_t)((count + PER_GROUP - 1) / PER_GROUP));
    }
  return status;
}

weft_status weft__gpu_embed(weft__backend *backend, const weft__op_call *call) {
  return weft__gpu_read_rows(weft__gpu_of(backend), call->in[0], call->in[1], call->out);
}

/* ---- embed_grad ---- */

/* Of embed_grad.wgsl and token_order.wgsl, named as there. */
enum { EACH = 8, MANY = 32, COLUMNS = 32 };

/* A gradient on its way: tokens are sorted by their rows, then each row of y sums its own. */
typedef struct embed_grad {
  weft__gpu *gpu;
  const weft_tensor *ids, *dy, *y;
  weft__storage rows, order; /* as token_order.wgsl has them */
} embed_grad;

static weft__gpu_range whole(const weft__storage *s) {
  return (weft__gpu_range){s->buffer, 0, (s->n_bytes + 15) / 16 * 16};
}

static weft_status sort_tokens(const embed_grad *g, int64_t first, int64_t n) {
  int64_t n_rows = g->y->shape[0];
  weft__gpu_token_order_params p = {.n_tokens = (uint32_t)n, .n_rows = (uint32_t)n_rows, .op = g->gpu->base.current_op};
  const weft__gpu_range ranges[] = {weft__gpu_window(g->gpu, g->ids, first, n, &p.ids_offset), whole(&g->rows),
                                    whole(&g->order)};
  const int64_t n_of_step[] = {2 * n_rows + 2, n, n_rows, n};
  weft_status status = WEFT_OK;
  for (uint32_t step = 0; step < WEFT_COUNT(n_of_step) && !status; step++) {
    const weft__wgsl_const constants[] = {{"STEP", step}, {"MANY", MANY}, {NULL, 0}};
    status = weft__gpu_dispatch(g->gpu, WEFT__KERNEL_token_order, constants, ranges, &p,
                                (uint64_t)((n_of_step[step] + PER_GROUP - 1) / PER_GROUP));
  }
  return status;
}

/* Sums of n tokens' rows of dy, which fit a window, are added to all of y, or set it: the rows of few terms, or those of
 * many. */
static weft_status sum_rows(const embed_grad *g, int64_t first, int64_t n, bool has_many) {
  int64_t n_columns = g->y->shape[1], n_rows = g->y->shape[0];
  int64_t window_rows = weft__gpu_window_elements(g->gpu) / weft__max_i64(n_columns, 1);
  weft_tensor part = *g->dy;
  part.shape[0] = n;
  const weft__wgsl_const constants[] = {{"DTYPE", part.dtype},
                                        {"ACCUMULATE", first > 0},
                                        {"HAS_MANY", has_many},
                                        {"MANY", MANY},
                                        {"EACH", EACH},
                                        {"COLUMNS", COLUMNS},
                                        {NULL, 0}};
  weft__gpu_embed_grad_params p = {.n_tokens = (uint32_t)n,
                                   .n_rows = (uint32_t)n_rows,
                                   .n_columns = (uint32_t)n_columns,
                                   .dy_row = (uint32_t)part.strides[0],
                                   .dy_column = (uint32_t)part.strides[1]};
  weft_status status = WEFT_OK;
  for (int64_t row = 0; row < n_rows && !status; row += window_rows) {
    int64_t n_window = weft__min_i64(window_rows, n_rows - row);
    p.row_first = (uint32_t)row;
    p.n_window = (uint32_t)n_window;
    const weft__gpu_range ranges[] = {
        whole(&g->rows), whole(&g->order),
        weft__gpu_window(g->gpu, &part, first * part.strides[0], weft__tensor_span(&part), &p.dy_offset),
        weft__gpu_window(g->gpu, g->y, row * n_columns, n_window * n_columns, &p.y_offset)};
    int64_t n_groups = has_many ? n / (MANY + 1) * ((n_columns + COLUMNS - 1) / COLUMNS)
                                : (n_window * n_columns + EACH * PER_GROUP - 1) / (EACH * PER_GROUP);
    status = weft__gpu_dispatch(g->gpu, WEFT__KERNEL_embed_grad, constants, ranges, &p, (uint64_t)n_groups);
  }
  return status;
}

static weft_status alloc_words(weft__gpu *gpu, int64_t n, weft__storage *storage) {
  *storage = (weft__storage){.backend = &gpu->base, .n_bytes = (size_t)(n > 0 ? n : 1) * 4}; /* no binding is empty */
  return weft__gpu_alloc(&gpu->base, storage->n_bytes, &storage->buffer);
}

weft_status weft__gpu_embed_grad(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  embed_grad g = {.gpu = gpu, .ids = call->in[0], .dy = call->in[1], .y = call->out};
  int64_t window = weft__gpu_window_elements(gpu), n_tokens = g.ids->shape[0];
  int64_t part = weft__min_i64(indices_of_window(gpu, g.dy, 0), window / 3); /* tokens at a time */
  if (part == 0 || g.y->shape[1] > window || g.y->shape[0] > (window - 2) / 2)
    return weft__gpu_too_large(gpu, "embed_grad");
  weft_status status = alloc_words(gpu, 2 * g.y->shape[0] + 2, &g.rows);
  int64_t n_sorted = weft__min_i64(part, n_tokens);
  if (!status) status = alloc_words(gpu, 2 * n_sorted + n_sorted / (MANY + 1), &g.order);
  for (int64_t first = 0; (first == 0 || first < n_tokens) && !status; first += part) {
    int64_t n = weft__min_i64(part, n_tokens - first);
    status = sort_tokens(&g, first, n);
    if (!status) status = sum_rows(&g, first, n, false);
    if (!status) status = sum_rows(&g, first, n, true);
  }
  if (g.rows.buffer) weft__gpu_free(backend, g.rows.buffer, g.rows.n_bytes);
  if (g.order.buffer) weft__gpu_free(backend, g.order.buffer, g.order.n_bytes);
  return status;
}
