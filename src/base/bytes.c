/* bytes.c - a byte buffer that grows.
 *
 * Invariants: data is NULL while nothing was added, else n bytes and a NUL within capacity; a failed addition leaves the
 * buffer as it was. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_CAPACITY_BYTES = 64 };

/* Makes room for n more bytes and the NUL.  Doubling keeps the cost of many small additions linear. */
static weft_status reserve(weft__bytes *b, size_t n) {
  size_t needed, capacity;
  if (!weft__add_size(b->n, n, &needed) || !weft__add_size(needed, 1, &needed))
    return weft__error(WEFT_ENOMEM, "memory: a buffer of %zu + %zu bytes exceeds the address space", b->n, n);
  if (needed <= b->capacity) return WEFT_OK;
  if (!weft__mul_size(b->capacity, 2, &capacity) || capacity < needed) capacity = needed;
  if (capacity < MIN_CAPACITY_BYTES) capacity = MIN_CAPACITY_BYTES;
  char *data = weft__realloc(b->data, capacity, 1);
  if (!data) return WEFT_ENOMEM;
  b->data = data;
  b->capacity = capacity;
  return WEFT_OK;
}

weft_status weft__bytes_add(weft__bytes *b, const void *data, size_t n) {
  weft_status status = reserve(b, n);
  if (status) return status;
  if (n > 0) memcpy(b->data + b->n, data, n);
  b->n += n;
  b->data[b->n] = 0;
  return WEFT_OK;
}

weft_status weft__bytes_printf(weft__bytes *b, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (n < 0) return weft__error(WEFT_EINVAL, "text: cannot be formatted as '%s'", format);
  weft_status status = reserve(b, (size_t)n);
  if (status) return status;
  va_start(arguments, format);
  vsnprintf(b->data + b->n, (size_t)n + 1, format, arguments);
  va_end(arguments);
  b->n += (size_t)n;
  return WEFT_OK;
}

char *weft__bytes_take(weft__bytes *b) {
  char *data = b->data ? b->data : weft__dup("", 0);
  *b = (weft__bytes){0};
  return data;
}

void weft__bytes_clear(weft__bytes *b) {
  free(b->data);
  *b = (weft__bytes){0};
}
