/* output.c - results on standard output, messages on standard error, JSON.  See output.h for the rules. */
#include "output.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  int write_errno;       /* of the first failed write to standard output; 0 = none */
  bool json_failed;      /* an allocation of the object being built */
  weft__bytes *captured; /* where errors go; NULL: to standard error */
} state;

/* ---- escaping ----
 *
 * What a file or a user wrote may hold bytes that a terminal acts on, line breaks that would make two lines of one, and
 * bytes that are no text at all.  Shown between quotes or in a message, all of these become visible. */

/* Bytes of the UTF-8 character at data, 0 if there is none: overlong forms, surrogates and cut sequences are none. */
static size_t utf8_length(const char *data, size_t n) {
  int length = weft__utf8_length(data, n);
  return length > 0 ? (size_t)length : 0;
}

/* A terminal acts on C0, DEL and C1 (U+0080 to U+009F, in UTF-8 C2 80 to C2 9F). */
static bool is_control(const unsigned char *data, size_t length) {
  return length == 1 ? data[0] < ' ' || data[0] == 0x7F : length == 2 && data[0] == 0xC2 && data[1] < 0xA0;
}

/* The letter that stands for a byte after a backslash, 0 if there is none. */
static char escape_letter(unsigned char byte) {
  switch (byte) {
  case '\n':
    return 'n';
  case '\t':
    return 't';
  case '\r':
    return 'r';
  case '"':
  case '\\':
    return (char)byte;
  default:
    return 0;
  }
}

/* Writes the next character of data as it may be shown; returns the bytes consumed. */
static size_t escape_next(const char *data, size_t n, bool in_quotes, char shown[12]) {
  const unsigned char *bytes = (const unsigned char *)data;
  size_t length = utf8_length(data, n);
  char letter = escape_letter(bytes[0]);
  if (length > 0 && !is_control(bytes, length) && !(in_quotes && letter)) {
    snprintf(shown, 12, "%.*s", (int)length, data);
    return length;
  }
  if (letter)
    snprintf(shown, 12, "\\%c", letter);
  else
    snprintf(shown, 12, "\\x%02X", bytes[0]);
  return 1;
}

/* ---- standard output ----
 *
 * stdio buffers, so a write that fails is often noticed by a later one or by the flush; errno is cleared before each
 * call because stdio sets it only when the system refused. */

/* The first reason counts: what follows a closed pipe fails for reasons that explain nothing. */
static void remember_failure(void) {
  if (!state.write_errno) state.write_errno = errno ? errno : EIO;
}

void cli_out(const void *data, size_t n) {
  if (state.write_errno || n == 0) return;
  errno = 0;
  if (fwrite(data, 1, n, stdout) != n) remember_failure();
}

void cli_outf(const char *format, ...) {
  if (state.write_errno) return;
  va_list arguments;
  va_start(arguments, format);
  errno = 0;
  if (vprintf(format, arguments) < 0) remember_failure();
  va_end(arguments);
}

void cli_out_text(const char *data, size_t n) {
  char shown[12];
  for (size_t i = 0; i < n;) {
    size_t n_plain = 0;
    while (i + n_plain < n && ((unsigned char)data[i + n_plain] >= ' ' || strchr("\n\t", data[i + n_plain])) &&
           data[i + n_plain] && data[i + n_plain] != 0x7F && data[i + n_plain] != '\xC2')
      n_plain++;
    cli_out(data + i, n_plain);
    i += n_plain;
    if (i == n) break;
    i += escape_next(data + i, n - i, false, shown);
    cli_out(shown, strlen(shown));
  }
}

/* A character is never cut, so up to three bytes more than `max` may be shown. */
void cli_out_quoted(const char *data, size_t n, size_t max) {
  char shown[12];
  size_t i = 0;
  cli_out("\"", 1);
  while (i < n && (max == 0 || i < max)) {
    i += escape_next(data + i, n - i, true, shown);
    cli_out(shown, strlen(shown));
  }
  cli_out("\"", 1);
  if (i < n) cli_outf("... (%zu bytes)", n);
}

void cli_out_escaped(const char *text) {
  char shown[12];
  for (size_t n = strlen(text); n > 0;) {
    size_t n_used = escape_next(text, n, false, shown);
    cli_out(shown, strlen(shown));
    text += n_used;
    n -= n_used;
  }
}

void cli_out_flush(void) {
  errno = 0;
  if (!state.write_errno && fflush(stdout) != 0) remember_failure();
}

bool cli_out_failed(void) { return state.write_errno != 0; }

cli_exit cli_out_finish(cli_exit code) {
  cli_out_flush();
  /* Network file systems report a full disk only when the file is closed. */
  errno = 0;
  if (fclose(stdout) != 0) remember_failure();
  if (code != CLI_OK || !state.write_errno) return code;
  if (state.write_errno == EPIPE) return CLI_CLOSED_PIPE;
  cli_error("standard output: %s (the result is incomplete; free space or choose another file)",
            strerror(state.write_errno));
  return CLI_FAILED;
}

