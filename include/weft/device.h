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
  int adapter;      /* GPU: 1 + the adapter's index (weft devices), 0 = chosen by power and WEFT_ADAPTER */
  weft_arithmetic arithmetic;
  int n_threads; /* CPU: threads that compute, the caller among them; 0 = WEFT_THREADS, else the processors allowed */
} weft_device_options;

/* Opens a device; `options` may be NULL for the defaults.  AUTO takes a hardware GPU if there is one, else the CPU (the
 * thread's last error then says why); it passes over software drivers, which are slower than the CPU path.  ENODEVICE:
 * there is no device of that kind.  EUNSUPPORTED: a GPU, but this build has no GPU code.  EINVAL: WEFT_CPU names a variant
 * that is unknown or that this processor lacks.  Results never depend on n_threads. */
WEFT_API weft_status weft_device_open(weft_device **out, const weft_device_options *options);

/* Every scope on the device must be closed before. */
WEFT_API void weft_device_close(weft_device *device);

/* "cpu (avx512, 2 threads)"; borrowed from the device. */
WEFT_API const char *weft_device_name(const weft_device *device);

/* A GPU records operators and submits them together: when a tensor is read, when some hundreds have been recorded, or by
 * flush.  sync waits until all work has finished; errors of the device come out of both.  No-ops on the CPU. */
WEFT_API weft_status weft_device_flush(weft_device *device);
WEFT_API weft_status weft_device_sync(weft_device *device);

/* Largest number of bytes that tensors held on this device at one time, pooled buffers included. */
WEFT_API size_t weft_device_peak_bytes(const weft_device *device);

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
