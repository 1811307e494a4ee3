/* status.c - statuses, the calling thread's last error, the version.
 *
 * Invariants: each thread has one error record of fixed size, so reporting a failure never allocates; the text is
 * always NUL-terminated, one line, and never ends inside a UTF-8 character. */
#include "base/base.h"
#include "base/version.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_BYTES 1024

static _Thread_local struct {
  weft_status status;
  char text[ERROR_BYTES];
} last_error;

static const struct {
  const char *name, *text;
} status_table[] = {
#define STATUS_ROW(name, text) {"WEFT_" #name, text},
    WEFT_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static bool is_known(weft_status status) { return (size_t)status < WEFT_COUNT(status_table); }

const char *weft_status_name(weft_status status) { return is_known(status) ? status_table[status].name : "WEFT_?"; }

const char *weft_status_text(weft_status status) {
  return is_known(status) ? status_table[status].text : "unknown status";
}

const char *weft_last_error(void) { return last_error.text; }

weft_status weft_last_status(void) { return last_error.status; }

const char *weft_version(void) { return WEFT_VERSION_STRING; }

void weft_free(void *memory) { free(memory); }

/* Ends a text that filled its buffer with "...", cutting at the start of a UTF-8 character. */
static void mark_truncated(char text[ERROR_BYTES]) {
  size_t end = ERROR_BYTES - sizeof "...";
  while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
  memcpy(text + end, "...", sizeof "...");
}

/* Texts quote names from files and users: a line break would make two lines of an error, an escape byte would reach
 * the terminal. */
static void replace_control_characters(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 0x7F) *text = '?';
}

weft_status(weft__error)(weft_status status, const char *format, ...) {
  assert(status != WEFT_OK && is_known(status));
  /* The arguments may include weft_last_error() itself, so the new text is built beside the old one. */
  char text[ERROR_BYTES];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (n < 0) snprintf(text, sizeof text, "%s", weft_status_text(status));
  if (n >= ERROR_BYTES) mark_truncated(text);
  replace_control_characters(text);
  memcpy(last_error.text, text, strlen(text) + 1);
  last_error.status = status;
  return status;
}

/* strerror may share one buffer between threads; its safe replacement has three signatures. */
static const char *errno_text(int error_number, char *buffer, size_t n_bytes) {
#if defined(_WIN32)
  return strerror_s(buffer, n_bytes, error_number) == 0 ? buffer : "unknown error";
#elif defined(__GLIBC__)
  return strerror_r(error_number, buffer, n_bytes);
#else
  return strerror_r(error_number, buffer, n_bytes) == 0 ? buffer : "unknown error";
#endif
}

weft_status weft__errno_error(int error_number, const char *what) {
  char buffer[128];
  return weft__error(error_number == ENOMEM ? WEFT_ENOMEM : WEFT_EIO, "%s: %s", what,
                     errno_text(error_number, buffer, sizeof buffer));
}
