/* model.h - inside of a model: hyperparameters, weights, and what a family must provide. */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include "weft/llm.h"
#include "weft/ops.h"
#include "base/base.h"

/* Read from the file's metadata, checked against one another before any weight is loaded. */
typedef struct weft__hparams {
  int64_t n_layers, width, n_heads, n_kv_heads, head_size, ffn_width, n_vocab, n_ctx_train;
  int64_t rope_dims;            /* rotated elements of a head */
  double rope_base, rope_scale; /* scale of the position: 1/factor under linear scaling */
  int64_t window;               /* positions that a layer with a window sees; 0: no layer has one */
  int64_t window_period;        /* of so many layers the last one sees everything; 0: all have the window */
  double window_rope_base;      /* of layers with a window; 0: as in the others */
  double attention_scale;       /* of scores; 1/sqrt(head_size) unless the family says otherwise */
  double embedding_scale;       /* of what enters the first layer */
  double norm_eps;
} weft__hparams;

/* What one forward pass works on.  N tokens, n_wanted of them with logits. */
typedef struct weft__forward_inputs {
  weft_tensor *ids, *positions, *slots;         /* [N] i32 */
  weft_tensor *block_table;                     /* [n_slots, n_blocks_per_slot] i32 */
  weft_tensor *wanted;                          /* [n_wanted] i32: rows of the batch */
  weft_tensor *wanted_positions, *wanted_slots; /* [n_wanted] i32 */
  weft_tensor *const *keys, *const *values;     /* per layer */
} weft__forward_inputs;

typedef struct weft__family {
  const char *architecture;
  /* Reads hyperparameters and weights; *weights is the family's own, freed with weft_free (tensors belong to the
   * model's scope). */
  weft_status (*load)(weft_model *model, void **weights);
  /* -> logits [n_wanted,V] in `scope`; NULL with the error set.  With no logits wanted: anything but NULL. */
  weft_tensor *(*forward)(const weft_model *model, weft_scope *scope, const weft__forward_inputs *in);
} weft__family;

#define WEFT_FAMILY(name) extern const weft__family weft__family_##name;
#include "llm/families.def"
#undef WEFT_FAMILY

struct weft_model {
  weft_device *device;
  weft_model_options options;
  uint64_t n_loaded_bytes; /* of the file's weights, for options.on_progress */
  weft_scope *scope;       /* holds the weights */
  weft_gguf *gguf;         /* stays open: weights used as stored are read from it */
  weft_tokenizer *tokenizer;
  char *chat_template; /* NULL if the file has none */
  uint8_t *is_loaded;  /* [tensors of the file]: it has become a weight */
  const weft__family *family;
  void *weights;
  weft__hparams hparams;
  weft_model_info info;
  char *name, *weight_types;
};

/* ---- loader.c: for the families' load functions ---- */

/* Integer or float "ARCHITECTURE.key"; a missing one is EFORMAT unless `*value` is the default and `is_required` 0. */
weft_status weft__load_int(const weft_model *model, const char *key, int is_required, int64_t min, int64_t max,
                           int64_t *value);
weft_status weft__load_float(const weft_model *model, const char *key, int is_required, double *value);

/* The hyperparameters that transformer families share, into model->hparams. */
weft_status weft__load_hparams(weft_model *model);

/* Weights by name ("blk.LAYER.name" unless the layer is -1), after a check of shape and type. */
weft_tensor *weft__load_product(weft_model *model, const char *name, int layer, int64_t n_rows, int64_t n_cols);
weft_tensor *weft__load_table(weft_model *model, const char *name, int64_t n_rows, int64_t n_cols);
weft_tensor *weft__load_vector(weft_model *model, const char *name, int layer, int64_t n);
int weft__has_tensor(const weft_model *model, const char *name, int layer);
/* "rope_freqs.weight" [rope_dims/2], each of them above 0. */
weft_tensor *weft__load_rope_factors(weft_model *model);
/* EUNSUPPORTED if the file has a tensor that none of the functions above has loaded. */
weft_status weft__check_all_loaded(const weft_model *model);

/* ---- kv_cache.c ---- */

/* Blocks that hold so many positions. */
static inline int64_t weft__kv_n_blocks(int64_t n_positions) {
  return n_positions / WEFT_KV_BLOCK + (n_positions % WEFT_KV_BLOCK != 0);
}

/* Checks the batch against the cache and gives every token a block to be written to; nothing has changed on failure.
 * weft__kv_commit makes the new positions count, weft__kv_abandon takes the blocks back. */
weft_status weft__kv_prepare(weft_kv_cache *cache, const weft_batch *batch);
void weft__kv_commit(weft_kv_cache *cache, const weft_batch *batch);
void weft__kv_abandon(weft_kv_cache *cache);

/* The cache's part of the forward inputs; the block table is made in `scope`. */
weft_status weft__kv_inputs(const weft_kv_cache *cache, weft_scope *scope, weft__forward_inputs *in);

/* For sequences in files: blocks of positions as the backend lays them out. */
typedef struct weft__kv_layout {
  weft_dtype dtype;
  int n_layers;
  size_t key_block_bytes, value_block_bytes; /* of one layer */
} weft__kv_layout;

weft__kv_layout weft__kv_get_layout(const weft_kv_cache *cache);

/* Forgets what the slot holds and gives it blocks for `length` positions, at most n_ctx, which must all be written. */
weft_status weft__kv_resize(weft_kv_cache *cache, int slot, int length);

/* Block `number` of a slot; part 2*i is the keys of layer i, 2*i+1 its values.  Positions behind the slot's last are read
 * as zeros, so equal sequences have equal blocks, and nothing forgotten is in them. */
weft_status weft__kv_read_block(const weft_kv_cache *cache, int slot, int part, int number, void *data);
weft_status weft__kv_write_block(weft_kv_cache *cache, int slot, int part, int number, const void *data);

#endif
