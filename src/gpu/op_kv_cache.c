/* op_kv_cache.c - the paged key/value cache: appending to it, and attention over it (layout: weft/ops.h).  Kernels read the
 * block table, positions and slots, and note tokens that have no place (faults.c). */
#include "gpu/gpu.h"

enum {
  PER_GROUP = 256,
  MAX_ROWS = 4, /* of paged_attention.wgsl, as are the names below */
  STEP = 256,
  LEAST_LANES = 16,
  WORKGROUP_BYTES = 16384 - 64, /* that every device has, less the step's blocks */
};

/* What both operators know of a cache [n_blocks, G, ...] and of where tokens are in it. */
typedef struct paging {
  const weft_tensor *cache, *table, *positions, *slots;
  int64_t n_heads, head_size, head_words, n_tokens;
} paging;

static paging paging_of(const weft_tensor *keys, weft_tensor *const *where) {
  paging at = {.cache = keys,
               .table = where[0],
               .positions = where[1],
               .slots = where[2],
               .n_heads = keys->shape[1],
               .head_size = keys->shape[2],
               .n_tokens = where[1]->shape[0]};
  const weft__dtype_info *info = weft__dtype_get(keys->dtype);
  at.head_words = at.head_size * WEFT_KV_BLOCK / info->block_len * info->block_bytes / 4;
  return at;
}

/* All of a cache; no view of one begins within a word. */
static weft__gpu_range cache_words(const weft__gpu *gpu, const paging *at, const weft_tensor *cache, uint32_t *offset) {
  size_t before = 0;
  weft__dtype_bytes(cache->dtype, cache->offset, &before);
  return weft__gpu_words(gpu, cache->storage, before / 4, cache->shape[0] * at->n_heads * at->head_words, offset);
}

/* From a row of [N,C] to the next. */
static int64_t row_step(const weft_tensor *t) { return t->shape[0] > 1 ? t->strides[0] : t->shape[1]; }

static weft_status check_sizes(const weft__gpu *gpu, const paging *at, const weft_tensor *rows, const char *what) {
  int64_t window = weft__gpu_window_elements(gpu), n_words;
  bool fits = weft__mul_i64(at->cache->shape[0] * at->n_heads, at->head_words, &n_words) && n_words <= window &&
              weft__tensor_span(rows) <= window && weft_tensor_numel(rows) <= window &&
              weft__tensor_span(at->table) <= window;
  if (fits) return WEFT_OK;
  return weft__error(WEFT_EUNSUPPORTED, "%s: %s: a cache or batch larger than one binding (%lld MiB; use smaller ones)",
                     gpu->info.name, what, (long long)(window >> 18));
}

/* ---- kv_append ---- */

static weft_status append(weft__gpu *gpu, const paging *at, const weft_tensor *rows, const weft_tensor *cache,
                          bool are_keys) {
  int64_t n = weft_tensor_numel(rows) / (cache->dtype == WEFT_Q8_0 ? WEFT_KV_BLOCK : 1);
  weft__gpu_kv_append_params p = {.n = (uint32_t)n,
                                  .n_heads = (uint32_t)at->n_heads,
                                  .head_size = (uint32_t)at->head_size,
                                  .head_words = (uint32_t)at->head_words,
                                  .n_blocks = (uint32_t)cache->shape[0],
                                  .n_slots = (uint32_t)at->table->shape[0],
                                  .n_blocks_per_slot = (uint32_t)at->table->shape[1],
                                  .rows_row = (uint32_t)row_step(rows),
                                  .op = gpu->base.current_op};
  const weft__gpu_range ranges[] = {
      weft__gpu_window(gpu, rows, 0, weft__tensor_span(rows), &p.rows_offset),
      weft__gpu_window(gpu, at->table, 0, weft__tensor_span(at->table), &p.table_offset),
      weft__gpu_window(gpu, at->positions, 0, at->n_tokens, &p.positions_offset),
      weft__gpu_window(gpu, at->slots, 0, at->n_tokens, &p.slots_offset),
      cache_words(gpu, at, cache, &p.cache_offset),
  };
  const weft__wgsl_const constants[] = {{"DTYPE", cache->dtype}, {"KEYS", are_keys}, {NULL, 0}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_kv_append, constants, ranges, &p,
                            (uint64_t)((n + PER_GROUP - 1) / PER_GROUP));
}

