/* decoder.c - see decoder.h.  The output matrix is loaded first: it is the largest, and is packed while nothing else is
 * there yet, so that its copy in the file and its packed form are never in memory beside all other weights. */
#include "llm/decoder.h"

#include <math.h> /* sqrt */

typedef struct layer {
  weft_tensor *attn_norm;       /* [C] */
  weft_tensor *wq;              /* [H*D,C] */
  weft_tensor *wk, *wv;         /* [G*D,C] */
  weft_tensor *bias;            /* [(H+2G)*D] of q, k and v, or NULL */
  weft_tensor *q_norm, *k_norm; /* [D], or NULL */
  weft_tensor *wo;              /* [C,H*D] */
  weft_tensor *attn_post_norm;  /* [C], or NULL */
  weft_tensor *ffn_norm;        /* [C] */
  weft_tensor *gate, *up;       /* [F,C] */
  weft_tensor *down;            /* [C,F] */
  weft_tensor *ffn_post_norm;   /* [C], or NULL */
} layer;

typedef struct weights {
  weft_tensor *token_embd;   /* [V,C] */
  weft_tensor *output_norm;  /* [C] */
  weft_tensor *output;       /* [V,C] */
  weft_tensor *rope_factors; /* [R/2] */
  weft_tensor *no_factors;   /* [R/2], ones: for layers with a window, whose waves are not stretched */
  layer layers[];            /* n_layers */
} weights;

/* ---- loading ---- */

/* The biases of q, k and v as one vector, beside the joint product; their own are not kept. */
static weft_tensor *load_bias(weft_model *model, int i, int64_t n_q, int64_t n_kv) {
  weft_scope *scope;
  if (weft_scope_open(&scope, model->device, model->scope)) return NULL;
  const weft_concat_attrs last = {.axis = 0};
  weft_tensor *q = weft__load_vector(model, "attn_q.bias", i, n_q);
  weft_tensor *k = q ? weft__load_vector(model, "attn_k.bias", i, n_kv) : NULL;
  weft_tensor *v = k ? weft__load_vector(model, "attn_v.bias", i, n_kv) : NULL;
  weft_tensor *bias = v ? weft_concat(scope, q, k, &last) : NULL;
  if (bias) bias = weft_concat(scope, bias, v, &last);
  if (bias) bias = weft_scope_keep(scope, bias);
  weft_tensor_free(q);
  weft_tensor_free(k);
  weft_tensor_free(v);
  weft_scope_close(scope);
  return bias;
}

static int load_attention(weft_model *model, unsigned parts, int i, layer *l) {
  const weft__hparams *h = &model->hparams;
  int64_t c = h->width, q = h->n_heads * h->head_size, kv = h->n_kv_heads * h->head_size;
  bool has_bias = (parts & WEFT__PART_QKV_BIAS) || weft__has_tensor(model, "attn_q.bias", i);
  return (l->attn_norm = weft__load_vector(model, "attn_norm.weight", i, c)) &&
         (l->wq = weft__load_product(model, "attn_q.weight", i, q, c)) &&
         (l->wk = weft__load_product(model, "attn_k.weight", i, kv, c)) &&
         (l->wv = weft__load_product(model, "attn_v.weight", i, kv, c)) &&
         (!has_bias || (l->bias = load_bias(model, i, q, kv))) &&
         (!(parts & WEFT__PART_QK_NORMS) ||
          ((l->q_norm = weft__load_vector(model, "attn_q_norm.weight", i, h->head_size)) &&
           (l->k_norm = weft__load_vector(model, "attn_k_norm.weight", i, h->head_size)))) &&
         (l->wo = weft__load_product(model, "attn_output.weight", i, c, q)) &&
         (!(parts & WEFT__PART_POST_NORMS) ||
          (l->attn_post_norm = weft__load_vector(model, "post_attention_norm.weight", i, c)));
}

static int load_mlp(weft_model *model, unsigned parts, int i, layer *l) {
  int64_t c = model->hparams.width, f = model->hparams.ffn_width;
  return (l->ffn_norm = weft__load_vector(model, "ffn_norm.weight", i, c)) &&
         (l->gate = weft__load_product(model, "ffn_gate.weight", i, f, c)) &&
         (l->up = weft__load_product(model, "ffn_up.weight", i, f, c)) &&
         (l->down = weft__load_product(model, "ffn_down.weight", i, c, f)) &&
         (!(parts & WEFT__PART_POST_NORMS) ||
          (l->ffn_post_norm = weft__load_vector(model, "post_ffw_norm.weight", i, c)));
}

