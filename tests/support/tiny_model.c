/* tiny_model.c - see tiny_model.h.  A matrix is drawn in f32, brought into the file's format by a quantiser of this file's
 * own, and read back by the format's definition: that is its value for a reference. */
#include "support/tiny_model.h"

#include "base/rng.h"
#include "cpu/half.h"
#include "support/byte_vocab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  BLOCK = 32,    /* elements of a quantised block */
  TYPE_I16 = 25, /* types that only a fault asks for, as the format numbers them */
  TYPE_I8 = 24,
  NAN_F16 = 0x7e00,
};

/* A file in the making. */
typedef struct maker {
  tiny_model *model;
  gguf_writer w;
  byte_vocab vocab;
  uint64_t n_drawn;  /* matrices so far: each draws from a stream of its own */
  int is_fault_done; /* the fault has been built in */
} maker;

static void *must_alloc(size_t n, size_t size) {
  void *p = calloc(n ? n : 1, size);
  if (!p) {
    perror("tiny_model");
    abort();
  }
  return p;
}

static const tiny_fault *fault_of(const maker *m) { return &m->model->options.fault; }

/* Whether the fault is of this kind and in this place; then it is done. */
static int has_fault(maker *m, tiny_fault_kind kind, const char *name) {
  if (fault_of(m)->kind != kind || strcmp(fault_of(m)->name, name) != 0) return 0;
  m->is_fault_done = 1;
  return 1;
}

/* ---- element types ---- */

/* The value of a binary16 by its definition, apart from the library's conversion. */
static double half_value(uint16_t h) {
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
  return h & 0x8000 ? -magnitude : magnitude;
}

static double put_half(uint8_t *to, double value) {
  uint16_t half = weft__f32_to_f16((float)value);
  memcpy(to, &half, sizeof half);
  return half_value(half);
}

static int nearest_level(double x, int lowest, int highest) {
  double level = nearbyint(x);
  return level < lowest ? lowest : level > highest ? highest : (int)level;
}

/* f16 d, int8 q[32]: x = d*q */
static void put_q8_0(const float *x, uint8_t *block, double *value) {
  double largest = 0;
  for (int i = 0; i < BLOCK; i++) largest = fmax(largest, fabs((double)x[i]));
  double d = put_half(block, largest / 127);
  for (int i = 0; i < BLOCK; i++) {
    int q = d != 0 ? nearest_level((double)x[i] / d, -127, 127) : 0;
    block[2 + i] = (uint8_t)q;
    value[i] = d * q;
  }
}

/* f16 d, f16 m, uint4 q[32]: x = d*q + m; byte i holds elements i (low half) and i+16. */
static void put_q4_1(const float *x, uint8_t *block, double *value) {
  double low = (double)x[0], high = (double)x[0];
  for (int i = 1; i < BLOCK; i++) {
    low = fmin(low, (double)x[i]);
    high = fmax(high, (double)x[i]);
  }
  double d = put_half(block, (high - low) / 15), least = put_half(block + 2, low);
  memset(block + 4, 0, BLOCK / 2);
  for (int i = 0; i < BLOCK; i++) {
    int q = d != 0 ? nearest_level(((double)x[i] - least) / d, 0, 15) : 0;
    block[4 + i % 16] |= (uint8_t)(i < 16 ? q : q << 4);
    value[i] = d * q + least;
  }
}

static void put_f32(const float *x, uint8_t *block, double *value) {
  memcpy(block, x, sizeof *x);
  *value = (double)*x;
}

static void put_f16(const float *x, uint8_t *block, double *value) { *value = put_half(block, (double)*x); }

/* The types by the numbers that the file has for them; the last two only have a size. */
static const struct element_type {
  uint32_t file_type;
  weft_dtype dtype;
  int block_len, block_bytes;
  void (*put)(const float *x, uint8_t *block, double *value);
} types[] = {
    {0, WEFT_F32, 1, 4, put_f32},
    {1, WEFT_F16, 1, 2, put_f16},
    {8, WEFT_Q8_0, BLOCK, 34, put_q8_0},
    {3, WEFT_Q4_1, BLOCK, 20, put_q4_1},
    {26, WEFT_I32, 1, 4, NULL},
    {TYPE_I16, WEFT_DTYPE_COUNT, 1, 2, NULL},
    {TYPE_I8, WEFT_DTYPE_COUNT, 1, 1, NULL},
};

