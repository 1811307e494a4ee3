/* run.h - runs the built program (or any other) and captures what it did.
 *
 * A run never hangs: a program that is still there after RUN_LIMIT_S is killed, and shows as ended by SIGKILL.  What the
 * machine refuses (no pipe, no process) ends the test program. */
#ifndef WEFT_TESTS_RUN_H
#define WEFT_TESTS_RUN_H

#include <stddef.h>

enum { RUN_LIMIT_S = 600, RUN_MAX_WORDS = 32 };

/* What standard output is. */
typedef enum run_stdout {
  RUN_CAPTURED,     /* read to its end */
  RUN_FULL_DISK,    /* /dev/full: every write fails */
  RUN_CLOSED_PIPE,  /* a pipe that nobody reads */
  RUN_CLOSED_LATER, /* a pipe whose reader leaves after the first bytes */
  RUN_NO_STDOUT,    /* the descriptor is closed */
} run_stdout;

/* What standard input is. */
typedef enum run_stdin {
  RUN_EMPTY_STDIN, /* `input`, or at its end at once */
  RUN_OPEN_STDIN,  /* a pipe that stays open and brings nothing */
} run_stdin;

typedef struct run_options {
  run_stdin in;
  const char *input; /* n_input bytes; may be NULL */
  size_t n_input;
  run_stdout out;
  const char *const *environment; /* "NAME=VALUE" is set, "NAME" is removed; NULL after the last; may be NULL */
  int interrupts;                 /* SIGINTs sent once the program has said something, on either stream */
  int interrupt_early;            /* one SIGINT as soon as the program has a handler for it */
  int permissions_apply;          /* even if the tests run as root: files that nobody may read cannot be read */
} run_options;

typedef struct run_result {
  int status;      /* exit status; -1 if a signal ended the program */
  int signal;      /* that signal, else 0 */
  char *out, *err; /* NUL-terminated */
  size_t n_out, n_err;
} run_result;

/* Runs argv (NULL after the last word); `options` may be NULL.  The result is released with run_clear. */
run_result run_program(const char *const *argv, const run_options *options);
void run_clear(run_result *result);

#endif
