/* output.h - results on standard output, messages on standard error.
 *
 * The first write to standard output that fails is remembered and silences the rest; cli_out_finish, called once before
 * the program ends, turns it into the exit status.  Commands therefore print without checks, and those that run long
 * ask cli_out_failed. */
#ifndef WEFT_CLI_OUTPUT_H
#define WEFT_CLI_OUTPUT_H

#include "cli.h"

#include "base/base.h"
#include "weft/tokenizer.h"

#include <jansson.h>

#include <stdarg.h>

/* ---- standard output ---- */

void cli_out(const void *data, size_t n);
void cli_outf(const char *format, ...) WEFT_PRINTF(1, 2);
/* Text as a model writes it: line breaks and tabs stay, other control characters are escaped, as a terminal would act on
 * them.  Whole UTF-8 characters. */
void cli_out_text(const char *data, size_t n);
/* The bytes in double quotes with control characters, quotes, backslashes and invalid UTF-8 escaped; longer than `max`
 * bytes (0 = any), the rest is left out and the length said. */
void cli_out_quoted(const char *data, size_t n, size_t max);
/* The text with control characters and invalid UTF-8 escaped, without quotes. */
void cli_out_escaped(const char *text);
void cli_out_flush(void);
bool cli_out_failed(void);
/* Flushes, closes standard output and gives the exit status: `code` unless it is CLI_OK and the output failed. */
cli_exit cli_out_finish(cli_exit code);

/* ---- standard error: one line each, control characters escaped ---- */

void cli_error(const char *format, ...) WEFT_PRINTF(1, 2); /* "weft: WHAT: WHY (WHAT TO DO)" */
void cli_note(const char *format, ...) WEFT_PRINTF(1, 2);  /* what --verbose tells */
/* A note between two texts that are written as they are, which a terminal may act on. */
void cli_note_between(const char *before, const char *after, const char *format, va_list arguments) WEFT_PRINTF(3, 0);
/* Until it is called with NULL, errors are added to `text` instead, as they are; the first one counts. */
void cli_error_capture(weft__bytes *text);
/* Reports the library's last error and gives the exit status of its status. */
cli_exit cli_fail(void);

/* ---- JSON: building cannot fail on its own; a failed allocation is remembered until the object is printed ---- */

/* obj[key] = value; takes the reference. */
void cli_json_set(json_t *object, const char *key, json_t *value);
void cli_json_set_text(json_t *object, const char *key, size_t n_key_bytes, json_t *value); /* any bytes as the key */
void cli_json_add(json_t *array, json_t *value);
/* A string of bytes that may be no UTF-8: invalid ones become U+FFFD. */
json_t *cli_json_text(const char *data, size_t n);
/* A number, or null if it is not finite (a rate over no time). */
json_t *cli_json_number(double value);
json_t *cli_json_ids(const int32_t *ids, size_t n);
json_t *cli_json_pieces(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n);
/* Appends the value on one line, with its end, to `text`, or prints it; both drop the reference. */
cli_exit cli_json_text_of(json_t *value, weft__bytes *text);
cli_exit cli_json_print(json_t *value);

#endif
