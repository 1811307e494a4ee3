/* v22.c - wgpu-native 22.1: its structs, and what it does differently from 29.
 *
 * Strings are NUL-terminated, flags have 32 bits, success is 0, callbacks and their data are arguments.  The structs have
 * the names and the layout of its headers; v22.def asserts them. */
#include "gpu/abi/abi.h"
#include "gpu/abi/wgpu.h"

#include <stdio.h>
#include <string.h>

enum {
#define VALUE(constant, value) constant = value,
#include "gpu/abi/v22.def"
};

/* ---- structs ---- */

typedef uint32_t WGPUFlags;

typedef struct WGPUChainedStruct {
  const struct WGPUChainedStruct *next;
  uint32_t sType;
} WGPUChainedStruct;

typedef struct WGPUInstanceDescriptor {
  const WGPUChainedStruct *nextInChain;
} WGPUInstanceDescriptor;

typedef struct WGPUInstanceExtras {
  WGPUChainedStruct chain;
  WGPUFlags backends, flags;
  uint32_t dx12ShaderCompiler, gles3MinorVersion;
  const char *dxilPath, *dxcPath;
} WGPUInstanceExtras;

typedef struct WGPUInstanceEnumerateAdapterOptions {
  const WGPUChainedStruct *nextInChain;
  WGPUFlags backends;
} WGPUInstanceEnumerateAdapterOptions;

typedef struct WGPUAdapterInfo {
  void *nextInChain;
  const char *vendor, *architecture, *device, *description;
  uint32_t backendType, adapterType, vendorID, deviceID;
} WGPUAdapterInfo;

typedef struct WGPULimits {
  uint32_t maxTextureDimension1D, maxTextureDimension2D, maxTextureDimension3D, maxTextureArrayLayers;
  uint32_t maxBindGroups, maxBindGroupsPlusVertexBuffers, maxBindingsPerBindGroup;
  uint32_t maxDynamicUniformBuffersPerPipelineLayout, maxDynamicStorageBuffersPerPipelineLayout;
  uint32_t maxSampledTexturesPerShaderStage, maxSamplersPerShaderStage, maxStorageBuffersPerShaderStage;
  uint32_t maxStorageTexturesPerShaderStage, maxUniformBuffersPerShaderStage;
  uint64_t maxUniformBufferBindingSize, maxStorageBufferBindingSize;
  uint32_t minUniformBufferOffsetAlignment, minStorageBufferOffsetAlignment, maxVertexBuffers;
  uint64_t maxBufferSize;
  uint32_t maxVertexAttributes, maxVertexBufferArrayStride, maxInterStageShaderComponents;
  uint32_t maxInterStageShaderVariables, maxColorAttachments, maxColorAttachmentBytesPerSample;
  uint32_t maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup;
  uint32_t maxComputeWorkgroupSizeX, maxComputeWorkgroupSizeY, maxComputeWorkgroupSizeZ;
  uint32_t maxComputeWorkgroupsPerDimension;
} WGPULimits;

typedef struct WGPUSupportedLimits {
  void *nextInChain;
  WGPULimits limits;
} WGPUSupportedLimits;

typedef struct WGPURequiredLimits {
  const WGPUChainedStruct *nextInChain;
  WGPULimits limits;
} WGPURequiredLimits;

typedef struct WGPUQueueDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
} WGPUQueueDescriptor;

typedef struct WGPUUncapturedErrorCallbackInfo {
  const WGPUChainedStruct *nextInChain;
  void (*callback)(uint32_t type, const char *message, void *userdata);
  void *userdata;
} WGPUUncapturedErrorCallbackInfo;

typedef struct WGPUDeviceDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
  size_t requiredFeatureCount;
  const uint32_t *requiredFeatures;
  const WGPURequiredLimits *requiredLimits;
  WGPUQueueDescriptor defaultQueue;
  void (*deviceLostCallback)(uint32_t reason, const char *message, void *userdata);
  void *deviceLostUserdata;
  WGPUUncapturedErrorCallbackInfo uncapturedErrorCallbackInfo;
} WGPUDeviceDescriptor;

typedef struct WGPUBufferDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
  WGPUFlags usage;
  uint64_t size;
  WGPUBool mappedAtCreation;
} WGPUBufferDescriptor;

typedef struct WGPUShaderModuleDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
  size_t hintCount;
  const void *hints;
} WGPUShaderModuleDescriptor;

