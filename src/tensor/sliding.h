/* sliding.h - windows that slide over images (weft_window2d_attrs) with all defaults filled in. */
#ifndef WEFT_SLIDING_H
#define WEFT_SLIDING_H

#include "tensor/tensor.h"

/* Of both axes, height before width.  Window o of an axis meets places o * stride - padding + k * dilation, k < kernel. */
typedef struct weft__sliding {
  int64_t in[2], out[2]; /* extents of the images, and windows */
  int64_t kernel[2], stride[2], padding[2], dilation[2];
} weft__sliding;

/* Windows over images of extents in [H,W].  False if an attribute is none of these, or the kernel larger than the padded
 * image.  All numbers, and the extents of padded images, are below 2^31: sums and products of two do not overflow. */
bool weft__sliding_make(const weft_window2d_attrs *attrs, const int64_t *in, const int64_t *kernel, bool is_pooling,
                        weft__sliding *s);

/* The windows of a call that has passed its shape rule. */
weft__sliding weft__sliding_of(const weft__op_call *call);

/* Windows first .. end-1 of an axis whose element k lies at begin .. begin+n-1 of it. */
static inline void weft__sliding_range(const weft__sliding *s, int axis, int64_t k, int64_t begin, int64_t n,
                                       int64_t *first, int64_t *end) {
  int64_t stride = s->stride[axis], offset = k * s->dilation[axis] - s->padding[axis];
  int64_t low = begin - offset, high = begin + n - 1 - offset; /* of o * stride */
  *first = low > 0 ? (low + stride - 1) / stride : 0;
  *end = high >= 0 && n > 0 ? weft__min_i64(high / stride + 1, s->out[axis]) : 0;
  if (*end < *first) *end = *first;
}

/* Elements *first .. *end - 1 of an axis of the kernel, outside which windows o .. o + n - 1 meet none of the image. */
static inline void weft__sliding_elements(const weft__sliding *s, int axis, int64_t o, int64_t n, int64_t *first,
                                          int64_t *end) {
  int64_t dilation = s->dilation[axis], before = s->padding[axis] - (o + n - 1) * s->stride[axis];
  int64_t last = s->in[axis] - 1 + s->padding[axis] - o * s->stride[axis]; /* of k * dilation */
  *first = before > 0 ? (before + dilation - 1) / dilation : 0;
  *end = last >= 0 ? weft__min_i64(last / dilation + 1, s->kernel[axis]) : 0;
}

/* The place that window o meets with element k: perhaps outside the image. */
static inline int64_t weft__sliding_place(const weft__sliding *s, int axis, int64_t o, int64_t k) {
  return o * s->stride[axis] - s->padding[axis] + k * s->dilation[axis];
}

#endif
