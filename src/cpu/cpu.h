/* cpu.h - the CPU backend's own interface: its state, and the operators' entry points. */
#ifndef WEFT_CPU_H
#define WEFT_CPU_H

#include "cpu/kernels.h"
#include "tensor/tensor.h"
#include "base/pool.h"

/* ---- buffers.c: freed buffers kept for the next operators ---- */

typedef struct weft__buffers weft__buffers;

weft_status weft__buffers_create(weft__buffers **out);
void weft__buffers_free(weft__buffers *buffers);
void *weft__buffers_get(weft__buffers *buffers, size_t n_bytes); /* 64-byte aligned; NULL: out of memory, error set */
void weft__buffers_put(weft__buffers *buffers, void *buffer, size_t n_bytes);
size_t weft__buffers_peak(weft__buffers *buffers); /* largest total handed out and kept */

/* ---- detect.c ---- */

/* The variant that WEFT_CPU names, else the best that this processor runs.  NULL with the error set if it names one that
 * is unknown or unusable. */
const weft__cpu_kernels *weft__cpu_select(void);
/* Variant `index`, best first; NULL after the last. */
const weft__cpu_kernels *weft__cpu_variant(int index, bool *is_usable);

/* ---- cpu.c ---- */

typedef struct weft__cpu {
  weft__backend base; /* first: a weft__backend * is a weft__cpu * */
  const weft__cpu_kernels *kernels;
  weft__pool *pool;
  weft__buffers *buffers;
  bool is_exact; /* activations stay f32 */
} weft__cpu;

static inline weft__cpu *weft__cpu_of(weft__backend *backend) { return (weft__cpu *)backend; }

/* `cpus`: processors that the threads are pinned to, or NULL. */
weft_status weft__cpu_create(weft__backend **out, bool is_exact, int n_threads, const weft__cpu_list *cpus);

/* Address of a tensor's first element. */
static inline void *weft__cpu_data(const weft_tensor *t) {
  const weft__dtype_info *info = weft__dtype_get(t->dtype);
  return (char *)t->storage->buffer + t->offset / info->block_len * info->block_bytes;
}

/* Elements from row to row of a tensor that the shape rules call rows. */
static inline int64_t weft__row_stride(const weft_tensor *t) { return t->rank == 2 ? t->strides[0] : weft__n_cols(t); }

/* Runs `task` over rows 0 .. n_rows-1 in ranges, on the pool if `cost` (elements a row) makes that worthwhile. */
typedef void (*weft__row_range)(void *context, int64_t first, int64_t end);
void weft__cpu_rows(weft__cpu *cpu, int64_t n_rows, int64_t cost, weft__row_range task, void *context);

/* ---- each.c: strided operands, a piece at a time ---- */

enum {
  WEFT__EACH_MAX = 3, /* operands of one loop */
  WEFT__PIECE = 1024, /* elements of a piece at most */
};

/* How elements reach the function: as f32 (from f32, f16 or bf16), or as they are stored. */
typedef enum weft__each_read { WEFT__AS_REAL, WEFT__AS_STORED } weft__each_read;

/* n neighbouring elements of the result and what they are computed from. */
typedef struct weft__piece {
  int64_t n;
  const void *in[WEFT__EACH_MAX];
  int64_t step[WEFT__EACH_MAX]; /* 1, or 0 for one element that meets all n */
  void *y;                      /* of the result's dtype */
} weft__piece;

typedef void (*weft__each_function)(const void *context, const weft__piece *piece);

/* Runs `run` over all elements of `out`, in pieces; the operands broadcast to its shape. */
void weft__each(weft__cpu *cpu, int n_in, weft_tensor *const *in, const weft_tensor *out, weft__each_read read,
                weft__each_function run, const void *context);

/* Copies all elements, broadcast and converted to the dtype of `to` as cast does it; any views of unquantised tensors. */
void weft__copy(weft__cpu *cpu, const weft_tensor *from, const weft_tensor *to);

void weft__fill(weft__cpu *cpu, float value, const weft_tensor *to);

/* Makes *to a contiguous f32 copy of a view of real numbers, in a storage of its own, whose buffer the caller gives back
 * (weft__buffers_put; NULL on failure). */
weft_status weft__cpu_make_f32(weft__cpu *cpu, const weft_tensor *from, weft_tensor *to, weft__storage *storage);

/* n elements from data[index] on, `step` apart, as f32; dtype f32, f16 or bf16. */
void weft__read_real(weft_dtype dtype, const void *data, int64_t index, int64_t step, int64_t n, float *to);

/* The same of a tensor: where they lie if that will do, else in scratch [n]. */
const float *weft__real_run(const weft_tensor *t, int64_t index, int64_t step, int64_t n, float *scratch);

/* Writes x [n] to neighbouring elements of a contiguous tensor, in its dtype. */
void weft__write_real(weft__cpu *cpu, int64_t n, const float *x, const weft_tensor *t, int64_t index);

/* The order of argmax and top_k: larger elements first, NaN before all numbers, the lower place first among equals. */
static inline bool weft__ranks_before(float x, int64_t place, float y, int64_t other_place) {
  if (x > y || x < y) return x > y;
  bool x_is_nan = x != x, y_is_nan = y != y;
  return x_is_nan == y_is_nan ? place < other_place : x_is_nan;
}

/* Offset in `t` of row `row` of a tensor shaped [shape..., n] that t broadcasts to; axis `skipped` (-1: none) counts as 0. */
int64_t weft__row_offset(const weft_tensor *t, int rank, const int64_t *shape, int skipped, int64_t row);

/* A stored row of any dtype but i32 as f32 (op_embed.c). */
void weft__read_row(weft_dtype dtype, const uint8_t *row, int64_t n, float *y);
/* EINVAL for an id [N] that is none of a table's rows. */
weft_status weft__check_ids(const weft__op_call *call, const weft_tensor *ids, int64_t n_rows);

/* ---- pack.c ---- */

size_t weft__panel_bytes(weft_dtype dtype, int64_t k);
/* Packs an [M,K] weight as stored into ceil(M/16) panels; rows beyond the last are zero. */
void weft__pack_weight(weft__cpu *cpu, weft_dtype dtype, int64_t m, int64_t k, const void *data,
                       const weft__weight_reader *reader, void *panels);
/* The way back: block `index` of a row of a packed weight of a quantised dtype, its leading axes counted through. */
void weft__unpack_block(const weft_tensor *t, int64_t row, int64_t index, weft__quant_block *block);

/* ---- op_quantize.c ---- */

weft_status weft__cpu_read_packed(weft__backend *backend, const weft_tensor *t, void *data);

/* ---- peak.c ---- */

weft_status weft__cpu_measure_flops(weft__backend *backend, double *flops_per_s);

/* ---- op_*.c: one function an operator ---- */

#define WEFT_OP(name, n_inputs, attributes, formula, gradient, cost)                                                   \
  weft_status weft__cpu_##name(weft__backend *backend, const weft__op_call *call);
#define WEFT_LOWERED(name, n_inputs, attributes, formula, gradient, cost)
#include "weft/ops.def"
#undef WEFT_OP

#endif
