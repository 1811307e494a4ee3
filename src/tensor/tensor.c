/* tensor.c - tensor handles and their storage: making, viewing, reading, writing, freeing.
 *
 * Invariants: a handle's elements lie inside its storage; storage is freed with its last handle. */
#include "tensor/tensor.h"

#include <string.h> /* memcpy */

static weft__storage *storage_new(weft__backend *backend) {
  weft__storage *s = weft__calloc(1, sizeof *s);
  if (!s) return NULL;
  atomic_init(&s->n_refs, 1);
  s->backend = backend;
  return s;
}

static void storage_release(weft__storage *s) {
  if (atomic_fetch_sub_explicit(&s->n_refs, 1, memory_order_acq_rel) != 1) return;
  if (!s->is_borrowed) s->backend->class->free(s->backend, s->buffer, s->n_bytes);
  weft_free(s);
}

weft_tensor *weft__tensor_make(weft_scope *scope, weft_dtype dtype, int rank, const int64_t *shape,
                               weft__storage *storage) {
  weft_tensor *t = weft__calloc(1, sizeof *t);
  if (!t) {
    storage_release(storage);
    return NULL;
  }
  t->dtype = dtype;
  t->rank = rank;
  for (int i = 0; i < rank; i++) t->shape[i] = shape[i];
  weft__shape_strides(rank, shape, t->strides);
  t->storage = storage;
  weft__scope_attach(scope, t);
  return t;
}

weft_tensor *weft__tensor_alias(weft_scope *scope, const weft_tensor *t) {
  if (weft__scope_backend(scope) != t->storage->backend) {
    weft__error(WEFT_EINVAL, "view: the scope and the tensor are on different devices");
    return NULL;
  }
  atomic_fetch_add_explicit(&t->storage->n_refs, 1, memory_order_relaxed);
  weft_tensor *view = weft__tensor_make(scope, t->dtype, t->rank, t->shape, t->storage);
  if (!view) return NULL;
  memcpy(view->strides, t->strides, sizeof view->strides);
  view->offset = t->offset;
  return view;
}

/* Checks a shape and gives its size; the message says what is wrong. */
static weft_status check_shape(weft_dtype dtype, int rank, const int64_t *shape, size_t *n_bytes) {
  int64_t numel;
  if ((unsigned)dtype >= WEFT_DTYPE_COUNT) return weft__error(WEFT_EINVAL, "tensor: unknown dtype %d", (int)dtype);
  if (rank < 0 || rank > WEFT_MAX_RANK)
    return weft__error(WEFT_EINVAL, "tensor: rank %d (0 to %d axes)", rank, WEFT_MAX_RANK);
  if (!weft__shape_numel(rank, shape, &numel))
    return weft__error(WEFT_EINVAL, "tensor: an extent is negative or their product overflows");
  if (rank == 0 && weft__dtype_get(dtype)->is_quantised)
    return weft__error(WEFT_EINVAL, "tensor: a %s tensor is made of rows, so it has an axis", weft_dtype_name(dtype));
  if (!weft__shape_bytes(dtype, rank, shape, n_bytes)) return weft__error(WEFT_EINVAL, "tensor: its size overflows");
  return WEFT_OK;
}

weft_tensor *weft_tensor_new(weft_scope *scope, weft_dtype dtype, int rank, const int64_t *shape) {
  size_t n_bytes;
  if (check_shape(dtype, rank, shape, &n_bytes)) return NULL;
  weft__backend *backend = weft__scope_backend(scope);
  weft__storage *s = storage_new(backend);
  if (!s) return NULL;
  s->n_bytes = n_bytes;
  if (backend->class->alloc(backend, n_bytes, &s->buffer)) {
    weft_free(s);
    return NULL;
  }
  return weft__tensor_make(scope, dtype, rank, shape, s);
}

weft_tensor *weft_weight_from(weft_scope *scope, weft_dtype dtype, int64_t n_rows, int64_t n_cols, const void *data) {
  return weft__weight_load(scope, dtype, 2, (const int64_t[]){n_rows, n_cols}, data, WEFT__WEIGHT_PRODUCT, NULL);
}

weft_tensor *weft_tensor_from(weft_scope *scope, weft_dtype dtype, int rank, const int64_t *shape, const void *data) {
  weft_tensor *t = weft_tensor_new(scope, dtype, rank, shape);
  if (t && weft_tensor_write(t, data, weft_tensor_bytes(t))) {
    weft_tensor_free(t);
    return NULL;
  }
  return t;
}

