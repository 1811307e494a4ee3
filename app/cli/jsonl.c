/* jsonl.c - weft run --jsonl: a prompt a line in, a result a line out.
 *
 * A line is a JSON string, or an object with prompt or messages and any options of generation, named as on the command
 * line with _ for -.  Lines are answered one after the other on one session, which keeps what a prompt has in common with
 * the one before; results do not depend on that.  Each result is out before the next line is read, so that two programs
 * can take turns.
 *
 * What is wrong with a line is told in its result: meanwhile messages go to a text instead of standard error. */
#include "jsonl.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const cli_option line_table[] = {
    CLI_GENERATION_OPTIONS(cli_jsonl_defaults),
    CLI_INT64(cli_jsonl_defaults, seed, "seed", 0, "S", 0, INT64_MAX, "seed of this line"),
    CLI_TEXT(cli_jsonl_defaults, system, "system", 0, "TEXT", "system message of this line"),
    CLI_FLAG(cli_jsonl_defaults, raw, "raw", 0, "no chat template for this line"),
    CLI_END,
};

/* The session is there before the first line is read. */
static const char *const fixed_options[] = {"ctx", "kv", "session"};

typedef struct batch {
  const cli_common *common;
  const cli_jsonl_defaults *defaults;
  cli_model model;
  weft_session *session;
  int64_t n_lines;
  bool has_failed; /* a line has */
} batch;

/* A line on its way from text to result; zero at first, released by clear_line. */
typedef struct line {
  batch *batch;
  json_t *root; /* what strings of the options point into */
  cli_jsonl_defaults options;
  weft_chat_message *messages; /* n_messages; for raw text NULL */
  size_t n_messages;
  const char *text; /* of raw text */
  int32_t *ids;
  size_t n_ids, n_reused;
  weft_generate_options generate;
  weft_generation generation;
} line;

/* ---- reading a line ---- */

static cli_exit complain(const char *key, const char *why) {
  cli_error("\"%s\": %s", key, why);
  return CLI_FAILED;
}

/* A JSON value as it would stand on the command line; the text is cleared by the caller. */
static cli_exit value_text(const char *key, const json_t *value, weft__bytes *text) {
  weft_status status;
  if (json_is_string(value))
    status = weft__bytes_printf(text, "%s", json_string_value(value));
  else if (json_is_integer(value))
    status = weft__bytes_printf(text, "%lld", (long long)json_integer_value(value));
  else if (json_is_real(value))
    status = weft__bytes_printf(text, "%.9g", json_real_value(value));
  else
    return complain(key, "is neither a text nor a number");
  return status ? cli_fail() : CLI_OK;
}

/* A list of the line's own takes the place of the command line's.  Its texts stay with the line's JSON. */
static cli_exit set_list(const cli_option *option, const char *key, const json_t *value, line *l) {
  cli_list *list = (cli_list *)((char *)&l->options + option->offset);
  size_t n = json_is_array(value) ? json_array_size(value) : 1;
  *list = (cli_list){0};
  for (size_t i = 0; i < n; i++) {
    const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
    if (!json_is_string(item)) return complain(key, "is neither a text nor a list of texts");
    cli_exit code = cli_option_set(option, json_string_value(item), &l->options);
    if (code) return code;
  }
  return CLI_OK;
}

static cli_exit set_flag(const cli_option *option, const char *key, const json_t *value, line *l) {
  if (!json_is_boolean(value)) return complain(key, "is neither true nor false");
  *(bool *)((char *)&l->options + option->offset) = json_is_true(value);
  return CLI_OK;
}

static cli_exit set_number(const cli_option *option, const char *key, const json_t *value, line *l) {
  weft__bytes text = {0};
  cli_exit code = value_text(key, value, &text);
  if (!code) code = cli_option_set(option, text.data, &l->options);
  weft__bytes_clear(&text);
  return code;
}

static cli_exit set_value(const cli_option *option, const char *key, const json_t *value, line *l) {
  for (size_t i = 0; i < WEFT_COUNT(fixed_options); i++)
    if (strcmp(option->name, fixed_options[i]) == 0)
      return complain(key, "is the same for all lines (give it on the command line)");
  if (json_is_null(value)) return CLI_OK;
  switch (option->kind) {
  case CLI_KIND_FLAG:
    return set_flag(option, key, value, l);
  case CLI_KIND_LIST:
    return set_list(option, key, value, l);
  case CLI_KIND_TEXT:
    if (!json_is_string(value)) return complain(key, "is no text");
    return cli_option_set(option, json_string_value(value), &l->options);
  default:
    return set_number(option, key, value, l);
  }
}

