/* lower.c - composite operators in terms of primitives: what a tape differentiates, what a backend without a fused
 * kernel runs, and what the tests compare a fused kernel with. */
#include "tensor/tensor.h"

/* [B,T,C] as [B*T,C], copied if its rows lie at more than one stride. */
static weft_tensor *merge_batches(weft_scope *scope, weft_tensor *t) {
  if (!t || t->rank == 2) return t;
  if (t->shape[0] > 1 && t->strides[0] != t->shape[1] * t->strides[1])
    t = weft_scale(scope, t, &(weft_scale_attrs){.factor = 1});
  weft_tensor *rows = t ? weft__tensor_alias(scope, t) : NULL;
  if (!rows) return NULL;
  rows->rank = 2;
  for (int i = 0; i < 2; i++) rows->strides[i] = t->strides[i + 1];
  rows->shape[0] = t->shape[0] * t->shape[1];
  rows->shape[1] = t->shape[2];
  return rows;
}

/* n numbers in `n_batches` groups: `first` + (index in its group) * step + (group) * group_step. */
static weft_tensor *index_tensor(weft_scope *scope, int64_t n_batches, int64_t n, int32_t first, int32_t step,
                                 int32_t group_step) {
  int32_t *values = weft__alloc((size_t)n_batches * (size_t)n + 1, sizeof *values);
  if (!values) return NULL;
  for (int64_t b = 0; b < n_batches; b++)
    for (int64_t i = 0; i < n; i++) values[b * n + i] = first + (int32_t)i * step + (int32_t)b * group_step;
  weft_tensor *t = weft_tensor_from(scope, WEFT_I32, 1, (int64_t[]){n_batches * n}, values);
  weft_free(values);
  return t;
}

/* Keys and values go into a paged cache of their own, a slot a batch: the layout that attention on the CPU reads. */
weft_tensor *weft__lower_attention(weft_scope *scope, const weft__op_call *call) {
  weft_tensor *q = call->in[0], *k = call->in[1];
  const weft_attention_attrs *attrs = call->attrs;
  const weft_paged_attention_attrs paged = {attrs->n_heads, attrs->scale, 0};
  int axis = q->rank - 2;
  int64_t n_batches = axis ? q->shape[0] : 1, n_queries = q->shape[axis], n_keys = k->shape[axis];
  int64_t head_size = q->shape[axis + 1] / attrs->n_heads, n_kv_heads = k->shape[axis + 1] / head_size;
  int64_t n_blocks = (n_keys + WEFT_KV_BLOCK - 1) / WEFT_KV_BLOCK;
  if (n_batches * n_blocks > INT32_MAX / WEFT_KV_BLOCK) {
    weft__error(WEFT_ELIMIT, "attention: %lld keys in all (the CPU takes 2^31)", (long long)(n_batches * n_keys));
    return NULL;
  }
  bool is_causal = attrs->mask == WEFT_MASK_CAUSAL;
  weft_tensor *keys =
      weft_tensor_new(scope, WEFT_F32, 4, (int64_t[]){n_batches * n_blocks, n_kv_heads, head_size, WEFT_KV_BLOCK});
  weft_tensor *values =
      weft_tensor_new(scope, WEFT_F32, 4, (int64_t[]){n_batches * n_blocks, n_kv_heads, WEFT_KV_BLOCK, head_size});
  weft_tensor *table =
      weft_reshape(scope, index_tensor(scope, 1, n_batches * n_blocks, 0, 1, 0), 2, (int64_t[]){n_batches, n_blocks});
  keys =
      weft_kv_append(scope, keys, values, merge_batches(scope, k), merge_batches(scope, call->in[2]), table,
                     index_tensor(scope, n_batches, n_keys, 0, 1, 0), index_tensor(scope, n_batches, n_keys, 0, 0, 1));
  weft_tensor *y = weft_paged_attention(
      scope, merge_batches(scope, q), keys, values, table,
      index_tensor(scope, n_batches, n_queries, (int32_t)(is_causal ? n_keys - n_queries : n_keys - 1), is_causal, 0),
      index_tensor(scope, n_batches, n_queries, 0, 0, 1), &paged);
  return weft_reshape(scope, y, q->rank, q->shape);
}

weft_tensor *weft__lower_silu_mul(weft_scope *scope, const weft__op_call *call) {
  return weft_mul(scope, weft_silu(scope, call->in[0]), call->in[1]);
}

weft_tensor *weft__lower_matmul_nt3(weft_scope *scope, const weft__op_call *call) {
  const weft_concat_attrs last = {.axis = call->in[0]->rank - 1};
  weft_tensor *y = weft_matmul_nt(scope, call->in[0], call->in[1]);
  for (int i = 2; i < 4; i++) y = weft_concat(scope, y, weft_matmul_nt(scope, call->in[0], call->in[i]), &last);
  return y;
}

weft_tensor *weft__lower_matmul_nt_gated(weft_scope *scope, const weft__op_call *call) {
  weft_tensor *gate = weft_matmul_nt(scope, call->in[0], call->in[1]);
  weft_tensor *up = weft_matmul_nt(scope, call->in[0], call->in[2]);
  if (((const weft_matmul_nt_gated_attrs *)call->attrs)->gate == WEFT_GATE_GELU_TANH)
    return weft_mul(scope, weft_gelu_tanh(scope, gate), up);
  return weft_silu_mul(scope, gate, up);
}
