/* shape_rules.c - one function an operator: are the operands right, and what does the operator make of them?
 * After a rule has passed, a backend need not check shapes, dtypes or attributes again (index tensors' contents it
 * must). */
#include "tensor/rule.h"

#include <math.h> /* isfinite */

/* Rows of contiguous elements, the rows at any one stride: what the row kernels read. */
static bool is_rows(const weft_tensor *t, weft_dtype dtype) {
  if (!is_plain(t, dtype) || t->rank < 1) return false;
  if (t->rank == 2) return t->shape[1] <= 1 || t->strides[1] == 1;
  return weft__is_contiguous(t);
}

static bool is_index(const weft_tensor *t, int rank) {
  return is_plain(t, WEFT_I32) && t->rank == rank && weft__is_contiguous(t);
}

weft_status weft__shape_softmax(const weft__op_call *call, weft__shape *out) {
  if (!is_real(call->in[0]) || call->in[0]->rank < 1) return mismatch(call, "wants rows of f32, f16 or bf16");
  shape_of(call->in[0], out);
  out->dtype = WEFT_F32;
  return WEFT_OK;
}

weft_status weft__shape_softmax_grad(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1];
  if (!is_real(a) || !is_real(b) || a->rank < 1 || !weft__same_shape(a, b))
    return mismatch(call, "wants two tensors of f32, f16 or bf16 of one shape, rows");
  shape_of(a, out);
  out->dtype = WEFT_F32;
  return WEFT_OK;
}

/* Logits [N,V] and targets [N]. */
static bool are_logits(const weft_tensor *a, const weft_tensor *b) {
  return is_real(a) && a->rank == 2 && a->shape[1] >= 1 && a->shape[1] <= INT32_MAX && is_plain(b, WEFT_I32) &&
         b->rank == 1 && b->shape[0] == a->shape[0];
}

weft_status weft__shape_cross_entropy(const weft__op_call *call, weft__shape *out) {
  if (!are_logits(call->in[0], call->in[1])) return mismatch(call, "wants real a [N,V] of V >= 1 and i32 b [N]");
  *out = (weft__shape){WEFT_F32, 1, {call->in[0]->shape[0]}};
  return WEFT_OK;
}

weft_status weft__shape_cross_entropy_grad(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *c = call->in[2];
  if (!are_logits(a, call->in[1]) || !is_plain(c, WEFT_F32) || c->rank != 1 || c->shape[0] != a->shape[0])
    return mismatch(call, "wants real a [N,V] of V >= 1, i32 b [N] and f32 c [N]");
  shape_of(a, out);
  out->dtype = WEFT_F32;
  return WEFT_OK;
}

/* A gain or bias [C] for a's rows. */
static bool is_of_columns(const weft_tensor *t, const weft_tensor *a) {
  return is_rows(t, WEFT_F32) && t->rank == 1 && t->shape[0] == weft__n_cols(a);
}

static weft_status norm_rule(const weft__op_call *call, bool fits, const char *rule, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  if (!is_real(a) || a->rank < 1 || !fits) return mismatch(call, rule);
  shape_of(a, out);
  out->dtype = WEFT_F32;
  return WEFT_OK;
}

weft_status weft__shape_rms_norm(const weft__op_call *call, weft__shape *out) {
  return norm_rule(call, is_of_columns(call->in[1], call->in[0]), "wants real a [...,C] and f32 b [C]", out);
}
weft_status weft__shape_rms_norm_xhat(const weft__op_call *call, weft__shape *out) {
  return norm_rule(call, true, "wants real a [...,C]", out);
}
weft_status weft__shape_layer_norm(const weft__op_call *call, weft__shape *out) {
  bool fits = is_of_columns(call->in[1], call->in[0]) && is_of_columns(call->in[2], call->in[0]);
  return norm_rule(call, fits, "wants real a [...,C], f32 b [C] and f32 c [C]", out);
}
weft_status weft__shape_layer_norm_xhat(const weft__op_call *call, weft__shape *out) {
  return norm_rule(call, true, "wants real a [...,C]", out);
}

static weft_status norm_grad_rule(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *dy = call->in[2];
  bool fits = is_of_columns(call->in[1], a) && is_real(dy) && weft__same_shape(a, dy);
  return norm_rule(call, fits, "wants real a [...,C], f32 b [C] and real c of a's shape", out);
}

