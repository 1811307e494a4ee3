/* loader.c - from a model file's metadata and tensors to checked hyperparameters and weights on the device. */
#include "llm/model.h"
#include "tensor/tensor.h"

#include <limits.h> /* INT_MAX */
#include <math.h>   /* sqrt, isfinite */
#include <stdio.h>  /* snprintf */
#include <string.h> /* memcmp */

enum { NAME_MAX_BYTES = 128, LARGEST_EXTENT = 1 << 28 };

static weft_status missing_key(const weft_model *model, const char *key) {
  return weft__error(WEFT_EFORMAT, "%s: the key %s is missing (the file is not a complete model)",
                     weft_gguf_path(model->gguf), key);
}

static void full_key(const weft_model *model, const char *key, char *full) {
  snprintf(full, NAME_MAX_BYTES, "%s.%s", model->family->architecture, key);
}

weft_status weft__load_int(const weft_model *model, const char *key, int is_required, int64_t min, int64_t max,
                           int64_t *value) {
  char full[NAME_MAX_BYTES];
  full_key(model, key, full);
  if (is_required && !weft_gguf_find(model->gguf, full)) return missing_key(model, full);
  return weft_gguf_get_int(model->gguf, full, min, max, value);
}

weft_status weft__load_float(const weft_model *model, const char *key, int is_required, double *value) {
  char full[NAME_MAX_BYTES];
  full_key(model, key, full);
  if (is_required && !weft_gguf_find(model->gguf, full)) return missing_key(model, full);
  return weft_gguf_get_float(model->gguf, full, value);
}

/* ---- hyperparameters ---- */

static weft_status check_hparams(const weft_model *model) {
  const weft__hparams *h = &model->hparams;
  const char *path = weft_gguf_path(model->gguf);
  if (h->n_heads % h->n_kv_heads)
    return weft__error(WEFT_EFORMAT, "%s: %lld heads are no multiple of %lld key/value heads", path,
                       (long long)h->n_heads, (long long)h->n_kv_heads);
  if (h->rope_dims % 2 || h->rope_dims > h->head_size)
    return weft__error(WEFT_EFORMAT, "%s: rope.dimension_count is %lld for heads of %lld (even, and no larger)", path,
                       (long long)h->rope_dims, (long long)h->head_size);
  if (!(h->norm_eps > 0 && h->norm_eps < 1) || !(h->rope_base >= 1 && h->rope_base < 1e12))
    return weft__error(WEFT_EFORMAT, "%s: norm epsilon %g or rope.freq_base %g is out of range", path, h->norm_eps,
                       h->rope_base);
  return WEFT_OK;
}

/* Keys by which files of other architectures change what a layer computes, and the value that changes nothing. */
static weft_status refuse_variations(const weft_model *model) {
  static const struct {
    const char *key;
    double neutral;
  } KEYS[] = {
      {"expert_count", 0},
      {"attn_logit_softcapping", 0},
      {"final_logit_softcapping", 0},
      {"attention.clamp_kqv", 0},
      {"residual_scale", 1},
      {"logit_scale", 1},
      {"attention.max_alibi_bias", 0},
  };
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < WEFT_COUNT(KEYS) && !status; i++) {
    double value = KEYS[i].neutral;
    char full[NAME_MAX_BYTES];
    full_key(model, KEYS[i].key, full);
    const weft_gguf_entry *entry = weft_gguf_find(model->gguf, full);
    if (entry) status = weft_gguf_number(entry, 0, &value); /* some files have an integer where others have a float */
    if (!status && value != KEYS[i].neutral)
      return weft__error(WEFT_EUNSUPPORTED, "%s: %s is %g, which this program cannot compute with (only with %g)",
                         weft_gguf_path(model->gguf), full, value, KEYS[i].neutral);
  }
  return status;
}

/* Linear scaling by a factor; any other kind is refused by name. */
static weft_status load_rope_scaling(weft_model *model) {
  weft_gguf_string type = {"linear", 6};
  char key[NAME_MAX_BYTES];
  full_key(model, "rope.scaling.type", key);
  weft_status status = weft_gguf_get_string(model->gguf, key, &type);
  if (status) return status;
  bool is_none = type.n_bytes == 4 && !memcmp(type.data, "none", 4);
  if (!is_none && !(type.n_bytes == 6 && !memcmp(type.data, "linear", 6)))
    return weft__error(WEFT_EUNSUPPORTED, "%s: rope scaling of type %.*s (known: none, linear)",
                       weft_gguf_path(model->gguf), (int)(type.n_bytes < 40 ? type.n_bytes : 40), type.data);
  double factor = 1;
  if (!is_none) status = weft__load_float(model, "rope.scale_linear", 0, &factor); /* the key's former name */
  if (!is_none && !status) status = weft__load_float(model, "rope.scaling.factor", 0, &factor);
  if (!status && !(factor > 0 && factor < 1e6))
    return weft__error(WEFT_EFORMAT, "%s: rope.scaling.factor is %g", weft_gguf_path(model->gguf), factor);
  model->hparams.rope_scale = 1 / factor;
  return status;
}

