/* weft_program.c - see weft_program.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/weft_program.h"

#include <stdlib.h>
#include <string.h>

static const char *program(void) {
  const char *path = getenv("WEFT_TEST_PROGRAM");
  return path ? path : "build/weft";
}

run_result run_weft(const run_options *options, const char *const *words) {
  const char *argv[RUN_MAX_WORDS + 2] = {program()};
  for (int i = 0; words[i]; i++) {
    assert_true(i < RUN_MAX_WORDS);
    argv[i + 1] = words[i];
  }
  return run_program(argv, options);
}

void assert_status(const run_result *r, int status) {
  if (r->status != status)
    fail_msg("status %d (signal %d), expected %d; it said: %s", r->status, r->signal, status, r->err);
}

json_t *get(const json_t *object, const char *key) {
  json_t *value = json_object_get(object, key);
  if (!value) fail_msg("there is no \"%s\"", key);
  return value;
}

double get_number(const json_t *object, const char *key) {
  json_t *value = get(object, key);
  if (!json_is_number(value)) fail_msg("\"%s\" is not a number", key);
  return json_number_value(value);
}

const char *get_text(const json_t *object, const char *key) {
  json_t *value = get(object, key);
  if (!json_is_string(value)) fail_msg("\"%s\" is not a string", key);
  return json_string_value(value);
}

void assert_error_message(const run_result *r, int status, const char *part) {
  assert_status(r, status);
  if (strncmp(r->err, "weft: ", 6) != 0 || !strstr(r->err, part)) fail_msg("\"%s\" does not say \"%s\"", r->err, part);
  for (size_t i = 0; i + 1 < r->n_err; i++)
    if ((unsigned char)r->err[i] < ' ' || r->err[i] == 0x7F)
      fail_msg("control character %d in \"%s\"", r->err[i], r->err);
  assert_int_equal(r->err[r->n_err - 1], '\n');
}

void assert_error(run_result r, int status, const char *part) {
  assert_error_message(&r, status, part);
  assert_string_equal(r.out, "");
  run_clear(&r);
}

json_t *take_json(run_result r, int status) {
  json_error_t error;
  assert_status(&r, status);
  if (r.n_out == 0 || strchr(r.out, '\n') != r.out + r.n_out - 1) fail_msg("not one line: \"%s\"", r.out);
  json_t *root = json_loadb(r.out, r.n_out, JSON_ALLOW_NUL, &error);
  if (!json_is_object(root)) fail_msg("not a JSON object (%s): %s", error.text, r.out);
  run_clear(&r);
  return root;
}
