/* model.c - loading a model: the file, its tokenizer, its family, its weights. */
#include "llm/model.h"
#include "tensor/tensor.h" /* WEFT_DTYPE_COUNT's names */

#include <string.h> /* memcmp, strlen */

static const weft__family *const FAMILIES[] = {
#define WEFT_FAMILY(name) &weft__family_##name,
#include "llm/families.def"
#undef WEFT_FAMILY
};

static weft_status find_family(weft_model *model) {
  weft_gguf_string architecture = {NULL, 0};
  weft_status status = weft_gguf_get_string(model->gguf, "general.architecture", &architecture);
  if (status) return status;
  const char *path = weft_gguf_path(model->gguf);
  if (!architecture.data)
    return weft__error(WEFT_EFORMAT, "%s: the key general.architecture is missing (is this a language model?)", path);
  for (size_t i = 0; i < WEFT_COUNT(FAMILIES); i++) {
    const char *name = FAMILIES[i]->architecture;
    if (architecture.n_bytes == strlen(name) && !memcmp(architecture.data, name, architecture.n_bytes)) {
      model->family = FAMILIES[i];
      return WEFT_OK;
    }
  }
  weft__bytes known = {0};
  for (size_t i = 0; i < WEFT_COUNT(FAMILIES) && !status; i++)
    status = weft__bytes_printf(&known, "%s%s", i ? ", " : "", FAMILIES[i]->architecture);
  if (!status)
    status = weft__error(WEFT_EUNSUPPORTED, "%s: the architecture %.*s is not known (known: %s)", path,
                         (int)(architecture.n_bytes < 40 ? architecture.n_bytes : 40), architecture.data, known.data);
  weft__bytes_clear(&known);
  return status;
}

/* A copy of a string entry, *text NULL if it is absent. */
static weft_status copy_string(const weft_model *model, const char *key, char **text) {
  weft_gguf_string s = {NULL, 0};
  weft_status status = weft_gguf_get_string(model->gguf, key, &s);
  if (status || !s.data) return status;
  *text = weft__dup(s.data, s.n_bytes);
  return *text ? WEFT_OK : WEFT_ENOMEM;
}

/* The weight types that occur, and the number of parameters. */
static weft_status count_weights(weft_model *model) {
  weft__bytes types = {0};
  bool seen[WEFT_DTYPE_COUNT] = {false};
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < weft_gguf_n_tensors(model->gguf) && !status; i++) {
    const weft_gguf_tensor *t = weft_gguf_tensor_at(model->gguf, i);
    int64_t n = 1;
    for (int axis = 0; axis < t->rank; axis++) n *= t->shape[axis];
    model->info.n_params += n;
    if (!t->is_supported || seen[t->dtype]) continue;
    seen[t->dtype] = true;
    status = weft__bytes_printf(&types, "%s%s", types.n ? ", " : "", weft_dtype_name(t->dtype));
  }
  model->weight_types = weft__bytes_take(&types);
  return status || model->weight_types ? status : WEFT_ENOMEM;
}

static weft_status load_temperature(weft_model *model) {
  static const char key[] = "general.sampling.temp";
  double temperature = -1;
  weft_status status = weft_gguf_get_float(model->gguf, key, &temperature);
  if (!status && weft_gguf_find(model->gguf, key) && !(temperature >= 0 && temperature <= 100))
    return weft__error(WEFT_EFORMAT, "%s: %s is %g (0 to 100)", weft_gguf_path(model->gguf), key, temperature);
  model->info.temperature = (float)temperature;
  return status;
}

static weft_status fill_info(weft_model *model) {
  const weft__hparams *h = &model->hparams;
  weft_status status = copy_string(model, "general.name", &model->name);
  if (!status) status = count_weights(model);
  if (!status) status = load_temperature(model);
  if (status) return status;
  weft_model_info *info = &model->info;
  info->architecture = model->family->architecture;
  info->name = model->name ? model->name : "";
  info->weight_types = model->weight_types;
  info->file_bytes = weft_gguf_file_bytes(model->gguf);
  info->n_layers = (int)h->n_layers;
  info->n_heads = (int)h->n_heads;
  info->n_kv_heads = (int)h->n_kv_heads;
  info->head_size = (int)h->head_size;
  info->width = (int)h->width;
  info->ffn_width = (int)h->ffn_width;
  info->n_vocab = (int)h->n_vocab;
  info->n_ctx_train = (int)h->n_ctx_train;
  return WEFT_OK;
}

static weft_status load(weft_model *model, const char *path) {
  weft_status status = model->options.no_mmap ? weft_gguf_read(&model->gguf, path) : weft_gguf_open(&model->gguf, path);
  if (!status) status = find_family(model);
  if (!status) status = weft_tokenizer_create(&model->tokenizer, model->gguf);
  if (!status) status = copy_string(model, "tokenizer.chat_template", &model->chat_template);
  if (!status && !(model->is_loaded = weft__calloc(weft_gguf_n_tensors(model->gguf), 1))) status = WEFT_ENOMEM;
  if (!status) status = weft_scope_open(&model->scope, model->device, NULL);
  if (!status) status = model->family->load(model, &model->weights);
  return status ? status : fill_info(model);
}

weft_status weft_model_load(weft_model **out, weft_device *device, const char *path,
                            const weft_model_options *options) {
  if (!device || !path) return weft__error(WEFT_EINVAL, "model: no device or no path given");
  weft_model *model = weft__calloc(1, sizeof *model);
  if (!model) return WEFT_ENOMEM;
  model->device = device;
  if (options) model->options = *options;
  weft_status status = load(model, path);
  if (status) {
    weft_model_free(model);
    return status;
  }
  *out = model;
  return WEFT_OK;
}

void weft_model_free(weft_model *model) {
  if (!model) return;
  weft_free(model->weights);
  weft_free(model->is_loaded);
  weft_scope_close(model->scope);
  weft_tokenizer_free(model->tokenizer);
  weft_gguf_close(model->gguf);
  weft_free(model->chat_template);
  weft_free(model->name);
  weft_free(model->weight_types);
  weft_free(model);
}

const weft_model_info *weft_model_get_info(const weft_model *model) { return &model->info; }
const weft_tokenizer *weft_model_tokenizer(const weft_model *model) { return model->tokenizer; }
weft_device *weft_model_device(const weft_model *model) { return model->device; }
