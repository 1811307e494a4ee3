/* abi.h - what the GPU backend needs of a WebGPU library: a table of synchronous verbs, one table a generation of the API.
 *
 * Above this header there is no WebGPU type and no #if on a generation; below it, a generation is one file that declares
 * the structs it passes (checked offset by offset) and includes verbs.inc.  A generation: wgpu-native v22, v29; later Dawn.
 *
 * Invariants: handles are opaque and released by the verb that names them.  A device is used by one thread at a time.
 * Validation, memory and device-lost errors do not come back from the verb that caused them: the library reports them
 * when it likes, the table collects the first of them, and take_error hands it over. */
#ifndef WEFT_GPU_ABI_H
#define WEFT_GPU_ABI_H

#include "base/base.h"

typedef struct weft__abi weft__abi;

typedef struct weft__gpu_instance weft__gpu_instance; /* a loaded library with its adapters */
typedef struct weft__gpu_device weft__gpu_device;
typedef struct weft__gpu_buffer weft__gpu_buffer;
typedef struct weft__gpu_pipeline weft__gpu_pipeline;
typedef struct weft__gpu_bindings weft__gpu_bindings; /* a bind group */

typedef enum weft__adapter_kind {
  WEFT__ADAPTER_DISCRETE,
  WEFT__ADAPTER_INTEGRATED,
  WEFT__ADAPTER_CPU,     /* a software driver */
  WEFT__ADAPTER_UNKNOWN, /* a virtual GPU, say */
} weft__adapter_kind;

typedef struct weft__gpu_limits {
  uint64_t max_buffer_bytes;
  uint64_t max_binding_bytes;     /* of one storage binding */
  uint32_t max_storage_buffers;   /* a pipeline */
  uint32_t max_groups_per_axis;   /* of a dispatch */
  uint32_t max_invocations;       /* of a workgroup */
  uint32_t max_workgroup_size[3]; /* an axis */
  uint32_t max_workgroup_bytes;   /* var<workgroup> */
  uint32_t storage_alignment;     /* of a binding's offset */
  uint32_t uniform_alignment;     /* of a dynamic offset */
} weft__gpu_limits;

/* What the adapter advertises, less what is known not to work: v22 advertises an f16 whose shaders do not compile. */
typedef enum weft__gpu_feature {
  WEFT__GPU_F16 = 1 << 0,
  WEFT__GPU_SUBGROUPS = 1 << 1,
  WEFT__GPU_TIMESTAMPS = 1 << 2, /* at the borders of a compute pass */
  WEFT__GPU_F32_ATOMICS = 1 << 3,
  WEFT__GPU_TRUSTED = 1 << 4,    /* shaders without bounds checks */
  WEFT__GPU_PACKED_DOT = 1 << 5, /* dot4I8Packed and kin in the shading language */
} weft__gpu_feature;

typedef struct weft__adapter_info {
  char name[128]; /* "NVIDIA H200" */
  char vendor[64];
  char driver[128]; /* name and version */
  char backend[16]; /* "Vulkan", "Metal", "D3D12" */
  weft__adapter_kind kind;
  uint32_t vendor_id, device_id;
  uint32_t features; /* weft__gpu_feature bits */
  weft__gpu_limits limits;
} weft__adapter_info;

typedef enum weft__buffer_usage {
  WEFT__BUFFER_STORAGE,  /* bound to shaders, copied both ways, written by the queue */
  WEFT__BUFFER_UNIFORM,  /* bound with dynamic offsets, written by the queue */
  WEFT__BUFFER_READBACK, /* copied to, then mapped and read */
  WEFT__BUFFER_UPLOAD,   /* mapped at creation and written, then copied from */
} weft__buffer_usage;

/* A storage range bound to a shader at the binding of its index. */
typedef struct weft__gpu_range {
  weft__gpu_buffer *buffer;
  uint64_t offset, n_bytes;
} weft__gpu_range;

/* One pipeline: group 0 has n_storage storage buffers at bindings 0.. (bit i of read_only: var<storage, read>), then one
 * uniform block of uniform_bytes > 0 at binding n_storage, with a dynamic offset. */
typedef struct weft__pipeline_desc {
  const char *label;
  const char *wgsl; /* NUL-terminated; entry point "main" */
  int n_storage;
  uint32_t read_only;
  uint32_t uniform_bytes;
  bool is_trusted; /* leave bounds checks out, where the generation can */
} weft__pipeline_desc;

struct weft__abi {
  const char *generation; /* "v29" */
  /* Version as the library reports it (wgpuGetVersion), accepted or not; accepts() knows the versions that were tested. */
  bool (*accepts)(uint32_t version);
  const char *accepted; /* "29.0.x"; for messages */