static const struct element_type *type_of_dtype(weft_dtype dtype) {
  for (size_t i = 0; i < WEFT_COUNT(types); i++)
    if (types[i].dtype == dtype && types[i].put) return &types[i];
  abort();
}

static const struct element_type *type_of_file(uint32_t file_type) {
  for (size_t i = 0; i < WEFT_COUNT(types); i++)
    if (types[i].file_type == file_type) return &types[i];
  abort();
}

/* ---- tensors ---- */

/* The first two bytes of a block are a scale, where it has one; an F32 has its sign and exponent in the last two. */
static void put_nan(const struct element_type *type, uint8_t *block) {
  static const uint32_t nan_f32 = 0x7fc00000;
  static const uint16_t nan_f16 = NAN_F16;
  if (type->dtype == WEFT_F32)
    memcpy(block, &nan_f32, sizeof nan_f32);
  else
    memcpy(block, &nan_f16, sizeof nan_f16);
}

/* Writes x [n_rows,n_cols] (a vector if n_rows is 0) as `dtype`, with the fault if it is here.  Returns what was stored,
 * the caller's. */
static double *put_tensor(maker *m, const char *name, weft_dtype dtype, int64_t n_rows, int64_t n_cols,
                          const float *x) {
  const struct element_type *type = type_of_dtype(dtype);
  int64_t shape[] = {n_rows, n_cols}, n = (n_rows ? n_rows : 1) * n_cols, n_extra = 0;
  int rank = n_rows ? 2 : 1;
  if (has_fault(m, TINY_MORE_ROWS, name)) {
    n_extra = n_rows ? n_cols : 1;
    shape[n_rows ? 0 : 1]++;
  }
  uint8_t *bytes = must_alloc((size_t)((n + n_extra) / type->block_len * type->block_bytes), 1);
  double *values = must_alloc((size_t)n, sizeof *values);
  for (int64_t i = 0; i < n; i += type->block_len)
    type->put(x + i, bytes + i / type->block_len * type->block_bytes, values + i);
  if (has_fault(m, TINY_NAN, name)) put_nan(type, bytes + (size_t)fault_of(m)->value * (size_t)type->block_bytes);
  if (has_fault(m, TINY_TYPE, name)) {
    type = type_of_file(fault_of(m)->value);
    free(bytes);
    bytes = must_alloc((size_t)(n / type->block_len * type->block_bytes), 1);
  }
  if (!has_fault(m, TINY_NO_TENSOR, name))
    gguf_writer_tensor(&m->w, name, type->file_type, rank, shape + 2 - rank, bytes,
                       (size_t)((n + n_extra) / type->block_len * type->block_bytes));
  free(bytes);
  return values;
}

/* Uniform numbers of the given standard deviation. */
static float *draw(maker *m, int64_t n, double deviation) {
  float *x = must_alloc((size_t)n, sizeof *x);
  uint64_t stream = ++m->n_drawn;
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)((2 * weft__rng_uniform(m->model->options.seed, (uint64_t)i, stream) - 1) * sqrt(3) * deviation);
  return x;
}

/* A random matrix that keeps the size of what it is multiplied with. */
static double *put_matrix(maker *m, const char *name, int64_t n_rows, int64_t n_cols, double gain) {
  float *x = draw(m, n_rows * n_cols, gain / sqrt((double)n_cols));
  double *values = put_tensor(m, name, m->model->options.weights, n_rows, n_cols, x);
  free(x);
  return values;
}

/* A norm's gains, about 1. */
static double *put_gains(maker *m, const char *name, int64_t n) {
  float *x = draw(m, n, m->model->options.script ? 0 : 0.1);
  for (int64_t i = 0; i < n; i++) x[i] += 1;
  double *values = put_tensor(m, name, WEFT_F32, 0, n, x);
  free(x);
  return values;
}

/* A bias, about 0, as large as what it is added to. */
static double *put_bias(maker *m, const char *name, int64_t n) {
  float *x = draw(m, n, 1);
  double *values = put_tensor(m, name, WEFT_F32, 0, n, x);
  free(x);
  return values;
}

