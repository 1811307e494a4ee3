/* family_llama.c - the llama family: pre-norm transformer with RMS norm, rotary positions on interleaved pairs, grouped
 * attention and a gated SiLU MLP (Touvron et al. 2023).  Its GGUF files have query and key rows permuted for the
 * interleaved pairing.  Without output.weight the embedding is the output matrix, too. */
#include "llm/model.h"

#include <math.h> /* sqrt */

typedef struct layer {
  weft_tensor *attn_norm; /* [C] */
  weft_tensor *wq;        /* [H*D,C] */
  weft_tensor *wk, *wv;   /* [G*D,C] */
  weft_tensor *wo;        /* [C,H*D] */
  weft_tensor *ffn_norm;  /* [C] */
  weft_tensor *gate, *up; /* [F,C] */
  weft_tensor *down;      /* [C,F] */
} layer;

typedef struct weights {
  weft_tensor *token_embd;  /* [V,C] */
  weft_tensor *output_norm; /* [C] */
  weft_tensor *output;      /* [V,C] */
  layer layers[];           /* n_layers */
} weights;

static int load_layer(weft_model *model, int i, layer *l) {
  const weft__hparams *h = &model->hparams;
  int64_t c = h->width, q = h->n_heads * h->head_size, kv = h->n_kv_heads * h->head_size, f = h->ffn_width;
  return (l->attn_norm = weft__load_vector(model, "attn_norm.weight", i, c)) &&
         (l->wq = weft__load_product(model, "attn_q.weight", i, q, c)) &&
         (l->wk = weft__load_product(model, "attn_k.weight", i, kv, c)) &&
         (l->wv = weft__load_product(model, "attn_v.weight", i, kv, c)) &&
         (l->wo = weft__load_product(model, "attn_output.weight", i, c, q)) &&
         (l->ffn_norm = weft__load_vector(model, "ffn_norm.weight", i, c)) &&
         (l->gate = weft__load_product(model, "ffn_gate.weight", i, f, c)) &&
         (l->up = weft__load_product(model, "ffn_up.weight", i, f, c)) &&
         (l->down = weft__load_product(model, "ffn_down.weight", i, c, f));
}

static weft_status llama_load(weft_model *model, void **out) {
  weft_status status = weft__load_hparams(model);
  if (status) return status;
  const weft__hparams *h = &model->hparams;
  weights *w = weft__calloc(1, sizeof *w + (size_t)h->n_layers * sizeof *w->layers);
  if (!w) return WEFT_ENOMEM;
  *out = w;
  for (int i = 0; i < h->n_layers; i++)
    if (!load_layer(model, i, &w->layers[i])) return weft_last_status();
  const char *output = weft__has_tensor(model, "output.weight") ? "output.weight" : "token_embd.weight";
  w->token_embd = weft__load_table(model, "token_embd.weight", h->n_vocab, h->width);
  if (!w->token_embd) return weft_last_status();
  w->output_norm = weft__load_vector(model, "output_norm.weight", -1, h->width);
  if (!w->output_norm) return weft_last_status();
  w->output = weft__load_product(model, output, -1, h->n_vocab, h->width);
  return w->output ? WEFT_OK : weft_last_status();
}

/* x [N,C] -> the attention's contribution [N,C]; appends the layer's keys and values to the cache. */
static weft_tensor *attention(const weft_model *model, const layer *l, weft_scope *scope, weft_tensor *x,
                              weft_tensor *angles, const weft__forward_inputs *in, int i) {
  const weft__hparams *h = &model->hparams;
  int64_t n_q = h->n_heads * h->head_size, n_kv = h->n_kv_heads * h->head_size;
  const weft_rms_norm_attrs norm = {(float)h->norm_eps};
  const weft_rope_attrs rope = {(int)h->head_size, WEFT_ROPE_INTERLEAVED};
  const weft_paged_attention_attrs attn = {(int)h->n_heads, (float)(1 / sqrt((double)h->head_size))};
  weft_tensor *qkv = weft_matmul_nt3(scope, weft_rms_norm(scope, x, l->attn_norm, &norm), l->wq, l->wk, l->wv);
  weft_tensor *q = weft_rope(scope, weft_slice(scope, qkv, 1, 0, n_q), angles, &rope);
  weft_tensor *k = weft_rope(scope, weft_slice(scope, qkv, 1, n_q, n_kv), angles, &rope);
  weft_tensor *v = weft_slice(scope, qkv, 1, n_q + n_kv, n_kv);
  weft_tensor *keys =
      weft_kv_append(scope, in->keys[i], in->values[i], k, v, in->block_table, in->positions, in->slots);
  weft_tensor *y =
      weft_paged_attention(scope, q, keys, in->values[i], in->block_table, in->positions, in->slots, &attn);
  return weft_matmul_nt(scope, y, l->wo);
}

static weft_tensor *mlp(const weft_model *model, const layer *l, weft_scope *scope, weft_tensor *x) {
  const weft_rms_norm_attrs norm = {(float)model->hparams.norm_eps};
  weft_tensor *normed = weft_rms_norm(scope, x, l->ffn_norm, &norm);
  return weft_matmul_nt(scope, weft_matmul_nt_gated(scope, normed, l->gate, l->up), l->down);
}

/* One layer in a scope of its own: only the result is kept. */
static weft_tensor *run_layer(const weft_model *model, const layer *l, weft_scope *outer, weft_tensor *x,
                              weft_tensor *angles, const weft__forward_inputs *in, int i) {
  weft_scope *scope;
  if (weft_scope_open(&scope, model->device, outer)) return NULL;
  weft_tensor *y = weft_add(scope, x, attention(model, l, scope, x, angles, in, i));
  y = weft_add(scope, y, mlp(model, l, scope, y));
  if (y) y = weft_scope_keep(scope, y);
  weft_scope_close(scope);
  return y;
}

static weft_tensor *llama_forward(const weft_model *model, weft_scope *scope, const weft__forward_inputs *in) {
  const weights *w = model->weights;
  const weft__hparams *h = &model->hparams;
  const weft_rope_table_attrs rope = {(int)h->rope_dims, (float)h->rope_base, (float)h->rope_scale};
  const weft_rms_norm_attrs norm = {(float)h->norm_eps};
  weft_tensor *angles = weft_rope_table(scope, in->positions, &rope);
  weft_tensor *x = weft_embed(scope, w->token_embd, in->ids);
  for (int i = 0; i < h->n_layers && x; i++) {
    weft_tensor *y = run_layer(model, &w->layers[i], scope, x, angles, in, i);
    weft_tensor_free(x);
    x = y;
  }
  weft_tensor *last = weft_rms_norm(scope, weft_embed(scope, x, in->wanted), w->output_norm, &norm);
  return weft_matmul_nt(scope, last, w->output);
}

const weft__family weft__family_llama = {"llama", llama_load, llama_forward};
