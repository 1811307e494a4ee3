/* cmd_detokenize.c - weft detokenize: token ids to text. */
#include "cmd.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "system.h"

#include <limits.h>
#include <string.h>

typedef struct detokenize_options {
  cli_common common;
  const char *file;
  bool no_special, no_bos;
} detokenize_options;

/* Ids as read; freed with weft_free. */
typedef struct id_list {
  int32_t *ids;
  size_t n;
} id_list;

/* All arguments after MODEL, or the file, as one text of ids. */
static cli_exit read_ids(const detokenize_options *o, const cli_args *args, id_list *list) {
  weft__bytes text = {0};
  cli_exit code = CLI_OK;
  if ((o->file != NULL) == (args->n > 1)) {
    cli_error("detokenize: %s (give IDS or --file, one of the two)",
              o->file ? "there are two lists" : "there are no ids");
    return CLI_USAGE;
  }
  if (o->file) code = cli_read_file(o->file, &text);
  for (int i = 1; i < args->n && !code; i++)
    if (weft__bytes_printf(&text, "%s ", args->values[i])) code = cli_fail();
  if (!code) code = cli_parse_ids(o->file ? o->file : "IDS", text.data, &list->ids, &list->n);
  weft__bytes_clear(&text);
  return code;
}

/* The bytes as they are, also where ids end inside a character; JSON has to replace those. */
static cli_exit print_text(const detokenize_options *o, const weft_tokenizer *tokenizer, const id_list *list) {
  char *text;
  size_t n_bytes;
  cli_exit code = CLI_OK;
  const int32_t *ids = list->ids;
  size_t n = list->n;
  if (o->no_bos && n > 0 && ids[0] == weft_tokenizer_bos(tokenizer)) ids++, n--;
  int flags = o->no_special ? WEFT_TOKENIZE_NO_SPECIAL : 0;
  if (weft_tokenizer_decode(tokenizer, ids, n, flags, &text, &n_bytes)) return cli_fail();
  if (o->common.json) {
    json_t *root = json_object();
    cli_json_set(root, "tokens", cli_json_ids(ids, n));
    cli_json_set(root, "pieces", cli_json_pieces(tokenizer, ids, n));
    cli_json_set(root, "text", cli_json_text(text, n_bytes));
    code = cli_json_print(root);
  } else {
    cli_out(text, n_bytes);
    if (n_bytes == 0 || text[n_bytes - 1] != '\n') cli_out("\n", 1);
  }
  weft_free(text);
  return code;
}

/* The ids first: they are cheaper to find wrong than a model is to open. */
static cli_exit run_detokenize(void *options, const cli_args *args) {
  const detokenize_options *o = options;
  weft_tokenizer *tokenizer = NULL;
  id_list list = {0};
  cli_exit code = read_ids(o, args, &list);
  if (!code) code = cli_tokenizer_open(&tokenizer, args->values[0]);
  if (!code) code = print_text(o, tokenizer, &list);
  weft_tokenizer_free(tokenizer);
  weft_free(list.ids);
  return code;
}

static const cli_option detokenize_table[] = {
    CLI_TEXT(detokenize_options, file, "file", 0, "FILE", "read the ids from FILE, - for standard input"),
    CLI_FLAG(detokenize_options, no_special, "no-special", 0, "leave out special tokens"),
    CLI_FLAG(detokenize_options, no_bos, "no-bos", 0, "leave out a beginning-of-text token at the start"),
    CLI_END,
};

static const detokenize_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_detokenize = {
    .name = "detokenize",
    .arguments = "MODEL [IDS...]",
    .summary = "turn token ids into text",
    .details =
        "Ids are separated by commas, spaces or line breaks; square brackets around them are ignored. The text ends "
        "with a line break, added if it has none. With --json the object has tokens, pieces and text.",
    .examples = "weft detokenize model.gguf 504,3575,282\n"
                "weft detokenize model.gguf 504 3575 282 --json\n"
                "weft tokenize model.gguf \"Hello\" | cut -f1 | weft detokenize model.gguf --file -",
    .min_args = 1,
    .max_args = INT_MAX,
    .options = detokenize_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_detokenize,
};