weft_tensor *weft__weight_load(weft_scope *scope, weft_dtype dtype, int rank, const int64_t *shape, const void *data,
                               weft__weight_use use, const weft__weight_reader *reader) {
  size_t n_bytes;
  if (check_shape(dtype, rank, shape, &n_bytes)) return NULL;
  weft__backend *backend = weft__scope_backend(scope);
  weft__storage *s = storage_new(backend);
  if (!s) return NULL;
  int64_t n_rows = rank == 2 ? shape[0] : 1;
  if (backend->class->load_weight(backend, dtype, n_rows, shape[rank - 1], data, use, reader, s)) {
    weft_free(s);
    return NULL;
  }
  return weft__tensor_make(scope, dtype, rank, shape, s);
}

void weft_tensor_free(weft_tensor *tensor) {
  if (!tensor) return;
  weft__scope_detach(tensor);
  storage_release(tensor->storage);
  weft_free(tensor);
}

weft_dtype weft_tensor_dtype(const weft_tensor *tensor) { return tensor->dtype; }
int weft_tensor_rank(const weft_tensor *tensor) { return tensor->rank; }
const int64_t *weft_tensor_shape(const weft_tensor *tensor) { return tensor->shape; }
const int64_t *weft_tensor_strides(const weft_tensor *tensor) { return tensor->strides; }
int64_t weft_tensor_numel(const weft_tensor *tensor) { return weft__n_rows(tensor) * weft__n_cols(tensor); }

size_t weft_tensor_bytes(const weft_tensor *tensor) {
  size_t n_bytes = 0;
  weft__shape_bytes(tensor->dtype, tensor->rank, tensor->shape, &n_bytes); /* checked when the tensor was made */
  return n_bytes;
}

/* ---- reading and writing ---- */

static weft_status check_transfer(const weft_tensor *t, size_t n_bytes) {
  if (n_bytes != weft_tensor_bytes(t))
    return weft__error(WEFT_EINVAL, "tensor: %zu bytes given for a tensor of %zu", n_bytes, weft_tensor_bytes(t));
  return WEFT_OK;
}

/* Byte position of element `index` (a block boundary) of the storage. */
static size_t byte_offset(const weft_tensor *t, int64_t index) {
  size_t n_bytes = 0;
  weft__dtype_bytes(t->dtype, index, &n_bytes);
  return n_bytes;
}

/* Copies axis `axis` of `t` from element `index` on to *data in row-major order, a contiguous run at a time. */
static weft_status read_axis(const weft_tensor *t, int axis, int run_axis, int64_t index, char **data) {
  weft__backend *backend = t->storage->backend;
  if (axis == run_axis) {
    int64_t run = 1;
    for (int i = axis; i < t->rank; i++) run *= t->shape[i];
    size_t n = byte_offset(t, run);
    weft_status status = backend->class->read(backend, t->storage->buffer, byte_offset(t, index), *data, n);
    *data += n;
    return status;
  }
  for (int64_t i = 0; i < t->shape[axis]; i++) {
    weft_status status = read_axis(t, axis + 1, run_axis, index + i * t->strides[axis], data);
    if (status) return status;
  }
  return WEFT_OK;
}

/* Copies axis `axis` of `t`, element `index` of whose span it begins with, to *data in row-major order. */
static void gather_axis(const weft_tensor *t, size_t size, int axis, int64_t index, const char *span, char **data) {
  if (axis == t->rank) {
    memcpy(*data, span + (size_t)index * size, size);
    *data += size;
    return;
  }
  for (int64_t i = 0; i < t->shape[axis]; i++) gather_axis(t, size, axis + 1, index + i * t->strides[axis], span, data);
}

/* Reads everything from the first element to the last at once, as each transfer from a device takes its time. */
static weft_status read_span(const weft_tensor *t, int64_t n_span, char *data) {
  weft__backend *backend = t->storage->backend;
  size_t n_bytes = byte_offset(t, n_span);
  char *span = weft__alloc(n_bytes, 1);
  if (!span) return WEFT_ENOMEM;
  weft_status status = backend->class->read(backend, t->storage->buffer, byte_offset(t, t->offset), span, n_bytes);
  if (!status) gather_axis(t, byte_offset(t, 1), 0, 0, span, &data);
  weft_free(span);
  return status;
}

