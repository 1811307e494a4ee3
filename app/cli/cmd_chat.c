/* cmd_chat.c - weft chat: a conversation, a line in, a reply out.
 *
 * On a terminal lines are edited and Ctrl-C stops the reply; anywhere else it is a filter: each line of input is a
 * message, standard output has the replies and nothing else, and no byte of it is an escape.
 *
 * Each reply encodes the whole conversation and keeps of the cache what it begins with, so only what is new is computed,
 * and what /regen, /load or /system changed is found without book-keeping. */
#include "chat.h"
#include "cmd.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "system.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char FIRST_PROMPT[] = ">>> ", NEXT_PROMPT[] = "... ", BLOCK_MARK[] = "\"\"\"";

/* ---- replies ---- */

static int on_text(void *context, const char *text, size_t n_bytes) {
  (void)context;
  cli_out_text(text, n_bytes);
  cli_out_flush();
  return cli_out_failed();
}

/* Encodes the conversation.  If no room is left for a reply, the oldest turns are left out until half of the context is
 * free: what is left must be computed anew, which should not happen at every turn. */
static weft_status encode_fitting(chat *c, int32_t **ids, size_t *n_ids) {
  size_t n_ctx = (size_t)weft_session_n_ctx(c->session), most = (size_t)c->generate.max_tokens;
  size_t room = most < n_ctx / 4 ? most : n_ctx / 4, n_before = c->log.n_left_out;
  weft_status status = chat_log_encode(&c->log, c->model.model, ids, n_ids);
  if (status || *n_ids + room <= n_ctx) return status;
  while (!status && *n_ids > n_ctx / 2 && chat_log_leave_out_oldest(&c->log)) {
    weft_free(*ids);
    *ids = NULL;
    status = chat_log_encode(&c->log, c->model.model, ids, n_ids);
  }
  if (!c->options->common.quiet && c->log.n_left_out > n_before)
    cli_note(
        "The context of %zu tokens is full: the oldest %zu messages are left out from here on (/clear starts anew, "
        "--ctx N makes more room)",
        n_ctx, c->log.n_left_out);
  return status;
}

/* Generates; *out is released by the caller whatever was returned. */
static weft_status generate(chat *c, weft_generation *out) {
  int32_t *ids = NULL;
  size_t n_ids = 0;
  weft_status status = encode_fitting(c, &ids, &n_ids);
  if (!status) {
    size_t n_reused = weft_session_reuse(c->session, ids, n_ids);
    c->generate.sampler.seed = c->seed;
    status = weft_session_generate(c->session, ids + n_reused, n_ids - n_reused, &c->generate, out);
    c->stats = (chat_stats){n_ids, n_reused, out->n_tokens, out->prefill_ms, out->decode_ms};
  }
  weft_free(ids);
  return status;
}

static cli_exit print_json(const chat *c, const weft_generation *g) {
  json_t *root = json_object();
  cli_json_set(root, "text", cli_json_text(g->text, g->n_text_bytes));
  cli_json_set(root, "finish_reason", json_string(cli_finish_name(g->finish_reason)));
  cli_json_set(root, "n_prompt_tokens", json_integer((json_int_t)c->stats.n_prompt));
  cli_json_set(root, "n_reused_tokens", json_integer((json_int_t)c->stats.n_reused));
  cli_json_set(root, "n_tokens", json_integer((json_int_t)g->n_tokens));
  cli_json_set(root, "prefill_ms", cli_json_number(g->prefill_ms));
  cli_json_set(root, "decode_ms", cli_json_number(g->decode_ms));
  cli_exit code = cli_json_print(root);
  cli_out_flush();
  return code;
}

/* The reply's last line ends, and what there is to say of it is said. */
static cli_exit end_reply(const chat *c, const weft_generation *g) {
  if (c->options->common.json) return print_json(c, g);
  if (g->n_text_bytes == 0 || g->text[g->n_text_bytes - 1] != '\n') cli_out("\n", 1);
  cli_out_flush();
  cli_speed_line(&c->options->common, c->stats.n_prompt - c->stats.n_reused, g);
  if (g->finish_reason == WEFT_FINISH_LENGTH && !c->options->common.quiet)
    cli_note("The reply was cut after %zu tokens (%s)", g->n_tokens,
             weft_session_length(c->session) + 1 >= weft_session_n_ctx(c->session)
                 ? "the context is full: /clear starts anew, --ctx N makes more room"
                 : "-n N allows more");
  return CLI_OK;
}

/* A reply may hold NUL bytes, which the conversation cannot: it goes on as if they had not been there. */
static cli_exit keep_reply(chat *c, weft_generation *g) {
  size_t n = 0;
  for (size_t i = 0; i < g->n_text_bytes; i++)
    if (g->text[i]) g->text[n++] = g->text[i];
  g->text[n] = 0;
  return chat_log_add(&c->log, CHAT_ASSISTANT, g->text);
}