weft_status weft__gpu_kv_append(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const paging at = paging_of(call->in[0], call->in + 4);
  weft_status status = check_sizes(gpu, &at, call->in[2], "kv_append");
  if (!status) status = check_sizes(gpu, &at, call->in[3], "kv_append");
  if (!status) status = append(gpu, &at, call->in[2], call->in[0], true);
  return status ? status : append(gpu, &at, call->in[3], call->in[1], false);
}

/* ---- paged_attention ---- */

/* A power of two: rows that share what is read, as many as there are and workgroup memory holds; 0 if it holds none. */
static uint32_t choose_rows(int64_t n_rows, int64_t head_size) {
  uint32_t rows = MAX_ROWS;
  while (rows > 1 && rows / 2 >= n_rows) rows /= 2;
  while (rows > 0 && rows * (head_size + STEP) * 4 > WORKGROUP_BYTES) rows /= 2;
  return rows;
}

static uint32_t choose_lanes(int64_t head_size) {
  uint32_t lanes = LEAST_LANES;
  while (lanes < STEP && lanes < head_size) lanes *= 2;
  return lanes;
}

weft_status weft__gpu_paged_attention(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_paged_attention_attrs *attrs = call->attrs;
  const weft_tensor *q = call->in[0];
  const paging at = paging_of(call->in[1], call->in + 3);
  int64_t group = attrs->n_heads / at.n_heads, n_rows = at.n_tokens * group;
  if (weft_tensor_numel(q) == 0) return WEFT_OK;
  weft_status status = check_sizes(gpu, &at, q, "paged_attention");
  uint32_t rows = choose_rows(n_rows, at.head_size), lanes = choose_lanes(at.head_size);
  if (status) return status;
  if (rows == 0)
    return weft__error(WEFT_EUNSUPPORTED, "%s: paged_attention: heads of %lld elements", gpu->info.name,
                       (long long)at.head_size);
  weft__gpu_paged_attention_params p = {.n_tokens = (uint32_t)at.n_tokens,
                                        .group = (uint32_t)group,
                                        .n_kv_heads = (uint32_t)at.n_heads,
                                        .d = (uint32_t)at.head_size,
                                        .head_words = (uint32_t)at.head_words,
                                        .n_blocks = (uint32_t)at.cache->shape[0],
                                        .n_slots = (uint32_t)at.table->shape[0],
                                        .n_blocks_per_slot = (uint32_t)at.table->shape[1],
                                        .window = (uint32_t)attrs->window,
                                        .q_row = (uint32_t)row_step(q),
                                        .scale = attrs->scale,
                                        .op = gpu->base.current_op};
  const weft__gpu_range ranges[] = {
      weft__gpu_window(gpu, q, 0, weft__tensor_span(q), &p.q_offset),
      cache_words(gpu, &at, call->in[1], &p.keys_offset),
      cache_words(gpu, &at, call->in[2], &p.values_offset),
      weft__gpu_window(gpu, at.table, 0, weft__tensor_span(at.table), &p.table_offset),
      weft__gpu_window(gpu, at.positions, 0, at.n_tokens, &p.positions_offset),
      weft__gpu_window(gpu, at.slots, 0, at.n_tokens, &p.slots_offset),
      weft__gpu_window(gpu, call->out, 0, weft_tensor_numel(q), &p.y_offset),
  };
  const weft__wgsl_const constants[] = {{"DTYPE", at.cache->dtype},
                                        {"ROWS", rows},
                                        {"DEPTH", ((uint32_t)at.head_size + lanes - 1) / lanes},
                                        {"LANES", lanes},
                                        {"VALUES_EACH", (uint32_t)weft__min_i64(8, WEFT_KV_BLOCK * lanes / STEP)},
                                        {"Q_SIZE", rows * (uint32_t)at.head_size},
                                        {NULL, 0}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_paged_attention, constants, ranges, &p,
                            (uint64_t)((n_rows + rows - 1) / rows * at.n_heads));
}
