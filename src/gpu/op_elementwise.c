/* op_elementwise.c - the operators that work element by element, of any real dtype and any view, with broadcasting.
 *
 * Axes that lie alike in all operands are merged first.  Then the kernel is chosen: quads where every operand is contiguous
 * along the innermost axis or broadcast along it, single elements elsewhere.  What is wider than a binding is halved along
 * its widest axis. */
#include "gpu/gpu.h"

enum { MAX_OPERANDS = 4 /* a, b, c, y */, Y = MAX_OPERANDS - 1 };
enum { QUADS_PER_GROUP = 256 * 4, ELEMENTS_PER_GROUP = 256 };

/* ---- the axes of all operands ---- */

/* Element (i, j, ...) of operand t stands at first[t] + i * strides[t][0] + ... of its elements. */
typedef struct loop {
  const weft_tensor *tensors[MAX_OPERANDS]; /* an operand that the operator lacks is its first */
  int rank;
  int64_t shape[WEFT_MAX_RANK], strides[MAX_OPERANDS][WEFT_MAX_RANK], first[MAX_OPERANDS];
} loop;

/* The result's axes, less those of one element and those that continue the axis before them in every operand. */
static loop make_loop(const weft__op_call *call) {
  const weft_tensor *y = call->out;
  loop l = {.rank = 0};
  for (int t = 0; t < MAX_OPERANDS; t++) l.tensors[t] = call->in[t < call->n_inputs ? t : 0];
  l.tensors[Y] = y;
  for (int i = 0; i < y->rank; i++) {
    if (y->shape[i] == 1) continue;
    int64_t stride[MAX_OPERANDS];
    bool merges = l.rank > 0;
    for (int t = 0; t < MAX_OPERANDS; t++) {
      stride[t] = weft__broadcast_stride(l.tensors[t], y->rank, i);
      merges = merges && l.strides[t][l.rank - 1] == stride[t] * y->shape[i];
    }
    if (!merges) l.shape[l.rank++] = 1;
    l.shape[l.rank - 1] *= y->shape[i];
    for (int t = 0; t < MAX_OPERANDS; t++) l.strides[t][l.rank - 1] = stride[t];
  }
  return l;
}

static int64_t count(const loop *l) {
  int64_t n = 1;
  for (int i = 0; i < l->rank; i++) n *= l->shape[i];
  return n;
}

static int64_t span(const loop *l, int t) {
  int64_t last = 0;
  for (int i = 0; i < l->rank; i++) last += (l->shape[i] - 1) * l->strides[t][i];
  return last + 1;
}

static bool fits_bindings(const weft__gpu *gpu, const loop *l) {
  bool fits = true;
  for (int t = 0; t < MAX_OPERANDS; t++) fits = fits && span(l, t) <= weft__gpu_window_elements(gpu);
  return fits;
}

/* The axis along which one operand reaches farthest. */
static int widest_axis(const loop *l) {
  int widest = 0;
  int64_t most = 0;
  for (int i = 0; i < l->rank; i++)
    for (int t = 0; t < MAX_OPERANDS; t++) {
      int64_t reach = (l->shape[i] - 1) * l->strides[t][i];
      if (reach > most) widest = i, most = reach;
    }
  return widest;
}

/* Cuts the loop in two along an axis: what comes after the first half.  Quads stay whole. */
static loop cut(loop *l, int axis) {
  int64_t half = l->shape[axis] / 2;
  if (half > 4) half -= half % 4;
  loop rest = *l;
  rest.shape[axis] -= half;
  l->shape[axis] = half;
  for (int t = 0; t < MAX_OPERANDS; t++) rest.first[t] += half * l->strides[t][axis];
  return rest;
}

/* ---- parameters ---- */

/* Binds the operands and fills in the axes. */
static void set_operands(weft__gpu *gpu, const loop *l, weft__gpu_elementwise_params *p, weft__gpu_range *ranges) {
  uint32_t *offsets[] = {&p->a_offset, &p->b_offset, &p->c_offset, &p->y_offset};
  uint32_t *strides[] = {p->a_strides, p->b_strides, p->c_strides, p->y_strides};
  p->rank = (uint32_t)l->rank;
  p->n = (uint32_t)count(l);
  for (int t = 0; t < MAX_OPERANDS; t++) {
    ranges[t] = weft__gpu_window(gpu, l->tensors[t], l->first[t], span(l, t), offsets[t]);
    for (int i = 0; i < l->rank; i++) strides[t][i] = (uint32_t)l->strides[t][i];
  }
  for (int i = 0; i < l->rank; i++) p->shape[i] = (uint32_t)l->shape[i];
  p->a_type = (uint32_t)l->tensors[0]->dtype;
  p->b_type = (uint32_t)l->tensors[1]->dtype;
}

/* Whether the loop goes in quads: see elementwise.wgsl. */
static bool is_in_quads(const loop *l) {
  int last = l->rank - 1;
  if (last < 0 || l->strides[Y][last] != 1 || (last > 0 && l->shape[last] % 4)) return false;
  for (int t = 0; t < MAX_OPERANDS; t++) {
    if (t != Y && l->strides[t][last] == 0) continue; /* one element, wherever it stands */
    bool is_whole = l->strides[t][last] == 1 && (l->tensors[t]->offset + l->first[t]) % 4 == 0;
    for (int i = 0; i < last; i++) is_whole = is_whole && l->strides[t][i] % 4 == 0;
    if (!is_whole) return false;
  }
  return true;
}

/* ---- running ---- */

