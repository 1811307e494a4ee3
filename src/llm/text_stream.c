/* text_stream.c - UTF-8 repair and stop strings for a stream of bytes. */
#include "llm/text_stream.h"

#include <string.h>

static const char REPLACEMENT[] = "\xEF\xBF\xBD"; /* U+FFFD */

/* Moves one byte into the partial character; completes it, or replaces what cannot become one. */
static weft_status add_byte(weft__text_stream *s, char byte) {
  s->partial[s->n_partial++] = byte;
  int length = weft__utf8_length(s->partial, s->n_partial);
  if (length == 0) return WEFT_OK;
  size_t n = s->n_partial;
  s->n_partial = 0;
  if (length > 0) return weft__bytes_add(&s->text, s->partial, n);
  weft_status status = weft__bytes_add(&s->text, REPLACEMENT, 3);
  if (status || n == 1) return status;
  return add_byte(s, byte); /* the byte that broke the character may begin another; it does not break one alone */
}

static bool starts_with(const char *text, size_t n, const char *prefix, size_t n_prefix) {
  return n >= n_prefix && memcmp(text, prefix, n_prefix) == 0;
}

/* Looks for stop strings in what has not been released, and releases what cannot be part of one.  At the end of the text
 * nothing can become one any more. */
static void scan(weft__text_stream *s, bool is_end) {
  for (size_t i = s->n_released; i < s->text.n; i++) {
    const char *at = s->text.data + i;
    size_t rest = s->text.n - i;
    for (size_t k = 0; k < s->n_stop; k++) {
      size_t n = strlen(s->stop[k]);
      if (n == 0) continue;
      if (starts_with(at, rest, s->stop[k], n)) {
        s->is_stopped = true;
        s->text.n = i;
        s->text.data[i] = 0;
        s->n_released = i;
        return;
      }
      if (!is_end && starts_with(s->stop[k], n, at, rest)) { /* may yet become this one */
        s->n_released = i;
        return;
      }
    }
  }
  s->n_released = s->text.n;
}

weft_status weft__text_stream_add(weft__text_stream *s, const char *bytes, size_t n_bytes) {
  for (size_t i = 0; i < n_bytes && !s->is_stopped; i++) {
    weft_status status = add_byte(s, bytes[i]);
    if (status) return status;
  }
  if (!s->is_stopped) scan(s, false);
  return WEFT_OK;
}

weft_status weft__text_stream_end(weft__text_stream *s) {
  if (s->is_stopped) return WEFT_OK;
  weft_status status = s->n_partial ? weft__bytes_add(&s->text, REPLACEMENT, 3) : WEFT_OK;
  s->n_partial = 0;
  scan(s, true);
  return status;
}

void weft__text_stream_clear(weft__text_stream *s) { weft__bytes_clear(&s->text); }