/* Divisors of the rotation's frequencies: the file's, or ones. */
static int load_rope_factors(weft_model *model, weights *w) {
  int64_t half = model->hparams.rope_dims / 2;
  float *ones = weft__alloc((size_t)half, sizeof *ones);
  if (!ones) return 0;
  for (int64_t i = 0; i < half; i++) ones[i] = 1;
  w->no_factors = weft_tensor_from(model->scope, WEFT_F32, 1, &half, ones);
  weft_free(ones);
  w->rope_factors = w->no_factors;
  if (weft__has_tensor(model, "rope_freqs.weight", -1)) w->rope_factors = weft__load_rope_factors(model);
  return w->rope_factors && w->no_factors;
}

weft_status weft__decoder_load(weft_model *model, const weft__decoder_traits *traits, void **out) {
  const weft__hparams *h = &model->hparams;
  weights *w = weft__calloc(1, sizeof *w + (size_t)h->n_layers * sizeof *w->layers);
  if (!w) return WEFT_ENOMEM;
  *out = w;
  const char *output = weft__has_tensor(model, "output.weight", -1) ? "output.weight" : "token_embd.weight";
  if (!(w->output = weft__load_product(model, output, -1, h->n_vocab, h->width)) ||
      !(w->token_embd = weft__load_table(model, "token_embd.weight", h->n_vocab, h->width)) ||
      !(w->output_norm = weft__load_vector(model, "output_norm.weight", -1, h->width)) || !load_rope_factors(model, w))
    return weft_last_status();
  for (int i = 0; i < h->n_layers; i++)
    if (!load_attention(model, traits->parts, i, &w->layers[i]) || !load_mlp(model, traits->parts, i, &w->layers[i]))
      return weft_last_status();
  return weft__check_all_loaded(model);
}

/* ---- the forward pass ---- */

/* What is the same in all layers of one pass. */
typedef struct pass {
  const weft_model *model;
  const weft__decoder_traits *traits;
  const weft__forward_inputs *in;
  weft_tensor *angles, *window_angles; /* [N,2,R/2]: of layers that see everything, and of those with a window */
} pass;

/* Of `period` layers the last sees everything; without a period none does. */
static bool has_window(const weft__hparams *h, int i) {
  return h->window > 0 && (h->window_period == 0 || i % h->window_period < h->window_period - 1);
}

static weft_tensor *norm(const pass *p, weft_scope *scope, weft_tensor *x, weft_tensor *gain) {
  const weft_rms_norm_attrs attrs = {(float)p->model->hparams.norm_eps};
  return weft_rms_norm(scope, x, gain, &attrs);
}

/* x [N,n*D]: norm of each head (gain [D], or NULL), and rotation. */
static weft_tensor *place_heads(const pass *p, weft_scope *scope, weft_tensor *x, weft_tensor *gain,
                                weft_tensor *angles) {
  int64_t head_size = p->model->hparams.head_size;
  if (!x) return NULL;
  if (gain) {
    int64_t n = weft_tensor_shape(x)[0], width = weft_tensor_shape(x)[1];
    x = norm(p, scope, weft_reshape(scope, x, 3, (int64_t[]){n, width / head_size, head_size}), gain);
    x = weft_reshape(scope, x, 2, (int64_t[]){n, width});
  }
  const weft_rope_attrs rope = {.head_size = (int)head_size, .pairing = p->traits->pairing};
  return weft_rope(scope, x, angles, &rope);
}

/* The attention of layer i before the output product [N,H*D], for the rows that are wanted if `only_wanted`; appends the
 * layer's keys and values to the cache. */
