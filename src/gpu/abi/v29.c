/* v29.c - wgpu-native 29: its structs, and what it does differently from 22.
 *
 * Strings are views, flags have 64 bits, success is 1, callbacks come in a struct by value.  The structs have the names
 * and the layout of its headers; v29.def asserts them. */
#include "gpu/abi/abi.h"
#include "gpu/abi/wgpu.h"

#include <stdio.h>
#include <string.h>

enum {
#define VALUE(constant, value) constant = value,
#include "gpu/abi/v29.def"
};

/* ---- structs ---- */

typedef uint64_t WGPUFlags;

typedef struct WGPUStringView {
  const char *data;
  size_t length; /* SIZE_MAX: up to the NUL */
} WGPUStringView;

typedef struct WGPUChainedStruct {
  struct WGPUChainedStruct *next;
  uint32_t sType;
} WGPUChainedStruct;

typedef struct WGPUFuture {
  uint64_t id;
} WGPUFuture;

typedef struct WGPUInstanceDescriptor {
  WGPUChainedStruct *nextInChain;
  size_t requiredFeatureCount;
  const uint32_t *requiredFeatures;
  const void *requiredLimits;
} WGPUInstanceDescriptor;

typedef struct WGPUInstanceExtras {
  WGPUChainedStruct chain;
  WGPUFlags backends, flags;
  uint32_t dx12ShaderCompiler, gles3MinorVersion, glFenceBehaviour;
  WGPUStringView dxcPath;
  uint32_t dxcMaxShaderModel, dx12PresentationSystem;
  const uint8_t *budgetForDeviceCreation, *budgetForDeviceLoss;
  struct {
    uint32_t type;
    void *display;
    int screen;
  } displayHandle;
} WGPUInstanceExtras;

typedef struct WGPUInstanceEnumerateAdapterOptions {
  const WGPUChainedStruct *nextInChain;
  WGPUFlags backends;
} WGPUInstanceEnumerateAdapterOptions;

typedef struct WGPUAdapterInfo {
  WGPUChainedStruct *nextInChain;
  WGPUStringView vendor, architecture, device, description;
  uint32_t backendType, adapterType, vendorID, deviceID, subgroupMinSize, subgroupMaxSize;
} WGPUAdapterInfo;

typedef struct WGPULimits {
  WGPUChainedStruct *nextInChain;
  uint32_t maxTextureDimension1D, maxTextureDimension2D, maxTextureDimension3D, maxTextureArrayLayers;
  uint32_t maxBindGroups, maxBindGroupsPlusVertexBuffers, maxBindingsPerBindGroup;
  uint32_t maxDynamicUniformBuffersPerPipelineLayout, maxDynamicStorageBuffersPerPipelineLayout;
  uint32_t maxSampledTexturesPerShaderStage, maxSamplersPerShaderStage, maxStorageBuffersPerShaderStage;
  uint32_t maxStorageTexturesPerShaderStage, maxUniformBuffersPerShaderStage;
  uint64_t maxUniformBufferBindingSize, maxStorageBufferBindingSize;
  uint32_t minUniformBufferOffsetAlignment, minStorageBufferOffsetAlignment, maxVertexBuffers;
  uint64_t maxBufferSize;
  uint32_t maxVertexAttributes, maxVertexBufferArrayStride, maxInterStageShaderVariables, maxColorAttachments;
  uint32_t maxColorAttachmentBytesPerSample, maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup;
  uint32_t maxComputeWorkgroupSizeX, maxComputeWorkgroupSizeY, maxComputeWorkgroupSizeZ;
  uint32_t maxComputeWorkgroupsPerDimension, maxImmediateSize;
} WGPULimits;

typedef struct WGPUQueueDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
} WGPUQueueDescriptor;

typedef struct WGPUDeviceLostCallbackInfo {
  WGPUChainedStruct *nextInChain;
  uint32_t mode;
  void (*callback)(const WGPUDevice *device, uint32_t reason, WGPUStringView message, void *userdata1, void *userdata2);
  void *userdata1, *userdata2;
} WGPUDeviceLostCallbackInfo;

