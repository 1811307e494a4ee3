/* cmd_help.c - weft help: the list of commands, the page of one, the environment variables. */
#include "cmd.h"
#include "output.h"
#include "pages.h"

#include <string.h>

#define FORMAT_CHOICES "text|man|bash|zsh|fish"
typedef enum help_format { FORMAT_TEXT, FORMAT_MAN, FORMAT_BASH, FORMAT_ZSH, FORMAT_FISH } help_format;

typedef struct help_options {
  cli_common common;
  int format; /* word of FORMAT_CHOICES */
} help_options;

/* Names and meanings; JSON has them as one object. */
static cli_exit print_variables(bool json) {
  if (!json) {
    cli_outf("Environment variables:\n");
    for (const cli_variable *v = cli_variables; v->name; v++) cli_outf("    %-16s %s\n", v->name, v->meaning);
    return CLI_OK;
  }
  json_t *root = json_object(), *list = json_object();
  for (const cli_variable *v = cli_variables; v->name; v++) cli_json_set(list, v->name, json_string(v->meaning));
  cli_json_set(root, "environment", list);
  return cli_json_print(root);
}

/* `value` is null for a flag, as in the table. */
static json_t *option_to_json(const cli_option *option) {
  json_t *object = json_object();
  const char letter[2] = {option->letter, 0};
  cli_json_set(object, "name", json_string(option->name));
  cli_json_set(object, "letter", option->letter ? json_string(letter) : json_null());
  cli_json_set(object, "value", option->value ? json_string(option->value) : json_null());
  cli_json_set(object, "repeatable", json_boolean(option->kind == CLI_KIND_LIST));
  cli_json_set(object, "help", json_string(option->help));
  return object;
}

/* The same rows that the page shows, for programs that complete or check command lines. */
static json_t *command_to_json(const cli_command *command) {
  json_t *object = json_object(), *options = json_array();
  cli_json_set(object, "name", json_string(command->name));
  cli_json_set(object, "arguments", json_string(command->arguments));
  cli_json_set(object, "summary", json_string(command->summary));
  cli_option_walk walk = {.command = command};
  for (const cli_option *o; (o = cli_option_next(&walk));) cli_json_add(options, option_to_json(o));
  cli_json_set(object, "options", options);
  return object;
}

/* As JSON the whole table, so that one call gives every command. */
static cli_exit print_overview(bool json) {
  if (!json) {
    cli_help_overview();
    return CLI_OK;
  }
  json_t *root = json_object(), *list = json_array();
  for (const cli_command *const *c = cli_commands; *c; c++) cli_json_add(list, command_to_json(*c));
  cli_json_set(root, "commands", list);
  return cli_json_print(root);
}

/* The forms for other programs hold all commands, and nothing else. */
static cli_exit print_formatted(const help_options *o, const cli_args *args) {
  static void (*const print[])(void) = {
      [FORMAT_MAN] = cli_help_man,
      [FORMAT_BASH] = cli_help_bash,
      [FORMAT_ZSH] = cli_help_zsh,
      [FORMAT_FISH] = cli_help_fish,
  };
  if (args->n > 0 || o->common.json) {
    cli_error("--format: the man page and the completions are of all commands (leave out '%s')",
              args->n > 0 ? args->values[0] : "--json");
    return CLI_USAGE;
  }
  print[o->format]();
  return CLI_OK;
}

/* A topic that is no command is looked up like a mistyped command. */
static cli_exit run_help(void *options, const cli_args *args) {
  const help_options *o = options;
  int n_words;
  if (o->format != FORMAT_TEXT) return print_formatted(o, args);
  if (args->n == 0) return print_overview(o->common.json);
  if (args->n == 1 && strcmp(args->values[0], "environment") == 0) return print_variables(o->common.json);
  const cli_command *command = cli_command_find(args->n, args->values, &n_words);
  if (!command || n_words < args->n) return cli_command_unknown(args->n, args->values);
  if (o->common.json) return cli_json_print(command_to_json(command));
  cli_help_command(command);
  return CLI_OK;
}

static const cli_option help_table[] = {
    CLI_CHOICE(help_options, format, "format", 0, FORMAT_CHOICES,
               "text, or of all commands the man page, or completions for a shell (default text)"),
    CLI_END,
};

static const help_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_help = {
    .name = "help",
    .arguments = "[COMMAND | environment]",
    .summary = "explain a command, or list all",
    .details = "make install puts the man page and the completions where programs look for them.",
    .examples = "weft help\nweft help run\nweft help bench llm\nweft help environment\n"
                "source <(weft help --format bash)\n"
                "weft help --format man | man -l -",
    .max_args = 2,
    .options = help_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_help,
};
