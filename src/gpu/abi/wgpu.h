/* wgpu.h - what the generations of wgpu-native have in common: opaque handles and the functions that weft calls.
 *
 * A generation declares the structs that these prototypes name, as its own headers have them; functions whose signature
 * it does not share are rows of its own. */
#ifndef WEFT_GPU_ABI_WGPU_H
#define WEFT_GPU_ABI_WGPU_H

#include <stddef.h>
#include <stdint.h>

typedef struct WGPUInstanceImpl *WGPUInstance;
typedef struct WGPUAdapterImpl *WGPUAdapter;
typedef struct WGPUDeviceImpl *WGPUDevice;
typedef struct WGPUQueueImpl *WGPUQueue;
typedef struct WGPUBufferImpl *WGPUBuffer;
typedef struct WGPUShaderModuleImpl *WGPUShaderModule;
typedef struct WGPUBindGroupLayoutImpl *WGPUBindGroupLayout;
typedef struct WGPUPipelineLayoutImpl *WGPUPipelineLayout;
typedef struct WGPUComputePipelineImpl *WGPUComputePipeline;
typedef struct WGPUBindGroupImpl *WGPUBindGroup;
typedef struct WGPUCommandEncoderImpl *WGPUCommandEncoder;
typedef struct WGPUComputePassEncoderImpl *WGPUComputePassEncoder;
typedef struct WGPUCommandBufferImpl *WGPUCommandBuffer;
typedef struct WGPUQuerySetImpl *WGPUQuerySet;

typedef uint32_t WGPUBool;

/* X(result, name without its prefix wgpu, parameters) */
#define WGPU_FUNCTIONS(X)                                                                                              \
  X(WGPUInstance, CreateInstance, (const WGPUInstanceDescriptor *))                                                    \
  X(void, InstanceRelease, (WGPUInstance))                                                                             \
  X(size_t, InstanceEnumerateAdapters, (WGPUInstance, const WGPUInstanceEnumerateAdapterOptions *, WGPUAdapter *))     \
  X(void, SetLogLevel, (uint32_t))                                                                                     \
  X(void, AdapterRelease, (WGPUAdapter))                                                                               \
  X(void, AdapterInfoFreeMembers, (WGPUAdapterInfo))                                                                   \
  X(WGPUBool, AdapterHasFeature, (WGPUAdapter, uint32_t))                                                              \
  X(void, DeviceRelease, (WGPUDevice))                                                                                 \
  X(WGPUBool, DevicePoll, (WGPUDevice, WGPUBool, const void *))                                                        \
  X(WGPUQueue, DeviceGetQueue, (WGPUDevice))                                                                           \
  X(void, QueueRelease, (WGPUQueue))                                                                                   \
  X(void, QueueSubmit, (WGPUQueue, size_t, const WGPUCommandBuffer *))                                                 \
  X(void, QueueWriteBuffer, (WGPUQueue, WGPUBuffer, uint64_t, const void *, size_t))                                   \
  X(WGPUBuffer, DeviceCreateBuffer, (WGPUDevice, const WGPUBufferDescriptor *))                                        \
  X(void *, BufferGetMappedRange, (WGPUBuffer, size_t, size_t))                                                        \
  X(const void *, BufferGetConstMappedRange, (WGPUBuffer, size_t, size_t))                                             \
  X(void, BufferUnmap, (WGPUBuffer))                                                                                   \
  X(void, BufferRelease, (WGPUBuffer))                                                                                 \
  X(WGPUShaderModule, DeviceCreateShaderModule, (WGPUDevice, const WGPUShaderModuleDescriptor *))                      \
  X(void, ShaderModuleRelease, (WGPUShaderModule))                                                                     \
  X(WGPUBindGroupLayout, DeviceCreateBindGroupLayout, (WGPUDevice, const WGPUBindGroupLayoutDescriptor *))             \
  X(void, BindGroupLayoutRelease, (WGPUBindGroupLayout))                                                               \
  X(WGPUPipelineLayout, DeviceCreatePipelineLayout, (WGPUDevice, const WGPUPipelineLayoutDescriptor *))                \
  X(void, PipelineLayoutRelease, (WGPUPipelineLayout))                                                                 \
  X(WGPUComputePipeline, DeviceCreateComputePipeline, (WGPUDevice, const WGPUComputePipelineDescriptor *))             \
  X(void, ComputePipelineRelease, (WGPUComputePipeline))                                                               \
  X(WGPUBindGroup, DeviceCreateBindGroup, (WGPUDevice, const WGPUBindGroupDescriptor *))                               \
  X(void, BindGroupRelease, (WGPUBindGroup))                                                                           \
  X(WGPUCommandEncoder, DeviceCreateCommandEncoder, (WGPUDevice, const void *))                                        \
  X(WGPUComputePassEncoder, CommandEncoderBeginComputePass, (WGPUCommandEncoder, const WGPUComputePassDescriptor *))   \
  X(void, CommandEncoderCopyBufferToBuffer,                                                                            \
    (WGPUCommandEncoder, WGPUBuffer, uint64_t, WGPUBuffer, uint64_t, uint64_t))                                        \
  X(void, CommandEncoderResolveQuerySet, (WGPUCommandEncoder, WGPUQuerySet, uint32_t, uint32_t, WGPUBuffer, uint64_t)) \
  X(WGPUCommandBuffer, CommandEncoderFinish, (WGPUCommandEncoder, const void *))                                       \
  X(void, CommandEncoderRelease, (WGPUCommandEncoder))                                                                 \
  X(void, CommandBufferRelease, (WGPUCommandBuffer))                                                                   \
  X(void, ComputePassEncoderSetPipeline, (WGPUComputePassEncoder, WGPUComputePipeline))                                \
  X(void, ComputePassEncoderSetBindGroup, (WGPUComputePassEncoder, uint32_t, WGPUBindGroup, size_t, const uint32_t *)) \
  X(void, ComputePassEncoderDispatchWorkgroups, (WGPUComputePassEncoder, uint32_t, uint32_t, uint32_t))                \
  X(void, ComputePassEncoderEnd, (WGPUComputePassEncoder))                                                             \
  X(void, ComputePassEncoderRelease, (WGPUComputePassEncoder))                                                         \
  X(WGPUQuerySet, DeviceCreateQuerySet, (WGPUDevice, const WGPUQuerySetDescriptor *))                                  \
  X(void, QuerySetRelease, (WGPUQuerySet))

#endif
