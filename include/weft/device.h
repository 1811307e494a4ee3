/* weft/device.h - opening the device that tensors live on and operators run on. */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_device_kind {
  WEFT_DEVICE_AUTO, /* the best there is */
  WEFT_DEVICE_CPU,
  WEFT_DEVICE_GPU,
} weft_device_kind;

/* How products with quantised weights are computed. */
typedef enum weft_arithmetic {
  WEFT_FAST,  /* activations quantised to 8 bits per block of 32, integer dot products */
  WEFT_EXACT, /* activations stay f32 */
} weft_arithmetic;

/* Which GPU, where there are several: low leans to the integrated one, high to the discrete one. */
typedef enum weft_power {
  WEFT_POWER_DEFAULT,
  WEFT_POWER_LOW,
  WEFT_POWER_HIGH,
} weft_power;

typedef struct weft_device_options {
  weft_device_kind kind;
  weft_power power; /* GPU: a hint */
  int adapter;      /* GPU: 1 + the adapter's index (weft devices), 0 = chosen by power; WEFT_ADAPTER overrides both */
  int gemm_tile; /* GPU: 0 = products run the kernel that suits their shape; for study: 1 = the naive kernel, 8, 16, 32 =
                     * square tiles of that size in workgroup memory */
  weft_arithmetic arithmetic;
  int n_threads; /* CPU: threads that compute, the caller among them; 0 = WEFT_THREADS, else one for each processor of
                  * affinity, else the processors allowed */
  const char *affinity; /* CPU: processors ("0-3,8") that the threads are pinned to in turn, the thread that opens the
                         * device to the first, until it closes it; NULL = the system places them */
} weft_device_options;

/* Opens a device; `options` may be NULL for the defaults.  AUTO takes a hardware GPU if there is one, else the CPU (the
 * thread's last error then says why); it passes over software drivers, which are slower than the CPU path.  ENODEVICE:
 * there is no device of that kind.  EUNSUPPORTED: a GPU, but this build has no GPU code.  EINVAL: WEFT_CPU names a variant
 * that is unknown or that this processor lacks, or affinity is no list or names a processor that this process may not
 * use.  EUNSUPPORTED, too: affinity on a system other than Linux.  Results never depend on n_threads. */
WEFT_API weft_status weft_device_open(weft_device **out, const weft_device_options *options);

/* Every scope on the device must be closed before. */
WEFT_API void weft_device_close(weft_device *device);

/* "cpu (avx512, 2 threads)"; borrowed from the device. */
WEFT_API const char *weft_device_name(const weft_device *device);

/* A GPU records operators and submits them together: when a tensor is read, when some hundreds have been recorded, or by
 * flush.  sync waits until all work has finished; errors of the device come out of both.  EINVAL of sync, or of a read: an
 * operator recorded before was given an index out of range (weft/ops.h).  No-ops on the CPU. */
WEFT_API weft_status weft_device_flush(weft_device *device);
/* Begins a batch of one's own: what was recorded before is submitted, so that the next flush submits just what follows. */
WEFT_API weft_status weft_device_begin_batch(weft_device *device);
WEFT_API weft_status weft_device_sync(weft_device *device);

/* The device's arithmetic peak, measured now: f32 operations a second in a loop of fused multiply-adds without memory, each
 * of them two.  EUNSUPPORTED: the device does not offer it. */
WEFT_API weft_status weft_device_measure_flops(weft_device *device, double *flops_per_s);

/* Device time by operator, if the device was opened with WEFT_GPU_TRACE=1 in the environment: fills in rows for the
 * operators that have run, at most n, and returns how many there are (0 if nothing is measured). */
typedef struct weft_profile_row {
  const char *op; /* "matmul"; static */
  int64_t n_runs; /* dispatches */
  double total_ms;
} weft_profile_row;
WEFT_API size_t weft_device_profile(const weft_device *device, weft_profile_row *rows, size_t n);

/* Operators that the device lacked and the CPU ran in its place (WEFT_STRICT=1 makes that an error). */
WEFT_API int64_t weft_device_n_fallbacks(const weft_device *device);

/* Largest number of bytes that tensors held on this device at one time, pooled buffers included. */
WEFT_API size_t weft_device_peak_bytes(const weft_device *device);

/* ---- what there is ---- */

/* A GPU as the WebGPU library shows it.  Its index in the list is what weft_device_options.adapter counts. */
typedef struct weft_adapter {
  char name[128];     /* "AMD Radeon 780M" */
  char kind[16];      /* "discrete", "integrated", "cpu" (a software driver), "unknown" */
  char vendor[64];    /* "AMD"; may be empty, as may the driver */
  char driver[128];   /* name and version */
  char backend[16];   /* "Vulkan", "Metal", "D3D12" */
  char features[128]; /* those that weft has a use for, with blanks between: "f16 subgroups" */
  char library[1024]; /* path of the WebGPU library; its bare name if the system found it */
  char library_version[16];
  char generation[16];   /* of its API: "v29" */
  uint64_t memory_bytes; /* of its own, or the part of the machine's that it takes; 0 if not known */
  uint64_t max_buffer_bytes;
  uint64_t max_binding_bytes;   /* of a buffer that a shader sees at once */
  uint32_t max_bindings;        /* storage buffers of a shader */
  uint32_t max_invocations;     /* of a workgroup */
  uint32_t max_workgroup_bytes; /* memory that a workgroup shares */
  uint32_t max_groups_per_axis; /* of a dispatch */
} weft_adapter;

/* Lists the adapters, in the same order every time, at least one: discrete GPUs, integrated ones, others, software drivers.
 * ENODEVICE: there is no library or no adapter, and the message says where one was looked for.  EUNSUPPORTED: this build
 * has no GPU code.  The rows are freed with weft_free. */
WEFT_API weft_status weft_adapters_list(weft_adapter **rows, int *n);

/* The generations of the WebGPU API compiled in ("v29"), best first, NULL after the last. */
WEFT_API const char *weft_gpu_generation_name(int index);

/* Writes "wgpu-native 29.0.1.1 (v29), PATH" of the library that a GPU would be opened with into text (n_bytes, cut if need
 * be).  ENODEVICE: none is found, and the message names every place.  EUNSUPPORTED: this build has no GPU code. */
WEFT_API weft_status weft_gpu_library_find(char *text, size_t n_bytes);

/* The CPU variants compiled in, in order of preference, NULL after the last; and the one that WEFT_CPU or the processor
 * selects (NULL with the error set if WEFT_CPU is wrong). */
WEFT_API const char *weft_cpu_variant_name(int index);
WEFT_API const char *weft_cpu_variant_selected(void);
/* 1 if this processor can run variant `index`, else 0. */
WEFT_API int weft_cpu_variant_usable(int index);

#ifdef __cplusplus
}
#endif
#endif