static weft_status run_quads(weft__gpu *gpu, const loop *l, uint32_t function, weft__gpu_elementwise_params *p,
                             const weft__gpu_range *ranges) {
  int last = l->rank - 1;
  const weft__wgsl_const constants[] = {{"FUNCTION", function},
                                        {"A_TYPE", p->a_type},
                                        {"B_TYPE", p->b_type},
                                        {"A_STEP", (uint32_t)l->strides[0][last]},
                                        {"B_STEP", (uint32_t)l->strides[1][last]},
                                        {"FLAT", last == 0},
                                        {NULL, 0}};
  uint64_t n_quads = ((uint64_t)p->n + 3) / 4;
  p->shape[last] /= 4;
  p->a_strides[last] *= 4;
  p->b_strides[last] *= 4;
  p->y_strides[last] *= 4;
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_elementwise, constants, ranges, p,
                            (n_quads + QUADS_PER_GROUP - 1) / QUADS_PER_GROUP);
}

/* `p` holds the operator's own parameters. */
static weft_status run_loop(weft__gpu *gpu, const loop *l, uint32_t function, const weft__gpu_elementwise_params *p) {
  if (!fits_bindings(gpu, l)) {
    loop half = *l, rest = cut(&half, widest_axis(l));
    weft_status status = run_loop(gpu, &half, function, p);
    return status ? status : run_loop(gpu, &rest, function, p);
  }
  weft__gpu_elementwise_params params = *p;
  weft__gpu_range ranges[MAX_OPERANDS];
  set_operands(gpu, l, &params, ranges);
  ranges[2] = ranges[Y]; /* no third operand */
  if (is_in_quads(l)) return run_quads(gpu, l, function, &params, ranges);
  const weft__wgsl_const constants[] = {{"FUNCTION", function}, {NULL, 0}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_elementwise_strided, constants, ranges, &params,
                            ((uint64_t)params.n + ELEMENTS_PER_GROUP - 1) / ELEMENTS_PER_GROUP);
}

static uint32_t function_of(const weft__op_call *call) {
#define SAME(name) [WEFT_OP_ID_##name] = WEFT__FUNCTION_##name
  static const weft__gpu_function FUNCTIONS[WEFT_OP_COUNT] = {
      SAME(add),          SAME(sub),       SAME(mul),
      SAME(div),          SAME(pow),       SAME(maximum),
      SAME(minimum),      SAME(scale),     SAME(clamp),
      SAME(abs),          SAME(neg),       SAME(exp),
      SAME(log),          SAME(sqrt),      SAME(tanh),
      SAME(sigmoid),      SAME(relu),      SAME(gelu),
      SAME(gelu_tanh),    SAME(silu),      SAME(silu_mul),
      SAME(gelu_mul),     SAME(relu_grad), SAME(tanh_grad),
      SAME(sigmoid_grad), SAME(gelu_grad), SAME(gelu_tanh_grad),
      SAME(silu_grad),
  };
#undef SAME
  if (call->op != WEFT_OP_ID_compare) return (uint32_t)FUNCTIONS[call->op];
  weft_relation relation = ((const weft_compare_attrs *)call->attrs)->relation;
  bool is_i32 = call->in[0]->dtype == WEFT_I32;
  return (uint32_t)(is_i32 ? WEFT__FUNCTION_equal_i32 : WEFT__FUNCTION_equal) + (uint32_t)relation;
}

weft_status weft__gpu_elementwise(weft__backend *backend, const weft__op_call *call) {
  weft__gpu_elementwise_params p = {.n = 0};
  if (call->op == WEFT_OP_ID_scale) p.parameter = ((const weft_scale_attrs *)call->attrs)->factor;
  if (call->op == WEFT_OP_ID_clamp) {
    p.parameter = ((const weft_clamp_attrs *)call->attrs)->min;
    p.bound = ((const weft_clamp_attrs *)call->attrs)->max;
  }
  loop l = make_loop(call);
  return count(&l) ? run_loop(weft__gpu_of(backend), &l, function_of(call), &p) : WEFT_OK;
}

weft_status weft__gpu_scale_in_place(weft__backend *backend, const weft__op_call *call) {
  return weft__gpu_each_word(weft__gpu_of(backend), WEFT__KERNEL_scale_in_place, call->out,
                             ((const weft_scale_in_place_attrs *)call->attrs)->factor);
}

/* ---- where ---- */

/* y stays contiguous, as its words may hold two elements: so it is cut along the outermost axis, which is the first. */
static weft_status run_where(weft__gpu *gpu, const loop *l) {
  if (!fits_bindings(gpu, l)) {
    int outermost = 0;
    while (l->shape[outermost] == 1) outermost++;
    loop half = *l, rest = cut(&half, outermost);
    weft_status status = run_where(gpu, &half);
    return status ? status : run_where(gpu, &rest);
  }
  bool is_half = weft__dtype_get(l->tensors[Y]->dtype)->block_bytes == 2;
  const weft__wgsl_const constants[] = {{"IS_HALF", is_half}, {NULL, 0}};
  weft__gpu_elementwise_params p = {.n = 0};
  weft__gpu_range ranges[MAX_OPERANDS];
  set_operands(gpu, l, &p, ranges);
  uint64_t n_words = is_half ? ((uint64_t)p.n + p.y_offset % 2 + 1) / 2 : p.n;
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_where, constants, ranges, &p,
                            (n_words + ELEMENTS_PER_GROUP - 1) / ELEMENTS_PER_GROUP);
}

weft_status weft__gpu_where(weft__backend *backend, const weft__op_call *call) {
  loop l = make_loop(call);
  return count(&l) ? run_where(weft__gpu_of(backend), &l) : WEFT_OK;
}