typedef struct WGPUUncapturedErrorCallbackInfo {
  WGPUChainedStruct *nextInChain;
  void (*callback)(const WGPUDevice *device, uint32_t type, WGPUStringView message, void *userdata1, void *userdata2);
  void *userdata1, *userdata2;
} WGPUUncapturedErrorCallbackInfo;

typedef struct WGPUDeviceDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
  size_t requiredFeatureCount;
  const uint32_t *requiredFeatures;
  const WGPULimits *requiredLimits;
  WGPUQueueDescriptor defaultQueue;
  WGPUDeviceLostCallbackInfo deviceLostCallbackInfo;
  WGPUUncapturedErrorCallbackInfo uncapturedErrorCallbackInfo;
} WGPUDeviceDescriptor;

typedef struct WGPURequestDeviceCallbackInfo {
  WGPUChainedStruct *nextInChain;
  uint32_t mode;
  void (*callback)(uint32_t status, WGPUDevice device, WGPUStringView message, void *userdata1, void *userdata2);
  void *userdata1, *userdata2;
} WGPURequestDeviceCallbackInfo;

typedef struct WGPUBufferDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
  WGPUFlags usage;
  uint64_t size;
  WGPUBool mappedAtCreation;
} WGPUBufferDescriptor;

typedef struct WGPUBufferMapCallbackInfo {
  WGPUChainedStruct *nextInChain;
  uint32_t mode;
  void (*callback)(uint32_t status, WGPUStringView message, void *userdata1, void *userdata2);
  void *userdata1, *userdata2;
} WGPUBufferMapCallbackInfo;

typedef struct WGPUShaderModuleDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
} WGPUShaderModuleDescriptor;

typedef struct WGPUShaderSourceWGSL {
  WGPUChainedStruct chain;
  WGPUStringView code;
} WGPUShaderSourceWGSL;

typedef struct WGPUBufferBindingLayout {
  WGPUChainedStruct *nextInChain;
  uint32_t type;
  WGPUBool hasDynamicOffset;
  uint64_t minBindingSize;
} WGPUBufferBindingLayout;

typedef struct WGPUSamplerBindingLayout {
  WGPUChainedStruct *nextInChain;
  uint32_t type;
} WGPUSamplerBindingLayout;

typedef struct WGPUTextureBindingLayout {
  WGPUChainedStruct *nextInChain;
  uint32_t sampleType, viewDimension;
  WGPUBool multisampled;
} WGPUTextureBindingLayout;

typedef struct WGPUStorageTextureBindingLayout {
  WGPUChainedStruct *nextInChain;
  uint32_t access, format, viewDimension;
} WGPUStorageTextureBindingLayout;

typedef struct WGPUBindGroupLayoutEntry {
  WGPUChainedStruct *nextInChain;
  uint32_t binding;
  WGPUFlags visibility;
  uint32_t bindingArraySize;
  WGPUBufferBindingLayout buffer;
  WGPUSamplerBindingLayout sampler;
  WGPUTextureBindingLayout texture;
  WGPUStorageTextureBindingLayout storageTexture;
} WGPUBindGroupLayoutEntry;

typedef struct WGPUBindGroupLayoutDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
  size_t entryCount;
  const WGPUBindGroupLayoutEntry *entries;
} WGPUBindGroupLayoutDescriptor;

typedef struct WGPUPipelineLayoutDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
  size_t bindGroupLayoutCount;
  const WGPUBindGroupLayout *bindGroupLayouts;
  uint32_t immediateSize;
} WGPUPipelineLayoutDescriptor;

typedef struct WGPUComputeState {
  WGPUChainedStruct *nextInChain;
  WGPUShaderModule module;
  WGPUStringView entryPoint;
  size_t constantCount;
  const void *constants;
} WGPUComputeState;

typedef struct WGPUComputePipelineDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
  WGPUPipelineLayout layout;
  WGPUComputeState compute;
} WGPUComputePipelineDescriptor;

