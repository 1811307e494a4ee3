/* shape_rules_array.c - the shape rules of the operators on arrays in general: element by element, reductions, indexing,
 * copies, fills.  (shape_rules.c has those of the models' operators, and says what a rule is for.) */
#include "tensor/rule.h"

#include <math.h> /* isfinite */

/* ---- element by element ---- */

static weft_status binary_rule(const weft__op_call *call, weft__shape *out) {
  out->dtype = WEFT_F32;
  if (!is_real(call->in[0]) || !is_real(call->in[1]) || !weft__broadcast(call->in[0], call->in[1], out))
    return mismatch(call, "wants two tensors of f32, f16 or bf16 that broadcast");
  return WEFT_OK;
}

weft_status weft__shape_add(const weft__op_call *call, weft__shape *out) { return binary_rule(call, out); }
weft_status weft__shape_sub(const weft__op_call *call, weft__shape *out) { return binary_rule(call, out); }
weft_status weft__shape_mul(const weft__op_call *call, weft__shape *out) { return binary_rule(call, out); }
weft_status weft__shape_div(const weft__op_call *call, weft__shape *out) { return binary_rule(call, out); }
weft_status weft__shape_pow(const weft__op_call *call, weft__shape *out) { return binary_rule(call, out); }
weft_status weft__shape_maximum(const weft__op_call *call, weft__shape *out) { return binary_rule(call, out); }
weft_status weft__shape_minimum(const weft__op_call *call, weft__shape *out) { return binary_rule(call, out); }

weft_status weft__shape_compare(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1];
  if ((unsigned)((const weft_compare_attrs *)call->attrs)->relation > WEFT_GREATER_EQUAL)
    return mismatch(call, "wants a relation of weft_relation");
  bool fits = is_plain(a, WEFT_I32) ? is_plain(b, WEFT_I32) : is_real(a) && is_real(b);
  out->dtype = WEFT_I32;
  if (!fits || !weft__broadcast(a, b, out))
    return mismatch(call, "wants two tensors of real numbers or two of i32 that broadcast");
  return WEFT_OK;
}

weft_status weft__shape_where(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *b = call->in[1], *c = call->in[2];
  weft_tensor both = {.dtype = b->dtype};
  bool fits =
      is_plain(call->in[0], WEFT_I32) && is_any(b) && is_any(c) && b->dtype == c->dtype && weft__broadcast(b, c, out);
  if (fits) { /* the two, then the condition */
    both.rank = out->rank;
    for (int i = 0; i < out->rank; i++) both.shape[i] = out->dim[i];
    fits = weft__broadcast(call->in[0], &both, out);
  }
  out->dtype = b->dtype;
  return fits ? WEFT_OK : mismatch(call, "wants an i32 condition and two tensors of one dtype, broadcasting");
}

static weft_status unary_rule(const weft__op_call *call, weft__shape *out) {
  if (!is_real(call->in[0])) return mismatch(call, "wants a tensor of f32, f16 or bf16");
  shape_of(call->in[0], out);
  out->dtype = WEFT_F32;
  return WEFT_OK;
}

