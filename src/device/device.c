/* device.c - opening devices: the one place that names the backends. */
#include "weft/device.h"
#include "cpu/cpu.h"
#ifdef WEFT_GPU
#include "gpu/gpu.h"
#endif

#include <stdlib.h> /* getenv, strtol */

/* The number of threads asked for, or what WEFT_THREADS, a list of processors (0: none) and the machine say; 0 with the
 * error set if it is wrong. */
static int choose_threads(int asked, int n_cpus) {
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
  int n = asked ? asked : n_cpus ? n_cpus : weft__processors();
  return n < WEFT_MAX_THREADS ? n : WEFT_MAX_THREADS;
}

#ifdef WEFT_GPU

/* Which adapter: the one that WEFT_ADAPTER names by its number, else the caller's, else -1. */
static weft_status choose_adapter(const weft_device_options *o, int *index) {
  const char *text = getenv("WEFT_ADAPTER");
  *index = o->adapter - 1;
  if (!text || !*text) return WEFT_OK;
  char *end;
  long n = strtol(text, &end, 10);
  if (*end || n < 0 || n > 1000)
    return weft__error(WEFT_EINVAL, "WEFT_ADAPTER=%s: not an adapter's number (see weft devices)", text);
  *index = (int)n;
  return WEFT_OK;
}

static weft_status open_gpu(weft_device *device, const weft_device_options *o) {
  weft__gpu_options options = {.power = o->power, .gemm_tile = o->gemm_tile, .is_exact = o->arithmetic == WEFT_EXACT};
  weft_status status = choose_adapter(o, &options.index);
  if (status) return status;
  /* AUTO passes over software drivers unless one is named: they are slower than the CPU path. */
  options.admit_software = o->kind == WEFT_DEVICE_GPU;
  status = weft__gpu_create(&device->backend, &options);
  if (!status) device->backend->fallback = device->host;
  return status;
}

#else

static weft_status open_gpu(weft_device *device, const weft_device_options *o) {
  (void)device, (void)o;
  return weft__error(WEFT_EUNSUPPORTED, "device gpu: this build has no GPU code (build with WGPU=all, or use the CPU)");
}

#endif

/* The CPU backend is always opened: it is the device itself, or runs what the GPU lacks. */
static weft_status open_backends(weft_device *device, const weft_device_options *o) {
  if ((unsigned)o->kind > WEFT_DEVICE_GPU || (unsigned)o->arithmetic > WEFT_EXACT ||
      (unsigned)o->power > WEFT_POWER_HIGH ||
      !(o->gemm_tile == 0 || o->gemm_tile == 1 || o->gemm_tile == 8 || o->gemm_tile == 16 || o->gemm_tile == 32))
    return weft__error(WEFT_EINVAL, "device: an option is not one of its enum's values");
  weft__cpu_list cpus = {0};
  weft_status status = o->affinity ? weft__cpu_list_parse(&cpus, o->affinity) : WEFT_OK;
  if (status) return status;
  int n_threads = choose_threads(o->n_threads, cpus.n);
  if (!n_threads) return weft_last_status();
  status = weft__cpu_create(&device->host, o->arithmetic == WEFT_EXACT, n_threads, cpus.n ? &cpus : NULL);
  if (status) return status;
  status = o->kind == WEFT_DEVICE_CPU ? WEFT_ENODEVICE : open_gpu(device, o);
  if (status && o->kind == WEFT_DEVICE_GPU) return status;
  device->is_exact = o->arithmetic == WEFT_EXACT;
  if (status) { /* the CPU it is */
    device->backend = device->host;
    device->host = NULL;
  }
  return WEFT_OK;
}

weft_status weft_device_open(weft_device **out, const weft_device_options *options) {
  weft_device_options o = options ? *options : (weft_device_options){0};
  weft_device *device = weft__calloc(1, sizeof *device);
  if (!device) return WEFT_ENOMEM;
  weft_status status = open_backends(device, &o);
  if (status) {
    weft_device_close(device);
    return status;
  }
  *out = device;
  return WEFT_OK;
}

void weft_device_close(weft_device *device) {
  if (!device) return;
  if (device->backend) device->backend->class->destroy(device->backend);
  if (device->host) device->host->class->destroy(device->host);
  weft_free(device);
}

const char *weft_device_name(const weft_device *device) { return device->backend->name; }

weft_status weft_device_flush(weft_device *device) {
  return device->backend->class->flush ? device->backend->class->flush(device->backend) : WEFT_OK;
}

weft_status weft_device_begin_batch(weft_device *device) { return weft_device_flush(device); }

weft_status weft_device_sync(weft_device *device) {
  return device->backend->class->sync ? device->backend->class->sync(device->backend) : WEFT_OK;
}

weft_status weft_device_measure_flops(weft_device *device, double *flops_per_s) {
  weft__backend *backend = device->backend;
  if (!backend->class->measure_flops)
    return weft__error(WEFT_EUNSUPPORTED, "%s: its arithmetic peak cannot be measured", backend->name);
  return backend->class->measure_flops(backend, flops_per_s);
}

size_t weft_device_profile(const weft_device *device, weft_profile_row *rows, size_t n) {
  const weft__profile *profile = device->backend->profile;
  size_t n_rows = 0;
  for (int op = 0; profile && op < WEFT_OP_COUNT; op++) {
    if (profile[op].n_runs == 0) continue;
    if (n_rows < n)
      rows[n_rows] = (weft_profile_row){weft__op_get((weft_op)op)->name, profile[op].n_runs, profile[op].total_ms};
    n_rows++;
  }
  return n_rows;
}

int64_t weft_device_n_fallbacks(const weft_device *device) { return device->backend->n_fallbacks; }

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