  /* Resolves the symbols and makes an instance.  `library` is open and stays open longer.  ENODEVICE names a missing
   * symbol.  Admits non-conformant adapters where the generation has a flag for it. */
  weft_status (*instance_open)(weft__gpu_instance **out, void *library);
  void (*instance_close)(weft__gpu_instance *instance);
  /* Adapters are numbered in the library's order, except that discrete ones come first, software drivers last. */
  int (*n_adapters)(const weft__gpu_instance *instance);
  weft_status (*adapter_info)(const weft__gpu_instance *instance, int index, weft__adapter_info *info);

  /* Opens a device with the limits asked for, none beyond the adapter's (NULL: the adapter's own), and of its features only
   * those in `features`.  The library refuses what exceeds them.  ENODEVICE with the library's reason. */
  weft_status (*device_open)(weft__gpu_device **out, weft__gpu_instance *instance, int index, uint32_t features,
                             const weft__gpu_limits *limits);
  void (*device_close)(weft__gpu_device *device);
  /* Processes what is due; with `wait` set, until all submitted work has finished. */
  void (*poll)(weft__gpu_device *device, bool wait);
  /* The first error since the last call: WEFT_OK if none; EDEVICE (validation: our bug or the driver's; device lost) or
   * ENOMEM, with the thread's last error set. */
  weft_status (*take_error)(weft__gpu_device *device);
  bool (*is_lost)(const weft__gpu_device *device);

  /* NULL if the library refuses at once (the error is collected; ENOMEM beyond limits.max_buffer_bytes).  n_bytes > 0 is
   * a multiple of 4; the contents are zeros. */
  weft__gpu_buffer *(*buffer_create)(weft__gpu_device *device, uint64_t n_bytes, weft__buffer_usage usage);
  /* Its memory is free once the bindings that name it are destroyed too and submitted work that uses it has run. */
  void (*buffer_destroy)(weft__gpu_buffer *buffer);
  void (*buffer_write)(weft__gpu_device *device, weft__gpu_buffer *buffer, uint64_t offset, const void *data,
                       size_t n_bytes); /* ordered before the next submit; sizes and offsets are multiples of 4 */
  /* Of an UPLOAD buffer that is mapped: fresh from its creation, or again after read_begin. */
  void *(*buffer_mapped)(weft__gpu_buffer *buffer, uint64_t n_bytes);
  void (*buffer_unmap)(weft__gpu_buffer *buffer);

  weft__gpu_pipeline *(*pipeline_create)(weft__gpu_device *device, const weft__pipeline_desc *desc);
  void (*pipeline_destroy)(weft__gpu_pipeline *pipeline);
  /* `uniforms` is bound at the last binding with its pipeline's uniform_bytes. */
  weft__gpu_bindings *(*bindings_create)(weft__gpu_device *device, weft__gpu_pipeline *pipeline,
                                         const weft__gpu_range *ranges, weft__gpu_buffer *uniforms);
  void (*bindings_destroy)(weft__gpu_bindings *bindings);

  /* Recording: one command encoder is open from the first of these to submit; a compute pass opens and closes inside it as
   * needed.  If a command reports an error, submit drops the whole recording.  A dispatch may not bind one buffer both for
   * reading only and for writing, not even disjoint ranges of it. */
  void (*dispatch)(weft__gpu_device *device, weft__gpu_pipeline *pipeline, weft__gpu_bindings *bindings,
                   uint32_t uniform_offset, const uint32_t groups[3]);
  void (*copy)(weft__gpu_device *device, weft__gpu_buffer *to, uint64_t to_offset, weft__gpu_buffer *from,
               uint64_t from_offset, uint64_t n_bytes); /* multiples of 4 */
  void (*submit)(weft__gpu_device *device);             /* nothing recorded: nothing done */

  /* Reading back: begin, poll until done, then look at the data, then end.  n_bytes is a multiple of 4. */
  void (*read_begin)(weft__gpu_device *device, weft__gpu_buffer *buffer, uint64_t n_bytes);
  int (*read_state)(const weft__gpu_buffer *buffer); /* 0 pending, 1 ready, -1 failed */
  const void *(*read_data)(weft__gpu_buffer *buffer, uint64_t n_bytes);
  void (*read_end)(weft__gpu_buffer *buffer);

  /* Timing (on a device opened with WEFT__GPU_TIMESTAMPS): from stamp_begin on, every dispatch is a pass of its own, and
   * the first n of them, at most 2048, have their start and end stamped.  stamp_read submits what is recorded, waits,
   * ends the stamping and gives the pairs in nanoseconds after the first stamp. */
  weft_status (*stamp_begin)(weft__gpu_device *device, int n);
  weft_status (*stamp_read)(weft__gpu_device *device, uint64_t *nanoseconds,
                            int *n); /* [2*n] in, number of pairs out */
};

/* The generations compiled in (generations.def), NULL after the last, in the order that a place is searched for them. */
extern const weft__abi *const weft__abis[];
#define GENERATION(name) extern const weft__abi weft__abi_##name;
#include "gpu/abi/generations.def"

#endif
