/* base.h - what every layer of weft stands on: errors, checked allocation, growing bytes, file mapping, libraries loaded
 * at run time, clock.  Depends on libc alone and compiles for Windows.  Nothing here prints, exits or aborts. */
#ifndef WEFT_BASE_INTERNAL_H
#define WEFT_BASE_INTERNAL_H

#include "weft/base.h"

#include <stdbool.h>

#if defined(__MINGW32__) /* where plain "printf" means Microsoft's, without %zu */
#define WEFT_PRINTF(format_index, first_arg) __attribute__((format(gnu_printf, format_index, first_arg)))
#elif defined(__GNUC__)
#define WEFT_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))
#else
#define WEFT_PRINTF(format_index, first_arg)
#endif

#define WEFT_COUNT(array) (sizeof(array) / sizeof *(array))

static inline int64_t weft__min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t weft__max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- status.c ---- */

/* Sets the thread's last error and returns `status`, so a failure is `return weft__error(WEFT_EINVAL, "x: why (do)")`. */
weft_status weft__error(weft_status status, const char *format, ...) WEFT_PRINTF(2, 3);

/* Tells compilers and analysers that an error never returns WEFT_OK, or they warn of values that a failure left unset. */
static inline weft_status weft__failed(weft_status status) {
#if defined(__GNUC__)
  if (status == WEFT_OK) __builtin_unreachable();
#endif
  return status;
}
#define weft__error(...) weft__failed((weft__error)(__VA_ARGS__))
/* The same for an errno: EIO (ENOMEM if that is what it says) and "what: strerror". */
weft_status weft__errno_error(int error_number, const char *what);

/* ---- alloc.c: sizes are checked products; NULL with the last error set on overflow or exhaustion ---- */

bool weft__mul_size(size_t a, size_t b, size_t *product); /* false on overflow */
bool weft__add_size(size_t a, size_t b, size_t *sum);
bool weft__mul_i64(int64_t a, int64_t b, int64_t *product); /* a, b >= 0; false on overflow */

void *weft__alloc(size_t n, size_t size);            /* undefined contents */
void *weft__calloc(size_t n, size_t size);           /* zeros */
void *weft__realloc(void *p, size_t n, size_t size); /* p stays valid on failure */
void *weft__dup(const void *data, size_t n_bytes);   /* a copy with a NUL after it */
void *weft__aligned_alloc(size_t n_bytes);           /* on a 64-byte boundary; large blocks prefer huge pages */
void weft__aligned_free(void *p);

/* For pools of buffers: the size class of n bytes, and its capacity, which is n rounded up to a quarter of a power of two
 * (64, 80, 96, 112, 128, 160 ...).  WEFT__SIZE_CLASSES and n itself above 2^37. */
enum { WEFT__SIZE_CLASSES = 4 * 32 };
int weft__size_class(size_t n_bytes, size_t *capacity);

/* Test hook: the n-th allocation from now (1 = the next) fails once; 0 turns it off. */
void weft__alloc_fail_at(long n);

/* ---- bytes.c: a growing byte buffer; zero-initialise, free with weft__bytes_clear ---- */

typedef struct weft__bytes {
  char *data; /* NUL-terminated once anything was added; NULL before */
  size_t n, capacity;
} weft__bytes;

weft_status weft__bytes_add(weft__bytes *b, const void *data, size_t n);
weft_status weft__bytes_printf(weft__bytes *b, const char *format, ...) WEFT_PRINTF(2, 3);
char *weft__bytes_take(weft__bytes *b); /* moves the data out (never NULL unless out of memory); b is empty again */
void weft__bytes_clear(weft__bytes *b);

/* ---- utf8.c ---- */

/* Looks at the character that n > 0 bytes start with: its length, 1 to 4; 0 if it goes on behind them; -1 if they start
 * none. */
int weft__utf8_length(const char *text, size_t n);

/* ---- file.c: paths are UTF-8 on every system ---- */

typedef struct weft__file_map {
  const unsigned char *data; /* NULL for an empty file */
  size_t n_bytes;
  bool is_copy; /* in memory of our own */
} weft__file_map;

/* Maps a regular file read-only.  EIO with the system's reason; EINVAL for a folder, a pipe or a device.  A file that
 * somebody shortens while it is mapped faults when the lost bytes are read. */
weft_status weft__file_map_open(weft__file_map *map, const char *path);
/* The same with a copy in memory, which is complete or an error: EIO if the file ends early. */
weft_status weft__file_map_read(weft__file_map *map, const char *path);
void weft__file_map_close(weft__file_map *map);
/* Advice that n bytes at `data` (inside the mapping) will be read soon, or are not needed any more;
 * for a copy the latter does nothing.  Either way the bytes stay right. */
void weft__file_map_prefetch(const weft__file_map *map, const void *data, size_t n);
void weft__file_map_release(const weft__file_map *map, const void *data, size_t n);

/* ---- file_writer.c: a file that is replaced as a whole ---- */

typedef struct weft__file_writer weft__file_writer;

/* Who may read what is written, as far as the system knows: its user alone (somebody's own text), or whoever could read
 * the file that is replaced, the system's default for a new one. */
typedef enum weft__file_access { WEFT__FILE_PRIVATE, WEFT__FILE_SHARED } weft__file_access;

/* Nothing is to be seen under `path` before commit, which syncs the file and then puts it there.  EINVAL if something
 * other than a regular file is there; EIO with the system's reason.  commit and discard release the writer. */
weft_status weft__file_writer_open(weft__file_writer **out, const char *path, weft__file_access access);
weft_status weft__file_writer_add(weft__file_writer *w, const void *data, size_t n_bytes);
weft_status weft__file_writer_commit(weft__file_writer *w);
void weft__file_writer_discard(weft__file_writer *w);
/* All of it at once. */
weft_status weft__file_write(const char *path, weft__file_access access, const void *data, size_t n_bytes);

/* ---- dynlib.c: paths are UTF-8 on every system ---- */

/* Loads a library: from its path, or, if that is a bare file name, from where the system looks.  EIO: there is none;
 * EINVAL: it is no regular file; EUNSUPPORTED: the system cannot load it, with its reason. */
weft_status weft__dynlib_open(void **out, const char *path);
void *weft__dynlib_symbol(void *library, const char *name); /* NULL if it has none of that name */
void weft__dynlib_close(void *library);

/* The folder of the running program's file, without a separator at its end (except for the root). */
weft_status weft__program_folder(char *folder, size_t n_bytes);

/* ---- clock.c ---- */

double weft__now_ms(void); /* monotonic */

#endif