/* ---- standard error ----
 *
 * A message that cannot be written is lost: there is nobody left to tell.  Nothing here allocates, so running out of
 * memory can be reported too. */

/* Longer messages are cut: a path and a sentence fit. */
enum { MESSAGE_BYTES = 8192 };

/* The stream is line-buffered, so the line reaches the system in one piece and does not mix with other programs'. */
static void print_line(const char *prefix, const char *suffix, const char *format, va_list arguments) {
  char text[MESSAGE_BYTES], shown[12];
  if (vsnprintf(text, sizeof text, format, arguments) < 0) text[0] = 0;
  size_t n = strlen(text);
  fputs(prefix, stderr);
  for (size_t i = 0; i < n;) {
    i += escape_next(text + i, n - i, false, shown);
    fputs(shown, stderr);
  }
  fprintf(stderr, "%s\n", suffix);
  fflush(stderr);
}

/* What does not fit into memory is lost; that the text is empty then says so. */
static void capture(const char *format, va_list arguments) {
  char text[MESSAGE_BYTES];
  if (state.captured->n > 0 || vsnprintf(text, sizeof text, format, arguments) < 0) return;
  weft__bytes_add(state.captured, text, strlen(text));
}

void cli_error_capture(weft__bytes *text) { state.captured = text; }

void cli_error(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (state.captured)
    capture(format, arguments);
  else
    print_line("weft: ", "", format, arguments);
  va_end(arguments);
}

void cli_note(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_line("", "", format, arguments);
  va_end(arguments);
}

void cli_note_between(const char *before, const char *after, const char *format, va_list arguments) {
  print_line(before, after, format, arguments);
}

/* ECANCELED needs no words: whoever interrupted knows. */
cli_exit cli_fail(void) {
  weft_status status = weft_last_status();
  if (status == WEFT_ECANCELED) return CLI_INTERRUPTED;
  cli_error("%s", weft_last_error());
  return status == WEFT_ENODEVICE ? CLI_NO_DEVICE : CLI_FAILED;
}

/* ---- JSON ----
 *
 * Jansson's constructors give NULL when memory is short, and its setters refuse NULL; here is the one place where that
 * is noticed, so that building an object reads as a list of its keys. */

void cli_json_set(json_t *object, const char *key, json_t *value) {
  if (json_object_set_new(object, key, value) != 0) state.json_failed = true;
}

void cli_json_add(json_t *array, json_t *value) {
  if (json_array_append_new(array, value) != 0) state.json_failed = true;
}

/* Invalid UTF-8, and NUL bytes unless they may stay, become U+FFFD. */
static json_t *valid_text(const char *data, size_t n, bool may_hold_nul) {
  static const char replacement[] = "\xEF\xBF\xBD";
  weft__bytes valid = {0};
  weft_status status = weft__bytes_add(&valid, "", 0);
  for (size_t i = 0; i < n && !status;) {
    size_t length = data[i] || may_hold_nul ? utf8_length(data + i, n - i) : 0;
    status = weft__bytes_add(&valid, length ? data + i : replacement, length ? length : sizeof replacement - 1);
    i += length ? length : 1;
  }
  json_t *value = status ? NULL : json_stringn(valid.data, valid.n);
  weft__bytes_clear(&valid);
  return value;
}

json_t *cli_json_text(const char *data, size_t n) { return valid_text(data, n, true); }

void cli_json_set_text(json_t *object, const char *key, size_t n_key_bytes, json_t *value) {
  /* Readers of JSON seldom take a NUL in a key. */
  json_t *text = valid_text(key, n_key_bytes, false);
  cli_json_set(object, json_string_value(text), value);
  json_decref(text);
}

json_t *cli_json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *cli_json_ids(const int32_t *ids, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++) cli_json_add(array, json_integer(ids[i]));
  return array;
}

json_t *cli_json_pieces(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++) {
    size_t n_bytes;
    const char *piece = weft_tokenizer_piece(tokenizer, ids[i], &n_bytes);
    cli_json_add(array, cli_json_text(piece, n_bytes));
  }
  return array;
}

cli_exit cli_json_text_of(json_t *value, weft__bytes *text) {
  /* Nine digits keep a float, and no measured time has more. */
  char *dump = state.json_failed ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
  weft_status status = dump ? weft__bytes_printf(text, "%s\n", dump) : WEFT_ENOMEM;
  json_decref(value);
  free(dump);
  if (!status) return CLI_OK;
  cli_error("JSON: out of memory (close other programs)");
  return CLI_FAILED;
}

cli_exit cli_json_print(json_t *value) {
  weft__bytes text = {0};
  cli_exit code = cli_json_text_of(value, &text);
  cli_out(text.data, text.n);
  weft__bytes_clear(&text);
  return code;
}