typedef struct WGPUBindGroupEntry {
  WGPUChainedStruct *nextInChain;
  uint32_t binding;
  WGPUBuffer buffer;
  uint64_t offset, size;
  void *sampler, *textureView;
} WGPUBindGroupEntry;

typedef struct WGPUBindGroupDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
  WGPUBindGroupLayout layout;
  size_t entryCount;
  const WGPUBindGroupEntry *entries;
} WGPUBindGroupDescriptor;

typedef struct WGPUPassTimestampWrites {
  WGPUChainedStruct *nextInChain;
  WGPUQuerySet querySet;
  uint32_t beginningOfPassWriteIndex, endOfPassWriteIndex;
} WGPUPassTimestampWrites;

typedef struct WGPUComputePassDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
  const WGPUPassTimestampWrites *timestampWrites;
} WGPUComputePassDescriptor;

typedef struct WGPUQuerySetDescriptor {
  WGPUChainedStruct *nextInChain;
  WGPUStringView label;
  uint32_t type, count;
} WGPUQuerySetDescriptor;

#if UINTPTR_MAX > UINT32_MAX
#define SIZE(type, n_bytes) _Static_assert(sizeof(type) == n_bytes, #type);
#define OFFSET(type, field, n_bytes) _Static_assert(offsetof(type, field) == n_bytes, #type "." #field);
#include "gpu/abi/v29.def"
#endif

/* ---- what the verbs need to know ---- */

#define GENERATION_FUNCTIONS(X)                                                                                        \
  X(uint32_t, AdapterGetInfo, (WGPUAdapter, WGPUAdapterInfo *))                                                        \
  X(uint32_t, AdapterGetLimits, (WGPUAdapter, WGPULimits *))                                                           \
  X(WGPUFuture, AdapterRequestDevice, (WGPUAdapter, const WGPUDeviceDescriptor *, WGPURequestDeviceCallbackInfo))      \
  X(WGPUFuture, BufferMapAsync, (WGPUBuffer, WGPUFlags, size_t, size_t, WGPUBufferMapCallbackInfo))                    \
  X(WGPUShaderModule, DeviceCreateShaderModuleTrusted, (WGPUDevice, const WGPUShaderModuleDescriptor *, WGPUFlags))    \
  X(float, QueueGetTimestampPeriod, (WGPUQueue))

/* The bit, and the feature to ask for; 0 where the shading language simply has it. */
static const struct {
  uint32_t bit, name;
} feature_table[] = {
    {WEFT__GPU_F16, WGPUFeatureName_ShaderF16},
    {WEFT__GPU_SUBGROUPS, WGPUNativeFeature_Subgroup},
    {WEFT__GPU_TIMESTAMPS, WGPUFeatureName_TimestampQuery},
    {WEFT__GPU_F32_ATOMICS, WGPUNativeFeature_ShaderFloat32Atomic},
    {WEFT__GPU_TRUSTED, 0},
    {WEFT__GPU_PACKED_DOT, 0},
    {0, 0},
};

static WGPUStringView text_of(const char *text) { return (WGPUStringView){text, text ? strlen(text) : 0}; }

static size_t text_length(WGPUStringView text) {
  if (!text.data) return 0;
  return text.length == SIZE_MAX ? strlen(text.data) : text.length;
}

static void text_copy(char *to, size_t n_bytes, WGPUStringView text) {
  snprintf(to, n_bytes, "%.*s", (int)text_length(text), text.data ? text.data : "");
}

#include "gpu/abi/verbs.inc"

/* ---- what this generation does its own way ---- */

static WGPUInstance create_instance(const wgpu_functions *wgpu) {
  /* Mesa's dozen, the only way to the GPU under WSL2, is no conformant driver. */
  WGPUInstanceExtras extras = {.chain.sType = WGPUSType_InstanceExtras,
                               .backends = ENABLED_BACKENDS,
                               .flags = WGPUInstanceFlag_AllowUnderlyingNoncompliantAdapter};
  WGPUInstanceDescriptor desc = {.nextInChain = &extras.chain};
  return wgpu->CreateInstance(&desc);
}

