/* op_attention.c - fused attention and its gradient: tiles of queries or keys times heads times batches.
 *
 * Operands have contiguous rows at any stride.  All batches go into one dispatch where they fit the bindings, else each
 * goes alone. */
#include "gpu/gpu.h"

/* ---- tiles ---- */

/* As attention_tiles.wgsl names them. */
typedef struct tiles {
  uint32_t max_head_size;
  uint32_t br, bc, nx, ny, ch, cv;
} tiles;

enum { MAX_HEAD_SIZE = 256, QUAD_BYTES = 16 };

/* The first that take the head and fit the device are used; the last fit every device. */
static const tiles FORWARD[] = {{64, 64, 64, 8, 16, 32, 32},
                                {128, 64, 64, 8, 16, 32, 16},
                                {256, 64, 64, 16, 16, 16, 8},
                                {256, 32, 32, 8, 8, 16, 8}};
static const tiles BACKWARD[] = {{64, 64, 64, 8, 16, 32, 32}, {256, 64, 64, 16, 16, 16, 8}, {256, 32, 32, 8, 8, 16, 8}};
enum { MIN_ROWS = 32 }; /* of all of them */

/* Without a mask: the first query's place among the keys, beyond all of them, and a window that reaches back to the first. */
static const uint32_t NO_SHIFT = 1u << 30, NO_WINDOW = 1u << 31;

/* The head's dimensions with their padding: each invocation owns whole quads, each piece has CH. */
static uint32_t padded_size(const tiles *t, uint32_t head_size) {
  uint32_t unit = 4 * t->nx > t->ch ? 4 * t->nx : t->ch;
  return (head_size + unit - 1) / unit * unit;
}

static uint32_t stage_quads(const tiles *t, uint32_t head_size) {
  uint32_t scores = (t->br + t->bc) * (t->ch / 4 + 1);
  uint32_t products = t->br * (t->nx + 1) + t->cv * padded_size(t, head_size) / 4;
  return scores > products ? scores : products;
}

static bool tiles_fit(const weft__gpu *gpu, const tiles *t, uint32_t head_size) {
  const weft__gpu_limits *limits = &gpu->info.limits;
  uint32_t quads = stage_quads(t, head_size) + t->br * t->nx / 4;
  return head_size <= t->max_head_size && quads * QUAD_BYTES <= limits->max_workgroup_bytes &&
         t->nx * t->ny <= limits->max_invocations;
}

static const tiles *choose_tiles(const weft__gpu *gpu, const tiles *t, uint32_t head_size) {
  while (!tiles_fit(gpu, t, head_size)) t++;
  return t;
}

/* ---- operands ---- */

/* The operands of any of the three operators; NULL where there is none. */
typedef struct operands {
  const weft_attention_attrs *attrs;
  const weft_tensor *q, *k, *v, *y, *lse, *dy, *dq, *dk, *dv, *delta;
} operands;

static operands operands_of(const weft__op_call *call) {
  weft_tensor *const *in = call->in;
  operands o = {.attrs = call->attrs};
  switch (call->op) {
  case WEFT_OP_ID_attention:
    o.q = in[0], o.k = in[1], o.v = in[2], o.y = call->out;
    break;
  case WEFT_OP_ID_attention_lse:
    o.y = in[0], o.lse = in[1], o.q = in[2], o.k = in[3], o.v = in[4];
    break;
  default:
    o.dq = in[0], o.dk = in[1], o.dv = in[2], o.q = in[3], o.k = in[4], o.v = in[5];
    o.y = in[6], o.lse = in[7], o.dy = in[8];
  }
  return o;
}

static uint32_t head_size_of(const operands *o) { return (uint32_t)(weft__n_cols(o->q) / o->attrs->n_heads); }
static int64_t n_batches(const operands *o) { return o->q->rank == 3 ? o->q->shape[0] : 1; }
static int64_t n_positions(const weft_tensor *t) { return t->shape[t->rank - 2]; }
static int64_t batch_stride(const weft_tensor *t) { return t->rank == 3 ? t->strides[0] : 0; }

/* Elements from the first to the last of `n` batches. */
static int64_t span_of_batches(const weft_tensor *t, int64_t n) {
  int64_t rows = n_positions(t), row_stride = t->strides[t->rank - 2];
  return (n - 1) * batch_stride(t) + (rows > 1 ? rows - 1 : 0) * row_stride + weft__n_cols(t);
}

