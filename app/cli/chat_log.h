/* chat_log.h - a conversation: its system message and its turns, as tokens for the model and as a file. */
#ifndef WEFT_CLI_CHAT_LOG_H
#define WEFT_CLI_CHAT_LOG_H

#include "cli.h"

#include "base/base.h"
#include "weft/llm.h"

typedef enum chat_role { CHAT_USER, CHAT_ASSISTANT } chat_role;

typedef struct chat_turn {
  chat_role role;
  char *content;
} chat_turn;

/* Zero is an empty conversation; released with chat_log_clear. */
typedef struct chat_log {
  char *system; /* NULL: the chat template's own, if it has one */
  chat_turn *turns;
  size_t n_turns;
  size_t n_left_out; /* oldest turns that the model is no longer shown */
} chat_log;

void chat_log_clear(chat_log *log);   /* the system message too */
void chat_log_restart(chat_log *log); /* keeps the system message */

/* These copy the text and report their own error. */
cli_exit chat_log_set_system(chat_log *log, const char *text); /* "" takes it away */
cli_exit chat_log_add(chat_log *log, chat_role role, const char *content);

/* Forgets the newest turn. */
void chat_log_drop_last(chat_log *log);
/* Takes the newest turn, of which there is one, out of the conversation, and puts it back, where no more turns may have come
 * than were there before.  In between its content is the caller's (weft_free). */
chat_turn chat_log_take_last(chat_log *log);
void chat_log_put_back(chat_log *log, chat_turn turn);
/* Leaves out the oldest turn that is shown and its reply; false if only the newest one is left. */
bool chat_log_leave_out_oldest(chat_log *log);

/* Encodes what the model is shown, up to where its reply begins; *ids is the caller's (weft_free). */
weft_status chat_log_encode(const chat_log *log, const weft_model *model, int32_t **ids, size_t *n_ids);

/* The conversation as JSON: {"messages": [{"role": "user", "content": "..."}, ...]}, the form that other programs and
 * services use; appended to `text`, and back.  Reading replaces the conversation; on failure it is as before.  `what`
 * names the source in messages.  These report their own error. */
cli_exit chat_log_to_json(const chat_log *log, weft__bytes *text);
cli_exit chat_log_from_json(chat_log *log, const char *what, const char *text, size_t n_bytes);

/* The same with a file. */
cli_exit chat_log_save(const chat_log *log, const char *path);
cli_exit chat_log_load(chat_log *log, const char *path);

#endif