weft_status weft__shape_rms_norm_grad(const weft__op_call *call, weft__shape *out) { return norm_grad_rule(call, out); }
weft_status weft__shape_layer_norm_grad(const weft__op_call *call, weft__shape *out) {
  return norm_grad_rule(call, out);
}

weft_status weft__shape_embed(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *table = call->in[0];
  if (table->rank != 2 || table->dtype == WEFT_I32 || !is_plain(table, table->dtype) || !weft__is_contiguous(table) ||
      !is_index(call->in[1], 1))
    return mismatch(call, "wants a table [V,C] and i32 ids [N]");
  *out = (weft__shape){WEFT_F32, 2, {call->in[1]->shape[0], table->shape[1]}};
  return WEFT_OK;
}

weft_status weft__shape_embed_grad(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *ids = call->in[0], *dy = call->in[1];
  int64_t n_rows = ((const weft_embed_grad_attrs *)call->attrs)->n_rows;
  if (!is_index(ids, 1) || !is_real(dy) || dy->rank != 2 || dy->shape[0] != ids->shape[0] || n_rows < 0)
    return mismatch(call, "wants i32 ids [N], real dy [N,C] and a number of rows");
  *out = (weft__shape){WEFT_F32, 2, {n_rows, dy->shape[1]}};
  return WEFT_OK;
}

/* One product operand: [M,K] of any dtype but i32, packed or contiguous. */
static bool is_product_weight(const weft_tensor *w, int64_t k) {
  return w->rank == 2 && w->dtype != WEFT_I32 && w->shape[1] == k && weft__is_contiguous(w);
}

/* a [...,K] with n weights [M_i,K]; the last axis of the result is left to the caller. */
static weft_status product_rule(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  bool fits = is_real(a) && a->rank >= 1;
  for (int i = 1; fits && i < call->n_inputs; i++) fits = is_product_weight(call->in[i], weft__n_cols(a));
  if (!fits) return mismatch(call, "wants real a [...,K] and weights [M,K]");
  shape_of(a, out);
  out->dtype = WEFT_F32;
  return WEFT_OK;
}

/* b is [N,K], so only the transposed product reads it along its blocks. */
static weft_status quantised_product_rule(const weft__op_call *call, weft__shape *out) {
  const weft_matmul_attrs *attrs = call->attrs;
  if (!attrs->transpose_b || (attrs->transpose_a && call->in[0]->rank > 1))
    return mismatch(call, "wants transpose_b alone with a quantised b [N,K]");
  weft_status status = product_rule(call, out);
  if (!status) out->dim[out->rank - 1] = call->in[1]->shape[0];
  return status;
}

/* Extent of leading axis i, counted from the matrix outwards; 1 where the operand has no such axis. */
static int64_t leading_extent(const weft_tensor *t, int i) { return i < t->rank - 2 ? t->shape[t->rank - 3 - i] : 1; }

weft_status weft__shape_matmul(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1];
  const weft_matmul_attrs *attrs = call->attrs;
  const char *rule = "wants a [...,M,K] and b [...,K,N] of f32, f16 or bf16 whose leading axes broadcast";
  if (weft__dtype_get(b->dtype)->is_quantised) return quantised_product_rule(call, out);
  if (!is_real(a) || !is_real(b) || a->rank < 1 || b->rank < 1) return mismatch(call, rule);
  /* Axes from the end: of a K then M, of b N then K; a transpose swaps them, a vector has K alone. */
  int64_t a_k = a->shape[a->rank - (a->rank > 1 && attrs->transpose_a ? 2 : 1)];
  int64_t b_k = b->shape[b->rank - (b->rank > 1 && !attrs->transpose_b ? 2 : 1)];
  int n_leading = a->rank > b->rank ? a->rank - 2 : b->rank - 2;
  if (n_leading < 0) n_leading = 0;
  bool fits = a_k == b_k;
  out->dtype = WEFT_F32;
  out->rank = n_leading;
  for (int i = 0; i < n_leading; i++) {
    int64_t da = leading_extent(a, i), db = leading_extent(b, i);
    fits = fits && (da == db || da == 1 || db == 1);
    out->dim[n_leading - 1 - i] = da == 1 ? db : da;
  }
  if (!fits) return mismatch(call, rule);
  if (a->rank > 1) out->dim[out->rank++] = a->shape[a->rank - (attrs->transpose_a ? 1 : 2)];
  if (b->rank > 1) out->dim[out->rank++] = b->shape[b->rank - (attrs->transpose_b ? 2 : 1)];
  return WEFT_OK;
}

