/* op_kv_cache.c - the paged key/value cache: appending to it, and attention over it.  Layout: weft/ops.h. */
#include "cpu/cpu.h"

#include <assert.h>
#include <string.h> /* memcpy */

/* ---- the operands that say where a token's keys and values are ---- */

typedef struct paging {
  const weft_tensor *keys, *values;
  const int32_t *block_table, *positions, *slots;
  int64_t n_slots, n_blocks_per_slot, n_blocks;
} paging;

static paging get_paging(const weft_tensor *keys, const weft_tensor *values, weft_tensor *const *in) {
  return (paging){
      .keys = keys,
      .values = values,
      .block_table = weft__cpu_data(in[0]),
      .positions = weft__cpu_data(in[1]),
      .slots = weft__cpu_data(in[2]),
      .n_slots = in[0]->shape[0],
      .n_blocks_per_slot = in[0]->shape[1],
      .n_blocks = keys->shape[0],
  };
}

static const int32_t *slot_blocks(const paging *p, int64_t n) {
  return p->block_table + p->slots[n] * p->n_blocks_per_slot;
}

/* The first position that a token at position `last` sees. */
static int64_t window_begin(int64_t last, int64_t window) {
  return window > 0 && last >= window ? last - window + 1 : 0;
}

/* Checks that token n's slot, position and the blocks of its last `window` positions (0: of all) exist: indices come
 * from the caller's memory. */
static weft_status check_token(weft_op op, const paging *p, int64_t n, int64_t window) {
  int64_t slot = p->slots[n], last = p->positions[n];
  if (slot < 0 || slot >= p->n_slots || last < 0 || last / WEFT_KV_BLOCK >= p->n_blocks_per_slot)
    return weft__fault(op, WEFT__FAULT_TOKEN_PLACE, (const int64_t[4]){n, slot, last});
  for (int64_t b = window_begin(last, window) / WEFT_KV_BLOCK; b <= last / WEFT_KV_BLOCK; b++) {
    int32_t block = slot_blocks(p, n)[b];
    if (block < 0 || block >= p->n_blocks)
      return weft__fault(op, WEFT__FAULT_NO_BLOCK, (const int64_t[4]){slot, b * WEFT_KV_BLOCK});
  }
  return WEFT_OK;
}

/* Bytes of one head's keys, or values, in one block. */
static int64_t kv_head_bytes(weft_dtype dtype, int64_t head_size) {
  const weft__dtype_info *info = weft__dtype_get(dtype);
  return head_size * WEFT_KV_BLOCK / info->block_len * info->block_bytes;
}

/* ---- kv_append ---- */

typedef struct append_loop {
  const weft__cpu_kernels *kernels;
  paging at;
  const weft_tensor *k, *v;
} append_loop;

/* Key elements of one head lie a block's width apart, value elements side by side. */
static void append_f32(const append_loop *l, int64_t cell, int64_t position, const float *k, const float *v) {
  int64_t head_size = l->at.keys->shape[2], in_block = position % WEFT_KV_BLOCK;
  float *keys = (float *)weft__cpu_data(l->at.keys) + cell * head_size * WEFT_KV_BLOCK + in_block;
  float *values = (float *)weft__cpu_data(l->at.values) + (cell * WEFT_KV_BLOCK + in_block) * head_size;
  for (int64_t d = 0; d < head_size; d++) keys[d * WEFT_KV_BLOCK] = k[d];
  memcpy(values, v, (size_t)head_size * sizeof *values);
}

static void append_f16(const append_loop *l, int64_t cell, int64_t position, const float *k, const float *v) {
  int64_t head_size = l->at.keys->shape[2], in_block = position % WEFT_KV_BLOCK;
  uint16_t *keys = (uint16_t *)weft__cpu_data(l->at.keys) + cell * head_size * WEFT_KV_BLOCK + in_block;
  uint16_t *values = (uint16_t *)weft__cpu_data(l->at.values) + (cell * WEFT_KV_BLOCK + in_block) * head_size;
  enum { CHUNK = 64 };
  uint16_t half[CHUNK];
  for (int64_t d = 0; d < head_size; d += CHUNK) {
    int64_t n = head_size - d < CHUNK ? head_size - d : CHUNK;
    l->kernels->to_f16(n, k + d, half);
    for (int64_t i = 0; i < n; i++) keys[(d + i) * WEFT_KV_BLOCK] = half[i];
  }
  l->kernels->to_f16(head_size, v, values);
}

/* Quantises one head's row; element d goes to elements[d * step], the scale of 32 of them to the position's place in
 * scales [D/32][P]. */
