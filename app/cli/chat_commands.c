/* chat_commands.c - the slash commands of weft chat.
 *
 * What they say goes to standard error: standard output has the replies and nothing else, so that a pipe can use them. */
#include "chat.h"
#include "options.h"
#include "output.h"
#include "system.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A row of the table.  `argument` is what stands behind the name, "" for nothing. */
typedef struct command {
  const char *name, *argument, *help;
  cli_exit (*run)(chat *c, const char *argument);
} command;

/* ---- the commands ---- */

static cli_exit run_system(chat *c, const char *argument) {
  if (*argument) return chat_log_set_system(&c->log, argument);
  cli_note("%s", c->log.system ? c->log.system : "There is no system message but the model's own.");
  return CLI_OK;
}

static cli_exit run_clear(chat *c, const char *argument) {
  (void)argument;
  chat_log_restart(&c->log);
  weft_session_truncate(c->session, 0);
  return CLI_OK;
}

/* "~/x" as a shell reads it; *out is the caller's. */
static cli_exit expand_path(const char *path, char **out) {
  weft__bytes text = {0};
  const char *home = getenv("HOME");
  bool has_tilde = path[0] == '~' && path[1] == '/' && home;
  if (weft__bytes_printf(&text, "%s%s", has_tilde ? home : "", path + has_tilde)) return cli_fail();
  *out = weft__bytes_take(&text);
  return *out ? CLI_OK : cli_fail();
}

static cli_exit need_argument(const char *name, const char *argument) {
  if (*argument) return CLI_OK;
  cli_error("/%s: needs a file (give its name)", name);
  return CLI_FAILED;
}

static cli_exit run_save(chat *c, const char *argument) {
  char *path = NULL;
  cli_exit code = need_argument("save", argument);
  if (!code) code = expand_path(argument, &path);
  if (!code) code = chat_log_save(&c->log, path);
  if (!code) cli_note("%s: %zu messages saved", path, c->log.n_turns);
  weft_free(path);
  return code;
}

static cli_exit run_load(chat *c, const char *argument) {
  char *path = NULL;
  cli_exit code = need_argument("load", argument);
  if (!code) code = expand_path(argument, &path);
  if (!code) code = chat_log_load(&c->log, path);
  if (!code) cli_note("%s: %zu messages loaded", path, c->log.n_turns);
  weft_free(path);
  return code;
}

/* Another seed, or the same reply would come again.  The old reply stays if no new one comes. */
static cli_exit run_regen(chat *c, const char *argument) {
  chat_turn old = {0};
  (void)argument;
  if (c->log.n_turns > 0 && c->log.turns[c->log.n_turns - 1].role == CHAT_ASSISTANT) old = chat_log_take_last(&c->log);
  if (c->log.n_turns == 0) {
    if (old.content) chat_log_put_back(&c->log, old);
    cli_error("/regen: there is no reply yet (write a message)");
    return CLI_FAILED;
  }
  size_t n_asked = c->log.n_turns;
  c->seed++;
  cli_exit code = chat_reply(c);
  if (old.content && c->log.n_turns == n_asked)
    chat_log_put_back(&c->log, old);
  else
    weft_free(old.content);
  return code;
}

static cli_exit run_stats(chat *c, const char *argument) {
  const chat_stats *s = &c->stats;
  (void)argument;
  cli_note("context: %d of %d tokens, %zu messages, %zu of them left out", weft_session_length(c->session),
           weft_session_n_ctx(c->session), c->log.n_turns, c->log.n_left_out);
  if (s->n_prompt > 0)
    cli_note("last prompt: %zu tokens, %zu of them in the cache, the others in %.1f ms", s->n_prompt, s->n_reused,
             s->prefill_ms);
  if (s->n_reply > 1)
    cli_note("last reply: %zu tokens, %.1f tokens/s", s->n_reply, (double)(s->n_reply - 1) / (s->decode_ms / 1e3));
  cli_note("memory: %.1f MB at most", (double)cli_peak_bytes() / 1e6);
  return CLI_OK;
}

static cli_exit run_quit(chat *c, const char *argument) {
  (void)argument;
  c->is_done = true;
  return CLI_OK;
}

/* Shows the table, so it comes after it. */
static cli_exit run_help(chat *c, const char *argument);

static const command commands[] = {
    {"help", "", "list these commands", run_help},
    {"system", "[TEXT]", "set the system message from here on, or show it", run_system},
    {"clear", "", "forget the conversation, keep the system message", run_clear},
    {"save", "FILE", "write the conversation to a file, as JSON", run_save},
    {"load", "FILE", "go on with a conversation that was saved", run_load},
    {"regen", "", "make the last reply anew", run_regen},
    {"stats", "", "tell about context, speed and memory", run_stats},
    {"quit", "", "leave; so does Ctrl-D", run_quit},
    {NULL, NULL, NULL, NULL},
};

static cli_exit run_help(chat *c, const char *argument) {
  (void)c;
  (void)argument;
  for (const command *row = commands; row->name; row++)
    cli_note("  /%s %-*s %s", row->name, (int)(16 - strlen(row->name)), row->argument, row->help);
  cli_note("A line that ends in a backslash goes on in the next one; \"\"\" begins and ends a text of several lines. "
           "A message that begins with a slash is written with two.");
  return CLI_OK;
}

/* ---- finding one ---- */

static cli_exit unknown_command(const char *name) {
  const char *best = commands[0].name;
  int best_distance = INT_MAX;
  for (const command *row = commands; row->name; row++) {
    int distance = cli_distance(name, row->name);
    if (distance < best_distance) best = row->name, best_distance = distance;
  }
  cli_error("/%s: no such command (the nearest is /%s; /help lists all, and // begins a message with a slash)", name,
            best);
  return CLI_FAILED;
}

/* The name ends at white space; what follows is the argument without the space around it. */
cli_exit chat_command_run(chat *c, const char *line) {
  static const char space[] = " \t\n";
  char name[32];
  const char *argument = line + 1 + strcspn(line + 1, space);
  snprintf(name, sizeof name, "%.*s", (int)(argument - line - 1 < 31 ? argument - line - 1 : 31), line + 1);
  argument += strspn(argument, space);
  size_t n = strlen(argument);
  while (n > 0 && strchr(space, argument[n - 1])) n--;
  for (const command *row = commands; row->name; row++) {
    if (strcmp(row->name, name) != 0) continue;
    char *trimmed = weft__dup(argument, n);
    cli_exit code = trimmed ? row->run(c, trimmed) : cli_fail();
    weft_free(trimmed);
    return code;
  }
  return unknown_command(name);
}
