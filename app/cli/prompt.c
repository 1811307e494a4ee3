/* prompt.c - the prompt of run and logits.  Standard input is read only when it is asked for by name, because a program
 * that is started inside a pipeline or by another program inherits one that may never end. */
#include "prompt.h"
#include "output.h"
#include "system.h"

#include <string.h>

cli_exit cli_prompt_check_raw(const cli_prompt *prompt) {
  if (!prompt->raw || !prompt->system) return CLI_OK;
  cli_error("--system: --raw has no place for it (leave out one of the two)");
  return CLI_USAGE;
}

/* Two prompts are a mistake that picking one would hide, and only a chat template has a place for a system message. */
static cli_exit check_sources(const cli_prompt *prompt, const char *argument) {
  int n_given = (prompt->text != NULL) + (prompt->file != NULL) + (argument != NULL);
  if (n_given != 1) {
    cli_error("prompt: %s (give it once: as PROMPT, with -p or with --prompt-file)",
              n_given == 0 ? "there is none" : "it is given more than once");
    return CLI_USAGE;
  }
  return cli_prompt_check_raw(prompt);
}

/* Editors and echo end a text with a line break that is no part of what was meant. */
static void drop_final_line_break(weft__bytes *text) {
  if (text->n == 0 || text->data[text->n - 1] != '\n') return;
  text->n--;
  if (text->n > 0 && text->data[text->n - 1] == '\r') text->n--;
  text->data[text->n] = 0;
}

/* Read before the model is loaded: a mistake in the words should not cost that time. */
cli_exit cli_prompt_read(const cli_prompt *prompt, const char *argument, weft__bytes *text) {
  cli_exit code = check_sources(prompt, argument);
  if (code) return code;
  if (prompt->file) {
    code = cli_read_file(prompt->file, text);
    if (code) return code;
    if (!prompt->raw) drop_final_line_break(text);
  } else {
    const char *given = prompt->text ? prompt->text : argument;
    if (weft__bytes_add(text, given, strlen(given))) return cli_fail();
  }
  if (text->n == 0) {
    cli_error("prompt: it is empty (give at least one character)");
    return CLI_USAGE;
  }
  return CLI_OK;
}

/* One turn of the user, behind the system message if there is one. */
static cli_exit encode_chat(const cli_prompt *prompt, const weft__bytes *text, const weft_model *model, int32_t **ids,
                            size_t *n_ids) {
  const weft_chat_message messages[2] = {{"system", prompt->system}, {"user", text->data}};
  size_t n_skipped = prompt->system ? 0 : 1;
  /* Messages are C strings; cutting one silently would answer another question. */
  if (memchr(text->data, 0, text->n)) {
    cli_error("prompt: it holds a NUL byte (remove it, or use --raw)");
    return CLI_FAILED;
  }
  return weft_model_apply_chat(model, messages + n_skipped, 2 - n_skipped, ids, n_ids) ? cli_fail() : CLI_OK;
}

/* Raw text may hold special tokens, as scripts with a template of their own want; in a chat only the template does. */
cli_exit cli_prompt_encode(const cli_prompt *prompt, const weft__bytes *text, const weft_model *model, int32_t **ids,
                           size_t *n_ids) {
  if (!prompt->raw) return encode_chat(prompt, text, model, ids, n_ids);
  const weft_tokenizer *tokenizer = weft_model_tokenizer(model);
  if (weft_tokenizer_encode(tokenizer, text->data, text->n, 0, NULL, 0, ids, n_ids)) return cli_fail();
  if (*n_ids > 0) return CLI_OK;
  cli_error("prompt: the model has no tokens for its bytes (give text in UTF-8)");
  return CLI_FAILED;
}
