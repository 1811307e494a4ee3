/* device.c - opening devices: the one place that names the backends. */
#include "weft/device.h"
#include "cpu/cpu.h"

#include <stdlib.h> /* getenv, strtol */

/* The number of threads asked for, or what WEFT_THREADS and the machine say; 0 with the error set if it is wrong. */
static int choose_threads(int asked) {
  const char *text = getenv("WEFT_THREADS");
  if (asked == 0 && text && *text) {
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > WEFT_MAX_THREADS) {
      weft__error(WEFT_EINVAL, "WEFT_THREADS=%s: not a number of threads (1 to %d)", text, WEFT_MAX_THREADS);
      return 0;
    }
    return (int)n;
  }
  if (asked < 0 || asked > WEFT_MAX_THREADS) {
    weft__error(WEFT_EINVAL, "threads: %d (1 to %d)", asked, WEFT_MAX_THREADS);
    return 0;
  }
  int n = asked ? asked : weft__processors();
  return n < WEFT_MAX_THREADS ? n : WEFT_MAX_THREADS;
}

weft_status weft_device_open(weft_device **out, const weft_device_options *options) {
  weft_device_options o = options ? *options : (weft_device_options){0};
  if (o.kind == WEFT_DEVICE_GPU)
    return weft__error(WEFT_ENODEVICE, "device gpu: this build has no GPU support (use the CPU)");
  int n_threads = choose_threads(o.n_threads);
  if (!n_threads) return weft_last_status();
  weft_device *device = weft__calloc(1, sizeof *device);
  if (!device) return WEFT_ENOMEM;
  weft_status status = weft__cpu_create(&device->backend, o.arithmetic == WEFT_EXACT, n_threads);
  if (status) {
    weft_free(device);
    return status;
  }
  *out = device;
  return WEFT_OK;
}

void weft_device_close(weft_device *device) {
  if (!device) return;
  device->backend->class->destroy(device->backend);
  weft_free(device);
}

const char *weft_device_name(const weft_device *device) { return device->backend->name; }

weft_status weft_device_flush(weft_device *device) {
  return device->backend->class->flush ? device->backend->class->flush(device->backend) : WEFT_OK;
}

weft_status weft_device_sync(weft_device *device) {
  return device->backend->class->sync ? device->backend->class->sync(device->backend) : WEFT_OK;
}

size_t weft_device_peak_bytes(const weft_device *device) { return device->backend->peak_bytes; }

/* ---- the CPU's variants ---- */

const char *weft_cpu_variant_name(int index) {
  bool is_usable;
  const weft__cpu_kernels *kernels = weft__cpu_variant(index, &is_usable);
  return kernels ? kernels->name : NULL;
}

int weft_cpu_variant_usable(int index) {
  bool is_usable;
  return weft__cpu_variant(index, &is_usable) && is_usable;
}

const char *weft_cpu_variant_selected(void) {
  const weft__cpu_kernels *kernels = weft__cpu_select();
  return kernels ? kernels->name : NULL;
}