/* Whether `n` batches of each operand fit a binding; shapes of q stand for what the call makes itself. */
static bool batches_fit(const weft__gpu *gpu, const operands *o, int64_t n) {
  const weft_tensor *const all[] = {o->q, o->k, o->v, o->y, o->dy, o->dq, o->dk, o->dv};
  int64_t window = weft__gpu_window_elements(gpu);
  for (size_t i = 0; i < WEFT_COUNT(all); i++)
    if (all[i] && span_of_batches(all[i], n) > window) return false;
  return n <= gpu->info.limits.max_groups_per_axis;
}

bool weft__gpu_attention_fits(const weft__gpu *gpu, const weft__op_call *call) {
  operands o = operands_of(call);
  int64_t limit = gpu->info.limits.max_groups_per_axis;
  return head_size_of(&o) <= MAX_HEAD_SIZE && o.attrs->n_heads <= limit && batches_fit(gpu, &o, 1) &&
         n_positions(o.q) <= limit * MIN_ROWS && n_positions(o.k) <= limit * MIN_ROWS;
}

/* ---- dispatches ---- */

/* Some batches, and the parameters that tell where they lie. */
typedef struct piece {
  weft__gpu *gpu;
  const operands *o;
  int64_t first, n; /* batches */
  weft__gpu_attention_params p;
  bool in_quads; /* every row begins on a quad, and ends on one */
} piece;

/* Binds the part's batches of a tensor with rows of heads; fields: offset, row, batch. */
static weft__gpu_range bind_rows(piece *part, const weft_tensor *t, uint32_t *offset, uint32_t *row, uint32_t *batch) {
  *row = (uint32_t)t->strides[t->rank - 2];
  *batch = (uint32_t)batch_stride(t);
  weft__gpu_range range =
      weft__gpu_window(part->gpu, t, part->first * batch_stride(t), span_of_batches(t, part->n), offset);
  part->in_quads = part->in_quads && (*offset | *row | *batch) % 4 == 0;
  return range;
}