typedef struct WGPUShaderModuleWGSLDescriptor {
  WGPUChainedStruct chain;
  const char *code;
} WGPUShaderModuleWGSLDescriptor;

typedef struct WGPUBufferBindingLayout {
  const WGPUChainedStruct *nextInChain;
  uint32_t type;
  WGPUBool hasDynamicOffset;
  uint64_t minBindingSize;
} WGPUBufferBindingLayout;

typedef struct WGPUSamplerBindingLayout {
  const WGPUChainedStruct *nextInChain;
  uint32_t type;
} WGPUSamplerBindingLayout;

typedef struct WGPUTextureBindingLayout {
  const WGPUChainedStruct *nextInChain;
  uint32_t sampleType, viewDimension;
  WGPUBool multisampled;
} WGPUTextureBindingLayout;

typedef struct WGPUStorageTextureBindingLayout {
  const WGPUChainedStruct *nextInChain;
  uint32_t access, format, viewDimension;
} WGPUStorageTextureBindingLayout;

typedef struct WGPUBindGroupLayoutEntry {
  const WGPUChainedStruct *nextInChain;
  uint32_t binding;
  WGPUFlags visibility;
  WGPUBufferBindingLayout buffer;
  WGPUSamplerBindingLayout sampler;
  WGPUTextureBindingLayout texture;
  WGPUStorageTextureBindingLayout storageTexture;
} WGPUBindGroupLayoutEntry;

typedef struct WGPUBindGroupLayoutDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
  size_t entryCount;
  const WGPUBindGroupLayoutEntry *entries;
} WGPUBindGroupLayoutDescriptor;

typedef struct WGPUPipelineLayoutDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
  size_t bindGroupLayoutCount;
  const WGPUBindGroupLayout *bindGroupLayouts;
} WGPUPipelineLayoutDescriptor;

typedef struct WGPUProgrammableStageDescriptor {
  const WGPUChainedStruct *nextInChain;
  WGPUShaderModule module;
  const char *entryPoint;
  size_t constantCount;
  const void *constants;
} WGPUProgrammableStageDescriptor;

typedef struct WGPUComputePipelineDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
  WGPUPipelineLayout layout;
  WGPUProgrammableStageDescriptor compute;
} WGPUComputePipelineDescriptor;

typedef struct WGPUBindGroupEntry {
  const WGPUChainedStruct *nextInChain;
  uint32_t binding;
  WGPUBuffer buffer;
  uint64_t offset, size;
  void *sampler, *textureView;
} WGPUBindGroupEntry;

typedef struct WGPUBindGroupDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
  WGPUBindGroupLayout layout;
  size_t entryCount;
  const WGPUBindGroupEntry *entries;
} WGPUBindGroupDescriptor;

typedef struct WGPUComputePassTimestampWrites {
  WGPUQuerySet querySet;
  uint32_t beginningOfPassWriteIndex, endOfPassWriteIndex;
} WGPUComputePassTimestampWrites;

typedef struct WGPUComputePassDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
  const WGPUComputePassTimestampWrites *timestampWrites;
} WGPUComputePassDescriptor;

typedef struct WGPUQuerySetDescriptor {
  const WGPUChainedStruct *nextInChain;
  const char *label;
  uint32_t type, count;
} WGPUQuerySetDescriptor;

#if UINTPTR_MAX > UINT32_MAX
#define SIZE(type, n_bytes) _Static_assert(sizeof(type) == n_bytes, #type);
#define OFFSET(type, field, n_bytes) _Static_assert(offsetof(type, field) == n_bytes, #type "." #field);
#include "gpu/abi/v22.def"
#endif

/* ---- what the verbs need to know ---- */

typedef WGPUComputePassTimestampWrites WGPUPassTimestampWrites;

#define GENERATION_FUNCTIONS(X)                                                                                        \
  X(void, AdapterGetInfo, (WGPUAdapter, WGPUAdapterInfo *))                                                            \
  X(WGPUBool, AdapterGetLimits, (WGPUAdapter, WGPUSupportedLimits *))                                                  \
  X(void, AdapterRequestDevice,                                                                                        \
    (WGPUAdapter, const WGPUDeviceDescriptor *, void (*)(uint32_t, WGPUDevice, const char *, void *), void *))         \
  X(void, BufferMapAsync, (WGPUBuffer, WGPUFlags, size_t, size_t, void (*)(uint32_t, void *), void *))

