/* op_attention.c - fused attention: tiles of queries times heads times batches. */
#include "gpu/gpu.h"

/* Tile sizes of attention.wgsl (named as there) that must fit the device. */
typedef struct tiling {
  uint32_t bq, bk, nx, ny, rq, ch;
} tiling;

static const tiling WIDE = {64, 64, 16, 8, 2, 32}, NARROW = {32, 32, 8, 8, 1, 16};

enum { MAX_HEAD_SIZE = 256, QUAD_BYTES = 16 };

static uint32_t chunk_quads(const tiling *t) { return t->ch * (t->bq / 4 + t->bk / 4 + 1); }

/* The wide tiles want memory that not every device has, and heads that fill them. */
static const tiling *choose_tiling(const weft__gpu *gpu, int64_t head_size) {
  uint32_t quads = chunk_quads(&WIDE) + WIDE.bk * WIDE.bq / 4 + 2 * WIDE.bq / 4;
  return head_size <= 32 || quads * QUAD_BYTES > gpu->info.limits.max_workgroup_bytes ? &NARROW : &WIDE;
}

/* Keys of v that a chunk holds: a power of two, as the tile's keys are. */
static uint32_t value_rows(const tiling *t, uint32_t padded_size) {
  uint32_t rows = t->bk;
  while (rows * padded_size / 4 > chunk_quads(t)) rows /= 2;
  return rows;
}

/* Elements between rows and between batches of [T,C] or [B,T,C]. */
static uint32_t row_stride(const weft_tensor *t) { return (uint32_t)t->strides[t->rank - 2]; }
static uint32_t batch_stride(const weft_tensor *t) { return t->rank == 3 ? (uint32_t)t->strides[0] : 0; }

bool weft__gpu_attention_fits(const weft__gpu *gpu, const weft__op_call *call) {
  const weft_attention_attrs *attrs = call->attrs;
  int64_t window = weft__gpu_window_elements(gpu);
  const weft_tensor *q = call->in[0];
  return attrs->window == 0 && weft__n_cols(q) / attrs->n_heads <= MAX_HEAD_SIZE && weft__gpu_span(q) <= window &&
         weft_tensor_numel(q) <= window && weft__gpu_span(call->in[1]) <= window &&
         weft__gpu_span(call->in[2]) <= window;
}

weft_status weft__gpu_attention(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2], *y = call->out;
  const weft_attention_attrs *attrs = call->attrs;
  if (weft_tensor_numel(y) == 0) return WEFT_OK;
  int axis = q->rank - 2; /* of positions */
  int64_t head_size = q->shape[axis + 1] / attrs->n_heads, n_kv_heads = k->shape[axis + 1] / head_size;
  const tiling *t = choose_tiling(gpu, head_size);
  uint32_t unit = 4 * t->nx, padded = ((uint32_t)head_size + unit - 1) / unit * unit;
  weft__gpu_attention_params p = {.n_queries = (uint32_t)q->shape[axis],
                                  .n_keys = (uint32_t)k->shape[axis],
                                  .d = (uint32_t)head_size,
                                  .group = (uint32_t)(attrs->n_heads / n_kv_heads),
                                  .q_row = row_stride(q),
                                  .q_batch = batch_stride(q),
                                  .k_row = row_stride(k),
                                  .k_batch = batch_stride(k),
                                  .v_row = row_stride(v),
                                  .v_batch = batch_stride(v),
                                  .y_row = row_stride(y),
                                  .y_batch = batch_stride(y),
                                  .scale = attrs->scale};
  const weft__gpu_range ranges[] = {weft__gpu_window(gpu, q, 0, weft__gpu_span(q), &p.q_offset),
                                    weft__gpu_window(gpu, k, 0, weft__gpu_span(k), &p.k_offset),
                                    weft__gpu_window(gpu, v, 0, weft__gpu_span(v), &p.v_offset),
                                    weft__gpu_window(gpu, y, 0, weft__gpu_span(y), &p.y_offset)};
  const weft__wgsl_const constants[] = {{"BQ", t->bq},
                                        {"BK", t->bk},
                                        {"NX", t->nx},
                                        {"NY", t->ny},
                                        {"RQ", t->rq},
                                        {"DP", padded},
                                        {"CH", t->ch},
                                        {"CV", value_rows(t, padded)},
                                        {"CAUSAL", attrs->mask == WEFT_MASK_CAUSAL},
                                        {NULL, 0}};
  uint32_t n_tiles = (p.n_queries + t->bq - 1) / t->bq, n_batches = q->rank == 3 ? (uint32_t)q->shape[0] : 1;
  return weft__gpu_dispatch3(gpu, WEFT__KERNEL_attention, constants, ranges, &p,
                             (uint32_t[]){n_tiles, (uint32_t)attrs->n_heads, n_batches});
}
