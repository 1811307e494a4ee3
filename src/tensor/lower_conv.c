/* lower_conv.c - convolution and its gradients as im2col, a matrix product, and col2im.
 *
 * Columns are made for as many images at a time as fit COLUMN_ELEMENTS, so that a batch of any size takes the memory of a
 * few images; each round has a scope of its own. */
#include "tensor/sliding.h"

enum { COLUMN_ELEMENTS = 1 << 22 };

typedef struct convolution {
  weft__sliding s;
  weft_window2d_attrs window; /* complete */
  int64_t n_images, n_channels, n_filters, per_round;
  weft_tensor *x, *dy; /* [N,C,H,W], [N,M,Ho,Wo]: those that the operator has */
  weft_tensor *w;      /* [M,C*kh*kw] or NULL */
} convolution;

/* t, or a copy of it if it is no contiguous f32. */
static weft_tensor *as_contiguous(weft_scope *scope, weft_tensor *t) {
  return t && t->dtype == WEFT_F32 && weft__is_contiguous(t) ? t : weft_cast(scope, t, &(weft_cast_attrs){WEFT_F32});
}

static weft_tensor *as_matrix(weft_scope *scope, weft_tensor *t, int64_t n_rows, int64_t n_columns) {
  return weft_reshape(scope, as_contiguous(scope, t), 2, (int64_t[]){n_rows, n_columns});
}

static convolution get_convolution(const weft__op_call *call, int64_t n_images, int64_t n_channels, int64_t n_filters) {
  convolution c = {.s = weft__sliding_of(call), .n_images = n_images, .n_channels = n_channels, .n_filters = n_filters};
  for (int i = 0; i < 2; i++) {
    c.window.input[i] = c.s.in[i];
    c.window.kernel[i] = c.s.kernel[i];
    c.window.stride[i] = c.s.stride[i];
    c.window.padding[i] = c.s.padding[i];
    c.window.dilation[i] = c.s.dilation[i];
  }
  /* The shape rule has checked both factors; as a double, their product cannot overflow. */
  double n = (double)(n_channels * c.s.kernel[0] * c.s.kernel[1]) * (double)(c.s.out[0] * c.s.out[1]);
  c.per_round = n < COLUMN_ELEMENTS ? COLUMN_ELEMENTS / weft__max_i64((int64_t)n, 1) : 1;
  return c;
}

static int64_t window_elements(const convolution *c) { return c->n_channels * c->s.kernel[0] * c->s.kernel[1]; }

/* Columns [C*kh*kw, n*Ho*Wo] of images first .. first+n-1. */
static weft_tensor *columns_of(weft_scope *scope, const convolution *c, int64_t first, int64_t n) {
  return weft_im2col(scope, weft_slice(scope, c->x, 0, first, n), &c->window);
}

/* Their dy as [M, n*Ho*Wo]. */
static weft_tensor *dy_of(weft_scope *scope, const convolution *c, int64_t first, int64_t n) {
  weft_tensor *dy = weft_permute(scope, weft_slice(scope, c->dy, 0, first, n), (const int[]){1, 0, 2, 3});
  return as_matrix(scope, dy, c->n_filters, n * c->s.out[0] * c->s.out[1]);
}

/* What a round makes of images first .. first+n-1. */
typedef weft_tensor *(*round_function)(weft_scope *scope, const convolution *c, int64_t first, int64_t n);

/* Images of all rounds behind each other, in a tensor [N,...] of this shape; the rounds' may be any view. */
static weft_tensor *gather_rounds(weft_scope *scope, const convolution *c, const int64_t *shape, round_function run) {
  if (c->n_images <= c->per_round) return as_contiguous(scope, run(scope, c, 0, c->n_images));
  weft_tensor *all = weft_tensor_new(scope, WEFT_F32, 4, shape);
  weft_status status = all ? WEFT_OK : weft_last_status();
  for (int64_t first = 0; first < c->n_images && !status; first += c->per_round) {
    weft_scope *round;
    status = weft_scope_open(&round, weft__scope_device(scope), scope);
    if (status) break;
    weft_tensor *part = run(round, c, first, weft__min_i64(c->per_round, c->n_images - first));
    if (!weft_copy_rows_into(round, all, part, &(weft_copy_rows_into_attrs){first})) status = weft_last_status();
    weft_scope_close(round);
  }
  return status ? NULL : all;
}