static bool get_info(const wgpu_functions *wgpu, WGPUAdapter adapter, WGPUAdapterInfo *info) {
  return wgpu->AdapterGetInfo(adapter, info) == WGPUStatus_Success;
}

static bool get_limits(const wgpu_functions *wgpu, WGPUAdapter adapter, WGPULimits *limits) {
  return wgpu->AdapterGetLimits(adapter, limits) == WGPUStatus_Success;
}

/* Called from inside the call that caused the error, so on its thread. */
static void on_error(const WGPUDevice *handle, uint32_t type, WGPUStringView message, void *device, void *unused) {
  (void)handle, (void)unused;
  weft_status status = type == WGPUErrorType_OutOfMemory ? WEFT_ENOMEM : WEFT_EDEVICE;
  collect(device, status, message.data, text_length(message));
}

static void on_lost(const WGPUDevice *handle, uint32_t reason, WGPUStringView message, void *device, void *unused) {
  (void)handle, (void)reason, (void)unused;
  weft__gpu_device *d = device;
  d->is_lost = true;
  collect(d, WEFT_EDEVICE, message.data, text_length(message));
}

/* Called before AdapterRequestDevice returns. */
static void on_device(uint32_t status, WGPUDevice handle, WGPUStringView message, void *device, void *unused) {
  (void)unused;
  weft__gpu_device *d = device;
  if (status == WGPURequestDeviceStatus_Success)
    d->handle = handle;
  else
    collect(d, WEFT_ENODEVICE, message.data, text_length(message));
}

/* The limits are the adapter's own: by default a device has the least that WebGPU promises, 128 MiB a binding. */
static void request_device(weft__gpu_device *d, WGPUAdapter adapter, const WGPULimits *limits, const uint32_t *features,
                           size_t n_features) {
  uint32_t mode = WGPUCallbackMode_AllowSpontaneous;
  WGPUDeviceDescriptor desc = {
      .requiredFeatureCount = n_features,
      .requiredFeatures = features,
      .requiredLimits = limits,
      .deviceLostCallbackInfo = {.mode = mode, .callback = on_lost, .userdata1 = d},
      .uncapturedErrorCallbackInfo = {.callback = on_error, .userdata1 = d},
  };
  d->wgpu->AdapterRequestDevice(adapter, &desc,
                                (WGPURequestDeviceCallbackInfo){.mode = mode, .callback = on_device, .userdata1 = d});
}

/* Trusted: no bounds checks, no bounds on loops, as the host has checked what the shader indexes. */
static WGPUShaderModule create_shader(weft__gpu_device *d, const weft__pipeline_desc *desc) {
  WGPUShaderSourceWGSL source = {.chain.sType = WGPUSType_ShaderSourceWGSL, .code = text_of(desc->wgsl)};
  WGPUShaderModuleDescriptor module = {.nextInChain = &source.chain, .label = text_of(desc->label)};
  if (!desc->is_trusted) return d->wgpu->DeviceCreateShaderModule(d->handle, &module);
  return d->wgpu->DeviceCreateShaderModuleTrusted(d->handle, &module, WGPUShaderRuntimeChecks_None);
}

static void on_mapped(uint32_t status, WGPUStringView message, void *buffer, void *unused) {
  (void)message, (void)unused;
  set_mapped(buffer, status == WGPUMapAsyncStatus_Success);
}

static void start_mapping(weft__gpu_buffer *buffer, uint32_t mode, size_t n_bytes) {
  WGPUBufferMapCallbackInfo info = {
      .mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_mapped, .userdata1 = buffer};
  buffer->device->wgpu->BufferMapAsync(buffer->handle, mode, 0, n_bytes, info);
}

static double nanoseconds_per_tick(weft__gpu_device *d) { return (double)d->wgpu->QueueGetTimestampPeriod(d->queue); }

/* ---- the table ---- */

static bool accepts(uint32_t version) { return version == 0x1D000101; }

const weft__abi weft__abi_v29 = {.generation = "v29", .accepted = "29.0.1.1", .accepts = accepts, WEFT_ABI_VERBS};