weft_status weft__shape_matmul_nt(const weft__op_call *call, weft__shape *out) {
  weft_status status = product_rule(call, out);
  if (!status) out->dim[out->rank - 1] = call->in[1]->shape[0];
  return status;
}

weft_status weft__shape_matmul_nt3(const weft__op_call *call, weft__shape *out) {
  weft_status status = product_rule(call, out);
  for (int i = 1; !status && i < 4; i++) {
    if (call->in[i]->shape[0] > INT64_MAX / 3) return mismatch(call, "makes an extent that overflows");
  }
  if (!status) out->dim[out->rank - 1] = call->in[1]->shape[0] + call->in[2]->shape[0] + call->in[3]->shape[0];
  return status;
}

weft_status weft__shape_matmul_nt_gated(const weft__op_call *call, weft__shape *out) {
  weft_status status = product_rule(call, out);
  if (status) return status;
  if (call->in[1]->shape[0] != call->in[2]->shape[0]) return mismatch(call, "wants weights of one shape");
  weft_gate gate = ((const weft_matmul_nt_gated_attrs *)call->attrs)->gate;
  if (gate != WEFT_GATE_SILU && gate != WEFT_GATE_GELU_TANH)
    return mismatch(call, "wants silu or gelu_tanh as the gate");
  out->dim[out->rank - 1] = call->in[1]->shape[0];
  return WEFT_OK;
}

weft_status weft__shape_rope_table(const weft__op_call *call, weft__shape *out) {
  const weft_rope_table_attrs *attrs = call->attrs;
  if (!is_index(call->in[0], 1) || !is_rows(call->in[1], WEFT_F32) || call->in[1]->rank != 1 ||
      call->in[1]->shape[0] != attrs->n_dims / 2)
    return mismatch(call, "wants i32 positions [N] and f32 factors [n_dims / 2]");
  if (attrs->n_dims < 2 || attrs->n_dims % 2 || !(attrs->base > 0) || !isfinite(attrs->base) || !isfinite(attrs->scale))
    return mismatch(call, "wants an even n_dims, a base above 0 and a finite scale");
  bool is_yarn = attrs->yarn_factor != 0;
  if ((is_yarn && (!(attrs->yarn_factor >= 1) || !isfinite(attrs->yarn_factor) || attrs->yarn_context < 1)) ||
      !(attrs->magnitude >= 0) || !isfinite(attrs->magnitude))
    return mismatch(call,
                    "wants a yarn_factor of 0, or of 1 or more with a yarn_context, and a magnitude of 0 or more");
  *out = (weft__shape){WEFT_F32, 3, {call->in[0]->shape[0], 2, attrs->n_dims / 2}};
  return WEFT_OK;
}

weft_status weft__shape_rope(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *table = call->in[1];
  const weft_rope_attrs *attrs = call->attrs;
  bool fits = is_rows(a, WEFT_F32) && a->rank == 2 && is_plain(table, WEFT_F32) && weft__is_contiguous(table) &&
              table->rank == 3 && table->shape[0] == a->shape[0] && table->shape[1] == 2 && attrs->head_size > 0 &&
              a->shape[1] % attrs->head_size == 0 && table->shape[2] * 2 <= attrs->head_size &&
              (attrs->pairing == WEFT_ROPE_INTERLEAVED || attrs->pairing == WEFT_ROPE_HALVES);
  if (!fits) return mismatch(call, "wants f32 a [N,H*D] and a table [N,2,R/2] with R at most D");
  shape_of(a, out);
  return WEFT_OK;
}

