/* backend.h - what a device must offer, and the parts of a tensor that a backend sees.
 *
 * A backend owns buffers and runs operators on them; it knows nothing of models, tapes or files.  One table of functions,
 * indexed by operator: an empty entry of a composite operator runs its lowering (lower.c); the CPU's table has no gaps in
 * the primitives. */
#ifndef WEFT_BACKEND_H
#define WEFT_BACKEND_H

#include "weft/ops.h"
#include "base/base.h"

#include <stdatomic.h>

typedef struct weft__backend weft__backend;

enum { WEFT__OP_MAX_INPUTS = 9 };

/* What a weight is for; decides the layout that a backend keeps it in. */
typedef enum weft__weight_use {
  WEFT__WEIGHT_PLAIN,   /* element-wise use and row look-up: as stored; the CPU borrows the caller's memory */
  WEFT__WEIGHT_PRODUCT, /* right operand of matmul_nt and its composites only: whatever is fastest */
} weft__weight_use;

/* Who wants to know which of a weight's bytes a backend has read for good, part by part while it loads the weight: the
 * file's pages can go.  NULL: nobody. */
typedef struct weft__weight_reader {
  void (*on_read)(void *context, const void *data, size_t n_bytes);
  void *context;
} weft__weight_reader;

typedef enum weft__layout {
  WEFT__LAYOUT_PLAIN,  /* rows as weft/dtype.def says */
  WEFT__LAYOUT_PACKED, /* the backend's own: a product operand, which cast and weft_tensor_read may take as well */
} weft__layout;

typedef struct weft__storage {
  atomic_int n_refs;
  weft__backend *backend;
  void *buffer; /* the backend's handle; on the CPU the address */
  size_t n_bytes;
  weft__layout layout;
  bool is_borrowed; /* the buffer is somebody else's and outlives the storage */
} weft__storage;

struct weft_tensor {
  weft_dtype dtype;
  int rank;
  int64_t shape[WEFT_MAX_RANK];   /* outermost first */
  int64_t strides[WEFT_MAX_RANK]; /* elements */
  int64_t offset;                 /* elements from the start of the storage */
  weft__storage *storage;
  weft_scope *scope; /* that holds this handle */
  weft_tensor *prev, *next;
};

/* One operator on its way to a backend; shapes and dtypes have been checked by the operator's shape rule. */
typedef struct weft__op_call {
  weft_op op;
  int n_inputs;
  weft_tensor *in[WEFT__OP_MAX_INPUTS];
  const void *attrs; /* weft_NAME_attrs or NULL */
  weft_tensor *out;  /* contiguous, or a view of an input for an operator that writes in place */
} weft__op_call;

typedef weft_status (*weft__op_function)(weft__backend *backend, const weft__op_call *call);

typedef struct weft__backend_class {
  void (*destroy)(weft__backend *backend);
  /* Held while an operator runs, by one thread at a time; NULL if the backend needs no lock.  The functions below take it
   * themselves, so it can be taken again by the thread that holds it. */
  void (*lock)(weft__backend *backend);
  void (*unlock)(weft__backend *backend);
  weft_status (*alloc)(weft__backend *backend, size_t n_bytes, void **buffer); /* undefined contents */
  void (*free)(weft__backend *backend, void *buffer, size_t n_bytes);
  weft_status (*write)(weft__backend *backend, void *buffer, size_t offset, const void *data, size_t n_bytes);
  weft_status (*read)(weft__backend *backend, const void *buffer, size_t offset, void *data, size_t n_bytes);
  weft_status (*copy)(weft__backend *backend, void *to, size_t to_offset, const void *from, size_t from_offset,
                      size_t n_bytes); /* between buffers of this backend that do not overlap */
  /* Submits what is recorded; waits for all of it.  NULL on a backend that runs operators at once. */
  weft_status (*flush)(weft__backend *backend);
  weft_status (*sync)(weft__backend *backend);
  /* Fills in storage->buffer, n_bytes, layout and is_borrowed for a weight of `n_rows` x `n_cols` elements at `data`,
   * which stays valid as long as the storage if the use is PLAIN, else until the call returns; `reader` may be NULL. */
  weft_status (*load_weight)(weft__backend *backend, weft_dtype dtype, int64_t n_rows, int64_t n_cols, const void *data,
                             weft__weight_use use, const weft__weight_reader *reader, weft__storage *storage);
  /* The way back from PACKED: writes the rows of `t` to `data` as weft/dtype.def has them.  EUNSUPPORTED for dtypes that
   * quantize does not make. */
  weft_status (*read_packed)(weft__backend *backend, const weft_tensor *t, void *data);
  /* Runs fused multiply-adds without memory for some ten milliseconds: f32 operations a second, each of them two.  NULL:
   * not offered. */
  weft_status (*measure_flops)(weft__backend *backend, double *flops_per_s);
  /* Whether ops[call->op] can run this call (some dtypes or sizes may be missing); NULL: all of them. */
  bool (*supports)(const weft__backend *backend, const weft__op_call *call);
  weft__op_function ops[WEFT_OP_COUNT];
} weft__backend_class;

/* Time that an operator took on the device. */
typedef struct weft__profile {
  int64_t n_runs; /* dispatches */
  double total_ms;
} weft__profile;

struct weft__backend {
  const weft__backend_class *class;
  char name[96];                /* "cpu (avx512, 2 threads)" */
  size_t peak_bytes;            /* largest total of live and pooled buffers */
  weft__backend *fallback;      /* runs the operators that this one lacks (the CPU's); NULL on the CPU */
  int64_t n_fallbacks;          /* how often it had to */
  weft_op current_op;           /* the operator being run */
  const weft__profile *profile; /* [WEFT_OP_COUNT] if the backend measures, else NULL */
  bool poison; /* fill every buffer handed out with 0xFF bytes (NaN): tests find elements left unwritten */
};

struct weft_device {
  weft__backend *backend;
  weft__backend *host; /* the CPU's, or NULL if `backend` is that */
  bool is_exact;       /* opened for exact arithmetic */
};

#endif
