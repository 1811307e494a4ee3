/* gpu.c - the GPU backend: opening a device, and the table of operators.  A buffer is a weft__gpu_buffer. */
#include "gpu/gpu.h"

#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* getenv */
#include <string.h>

/* ---- closing ---- */

static void gpu_destroy(weft__backend *backend) {
  weft__gpu *gpu = weft__gpu_of(backend);
  if (gpu->device) {
    weft__gpu_wait(gpu);
    weft__gpu_pipelines_free(gpu);
    weft__gpu_memory_free(gpu);
    weft__gpu_batch_close(gpu);
    weft__gpu_faults_close(gpu);
    weft_free(gpu->trace);
    gpu->abi->device_close(gpu->device);
  }
  weft__gpu_library_close(gpu->library);
  pthread_mutex_destroy(&gpu->lock);
  weft_free(gpu);
}

/* ---- one thread at a time ---- */

static void gpu_lock(weft__backend *backend) { pthread_mutex_lock(&weft__gpu_of(backend)->lock); }
static void gpu_unlock(weft__backend *backend) { pthread_mutex_unlock(&weft__gpu_of(backend)->lock); }

/* Runs `call` with the lock held. */
#define LOCKED(call)                                                                                                   \
  gpu_lock(backend);                                                                                                   \
  weft_status status = call;                                                                                           \
  gpu_unlock(backend);                                                                                                 \
  return status

static weft_status gpu_flush(weft__backend *backend) { LOCKED(weft__gpu_submit(weft__gpu_of(backend))); }

static weft_status gpu_sync(weft__backend *backend) { LOCKED(weft__gpu_wait(weft__gpu_of(backend))); }

static weft_status gpu_alloc(weft__backend *backend, size_t n_bytes, void **buffer) {
  LOCKED(weft__gpu_alloc(backend, n_bytes, buffer));
}

static void gpu_free(weft__backend *backend, void *buffer, size_t n_bytes) {
  gpu_lock(backend);
  weft__gpu_free(backend, buffer, n_bytes);
  gpu_unlock(backend);
}

static weft_status gpu_write(weft__backend *backend, void *buffer, size_t offset, const void *data, size_t n_bytes) {
  LOCKED(weft__gpu_write(backend, buffer, offset, data, n_bytes));
}

static weft_status gpu_read(weft__backend *backend, const void *buffer, size_t offset, void *data, size_t n_bytes) {
  LOCKED(weft__gpu_read(backend, buffer, offset, data, n_bytes));
}

static weft_status gpu_copy(weft__backend *backend, void *to, size_t to_offset, const void *from, size_t from_offset,
                            size_t n_bytes) {
  LOCKED(weft__gpu_copy(backend, to, to_offset, from, from_offset, n_bytes));
}

/* ---- weights ---- */

static weft_status load_quantized(weft__backend *backend, weft_dtype dtype, int64_t n_rows, int64_t n_cols,
                                  const void *data, weft__storage *storage) {
  LOCKED(weft__gpu_load_quantized(weft__gpu_of(backend), dtype, n_rows, n_cols, data, storage));
}

/* Quantised operands of products are laid out anew, everything else is uploaded as stored. */
static weft_status gpu_load_weight(weft__backend *backend, weft_dtype dtype, int64_t n_rows, int64_t n_cols,
                                   const void *data, weft__weight_use use, const weft__weight_reader *reader,
                                   weft__storage *storage) {
  (void)reader; /* the upload is one */
  if (use == WEFT__WEIGHT_PRODUCT && weft__gpu_quantized_bits(dtype))
    return load_quantized(backend, dtype, n_rows, n_cols, data, storage);
  weft__shape_bytes(dtype, 2, (const int64_t[]){n_rows, n_cols}, &storage->n_bytes);
  weft_status status = gpu_alloc(backend, storage->n_bytes, &storage->buffer);
  if (status) return status;
  status = gpu_write(backend, storage->buffer, 0, data, storage->n_bytes);
  if (status) gpu_free(backend, storage->buffer, storage->n_bytes);
  return status;
}

