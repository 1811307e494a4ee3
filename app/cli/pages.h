/* pages.h - what weft says of itself in every form: the pages of help, the man page, the completions of shells, doctor.
 *
 * The commands and their options are in cli.h; here is the rest, and the way through a command's options. */
#ifndef WEFT_CLI_PAGES_H
#define WEFT_CLI_PAGES_H

#include "cli.h"

/* One line; paragraphs separated by \n. */
extern const char cli_about[];
extern const char cli_conventions[];

typedef struct cli_exit_meaning {
  cli_exit status;
  const char *meaning;
} cli_exit_meaning;

/* In ascending order, ended by a row without a meaning. */
extern const cli_exit_meaning cli_exit_meanings[];

/* What the value of an environment variable must be. */
typedef enum cli_variable_kind {
  CLI_VARIABLE_TEXT,    /* anything */
  CLI_VARIABLE_SWITCH,  /* 0 or 1 */
  CLI_VARIABLE_THREADS, /* a number of threads */
  CLI_VARIABLE_NUMBER,  /* a whole number from 0 */
  CLI_VARIABLE_VARIANT, /* a CPU variant of this processor */
  CLI_VARIABLE_FILE,    /* a file that is there */
  CLI_VARIABLE_FOLDER,  /* a folder, which may still have to be made */
} cli_variable_kind;

typedef struct cli_variable {
  const char *name, *meaning;
  cli_variable_kind kind;
} cli_variable;

/* The variables that this build reads, ended by a row without a name. */
extern const cli_variable cli_variables[];

/* The options that pages show of a command, one a call, NULL after the last: its own, then those common ones that do
 * something for it.  A walk begins with its command and zeros. */
typedef struct cli_option_walk {
  const cli_command *command;
  const cli_option *next;
  bool is_common;
} cli_option_walk;
const cli_option *cli_option_next(cli_option_walk *walk);

/* The paragraphs of a text: a call sets *start and *n_bytes to the next and returns true, false after the last.  *text
 * moves on. */
bool cli_next_paragraph(const char **text, const char **start, size_t *n_bytes);

/* The other forms, on standard output (man.c, completions.c). */
void cli_help_man(void);
void cli_help_bash(void);
void cli_help_zsh(void);
void cli_help_fish(void);

#endif
