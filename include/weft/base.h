/* weft/base.h - statuses, errors and the version.
 *
 * Every fallible function returns a weft_status; functions that build an object take an out-parameter first and leave
 * it untouched on failure.  Operators (weft/ops.h) return NULL instead.  The library never prints, exits or aborts on
 * account of a user, a file, a model or a driver: it sets the calling thread's last error and returns.
 *
 * Names: open/close for outside resources, create/free for heap objects, get borrows, take moves ownership.
 * free(NULL) and close(NULL) do nothing. */
#ifndef WEFT_BASE_H
#define WEFT_BASE_H

#include <stdint.h> /* int64_t, uint64_t */
#include <stddef.h> /* size_t */

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

/* One list of statuses: name, text. */
#define WEFT_STATUS_LIST(X)                                                                                            \
  X(OK, "success")                                                                                                     \
  X(EINVAL, "invalid argument")                                                                                        \
  X(ENOMEM, "out of memory")                                                                                           \
  X(EIO, "input or output failed")                                                                                     \
  X(EFORMAT, "malformed file")                                                                                         \
  X(EUNSUPPORTED, "not supported")                                                                                     \
  X(ENODEVICE, "no such device")                                                                                       \
  X(EDEVICE, "device failed")                                                                                          \
  X(ENUMERIC, "value is not finite")                                                                                   \
  X(ELIMIT, "limit exceeded")                                                                                          \
  X(ECANCELED, "canceled")

typedef enum weft_status {
#define WEFT_STATUS_ENUM(name, text) WEFT_##name,
  WEFT_STATUS_LIST(WEFT_STATUS_ENUM)
#undef WEFT_STATUS_ENUM
} weft_status;

/* Name ("WEFT_EINVAL") and text ("invalid argument") of a status; static strings. */
WEFT_API const char *weft_status_name(weft_status status);
WEFT_API const char *weft_status_text(weft_status status);

/* The calling thread's last error as "WHAT: WHY (WHAT TO DO)"; "" if none.  Borrowed until this thread's next error. */
WEFT_API const char *weft_last_error(void);
WEFT_API weft_status weft_last_status(void);

/* "MAJOR.MINOR.PATCH"; static string. */
WEFT_API const char *weft_version(void);

/* Frees memory that a weft function handed to the caller. */
WEFT_API void weft_free(void *memory);

#ifdef __cplusplus
}
#endif
#endif