static cli_exit read_options(line *l) {
  const char *key;
  json_t *value;
  json_object_foreach(l->root, key, value) {
    if (strcmp(key, "prompt") == 0 || strcmp(key, "messages") == 0 || strcmp(key, "id") == 0) continue;
    const cli_option *option = cli_option_named(line_table, key);
    if (!option) {
      cli_error("\"%s\": unknown key (the nearest option is \"%s\")", key, cli_option_nearest(line_table, key));
      return CLI_FAILED;
    }
    cli_exit code = set_value(option, key, value, l);
    if (code) return code;
  }
  return CLI_OK;
}

/* Room for all messages and one before them. */
static cli_exit start_messages(line *l, size_t n) {
  l->messages = weft__alloc(n + 1, sizeof *l->messages);
  if (!l->messages) return cli_fail();
  if (l->options.system) l->messages[l->n_messages++] = (weft_chat_message){"system", l->options.system};
  return CLI_OK;
}

static cli_exit read_messages(line *l, const json_t *messages) {
  if (l->options.raw) return complain("messages", "raw has no place for them (give prompt)");
  if (!json_is_array(messages) || json_array_size(messages) == 0) return complain("messages", "is no list of messages");
  cli_exit code = start_messages(l, json_array_size(messages));
  for (size_t i = 0; i < json_array_size(messages) && !code; i++) {
    const json_t *message = json_array_get(messages, i);
    const char *role = json_string_value(json_object_get(message, "role"));
    const char *content = json_string_value(json_object_get(message, "content"));
    if (!role || !content) return complain("messages", "each needs role and content, both texts");
    /* A system message of the line's own takes the place of the command line's. */
    if (i == 0 && strcmp(role, "system") == 0) l->n_messages = 0;
    l->messages[l->n_messages++] = (weft_chat_message){role, content};
  }
  return code;
}

static cli_exit read_prompt(line *l, const json_t *prompt) {
  if (!json_is_string(prompt)) return complain("prompt", "is no text");
  if (json_string_length(prompt) == 0) return complain("prompt", "it is empty (give at least one character)");
  if (l->options.raw) {
    if (l->options.system) return complain("system", "raw has no place for it (leave out one of the two)");
    l->text = json_string_value(prompt);
    return CLI_OK;
  }
  cli_exit code = start_messages(l, 1);
  if (!code) l->messages[l->n_messages++] = (weft_chat_message){"user", json_string_value(prompt)};
  return code;
}