static weft_status gpu_read_packed(weft__backend *backend, const weft_tensor *t, void *data) {
  LOCKED(weft__gpu_read_quantized(weft__gpu_of(backend), t, data));
}

/* All operators, of all dtypes and views that the CPU takes, but sizes that docs/gpu-kernels.md names; attention as far as
 * its kernels reach. */
static bool gpu_supports(const weft__backend *backend, const weft__op_call *call) {
  switch (call->op) {
  case WEFT_OP_ID_attention:
  case WEFT_OP_ID_attention_lse:
  case WEFT_OP_ID_attention_grad:
    return weft__gpu_attention_fits((const weft__gpu *)backend, call);
  default:
    return true;
  }
}

static const weft__backend_class GPU_CLASS = {
    .destroy = gpu_destroy,
    .lock = gpu_lock,
    .unlock = gpu_unlock,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .write = gpu_write,
    .read = gpu_read,
    .copy = gpu_copy,
    .flush = gpu_flush,
    .sync = gpu_sync,
    .load_weight = gpu_load_weight,
    .read_packed = gpu_read_packed,
    .supports = gpu_supports,
    .ops =
        {
            [WEFT_OP_ID_add] = weft__gpu_elementwise,
            [WEFT_OP_ID_sub] = weft__gpu_elementwise,
            [WEFT_OP_ID_mul] = weft__gpu_elementwise,
            [WEFT_OP_ID_div] = weft__gpu_elementwise,
            [WEFT_OP_ID_pow] = weft__gpu_elementwise,
            [WEFT_OP_ID_maximum] = weft__gpu_elementwise,
            [WEFT_OP_ID_minimum] = weft__gpu_elementwise,
            [WEFT_OP_ID_compare] = weft__gpu_elementwise,
            [WEFT_OP_ID_scale] = weft__gpu_elementwise,
            [WEFT_OP_ID_clamp] = weft__gpu_elementwise,
            [WEFT_OP_ID_abs] = weft__gpu_elementwise,
            [WEFT_OP_ID_neg] = weft__gpu_elementwise,
            [WEFT_OP_ID_exp] = weft__gpu_elementwise,
            [WEFT_OP_ID_log] = weft__gpu_elementwise,
            [WEFT_OP_ID_sqrt] = weft__gpu_elementwise,
            [WEFT_OP_ID_tanh] = weft__gpu_elementwise,
            [WEFT_OP_ID_sigmoid] = weft__gpu_elementwise,
            [WEFT_OP_ID_relu] = weft__gpu_elementwise,
            [WEFT_OP_ID_gelu] = weft__gpu_elementwise,
            [WEFT_OP_ID_gelu_tanh] = weft__gpu_elementwise,
            [WEFT_OP_ID_silu] = weft__gpu_elementwise,
            [WEFT_OP_ID_silu_mul] = weft__gpu_elementwise,
            [WEFT_OP_ID_gelu_mul] = weft__gpu_elementwise,
            [WEFT_OP_ID_relu_grad] = weft__gpu_elementwise,
            [WEFT_OP_ID_tanh_grad] = weft__gpu_elementwise,
            [WEFT_OP_ID_sigmoid_grad] = weft__gpu_elementwise,
            [WEFT_OP_ID_gelu_grad] = weft__gpu_elementwise,
            [WEFT_OP_ID_gelu_tanh_grad] = weft__gpu_elementwise,
            [WEFT_OP_ID_silu_grad] = weft__gpu_elementwise,
            [WEFT_OP_ID_where] = weft__gpu_where,
            [WEFT_OP_ID_scale_in_place] = weft__gpu_scale_in_place,
            [WEFT_OP_ID_sum] = weft__gpu_sum,
            [WEFT_OP_ID_mean] = weft__gpu_mean,
            [WEFT_OP_ID_max] = weft__gpu_max,
            [WEFT_OP_ID_min] = weft__gpu_min,
            [WEFT_OP_ID_argmax] = weft__gpu_argmax,
            [WEFT_OP_ID_top_k] = weft__gpu_top_k,
            [WEFT_OP_ID_softmax] = weft__gpu_softmax,
            [WEFT_OP_ID_softmax_grad] = weft__gpu_softmax_grad,
            [WEFT_OP_ID_cross_entropy] = weft__gpu_cross_entropy,
            [WEFT_OP_ID_cross_entropy_grad] = weft__gpu_cross_entropy_grad,
            [WEFT_OP_ID_attention] = weft__gpu_attention,
            [WEFT_OP_ID_cast] = weft__gpu_cast,
            [WEFT_OP_ID_contiguous] = weft__gpu_contiguous,
            [WEFT_OP_ID_attention_lse] = weft__gpu_attention_lse,
            [WEFT_OP_ID_attention_grad] = weft__gpu_attention_grad,
            [WEFT_OP_ID_concat] = weft__gpu_concat,
            [WEFT_OP_ID_copy_rows_into] = weft__gpu_copy_rows_into,
            [WEFT_OP_ID_fill] = weft__gpu_fill,
            [WEFT_OP_ID_fill_uniform] = weft__gpu_fill_uniform,
            [WEFT_OP_ID_fill_normal] = weft__gpu_fill_normal,
            [WEFT_OP_ID_dropout] = weft__gpu_dropout,
            [WEFT_OP_ID_adam_step] = weft__gpu_adam_step,
            [WEFT_OP_ID_sgd_step] = weft__gpu_sgd_step,
            [WEFT_OP_ID_clip_factor] = weft__gpu_clip_factor,
            [WEFT_OP_ID_sum_squares] = weft__gpu_sum_squares,
            [WEFT_OP_ID_rms_norm] = weft__gpu_rms_norm,
            [WEFT_OP_ID_rms_norm_xhat] = weft__gpu_rms_norm_xhat,
            [WEFT_OP_ID_rms_norm_grad] = weft__gpu_rms_norm_grad,
            [WEFT_OP_ID_layer_norm] = weft__gpu_layer_norm,
            [WEFT_OP_ID_layer_norm_xhat] = weft__gpu_layer_norm_xhat,
            [WEFT_OP_ID_layer_norm_grad] = weft__gpu_layer_norm_grad,
            [WEFT_OP_ID_gather] = weft__gpu_gather,
            [WEFT_OP_ID_im2col] = weft__gpu_im2col,
            [WEFT_OP_ID_col2im] = weft__gpu_col2im,
            [WEFT_OP_ID_max_pool2d] = weft__gpu_max_pool2d,
            [WEFT_OP_ID_max_pool2d_grad] = weft__gpu_max_pool2d_grad,
            [WEFT_OP_ID_scatter_add] = weft__gpu_scatter_add,
            [WEFT_OP_ID_embed] = weft__gpu_embed,
            [WEFT_OP_ID_embed_grad] = weft__gpu_embed_grad,
            [WEFT_OP_ID_kv_append] = weft__gpu_kv_append,
            [WEFT_OP_ID_paged_attention] = weft__gpu_paged_attention,
            [WEFT_OP_ID_rope_table] = weft__gpu_rope_table,
            [WEFT_OP_ID_rope] = weft__gpu_rope,
            [WEFT_OP_ID_matmul] = weft__gpu_matmul,
            [WEFT_OP_ID_matmul_nt] = weft__gpu_matmul_nt,
            [WEFT_OP_ID_quantize] = weft__gpu_quantize,
        },
};

