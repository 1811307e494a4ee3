/* tensor.h - the tensor layer's own interface: shapes, dtypes, storage, operator rows.  Everything that a backend needs
 * is in backend.h. */
#ifndef WEFT_TENSOR_INTERNAL_H
#define WEFT_TENSOR_INTERNAL_H

#include "tensor/backend.h"

/* ---- dtype.c ---- */

typedef struct weft__dtype_info {
  const char *name;
  int block_len;   /* elements of a block, 1 if not quantised */
  int block_bytes; /* bytes of a block */
  uint32_t gguf_type;
  bool is_quantised;
} weft__dtype_info;

const weft__dtype_info *weft__dtype_get(weft_dtype dtype);

/* Bytes of `n` elements; false if that is not whole blocks or overflows. */
bool weft__dtype_bytes(weft_dtype dtype, int64_t n, size_t *n_bytes);
/* Bytes of a row of `n` elements, the last block of which may hold more; false if that overflows. */
bool weft__row_bytes(weft_dtype dtype, int64_t n, size_t *n_bytes);
/* Bytes of all rows of a contiguous tensor; false if that overflows.  The extents are not negative. */
bool weft__shape_bytes(weft_dtype dtype, int rank, const int64_t *shape, size_t *n_bytes);

/* ---- shape.c ---- */

typedef struct weft__shape {
  weft_dtype dtype;
  int rank;
  int64_t dim[WEFT_MAX_RANK];
} weft__shape;

bool weft__shape_numel(int rank, const int64_t *shape, int64_t *numel);     /* false: negative extent or overflow */
void weft__shape_strides(int rank, const int64_t *shape, int64_t *strides); /* of a contiguous tensor */
/* Strides that show the elements of t, in order, as another shape of as many; false if no strides do. */
bool weft__reshaped_strides(const weft_tensor *t, int rank, const int64_t *shape, int64_t *strides);
bool weft__broadcast(const weft_tensor *a, const weft_tensor *b, weft__shape *out); /* NumPy's rule */
/* Stride of operand t along axis `axis` of a result of rank `rank`; 0 where t is broadcast. */
int64_t weft__broadcast_stride(const weft_tensor *t, int rank, int axis);
bool weft__is_contiguous(const weft_tensor *t);
bool weft__same_shape(const weft_tensor *a, const weft_tensor *b);
/* Elements from a tensor's first to its last, by its strides; 1 at the least. */
int64_t weft__tensor_span(const weft_tensor *t);
/* "[2,3] f32" into a buffer of at least 160 bytes, for messages; returns it. */
const char *weft__shape_text(const weft_tensor *t, char *text);
/* Product of all axes but the last, and the last axis (1 and 1 for a scalar). */
int64_t weft__n_rows(const weft_tensor *t);
int64_t weft__n_cols(const weft_tensor *t);

/* ---- tensor.c ---- */

/* A weight of the given shape (rank 1 or 2) whose stored bytes are at `data`; see weft__weight_use. */
weft_tensor *weft__weight_load(weft_scope *scope, weft_dtype dtype, int rank, const int64_t *shape, const void *data,
                               weft__weight_use use, const weft__weight_reader *reader);
/* A handle on `storage` (whose reference it takes over, on failure too). */
weft_tensor *weft__tensor_make(weft_scope *scope, weft_dtype dtype, int rank, const int64_t *shape,
                               weft__storage *storage);
/* A second handle with the shape, strides and storage of `t`. */
weft_tensor *weft__tensor_alias(weft_scope *scope, const weft_tensor *t);

/* ---- scope.c ---- */

void weft__scope_attach(weft_scope *scope, weft_tensor *t);
void weft__scope_detach(weft_tensor *t);
weft__backend *weft__scope_backend(const weft_scope *scope);
weft_device *weft__scope_device(const weft_scope *scope);

/* ---- op.c: the operator table ---- */

/* Checks operands and attributes, and fills in *out: what the operator makes. */
typedef weft_status (*weft__shape_rule)(const weft__op_call *call, weft__shape *out);
/* The operator in terms of others; intermediates go to `scope`, NULL on failure. */
typedef weft_tensor *(*weft__lowering)(weft_scope *scope, const weft__op_call *call);

typedef struct weft__op_row {
  const char *name;
  int n_inputs;
  bool has_attrs;
  const char *formula;
  weft__shape_rule shape_rule;
  weft__lowering lower; /* NULL for a primitive */
  bool is_in_place;     /* the result is a view of input 0 */
} weft__op_row;

const weft__op_row *weft__op_get(weft_op op);

/* Runs one operator; with `force_lowering` a composite's lowering even where the backend has a fused kernel (tests). */
weft_tensor *weft__op_run(weft_scope *scope, weft_op op, weft_tensor *const *in, const void *attrs,
                          bool force_lowering);

/* Bit i: a reduction that has passed its shape rule reduces axis i of its operand. */
unsigned weft__reduced_axes(const weft__op_call *call);

/* Runs a primitive that `backend` lacks on its fallback (fallback.c). */
weft_status weft__op_fallback(weft__backend *backend, const weft__op_row *row, const weft__op_call *call);

/* ---- fault.c ---- */

typedef enum weft__fault_kind {
#define WEFT_FAULT(name, text) WEFT__FAULT_##name,
#include "tensor/faults.def"
#undef WEFT_FAULT
  WEFT__FAULT_COUNT
} weft__fault_kind;

/* Sets the error of what was found in an operand's contents, EINVAL; numbers that the text lacks are ignored. */
weft_status weft__fault(weft_op op, weft__fault_kind kind, const int64_t numbers[4]);

/* ---- rope.c ---- */

/* Radians a position for a pair of rope_table, before its factor, and what its cosines and sines are multiplied by. */
double weft__rope_frequency(const weft_rope_table_attrs *attrs, int64_t pair);
double weft__rope_magnitude(const weft_rope_table_attrs *attrs);

/* shape_rules.c and lower.c: one function an operator, named by its row. */
#define WEFT_OP(name, n_inputs, attributes, formula, gradient, cost)                                                   \
  weft_status weft__shape_##name(const weft__op_call *call, weft__shape *out);
#include "weft/ops.def"
#undef WEFT_OP

#define WEFT_OP(name, n_inputs, attributes, formula, gradient, cost)
#define WEFT_COMPOSITE(name, n_inputs, attributes, formula, gradient, cost)                                            \
  weft_tensor *weft__lower_##name(weft_scope *scope, const weft__op_call *call);
#include "weft/ops.def"
#undef WEFT_OP

#endif
