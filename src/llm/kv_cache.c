/* kv_cache.c - the paged key/value cache: which block holds which positions of which slot.
 *
 * Invariants: a slot of length n has blocks for positions 0 .. n-1, in order; n_refs counts the slots that hold a block,
 * and a block held by two is never written to.  Blocks that prepare has added beyond a slot's length are pending
 * until commit or abandon.  The memory of all blocks is reserved at creation; the system supplies it as it is touched. */
#include "llm/model.h"
#include "tensor/tensor.h"

#include <assert.h>
#include <string.h> /* memset */

typedef struct slot {
  int length;
  int n_blocks; /* blocks in the slot's row of the table */
} slot;

struct weft_kv_cache {
  weft_model *model;
  weft_scope *scope;
  weft_kv_options options;
  int n_layers, n_blocks, n_blocks_per_slot;
  weft_tensor **keys, **values; /* per layer: [n_blocks,G,D,P], [n_blocks,G,P,D] */
  int32_t *table;               /* [n_slots, n_blocks_per_slot] */
  int *n_refs;                  /* [n_blocks] */
  slot *slots;
  int *next_position; /* [n_slots]: scratch of prepare */
};

static int min_int(int a, int b) { return a < b ? a : b; }

/* Blocks that hold positions 0 .. length-1. */
static int n_blocks_for(int length) { return (int)weft__kv_n_blocks(length); }

/* ---- creation ---- */

static weft_status check_options(const weft_model *model, weft_kv_options *o) {
  if (o->n_slots == 0) o->n_slots = 1;
  if (o->n_ctx == 0) o->n_ctx = min_int(model->info.n_ctx_train, 4096);
  if (o->n_slots < 0 || o->n_slots > 65536 || o->n_ctx < 0)
    return weft__error(WEFT_EINVAL, "kv cache: %d slots of %d positions", o->n_slots, o->n_ctx);
  if (o->n_ctx > model->info.n_ctx_train)
    return weft__error(WEFT_ELIMIT,
                       "context: %d positions asked for, the model was trained for %d (ask for %d at most)", o->n_ctx,
                       model->info.n_ctx_train, model->info.n_ctx_train);
  if (o->dtype != WEFT_F32 && o->dtype != WEFT_F16 && o->dtype != WEFT_Q8_0)
    return weft__error(WEFT_EINVAL, "kv cache: dtype %s (f32, f16 or q8_0)", weft_dtype_name(o->dtype));
  int64_t head_size = model->hparams.head_size;
  if (head_size % weft__dtype_get(o->dtype)->block_len)
    return weft__error(WEFT_EUNSUPPORTED,
                       "kv cache: q8_0 wants heads of a multiple of 32, the model's have %lld (use f16)",
                       (long long)head_size);
  return WEFT_OK;
}

static weft_status make_tensors(weft_kv_cache *c) {
  const weft__hparams *h = &c->model->hparams;
  const int64_t keys[] = {c->n_blocks, h->n_kv_heads, h->head_size, WEFT_KV_BLOCK};
  const int64_t values[] = {c->n_blocks, h->n_kv_heads, WEFT_KV_BLOCK, h->head_size};
  for (int i = 0; i < c->n_layers; i++) {
    c->keys[i] = weft_tensor_new(c->scope, c->options.dtype, 4, keys);
    c->values[i] = weft_tensor_new(c->scope, c->options.dtype, 4, values);
    if (!c->keys[i] || !c->values[i]) return weft_last_status();
  }
  return WEFT_OK;
}

static weft_status build(weft_kv_cache *c) {
  size_t n_slots = (size_t)c->options.n_slots, n_entries;
  c->n_layers = c->model->info.n_layers;
  c->n_blocks_per_slot = n_blocks_for(c->options.n_ctx);
  if (!weft__mul_size(n_slots, (size_t)c->n_blocks_per_slot, &n_entries) || n_entries > INT32_MAX)
    return weft__error(WEFT_EINVAL, "kv cache: %d slots of %d positions are too many", c->options.n_slots,
                       c->options.n_ctx);
  c->n_blocks = (int)n_entries;
  c->keys = weft__calloc((size_t)c->n_layers, sizeof *c->keys);
  c->values = weft__calloc((size_t)c->n_layers, sizeof *c->values);
  c->table = weft__alloc(n_entries, sizeof *c->table);
  c->n_refs = weft__calloc(n_entries, sizeof *c->n_refs);
  c->slots = weft__calloc(n_slots, sizeof *c->slots);
  c->next_position = weft__calloc(n_slots, sizeof *c->next_position);
  if (!c->keys || !c->values || !c->table || !c->n_refs || !c->slots || !c->next_position) return WEFT_ENOMEM;
  for (size_t i = 0; i < n_entries; i++) c->table[i] = -1;
  weft_status status = weft_scope_open(&c->scope, c->model->device, NULL);
  return status ? status : make_tensors(c);
}

