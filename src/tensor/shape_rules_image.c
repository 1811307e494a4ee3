/* shape_rules_image.c - the shape rules of the operators on images [N,C,H,W], and what windows slide over them.
 * (shape_rules.c says what a rule is for.) */
#include "tensor/rule.h"
#include "tensor/sliding.h"

static bool is_image(const weft_tensor *t) { return is_real(t) && t->rank == 4; }

static bool is_within(int64_t x, int64_t least) { return x >= least && x <= INT32_MAX; }

bool weft__sliding_make(const weft_window2d_attrs *attrs, const int64_t *in, const int64_t *kernel, bool is_pooling,
                        weft__sliding *s) {
  for (int i = 0; i < 2; i++) {
    s->in[i] = in[i];
    s->kernel[i] = kernel[i];
    s->stride[i] = attrs->stride[i] ? attrs->stride[i] : is_pooling ? kernel[i] : 1;
    s->padding[i] = attrs->padding[i];
    s->dilation[i] = attrs->dilation[i] ? attrs->dilation[i] : 1;
    if (!is_within(in[i], 0) || !is_within(kernel[i], 1) || !is_within(s->stride[i], 1) ||
        !is_within(s->padding[i], 0) || !is_within(s->dilation[i], 1))
      return false;
    int64_t reach = s->dilation[i] * (kernel[i] - 1) + 1, room = in[i] + 2 * s->padding[i];
    if (reach > room || room > INT32_MAX || (is_pooling && s->padding[i] > reach / 2)) return false;
    s->out[i] = (room - reach) / s->stride[i] + 1;
  }
  return true;
}

weft__sliding weft__sliding_of(const weft__op_call *call) {
  const weft_window2d_attrs *attrs = call->attrs;
  weft__sliding s = {{0}, {0}, {0}, {0}, {0}, {0}};
  const int64_t *in = call->in[0]->shape + 2, *kernel = attrs->kernel;
  bool is_pooling = call->op == WEFT_OP_ID_max_pool2d || call->op == WEFT_OP_ID_max_pool2d_grad;
  if (call->op == WEFT_OP_ID_col2im || call->op == WEFT_OP_ID_conv2d_grad_input) in = attrs->input;
  if (call->op == WEFT_OP_ID_conv2d || call->op == WEFT_OP_ID_conv2d_grad_input) kernel = call->in[1]->shape + 2;
  weft__sliding_make(attrs, in, kernel, is_pooling, &s);
  return s;
}

static const char BAD_WINDOW[] = "wants a kernel within the padded image, and no negative or huge attribute";

/* Extents of im2col's result: elements of a window over all channels, and windows of all images. */
static bool column_extents(const weft__sliding *s, int64_t n_images, int64_t n_channels, int64_t *n_rows,
                           int64_t *n_columns) {
  int64_t window = s->kernel[0] * s->kernel[1], windows = s->out[0] * s->out[1];
  return weft__mul_i64(n_channels, window, n_rows) && weft__mul_i64(n_images, windows, n_columns);
}

weft_status weft__shape_im2col(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  const weft_window2d_attrs *attrs = call->attrs;
  weft__sliding s = {.in = {0}};
  if (!is_image(a)) return mismatch(call, "wants images [N,C,H,W] of f32, f16 or bf16");
  if (!weft__sliding_make(attrs, a->shape + 2, attrs->kernel, false, &s)) return mismatch(call, BAD_WINDOW);
  *out = (weft__shape){.dtype = WEFT_F32, .rank = 2};
  if (!column_extents(&s, a->shape[0], a->shape[1], &out->dim[0], &out->dim[1]))
    return mismatch(call, "makes an extent that overflows");
  return WEFT_OK;
}

weft_status weft__shape_col2im(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  const weft_window2d_attrs *attrs = call->attrs;
  weft__sliding s = {.in = {0}};
  if (!is_real(a) || a->rank != 2) return mismatch(call, "wants a [C*kh*kw,N*Ho*Wo] of f32, f16 or bf16");
  if (!weft__sliding_make(attrs, attrs->input, attrs->kernel, false, &s)) return mismatch(call, BAD_WINDOW);
  int64_t window = s.kernel[0] * s.kernel[1], windows = s.out[0] * s.out[1];
  if (a->shape[0] % window || a->shape[1] % windows)
    return mismatch(call, "wants a multiple of the window's elements as rows, and of an image's windows as columns");
  *out = (weft__shape){WEFT_F32, 4, {a->shape[1] / windows, a->shape[0] / window, s.in[0], s.in[1]}};
  return WEFT_OK;
}

