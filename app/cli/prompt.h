/* prompt.h - the prompt of run and logits: where it comes from and how it becomes tokens. */
#ifndef WEFT_CLI_PROMPT_H
#define WEFT_CLI_PROMPT_H

#include "cli.h"

#include "base/base.h"
#include "weft/llm.h"

/* Exactly one of text, file and the PROMPT argument is given. */
typedef struct cli_prompt {
  const char *text, *file, *system;
  bool raw;
} cli_prompt;

/* The rows of a command whose options structure has a cli_prompt named `prompt`. */
#define CLI_PROMPT_OPTIONS(type)                                                                                       \
  CLI_TEXT(type, prompt.text, "prompt", 'p', "TEXT", "the prompt"),                                                    \
      CLI_TEXT(type, prompt.file, "prompt-file", 0, "FILE",                                                            \
               "read the prompt from FILE, - for standard input; one line break at its end is left out, except with "  \
               "--raw"),                                                                                               \
      CLI_TEXT(type, prompt.system, "system", 's', "TEXT",                                                             \
               "system message; without it the chat template's own is used, if it has one"),                           \
      CLI_FLAG(type, prompt.raw, "raw", 0,                                                                             \
               "no chat template: the prompt's text is continued, and special tokens in it are read as such")

/* Reads the prompt into `text`, which the caller clears.  CLI_USAGE: none, several, or an empty one was given. */
cli_exit cli_prompt_read(const cli_prompt *prompt, const char *argument, weft__bytes *text);

/* CLI_USAGE: there is a system message without a chat template. */
cli_exit cli_prompt_check_raw(const cli_prompt *prompt);

/* Encodes it; *ids is the caller's (weft_free). */
cli_exit cli_prompt_encode(const cli_prompt *prompt, const weft__bytes *text, const weft_model *model, int32_t **ids,
                           size_t *n_ids);

#endif