weft_status weft__load_hparams(weft_model *model) {
  weft__hparams *h = &model->hparams;
  *h = (weft__hparams){.rope_base = 10000, .norm_eps = 1e-5, .embedding_scale = 1};
  const struct {
    const char *key;
    int is_required;
    int64_t max;
    int64_t *value;
  } INTS[] = {
      {"block_count", 1, 4096, &h->n_layers},          {"embedding_length", 1, LARGEST_EXTENT, &h->width},
      {"attention.head_count", 1, 65536, &h->n_heads}, {"feed_forward_length", 1, LARGEST_EXTENT, &h->ffn_width},
      {"context_length", 1, INT_MAX, &h->n_ctx_train},
  };
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < WEFT_COUNT(INTS) && !status; i++)
    status = weft__load_int(model, INTS[i].key, INTS[i].is_required, 1, INTS[i].max, INTS[i].value);
  if (status) return status;
  h->n_kv_heads = h->n_heads;
  h->n_vocab = weft_tokenizer_n_vocab(model->tokenizer);
  status = weft__load_int(model, "attention.head_count_kv", 0, 1, h->n_heads, &h->n_kv_heads);
  h->head_size = h->width / h->n_heads;
  if (!status) status = weft__load_int(model, "attention.key_length", 0, 1, 65536, &h->head_size);
  if (!status && h->head_size < 1)
    return weft__error(WEFT_EFORMAT, "%s: %lld heads share a width of %lld", weft_gguf_path(model->gguf),
                       (long long)h->n_heads, (long long)h->width);
  int64_t value_size = h->head_size;
  if (!status) status = weft__load_int(model, "attention.value_length", 0, h->head_size, h->head_size, &value_size);
  if (!status) status = weft__load_int(model, "attention.sliding_window", 0, 0, INT_MAX, &h->window);
  h->attention_scale = 1 / sqrt((double)h->head_size);
  h->rope_dims = h->head_size;
  if (!status) status = weft__load_int(model, "rope.dimension_count", 0, 2, 65536, &h->rope_dims);
  if (!status) status = weft__load_float(model, "rope.freq_base", 0, &h->rope_base);
  if (!status) status = weft__load_float(model, "attention.layer_norm_rms_epsilon", 1, &h->norm_eps);
  if (!status) status = load_rope_scaling(model);
  if (!status) status = refuse_variations(model);
  return status ? status : check_hparams(model);
}

/* ---- weights ---- */

static void full_name(char *full, const char *name, int layer) {
  if (layer < 0)
    snprintf(full, NAME_MAX_BYTES, "%s", name);
  else
    snprintf(full, NAME_MAX_BYTES, "blk.%d.%s", layer, name);
}

int weft__has_tensor(const weft_model *model, const char *name, int layer) {
  char full[NAME_MAX_BYTES];
  full_name(full, name, layer);
  return weft_gguf_find_tensor(model->gguf, full) != NULL;
}

static void mark_loaded(weft_model *model, const weft_gguf_tensor *t) {
  size_t i = 0;
  while (weft_gguf_tensor_at(model->gguf, i) != t) i++;
  model->is_loaded[i] = 1;
}

weft_status weft__check_all_loaded(const weft_model *model) {
  for (size_t i = 0; i < weft_gguf_n_tensors(model->gguf); i++) {
    weft_gguf_string name = weft_gguf_tensor_at(model->gguf, i)->name;
    if (!model->is_loaded[i])
      return weft__error(WEFT_EUNSUPPORTED, "%s: the tensor %.*s has no place in a %s model as this program knows it",
                         weft_gguf_path(model->gguf), (int)(name.n_bytes < 64 ? name.n_bytes : 64), name.data,
                         model->family->architecture);
  }
  return WEFT_OK;
}

static const char *extents_text(char *text, size_t size, int rank, const int64_t *shape) {
  int n = snprintf(text, size, "[");
  for (int i = 0; i < rank; i++) n += snprintf(text + n, size - (size_t)n, i ? ",%lld" : "%lld", (long long)shape[i]);
  snprintf(text + n, size - (size_t)n, "]");
  return text;
}

