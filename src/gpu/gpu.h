/* gpu.h - the GPU backend's own interface: its state, memory, the batch, kernels, operators. */
#ifndef WEFT_GPU_H
#define WEFT_GPU_H

#include "gpu/abi/abi.h"
#include "gpu/loader.h"
#include "gpu/wgsl_text.h"
#include "tensor/tensor.h"
#include "weft/device.h"

#include <pthread.h>

/* ---- parameter blocks ---- */

#define U32(name) uint32_t name;
#define F32(name) float name;
#define U32X8(name) uint32_t name[8];
#define WEFT_PARAMS(name, fields)                                                                                      \
  typedef struct weft__gpu_##name##_params {                                                                           \
    fields                                                                                                             \
  } __attribute__((aligned(16))) weft__gpu_##name##_params;
#include "gpu/params.def"
#undef WEFT_PARAMS
#undef U32
#undef F32
#undef U32X8

/* ---- kernels.c: from a kernel and its constants to a pipeline ---- */

typedef enum weft__gpu_kernel {
#define WEFT_KERNEL(name, params, n_buffers, written) WEFT__KERNEL_##name,
#include "gpu/kernels.def"
#undef WEFT_KERNEL
  WEFT__KERNEL_COUNT
} weft__gpu_kernel;

/* Of `written` in kernels.def: a kernel that may note faults (faults.c).  Its text may call note_fault and note_index of
 * faults.wgsl; that binding follows its own, is not counted among them, and is bound by the dispatch. */
#define WEFT__NOTES_FAULTS (1u << 31)
/* One that reads quantised blocks as files store them: its text may call block_value of blocks.wgsl, and names the binding
 * that holds them `blocks`. */
#define WEFT__READS_BLOCKS (1u << 30)

/* The constant FUNCTION of the elementwise kernels. */
typedef enum weft__gpu_function {
#define WEFT_FUNCTION(name) WEFT__FUNCTION_##name,
#include "gpu/functions.def"
#undef WEFT_FUNCTION
} weft__gpu_function;

typedef struct weft__pipelines weft__pipelines;

/* ---- memory.c ---- */

typedef struct weft__gpu_memory weft__gpu_memory;

/* ---- the backend ---- */

enum {
  WEFT__SLOT_BYTES = 256,   /* of the parameter arena: a dispatch's block, aligned for a dynamic offset */
  WEFT__ARENA_SLOTS = 1024, /* dispatches between two submits */
  WEFT__MAX_IN_FLIGHT = 16, /* submits between two waits */
  WEFT__FAULT_BYTES = 32,   /* of the words that kernels note faults in */
  WEFT__MAX_BUFFERS = 8,    /* storage buffers of a kernel without that of faults */
};

typedef struct weft__gpu {
  weft__backend base;   /* first: a weft__backend * is a weft__gpu * */
  pthread_mutex_t lock; /* recursive: one thread at a time records, transfers, frees */
  weft__gpu_library *library;
  const weft__abi *abi; /* of the library, as is the instance */
  weft__gpu_instance *instance;
  weft__gpu_device *device;
  weft__adapter_info info;
  uint32_t features; /* found to work */
  int gemm_tile;     /* 0: by shape; else the textbook kernel with this tile (weft/device.h) */
  bool is_exact;     /* activations are not quantised */
  bool is_checked;   /* WEFT_GPU_CHECKED: shaders keep their bounds checks */
  weft__gpu_memory *memory;
  weft__pipelines *pipelines;
  /* batch.c: what has been recorded since the last submit */
  weft__gpu_buffer *arena; /* uniform */
  char *arena_data;        /* its contents, written at submit */
  int n_recorded;          /* dispatches */
  bool has_copies;
  int n_in_flight;               /* submits since the last wait */
  struct weft__gpu_trace *trace; /* NULL unless WEFT_GPU_TRACE is set */
  struct {
    weft__gpu_buffer *buffer; /* storage */
    bool is_due;              /* a kernel that may note faults has been recorded since they were looked at */
  } faults;
  /* pieces.c */
  struct {
    struct weft__gpu_storage *storages; /* those of several buffers */
  } pieces;
} weft__gpu;

