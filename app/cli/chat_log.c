/* chat_log.c - a conversation.
 *
 * Invariant: contents are NUL-terminated and hold no NUL, so that what is shown, saved and encoded is the same text. */
#include "chat_log.h"
#include "output.h"
#include "system.h"

#include <assert.h>
#include <string.h>

static const char *const ROLE_NAMES[] = {"user", "assistant"};

void chat_log_restart(chat_log *log) {
  while (log->n_turns > 0) chat_log_drop_last(log);
  weft_free(log->turns);
  log->turns = NULL;
}

void chat_log_clear(chat_log *log) {
  chat_log_restart(log);
  weft_free(log->system);
  *log = (chat_log){0};
}

cli_exit chat_log_set_system(chat_log *log, const char *text) {
  char *copy = *text ? weft__dup(text, strlen(text)) : NULL;
  if (*text && !copy) return cli_fail();
  weft_free(log->system);
  log->system = copy;
  return CLI_OK;
}

cli_exit chat_log_add(chat_log *log, chat_role role, const char *content) {
  chat_turn *turns = weft__realloc(log->turns, log->n_turns + 1, sizeof *turns);
  if (!turns) return cli_fail();
  log->turns = turns;
  log->turns[log->n_turns] = (chat_turn){role, weft__dup(content, strlen(content))};
  if (!log->turns[log->n_turns].content) return cli_fail();
  log->n_turns++;
  return CLI_OK;
}

chat_turn chat_log_take_last(chat_log *log) {
  assert(log->n_turns > 0);
  chat_turn turn = log->turns[--log->n_turns];
  if (log->n_left_out > log->n_turns) log->n_left_out = log->n_turns;
  return turn;
}

/* The room it had is still there. */
void chat_log_put_back(chat_log *log, chat_turn turn) { log->turns[log->n_turns++] = turn; }

void chat_log_drop_last(chat_log *log) {
  if (log->n_turns > 0) weft_free(chat_log_take_last(log).content);
}

/* What is shown begins with a user's turn, as it does in the texts that models are trained on. */
bool chat_log_leave_out_oldest(chat_log *log) {
  size_t next = log->n_left_out + 1;
  while (next < log->n_turns && log->turns[next].role != CHAT_USER) next++;
  if (next >= log->n_turns) return false;
  log->n_left_out = next;
  return true;
}

weft_status chat_log_encode(const chat_log *log, const weft_model *model, int32_t **ids, size_t *n_ids) {
  weft_chat_message *messages = weft__alloc(log->n_turns + 1, sizeof *messages);
  size_t n = 0;
  if (!messages) return WEFT_ENOMEM;
  if (log->system) messages[n++] = (weft_chat_message){"system", log->system};
  for (size_t i = log->n_left_out; i < log->n_turns; i++)
    messages[n++] = (weft_chat_message){ROLE_NAMES[log->turns[i].role], log->turns[i].content};
  weft_status status = weft_model_apply_chat(model, messages, n, ids, n_ids);
  weft_free(messages);
  return status;
}

/* ---- files ---- */

static void add_message(json_t *list, const char *role, const char *content) {
  json_t *message = json_object();
  cli_json_set(message, "role", json_string(role));
  cli_json_set(message, "content", cli_json_text(content, strlen(content)));
  cli_json_add(list, message);
}

/* Turns that are left out of the context are part of the conversation all the same. */
cli_exit chat_log_to_json(const chat_log *log, weft__bytes *text) {
  json_t *root = json_object(), *list = json_array();
  if (log->system) add_message(list, "system", log->system);
  for (size_t i = 0; i < log->n_turns; i++) add_message(list, ROLE_NAMES[log->turns[i].role], log->turns[i].content);
  cli_json_set(root, "messages", list);
  return cli_json_text_of(root, text);
}

cli_exit chat_log_save(const chat_log *log, const char *path) {
  weft__bytes text = {0};
  cli_exit code = chat_log_to_json(log, &text);
  if (!code) code = weft__file_write(path, WEFT__FILE_PRIVATE, text.data, text.n) ? cli_fail() : CLI_OK;
  weft__bytes_clear(&text);
  return code;
}

/* Why a message cannot be one, or NULL after it was added. */
static const char *take_message(chat_log *log, const json_t *message, size_t index, cli_exit *code) {
  const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
  if (!json_is_string(role) || !json_is_string(content)) return "has no role or no content that is a string";
  const char *name = json_string_value(role), *text = json_string_value(content);
  if (strlen(text) != json_string_length(content)) return "holds a NUL";
  if (strcmp(name, "system") == 0) {
    if (index != 0) return "is a system message, which only the first may be";
    *code = chat_log_set_system(log, text);
    return NULL;
  }
  for (size_t i = 0; i < WEFT_COUNT(ROLE_NAMES); i++)
    if (strcmp(name, ROLE_NAMES[i]) == 0) {
      *code = chat_log_add(log, (chat_role)i, text);
      return NULL;
    }
  return "has a role that is neither system, user nor assistant";
}

static cli_exit take_messages(chat_log *log, const json_t *root, const char *path) {
  const json_t *list = json_is_array(root) ? root : json_object_get(root, "messages");
  cli_exit code = CLI_OK;
  if (!json_is_array(list)) {
    cli_error("%s: it has no \"messages\" (give a file that /save wrote)", path);
    return CLI_FAILED;
  }
  for (size_t i = 0; i < json_array_size(list) && !code; i++) {
    const char *wrong = take_message(log, json_array_get(list, i), i, &code);
    if (!wrong) continue;
    cli_error("%s: message %zu %s (correct the file)", path, i + 1, wrong);
    code = CLI_FAILED;
  }
  return code;
}

cli_exit chat_log_from_json(chat_log *log, const char *path, const char *text, size_t n_bytes) {
  chat_log loaded = {0};
  json_error_t error;
  json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
  if (!root) {
    cli_error("%s: line %d is no JSON: %s (give a file that /save wrote)", path, error.line, error.text);
    return CLI_FAILED;
  }
  cli_exit code = take_messages(&loaded, root, path);
  json_decref(root);
  if (code) {
    chat_log_clear(&loaded);
    return code;
  }
  chat_log_clear(log);
  *log = loaded;
  return CLI_OK;
}

cli_exit chat_log_load(chat_log *log, const char *path) {
  weft__bytes text = {0};
  cli_exit code = cli_read_file(path, &text);
  if (!code) code = chat_log_from_json(log, path, text.data, text.n);
  weft__bytes_clear(&text);
  return code;
}
