/* cmd_tokenize.c - weft tokenize: text to token ids. */
#include "cmd.h"
#include "model.h"
#include "output.h"
#include "system.h"

#include <string.h>

typedef struct tokenize_options {
  cli_common common;
  const char *file;
  bool no_special, no_bos;
} tokenize_options;

/* An empty TEXT is a text, of no tokens; none at all is wrong usage, and standard input is not read instead. */
static cli_exit read_text(const tokenize_options *o, const char *argument, weft__bytes *text) {
  if ((o->file != NULL) == (argument != NULL)) {
    cli_error("tokenize: %s (give TEXT or --file, one of the two)",
              o->file ? "there are two texts" : "there is no text");
    return CLI_USAGE;
  }
  if (o->file) return cli_read_file(o->file, text);
  return weft__bytes_add(text, argument, strlen(argument)) ? cli_fail() : CLI_OK;
}

/* A line break inside a token is escaped, so a line is a token. */
static void print_lines(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n) {
  for (size_t i = 0; i < n; i++) {
    size_t n_bytes;
    const char *piece = weft_tokenizer_piece(tokenizer, ids[i], &n_bytes);
    cli_outf("%d\t", ids[i]);
    cli_out_quoted(piece, n_bytes, 0);
    cli_out("\n", 1);
  }
}

/* The ids live as long as this function: they are printed and dropped. */
static cli_exit print_tokens(const tokenize_options *o, const weft_tokenizer *tokenizer, const weft__bytes *text) {
  int32_t *ids;
  size_t n;
  cli_exit code = CLI_OK;
  int flags = (o->no_special ? WEFT_TOKENIZE_NO_SPECIAL : 0) | (o->no_bos ? WEFT_TOKENIZE_NO_BOS : 0);
  if (weft_tokenizer_encode(tokenizer, text->data, text->n, flags, NULL, 0, &ids, &n)) return cli_fail();
  if (o->common.json) {
    json_t *root = json_object();
    cli_json_set(root, "tokens", cli_json_ids(ids, n));
    cli_json_set(root, "pieces", cli_json_pieces(tokenizer, ids, n));
    code = cli_json_print(root);
  } else
    print_lines(tokenizer, ids, n);
  weft_free(ids);
  return code;
}

/* The text first: it is cheaper to find missing than a model is to open. */
static cli_exit run_tokenize(void *options, const cli_args *args) {
  const tokenize_options *o = options;
  weft_tokenizer *tokenizer = NULL;
  weft__bytes text = {0};
  cli_exit code = read_text(o, args->n > 1 ? args->values[1] : NULL, &text);
  if (!code) code = cli_tokenizer_open(&tokenizer, args->values[0]);
  if (!code) code = print_tokens(o, tokenizer, &text);
  weft_tokenizer_free(tokenizer);
  weft__bytes_clear(&text);
  return code;
}

static const cli_option tokenize_table[] = {
    CLI_TEXT(tokenize_options, file, "file", 0, "FILE", "tokenize the bytes of FILE, - for standard input"),
    CLI_FLAG(tokenize_options, no_special, "no-special", 0, "read special tokens in the text as ordinary text"),
    CLI_FLAG(tokenize_options, no_bos, "no-bos", 0, "leave out the beginning-of-text token that some models want"),
    CLI_END,
};

static const tokenize_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_tokenize = {
    .name = "tokenize",
    .arguments = "MODEL [TEXT]",
    .summary = "turn text into token ids",
    .details = "Prints a line a token: the id, a tab, and its bytes in quotes with control characters and broken UTF-8 "
               "escaped. With --json the object has tokens and pieces.",
    .examples = "weft tokenize model.gguf \"Hello world\"\n"
                "weft tokenize model.gguf --file book.txt --json\n"
                "weft tokenize model.gguf --no-special \"<|im_start|>\"",
    .min_args = 1,
    .max_args = 2,
    .options = tokenize_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_tokenize,
};
