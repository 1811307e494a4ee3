/* op_image.c - operators on images that windows slide over: im2col, col2im, max_pool2d and its gradient.
 *
 * Every element of a result is gathered by one invocation, so that nothing is added to by two.  Results beyond one binding
 * are made in windows (im2col by rows, col2im by elements); pooling takes as many images at a time as fit. */
#include "gpu/gpu.h"
#include "tensor/sliding.h"

#include <math.h> /* INFINITY */

enum { PER_GROUP = 256, ROWS = 8 /* of im2col.wgsl */, MOST_GROUPS = 65535 };

/* Whether the kernels can count places of the padded image. */
static bool is_countable(const weft__sliding *s) {
  return s->in[0] + 2 * s->padding[0] <= INT32_MAX && s->in[1] + 2 * s->padding[1] <= INT32_MAX;
}

static weft__gpu_image_params image_params(const weft__sliding *s, int64_t n_images, int64_t n_channels) {
  return (weft__gpu_image_params){
      .n_images = (uint32_t)n_images,
      .n_channels = (uint32_t)n_channels,
      .height = (uint32_t)s->in[0],
      .width = (uint32_t)s->in[1],
      .out_height = (uint32_t)s->out[0],
      .out_width = (uint32_t)s->out[1],
      .kernel_height = (uint32_t)s->kernel[0],
      .kernel_width = (uint32_t)s->kernel[1],
      .stride_y = (uint32_t)s->stride[0],
      .stride_x = (uint32_t)s->stride[1],
      .padding_y = (uint32_t)s->padding[0],
      .padding_x = (uint32_t)s->padding[1],
      .dilation_y = (uint32_t)s->dilation[0],
      .dilation_x = (uint32_t)s->dilation[1],
  };
}

static void set_image_strides(weft__gpu_image_params *p, const weft_tensor *a) {
  p->a_image = (uint32_t)a->strides[0];
  p->a_channel = (uint32_t)a->strides[1];
  p->a_row = (uint32_t)a->strides[2];
  p->a_column = (uint32_t)a->strides[3];
}

static uint64_t n_groups(int64_t n) { return (uint64_t)((n + PER_GROUP - 1) / PER_GROUP); }

/* The result for images without elements, which windows may meet the padding of. */
static weft_status fill_with(weft__backend *backend, weft_tensor *y, float value) {
  const weft_fill_attrs attrs = {value};
  const weft__op_call call = {.op = WEFT_OP_ID_fill, .attrs = &attrs, .out = y};
  return weft__gpu_fill(backend, &call);
}

/* ---- columns ---- */

weft_status weft__gpu_im2col(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *a = call->in[0];
  weft_tensor *y = call->out;
  const weft__sliding s = weft__sliding_of(call);
  int64_t n_rows = y->shape[0], n_columns = y->shape[1], window = weft__gpu_window_elements(gpu);
  if (weft_tensor_numel(y) == 0) return WEFT_OK;
  if (weft_tensor_numel(a) == 0) return fill_with(backend, y, 0);
  if (!is_countable(&s) || weft__tensor_span(a) > window || n_columns > window)
    return weft__gpu_too_large(gpu, "im2col");
  weft__gpu_image_params p = image_params(&s, a->shape[0], a->shape[1]);
  set_image_strides(&p, a);
  const weft__wgsl_const constants[] = {{"DTYPE", a->dtype}, {NULL, 0}};
  int64_t rows = weft__min_i64(window / n_columns, (int64_t)MOST_GROUPS * ROWS);
  uint32_t groups[3] = {(uint32_t)weft__min_i64((int64_t)n_groups(n_columns), MOST_GROUPS)};
  groups[1] = (uint32_t)((n_groups(n_columns) + groups[0] - 1) / groups[0]);
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n_rows && !status; first += rows) {
    int64_t n = weft__min_i64(rows, n_rows - first);
    p.first = (uint32_t)first;
    p.n = (uint32_t)n;
    groups[2] = (uint32_t)((n + ROWS - 1) / ROWS);
    const weft__gpu_range ranges[] = {weft__gpu_window(gpu, a, 0, weft__tensor_span(a), &p.a_offset),
                                      weft__gpu_window(gpu, y, first * n_columns, n * n_columns, &p.y_offset)};
    status = weft__gpu_dispatch3(gpu, WEFT__KERNEL_im2col, constants, ranges, &p, groups);
  }
  return status;
}

weft_status weft__gpu_col2im(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *a = call->in[0], *y = call->out;
  const weft__sliding s = weft__sliding_of(call);
  int64_t n = weft_tensor_numel(y), window = weft__gpu_window_elements(gpu);
  if (n == 0) return WEFT_OK;
  if (!is_countable(&s) || weft__tensor_span(a) > window || n > UINT32_MAX) return weft__gpu_too_large(gpu, "col2im");
  weft__gpu_image_params p = image_params(&s, y->shape[0], y->shape[1]);
  p.a_row = (uint32_t)a->strides[0];
  p.a_column = (uint32_t)a->strides[1];
  const weft__wgsl_const constants[] = {{"DTYPE", a->dtype}, {NULL, 0}};
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window) {
    int64_t count = weft__min_i64(window, n - first);
    p.first = (uint32_t)first;
    p.n = (uint32_t)count;
    const weft__gpu_range ranges[] = {weft__gpu_window(gpu, a, 0, weft__tensor_span(a), &p.a_offset),
                                      weft__gpu_window(gpu, y, first, count, &p.y_offset)};
    status = weft__gpu_dispatch(gpu, WEFT__KERNEL_col2im, constants, ranges, &p, n_groups(count));
  }
  return status;
}