static cli_exit read_line(line *l, const char *text, size_t n_bytes) {
  json_error_t error;
  l->root = json_loadb(text, n_bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
  if (!l->root) {
    cli_error("it is not JSON: %s (column %d)", error.text, error.column);
    return CLI_FAILED;
  }
  if (json_is_string(l->root)) return read_prompt(l, l->root);
  if (!json_is_object(l->root)) {
    cli_error("it is neither a text nor an object (give \"PROMPT\" or {\"prompt\": \"PROMPT\"})");
    return CLI_FAILED;
  }
  const json_t *prompt = json_object_get(l->root, "prompt"), *messages = json_object_get(l->root, "messages");
  if (!prompt == !messages) {
    cli_error("it has %s (give one of the two)", prompt ? "both prompt and messages" : "neither prompt nor messages");
    return CLI_FAILED;
  }
  cli_exit code = read_options(l);
  if (code) return code;
  return prompt ? read_prompt(l, prompt) : read_messages(l, messages);
}

/* ---- answering ---- */

static weft_status encode(line *l) {
  const weft_model *model = l->batch->model.model;
  if (l->messages) return weft_model_apply_chat(model, l->messages, l->n_messages, &l->ids, &l->n_ids);
  return weft_tokenizer_encode(weft_model_tokenizer(model), l->text, strlen(l->text), 0, NULL, 0, &l->ids, &l->n_ids);
}

/* An interrupt is no error: the result says that it was canceled. */
static cli_exit generate(line *l) {
  weft_status status = encode(l);
  if (status) return cli_fail();
  l->n_reused = weft_session_reuse(l->batch->session, l->ids, l->n_ids);
  cli_generation_use_model(l->batch->model.model, &l->generate);
  l->generate.sampler.seed = (uint64_t)l->options.seed;
  l->generate.is_canceled = cli_generation_is_canceled;
  status = weft_session_generate(l->batch->session, l->ids + l->n_reused, l->n_ids - l->n_reused, &l->generate,
                                 &l->generation);
  if (cli_interrupt_seen()) l->generation.finish_reason = WEFT_FINISH_CANCELED;
  return status ? cli_fail() : CLI_OK;
}

static cli_exit answer(line *l, const char *text, size_t n_bytes) {
  cli_exit code = read_line(l, text, n_bytes);
  if (!code) code = cli_generation_prepare(&l->options.generation, &l->generate);
  return code ? code : generate(l);
}

/* The line's number and name come first, so that a person finds it. */
static cli_exit print_result(const line *l, const char *problem) {
  json_t *root = json_object();
  json_t *id = json_object_get(l->root, "id");
  cli_json_set(root, "line", json_integer((json_int_t)l->batch->n_lines));
  if (id) cli_json_set(root, "id", json_incref(id));
  if (problem)
    cli_json_set(root, "error", cli_json_text(problem, strlen(problem)));
  else
    cli_generation_json(root, l->ids, l->n_ids, l->n_reused, (uint64_t)l->options.seed, &l->generation,
                        cli_generation_steps(&l->generation));
  cli_exit code = cli_json_print(root);
  cli_out_flush();
  return code;
}

static void clear_line(line *l) {
  const cli_generation *given = &l->batch->defaults->generation, *own = &l->options.generation;
  if (own->stop.items != given->stop.items) weft_free(own->stop.items);
  if (own->logit_bias.items != given->logit_bias.items) weft_free(own->logit_bias.items);
  weft_generation_clear(&l->generation);
  cli_generation_clear(&l->generate);
  weft_free(l->ids);
  weft_free(l->messages);
  json_decref(l->root);
}

/* Only what ends the whole run is returned. */
static cli_exit answer_line(batch *b, const char *text, size_t n_bytes) {
  line l = {.batch = b, .options = *b->defaults};
  weft__bytes problem = {0};
  cli_error_capture(&problem);
  cli_exit code = answer(&l, text, n_bytes);
  cli_error_capture(NULL);
  if (code) b->has_failed = true;
  code = print_result(&l, code ? problem.data ? problem.data : "out of memory" : NULL);
  weft__bytes_clear(&problem);
  clear_line(&l);
  return code;
}

/* ---- all lines ---- */

/* A signal ends a read that waits, and is no error of the file. */
static cli_exit read_failed(const char *path) {
  if (cli_interrupt_seen()) return CLI_INTERRUPTED;
  cli_error("%s: %s (give a file that can be read)", strcmp(path, "-") == 0 ? "standard input" : path, strerror(errno));
  return CLI_FAILED;
}

/* A folder opens, and fails only when it is read: here it is refused before the model is loaded. */
static FILE *open_lines(const char *path) {
  struct stat info;
  if (strcmp(path, "-") == 0) return stdin;
  FILE *file = fopen(path, "r");
  if (!file || fstat(fileno(file), &info) != 0 || !S_ISDIR(info.st_mode)) return file;
  fclose(file);
  errno = EISDIR;
  return NULL;
}

/* As getline; an interrupt ends the wait for a line, and a line that it cut is none. */
static ssize_t next_line(char **text, size_t *capacity, FILE *file) {
  cli_interrupt_end_reads(true);
  errno = 0;
  ssize_t n = cli_interrupt_seen() ? -1 : getline(text, capacity, file);
  int error = errno;
  cli_interrupt_end_reads(false);
  errno = error;
  return cli_interrupt_seen() ? -1 : n;
}

/* Lines of white space alone are left out, but counted. */
static cli_exit answer_file(batch *b, FILE *file, const char *path) {
  char *text = NULL;
  size_t capacity = 0;
  cli_exit code = CLI_OK;
  for (ssize_t n; !code && (n = next_line(&text, &capacity, file)) >= 0;) {
    b->n_lines++;
    if (memchr(text, 0, (size_t)n) || !cli_is_blank(text)) code = answer_line(b, text, (size_t)n);
    if (cli_interrupt_seen()) code = CLI_INTERRUPTED;
    if (cli_out_failed()) break;
  }
  if (!code && (ferror(file) || cli_interrupt_seen())) code = read_failed(path);
  free(text);
  return code ? code : b->has_failed ? CLI_FAILED : CLI_OK;
}

static cli_exit answer_all(batch *b, const char *path, const char *model_name) {
  FILE *file = open_lines(path);
  if (!file) return read_failed(path);
  cli_exit code = cli_model_open(&b->model, model_name, b->common);
  /* From here on there may be a result to complete. */
  if (!code) cli_interrupt_defer(true);
  if (!code && b->common->verbose) cli_model_note(&b->model);
  if (!code) code = cli_generation_open_session(&b->defaults->generation, b->model.model, &b->session, NULL, NULL);
  if (!code) code = answer_file(b, file, path);
  if (file != stdin) fclose(file);
  return code;
}

cli_exit cli_jsonl_run(const cli_common *common, const char *path, const char *model_name,
                       const cli_jsonl_defaults *defaults) {
  batch b = {.common = common, .defaults = defaults};
  cli_exit code = answer_all(&b, path, model_name);
  weft_session_free(b.session);
  cli_model_close(&b.model);
  return code;
}