#define WEFT_PARAMS(name, fields)                                                                                      \
  _Static_assert(sizeof(weft__gpu_##name##_params) <= WEFT__SLOT_BYTES, "a slot of the arena holds the block " #name);
#include "gpu/params.def"
#undef WEFT_PARAMS

static inline weft__gpu *weft__gpu_of(weft__backend *backend) { return (weft__gpu *)backend; }

typedef struct weft__gpu_options {
  int index; /* of the adapter, -1 to choose by `power` */
  weft_power power;
  int gemm_tile;       /* of weft_device_options */
  bool is_exact;       /* likewise */
  bool admit_software; /* a software driver may be chosen */
} weft__gpu_options;

weft_status weft__gpu_create(weft__backend **out, const weft__gpu_options *options);

/* ---- memory.c: buffers that are handed out again, staging, transfers ---- */

weft_status weft__gpu_memory_create(weft__gpu_memory **out);
void weft__gpu_memory_free(weft__gpu *gpu);
weft_status weft__gpu_alloc(weft__backend *backend, size_t n_bytes, void **buffer);
void weft__gpu_free(weft__backend *backend, void *buffer, size_t n_bytes);
weft_status weft__gpu_write(weft__backend *backend, void *buffer, size_t offset, const void *data, size_t n_bytes);
weft_status weft__gpu_read(weft__backend *backend, const void *buffer, size_t offset, void *data, size_t n_bytes);
weft_status weft__gpu_copy(weft__backend *backend, void *to, size_t to_offset, const void *from, size_t from_offset,
                           size_t n_bytes);
/* One buffer of the device, for pieces.c. */
weft_status weft__gpu_alloc_buffer(weft__gpu *gpu, size_t n_bytes, weft__gpu_buffer **buffer);
void weft__gpu_free_buffer(weft__gpu *gpu, weft__gpu_buffer *buffer, size_t n_bytes);
/* Destroys what was freed beyond what is kept; nothing recorded may use it. */
void weft__gpu_memory_sweep(weft__gpu *gpu);

/* ---- pieces.c: storage of more than one buffer ---- */

weft_status weft__gpu_pieces_alloc(weft__gpu *gpu, size_t n_bytes, void **handle);
bool weft__gpu_pieces_free(weft__gpu *gpu, void *handle); /* false: it is one buffer */
bool weft__gpu_is_pieced(const weft__gpu *gpu, const void *handle);
/* As much of a storage's bytes from `offset` on, at most n_bytes, as lies in one buffer: that part of the buffer. */
weft__gpu_range weft__gpu_part(const weft__gpu *gpu, const void *handle, uint64_t offset, uint64_t n_bytes);
/* A buffer that stands for bytes of several pieces while a dispatch is recorded. */
typedef struct weft__gpu_patch {
  weft__gpu_buffer *buffer, *handle; /* its own; that of the storage */
  uint64_t offset, n_bytes;          /* within the storage */
  bool is_written;
} weft__gpu_patch;

typedef struct weft__gpu_patches {
  int n;
  weft__gpu_patch at[WEFT__MAX_BUFFERS];
} weft__gpu_patches;

/* Turns a dispatch's n ranges of storage into those of buffers, `bound`; bit i of `written`: the kernel writes to range i.
 * Patches are filled here; unbind, once the dispatch is recorded or never will be, gives storages what was written. */
weft_status weft__gpu_bind(weft__gpu *gpu, const weft__gpu_range *ranges, int n, uint32_t written,
                           weft__gpu_range *bound, weft__gpu_patches *patches);
void weft__gpu_unbind(weft__gpu *gpu, weft__gpu_patches *patches, bool is_recorded);

/* ---- batch.c ---- */

weft_status weft__gpu_batch_open(weft__gpu *gpu);
void weft__gpu_batch_close(weft__gpu *gpu);
/* Records one dispatch of `n_groups` workgroups, laid out over x and y (kernels take group.x + group.y * groups.x), or of
 * exactly groups[3] with weft__gpu_dispatch3.  `params` is the kernel's block. */
weft_status weft__gpu_dispatch(weft__gpu *gpu, weft__gpu_kernel kernel, const weft__wgsl_const *constants,
                               const weft__gpu_range *ranges, const void *params, uint64_t n_groups);
weft_status weft__gpu_dispatch3(weft__gpu *gpu, weft__gpu_kernel kernel, const weft__wgsl_const *constants,
                                const weft__gpu_range *ranges, const void *params, const uint32_t groups[3]);
/* Submits what is recorded; errors since the last call come out. */
weft_status weft__gpu_submit(weft__gpu *gpu);
/* Submits and waits for all work; tells the faults that kernels noted. */
weft_status weft__gpu_wait(weft__gpu *gpu);

/* ---- faults.c ---- */

weft_status weft__gpu_faults_open(weft__gpu *gpu);
void weft__gpu_faults_close(weft__gpu *gpu);
/* After a read that brought the fault words: EINVAL if a kernel has noted one, and the next may. */
weft_status weft__gpu_faults_tell(weft__gpu *gpu, const uint32_t *words);

/* ---- trace.c: no-ops unless WEFT_GPU_TRACE is set ---- */

weft_status weft__gpu_trace_open(weft__gpu *gpu);
weft_status weft__gpu_trace_dispatch(weft__gpu *gpu);                /* before each dispatch */
weft_status weft__gpu_trace_collect(weft__gpu *gpu, int n_recorded); /* after a submit of n dispatches */

/* ---- kernels.c ---- */

weft_status weft__gpu_pipelines_create(weft__pipelines **out);
void weft__gpu_pipelines_free(weft__gpu *gpu);
weft__gpu_pipeline *weft__gpu_pipeline_get(weft__gpu *gpu, weft__gpu_kernel kernel, const weft__wgsl_const *constants);
uint32_t weft__gpu_kernel_params_bytes(weft__gpu_kernel kernel);
uint32_t weft__gpu_kernel_written(weft__gpu_kernel kernel); /* bits of its buffers */
/* Storage buffers of a kernel without that of faults, and whether it has that. */
int weft__gpu_kernel_n_buffers(weft__gpu_kernel kernel);
bool weft__gpu_kernel_notes_faults(weft__gpu_kernel kernel);

/* ---- views of tensors for shaders ---- */

/* The window of a tensor's storage that begins at element `first` and holds n elements of 2 or 4 bytes: the range starts on
 * a boundary that a binding may have, and *offset is the window's first element within it.  Of halves the first may be
 * the upper one of a word. */
weft__gpu_range weft__gpu_window(const weft__gpu *gpu, const weft_tensor *t, int64_t first, int64_t n,
                                 uint32_t *offset);
/* The same for n words from word `first` of a storage on; *offset is in words. */
weft__gpu_range weft__gpu_words(const weft__gpu *gpu, const weft__storage *storage, uint64_t first, int64_t n,
                                uint32_t *offset);
/* Elements of 4 bytes that fit a binding after the worst alignment: a multiple of 1024. */
int64_t weft__gpu_window_elements(const weft__gpu *gpu);
/* The error of an operator with an operand that must fit one window and does not. */
weft_status weft__gpu_too_large(const weft__gpu *gpu, const char *what);

/* ---- rows.c: operators along the last axis ---- */

typedef struct weft__gpu_row_call weft__gpu_row_call;

/* Dispatches some rows; the block's n, n_rows, axes, offsets and steps are set, and the ranges of a, b, y and c. */
typedef weft_status (*weft__gpu_row_function)(weft__gpu *gpu, const weft__gpu_row_call *call, weft__gpu_rows_params *p,
                                              const weft__gpu_range *ranges);

/* y from rows of a [...,n] and of up to two more operands, all of any view; y is contiguous.  The leading axes are the same,
 * the last may be n or 1. */
struct weft__gpu_row_call {
  weft_op op;
  const weft_tensor *a, *b, *c /* NULL without */, *y;
  weft__gpu_row_function run;
  const void *context; /* the function's own */
};

/* Calls the function once or more, each time with as many rows as fit the bindings. */
weft_status weft__gpu_each_rows(weft__gpu *gpu, const weft__gpu_row_call *call);
/* For the kernels called ..._quads, whose workgroups hold a row in registers: their constants QUADS, of an invocation, and
 * THREADS.  No quads: a and b are not f32, not rows of whole quads on boundaries of quads, or too long. */
typedef struct weft__gpu_row_shape {
  uint32_t n_quads, n_threads;
} weft__gpu_row_shape;
weft__gpu_row_shape weft__gpu_row_quads(const weft__gpu_row_call *call, const weft__gpu_rows_params *p);

/* ---- op_*.c ---- */

/* Makes *to a contiguous f32 copy of a real view, in a storage of its own: the caller frees storage->buffer if it is set. */
weft_status weft__gpu_make_f32(weft__gpu *gpu, const weft_tensor *from, weft_tensor *to, weft__storage *storage);
/* c = a @ b, each transposed or not, of real operands, with batch axes (op_matmul.c). */
weft_status weft__gpu_product(weft__gpu *gpu, const weft_tensor *a, bool transpose_a, const weft_tensor *b,
                              bool transpose_b, const weft_tensor *c);

/* Weights of quantised formats (op_quantized.c): bits of a quant, 0 for a format that is not kept so. */
int weft__gpu_quantized_bits(weft_dtype dtype);
weft_status weft__gpu_load_quantized(weft__gpu *gpu, weft_dtype dtype, int64_t m, int64_t k, const void *data,
                                     weft__storage *storage);
/* The rows of a packed tensor as they are stored, to the host. */
weft_status weft__gpu_read_quantized(weft__gpu *gpu, const weft_tensor *t, void *data);
/* y = a quantised tensor, packed or as stored, in f32. */
weft_status weft__gpu_dequantize(weft__gpu *gpu, const weft_tensor *w, const weft_tensor *y);
/* y = a @ w^T for a quantised w; a is real. */
weft_status weft__gpu_product_quantized(weft__gpu *gpu, const weft_tensor *a, const weft_tensor *w,
                                        const weft_tensor *y);

/* to = from, of one shape, each a view of any dtype, with cast's conversion where they differ (op_copy.c). */
weft_status weft__gpu_copy_strided(weft__gpu *gpu, const weft_tensor *from, const weft_tensor *to);

/* Every operator that works element by element and makes f32, or i32 of comparisons (op_elementwise.c). */
weft_status weft__gpu_elementwise(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_scale_in_place(weft__backend *backend, const weft__op_call *call);
/* Runs fill.wgsl, or a kernel like it, over the words of a contiguous tensor (op_random.c). */
weft_status weft__gpu_each_word(weft__gpu *gpu, weft__gpu_kernel kernel, const weft_tensor *y, float value);
weft_status weft__gpu_where(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_sum(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_mean(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_max(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_min(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_argmax(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_top_k(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_softmax_grad(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_cross_entropy(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_cross_entropy_grad(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_softmax(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_attention(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_attention_lse(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_attention_grad(weft__backend *backend, const weft__op_call *call);
bool weft__gpu_attention_fits(const weft__gpu *gpu, const weft__op_call *call);
weft_status weft__gpu_cast(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_contiguous(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_concat(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_copy_rows_into(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_fill(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_fill_uniform(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_fill_normal(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_dropout(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_adam_step(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_sgd_step(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_clip_factor(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_sum_squares(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_rms_norm(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_rms_norm_xhat(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_rms_norm_grad(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_layer_norm(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_layer_norm_xhat(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_layer_norm_grad(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_matmul(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_matmul_nt(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_quantize(weft__backend *backend, const weft__op_call *call);
/* y [N,C] f32 = rows of a table of any dtype but i32: those of `ids` [N], or all of them if it is NULL (op_index.c). */
weft_status weft__gpu_read_rows(weft__gpu *gpu, const weft_tensor *table, const weft_tensor *ids, const weft_tensor *y);

weft_status weft__gpu_gather(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_im2col(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_col2im(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_max_pool2d(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_max_pool2d_grad(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_scatter_add(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_embed(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_embed_grad(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_rope_table(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_kv_append(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_paged_attention(weft__backend *backend, const weft__op_call *call);
weft_status weft__gpu_rope(weft__backend *backend, const weft__op_call *call);

#endif