/* Nothing is worth asking for: its WGSL refuses the f16 that adapters advertise, and nothing tells how long a tick of the
 * time stamps is. */
static const struct { uint32_t bit, name; } feature_table[] = {{0, 0}};

static const char *text_of(const char *text) { return text; }

static void text_copy(char *to, size_t n_bytes, const char *text) { snprintf(to, n_bytes, "%s", text ? text : ""); }

#include "gpu/abi/verbs.inc"

/* ---- what this generation does its own way ---- */

static WGPUInstance create_instance(const wgpu_functions *wgpu) {
  WGPUInstanceExtras extras = {.chain.sType = WGPUSType_InstanceExtras, .backends = ENABLED_BACKENDS};
  WGPUInstanceDescriptor desc = {.nextInChain = &extras.chain};
  return wgpu->CreateInstance(&desc);
}

/* These two answer without a status: the library ends the process where it has no answer. */
static bool get_info(const wgpu_functions *wgpu, WGPUAdapter adapter, WGPUAdapterInfo *info) {
  wgpu->AdapterGetInfo(adapter, info);
  return true;
}

static bool get_limits(const wgpu_functions *wgpu, WGPUAdapter adapter, WGPULimits *limits) {
  WGPUSupportedLimits supported = {0};
  if (!wgpu->AdapterGetLimits(adapter, &supported)) return false;
  *limits = supported.limits;
  /* An adapter without a limit says so with the number that means "not asked for" in a request, which would get the
   * default of 256 MiB. */
  if (limits->maxBufferSize == UINT64_MAX) limits->maxBufferSize = (uint64_t)1 << 46;
  return true;
}

/* Called from inside the call that caused the error, so on its thread.  Without it the library would end the process. */
static void on_error(uint32_t type, const char *message, void *device) {
  weft_status status = type == WGPUErrorType_OutOfMemory ? WEFT_ENOMEM : WEFT_EDEVICE;
  collect_text(device, status, message);
}

static void on_lost(uint32_t reason, const char *message, void *device) {
  (void)reason;
  weft__gpu_device *d = device;
  d->is_lost = true;
  collect_text(d, WEFT_EDEVICE, message);
}

static void on_device(uint32_t status, WGPUDevice handle, const char *message, void *device) {
  weft__gpu_device *d = device;
  if (status == WGPURequestDeviceStatus_Success)
    d->handle = handle;
  else
    collect_text(d, WEFT_ENODEVICE, message);
}

/* The limits are the adapter's own, as in v29. */
static void request_device(weft__gpu_device *d, WGPUAdapter adapter, const WGPULimits *limits, const uint32_t *features,
                           size_t n_features) {
  WGPURequiredLimits required = {.limits = *limits};
  WGPUDeviceDescriptor desc = {
      .requiredFeatureCount = n_features,
      .requiredFeatures = features,
      .requiredLimits = &required,
      .deviceLostCallback = on_lost,
      .deviceLostUserdata = d,
      .uncapturedErrorCallbackInfo = {.callback = on_error, .userdata = d},
  };
  d->wgpu->AdapterRequestDevice(adapter, &desc, on_device, d);
}

/* This generation always checks bounds. */
static WGPUShaderModule create_shader(weft__gpu_device *d, const weft__pipeline_desc *desc) {
  WGPUShaderModuleWGSLDescriptor source = {.chain.sType = WGPUSType_ShaderModuleWGSLDescriptor, .code = desc->wgsl};
  WGPUShaderModuleDescriptor module = {.nextInChain = &source.chain, .label = desc->label};
  return d->wgpu->DeviceCreateShaderModule(d->handle, &module);
}

static void on_mapped(uint32_t status, void *buffer) { set_mapped(buffer, status == WGPUBufferMapAsyncStatus_Success); }

static void start_mapping(weft__gpu_buffer *buffer, uint32_t mode, size_t n_bytes) {
  buffer->device->wgpu->BufferMapAsync(buffer->handle, mode, 0, n_bytes, on_mapped, buffer);
}

/* Never asked for a number, as no device of this generation has time stamps. */
static double nanoseconds_per_tick(weft__gpu_device *d) {
  (void)d;
  return 0;
}

/* ---- the table ---- */

static bool accepts(uint32_t version) { return version == 0x16010005; }

const weft__abi weft__abi_v22 = {.generation = "v22", .accepted = "22.1.0.5", .accepts = accepts, WEFT_ABI_VERBS};