/* The vectors of a layer, as many as its family has. */
static void put_vectors(maker *m, int index, tiny_layer *layer) {
  const tiny_options *o = &m->model->options;
  int64_t c = o->width, d = o->head_size, q = o->n_heads * d, kv = o->n_kv_heads * d;
  int is_gemma3 = o->family == TINY_GEMMA3;
  const struct {
    double **values;
    const char *name;
    int64_t n;
    int is_there;
    double *(*put)(maker *m, const char *name, int64_t n);
  } vectors[] = {
      {&layer->attn_norm, "attn_norm.weight", c, 1, put_gains},
      {&layer->ffn_norm, "ffn_norm.weight", c, 1, put_gains},
      {&layer->q_bias, "attn_q.bias", q, o->has_bias, put_bias},
      {&layer->k_bias, "attn_k.bias", kv, o->has_bias, put_bias},
      {&layer->v_bias, "attn_v.bias", kv, o->has_bias, put_bias},
      {&layer->q_norm, "attn_q_norm.weight", d, is_gemma3, put_gains},
      {&layer->k_norm, "attn_k_norm.weight", d, is_gemma3, put_gains},
      {&layer->attn_post_norm, "post_attention_norm.weight", c, is_gemma3, put_gains},
      {&layer->ffn_post_norm, "post_ffw_norm.weight", c, is_gemma3, put_gains},
  };
  char name[64];
  for (size_t i = 0; i < WEFT_COUNT(vectors); i++) {
    if (!vectors[i].is_there) continue;
    snprintf(name, sizeof name, "blk.%d.%s", index, vectors[i].name);
    *vectors[i].values = vectors[i].put(m, name, vectors[i].n);
  }
}

static void put_layer(maker *m, int index, tiny_layer *layer) {
  const tiny_options *o = &m->model->options;
  int64_t c = o->width, q = (int64_t)o->n_heads * o->head_size, kv = (int64_t)o->n_kv_heads * o->head_size;
  double gain = o->script ? 0 : 1; /* of what a layer adds to the residual stream */
  const struct {
    double **values;
    const char *name;
    int64_t n_rows, n_cols;
    double gain;
  } matrices[] = {
      {&layer->q, "attn_q", q, c, 1.5},
      {&layer->k, "attn_k", kv, c, 1.5},
      {&layer->v, "attn_v", kv, c, 1},
      {&layer->o, "attn_output", c, q, gain},
      {&layer->gate, "ffn_gate", o->ffn_width, c, 1},
      {&layer->up, "ffn_up", o->ffn_width, c, 1},
      {&layer->down, "ffn_down", c, o->ffn_width, gain},
  };
  char name[64];
  for (size_t i = 0; i < WEFT_COUNT(matrices); i++) {
    snprintf(name, sizeof name, "blk.%d.%s.weight", index, matrices[i].name);
    *matrices[i].values = put_matrix(m, name, matrices[i].n_rows, matrices[i].n_cols, matrices[i].gain);
  }
  put_vectors(m, index, layer);
}

/* Output rows that answer each token of the script with the next one: the embedding's own direction, all others 0. */
static double *put_script(maker *m) {
  const tiny_model *model = m->model;
  const tiny_options *o = &model->options;
  float *x = must_alloc((size_t)model->n_vocab * (size_t)o->width, sizeof *x);
  for (size_t i = 0; i + 1 < o->n_script; i++)
    for (int c = 0; c < o->width; c++)
      x[o->script[i + 1] * o->width + c] = (float)model->token_embd[o->script[i] * o->width + c] / 2;
  double *values = put_tensor(m, "output.weight", o->weights, model->n_vocab, o->width, x);
  free(x);
  return values;
}

/* Divisors from 1 to 8, as Llama 3.1 stretches its waves. */
static void put_rope_factors(maker *m) {
  int half = m->model->options.rope_dims / 2;
  float *x = must_alloc((size_t)half, sizeof *x);
  for (int i = 0; i < half; i++) x[i] = 1 + 7 * (float)i / (float)half;
  m->model->rope_factors = put_tensor(m, "rope_freqs.weight", WEFT_F32, 0, half, x);
  free(x);
}

