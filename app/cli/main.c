/* main.c - the weft program: finds the command, reads its options, runs it, closes standard output.
 *
 * Nothing here knows a command by name except the spellings --help, -h and --version that users expect everywhere. */
#include "cmd.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>

/* Reads the words after the command's name and runs it. */
static cli_exit run_command(const cli_command *command, int argc, char **argv, void *options, char **values) {
  cli_args args = {values, 0};
  cli_exit code = cli_options_parse(command, argc, argv, options, &args);
  if (code) return code;
  cli_common *common = options;
  if (common->help) {
    cli_help_command(command);
    return CLI_OK;
  }
  if (common->quiet) common->verbose = false;
  return command->run(options, &args);
}

/* Gives the command its options structure and room for its arguments. */
static cli_exit start_command(const cli_command *command, int argc, char **argv) {
  void *options = weft__dup(command->defaults, command->n_options_bytes);
  char **values = weft__alloc((size_t)argc + 1, sizeof *values);
  cli_exit code = options && values ? run_command(command, argc, argv, options, values) : cli_fail();
  if (options) cli_options_clear(command, options);
  weft_free(values);
  weft_free(options);
  return code;
}

/* argv is without the program's name. */
static cli_exit dispatch(int argc, char **argv) {
  int n_words;
  if (argc == 0) {
    cli_error("no command (weft help lists them)");
    return CLI_USAGE;
  }
  if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) return start_command(&cli_cmd_help, 0, NULL);
  if (strcmp(argv[0], "--version") == 0) return start_command(&cli_cmd_version, 0, NULL);
  if (argv[0][0] == '-') {
    cli_error("%s: a command comes first (weft help lists them)", argv[0]);
    return CLI_USAGE;
  }
  const cli_command *command = cli_command_find(argc, argv, &n_words);
  if (!command) return cli_command_unknown(argc, argv);
  return start_command(command, argc - n_words, argv + n_words);
}

/* The last step closes standard output, because a full disk may show only then. */
int main(int argc, char **argv) {
  cli_system_prepare();
  cli_interrupt_install();
  return cli_out_finish(dispatch(argc > 0 ? argc - 1 : 0, argv + 1));
}
