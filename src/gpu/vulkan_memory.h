/* vulkan_memory.h - how much memory an adapter has, which WebGPU does not tell. */
#ifndef WEFT_GPU_VULKAN_MEMORY_H
#define WEFT_GPU_VULKAN_MEMORY_H

#include <stdint.h>

/* Bytes of the largest memory that is local to the adapter of these ids and this name; 0 if nobody tells, as where there is
 * no Vulkan. */
uint64_t weft__vulkan_memory_bytes(uint32_t vendor_id, uint32_t device_id, const char *name);

#endif