weft_status weft_kv_cache_create(weft_kv_cache **out, weft_model *model, const weft_kv_options *options) {
  weft_kv_options o = options ? *options : (weft_kv_options){0};
  weft_status status = check_options(model, &o);
  if (status) return status;
  weft_kv_cache *c = weft__calloc(1, sizeof *c);
  if (!c) return WEFT_ENOMEM;
  c->model = model;
  c->options = o;
  status = build(c);
  if (status) {
    weft_kv_cache_free(c);
    return status;
  }
  *out = c;
  return WEFT_OK;
}

void weft_kv_cache_free(weft_kv_cache *c) {
  if (!c) return;
  weft_scope_close(c->scope);
  weft_free(c->keys);
  weft_free(c->values);
  weft_free(c->table);
  weft_free(c->n_refs);
  weft_free(c->slots);
  weft_free(c->next_position);
  weft_free(c);
}

int weft_kv_cache_n_ctx(const weft_kv_cache *cache) { return cache->options.n_ctx; }

static bool is_slot(const weft_kv_cache *c, int index) { return index >= 0 && index < c->options.n_slots; }

int weft_kv_cache_length(const weft_kv_cache *cache, int index) {
  return is_slot(cache, index) ? cache->slots[index].length : 0;
}

/* ---- blocks ---- */

static int32_t *slot_row(const weft_kv_cache *c, int index) {
  return c->table + (size_t)index * (size_t)c->n_blocks_per_slot;
}

/* Gives back the blocks of a slot from number n on. */
static void drop_blocks(weft_kv_cache *c, int index, int n) {
  slot *s = &c->slots[index];
  int32_t *row = slot_row(c, index);
  while (s->n_blocks > n) {
    c->n_refs[row[--s->n_blocks]]--;
    row[s->n_blocks] = -1;
  }
}

/* A free block, counted once; there is always one: no slot can hold more than its share of the blocks. */
static int32_t take_block(weft_kv_cache *c) {
  int32_t block = 0;
  while (c->n_refs[block]) block++;
  c->n_refs[block] = 1;
  return block;
}

/* Copies one block's keys and values in all layers. */
static weft_status copy_block(weft_kv_cache *c, int32_t to, int32_t from) {
  weft_status status = WEFT_OK;
  for (int i = 0; i < 2 * c->n_layers && !status; i++) {
    weft__storage *s = (i & 1 ? c->values : c->keys)[i / 2]->storage;
    size_t n_bytes = s->n_bytes / (size_t)c->n_blocks;
    status = s->backend->class->copy(s->backend, s->buffer, (size_t)to * n_bytes, s->buffer, (size_t)from * n_bytes,
                                     n_bytes);
  }
  return status;
}

/* Makes the slot's blocks up to position `end` exist, and the block of its next position its own. */
static weft_status extend_slot(weft_kv_cache *c, int index, int end) {
  slot *s = &c->slots[index];
  int32_t *row = slot_row(c, index);
  int partial = s->length / WEFT_KV_BLOCK; /* the block that the next position falls into */
  if (partial < s->n_blocks && c->n_refs[row[partial]] > 1) {
    int32_t own = take_block(c);
    weft_status status = copy_block(c, own, row[partial]);
    if (status) {
      c->n_refs[own] = 0;
      return status;
    }
    c->n_refs[row[partial]]--;
    row[partial] = own;
  }
  while (s->n_blocks < n_blocks_for(end)) row[s->n_blocks++] = take_block(c);
  return WEFT_OK;
}

weft_status weft_kv_cache_truncate(weft_kv_cache *c, int index, int length) {
  if (!is_slot(c, index) || length < 0 || length > c->slots[index].length)
    return weft__error(WEFT_EINVAL, "kv cache: slot %d cannot be cut to %d positions", index, length);
  c->slots[index].length = length;
  drop_blocks(c, index, n_blocks_for(length));
  return WEFT_OK;
}

weft_status weft_kv_cache_share(weft_kv_cache *c, int from, int to, int length) {
  if (!is_slot(c, from) || !is_slot(c, to) || from == to || length < 0 || length > c->slots[from].length)
    return weft__error(WEFT_EINVAL, "kv cache: slot %d cannot share %d positions with slot %d", from, length, to);
  drop_blocks(c, to, 0);
  for (int b = 0; b < n_blocks_for(length); b++) {
    slot_row(c, to)[b] = slot_row(c, from)[b];
    c->n_refs[slot_row(c, from)[b]]++;
  }
  c->slots[to] = (slot){length, n_blocks_for(length)};
  return WEFT_OK;
}

/* ---- a batch ---- */

/* Checks ids, slots and positions; leaves each slot's new length in next_position. */
static weft_status check_batch(weft_kv_cache *c, const weft_batch *batch) {
  for (int i = 0; i < c->options.n_slots; i++) c->next_position[i] = c->slots[i].length;
  for (int n = 0; n < batch->n_tokens; n++) {
    int32_t id = batch->token[n], index = batch->slot[n], position = batch->position[n];
    if (id < 0 || id >= c->model->info.n_vocab)
      return weft__error(WEFT_EINVAL, "batch: token id %d is outside the vocabulary of %d", id, c->model->info.n_vocab);
    if (!is_slot(c, index))
      return weft__error(WEFT_EINVAL, "batch: slot %d of a cache with %d", index, c->options.n_slots);
    if (position != c->next_position[index])
      return weft__error(WEFT_EINVAL, "batch: position %d of slot %d, expected %d", position, index,
                         c->next_position[index]);
    if (position >= c->options.n_ctx)
      return weft__error(WEFT_ELIMIT, "context: slot %d is full with %d positions", index, c->options.n_ctx);
    c->next_position[index]++;
  }
  return WEFT_OK;
}