/* What an interrupt leaves of a reply is part of the conversation, if it is anything. */
cli_exit chat_reply(chat *c) {
  weft_generation g = {0};
  weft_status status = generate(c, &g);
  cli_exit code = status ? cli_fail() : end_reply(c, &g);
  bool is_kept = !status && !(g.finish_reason == WEFT_FINISH_CANCELED && g.n_text_bytes == 0);
  if (is_kept && !code) code = keep_reply(c, &g);
  weft_generation_clear(&g);
  if (cli_interrupt_seen() && !c->is_interactive) {
    c->is_done = true;
    code = CLI_INTERRUPTED;
  }
  cli_interrupt_clear();
  return code;
}

/* ---- input ---- */

static bool ends_with(const weft__bytes *text, const char *end) {
  size_t n = strlen(end);
  return text->n >= n && memcmp(text->data + text->n - n, end, n) == 0;
}

static void cut_end(weft__bytes *text, size_t n) {
  text->n -= n;
  text->data[text->n] = 0;
}

/* Reads lines until the block's mark; the end of input ends it, too. */
static cli_line_result read_block(chat *c, weft__bytes *text) {
  cli_line_result result = CLI_LINE_READ;
  memmove(text->data, text->data + strlen(BLOCK_MARK), text->n + 1 - strlen(BLOCK_MARK));
  cut_end(text, strlen(BLOCK_MARK));
  while (!ends_with(text, BLOCK_MARK)) {
    if (text->n > 0 && weft__bytes_add(text, "\n", 1)) {
      cli_fail();
      return CLI_LINE_FAILED;
    }
    result = cli_line_read(c->line, NEXT_PROMPT, text);
    if (result != CLI_LINE_READ) return result == CLI_LINE_END ? CLI_LINE_READ : result;
  }
  cut_end(text, strlen(BLOCK_MARK));
  if (ends_with(text, "\n")) cut_end(text, 1);
  return CLI_LINE_READ;
}

/* A whole message: one line, or several by a backslash or a block. */
static cli_line_result read_message(chat *c, weft__bytes *text) {
  cli_line_result result = cli_line_read(c->line, FIRST_PROMPT, text);
  if (result == CLI_LINE_READ && text->n >= 3 && memcmp(text->data, BLOCK_MARK, 3) == 0) return read_block(c, text);
  while (result == CLI_LINE_READ && ends_with(text, "\\")) {
    text->data[text->n - 1] = '\n';
    result = cli_line_read(c->line, NEXT_PROMPT, text);
    if (result == CLI_LINE_END) return CLI_LINE_READ;
  }
  return result;
}

/* Two slashes at the beginning are a message that begins with one. */
static cli_exit take_message(chat *c, const weft__bytes *text) {
  const char *message = text->data;
  if (memchr(message, 0, text->n)) {
    cli_error("message: it holds a NUL byte (remove it)");
    return CLI_FAILED;
  }
  if (cli_is_blank(message)) return CLI_OK;
  cli_line_remember(c->line, message);
  if (message[0] == '/' && message[1] != '/') return chat_command_run(c, message);
  cli_exit code = chat_log_add(&c->log, CHAT_USER, message + (message[0] == '/'));
  if (code) return code;
  size_t n_asked = c->log.n_turns;
  code = chat_reply(c);
  /* A message without a reply is forgotten. */
  if (c->log.n_turns == n_asked) chat_log_drop_last(&c->log);
  return code;
}

/* One line of input and what it brings.  Where nobody sits at the keyboard, a failure decides the exit status, but the next
 * lines are answered all the same. */
static void take_turn(chat *c) {
  weft__bytes text = {0};
  switch (read_message(c, &text)) {
  case CLI_LINE_READ: {
    cli_exit code = take_message(c, &text);
    if (code && !c->is_interactive) c->code = code;
    break;
  }
  case CLI_LINE_END:
    c->is_done = true;
    break;
  case CLI_LINE_INTERRUPTED:
    c->code = CLI_INTERRUPTED;
    c->is_done = true;
    break;
  case CLI_LINE_FAILED:
    c->code = CLI_FAILED;
    c->is_done = true;
    break;
  }
  weft__bytes_clear(&text);
  if (cli_out_failed()) c->is_done = true;
}

/* ---- the command ---- */

/* A session file's note is the conversation; one that run made has none. */
static cli_exit open_session(chat *c) {
  const chat_options *o = c->options;
  char *note = NULL;
  size_t n_note = 0;
  cli_exit code = cli_generation_open_session(&o->generation, c->model.model, &c->session, &note, &n_note);
  if (!code && n_note > 0) code = chat_log_from_json(&c->log, o->generation.session, note, n_note);
  if (!code && c->log.n_turns > 0)
    cli_dim_line(&o->common, "%s: %zu messages so far", o->generation.session, c->log.n_turns);
  weft_free(note);
  return code;
}

