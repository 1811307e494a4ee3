/* weft_program.h - looks at what a run of the built weft program said.  A wrong result fails the running test. */
#ifndef WEFT_TESTS_WEFT_PROGRAM_H
#define WEFT_TESTS_WEFT_PROGRAM_H

#include "support/run.h"

#include <jansson.h>

/* Runs the program (WEFT_TEST_PROGRAM, default build/weft) with these words after its name; `options` may be NULL. */
run_result run_weft(const run_options *options, const char *const *words);
#define WEFT(options, ...) run_weft(options, (const char *const[]){__VA_ARGS__, NULL})
/* The same with nothing but an environment, as in run_options. */
#define WEFT_IN(variables, ...) WEFT((&(run_options){.environment = variables}), __VA_ARGS__)

/* What the program said explains a wrong status better than the number. */
void assert_status(const run_result *r, int status);

/* One line "weft: ..." that says `part`, without control characters, and the status. */
void assert_error_message(const run_result *r, int status, const char *part);
/* The same, with nothing on standard output; ends the result. */
void assert_error(run_result r, int status, const char *part);

/* The one JSON object on one line that a run printed; ends the result. */
json_t *take_json(run_result r, int status);

/* A key that must be there; the value is borrowed, as is the text of get_text. */
json_t *get(const json_t *object, const char *key);
double get_number(const json_t *object, const char *key);
const char *get_text(const json_t *object, const char *key);

#endif