static void put_q8(const append_loop *l, const float *row, int8_t *elements, int64_t step, uint16_t *scales) {
  int64_t head_size = l->at.keys->shape[2];
  enum { CHUNK = 256, BLOCKS = CHUNK / WEFT__QBLOCK };
  for (int64_t d = 0; d < head_size; d += CHUNK) {
    int64_t n = head_size - d < CHUNK ? head_size - d : CHUNK;
    int32_t q[CHUNK / 4], starts[BLOCKS], half_starts[2 * BLOCKS];
    float scale[BLOCKS], x_sum[BLOCKS], x_half[2 * BLOCKS];
    uint16_t half[BLOCKS];
    const weft__x_tile tile = {.n_rows = 1,
                               .k = n,
                               .n_blocks = n / WEFT__QBLOCK,
                               .q = q,
                               .q_d = scale,
                               .q_start = starts,
                               .q_start_half = half_starts,
                               .x_sum = x_sum,
                               .x_half = x_half};
    l->kernels->pack_q8(row + d, 0, &tile);
    l->kernels->to_f16(n / WEFT__QBLOCK, scale, half);
    for (int64_t i = 0; i < n; i++) elements[(d + i) * step] = ((const int8_t *)q)[i];
    for (int64_t b = 0; b < n / WEFT__QBLOCK; b++) scales[(d / WEFT__QBLOCK + b) * WEFT_KV_BLOCK] = half[b];
  }
}

static void append_q8(const append_loop *l, int64_t cell, int64_t position, const float *k, const float *v) {
  int64_t head_size = l->at.keys->shape[2], in_block = position % WEFT_KV_BLOCK;
  int64_t offset = cell * kv_head_bytes(WEFT_Q8_0, head_size), n_elements = head_size * WEFT_KV_BLOCK;
  int8_t *keys = (int8_t *)weft__cpu_data(l->at.keys) + offset;
  int8_t *values = (int8_t *)weft__cpu_data(l->at.values) + offset;
  put_q8(l, k, keys + in_block, WEFT_KV_BLOCK, (uint16_t *)(keys + n_elements) + in_block);
  put_q8(l, v, values + in_block * head_size, 1, (uint16_t *)(values + n_elements) + in_block);
}

typedef void (*append_head)(const append_loop *l, int64_t cell, int64_t position, const float *k, const float *v);

static append_head append_of(weft_dtype dtype) {
  if (dtype == WEFT_Q8_0) return append_q8;
  return dtype == WEFT_F16 ? append_f16 : append_f32;
}

static void append_rows(void *context, int64_t first, int64_t end) {
  const append_loop *l = context;
  int64_t n_heads = l->at.keys->shape[1], head_size = l->at.keys->shape[2];
  append_head put = append_of(l->at.keys->dtype);
  for (int64_t n = first; n < end; n++) {
    const float *k = (const float *)weft__cpu_data(l->k) + n * weft__row_stride(l->k);
    const float *v = (const float *)weft__cpu_data(l->v) + n * weft__row_stride(l->v);
    int64_t position = l->at.positions[n], block = slot_blocks(&l->at, n)[position / WEFT_KV_BLOCK];
    for (int64_t g = 0; g < n_heads; g++) put(l, block * n_heads + g, position, k + g * head_size, v + g * head_size);
  }
}

weft_status weft__cpu_kv_append(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  append_loop l = {cpu->kernels, get_paging(call->in[0], call->in[1], call->in + 4), call->in[2], call->in[3]};
  int64_t n = l.k->shape[0];
  for (int64_t i = 0; i < n; i++) {
    weft_status status = check_token(call->op, &l.at, i, 1);
    if (status) return status;
  }
  weft__cpu_rows(cpu, n, 4 * l.k->shape[1], append_rows, &l); /* 4: the writes are scattered */
  return WEFT_OK;
}

/* ---- paged_attention ---- */

/* A run of tokens of one slot, attended to together. */
typedef struct token_run {
  int64_t first, n;
} token_run;

typedef struct attention_loop {
  weft__cpu *cpu;
  paging at;
  const weft_tensor *q;
  const weft_paged_attention_attrs *attrs;
  float *out;
  const token_run *runs;
  int64_t rows_per_task, tasks_per_head; /* a task is some rows of one run and key/value head */
  char *scratch;                         /* per worker */
  size_t scratch_bytes;
} attention_loop;

