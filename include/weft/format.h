/* weft/format.h - reading model files; named tensors in files.
 *
 * GGUF versions 2 and 3, little-endian, memory-mapped read-only.  Every length, count, offset, type and product in the
 * file is checked against the file's size before it is used: after weft_gguf_open succeeds, all that the functions
 * below return may be read without a further check, as long as nobody cuts the file short meanwhile.  An open file
 * never changes, so any number of threads may use it. */
#ifndef WEFT_FORMAT_H
#define WEFT_FORMAT_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_gguf weft_gguf;

/* Value types, numbered as in the file. */
typedef enum weft_gguf_type {
  WEFT_GGUF_U8,
  WEFT_GGUF_I8,
  WEFT_GGUF_U16,
  WEFT_GGUF_I16,
  WEFT_GGUF_U32,
  WEFT_GGUF_I32,
  WEFT_GGUF_F32,
  WEFT_GGUF_BOOL,
  WEFT_GGUF_STRING,
  WEFT_GGUF_ARRAY,
  WEFT_GGUF_U64,
  WEFT_GGUF_I64,
  WEFT_GGUF_F64,
  WEFT_GGUF_TYPE_COUNT
} weft_gguf_type;

/* A string in the file: not NUL-terminated. */
typedef struct weft_gguf_string {
  const char *data;
  size_t n_bytes;
} weft_gguf_string;

/* One metadata entry. */
typedef struct weft_gguf_entry {
  weft_gguf_string key;
  weft_gguf_type type;         /* of the value */
  weft_gguf_type element_type; /* of an array's elements, else `type` */
  uint64_t n_elements;         /* 1 unless an array */
  const void *data;            /* unaligned little-endian elements; strings: length-prefixed, use weft_gguf_strings */
} weft_gguf_entry;

/* One tensor.  `shape` is outermost axis first, the reverse of the file's order. */
typedef struct weft_gguf_tensor {
  weft_gguf_string name;
  int rank; /* 1 to 4 */
  int64_t shape[4];
  uint32_t file_type;    /* as stored */
  const char *type_name; /* "Q4_1"; static */
  int is_supported;      /* 1 if weft has the element type, then `dtype` holds it */
  weft_dtype dtype;
  uint64_t n_bytes;
  const void *data; /* n_bytes inside the mapping, aligned as the file says: 32 bytes if it says nothing, but
                                   it may say 1 */
} weft_gguf_tensor;

/* Opens a file, or all parts of a split model, given any of them: NAME-00001-of-00003.gguf and the others beside it.
 * What follows is then about all parts together, with the entries of the first.
 *
 * EIO: cannot be opened or read (the message has the reason).  EINVAL: a folder or a device.  EFORMAT: not GGUF,
 * truncated or malformed; the message names what is wrong and where.  EUNSUPPORTED: a version or tensor type that weft
 * does not know, or a big-endian file. */
WEFT_API weft_status weft_gguf_open(weft_gguf **out, const char *path);
/* The same with a copy in memory in place of a mapping, so that nobody can change or cut it meanwhile. */
WEFT_API weft_status weft_gguf_read(weft_gguf **out, const char *path);
WEFT_API void weft_gguf_close(weft_gguf *gguf);

WEFT_API const char *weft_gguf_path(const weft_gguf *gguf); /* of the first part */
WEFT_API uint32_t weft_gguf_version(const weft_gguf *gguf);
WEFT_API uint64_t weft_gguf_file_bytes(const weft_gguf *gguf); /* of all parts */
WEFT_API size_t weft_gguf_n_parts(const weft_gguf *gguf);      /* 1: not split */

/* Entries and tensors keep the file's order; an index past the end gives NULL.  Keys and names are unique. */
WEFT_API size_t weft_gguf_n_entries(const weft_gguf *gguf);
WEFT_API const weft_gguf_entry *weft_gguf_entry_at(const weft_gguf *gguf, size_t index);
WEFT_API const weft_gguf_entry *weft_gguf_find(const weft_gguf *gguf, const char *key); /* NULL if absent */

WEFT_API size_t weft_gguf_n_tensors(const weft_gguf *gguf);
WEFT_API const weft_gguf_tensor *weft_gguf_tensor_at(const weft_gguf *gguf, size_t index);
WEFT_API const weft_gguf_tensor *weft_gguf_find_tensor(const weft_gguf *gguf, const char *name); /* NULL if absent */