weft_status weft__shape_abs(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_neg(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_exp(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_log(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_sqrt(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_tanh(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_sigmoid(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_silu(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_relu(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_gelu(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_gelu_tanh(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }
weft_status weft__shape_scale(const weft__op_call *call, weft__shape *out) { return unary_rule(call, out); }

weft_status weft__shape_scale_in_place(const weft__op_call *call, weft__shape *out) {
  if (!is_real(call->in[0]) || !is_writable(call->in[0]))
    return mismatch(call, "wants a contiguous tensor of f32, f16 or bf16 to write to");
  shape_of(call->in[0], out);
  return WEFT_OK;
}

weft_status weft__shape_clamp(const weft__op_call *call, weft__shape *out) {
  const weft_clamp_attrs *attrs = call->attrs;
  if (!(attrs->min <= attrs->max)) return mismatch(call, "wants a min that is at most max");
  return unary_rule(call, out);
}

static weft_status pair_rule(const weft__op_call *call, weft__shape *out) {
  if (!is_real(call->in[0]) || !is_real(call->in[1]) || !weft__same_shape(call->in[0], call->in[1]))
    return mismatch(call, "wants two tensors of f32, f16 or bf16 of one shape");
  shape_of(call->in[0], out);
  out->dtype = WEFT_F32;
  return WEFT_OK;
}

weft_status weft__shape_silu_mul(const weft__op_call *call, weft__shape *out) { return pair_rule(call, out); }
weft_status weft__shape_gelu_mul(const weft__op_call *call, weft__shape *out) { return pair_rule(call, out); }
weft_status weft__shape_relu_grad(const weft__op_call *call, weft__shape *out) { return pair_rule(call, out); }
weft_status weft__shape_tanh_grad(const weft__op_call *call, weft__shape *out) { return pair_rule(call, out); }
weft_status weft__shape_sigmoid_grad(const weft__op_call *call, weft__shape *out) { return pair_rule(call, out); }
weft_status weft__shape_gelu_grad(const weft__op_call *call, weft__shape *out) { return pair_rule(call, out); }
weft_status weft__shape_gelu_tanh_grad(const weft__op_call *call, weft__shape *out) { return pair_rule(call, out); }
weft_status weft__shape_silu_grad(const weft__op_call *call, weft__shape *out) { return pair_rule(call, out); }

/* ---- copies ---- */

weft_status weft__shape_cast(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  weft_dtype dtype = ((const weft_cast_attrs *)call->attrs)->dtype;
  if (dtype != WEFT_F32 && dtype != WEFT_F16 && dtype != WEFT_BF16 && dtype != WEFT_I32)
    return mismatch(call, "makes f32, f16, bf16 or i32 (quantize makes the quantised ones)");
  bool is_dequantised = weft__dtype_get(a->dtype)->is_quantised && dtype == WEFT_F32;
  if (!is_any(a) && !is_dequantised)
    return mismatch(call, "wants a tensor of f32, f16, bf16 or i32, or a quantised one to make f32 of");
  shape_of(a, out);
  out->dtype = dtype;
  return WEFT_OK;
}

weft_status weft__shape_quantize(const weft__op_call *call, weft__shape *out) {
  weft_dtype dtype = ((const weft_quantize_attrs *)call->attrs)->dtype;
  if (dtype != WEFT_Q8_0 && dtype != WEFT_Q4_0) return mismatch(call, "makes WEFT_Q8_0 or WEFT_Q4_0");
  if (!is_real(call->in[0]) || call->in[0]->rank < 1) return mismatch(call, "wants rows of f32, f16 or bf16");
  shape_of(call->in[0], out);
  out->dtype = dtype;
  return WEFT_OK;
}

weft_status weft__shape_contiguous(const weft__op_call *call, weft__shape *out) {
  if (!is_any(call->in[0])) return mismatch(call, "wants a tensor of f32, f16, bf16 or i32");
  shape_of(call->in[0], out);
  return WEFT_OK;
}

weft_status weft__shape_concat(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1];
  int axis = ((const weft_concat_attrs *)call->attrs)->axis;
  bool fits = is_any(a) && is_any(b) && a->dtype == b->dtype && a->rank == b->rank && axis >= 0 && axis < a->rank;
  for (int i = 0; fits && i < a->rank; i++) fits = i == axis || a->shape[i] == b->shape[i];
  if (!fits) return mismatch(call, "wants two tensors of one dtype that differ along the axis alone");
  if (a->shape[axis] > INT64_MAX - b->shape[axis]) return mismatch(call, "makes an extent that overflows");
  shape_of(a, out);
  out->dim[axis] += b->shape[axis];
  return WEFT_OK;
}

weft_status weft__shape_copy_rows_into(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1];
  int64_t first = ((const weft_copy_rows_into_attrs *)call->attrs)->first;
  bool fits = (is_plain(a, WEFT_I32) ? is_plain(b, WEFT_I32) : is_real(a) && is_real(b)) && is_writable(a) &&
              a->rank == b->rank && a->rank > 0;
  for (int i = 1; fits && i < a->rank; i++) fits = a->shape[i] == b->shape[i];
  if (!fits) return mismatch(call, "wants rows b [N,...] and a contiguous a [R,...], of real numbers or i32");
  if (first < 0 || first > a->shape[0] || b->shape[0] > a->shape[0] - first)
    return mismatch(call, "wants first .. first + N within a's rows");
  if (a->storage == b->storage) return mismatch(call, "wants b in a storage of its own (copy it first)");
  shape_of(a, out);
  return WEFT_OK;
}

/* ---- fills ---- */

static weft_status fill_rule(const weft__op_call *call, bool is_fit, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  if (!is_fit || !is_writable(a))
    return mismatch(call, "wants a contiguous tensor of f32, f16 or bf16 (fill: or i32) to write to");
  shape_of(a, out);
  return WEFT_OK;
}

weft_status weft__shape_fill(const weft__op_call *call, weft__shape *out) {
  return fill_rule(call, is_any(call->in[0]), out);
}

weft_status weft__shape_fill_uniform(const weft__op_call *call, weft__shape *out) {
  const weft_fill_uniform_attrs *attrs = call->attrs;
  if (!isfinite(attrs->low) || !isfinite(attrs->high) || !isfinite(attrs->high - attrs->low))
    return mismatch(call, "wants finite low, high and high - low");
  return fill_rule(call, is_real(call->in[0]), out);
}

weft_status weft__shape_fill_normal(const weft__op_call *call, weft__shape *out) {
  const weft_fill_normal_attrs *attrs = call->attrs;
  if (!isfinite(attrs->mean) || !isfinite(attrs->deviation) || attrs->deviation < 0)
    return mismatch(call, "wants a finite mean and a finite deviation of 0 or more");
  return fill_rule(call, is_real(call->in[0]), out);
}

weft_status weft__shape_dropout(const weft__op_call *call, weft__shape *out) {
  float p = ((const weft_dropout_attrs *)call->attrs)->p;
  if (!(p >= 0 && p < 1)) return mismatch(call, "wants 0 <= p < 1");
  return unary_rule(call, out);
}

/* ---- reductions ---- */

/* Bit i: axis i is reduced.  False if the axes are not the tensor's, or one stands twice. */
static bool reduced_axes(const weft_tensor *a, const weft_reduce_attrs *attrs, unsigned *mask) {
  *mask = attrs->n_axes == 0 ? (1u << a->rank) - 1 : 0;
  if (attrs->n_axes < 0 || attrs->n_axes > a->rank) return false;
  for (int i = 0; i < attrs->n_axes; i++) {
    int axis = attrs->axes[i];
    if (axis < 0 || axis >= a->rank || (*mask & 1u << axis)) return false;
    *mask |= 1u << axis;
  }
  return true;
}

unsigned weft__reduced_axes(const weft__op_call *call) {
  unsigned mask = 0;
  reduced_axes(call->in[0], call->attrs, &mask);
  return mask;
}

static weft_status reduce_rule(const weft__op_call *call, weft_dtype dtype, int64_t *n_reduced, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  const weft_reduce_attrs *attrs = call->attrs;
  unsigned mask;
  if (!is_real(a)) return mismatch(call, "wants a tensor of f32, f16 or bf16");
  if (!reduced_axes(a, attrs, &mask)) return mismatch(call, "wants axes of a, each of them once");
  *n_reduced = 1;
  *out = (weft__shape){.dtype = dtype};
  for (int i = 0; i < a->rank; i++) {
    if (!(mask & 1u << i)) {
      out->dim[out->rank++] = a->shape[i];
      continue;
    }
    *n_reduced *= a->shape[i];
    if (attrs->keep_dims) out->dim[out->rank++] = 1;
  }
  return WEFT_OK;
}

static weft_status sum_rule(const weft__op_call *call, weft__shape *out) {
  int64_t n_reduced;
  return reduce_rule(call, WEFT_F32, &n_reduced, out);
}

/* The largest of no elements is none; without results nobody asks for one. */
static weft_status extremum_rule(const weft__op_call *call, weft_dtype dtype, weft__shape *out) {
  int64_t n_reduced = 1, numel;
  weft_status status = reduce_rule(call, dtype, &n_reduced, out);
  if (status) return status;
  if (n_reduced == 0 && weft__shape_numel(out->rank, out->dim, &numel) && numel > 0)
    return mismatch(call, "wants an element to choose from");
  if (dtype == WEFT_I32 && n_reduced > INT32_MAX) return mismatch(call, "has places beyond i32");
  return WEFT_OK;
}

weft_status weft__shape_sum(const weft__op_call *call, weft__shape *out) { return sum_rule(call, out); }
weft_status weft__shape_mean(const weft__op_call *call, weft__shape *out) { return sum_rule(call, out); }
weft_status weft__shape_max(const weft__op_call *call, weft__shape *out) { return extremum_rule(call, WEFT_F32, out); }
weft_status weft__shape_min(const weft__op_call *call, weft__shape *out) { return extremum_rule(call, WEFT_F32, out); }
weft_status weft__shape_argmax(const weft__op_call *call, weft__shape *out) {
  return extremum_rule(call, WEFT_I32, out);
}

/* ---- indexing ---- */

weft_status weft__shape_top_k(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  const weft_top_k_attrs *attrs = call->attrs;
  if (!is_real(a)) return mismatch(call, "wants a tensor of f32, f16 or bf16");
  if (attrs->axis < 0 || attrs->axis >= a->rank || attrs->k < 1 || attrs->k > a->shape[attrs->axis] ||
      a->shape[attrs->axis] > INT32_MAX)
    return mismatch(call, "wants an axis of a and k of 1 to its extent, which i32 holds");
  shape_of(a, out);
  out->dtype = WEFT_I32;
  out->dim[attrs->axis] = attrs->k;
  return WEFT_OK;
}

weft_status weft__shape_gather(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1];
  int axis = ((const weft_gather_attrs *)call->attrs)->axis;
  bool fits = is_any(a) && is_plain(b, WEFT_I32) && a->rank == b->rank && axis >= 0 && axis < a->rank;
  *out = (weft__shape){.dtype = a->dtype, .rank = a->rank};
  for (int i = 0; fits && i < a->rank; i++) {
    fits = i == axis || a->shape[i] == b->shape[i] || a->shape[i] == 1 || b->shape[i] == 1;
    out->dim[i] = i == axis || a->shape[i] == 1 ? b->shape[i] : a->shape[i];
  }
  return fits ? WEFT_OK : mismatch(call, "wants a, i32 indices b of its rank that broadcast to it, and an axis of it");
}

weft_status weft__shape_scatter_add(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1], *c = call->in[2];
  int axis = ((const weft_scatter_add_attrs *)call->attrs)->axis;
  bool fits = is_real(a) && is_plain(b, WEFT_I32) && is_real(c) && a->rank == b->rank && a->rank == c->rank &&
              axis >= 0 && axis < a->rank;
  for (int i = 0; fits && i < a->rank; i++)
    fits = i == axis ? b->shape[i] == c->shape[i]
                     : c->shape[i] == a->shape[i] && (b->shape[i] == c->shape[i] || b->shape[i] == 1);
  if (!fits) return mismatch(call, "wants a, i32 indices b and terms c of one rank that fit each other, and an axis");
  shape_of(a, out);
  out->dtype = WEFT_F32;
  return WEFT_OK;
}