/* ---- pooling ---- */

/* n images of t from `first` on. */
static weft_tensor images_of(const weft_tensor *t, int64_t first, int64_t n) {
  weft_tensor part = *t;
  part.offset += first * t->strides[0];
  part.shape[0] = n;
  return part;
}

/* How many images of t fit a window. */
static int64_t images_per_window(const weft__gpu *gpu, const weft_tensor *t) {
  weft_tensor one = images_of(t, 0, 1);
  int64_t room = weft__gpu_window_elements(gpu) - weft__tensor_span(&one);
  if (room < 0) return 0;
  return t->strides[0] == 0 ? weft__max_i64(t->shape[0], 1) : room / t->strides[0] + 1;
}

/* The largest elements, or their places. */
static weft_status pool(weft__gpu *gpu, const weft__sliding *s, const weft_tensor *a, bool wants_places,
                        const weft_tensor *y) {
  weft__gpu_image_params p = image_params(s, a->shape[0], a->shape[1]);
  set_image_strides(&p, a);
  p.n = (uint32_t)weft_tensor_numel(y);
  const weft__wgsl_const constants[] = {{"DTYPE", a->dtype}, {"PLACES", wants_places}, {NULL, 0}};
  const weft__gpu_range ranges[] = {weft__gpu_window(gpu, a, 0, weft__tensor_span(a), &p.a_offset),
                                    weft__gpu_window(gpu, y, 0, p.n, &p.y_offset)};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_max_pool2d, constants, ranges, &p, n_groups(p.n));
}

weft_status weft__gpu_max_pool2d(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *a = call->in[0];
  const weft__sliding s = weft__sliding_of(call);
  if (weft_tensor_numel(call->out) == 0) return WEFT_OK;
  if (weft_tensor_numel(a) == 0) return fill_with(backend, call->out, -INFINITY);
  int64_t n = weft__min_i64(images_per_window(gpu, a), images_per_window(gpu, call->out));
  if (n == 0 || !is_countable(&s)) return weft__gpu_too_large(gpu, "max_pool2d");
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < a->shape[0] && !status; first += n) {
    int64_t count = weft__min_i64(n, a->shape[0] - first);
    const weft_tensor some = images_of(a, first, count), y = images_of(call->out, first, count);
    status = pool(gpu, &s, &some, false, &y);
  }
  return status;
}

/* The places of the windows' largest elements are found first, so that each element looks at few of them. */
static weft_status pool_grad(weft__gpu *gpu, const weft__sliding *s, const weft_tensor *a, const weft_tensor *dy,
                             const weft_tensor *y) {
  weft__storage storage = {.backend = &gpu->base, .n_bytes = (size_t)weft_tensor_numel(dy) * sizeof(uint32_t)};
  weft_tensor places = *dy;
  places.dtype = WEFT_I32;
  places.offset = 0;
  places.storage = &storage;
  weft__shape_strides(places.rank, places.shape, places.strides);
  weft_status status = weft__gpu_alloc(&gpu->base, storage.n_bytes, &storage.buffer);
  if (status) return status;
  status = pool(gpu, s, a, true, &places);
  weft__gpu_image_params p = image_params(s, a->shape[0], a->shape[1]);
  p.b_image = (uint32_t)dy->strides[0];
  p.b_channel = (uint32_t)dy->strides[1];
  p.b_row = (uint32_t)dy->strides[2];
  p.b_column = (uint32_t)dy->strides[3];
  p.n = (uint32_t)weft_tensor_numel(y);
  const weft__wgsl_const constants[] = {{"B_DTYPE", dy->dtype}, {NULL, 0}};
  const weft__gpu_range ranges[] = {weft__gpu_window(gpu, &places, 0, weft_tensor_numel(&places), &p.a_offset),
                                    weft__gpu_window(gpu, dy, 0, weft__tensor_span(dy), &p.b_offset),
                                    weft__gpu_window(gpu, y, 0, p.n, &p.y_offset)};
  if (!status) status = weft__gpu_dispatch(gpu, WEFT__KERNEL_max_pool2d_grad, constants, ranges, &p, n_groups(p.n));
  weft__gpu_free(&gpu->base, storage.buffer, storage.n_bytes);
  return status;
}

weft_status weft__gpu_max_pool2d_grad(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *a = call->in[0], *dy = call->in[1];
  const weft__sliding s = weft__sliding_of(call);
  if (weft_tensor_numel(a) == 0) return WEFT_OK;
  int64_t n = weft__min_i64(images_per_window(gpu, a), images_per_window(gpu, call->out));
  n = weft__min_i64(n, images_per_window(gpu, dy));
  n = weft__min_i64(n, weft__gpu_window_elements(gpu) / weft__max_i64(dy->shape[1] * s.out[0] * s.out[1], 1));
  if (n == 0 || !is_countable(&s)) return weft__gpu_too_large(gpu, "max_pool2d_grad");
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < a->shape[0] && !status; first += n) {
    int64_t count = weft__min_i64(n, a->shape[0] - first);
    const weft_tensor some = images_of(a, first, count), its_dy = images_of(dy, first, count),
                      y = images_of(call->out, first, count);
    status = pool_grad(gpu, &s, &some, &its_dy, &y);
  }
  return status;
}
