/* weft_program.c - see weft_program.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/weft_program.h"

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
