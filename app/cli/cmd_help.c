/* cmd_help.c - weft help: the list of commands, the page of one, the environment variables. */
#include "cmd.h"
#include "output.h"

#include <string.h>

typedef struct help_options {
  cli_common common;
} help_options;

/* The variables that this build reads. */
static const struct {
  const char *name, *meaning;
} variables[] = {
    {"WEFT_MODELS", "the model folder, where MODEL names are looked up"},
    {"XDG_DATA_HOME", "without WEFT_MODELS the model folder is weft/models in here; default ~/.local/share"},
    {"WEFT_CPU", "the CPU variant to use instead of the best one; weft version lists them"},
    {"WEFT_THREADS", "threads that compute, where --threads does not say"},
    {"WEFT_WGPU_LIB", "the WebGPU library to load; no other place is looked at"},
    {"WEFT_ADAPTER", "number of the GPU to use (weft devices), whatever --device says"},
    {"WEFT_STRICT", "1: an operator that the GPU lacks is an error instead of running on the CPU"},
    {"WEFT_GPU_CHECKED", "1: shaders keep the library's bounds checks"},
    {"WEFT_GPU_TRACE", "1: bench prints the GPU time of each operator"},
};

/* Names and meanings; JSON has them as one object. */
static cli_exit print_variables(bool json) {
  if (!json) {
    cli_outf("Environment variables:\n");
    for (size_t i = 0; i < WEFT_COUNT(variables); i++)
      cli_outf("    %-14s %s\n", variables[i].name, variables[i].meaning);
    return CLI_OK;
  }
  json_t *root = json_object(), *list = json_object();
  for (size_t i = 0; i < WEFT_COUNT(variables); i++)
    cli_json_set(list, variables[i].name, json_string(variables[i].meaning));
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
  for (const cli_option *o = command->options; o && o->name; o++) cli_json_add(options, option_to_json(o));
  for (const cli_option *o = cli_common_options; o->name; o++)
    if ((o->needs & ~command->uses) == 0) cli_json_add(options, option_to_json(o));
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

/* A topic that is no command is looked up like a mistyped command. */
static cli_exit run_help(void *options, const cli_args *args) {
  const help_options *o = options;
  int n_words;
  if (args->n == 0) return print_overview(o->common.json);
  if (args->n == 1 && strcmp(args->values[0], "environment") == 0) return print_variables(o->common.json);
  const cli_command *command = cli_command_find(args->n, args->values, &n_words);
  if (!command || n_words < args->n) return cli_command_unknown(args->n, args->values);
  if (o->common.json) return cli_json_print(command_to_json(command));
  cli_help_command(command);
  return CLI_OK;
}

static const help_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_help = {
    .name = "help",
    .arguments = "[COMMAND | environment]",
    .summary = "explain a command, or list all",
    .examples = "weft help\nweft help run\nweft help bench llm\nweft help environment",
    .max_args = 2,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_help,
};