/* ---- the convolution ---- */

static weft_tensor *convolve(weft_scope *scope, const convolution *c, int64_t first, int64_t n) {
  weft_tensor *y = weft_matmul(scope, c->w, columns_of(scope, c, first, n), &(weft_matmul_attrs){0, 0});
  y = weft_reshape(scope, y, 4, (int64_t[]){c->n_filters, n, c->s.out[0], c->s.out[1]});
  return weft_permute(scope, y, (const int[]){1, 0, 2, 3});
}

weft_tensor *weft__lower_conv2d(weft_scope *scope, const weft__op_call *call) {
  weft_tensor *x = call->in[0], *w = call->in[1];
  convolution c = get_convolution(call, x->shape[0], x->shape[1], w->shape[0]);
  c.x = x;
  c.w = as_matrix(scope, w, c.n_filters, window_elements(&c));
  return gather_rounds(scope, &c, (int64_t[]){c.n_images, c.n_filters, c.s.out[0], c.s.out[1]}, convolve);
}

/* ---- its gradients ---- */

static weft_tensor *convolve_back(weft_scope *scope, const convolution *c, int64_t first, int64_t n) {
  weft_tensor *columns = weft_matmul(scope, c->w, dy_of(scope, c, first, n), &(weft_matmul_attrs){.transpose_a = 1});
  return weft_col2im(scope, columns, &c->window);
}

weft_tensor *weft__lower_conv2d_grad_input(weft_scope *scope, const weft__op_call *call) {
  weft_tensor *dy = call->in[0], *w = call->in[1];
  convolution c = get_convolution(call, dy->shape[0], w->shape[1], dy->shape[1]);
  c.dy = dy;
  c.w = as_matrix(scope, w, c.n_filters, window_elements(&c));
  return gather_rounds(scope, &c, (int64_t[]){c.n_images, c.n_channels, c.s.in[0], c.s.in[1]}, convolve_back);
}

/* The sum of the rounds' products columns dy^T, in their order; then it is turned.  Filters are many and even in number where
 * the elements of a window may be 27 or 147, and products have the even extent innermost. */
weft_tensor *weft__lower_conv2d_grad_weight(weft_scope *scope, const weft__op_call *call) {
  weft_tensor *x = call->in[0], *dy = call->in[1], *sum = NULL;
  convolution c = get_convolution(call, x->shape[0], x->shape[1], dy->shape[1]);
  c.x = x;
  c.dy = dy;
  int64_t first = 0;
  do {
    weft_scope *round;
    if (weft_scope_open(&round, weft__scope_device(scope), scope)) return NULL;
    int64_t n = weft__min_i64(c.per_round, c.n_images - first);
    weft_tensor *part = weft_matmul(round, columns_of(round, &c, first, n), dy_of(round, &c, first, n),
                                    &(weft_matmul_attrs){.transpose_b = 1});
    if (first > 0) part = weft_add(round, sum, part);
    weft_tensor *before = sum;
    sum = part ? weft_scope_keep(round, part) : NULL;
    weft_tensor_free(before);
    weft_scope_close(round);
    if (!sum) return NULL;
    first += n;
  } while (first < c.n_images);
  sum = weft_contiguous(scope, weft_permute(scope, sum, (const int[]){1, 0}));
  return weft_reshape(scope, sum, 4, (int64_t[]){c.n_filters, c.n_channels, c.s.kernel[0], c.s.kernel[1]});
}