/* ---- choosing an adapter ---- */

/* How well a kind suits the power hint; larger is better. */
static int preference(weft__adapter_kind kind, weft_power power) {
  static const int RANK[][4] = {
      /*                    discrete integrated cpu unknown */
      [WEFT_POWER_DEFAULT] = {3, 2, 0, 1},
      [WEFT_POWER_LOW] = {2, 3, 0, 1},
      [WEFT_POWER_HIGH] = {3, 2, 0, 1},
  };
  return RANK[power][kind];
}

/* The adapter that was asked for by index, else the best.  `auto` (want_cpu false) passes over software drivers. */
static weft_status choose_adapter(const weft__gpu *gpu, const weft__gpu_options *o, int *chosen) {
  int n = gpu->abi->n_adapters(gpu->instance), best = -1, best_rank = -1;
  if (o->index >= n)
    return weft__error(WEFT_ENODEVICE, "device %d: there are %d adapters (see weft devices)", o->index, n);
  for (int i = 0; i < n && o->index < 0; i++) {
    weft__adapter_info info;
    weft_status status = gpu->abi->adapter_info(gpu->instance, i, &info);
    if (status) return status;
    int rank = preference(info.kind, o->power);
    if (info.kind == WEFT__ADAPTER_CPU && !o->admit_software) continue;
    if (rank > best_rank) best = i, best_rank = rank;
  }
  *chosen = o->index >= 0 ? o->index : best;
  if (*chosen >= 0) return WEFT_OK;
  return weft__error(WEFT_ENODEVICE, "device gpu: %s has no %sadapter (install a Vulkan driver, or use --device cpu)",
                     gpu->library->path, n ? "hardware " : "");
}