static weft_tensor *attend(const pass *p, const layer *l, weft_scope *scope, weft_tensor *x, int i, bool only_wanted) {
  const weft__hparams *h = &p->model->hparams;
  const weft__forward_inputs *in = p->in;
  int64_t n_q = h->n_heads * h->head_size, n_kv = h->n_kv_heads * h->head_size;
  int window = has_window(h, i) ? (int)h->window : 0;
  const weft_paged_attention_attrs attrs = {(int)h->n_heads, (float)h->attention_scale, window};
  weft_tensor *angles = window ? p->window_angles : p->angles;
  weft_tensor *qkv = weft_matmul_nt3(scope, norm(p, scope, x, l->attn_norm), l->wq, l->wk, l->wv);
  if (l->bias) qkv = weft_add(scope, qkv, l->bias);
  weft_tensor *q = place_heads(p, scope, weft_slice(scope, qkv, 1, 0, n_q), l->q_norm, angles);
  weft_tensor *k = place_heads(p, scope, weft_slice(scope, qkv, 1, n_q, n_kv), l->k_norm, angles);
  weft_tensor *v = weft_slice(scope, qkv, 1, n_q + n_kv, n_kv);
  weft_tensor *keys =
      weft_kv_append(scope, in->keys[i], in->values[i], k, v, in->block_table, in->positions, in->slots);
  if (only_wanted)
    return weft_paged_attention(scope, weft_embed(scope, q, in->wanted), keys, in->values[i], in->block_table,
                                in->wanted_positions, in->wanted_slots, &attrs);
  return weft_paged_attention(scope, q, keys, in->values[i], in->block_table, in->positions, in->slots, &attrs);
}

static weft_tensor *mlp(const pass *p, const layer *l, weft_scope *scope, weft_tensor *x) {
  const weft_matmul_nt_gated_attrs attrs = {p->traits->gate};
  weft_tensor *normed = norm(p, scope, x, l->ffn_norm);
  weft_tensor *y = weft_matmul_nt(scope, weft_matmul_nt_gated(scope, normed, l->gate, l->up, &attrs), l->down);
  return l->ffn_post_norm ? norm(p, scope, y, l->ffn_post_norm) : y;
}

/* One layer in a scope of its own: only the result is kept.  The last one goes on with the rows that are wanted: nobody
 * reads the others. */
static weft_tensor *run_layer(const pass *p, const layer *l, weft_scope *outer, weft_tensor *x, int i) {
  bool is_last = i == p->model->hparams.n_layers - 1;
  weft_scope *scope;
  if (weft_scope_open(&scope, p->model->device, outer)) return NULL;
  weft_tensor *y = weft_matmul_nt(scope, attend(p, l, scope, x, i, is_last), l->wo);
  if (l->attn_post_norm) y = norm(p, scope, y, l->attn_post_norm);
  y = weft_add(scope, is_last ? weft_embed(scope, x, p->in->wanted) : x, y);
  y = weft_add(scope, y, mlp(p, l, scope, y));
  if (y) y = weft_scope_keep(scope, y);
  weft_scope_close(scope);
  return y;
}

/* Rows of the embedding, scaled if the family does so. */
static weft_tensor *embed(const weft_model *model, weft_scope *scope, weft_tensor *ids) {
  const weights *w = model->weights;
  weft_tensor *x = weft_embed(scope, w->token_embd, ids);
  if (model->hparams.embedding_scale == 1) return x;
  return weft_scale(scope, x, &(weft_scale_attrs){(float)model->hparams.embedding_scale});
}

weft_tensor *weft__decoder_forward(const weft_model *model, const weft__decoder_traits *traits, weft_scope *scope,
                                   const weft__forward_inputs *in) {
  const weights *w = model->weights;
  const weft__hparams *h = &model->hparams;
  const weft_rope_table_attrs rope = {
      .n_dims = (int)h->rope_dims, .base = (float)h->rope_base, .scale = (float)h->rope_scale};
  const weft_rope_table_attrs window_rope = {
      .n_dims = (int)h->rope_dims, .base = (float)h->window_rope_base, .scale = 1};
  pass p = {.model = model, .traits = traits, .in = in};
  p.window_angles = p.angles = weft_rope_table(scope, in->positions, w->rope_factors, &rope);
  if (h->window_rope_base > 0) p.window_angles = weft_rope_table(scope, in->positions, w->no_factors, &window_rope);
  weft_tensor *x = embed(model, scope, in->ids);
  for (int i = 0; i < h->n_layers && x; i++) {
    weft_tensor *y = run_layer(&p, &w->layers[i], scope, x, i);
    weft_tensor_free(x);
    x = y;
  }
  return weft_matmul_nt(scope, norm(&p, scope, x, w->output_norm), w->output);
}