/* The operands that every paged operator shares: caches a or b, block table, positions, slots. */
static bool is_paged(const weft_tensor *keys, const weft_tensor *values, const weft_tensor *block_table,
                     const weft_tensor *positions, const weft_tensor *slots, int64_t n) {
  bool dtype_fits =
      (keys->dtype == WEFT_F32 || keys->dtype == WEFT_F16 || keys->dtype == WEFT_Q8_0) && values->dtype == keys->dtype;
  return dtype_fits && is_plain(keys, keys->dtype) && is_plain(values, keys->dtype) && keys->rank == 4 &&
         values->rank == 4 && weft__is_contiguous(keys) && weft__is_contiguous(values) &&
         keys->shape[0] == values->shape[0] && keys->shape[1] == values->shape[1] && keys->shape[1] > 0 &&
         keys->shape[2] == values->shape[3] && keys->shape[3] == WEFT_KV_BLOCK && values->shape[2] == WEFT_KV_BLOCK &&
         is_index(block_table, 2) && is_index(positions, 1) && is_index(slots, 1) && positions->shape[0] == n &&
         slots->shape[0] == n;
}

/* [...,C] with contiguous rows, all axes before at any stride. */
static bool has_rows(const weft_tensor *t) {
  return is_plain(t, WEFT_F32) && t->rank >= 1 && (t->shape[t->rank - 1] <= 1 || t->strides[t->rank - 1] == 1);
}

/* Of queries, keys and values: operands first, first + 1 and first + 2. */
static weft_status attention_rule(const weft__op_call *call, int first) {
  const weft_tensor *q = call->in[first], *k = call->in[first + 1], *v = call->in[first + 2];
  const weft_attention_attrs *attrs = call->attrs;
  bool fits = has_rows(q) && has_rows(k) && has_rows(v) && weft__same_shape(k, v) && q->rank == k->rank &&
              (q->rank == 2 || (q->rank == 3 && q->shape[0] == k->shape[0])) && attrs->n_heads > 0 &&
              weft__n_cols(q) > 0 && weft__n_cols(q) % attrs->n_heads == 0 && isfinite(attrs->scale);
  int64_t head_size = fits ? weft__n_cols(q) / attrs->n_heads : 1;
  fits = fits && weft__n_cols(k) > 0 && weft__n_cols(k) % head_size == 0 &&
         attrs->n_heads % (weft__n_cols(k) / head_size) == 0;
  if (!fits) return mismatch(call, "wants f32 q [B,T,H*D], k and v [B,S,G*D], G a divisor of n_heads");
  int64_t n_queries = q->shape[q->rank - 2], n_keys = k->shape[k->rank - 2];
  if (n_keys < 1 || n_keys > INT32_MAX || (attrs->mask == WEFT_MASK_CAUSAL && n_keys < n_queries))
    return mismatch(call, "wants at least one key, and for a causal mask as many as there are queries");
  if (attrs->mask != WEFT_MASK_NONE && attrs->mask != WEFT_MASK_CAUSAL)
    return mismatch(call, "wants a mask of weft_mask");
  if (attrs->window < 0 || (attrs->window > 0 && attrs->mask != WEFT_MASK_CAUSAL))
    return mismatch(call, "wants a window of 0 or more, and a causal mask with one");
  return WEFT_OK;
}

weft_status weft__shape_attention(const weft__op_call *call, weft__shape *out) {
  shape_of(call->in[0], out);
  return attention_rule(call, 0);
}

/* [B,T,H] for q [B,T,H*D]. */
static bool is_lse(const weft_tensor *t, const weft_tensor *q, int n_heads) {
  bool fits = is_plain(t, WEFT_F32) && weft__is_contiguous(t) && t->rank == q->rank && weft__n_cols(t) == n_heads;
  for (int i = 0; fits && i < q->rank - 1; i++) fits = t->shape[i] == q->shape[i];
  return fits;
}

/* Whether operand `index` shares no storage with the operands from `first` on. */
static bool is_apart(const weft__op_call *call, int index, int first) {
  for (int i = first; i < call->n_inputs; i++)
    if (call->in[i]->storage == call->in[index]->storage) return false;
  return true;
}

weft_status weft__shape_attention_lse(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *y = call->in[0], *lse = call->in[1], *q = call->in[2];
  shape_of(y, out);
  weft_status status = attention_rule(call, 2);
  if (status) return status;
  int n_heads = ((const weft_attention_attrs *)call->attrs)->n_heads;
  if (!is_plain(y, WEFT_F32) || !is_writable(y) || !weft__same_shape(y, q) || !is_lse(lse, q, n_heads) ||
      !is_writable(lse))
    return mismatch(call, "wants a contiguous f32 y of q's shape and lse [B,T,H] to write to");
  if (!is_apart(call, 0, 1) || !is_apart(call, 1, 2)) return mismatch(call, "wants y and lse in storages of their own");
  return WEFT_OK;
}

