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

/* Address of row `row` where the leading axes have any strides. */
static inline const float *weft__row_at(const weft_tensor *t, int64_t row) {
  const float *at = weft__cpu_data(t);
  for (int i = t->rank - 2; i >= 0; row /= t->shape[i--]) at += row % t->shape[i] * t->strides[i];
  return at;
}

/* Runs `task` over rows 0 .. n_rows-1 in ranges, on the pool if `cost` (elements a row) makes that worthwhile. */
typedef void (*weft__row_range)(void *context, int64_t first, int64_t end);
void weft__cpu_rows(weft__cpu *cpu, int64_t n_rows, int64_t cost, weft__row_range task, void *context);

/* ---- pack.c ---- */

size_t weft__panel_bytes(weft_dtype dtype, int64_t k);
/* Packs an [M,K] weight as stored into ceil(M/16) panels; rows beyond the last are zero. */
void weft__pack_weight(weft__cpu *cpu, weft_dtype dtype, int64_t m, int64_t k, const void *data, void *panels);

/* ---- peak.c ---- */

weft_status weft__cpu_measure_flops(weft__backend *backend, double *flops_per_s);

/* ---- op_*.c: one function an operator ---- */

#define WEFT_OP(name, n_inputs, attributes, formula)                                                                   \
  weft_status weft__cpu_##name(weft__backend *backend, const weft__op_call *call);
#define WEFT_LOWERED(name, n_inputs, attributes, formula)
#include "weft/ops.def"
#undef WEFT_OP

#endif
