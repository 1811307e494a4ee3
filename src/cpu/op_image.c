/* op_image.c - operators on images [N,C,H,W] that windows slide over: im2col, col2im, max_pool2d and its gradient.
 *
 * All work on runs along a row of windows, whose elements are a stride apart in the image; a run that is no contiguous f32
 * is gathered into scratch first. */
#include "cpu/cpu.h"
#include "tensor/sliding.h"

#include <math.h>   /* INFINITY */
#include <string.h> /* memcpy, memset */

typedef struct image_loop {
  weft__sliding s;
  const weft_tensor *x, *dy; /* or the columns of col2im */
  int64_t n_images, n_channels;
  float *y;
} image_loop;

static int64_t n_windows(const weft__sliding *s) { return s->out[0] * s->out[1]; }

static int64_t image_index(const weft_tensor *t, int64_t n, int64_t c, int64_t row, int64_t column) {
  return n * t->strides[0] + c * t->strides[1] + row * t->strides[2] + column * t->strides[3];
}

/* ---- im2col ---- */

/* Row `oy` of an image's windows at element (ky, kx) of the kernel: zeros outside the image. */
static void copy_window_row(const image_loop *l, int64_t n, int64_t c, int64_t ky, int64_t kx, int64_t oy, float *to) {
  const weft__sliding *s = &l->s;
  int64_t row = weft__sliding_place(s, 0, oy, ky), first = 0, end = 0;
  if (row >= 0 && row < s->in[0]) weft__sliding_range(s, 1, kx, 0, s->in[1], &first, &end);
  memset(to, 0, (size_t)first * sizeof *to);
  memset(to + end, 0, (size_t)(s->out[1] - end) * sizeof *to);
  if (first == end) return;
  int64_t index = image_index(l->x, n, c, row, weft__sliding_place(s, 1, first, kx));
  const float *run = weft__real_run(l->x, index, l->x->strides[3] * s->stride[1], end - first, to + first);
  if (run != to + first) memcpy(to + first, run, (size_t)(end - first) * sizeof *to);
}

/* A unit: a row of the result, an image's share of it. */
static void copy_windows(void *context, int64_t first, int64_t end) {
  const image_loop *l = context;
  for (int64_t unit = first; unit < end; unit++) {
    int64_t n = unit % l->n_images, row = unit / l->n_images;
    int64_t kx = row % l->s.kernel[1], ky = row / l->s.kernel[1] % l->s.kernel[0];
    int64_t c = row / l->s.kernel[1] / l->s.kernel[0];
    for (int64_t oy = 0; oy < l->s.out[0]; oy++)
      copy_window_row(l, n, c, ky, kx, oy, l->y + unit * n_windows(&l->s) + oy * l->s.out[1]);
  }
}

weft_status weft__cpu_im2col(weft__backend *backend, const weft__op_call *call) {
  image_loop l = {.s = weft__sliding_of(call), .x = call->in[0], .y = weft__cpu_data(call->out)};
  l.n_images = l.x->shape[0];
  weft__cpu_rows(weft__cpu_of(backend), call->out->shape[0] * l.n_images, n_windows(&l.s), copy_windows, &l);
  return WEFT_OK;
}

/* ---- col2im ---- */

/* sums[i] += what the windows that meet elements column .. column+n-1 of an image's row with element (ky, kx) have there. */
static void add_window_row(const image_loop *l, int64_t n_image, int64_t kernel_row, int64_t kx, int64_t oy,
                           int64_t column, int64_t n, double *sums) {
  const weft__sliding *s = &l->s;
  float scratch[WEFT__PIECE];
  int64_t first, end, step = l->x->strides[1];
  weft__sliding_range(s, 1, kx, column, n, &first, &end);
  if (first == end) return;
  int64_t window = n_image * n_windows(s) + oy * s->out[1] + first;
  const float *run = weft__real_run(l->x, kernel_row * l->x->strides[0] + window * step, step, end - first, scratch);
  double *to = sums + weft__sliding_place(s, 1, first, kx) - column;
  for (int64_t i = 0; i < end - first; i++) to[i * s->stride[1]] += (double)run[i];
}

/* A unit: a row of an image's channel. */
static void add_windows(void *context, int64_t first_unit, int64_t end_unit) {
  const image_loop *l = context;
  const weft__sliding *s = &l->s;
  double sums[WEFT__PIECE];
  for (int64_t unit = first_unit; unit < end_unit; unit++) {
    int64_t row = unit % s->in[0], c = unit / s->in[0] % l->n_channels, image = unit / s->in[0] / l->n_channels;
    for (int64_t column = 0; column < s->in[1]; column += WEFT__PIECE) {
      int64_t n = weft__min_i64(WEFT__PIECE, s->in[1] - column), oy, none;
      memset(sums, 0, sizeof sums);
      for (int64_t ky = 0; ky < s->kernel[0]; ky++) {
        weft__sliding_range(s, 0, ky, row, 1, &oy, &none);
        for (int64_t kx = 0; kx < s->kernel[1] && oy < none; kx++)
          add_window_row(l, image, (c * s->kernel[0] + ky) * s->kernel[1] + kx, kx, oy, column, n, sums);
      }
      for (int64_t i = 0; i < n; i++) l->y[unit * s->in[1] + column + i] = (float)sums[i];
    }
  }
}