/* Typed look-ups.  Absent key: WEFT_OK with *value untouched, so set the default first.  Present but of another kind,
 * or out of range: EFORMAT naming the key.  Any integer type is read as an integer, F32 and F64 as a float. */
WEFT_API weft_status weft_gguf_get_int(const weft_gguf *gguf, const char *key, int64_t min, int64_t max,
                                       int64_t *value);
WEFT_API weft_status weft_gguf_get_float(const weft_gguf *gguf, const char *key, double *value);
WEFT_API weft_status weft_gguf_get_bool(const weft_gguf *gguf, const char *key, int *value);
WEFT_API weft_status weft_gguf_get_string(const weft_gguf *gguf, const char *key, weft_gguf_string *value);

/* The strings of an array of strings: *out gets n_elements entries that point into the mapping; the caller frees the
 * array with weft_free.  EFORMAT if the entry is something else. */
WEFT_API weft_status weft_gguf_strings(const weft_gguf *gguf, const weft_gguf_entry *entry, weft_gguf_string **out);

/* Element `index` of a number, bool or array of them, converted.  EFORMAT if the entry holds no numbers, EINVAL if the
 * index is past its end. */
WEFT_API weft_status weft_gguf_number(const weft_gguf_entry *entry, uint64_t index, double *value);

/* Tells the system that a tensor's pages are not needed any more, or those of `n_bytes` of it from `data` on; reading
 * them again is still right.  A copy of weft_gguf_read stays whole. */
WEFT_API void weft_gguf_release(const weft_gguf *gguf, const weft_gguf_tensor *tensor);
WEFT_API void weft_gguf_release_part(const weft_gguf *gguf, const weft_gguf_tensor *tensor, const void *data,
                                     size_t n_bytes);

/* ---- safetensors: named tensors in a file, as Hugging Face's tools read and write it ----
 *
 * Opened, a file stays mapped and never changes, as above: names, shapes, types and places are all checked, tensors
 * cover the data without gap or overlap, and no name occurs twice. */

typedef struct weft_safetensors weft_safetensors;

typedef struct weft_safetensors_tensor {
  const char *name; /* UTF-8, borrowed from the file */
  int rank;
  int64_t shape[WEFT_MAX_RANK]; /* outermost axis first */
  const char *type_name;        /* "BF16"; static */
  int is_supported;             /* 1 if weft has the element type: F32, F16, BF16 or I32, then `dtype` holds it */
  weft_dtype dtype;
  size_t n_bytes;
  const void *data; /* n_bytes inside the mapping, at any address */
} weft_safetensors_tensor;

/* EIO, EINVAL as weft_gguf_open; EFORMAT: not safetensors, cut off or malformed, and the message says where. */
WEFT_API weft_status weft_safetensors_open(weft_safetensors **out, const char *path);
WEFT_API void weft_safetensors_close(weft_safetensors *safetensors);

/* In the order of their data; an index past the end gives NULL, as does a name that is not there. */
WEFT_API size_t weft_safetensors_n_tensors(const weft_safetensors *safetensors);
WEFT_API const weft_safetensors_tensor *weft_safetensors_tensor_at(const weft_safetensors *safetensors, size_t index);
WEFT_API const weft_safetensors_tensor *weft_safetensors_find(const weft_safetensors *safetensors, const char *name);
WEFT_API const char *weft_safetensors_metadata(const weft_safetensors *safetensors, const char *key); /* borrowed */

/* A copy of the named tensor on the scope's device.  NULL: EINVAL, no such tensor; EUNSUPPORTED, a type that weft lacks. */
WEFT_API weft_tensor *weft_safetensors_load(weft_scope *scope, const weft_safetensors *safetensors, const char *name);

typedef struct weft_named_tensor {
  const char *name;    /* UTF-8, not "__metadata__" */
  weft_tensor *tensor; /* f32, f16, bf16 or i32, any view, on any device */
} weft_named_tensor;

/* Writes n tensors to a file, which appears under `path` when it is whole and synced; one that was there is replaced only
 * then.  EINVAL: a name that occurs twice or is none; EUNSUPPORTED: a quantised tensor; EIO with the system's reason. */
WEFT_API weft_status weft_safetensors_save(const char *path, size_t n, const weft_named_tensor *tensors);

#ifdef __cplusplus
}
#endif
#endif
