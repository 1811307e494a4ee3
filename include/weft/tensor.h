/* weft/tensor.h - devices' tensors: element types, shapes, views, scopes.
 *
 * A tensor is dtype, shape, strides and an offset into reference-counted storage that lives on one device.  Shapes are
 * written outermost axis first ([N,C]: N rows of C contiguous elements) and strides count elements.
 *
 * Ownership: a tensor handle belongs to the scope it was made in, and closing the scope frees it.  Storage is freed
 * with its last handle, so a view keeps it alive.  A scope is used by one thread at a time; storage may be shared.
 *
 * Letters used in all shape comments: B batch, T query positions, S key positions, N tokens of a batch, C width,
 * H heads, G key/value heads, D head size, V vocabulary. */
#ifndef WEFT_TENSOR_H
#define WEFT_TENSOR_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_MAX_RANK 8

typedef struct weft_device weft_device;
typedef struct weft_scope weft_scope;
typedef struct weft_tensor weft_tensor;

typedef enum weft_dtype {
#define WEFT_DTYPE(id, name, block_len, block_bytes, gguf_type, quantised) WEFT_##id,
#include "weft/dtype.def"
#undef WEFT_DTYPE
  WEFT_DTYPE_COUNT
} weft_dtype;

WEFT_API const char *weft_dtype_name(weft_dtype dtype); /* "q8_0"; static string */

/* Opens a scope on `device`; `parent` (may be NULL) is where weft_scope_keep moves tensors to.  A parent must outlive
 * its children.  EINVAL if the parent lives on another device, ENOMEM. */
WEFT_API weft_status weft_scope_open(weft_scope **out, weft_device *device, weft_scope *parent);

/* Frees every tensor the scope still holds; their buffers serve the device's next operators. */
WEFT_API void weft_scope_close(weft_scope *scope);

/* Moves `tensor` from `scope` into its parent and returns it.  NULL: NULL was given, the tensor is another scope's, or
 * there is no parent. */
WEFT_API weft_tensor *weft_scope_keep(weft_scope *scope, weft_tensor *tensor);

/* A tensor of undefined contents.  Rows of a quantised dtype are stored in whole blocks: the last may hold
 * more elements than the axis has.  NULL on failure. */
WEFT_API weft_tensor *weft_tensor_new(weft_scope *scope, weft_dtype dtype, int rank, const int64_t *shape);

/* A contiguous tensor with a copy of `data`: weft_tensor_bytes() bytes in the host's byte order.  NULL on failure. */
WEFT_API weft_tensor *weft_tensor_from(weft_scope *scope, weft_dtype dtype, int rank, const int64_t *shape,
                                       const void *data);

/* A weight of matmul_nt [n_rows,n_cols], from a copy of its stored bytes (whole blocks in each row): kept packed, in the
 * layout that multiplies fastest, so that it can be multiplied and, if it is quantised, cast to f32.  NULL on failure. */
WEFT_API weft_tensor *weft_weight_from(weft_scope *scope, weft_dtype dtype, int64_t n_rows, int64_t n_cols,
                                       const void *data);

/* Frees one handle before its scope closes. */
WEFT_API void weft_tensor_free(weft_tensor *tensor);

WEFT_API weft_dtype weft_tensor_dtype(const weft_tensor *tensor);
WEFT_API int weft_tensor_rank(const weft_tensor *tensor);
WEFT_API const int64_t *weft_tensor_shape(const weft_tensor *tensor);   /* rank extents, borrowed */
WEFT_API const int64_t *weft_tensor_strides(const weft_tensor *tensor); /* rank strides in elements, borrowed */
WEFT_API int64_t weft_tensor_numel(const weft_tensor *tensor);
WEFT_API size_t weft_tensor_bytes(const weft_tensor *tensor); /* of a contiguous copy */

/* Copies the tensor's elements in row-major order to or from `n_bytes` = weft_tensor_bytes() of host memory.
 * EINVAL on another size.  Writing needs a contiguous tensor.  What is packed (weft_weight_from, weft_quantize) is not written,
 * and read as its stored blocks if its dtype is one that weft_quantize makes; else EUNSUPPORTED. */
WEFT_API weft_status weft_tensor_read(const weft_tensor *tensor, void *data, size_t n_bytes);
WEFT_API weft_status weft_tensor_write(weft_tensor *tensor, const void *data, size_t n_bytes);

/* Views share the storage of `tensor`.  NULL if `tensor` is NULL or the arguments do not fit it. */
WEFT_API weft_tensor *weft_slice(weft_scope *scope, weft_tensor *tensor, int axis, int64_t start, int64_t length);
WEFT_API weft_tensor *weft_reshape(weft_scope *scope, weft_tensor *tensor, int rank,
                                   const int64_t *shape);                                    /* contiguous */
WEFT_API weft_tensor *weft_permute(weft_scope *scope, weft_tensor *tensor, const int *axes); /* rank axes */

#ifdef __cplusplus
}
#endif
#endif
