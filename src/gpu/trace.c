/* trace.c - WEFT_GPU_TRACE=1: device time per operator, by timestamps around every dispatch.
 *
 * A traced dispatch is a pass of its own, so tracing changes what it measures a little: dispatches no longer overlap. */
#include "gpu/gpu.h"

#include <stdlib.h> /* getenv */
#include <string.h> /* strcmp */

struct weft__gpu_trace {
  weft__profile profile[WEFT_OP_COUNT];
  weft_op recorded[WEFT__ARENA_SLOTS]; /* the operator of each dispatch since the last submit */
  uint64_t nanoseconds[2 * WEFT__ARENA_SLOTS];
};

weft_status weft__gpu_trace_open(weft__gpu *gpu) {
  const char *text = getenv("WEFT_GPU_TRACE");
  if (!text || !*text || !strcmp(text, "0")) return WEFT_OK;
  if (!(gpu->features & WEFT__GPU_TIMESTAMPS))
    return weft__error(WEFT_EUNSUPPORTED, "WEFT_GPU_TRACE: %s has no timestamps (unset it)", gpu->info.name);
  gpu->trace = weft__calloc(1, sizeof *gpu->trace);
  if (!gpu->trace) return WEFT_ENOMEM;
  gpu->base.profile = gpu->trace->profile;
  return WEFT_OK;
}

weft_status weft__gpu_trace_dispatch(weft__gpu *gpu) {
  if (!gpu->trace) return WEFT_OK;
  gpu->trace->recorded[gpu->n_recorded] = gpu->base.current_op;
  return gpu->n_recorded ? WEFT_OK : gpu->abi->stamp_begin(gpu->device, WEFT__ARENA_SLOTS);
}

weft_status weft__gpu_trace_collect(weft__gpu *gpu, int n_recorded) {
  if (!gpu->trace || n_recorded == 0) return WEFT_OK;
  int n = n_recorded;
  weft_status status = gpu->abi->stamp_read(gpu->device, gpu->trace->nanoseconds, &n);
  for (int i = 0; i < n && i < n_recorded && !status; i++) {
    weft__profile *row = &gpu->trace->profile[gpu->trace->recorded[i]];
    row->n_runs++;
    row->total_ms += (double)(gpu->trace->nanoseconds[2 * i + 1] - gpu->trace->nanoseconds[2 * i]) * 1e-6;
  }
  return status;
}