/* Rows of f32 that may be written to, none of which overlap. */
static bool has_writable_rows(const weft_tensor *t) {
  int axis = t->rank - 2;
  if (!has_rows(t) || t->storage->is_borrowed || axis < 0) return false;
  return (t->shape[axis] <= 1 || t->strides[axis] >= weft__n_cols(t)) &&
         (axis == 0 || t->shape[0] <= 1 || t->strides[0] >= weft__n_cols(t));
}

/* Whether the rows of two tensors of one rank share no element: other storages, parts of one behind each other, or other
 * columns of the same rows. */
static bool are_rows_apart(const weft_tensor *a, const weft_tensor *b) {
  if (a->storage != b->storage || weft_tensor_numel(a) == 0 || weft_tensor_numel(b) == 0) return true;
  if (a->offset > b->offset) return are_rows_apart(b, a);
  int axis = a->rank - 2;
  int64_t row = a->strides[axis], begin = b->offset - a->offset;
  bool is_grid =
      row == b->strides[axis] && (axis == 0 || (a->strides[0] == b->strides[0] && a->strides[0] >= a->shape[1] * row &&
                                                b->strides[0] >= b->shape[1] * row && a->strides[0] % row == 0));
  return begin >= weft__tensor_span(a) ||
         (is_grid && begin % row >= weft__n_cols(a) && begin % row + weft__n_cols(b) <= row);
}

weft_status weft__shape_attention_grad(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *y = call->in[6], *dy = call->in[8];
  shape_of(call->in[0], out);
  weft_status status = attention_rule(call, 3);
  if (status) return status;
  bool fits = has_rows(y) && has_rows(dy) && weft__same_shape(y, call->in[3]) && weft__same_shape(dy, y) &&
              is_lse(call->in[7], y, ((const weft_attention_attrs *)call->attrs)->n_heads);
  for (int i = 0; fits && i < 3; i++)
    fits = has_writable_rows(call->in[i]) && weft__same_shape(call->in[i], call->in[i + 3]);
  if (!fits) return mismatch(call, "wants f32 dq, dk, dv like q, k, v, y and dy like q, and lse [B,T,H]");
  for (int i = 0; i < 3; i++)
    if (!is_apart(call, i, 3) || !are_rows_apart(call->in[i], call->in[(i + 1) % 3]))
      return mismatch(call, "wants dq, dk and dv in storages of their own, and apart from one another");
  return WEFT_OK;
}

weft_status weft__shape_kv_append(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *const *in = (const weft_tensor *const *)call->in;
  const weft_tensor *k = in[2], *v = in[3];
  bool fits = is_rows(k, WEFT_F32) && is_rows(v, WEFT_F32) && k->rank == 2 && weft__same_shape(k, v) &&
              is_paged(in[0], in[1], in[4], in[5], in[6], k->shape[0]) &&
              k->shape[1] == in[0]->shape[1] * in[0]->shape[2];
  if (!fits) return mismatch(call, "wants caches, f32 rows [N,G*D], a block table and N positions and slots");
  shape_of(in[0], out);
  return WEFT_OK;
}

weft_status weft__shape_paged_attention(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *const *in = (const weft_tensor *const *)call->in;
  const weft_tensor *q = in[0];
  const weft_paged_attention_attrs *attrs = call->attrs;
  bool fits = is_rows(q, WEFT_F32) && q->rank == 2 && is_paged(in[1], in[2], in[3], in[4], in[5], q->shape[0]) &&
              attrs->n_heads > 0 && attrs->n_heads % in[1]->shape[1] == 0 &&
              q->shape[1] == attrs->n_heads * in[1]->shape[2] && isfinite(attrs->scale) && attrs->window >= 0;
  if (!fits)
    return mismatch(call,
                    "wants f32 q [N,H*D], caches of G heads that divide H, a block table and N positions and slots");
  shape_of(q, out);
  return WEFT_OK;
}
