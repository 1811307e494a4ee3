/* batch.c - recording dispatches and submitting them together.
 *
 * Invariants: a dispatch's parameters go to the next slot of the arena, which is written to the device once, just before
 * the submit; when the slots are used up, the batch is submitted.  Every WEFT__MAX_IN_FLIGHT submits the host waits, so
 * work in flight is bounded.  Errors are collected by the library and come out of submit and wait. */
#include "gpu/gpu.h"

#include <assert.h>
#include <string.h> /* memcpy */

weft_status weft__gpu_batch_open(weft__gpu *gpu) {
  gpu->arena_data = weft__alloc(WEFT__ARENA_SLOTS, WEFT__SLOT_BYTES);
  if (!gpu->arena_data) return WEFT_ENOMEM;
  gpu->arena = gpu->abi->buffer_create(gpu->device, WEFT__ARENA_SLOTS * WEFT__SLOT_BYTES, WEFT__BUFFER_UNIFORM);
  return gpu->abi->take_error(gpu->device);
}

void weft__gpu_batch_close(weft__gpu *gpu) {
  if (gpu->arena) gpu->abi->buffer_destroy(gpu->arena);
  weft_free(gpu->arena_data);
}

weft_status weft__gpu_submit(weft__gpu *gpu) {
  if (gpu->n_recorded == 0 && !gpu->has_copies) return gpu->abi->take_error(gpu->device);
  if (gpu->n_recorded)
    gpu->abi->buffer_write(gpu->device, gpu->arena, 0, gpu->arena_data, (size_t)gpu->n_recorded * WEFT__SLOT_BYTES);
  gpu->abi->submit(gpu->device);
  int n_recorded = gpu->n_recorded;
  gpu->n_recorded = 0;
  gpu->has_copies = false;
  weft__gpu_memory_sweep(gpu);
  bool must_wait = ++gpu->n_in_flight >= WEFT__MAX_IN_FLIGHT;
  gpu->abi->poll(gpu->device, must_wait);
  if (must_wait) gpu->n_in_flight = 0;
  weft_status status = gpu->abi->take_error(gpu->device);
  return status ? status : weft__gpu_trace_collect(gpu, n_recorded);
}

weft_status weft__gpu_wait(weft__gpu *gpu) {
  uint32_t word; /* read for the fault words that come with it */
  weft_status status = gpu->faults.is_due ? weft__gpu_read(&gpu->base, gpu->faults.buffer, 0, &word, sizeof word)
                                          : weft__gpu_submit(gpu);
  gpu->abi->poll(gpu->device, true);
  gpu->n_in_flight = 0;
  return status ? status : gpu->abi->take_error(gpu->device);
}

/* Records a dispatch of ranges of buffers, whose array has room for that of faults. */
static weft_status record(weft__gpu *gpu, weft__gpu_kernel kernel, weft__gpu_pipeline *pipeline, weft__gpu_range *bound,
                          const void *params, const uint32_t groups[3]) {
  if (gpu->n_recorded == WEFT__ARENA_SLOTS) {
    weft_status status = weft__gpu_submit(gpu);
    if (status) return status;
  }
  bound[weft__gpu_kernel_n_buffers(kernel)] = (weft__gpu_range){gpu->faults.buffer, 0, WEFT__FAULT_BYTES};
  weft__gpu_bindings *bindings = gpu->abi->bindings_create(gpu->device, pipeline, bound, gpu->arena);
  uint32_t slot = (uint32_t)gpu->n_recorded * WEFT__SLOT_BYTES;
  memcpy(gpu->arena_data + slot, params, weft__gpu_kernel_params_bytes(kernel));
  if (!bindings) {
    weft_status status = gpu->abi->take_error(gpu->device);
    return status ? status : weft__error(WEFT_EDEVICE, "%s: the buffers could not be bound", gpu->info.name);
  }
  weft_status status = weft__gpu_trace_dispatch(gpu);
  gpu->abi->dispatch(gpu->device, pipeline, bindings, slot, groups);
  gpu->abi->bindings_destroy(bindings);
  gpu->n_recorded++;
  gpu->faults.is_due |= weft__gpu_kernel_notes_faults(kernel);
  return status;
}

weft_status weft__gpu_dispatch3(weft__gpu *gpu, weft__gpu_kernel kernel, const weft__wgsl_const *constants,
                                const weft__gpu_range *ranges, const void *params, const uint32_t groups[3]) {
  weft__gpu_pipeline *pipeline = weft__gpu_pipeline_get(gpu, kernel, constants);
  if (!pipeline) return weft_last_status();
  weft__gpu_range bound[WEFT__MAX_BUFFERS + 1];
  weft__gpu_patches patches;
  int n_buffers = weft__gpu_kernel_n_buffers(kernel);
  assert(n_buffers <= WEFT__MAX_BUFFERS);
  weft_status status = weft__gpu_bind(gpu, ranges, n_buffers, weft__gpu_kernel_written(kernel), bound, &patches);
  if (status) return status;
  status = record(gpu, kernel, pipeline, bound, params, groups);
  weft__gpu_unbind(gpu, &patches, !status);
  return status;
}

weft_status weft__gpu_dispatch(weft__gpu *gpu, weft__gpu_kernel kernel, const weft__wgsl_const *constants,
                               const weft__gpu_range *ranges, const void *params, uint64_t n_groups) {
  if (n_groups == 0) return WEFT_OK;
  uint32_t limit = gpu->info.limits.max_groups_per_axis;
  uint64_t rows = (n_groups + limit - 1) / limit, columns = (n_groups + rows - 1) / rows;
  if (rows > limit)
    return weft__error(WEFT_EINVAL, "%s: a grid of %llu groups", gpu->info.name, (unsigned long long)n_groups);
  return weft__gpu_dispatch3(gpu, kernel, constants, ranges, params,
                             (uint32_t[]){(uint32_t)columns, (uint32_t)rows, 1});
}