/* Whether im2col's result for a convolution's operands has extents that can be told. */
static weft_status check_columns(const weft__op_call *call, const weft__sliding *s, int64_t n_images,
                                 int64_t n_channels) {
  int64_t n_rows, n_columns;
  return column_extents(s, n_images, n_channels, &n_rows, &n_columns)
             ? WEFT_OK
             : mismatch(call, "makes an extent that overflows");
}

weft_status weft__shape_conv2d(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1];
  weft__sliding s = {.in = {0}};
  if (!is_image(a) || !is_image(b) || a->shape[1] != b->shape[1])
    return mismatch(call, "wants images [N,C,H,W] and weights [M,C,kh,kw] of f32, f16 or bf16");
  if (!weft__sliding_make(call->attrs, a->shape + 2, b->shape + 2, false, &s)) return mismatch(call, BAD_WINDOW);
  *out = (weft__shape){WEFT_F32, 4, {a->shape[0], b->shape[0], s.out[0], s.out[1]}};
  return check_columns(call, &s, a->shape[0], a->shape[1]);
}

/* Whether t is [n,channels,Ho,Wo], what windows make of n images. */
static bool is_made_by(const weft_tensor *t, const weft__sliding *s, int64_t n, int64_t channels) {
  return is_image(t) && t->shape[0] == n && t->shape[1] == channels && t->shape[2] == s->out[0] &&
         t->shape[3] == s->out[1];
}

weft_status weft__shape_conv2d_grad_input(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1];
  const weft_window2d_attrs *attrs = call->attrs;
  weft__sliding s = {.in = {0}};
  if (!is_image(a) || !is_image(b)) return mismatch(call, "wants dy [N,M,Ho,Wo] and weights [M,C,kh,kw]");
  if (!weft__sliding_make(attrs, attrs->input, b->shape + 2, false, &s)) return mismatch(call, BAD_WINDOW);
  if (!is_made_by(a, &s, a->shape[0], b->shape[0]))
    return mismatch(call, "wants dy [N,M,Ho,Wo] of the input's extents and weights [M,C,kh,kw]");
  *out = (weft__shape){WEFT_F32, 4, {a->shape[0], b->shape[1], s.in[0], s.in[1]}};
  return check_columns(call, &s, a->shape[0], b->shape[1]);
}

weft_status weft__shape_conv2d_grad_weight(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0], *b = call->in[1];
  const weft_window2d_attrs *attrs = call->attrs;
  weft__sliding s = {.in = {0}};
  if (!is_image(a) || !is_image(b)) return mismatch(call, "wants images [N,C,H,W] and dy [N,M,Ho,Wo]");
  if (!weft__sliding_make(attrs, a->shape + 2, attrs->kernel, false, &s)) return mismatch(call, BAD_WINDOW);
  if (!is_made_by(b, &s, a->shape[0], b->shape[1])) return mismatch(call, "wants images [N,C,H,W] and dy [N,M,Ho,Wo]");
  *out = (weft__shape){WEFT_F32, 4, {b->shape[1], a->shape[1], s.kernel[0], s.kernel[1]}};
  return check_columns(call, &s, a->shape[0], a->shape[1]);
}

static weft_status pool_rule(const weft__op_call *call, weft__sliding *s) {
  const weft_window2d_attrs *attrs = call->attrs;
  if (!is_image(call->in[0])) return mismatch(call, "wants images [N,C,H,W] of f32, f16 or bf16");
  if (!weft__sliding_make(attrs, call->in[0]->shape + 2, attrs->kernel, true, s))
    return mismatch(call,
                    "wants a kernel within the padded image, a padding of at most half of it, and nothing negative");
  return WEFT_OK;
}

weft_status weft__shape_max_pool2d(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  weft__sliding s = {.in = {0}};
  weft_status status = pool_rule(call, &s);
  if (!status) *out = (weft__shape){WEFT_F32, 4, {a->shape[0], a->shape[1], s.out[0], s.out[1]}};
  return status;
}

weft_status weft__shape_max_pool2d_grad(const weft__op_call *call, weft__shape *out) {
  const weft_tensor *a = call->in[0];
  weft__sliding s = {.in = {0}};
  weft_status status = pool_rule(call, &s);
  if (status) return status;
  if (!is_made_by(call->in[1], &s, a->shape[0], a->shape[1])) return mismatch(call, "wants dy [N,C,Ho,Wo]");
  shape_of(a, out);
  out->dtype = WEFT_F32;
  return WEFT_OK;
}