#define BIND(part, name)                                                                                               \
  bind_rows(part, (part)->o->name, &(part)->p.name##_offset, &(part)->p.name##_row, &(part)->p.name##_batch)

/* The same of [B,T,H], contiguous. */
static weft__gpu_range bind_numbers(const piece *part, const weft_tensor *t, uint32_t *offset) {
  int64_t n = n_positions(part->o->q) * part->o->attrs->n_heads;
  return weft__gpu_window(part->gpu, t, part->first * n, part->n * n, offset);
}

static piece make_part(weft__gpu *gpu, const operands *o, int64_t first, int64_t n) {
  uint32_t head_size = head_size_of(o), n_queries = (uint32_t)n_positions(o->q), n_keys = (uint32_t)n_positions(o->k);
  bool is_causal = o->attrs->mask == WEFT_MASK_CAUSAL;
  return (piece){.gpu = gpu,
                 .o = o,
                 .first = first,
                 .n = n,
                 .in_quads = head_size % 4 == 0,
                 .p = {.n_queries = n_queries,
                       .n_keys = n_keys,
                       .d = head_size,
                       .n_heads = (uint32_t)o->attrs->n_heads,
                       .group = (uint32_t)(weft__n_cols(o->q) / weft__n_cols(o->k)),
                       .shift = is_causal ? n_keys - n_queries : NO_SHIFT,
                       .window = o->attrs->window ? (uint32_t)o->attrs->window : NO_WINDOW,
                       .scale = o->attrs->scale}};
}

/* One kernel over rows (queries or keys) of heads; `edge` is the same for rows that are not in quads. */
static weft_status dispatch(const piece *part, weft__gpu_kernel kernel, weft__gpu_kernel edge, const tiles *t,
                            const weft__gpu_range *ranges, uint32_t n_heads, uint32_t n_rows) {
  uint32_t padded = padded_size(t, part->p.d);
  const weft__wgsl_const constants[] = {{"BR", t->br},
                                        {"BC", t->bc},
                                        {"NX", t->nx},
                                        {"NY", t->ny},
                                        {"DP", padded},
                                        {"CH", t->ch},
                                        {"CV", t->cv},
                                        {"STAGE", stage_quads(t, part->p.d)},
                                        {"IS_PADDED", padded != part->p.d},
                                        {NULL, 0}};
  return weft__gpu_dispatch3(part->gpu, part->in_quads ? kernel : edge, constants, ranges, &part->p,
                             (uint32_t[]){n_heads, (n_rows + t->br - 1) / t->br, (uint32_t)part->n});
}

static weft_status run_forward(weft__gpu *gpu, const operands *o, int64_t first, int64_t n) {
  piece part = make_part(gpu, o, first, n);
  const weft__gpu_range ranges[] = {BIND(&part, q), BIND(&part, k), BIND(&part, v), BIND(&part, y),
                                    bind_numbers(&part, o->lse, &part.p.lse_offset)};
  if (part.p.n_queries == 0) return WEFT_OK;
  return dispatch(&part, WEFT__KERNEL_attention, WEFT__KERNEL_attention_edge, choose_tiles(gpu, FORWARD, part.p.d),
                  ranges, part.p.n_heads, part.p.n_queries);
}

/* dq, and delta for what follows. */
static weft_status run_grad_queries(piece *part, const tiles *t) {
  const weft__gpu_range ranges[] = {BIND(part, q),
                                    BIND(part, k),
                                    BIND(part, v),
                                    BIND(part, dy),
                                    bind_numbers(part, part->o->lse, &part->p.lse_offset),
                                    BIND(part, y),
                                    bind_numbers(part, part->o->delta, &part->p.delta_offset),
                                    BIND(part, dq)};
  if (part->p.n_queries == 0) return WEFT_OK;
  return dispatch(part, WEFT__KERNEL_attention_grad_queries, WEFT__KERNEL_attention_grad_queries_edge, t, ranges,
                  part->p.n_heads, part->p.n_queries);
}

static weft_status run_grad_keys(piece *part, const tiles *t) {
  const weft__gpu_range ranges[] = {BIND(part, q),
                                    BIND(part, k),
                                    BIND(part, v),
                                    BIND(part, dy),
                                    bind_numbers(part, part->o->lse, &part->p.lse_offset),
                                    bind_numbers(part, part->o->delta, &part->p.delta_offset),
                                    BIND(part, dk),
                                    BIND(part, dv)};
  return dispatch(part, WEFT__KERNEL_attention_grad_keys, WEFT__KERNEL_attention_grad_keys_edge, t, ranges,
                  part->p.n_heads / part->p.group, part->p.n_keys);
}

static weft_status run_backward(weft__gpu *gpu, const operands *o, int64_t first, int64_t n) {
  piece queries = make_part(gpu, o, first, n), keys = queries;
  const tiles *t = choose_tiles(gpu, BACKWARD, queries.p.d);
  weft_status status = run_grad_queries(&queries, t);
  return status ? status : run_grad_keys(&keys, t);
}

/* ---- the operators ---- */

typedef weft_status (*run_function)(weft__gpu *gpu, const operands *o, int64_t first, int64_t n);

static weft_status each_part(weft__gpu *gpu, const operands *o, run_function run) {
  int64_t n = n_batches(o), step = batches_fit(gpu, o, n) ? n : 1;
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += step) status = run(gpu, o, first, step);
  return status;
}

/* Runs with *missing, one of the operands, a scratch tensor [B,T,H]. */
static weft_status with_numbers(weft__gpu *gpu, operands *o, const weft_tensor **missing, run_function run) {
  int64_t n = n_batches(o) * n_positions(o->q) * o->attrs->n_heads;
  weft__storage storage = {.backend = &gpu->base};
  weft_tensor numbers = {.dtype = WEFT_F32, .rank = 1, .shape = {n}, .strides = {1}, .storage = &storage};
  weft__shape_bytes(WEFT_F32, 1, numbers.shape, &storage.n_bytes); /* fewer than the bytes of q */
  weft_status status = weft__gpu_alloc(&gpu->base, storage.n_bytes, &storage.buffer);
  if (status) return status;
  *missing = &numbers;
  status = each_part(gpu, o, run);
  *missing = NULL;
  weft__gpu_free(&gpu->base, storage.buffer, storage.n_bytes);
  return status;
}

weft_status weft__gpu_attention(weft__backend *backend, const weft__op_call *call) {
  operands o = operands_of(call);
  if (weft_tensor_numel(o.y) == 0) return WEFT_OK;
  return with_numbers(weft__gpu_of(backend), &o, &o.lse, run_forward);
}

weft_status weft__gpu_attention_lse(weft__backend *backend, const weft__op_call *call) {
  operands o = operands_of(call);
  return each_part(weft__gpu_of(backend), &o, run_forward);
}

weft_status weft__gpu_attention_grad(weft__backend *backend, const weft__op_call *call) {
  operands o = operands_of(call);
  return with_numbers(weft__gpu_of(backend), &o, &o.delta, run_backward);
}
