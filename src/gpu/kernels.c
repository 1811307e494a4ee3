/* kernels.c - the kernels' text and parameter blocks, and the pipelines made of them, each once per set of constants. */
#include "gpu/gpu.h"
#include "gpu/wgsl_embedded.h" /* generated: WGSL_NAME for each file of wgsl/ */

#include <string.h>

#define U32(name) "  " #name ": u32,\n"
#define F32(name) "  " #name ": f32,\n"
#define U32X8(name) "  " #name ": array<vec4<u32>, 2>,\n"
#define WEFT_PARAMS(name, fields) static const char PARAMS_##name[] = "struct Params {\n" fields "}\n";
#include "gpu/params.def"
#undef WEFT_PARAMS
#undef U32
#undef F32
#undef U32X8

static const struct {
  const char *name, *texts[4], *params; /* texts are specialised together */
  uint32_t params_bytes;                /* a multiple of 16 */
  int n_buffers;
  uint32_t written;
  const char *first, *second; /* texts that are part of the kernel's as they are */
} KERNELS[WEFT__KERNEL_COUNT] = {
#define ROW(name, params, n_buffers, written, first, second, ...)                                                      \
  [WEFT__KERNEL_##name] = {#name,     {__VA_ARGS__}, PARAMS_##params, sizeof(weft__gpu_##params##_params),             \
                           n_buffers, written,       first,           second},
#define WEFT_KERNEL(name, params, n_buffers, written) ROW(name, params, n_buffers, written, "", "", WGSL_##name)
#define WEFT_GROUP_KERNEL(name, params, n_buffers, written)                                                            \
  ROW(name, params, n_buffers, written, WGSL_workgroup, "", WGSL_##name)
#define WEFT_ROW_KERNEL(name, params, n_buffers, written)                                                              \
  ROW(name, params, n_buffers, written, WGSL_workgroup, WGSL_rows, WGSL_##name)
#define WEFT_TILE_KERNEL(name, file, cells, params, n_buffers, written)                                                \
  ROW(name, params, n_buffers, written, "", "", WGSL_attention_tiles, WGSL_##file, WGSL_##cells)
#define WEFT_PLACE_KERNEL(name, params, n_buffers, written)                                                            \
  ROW(name, params, n_buffers, written, WGSL_places, "", WGSL_##name)
#define WEFT_ELEMENT_KERNEL(name, params, n_buffers, written)                                                          \
  ROW(name, params, n_buffers, written, WGSL_places, WGSL_functions, WGSL_##name)
#include "gpu/kernels.def"
#undef WEFT_KERNEL
#undef ROW
};

static const char *const FUNCTIONS[] = {
#define WEFT_FUNCTION(name) #name,
#include "gpu/functions.def"
#undef WEFT_FUNCTION
};

enum { MAX_CONSTANTS = 16 };

/* One pipeline and what it was made for. */
typedef struct entry {
  uint32_t values[MAX_CONSTANTS]; /* names are the kernel's callers' literals: compared by address first */
  const char *names[MAX_CONSTANTS];
  weft__gpu_pipeline *pipeline;
  struct entry *next;
} entry;

struct weft__pipelines {
  entry *first[WEFT__KERNEL_COUNT]; /* most recently made first */
};

weft_status weft__gpu_pipelines_create(weft__pipelines **out) {
  weft__pipelines *p = weft__calloc(1, sizeof *p);
  if (!p) return WEFT_ENOMEM;
  *out = p;
  return WEFT_OK;
}

void weft__gpu_pipelines_free(weft__gpu *gpu) {
  if (!gpu->pipelines) return;
  for (int k = 0; k < WEFT__KERNEL_COUNT; k++)
    while (gpu->pipelines->first[k]) {
      entry *e = gpu->pipelines->first[k];
      gpu->pipelines->first[k] = e->next;
      gpu->abi->pipeline_destroy(e->pipeline);
      weft_free(e);
    }
  weft_free(gpu->pipelines);
}

uint32_t weft__gpu_kernel_params_bytes(weft__gpu_kernel kernel) { return KERNELS[kernel].params_bytes; }

uint32_t weft__gpu_kernel_written(weft__gpu_kernel kernel) { return KERNELS[kernel].written; }
int weft__gpu_kernel_n_buffers(weft__gpu_kernel kernel) { return KERNELS[kernel].n_buffers; }
bool weft__gpu_kernel_notes_faults(weft__gpu_kernel kernel) { return KERNELS[kernel].written & WEFT__NOTES_FAULTS; }

static bool is_for(const entry *e, const weft__wgsl_const *constants) {
  int i = 0;
  for (; constants && constants[i].name; i++) {
    if (!e->names[i] || e->values[i] != constants[i].value) return false;
    if (e->names[i] != constants[i].name && strcmp(e->names[i], constants[i].name)) return false;
  }
  return !e->names[i];
}

/* The binding of faults after the kernel's own, the kinds of faults, and what notes them. */
static weft_status add_faults(weft__bytes *text, weft__gpu_kernel kernel) {
  static const char *const kinds[] = {
#define WEFT_FAULT(name, text) "FAULT_" #name,
#include "tensor/faults.def"
#undef WEFT_FAULT
  };
  weft_status status =
      weft__bytes_printf(text, "@group(0) @binding(%d) var<storage, read_write> faults: array<atomic<u32>>;\n%s",
                         KERNELS[kernel].n_buffers, WGSL_faults);
  for (size_t i = 0; i < WEFT_COUNT(kinds) && !status; i++)
    status = weft__bytes_printf(text, "const %s = %uu;\n", kinds[i], (unsigned)i);
  return status;
}

/* `apply` of the elementwise kernels is the function that the constant FUNCTION tells: a choice among all of them in the
 * shader would have every driver compile them all. */
static weft_status add_function(weft__bytes *text, const weft__wgsl_const *constants) {
  for (; constants && constants->name; constants++)
    if (!strcmp(constants->name, "FUNCTION"))
      return weft__bytes_printf(text, "fn apply(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {\n  return %s_of(a, b);\n}\n",
                                FUNCTIONS[constants->value]);
  return WEFT_OK;
}

/* Builds the text and the pipeline; NULL with the error set. */
static weft__gpu_pipeline *build(weft__gpu *gpu, weft__gpu_kernel kernel, const weft__wgsl_const *constants) {
  weft__bytes text = {0};
  weft_status status = weft__wgsl_specialise(KERNELS[kernel].texts, constants, &text);
  const char *dot = gpu->info.features & WEFT__GPU_PACKED_DOT ? WGSL_dot_packed : WGSL_dot_plain;
  bool notes_faults = weft__gpu_kernel_notes_faults(kernel);
  int n_storage = KERNELS[kernel].n_buffers + notes_faults;
  if (!status)
    status = weft__bytes_printf(&text, "%s%s%s%s%s", WGSL_common, dot, KERNELS[kernel].first, KERNELS[kernel].second,
                                KERNELS[kernel].params);
  if (!status) status = add_function(&text, constants);
  if (!status && notes_faults) status = add_faults(&text, kernel);
  if (!status && KERNELS[kernel].written & WEFT__READS_BLOCKS)
    status = weft__bytes_add(&text, WGSL_blocks, strlen(WGSL_blocks));
  if (!status) status = weft__bytes_printf(&text, "@group(0) @binding(%d) var<uniform> p: Params;\n", n_storage);
  weft__gpu_pipeline *pipeline = NULL;
  if (!status) {
    const weft__pipeline_desc desc = {
        .label = KERNELS[kernel].name,
        .wgsl = text.data,
        .n_storage = n_storage,
        .read_only = ~(KERNELS[kernel].written | (notes_faults ? 1u << KERNELS[kernel].n_buffers : 0)),
        .uniform_bytes = KERNELS[kernel].params_bytes,
        .is_trusted = !gpu->is_checked,
    };
    pipeline = gpu->abi->pipeline_create(gpu->device, &desc);
    status = gpu->abi->take_error(gpu->device);
    if (status && pipeline) gpu->abi->pipeline_destroy(pipeline);
    if (status)
      weft__error(status, "kernel %s: %s", KERNELS[kernel].name, weft_last_error());
    else if (!pipeline)
      weft__error(WEFT_EDEVICE, "kernel %s: no pipeline could be made", KERNELS[kernel].name);
  }
  weft__bytes_clear(&text);
  return status ? NULL : pipeline;
}

weft__gpu_pipeline *weft__gpu_pipeline_get(weft__gpu *gpu, weft__gpu_kernel kernel, const weft__wgsl_const *constants) {
  for (entry *e = gpu->pipelines->first[kernel]; e; e = e->next)
    if (is_for(e, constants)) return e->pipeline;
  entry *e = weft__calloc(1, sizeof *e);
  if (!e) return NULL;
  for (int i = 0; constants && constants[i].name && i < MAX_CONSTANTS; i++) {
    e->names[i] = constants[i].name;
    e->values[i] = constants[i].value;
  }
  e->pipeline = build(gpu, kernel, constants);
  if (!e->pipeline) {
    weft_free(e);
    return NULL;
  }
  e->next = gpu->pipelines->first[kernel];
  gpu->pipelines->first[kernel] = e;
  return e->pipeline;
}
