/* options.h - reading a command line by a command's tables, and numbers strictly. */
#ifndef WEFT_CLI_OPTIONS_H
#define WEFT_CLI_OPTIONS_H

#include "cli.h"

/* Reads argv[0..argc-1], the words after the command's name, into `options` (already holding the defaults) and `args`
 * (room for argc values).  CLI_USAGE: an error was reported.  --help ends the reading at once with common.help set.
 * Lists are freed with cli_options_clear, whatever was returned. */
cli_exit cli_options_parse(const cli_command *command, int argc, char **argv, void *options, cli_args *args);
void cli_options_clear(const cli_command *command, void *options);

/* Reads all of `text` as a decimal whole number in min..max: no space, no sign but '-', nothing after it. */
bool cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *value);

/* Reads all of `text` as a decimal number in min..max. */
bool cli_parse_real(const char *text, double min, double max, float *value);

/* Reads "1,2 3" (commas, white space and square brackets separate) into *ids, which the caller frees with weft_free. */
cli_exit cli_parse_ids(const char *what, const char *text, int32_t **ids, size_t *n_ids);

/* The option of that name in a table, where _ stands for - too; NULL: there is none.  And the name nearest to a word. */
const cli_option *cli_option_named(const cli_option *table, const char *name);
const char *cli_option_nearest(const cli_option *table, const char *word);

/* Sets the option's field of `options` from text, as on the command line.  CLI_USAGE: the error was reported. */
cli_exit cli_option_set(const cli_option *option, const char *text, void *options);

/* How many characters must be inserted, deleted, replaced or swapped to make `name` of `word`; 0 too if `word` is how
 * `name` begins.  Compares at most the first 63 bytes. */
int cli_distance(const char *word, const char *name);

#endif