static void put_tensors(maker *m) {
  tiny_model *model = m->model;
  const tiny_options *o = &model->options;
  /* Elements of unit size (gemma3: after its scaling), so that the residual stream begins there and no layer drowns it. */
  double gain = o->family == TINY_GEMMA3 ? 1 : sqrt((double)o->width);
  model->token_embd = put_matrix(m, "token_embd.weight", model->n_vocab, o->width, gain);
  if (o->has_rope_factors) put_rope_factors(m);
  model->layers = must_alloc((size_t)o->n_layers, sizeof *model->layers);
  for (int i = 0; i < o->n_layers; i++) put_layer(m, i, &model->layers[i]);
  model->output_norm = put_gains(m, "output_norm.weight", o->width);
  if (o->is_tied)
    model->output = model->token_embd;
  else if (o->script)
    model->output = put_script(m);
  else
    model->output = put_matrix(m, "output.weight", model->n_vocab, o->width, 3);
}

/* ---- metadata ---- */

/* Writes what the fault makes of this entry; 0 if it leaves it alone. */
static int put_faulty_key(maker *m, const char *key) {
  if (has_fault(m, TINY_KEY, key))
    gguf_writer_u32(&m->w, key, fault_of(m)->value);
  else if (has_fault(m, TINY_KEY_FLOAT, key)) {
    float value;
    memcpy(&value, &fault_of(m)->value, sizeof value);
    gguf_writer_f32(&m->w, key, value);
  } else if (has_fault(m, TINY_KEY_TEXT, key))
    gguf_writer_string(&m->w, key, fault_of(m)->text);
  else
    return has_fault(m, TINY_NO_KEY, key);
  return 1;
}

static void put_int(maker *m, const char *key, int value) {
  if (!put_faulty_key(m, key)) gguf_writer_u32(&m->w, key, (uint32_t)value);
}

static void put_float(maker *m, const char *key, double value) {
  if (!put_faulty_key(m, key)) gguf_writer_f32(&m->w, key, (float)value);
}

static void put_text(maker *m, const char *key, const char *text) {
  if (!put_faulty_key(m, key)) gguf_writer_string(&m->w, key, text);
}

static int32_t find(const byte_vocab *vocab, const char *spelling) {
  for (size_t i = 0; i < vocab->n_tokens; i++)
    if (strcmp(vocab->tokens[i], spelling) == 0) return (int32_t)i;
  fprintf(stderr, "tiny_model: no token %s\n", spelling);
  abort();
}

static void make_vocab(byte_vocab *vocab) {
  byte_vocab_init(vocab);
  static const char *const marks[] = {"<|im_start|>", "<|start_header_id|>", "<|end_header_id|>",
                                      "<|eot_id|>",   "<start_of_turn>",     "<end_of_turn>"};
  for (size_t i = 0; i < WEFT_COUNT(marks); i++) byte_vocab_add(vocab, marks[i], TOKEN_CONTROL);
  vocab->model = NULL; /* written here, so that it can be at fault */
}

static void put_tokenizer(maker *m) {
  const tiny_options *o = &m->model->options;
  put_text(m, "tokenizer.ggml.model", "gpt2");
  byte_vocab_write(&m->vocab, &m->w);
  put_int(m, "tokenizer.ggml.bos_token_id", find(&m->vocab, "<s>"));
  put_int(m, "tokenizer.ggml.eos_token_id", find(&m->vocab, "</s>"));
  gguf_writer_bool(&m->w, "tokenizer.ggml.add_bos_token", o->adds_bos);
  if (*o->chat_template) put_text(m, "tokenizer.chat_template", o->chat_template);
}

/* The entries whose names begin with the architecture's, without that beginning. */
static void put_hparams(maker *m) {
  const tiny_model *model = m->model;
  const tiny_options *o = &model->options;
  const struct {
    const char *key;
    int value;
  } ints[] = {
      {"block_count", o->n_layers},
      {"context_length", o->n_ctx},
      {"embedding_length", o->width},
      {"feed_forward_length", o->ffn_width},
      {"attention.head_count", o->n_heads},
      {"attention.head_count_kv", o->n_kv_heads},
      {"attention.key_length", o->head_size},
      {"rope.dimension_count", o->rope_dims},
      {"attention.sliding_window", o->window}, /* the last one: only if there is one */
  };
  char key[64];
  for (size_t i = 0; i < WEFT_COUNT(ints) - (o->window ? 0 : 1); i++) {
    snprintf(key, sizeof key, "%s.%s", tiny_family_name(o->family), ints[i].key);
    put_int(m, key, ints[i].value);
  }
  snprintf(key, sizeof key, "%s.rope.freq_base", tiny_family_name(o->family));
  put_float(m, key, model->rope_base);
  snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", tiny_family_name(o->family));
  put_float(m, key, model->norm_eps);
  if (!o->rope_stretch) return;
  snprintf(key, sizeof key, "%s.rope.scaling.type", tiny_family_name(o->family));
  put_text(m, key, "linear");
  snprintf(key, sizeof key, "%s.rope.scaling.factor", tiny_family_name(o->family));
  put_float(m, key, o->rope_stretch);
}