weft_status weft_tensor_read(const weft_tensor *tensor, void *data, size_t n_bytes) {
  weft_status status = check_transfer(tensor, n_bytes);
  weft__backend *backend = tensor->storage->backend;
  if (!status && n_bytes == 0 && backend->class->sync) return backend->class->sync(backend); /* which tells faults */
  if (status || n_bytes == 0) return status;
  if (tensor->storage->layout == WEFT__LAYOUT_PACKED) return backend->class->read_packed(backend, tensor, data);
  if (weft__dtype_get(tensor->dtype)->is_quantised) /* which has no views but itself */
    return backend->class->read(backend, tensor->storage->buffer, 0, data, n_bytes);
  /* The innermost axes that lie contiguously make one run. */
  int run_axis = tensor->rank;
  int64_t stride = 1;
  while (run_axis > 0 && (tensor->shape[run_axis - 1] == 1 || tensor->strides[run_axis - 1] == stride))
    stride *= tensor->shape[--run_axis];
  enum { MOST_SPAN = 1 << 24 };
  int64_t n_span = weft__tensor_span(tensor);
  bool is_remote = backend->class->flush != NULL;
  if (is_remote && run_axis > 0 && n_span <= MOST_SPAN) return read_span(tensor, n_span, data);
  char *to = data;
  return read_axis(tensor, 0, run_axis, tensor->offset, &to);
}

weft_status weft_tensor_write(weft_tensor *tensor, const void *data, size_t n_bytes) {
  if (tensor->storage->layout == WEFT__LAYOUT_PACKED)
    return weft__error(WEFT_EUNSUPPORTED, "tensor: a packed product weight cannot be written");
  weft_status status = check_transfer(tensor, n_bytes);
  if (status || n_bytes == 0) return status;
  if (!weft__is_contiguous(tensor)) return weft__error(WEFT_EINVAL, "tensor: only a contiguous tensor is written");
  weft__backend *backend = tensor->storage->backend;
  return backend->class->write(backend, tensor->storage->buffer, byte_offset(tensor, tensor->offset), data, n_bytes);
}

/* ---- views ---- */

static weft_tensor *no_tensor(const char *what) {
  if (!weft_last_status()) weft__error(WEFT_EINVAL, "%s: the tensor is NULL", what);
  return NULL;
}

static weft_tensor *view_error(const weft_tensor *t, const char *what) {
  char text[160];
  weft__error(WEFT_EINVAL, "%s: does not fit a tensor %s", what, weft__shape_text(t, text));
  return NULL;
}

static bool is_viewable(const weft_tensor *t) {
  return t->storage->layout == WEFT__LAYOUT_PLAIN && !weft__dtype_get(t->dtype)->is_quantised;
}

weft_tensor *weft_slice(weft_scope *scope, weft_tensor *tensor, int axis, int64_t start, int64_t length) {
  if (!tensor) return no_tensor("slice");
  if (axis < 0 || axis >= tensor->rank || start < 0 || length < 0 || start > tensor->shape[axis] - length ||
      !is_viewable(tensor))
    return view_error(tensor, "slice");
  weft_tensor *view = weft__tensor_alias(scope, tensor);
  if (!view) return NULL;
  view->offset += start * view->strides[axis];
  view->shape[axis] = length;
  return view;
}

weft_tensor *weft_reshape(weft_scope *scope, weft_tensor *tensor, int rank, const int64_t *shape) {
  int64_t numel, strides[WEFT_MAX_RANK];
  if (!tensor) return no_tensor("reshape");
  if (rank < 0 || rank > WEFT_MAX_RANK || !weft__shape_numel(rank, shape, &numel) ||
      numel != weft_tensor_numel(tensor) || !weft__reshaped_strides(tensor, rank, shape, strides) ||
      !is_viewable(tensor))
    return view_error(tensor, "reshape");
  weft_tensor *view = weft__tensor_alias(scope, tensor);
  if (!view) return NULL;
  view->rank = rank;
  for (int i = 0; i < rank; i++) {
    view->shape[i] = shape[i];
    view->strides[i] = strides[i];
  }
  return view;
}

weft_tensor *weft_permute(weft_scope *scope, weft_tensor *tensor, const int *axes) {
  if (!tensor) return no_tensor("permute");
  unsigned seen = 0;
  for (int i = 0; i < tensor->rank; i++) {
    if (axes[i] < 0 || axes[i] >= tensor->rank || (seen & 1u << axes[i])) return view_error(tensor, "permute");
    seen |= 1u << axes[i];
  }
  if (!is_viewable(tensor)) return view_error(tensor, "permute");
  weft_tensor *view = weft__tensor_alias(scope, tensor);
  if (!view) return NULL;
  for (int i = 0; i < tensor->rank; i++) {
    view->shape[i] = tensor->shape[axes[i]];
    view->strides[i] = tensor->strides[axes[i]];
  }
  return view;
}
