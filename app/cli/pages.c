/* pages.c - see pages.h. */
#include "pages.h"

#include <string.h>

const char cli_about[] = "weft runs language models on this machine.";

const char cli_conventions[] =
    "MODEL is a .gguf file, or the name of one in the model folder without the suffix; the beginning of a name is "
    "enough "
    "where it fits only one. Results go to standard output, everything else to standard error. Options may stand "
    "before or behind other arguments, a value as --option=VALUE or --option VALUE; -- ends the options.";

const cli_exit_meaning cli_exit_meanings[] = {
    {CLI_OK, "done"},
    {CLI_FAILED, "failed: a file, a model, data, or the generation"},
    {CLI_USAGE, "wrong usage"},
    {CLI_NO_DEVICE, "the device asked for is not there"},
    {CLI_INTERRUPTED, "interrupted"},
    {CLI_CLOSED_PIPE, "nobody reads standard output any more"},
    {0, NULL},
};

const cli_variable cli_variables[] = {
    {"WEFT_MODELS", "the model folder, where MODEL names are looked up", CLI_VARIABLE_FOLDER},
    {"XDG_DATA_HOME", "without WEFT_MODELS the model folder is weft/models in here; default ~/.local/share",
     CLI_VARIABLE_FOLDER},
    {"XDG_STATE_HOME", "chat keeps its history in weft/chat_history in here; default ~/.local/state",
     CLI_VARIABLE_FOLDER},
    {"NO_COLOR", "1: no dim text and no bars, on a terminal either", CLI_VARIABLE_TEXT},
    {"WEFT_CPU", "the CPU variant to use instead of the best one; weft version lists them", CLI_VARIABLE_VARIANT},
    {"WEFT_THREADS", "threads that compute, where --threads does not say", CLI_VARIABLE_THREADS},
    {"WEFT_WGPU_LIB", "the WebGPU library to load; no other place is looked at", CLI_VARIABLE_FILE},
    {"WEFT_ADAPTER", "number of the GPU to use (weft devices), whatever --device says", CLI_VARIABLE_NUMBER},
    {"WEFT_STRICT", "1: an operator that the GPU lacks is an error instead of running on the CPU", CLI_VARIABLE_SWITCH},
    {"WEFT_GPU_CHECKED", "1: shaders keep the library's bounds checks", CLI_VARIABLE_SWITCH},
    {"WEFT_GPU_TRACE", "1: bench prints the GPU time of each operator", CLI_VARIABLE_SWITCH},
    {"WEFT_GPU_LIMITS", "min: only the limits that every WebGPU device has, for tests", CLI_VARIABLE_TEXT},
    {NULL, NULL, CLI_VARIABLE_TEXT},
};

const cli_option *cli_option_next(cli_option_walk *walk) {
  if (!walk->next) walk->next = walk->command->options;
  if (!walk->is_common && (!walk->next || !walk->next->name)) {
    walk->is_common = true;
    walk->next = cli_common_options;
  }
  while (walk->is_common && walk->next->name && (walk->next->needs & ~walk->command->uses)) walk->next++;
  return walk->next->name ? walk->next++ : NULL;
}

bool cli_next_paragraph(const char **text, const char **start, size_t *n_bytes) {
  if (!*text || !**text) return false;
  *start = *text;
  *n_bytes = strcspn(*text, "\n");
  *text += *n_bytes;
  if (**text) (*text)++;
  return true;
}
