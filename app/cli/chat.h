/* chat.h - what the parts of weft chat share. */
#ifndef WEFT_CLI_CHAT_H
#define WEFT_CLI_CHAT_H

#include "chat_log.h"
#include "generation.h"
#include "line.h"
#include "model.h"

typedef struct chat_options {
  cli_common common;
  cli_generation generation;
  const char *system;
} chat_options;

/* Figures of the last reply. */
typedef struct chat_stats {
  size_t n_prompt, n_reused, n_reply; /* tokens; of the prompt, n_reused were in the cache already */
  double prefill_ms, decode_ms;
} chat_stats;

/* Everything that one chat holds; zero at first. */
typedef struct chat {
  const chat_options *options;
  weft_generate_options generate;
  cli_model model;
  weft_session *session;
  cli_line *line;
  chat_log log;
  chat_stats stats;
  uint64_t seed;
  bool is_interactive; /* somebody types: Ctrl-C stops a reply only, errors end nothing */
  bool is_done;
  cli_exit code; /* what the program ends with when it is done */
} chat;

/* Answers the newest turn, which is the user's.  No turn is added if it failed, and the error was reported, or if it was
 * interrupted before the first word. */
cli_exit chat_reply(chat *c);

/* Runs a line that begins with a slash. */
cli_exit chat_command_run(chat *c, const char *line);

#endif