/* The tensor `name` after the checks that do not depend on its use; NULL with the error set. */
static const weft_gguf_tensor *find_weight(const weft_model *model, const char *name, int rank, const int64_t *shape) {
  const char *path = weft_gguf_path(model->gguf);
  const weft_gguf_tensor *t = weft_gguf_find_tensor(model->gguf, name);
  if (!t) {
    weft__error(WEFT_EFORMAT, "%s: the tensor %s is missing (the file is not a complete model)", path, name);
    return NULL;
  }
  if (!t->is_supported) {
    weft__error(WEFT_EUNSUPPORTED, "%s: the tensor %s has type %s, which weft does not compute with", path, name,
                t->type_name);
    return NULL;
  }
  bool fits = t->rank == rank;
  for (int i = 0; fits && i < rank; i++) fits = t->shape[i] == shape[i];
  if (!fits) {
    char found[80], expected[80];
    weft__error(WEFT_EFORMAT, "%s: the tensor %s has shape %s, expected %s", path, name,
                extents_text(found, sizeof found, t->rank, t->shape),
                extents_text(expected, sizeof expected, rank, shape));
    return NULL;
  }
  return t;
}

/* A weight may be read twice (a tied output matrix); no more than all is told. */
static void tell_progress(weft_model *model, const weft_gguf_tensor *t) {
  if (!model->options.on_progress) return;
  double n_all = 0;
  for (size_t i = 0; i < weft_gguf_n_tensors(model->gguf); i++)
    n_all += (double)weft_gguf_tensor_at(model->gguf, i)->n_bytes;
  model->n_loaded_bytes += t->n_bytes;
  double fraction = (double)model->n_loaded_bytes / n_all;
  model->options.on_progress(model->options.context, fraction < 1 ? fraction : 1);
}

/* A tensor in the hands of the backend. */
typedef struct reading {
  const weft_gguf *gguf;
  const weft_gguf_tensor *tensor;
} reading;

static void release_part(void *context, const void *data, size_t n_bytes) {
  const reading *r = context;
  weft_gguf_release_part(r->gguf, r->tensor, data, n_bytes);
}

static weft_tensor *load_weight(weft_model *model, const char *name, int rank, const int64_t *shape,
                                weft__weight_use use) {
  const weft_gguf_tensor *t = find_weight(model, name, rank, shape);
  if (!t) return NULL;
  bool must_be_f32 = rank == 1;
  if (t->dtype == WEFT_I32 || (must_be_f32 && t->dtype != WEFT_F32)) {
    weft__error(WEFT_EUNSUPPORTED, "%s: the tensor %s has type %s where %s is expected", weft_gguf_path(model->gguf),
                name, t->type_name, must_be_f32 ? "F32" : "a weight type");
    return NULL;
  }
  reading context = {model->gguf, t};
  const weft__weight_reader reader = {release_part, &context};
  weft_tensor *weight = weft__weight_load(model->scope, t->dtype, rank, shape, t->data, use, &reader);
  if (weight && use == WEFT__WEIGHT_PRODUCT) weft_gguf_release(model->gguf, t);
  if (!weight) return NULL;
  mark_loaded(model, t);
  tell_progress(model, t);
  return weight;
}

weft_tensor *weft__load_product(weft_model *model, const char *name, int layer, int64_t n_rows, int64_t n_cols) {
  char full[NAME_MAX_BYTES];
  full_name(full, name, layer);
  return load_weight(model, full, 2, (int64_t[]){n_rows, n_cols}, WEFT__WEIGHT_PRODUCT);
}

weft_tensor *weft__load_table(weft_model *model, const char *name, int64_t n_rows, int64_t n_cols) {
  return load_weight(model, name, 2, (int64_t[]){n_rows, n_cols}, WEFT__WEIGHT_PLAIN);
}

weft_tensor *weft__load_vector(weft_model *model, const char *name, int layer, int64_t n) {
  char full[NAME_MAX_BYTES];
  full_name(full, name, layer);
  return load_weight(model, full, 1, (int64_t[]){n}, WEFT__WEIGHT_PLAIN);
}

weft_tensor *weft__load_rope_factors(weft_model *model) {
  int64_t half = model->hparams.rope_dims / 2;
  weft_tensor *factors = weft__load_vector(model, "rope_freqs.weight", -1, half);
  float *values = factors ? weft__alloc((size_t)half, sizeof *values) : NULL;
  if (!values || weft_tensor_read(factors, values, weft_tensor_bytes(factors))) factors = NULL;
  for (int64_t i = 0; factors && i < half; i++)
    if (!(values[i] > 0) || !isfinite(values[i])) {
      weft__error(WEFT_EFORMAT, "%s: rope_freqs.weight holds %g (a divisor of frequencies is above 0)",
                  weft_gguf_path(model->gguf), (double)values[i]);
      factors = NULL;
    }
  weft_free(values);
  return factors;
}