weft_status weft__kv_prepare(weft_kv_cache *c, const weft_batch *batch) {
  weft_status status = check_batch(c, batch);
  for (int i = 0; i < c->options.n_slots && !status; i++)
    if (c->next_position[i] > c->slots[i].length) status = extend_slot(c, i, c->next_position[i]);
  if (status) weft__kv_abandon(c);
  return status;
}

void weft__kv_commit(weft_kv_cache *c, const weft_batch *batch) {
  for (int n = 0; n < batch->n_tokens; n++) c->slots[batch->slot[n]].length = batch->position[n] + 1;
}

void weft__kv_abandon(weft_kv_cache *c) {
  for (int i = 0; i < c->options.n_slots; i++) drop_blocks(c, i, n_blocks_for(c->slots[i].length));
}

weft_status weft__kv_inputs(const weft_kv_cache *c, weft_scope *scope, weft__forward_inputs *in) {
  const int64_t shape[] = {c->options.n_slots, c->n_blocks_per_slot};
  in->keys = c->keys;
  in->values = c->values;
  in->block_table = weft_tensor_from(scope, WEFT_I32, 2, shape, c->table);
  return in->block_table ? WEFT_OK : weft_last_status();
}

/* ---- sequences in files ---- */

weft__kv_layout weft__kv_get_layout(const weft_kv_cache *c) {
  size_t n_blocks = (size_t)c->n_blocks;
  return (weft__kv_layout){c->options.dtype, c->n_layers, c->keys[0]->storage->n_bytes / n_blocks,
                           c->values[0]->storage->n_bytes / n_blocks};
}

weft_status weft__kv_resize(weft_kv_cache *c, int index, int length) {
  drop_blocks(c, index, 0);
  c->slots[index].length = 0;
  weft_status status = extend_slot(c, index, length);
  if (!status) c->slots[index].length = length;
  return status;
}

/* The storage that holds block `number` of the slot in `part`, and its place there. */
static weft__storage *find_block(const weft_kv_cache *c, int index, int part, int number, size_t *offset,
                                 size_t *n_bytes) {
  weft__storage *s = (part & 1 ? c->values : c->keys)[part / 2]->storage;
  assert(number < c->slots[index].n_blocks);
  *n_bytes = s->n_bytes / (size_t)c->n_blocks;
  *offset = (size_t)slot_row(c, index)[number] * *n_bytes;
  return s;
}

/* Zeros what n_runs runs, one after another, hold of positions from n_used on; -> their end.  Each run has as many bytes
 * for one position as for another, in order. */
static unsigned char *clear_runs(unsigned char *run, size_t n_runs, size_t position_bytes, size_t n_used) {
  for (size_t i = 0; i < n_runs; i++, run += WEFT_KV_BLOCK * position_bytes)
    memset(run + n_used * position_bytes, 0, (WEFT_KV_BLOCK - n_used) * position_bytes);
  return run;
}

/* The same in a block of keys or values, as weft/ops.h lays them out: keys (and scales) are a run for each dimension,
 * plain values one run. */
static void clear_positions(const weft_kv_cache *c, int part, size_t n_used, unsigned char *block) {
  const weft__hparams *h = &c->model->hparams;
  bool is_quantised = c->options.dtype == WEFT_Q8_0, is_values = part & 1;
  size_t d = (size_t)h->head_size, element_bytes = is_quantised ? 1 : c->options.dtype == WEFT_F16 ? 2 : 4;
  for (int64_t g = 0; g < h->n_kv_heads; g++) {
    block = clear_runs(block, is_values ? 1 : d, is_values ? d * element_bytes : element_bytes, n_used);
    if (is_quantised) block = clear_runs(block, d / 32, sizeof(uint16_t), n_used);
  }
}

weft_status weft__kv_read_block(const weft_kv_cache *c, int index, int part, int number, void *data) {
  size_t offset, n_bytes;
  weft__storage *s = find_block(c, index, part, number, &offset, &n_bytes);
  weft_status status = s->backend->class->read(s->backend, s->buffer, offset, data, n_bytes);
  int n_used = c->slots[index].length - number * WEFT_KV_BLOCK;
  if (!status && n_used < WEFT_KV_BLOCK) clear_positions(c, part, (size_t)n_used, data);
  return status;
}

weft_status weft__kv_write_block(weft_kv_cache *c, int index, int part, int number, const void *data) {
  size_t offset, n_bytes;
  weft__storage *s = find_block(c, index, part, number, &offset, &n_bytes);
  return s->backend->class->write(s->backend, s->buffer, offset, data, n_bytes);
}