static cli_exit save_session(const chat *c) {
  weft__bytes note = {0};
  cli_exit code = chat_log_to_json(&c->log, &note);
  if (!code) code = cli_generation_save_session(&c->options->generation, c->session, note.data, note.n);
  weft__bytes_clear(&note);
  return code;
}

static cli_exit check_template(const chat *c) {
  const weft_chat_message hello = {"user", "Hello"};
  int32_t *ids = NULL;
  size_t n_ids;
  weft_status status = weft_model_apply_chat(c->model.model, &hello, 1, &ids, &n_ids);
  weft_free(ids);
  if (!status) return CLI_OK;
  cli_error("%s: no chat template that weft knows (weft run --raw continues plain text; models for chats have one)",
            c->model.path);
  return CLI_FAILED;
}

/* Everything that can be wrong is found before the first prompt. */
static cli_exit open_chat(chat *c, const char *model_name) {
  const chat_options *o = c->options;
  bool is_edited = c->is_interactive && cli_is_terminal(STDOUT_FILENO) && cli_is_terminal(STDIN_FILENO);
  cli_exit code = cli_generation_prepare(&o->generation, &c->generate);
  c->generate.on_text = o->common.json ? NULL : on_text;
  c->generate.is_canceled = cli_generation_is_canceled;
  if (!code) code = cli_model_open(&c->model, model_name, &o->common);
  if (!code) code = check_template(c);
  if (code) return code;
  cli_generation_use_model(c->model.model, &c->generate);
  cli_interrupt_defer(true);
  if (o->common.verbose) {
    cli_model_note(&c->model);
    cli_note("seed: %llu", (unsigned long long)c->seed);
  }
  code = open_session(c);
  if (!code && o->system) code = chat_log_set_system(&c->log, o->system);
  if (!code) code = cli_line_open(&c->line, is_edited && !o->common.json);
  if (!code && c->is_interactive) {
    const char *name = weft_model_get_info(c->model.model)->name;
    cli_dim_line(&o->common, "%s: /help lists the commands, Ctrl-D leaves", *name ? name : c->model.path);
  }
  return code;
}

static void clear_chat(chat *c) {
  cli_line_close(c->line);
  chat_log_clear(&c->log);
  weft_session_free(c->session);
  cli_model_close(&c->model);
  cli_generation_clear(&c->generate);
}

static cli_exit run_chat(void *options, const cli_args *args) {
  const chat_options *o = options;
  chat c = {.options = o, .is_interactive = isatty(STDIN_FILENO)};
  c.seed = (uint64_t)(o->common.seed >= 0 ? o->common.seed : cli_draw_seed());
  c.code = open_chat(&c, args->values[0]);
  if (!c.code) {
    while (!c.is_done) take_turn(&c);
    cli_exit code = save_session(&c);
    if (!c.code) c.code = code;
  }
  clear_chat(&c);
  return c.code;
}

static const cli_option chat_table[] = {
    CLI_TEXT(chat_options, system, "system", 's', "TEXT",
             "system message; without it the chat template's own is used, if it has one"),
    CLI_GENERATION_OPTIONS(chat_options),
    CLI_END,
};

static const chat_options defaults = {.common = CLI_COMMON_DEFAULTS, .generation = CLI_GENERATION_DEFAULTS};

const cli_command cli_cmd_chat = {
    .name = "chat",
    .arguments = "MODEL",
    .summary = "talk with a model",
    .details =
        "Each line is a message, and the model answers. A line that ends in a backslash goes on in the next one; "
        "\"\"\" "
        "begins and ends a text of several lines; a text that is pasted is one message. Lines that begin with a slash "
        "are commands: /help lists them. Ctrl-C stops a reply, at the prompt it leaves with status 130; Ctrl-D "
        "leaves.\n"
        "When the context is full, the oldest messages are left out, and a line tells so.\n"
        "Lines are edited as in a shell, with a history (arrow keys, Ctrl-R) that is kept in the XDG state folder's "
        "weft/chat_history. With --session the conversation and its cache are kept in a file when the chat ends, and "
        "the "
        "next chat with that file goes on there.\n" CLI_GENERATION_DETAILS
        "In a pipe each line of input is answered on standard output, and nothing else is written there; a message "
        "that "
        "failed makes the status 1 at the end. With --json each reply is an object with text, finish_reason, "
        "n_prompt_tokens, n_reused_tokens, n_tokens, prefill_ms and decode_ms.",
    .examples = "weft chat model.gguf\n"
                "weft chat model.gguf -s \"You are a pirate.\" --temperature 0.5\n"
                "echo \"What is the capital of France?\" | weft chat model.gguf --temperature 0",
    .min_args = 1,
    .max_args = 1,
    .uses = CLI_USES_DEVICE | CLI_USES_SEED | CLI_USES_MODEL,
    .options = chat_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_chat,
};