static void put_metadata(maker *m) {
  put_text(m, "general.architecture", tiny_family_name(m->model->options.family));
  put_text(m, "general.name", "Tiny");
  put_hparams(m);
  put_tokenizer(m);
}

/* ---- whole models ---- */

const char *tiny_family_name(tiny_family family) {
  static const char *const names[TINY_FAMILIES] = {"llama", "qwen2", "gemma3"};
  return names[family];
}

int tiny_has_window(const tiny_model *model, int i) {
  return model->options.window > 0 && (model->options.family != TINY_GEMMA3 || i % 6 < 5);
}

static void set_default(int *option, int value) {
  if (*option == 0) *option = value;
}

static tiny_options fill_defaults(const tiny_options *options) {
  tiny_options o = options ? *options : (tiny_options){0};
  set_default(&o.n_layers, 2);
  set_default(&o.n_heads, 4);
  set_default(&o.n_kv_heads, 2);
  set_default(&o.head_size, 16);
  set_default(&o.width, 64);
  set_default(&o.ffn_width, 96);
  set_default(&o.n_ctx, 128);
  set_default(&o.rope_dims, o.head_size);
  if (o.family == TINY_GEMMA3) set_default(&o.window, 20);
  if (o.family == TINY_QWEN2) o.has_bias = 1;
  if (!o.chat_template) o.chat_template = TINY_CHATML;
  return o;
}

tiny_model tiny_model_make(const tiny_options *options) {
  tiny_model model = {.options = fill_defaults(options), .norm_eps = 0x1p-16, .rope_base = 1000};
  model.window_rope_base = model.options.family == TINY_GEMMA3 ? 10000 : model.rope_base;
  maker m = {.model = &model};
  gguf_writer_init(&m.w);
  if (model.options.alignment) gguf_writer_alignment(&m.w, model.options.alignment);
  make_vocab(&m.vocab);
  model.n_vocab = (int)m.vocab.n_tokens;
  put_metadata(&m);
  put_tensors(&m);
  tiny_fault_kind kind = fault_of(&m)->kind;
  if (kind != TINY_SOUND && !m.is_fault_done) put_faulty_key(&m, fault_of(&m)->name);
  if (kind != TINY_SOUND && !m.is_fault_done) {
    fprintf(stderr, "tiny_model: there is no %s\n", fault_of(&m)->name);
    abort();
  }
  model.file = gguf_writer_finish(&m.w);
  return model;
}

static void free_layer(tiny_layer *l) {
  double *all[] = {
      l->attn_norm,     l->ffn_norm, l->q_bias, l->k_bias, l->v_bias, l->q_norm, l->k_norm, l->attn_post_norm,
      l->ffn_post_norm, l->q,        l->k,      l->v,      l->o,      l->gate,   l->up,     l->down};
  for (size_t i = 0; i < WEFT_COUNT(all); i++) free(all[i]);
}

void tiny_model_clear(tiny_model *model) {
  for (int i = 0; i < model->options.n_layers; i++) free_layer(&model->layers[i]);
  free(model->layers);
  if (model->output != model->token_embd) free(model->output);
  free(model->token_embd);
  free(model->output_norm);
  free(model->rope_factors);
  weft__bytes_clear(&model->file);
}

int32_t tiny_model_find(const char *spelling) {
  byte_vocab vocab;
  make_vocab(&vocab);
  return find(&vocab, spelling);
}

void tiny_model_save(const tiny_model *model, char *path) {
  snprintf(path, TINY_PATH_BYTES, "/tmp/weft-tiny-XXXXXX");
  int descriptor = mkstemp(path);
  if (descriptor < 0 || close(descriptor) != 0) {
    perror(path);
    abort();
  }
  gguf_write_file(path, model->file.data, model->file.n);
}
