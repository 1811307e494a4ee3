/* weft/format.h - reading model files.
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

#ifdef __cplusplus
}
#endif
#endif
