/* weft_program.h - looks at what a run of the built weft program said.  A wrong result fails the running test. */
#ifndef WEFT_TESTS_WEFT_PROGRAM_H
#define WEFT_TESTS_WEFT_PROGRAM_H

#include "support/run.h"

#include <jansson.h>

/* What the program said explains a wrong status better than the number. */
void assert_status(const run_result *r, int status);

/* A key that must be there; the value is borrowed, as is the text of get_text. */
json_t *get(const json_t *object, const char *key);
double get_number(const json_t *object, const char *key);
const char *get_text(const json_t *object, const char *key);

#endif
