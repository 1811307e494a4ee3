/* faults.c - what kernels find wrong in the contents of operands: a few words on the device, read with the next transfer.
 *
 * A kernel that is marked WEFT__NOTES_FAULTS skips what is wrong and notes the first (wgsl/faults.wgsl).  Invariant: while
 * `is_due`, such a kernel has been recorded since the words were last looked at.  They then travel with the next read to
 * the host, so a check costs no wait of its own; a sync, which reads nothing else, reads them. */
#include "gpu/gpu.h"

weft_status weft__gpu_faults_open(weft__gpu *gpu) {
  gpu->faults.buffer = gpu->abi->buffer_create(gpu->device, WEFT__FAULT_BYTES, WEFT__BUFFER_STORAGE);
  return gpu->abi->take_error(gpu->device);
}

void weft__gpu_faults_close(weft__gpu *gpu) {
  if (gpu->faults.buffer) gpu->abi->buffer_destroy(gpu->faults.buffer);
}

weft_status weft__gpu_faults_tell(weft__gpu *gpu, const uint32_t *words) {
  static const uint32_t none[WEFT__FAULT_BYTES / 4] = {0};
  gpu->faults.is_due = false;
  if (words[0] == 0) return WEFT_OK;
  gpu->abi->buffer_write(gpu->device, gpu->faults.buffer, 0, none, sizeof none);
  weft_status status = gpu->abi->take_error(gpu->device);
  int64_t numbers[4];
  for (int i = 0; i < 4; i++) numbers[i] = (int32_t)words[1 + i];
  uint32_t code = words[0] - 1;
  return status ? status : weft__fault((weft_op)(code % 65536), (weft__fault_kind)(code / 65536), numbers);
}