weft_status weft__cpu_col2im(weft__backend *backend, const weft__op_call *call) {
  const weft_tensor *y = call->out;
  image_loop l = {.s = weft__sliding_of(call), .x = call->in[0], .n_channels = y->shape[1], .y = weft__cpu_data(y)};
  if (weft_tensor_numel(y) > 0)
    weft__cpu_rows(weft__cpu_of(backend), y->shape[0] * y->shape[1] * y->shape[2],
                   y->shape[3] * l.s.kernel[0] * l.s.kernel[1], add_windows, &l);
  return WEFT_OK;
}

/* ---- max_pool2d ---- */

/* What windows first_window .. + n - 1 of a row meet with element kx of the kernel in a row of the image: their largest so
 * far, and the places of these. */
static void meet_row(const image_loop *l, int64_t n_image, int64_t c, int64_t row, int64_t kx, int64_t first_window,
                     int64_t n, float *largest, int64_t *places) {
  const weft__sliding *s = &l->s;
  float scratch[WEFT__PIECE];
  int64_t first, end;
  weft__sliding_range(s, 1, kx, 0, s->in[1], &first, &end);
  first = weft__max_i64(first, first_window);
  end = weft__min_i64(end, first_window + n);
  if (first >= end) return;
  int64_t column = weft__sliding_place(s, 1, first, kx), place = row * s->in[1] + column;
  const float *run = weft__real_run(l->x, image_index(l->x, n_image, c, row, column), l->x->strides[3] * s->stride[1],
                                    end - first, scratch);
  for (int64_t o = first; o < end; o++, place += s->stride[1]) {
    int64_t i = o - first_window;
    if (places[i] >= 0 && !weft__ranks_before(run[o - first], place, largest[i], places[i])) continue;
    largest[i] = run[o - first];
    places[i] = place;
  }
}

/* Largest elements of windows (oy, first_window ..) of a channel, at most WEFT__PIECE of them, and their places in it: -inf
 * and -1 where a window meets none. */
static void find_largest(const image_loop *l, int64_t n_image, int64_t c, int64_t oy, int64_t first_window, int64_t n,
                         float *largest, int64_t *places) {
  int64_t top, bottom, left, right;
  for (int64_t i = 0; i < n; i++) largest[i] = -INFINITY, places[i] = -1;
  weft__sliding_elements(&l->s, 0, oy, 1, &top, &bottom);
  weft__sliding_elements(&l->s, 1, first_window, n, &left, &right);
  for (int64_t ky = top; ky < bottom; ky++)
    for (int64_t kx = left; kx < right; kx++)
      meet_row(l, n_image, c, weft__sliding_place(&l->s, 0, oy, ky), kx, first_window, n, largest, places);
}

/* A unit: a row of a channel's windows. */
static void pool_rows(void *context, int64_t first, int64_t end) {
  const image_loop *l = context;
  int64_t places[WEFT__PIECE], n_rows = l->s.out[0], width = l->s.out[1];
  for (int64_t unit = first; unit < end; unit++) {
    int64_t channel = unit / n_rows;
    for (int64_t o = 0; o < width; o += WEFT__PIECE)
      find_largest(l, channel / l->n_channels, channel % l->n_channels, unit % n_rows, o,
                   weft__min_i64(WEFT__PIECE, width - o), l->y + unit * width + o, places);
  }
}

weft_status weft__cpu_max_pool2d(weft__backend *backend, const weft__op_call *call) {
  image_loop l = {.s = weft__sliding_of(call), .x = call->in[0], .y = weft__cpu_data(call->out)};
  l.n_channels = l.x->shape[1];
  weft__cpu_rows(weft__cpu_of(backend), l.x->shape[0] * l.n_channels * l.s.out[0],
                 l.s.out[1] * l.s.kernel[0] * l.s.kernel[1], pool_rows, &l);
  return WEFT_OK;
}

/* A unit: a channel of an image, whose windows add to it in their order. */
static void pool_channels_grad(void *context, int64_t first, int64_t end) {
  const image_loop *l = context;
  float largest[WEFT__PIECE], scratch[WEFT__PIECE];
  int64_t places[WEFT__PIECE], plane = l->s.in[0] * l->s.in[1];
  for (int64_t unit = first; unit < end; unit++) {
    int64_t image = unit / l->n_channels, c = unit % l->n_channels;
    float *dx = l->y + unit * plane;
    memset(dx, 0, (size_t)plane * sizeof *dx);
    for (int64_t oy = 0; oy < l->s.out[0]; oy++)
      for (int64_t o = 0; o < l->s.out[1]; o += WEFT__PIECE) {
        int64_t n = weft__min_i64(WEFT__PIECE, l->s.out[1] - o);
        find_largest(l, image, c, oy, o, n, largest, places);
        const float *dy = weft__real_run(l->dy, image_index(l->dy, image, c, oy, o), l->dy->strides[3], n, scratch);
        for (int64_t i = 0; i < n; i++)
          if (places[i] >= 0) dx[places[i]] += dy[i];
      }
  }
}

weft_status weft__cpu_max_pool2d_grad(weft__backend *backend, const weft__op_call *call) {
  image_loop l = {.s = weft__sliding_of(call), .x = call->in[0], .dy = call->in[1], .y = weft__cpu_data(call->out)};
  l.n_channels = l.x->shape[1];
  weft__cpu_rows(weft__cpu_of(backend), l.x->shape[0] * l.n_channels, n_windows(&l.s) * l.s.kernel[0] * l.s.kernel[1],
                 pool_channels_grad, &l);
  return WEFT_OK;
}