/* ---- opening ---- */

/* Of what an adapter offers only what weft uses: timestamps, for WEFT_GPU_TRACE.  Asking for everything makes the library
 * refuse the device where cooperative matrices are offered, and v22 advertises an f16 that does not compile. */
static uint32_t wanted_features(const weft__adapter_info *info) { return info->features & WEFT__GPU_TIMESTAMPS; }

/* WEFT_GPU_LIMITS=min: what every WebGPU device has, so that the tests run once on the lowest common denominator.  The
 * device is asked for these limits too, and the library refuses what exceeds them, but for workgroup memory. */
static void force_lowest_limits(weft__gpu_limits *limits) {
  const char *text = getenv("WEFT_GPU_LIMITS");
  if (!text || strcmp(text, "min")) return;
  limits->max_storage_buffers = 8;
  limits->max_invocations = 256;
  limits->max_workgroup_bytes = 16384;
  if (limits->max_binding_bytes > (uint64_t)128 << 20) limits->max_binding_bytes = (uint64_t)128 << 20;
}

static weft_status open_device(weft__gpu *gpu, const weft__gpu_options *o) {
  int index = 0;
  weft_status status = choose_adapter(gpu, o, &index);
  if (!status) status = gpu->abi->adapter_info(gpu->instance, index, &gpu->info);
  if (status) return status;
  force_lowest_limits(&gpu->info.limits);
  gpu->features = wanted_features(&gpu->info);
  status = gpu->abi->device_open(&gpu->device, gpu->instance, index, gpu->features, &gpu->info.limits);
  if (status && gpu->features) { /* an advertised feature that the driver then refuses */
    gpu->features = 0;
    status = gpu->abi->device_open(&gpu->device, gpu->instance, index, 0, &gpu->info.limits);
  }
  if (!status) status = weft__gpu_memory_create(&gpu->memory);
  if (!status) status = weft__gpu_pipelines_create(&gpu->pipelines);
  if (!status) status = weft__gpu_batch_open(gpu);
  if (!status) status = weft__gpu_faults_open(gpu);
  if (!status) status = weft__gpu_trace_open(gpu);
  return status;
}

weft_status weft__gpu_create(weft__backend **out, const weft__gpu_options *options) {
  weft__gpu *gpu = weft__calloc(1, sizeof *gpu);
  if (!gpu) return WEFT_ENOMEM;
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&gpu->lock, &recursive);
  pthread_mutexattr_destroy(&recursive);
  gpu->base.class = &GPU_CLASS;
  gpu->gemm_tile = options->gemm_tile;
  gpu->is_exact = options->is_exact;
  const char *checked = getenv("WEFT_GPU_CHECKED");
  gpu->is_checked = checked && *checked && strcmp(checked, "0");
  weft_status status = weft__gpu_library_open(&gpu->library);
  if (!status) {
    gpu->abi = gpu->library->abi;
    gpu->instance = gpu->library->instance;
    status = open_device(gpu, options);
  }
  if (status) {
    gpu_destroy(&gpu->base);
    return status;
  }
  snprintf(gpu->base.name, sizeof gpu->base.name, "%s (%s, wgpu %s)", gpu->info.name, gpu->info.backend,
           gpu->abi->generation);
  *out = &gpu->base;
  return WEFT_OK;
}
