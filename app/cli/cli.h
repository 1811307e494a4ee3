/* cli.h - what a command of the weft program is.
 *
 * A command is one table row of data (names, arguments, options, help texts) and one function; cmd_<name>.c holds both.
 * The parser, the help pages and the JSON help read the same tables, so an option exists everywhere or nowhere.  Rows
 * hold only what works in this build. */
#ifndef WEFT_CLI_H
#define WEFT_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit statuses that scripts rely on. */
typedef enum cli_exit {
  CLI_OK = 0,
  CLI_FAILED = 1,        /* file, model, data, generation */
  CLI_USAGE = 2,         /* wrong usage */
  CLI_NO_DEVICE = 3,     /* the device asked for is not there */
  CLI_INTERRUPTED = 130, /* SIGINT */
  CLI_CLOSED_PIPE = 141, /* nobody reads standard output any more */
} cli_exit;

/* ---- options ---- */

/* How an option's value is read, and the type of the field that gets it. */
typedef enum cli_kind {
  CLI_KIND_FLAG,   /* bool: present or not */
  CLI_KIND_TEXT,   /* const char *: the argument as it stands, borrowed from argv */
  CLI_KIND_INT,    /* int in min..max */
  CLI_KIND_INT64,  /* int64_t in min..max */
  CLI_KIND_REAL,   /* float in min..max */
  CLI_KIND_CHOICE, /* int: index of the word in the row's `value` "a|b|N"; a last word N stands for any whole number,
                      which is added to its index */
  CLI_KIND_LIST,   /* cli_list: every occurrence adds an entry */
} cli_kind;

typedef struct cli_list {
  const char **items; /* n entries borrowed from argv; the array is the parser's */
  size_t n;
} cli_list;

typedef struct cli_option {
  const char *name; /* without the dashes */
  char letter;      /* short form, 0 for none */
  cli_kind kind;
  const char *value; /* what help calls the argument; the words of a choice */
  size_t offset;     /* of the field in the command's options structure */
  int64_t min, max;  /* of a number; real ranges have whole ends */
  unsigned needs;    /* common options: shown only by commands that have these CLI_USES bits */
  const char *help;
} cli_option;

/* Rows.  The last argument is the help text, which further fields may follow; letter 0 means none.  _Generic refuses,
 * at compile time, a field whose type is not the kind's. */
#define CLI_FIELD(type, field, field_type)                                                                             \
  (offsetof(type, field) + 0 * sizeof(_Generic(((type *)0)->field, field_type : 1)))
#define CLI_ROW(type, field, field_type, option_kind, option_name, option_letter, option_value, ...)                   \
  {                                                                                                                    \
    .name = option_name, .letter = option_letter, .kind = option_kind, .value = option_value,                          \
    .offset = CLI_FIELD(type, field, field_type), __VA_ARGS__                                                          \
  }
#define CLI_FLAG(type, field, name, letter, ...)                                                                       \
  CLI_ROW(type, field, bool, CLI_KIND_FLAG, name, letter, NULL, .help = __VA_ARGS__)
#define CLI_TEXT(type, field, name, letter, value, ...)                                                                \
  CLI_ROW(type, field, const char *, CLI_KIND_TEXT, name, letter, value, .help = __VA_ARGS__)
#define CLI_INT(type, field, name, letter, value, low, high, ...)                                                      \
  CLI_ROW(type, field, int, CLI_KIND_INT, name, letter, value, .min = low, .max = high, .help = __VA_ARGS__)
#define CLI_INT64(type, field, name, letter, value, low, high, ...)                                                    \
  CLI_ROW(type, field, int64_t, CLI_KIND_INT64, name, letter, value, .min = low, .max = high, .help = __VA_ARGS__)
#define CLI_REAL(type, field, name, letter, value, low, high, ...)                                                     \
  CLI_ROW(type, field, float, CLI_KIND_REAL, name, letter, value, .min = low, .max = high, .help = __VA_ARGS__)
#define CLI_CHOICE(type, field, name, letter, words, ...)                                                              \
  CLI_ROW(type, field, int, CLI_KIND_CHOICE, name, letter, words, .help = __VA_ARGS__)
#define CLI_LIST(type, field, name, letter, value, ...)                                                                \
  CLI_ROW(type, field, cli_list, CLI_KIND_LIST, name, letter, value, .help = __VA_ARGS__)
#define CLI_END                                                                                                        \
  { .name = NULL }

/* The words of --device, in the order of its row; number N is CLI_DEVICE_NUMBER + N. */
enum { CLI_DEVICE_AUTO, CLI_DEVICE_CPU, CLI_DEVICE_GPU, CLI_DEVICE_LOW, CLI_DEVICE_HIGH, CLI_DEVICE_NUMBER };

/* What every command takes; the first member of each options structure. */
typedef struct cli_common {
  int device;           /* index of the word */
  int n_threads;        /* 0 = not given */
  const char *affinity; /* NULL = not given */
  int64_t seed;         /* -1 = not given */
  bool exact, no_mmap, quiet, json, verbose, help;
} cli_common;

/* Values of the common options before any is read. */
#define CLI_COMMON_DEFAULTS                                                                                            \
  { .seed = -1 }

/* ---- commands ---- */

/* The arguments that are not options, in order. */
typedef struct cli_args {
  char **values;
  int n;
} cli_args;

/* What a command does with the common options: help shows only those that matter to it. */
enum { CLI_USES_DEVICE = 1, CLI_USES_SEED = 2, CLI_USES_MODEL = 4 };

typedef struct cli_command {
  const char *name;      /* one word, or two: "bench llm" */
  const char *arguments; /* "MODEL [PROMPT]" */
  const char *summary;   /* one line for the list of commands */
  const char *details;   /* paragraphs separated by \n; may be NULL */
  const char *examples;  /* lines separated by \n */
  int min_args, max_args;
  unsigned uses;
  const cli_option *options; /* ended by a row without a name; may be NULL */
  const void *defaults;      /* options structure as it is before the first option; starts with cli_common */
  size_t n_options_bytes;
  cli_exit (*run)(void *options, const cli_args *args);
} cli_command;

/* Every command, in the order that help lists them; NULL after the last (commands.c). */
extern const cli_command *const cli_commands[];

/* The options of all commands, ended by a row without a name (commands.c). */
extern const cli_option cli_common_options[];

/* The command that argv names with its first one or two words; *n_words gets how many.  NULL if there is none. */
const cli_command *cli_command_find(int argc, char **argv, int *n_words);

/* Reports that argv names no command, with the nearest one. */
cli_exit cli_command_unknown(int argc, char **argv);

/* Prints the help page of a command on standard output (help.c). */
void cli_help_command(const cli_command *command);
/* The first screen: what weft is, its commands. */
void cli_help_overview(void);

#endif