/* Rows first .. of those that share a key/value head (heads of the group, token by token); in tiles. */
static void attend(const attention_loop *l, const token_run *run, int64_t g, int64_t first, void *scratch) {
  int64_t n_groups = l->at.keys->shape[1], head_size = l->at.keys->shape[2];
  int64_t group = l->attrs->n_heads / n_groups, end = first + l->rows_per_task;
  if (end > run->n * group) end = run->n * group;
  int64_t head_bytes = kv_head_bytes(l->at.keys->dtype, head_size);
  weft__attention_tile tile = {
      .head_size = (int)head_size,
      .scale = l->attrs->scale,
      .dtype = l->at.keys->dtype,
      .keys = (const char *)weft__cpu_data(l->at.keys) + g * head_bytes,
      .values = (const char *)weft__cpu_data(l->at.values) + g * head_bytes,
      .block_bytes = n_groups * head_bytes,
      .blocks = slot_blocks(&l->at, run->first),
  };
  for (int64_t row = first; row < end; row += WEFT__ATTENTION_TILE) {
    tile.n_rows = (int)(end - row < WEFT__ATTENTION_TILE ? end - row : WEFT__ATTENTION_TILE);
    for (int r = 0; r < tile.n_rows; r++) {
      int64_t token = run->first + (row + r) / group, head = g * group + (row + r) % group;
      tile.q[r] = (const float *)weft__cpu_data(l->q) + token * weft__row_stride(l->q) + head * head_size;
      tile.out[r] = l->out + token * l->q->shape[1] + head * head_size;
      tile.last[r] = l->at.positions[token];
      tile.first[r] = (int)window_begin(tile.last[r], l->attrs->window);
    }
    l->cpu->kernels->attention(&tile, scratch);
  }
}

static void attention_task(void *context, int task, int worker) {
  const attention_loop *l = context;
  int64_t n_groups = l->at.keys->shape[1], head = task / l->tasks_per_head;
  attend(l, &l->runs[head / n_groups], head % n_groups, task % l->tasks_per_head * l->rows_per_task,
         l->scratch + (size_t)worker * l->scratch_bytes);
}

/* Cuts the rows of a run and head where there are fewer of these than threads: one token has as many as key/value heads.
 * Rows that stay together read the cache together, so it is not done for little. */
static void cut_heads(attention_loop *l, int64_t n_heads, int64_t n_rows, int64_t n_positions) {
  enum { LEAST_WORK = 1 << 15 };
  assert(n_heads > 0);
  int64_t n = weft__pool_n_threads(l->cpu->pool) / n_heads;
  int64_t most = n_rows * n_positions * l->at.keys->shape[2] / LEAST_WORK;
  if (n > most) n = most;
  if (n > n_rows) n = n_rows;
  l->rows_per_task = n > 1 ? (n_rows + n - 1) / n : n_rows;
  l->tasks_per_head = (n_rows + l->rows_per_task - 1) / l->rows_per_task;
}

/* Tokens that make whole tiles, or whole and half ones, of the heads of a group: 6 of 7 heads, 4 of 3. */
static int64_t tokens_per_run(int64_t group) {
  int64_t n = 1;
  while (n * group < WEFT__ATTENTION_TILE || n * group % (WEFT__ATTENTION_TILE / 2)) n++;
  return n;
}

/* Splits the batch into runs of at most `limit` tokens of one slot; returns their number. */
static int64_t find_runs(const paging *at, int64_t n_tokens, int64_t limit, token_run *runs) {
  int64_t n_runs = 0;
  for (int64_t i = 0; i < n_tokens; i++) {
    if (n_runs && runs[n_runs - 1].n < limit && at->slots[i] == at->slots[i - 1])
      runs[n_runs - 1].n++;
    else
      runs[n_runs++] = (token_run){i, 1};
  }
  return n_runs;
}

weft_status weft__cpu_paged_attention(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  attention_loop l = {.cpu = cpu,
                      .at = get_paging(call->in[1], call->in[2], call->in + 3),
                      .q = call->in[0],
                      .attrs = call->attrs,
                      .out = weft__cpu_data(call->out)};
  int64_t n_tokens = l.q->shape[0], head_size = l.at.keys->shape[2], n_groups = l.at.keys->shape[1];
  if (n_tokens == 0) return WEFT_OK;
  for (int64_t i = 0; i < n_tokens; i++) {
    weft_status status = check_token(call->op, &l.at, i, l.attrs->window);
    if (status) return status;
  }
  token_run *runs = weft__alloc((size_t)n_tokens, sizeof *runs);
  if (!runs) return WEFT_ENOMEM;
  l.runs = runs;
  l.scratch_bytes = ((size_t)WEFT__ATTENTION_SCRATCH(head_size) * sizeof(double) + 63) / 64 * 64;
  size_t total_bytes = l.scratch_bytes * (size_t)weft__pool_n_threads(cpu->pool);
  l.scratch = weft__buffers_get(cpu->buffers, total_bytes);
  if (l.scratch) {
    int64_t group = l.attrs->n_heads / n_groups, limit = tokens_per_run(group);
    int64_t n_heads = find_runs(&l.at, n_tokens, limit, runs) * n_groups;
    cut_heads(&l, n_heads, (limit < n_tokens ? limit : n_tokens) * group, l.at.positions[n_tokens - 1] + 1);
    weft__pool_run(cpu->pool, (int)(n_heads * l.tasks_per_head), attention_task, &l);
    weft__buffers_put(cpu->buffers, l.scratch, total_bytes);
  }
  weft_free(runs);
  return l.scratch ? WEFT_OK : WEFT_ENOMEM;
}
