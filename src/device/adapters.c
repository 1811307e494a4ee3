/* adapters.c - the list of GPUs that a device may be opened on. */
#include "weft/device.h"
#include "base/base.h"

#ifdef WEFT_GPU

#include "gpu/loader.h"
#include "gpu/vulkan_memory.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {
    [WEFT__ADAPTER_DISCRETE] = "discrete",
    [WEFT__ADAPTER_INTEGRATED] = "integrated",
    [WEFT__ADAPTER_CPU] = "cpu",
    [WEFT__ADAPTER_UNKNOWN] = "unknown",
};

static const struct {
  weft__gpu_feature bit;
  const char *name;
} feature_names[] = {
    {WEFT__GPU_F16, "f16"},
    {WEFT__GPU_SUBGROUPS, "subgroups"},
    {WEFT__GPU_TIMESTAMPS, "timestamps"},
    {WEFT__GPU_F32_ATOMICS, "f32-atomics"},
    {WEFT__GPU_TRUSTED, "trusted-shaders"},
    {WEFT__GPU_PACKED_DOT, "packed-dot"},
};

static void write_features(char *text, size_t n_bytes, uint32_t features) {
  size_t n = 0;
  for (size_t i = 0; i < WEFT_COUNT(feature_names); i++)
    if ((features & feature_names[i].bit) && n < n_bytes)
      n += (size_t)snprintf(text + n, n_bytes - n, "%s%s", n ? " " : "", feature_names[i].name);
}

static void describe(weft_adapter *row, const weft__gpu_library *library, const weft__adapter_info *info) {
  *row = (weft_adapter){
      .memory_bytes = weft__vulkan_memory_bytes(info->vendor_id, info->device_id, info->name),
      .max_buffer_bytes = info->limits.max_buffer_bytes,
      .max_binding_bytes = info->limits.max_binding_bytes,
      .max_bindings = info->limits.max_storage_buffers,
      .max_invocations = info->limits.max_invocations,
      .max_workgroup_bytes = info->limits.max_workgroup_bytes,
      .max_groups_per_axis = info->limits.max_groups_per_axis,
  };
  snprintf(row->name, sizeof row->name, "%s", info->name);
  snprintf(row->kind, sizeof row->kind, "%s", kind_names[info->kind]);
  snprintf(row->vendor, sizeof row->vendor, "%s", info->vendor);
  snprintf(row->backend, sizeof row->backend, "%s", info->backend);
  snprintf(row->driver, sizeof row->driver, "%s", info->driver);
  snprintf(row->generation, sizeof row->generation, "%s", library->abi->generation);
  snprintf(row->library_version, sizeof row->library_version, "%s", library->version);
  snprintf(row->library, sizeof row->library, "%s", library->path);
  write_features(row->features, sizeof row->features, info->features);
}

static weft_status describe_all(weft_adapter **out, int *n_out, const weft__gpu_library *library) {
  int n = library->abi->n_adapters(library->instance);
  if (n == 0)
    return weft__error(WEFT_ENODEVICE, "no adapter: %s finds no GPU driver (install a Vulkan driver)", library->path);
  weft_adapter *rows = weft__calloc((size_t)n, sizeof *rows);
  if (!rows) return WEFT_ENOMEM;
  for (int i = 0; i < n; i++) {
    weft__adapter_info info;
    weft_status status = library->abi->adapter_info(library->instance, i, &info);
    if (status) {
      weft_free(rows);
      return status;
    }
    describe(&rows[i], library, &info);
  }
  *out = rows;
  *n_out = n;
  return WEFT_OK;
}

weft_status weft_adapters_list(weft_adapter **rows, int *n) {
  weft__gpu_library *library;
  weft_status status = weft__gpu_library_open(&library);
  if (status) return status;
  status = describe_all(rows, n, library);
  weft__gpu_library_close(library);
  return status;
}

const char *weft_gpu_generation_name(int index) {
  for (int i = 0; weft__abis[i]; i++)
    if (i == index) return weft__abis[i]->generation;
  return NULL;
}

weft_status weft_gpu_library_find(char *text, size_t n_bytes) {
  weft__gpu_library *library;
  weft_status status = weft__gpu_library_open(&library);
  if (status) return status;
  snprintf(text, n_bytes, "wgpu-native %s (%s), %s", library->version, library->abi->generation, library->path);
  weft__gpu_library_close(library);
  return WEFT_OK;
}

#else

const char *weft_gpu_generation_name(int index) {
  (void)index;
  return NULL;
}

weft_status weft_gpu_library_find(char *text, size_t n_bytes) {
  (void)text, (void)n_bytes;
  return weft__error(WEFT_EUNSUPPORTED, "no GPU: this program was built without GPU code (build it with WGPU=all)");
}

weft_status weft_adapters_list(weft_adapter **rows, int *n) {
  (void)rows, (void)n;
  return weft__error(WEFT_EUNSUPPORTED, "no GPU: this program was built without GPU code (build it with WGPU=all)");
}

#endif
