/* generation.h - how text is generated: the options that run and chat have in common, and what they become. */
#ifndef WEFT_CLI_GENERATION_H
#define WEFT_CLI_GENERATION_H

#include "cli.h"
#include "model.h"

#include "weft/llm.h"

#include <jansson.h>

#include <limits.h>

typedef struct cli_generation {
  int max_tokens;
  int n_ctx; /* 0 = the model's */
  int kv;    /* word of CLI_KV_CHOICES */
  int top_k, repeat_last;
  float temperature; /* -1 = not given */
  float top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty;
  bool ignore_eos;
  cli_list stop, logit_bias;
  const char *session; /* NULL: no file */
} cli_generation;

/* The rows of a command whose options structure has a cli_generation named `generation`. */
#define CLI_GENERATION_OPTIONS(type)                                                                                   \
  CLI_INT(type, generation.max_tokens, "max-tokens", 'n', "N", 1, INT_MAX,                                             \
          "most tokens to generate; the model may stop earlier (default 1024)"),                                       \
      CLI_REAL(type, generation.temperature, "temperature", 0, "T", 0, 100,                                            \
               "how evenly to choose; 0 always takes the likeliest token (default: what the model's "                  \
               "makers recommend, else 0.8)"),                                                                         \
      CLI_INT(type, generation.top_k, "top-k", 0, "K", -1, INT_MAX,                                                    \
              "choose among the K likeliest tokens; 0 or -1 is off (default 40)"),                                     \
      CLI_REAL(type, generation.top_p, "top-p", 0, "P", 0, 1,                                                          \
               "choose among the likeliest tokens that together have probability P; 0 or 1 is off (default 0.95)"),    \
      CLI_REAL(type, generation.min_p, "min-p", 0, "P", 0, 1,                                                          \
               "leave out tokens less likely than P times the likeliest; 0 is off (default 0.05)"),                    \
      CLI_REAL(type, generation.repeat_penalty, "repeat-penalty", 0, "X", 0, 100,                                      \
               "make tokens of the last ones less likely by this factor; 0 or 1 is off (default 1)"),                  \
      CLI_REAL(type, generation.frequency_penalty, "frequency-penalty", 0, "X", -2, 2,                                 \
               "subtract X from a token's logit as often as it is among the last ones (default 0)"),                   \
      CLI_REAL(type, generation.presence_penalty, "presence-penalty", 0, "X", -2, 2,                                   \
               "subtract X from the logit of a token that is among the last ones (default 0)"),                        \
      CLI_INT(type, generation.repeat_last, "repeat-last", 0, "N", -1, INT_MAX,                                        \
              "how many last tokens, of prompt and reply, the three penalties look at; 0 turns them off, -1 is all "   \
              "(default 64)"),                                                                                         \
      CLI_LIST(type, generation.logit_bias, "logit-bias", 0, "ID:V",                                                   \
               "add V (-100 to 100, or -inf) to the logit of token ID, before the penalties; may be given several "    \
               "times"),                                                                                               \
      CLI_LIST(type, generation.stop, "stop", 0, "TEXT",                                                               \
               "end before TEXT, which is not printed; may be given several times"),                                   \
      CLI_FLAG(type, generation.ignore_eos, "ignore-eos", 0, "go on after the model's end tokens"),                    \
      CLI_INT(type, generation.n_ctx, "ctx", 0, "N", 1, INT_MAX,                                                       \
              "positions for prompt and reply together (default: the model's, at most 4096)"),                         \
      CLI_CHOICE(type, generation.kv, "kv", 0, CLI_KV_CHOICES, "element type of the key/value cache (default f16)"),   \
      CLI_TEXT(                                                                                                        \
          type, generation.session, "session", 0, "FILE",                                                              \
          "keep tokens and key/value cache in FILE from one run to the next, so that what a prompt has in common "     \
          "with the last one is not computed again")

/* A paragraph for the help of such a command. */
#define CLI_GENERATION_DETAILS                                                                                         \
  "A token is chosen in these steps: logit biases, penalties, top-k, top-p, min-p, temperature, then a draw that "     \
  "depends on the seed and the position alone.\n"

#define CLI_GENERATION_DEFAULTS                                                                                        \
  {                                                                                                                    \
    .max_tokens = 1024, .kv = CLI_KV_F16, .temperature = -1, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f,              \
    .repeat_penalty = 1, .repeat_last = 64                                                                             \
  }

/* Reads what the tables cannot check, before a model is loaded, and fills *out except for its seed and callbacks.
 * CLI_USAGE: an error was reported.  *out borrows from `generation`; cli_generation_clear releases the rest. */
cli_exit cli_generation_prepare(const cli_generation *generation, weft_generate_options *out);
void cli_generation_clear(weft_generate_options *out);

/* What the model decides where the options do not. */
void cli_generation_use_model(const weft_model *model, weft_generate_options *out);

/* is_canceled of weft_generate_options: true after an interrupt, or when nobody reads the output any more.  It is asked
 * between tokens and between chunks of the prompt, so an interrupt waits for one forward pass at most. */
int cli_generation_is_canceled(void *context);

/* Whether the text is white space alone, which no line of input with a prompt is. */
bool cli_is_blank(const char *text);

/* A session as the options ask for it, with what its file holds if there is one; *note (may be NULL) gets the file's note,
 * the caller's, or NULL.  Both report their own error. */
cli_exit cli_generation_open_session(const cli_generation *generation, weft_model *model, weft_session **out,
                                     char **note, size_t *n_note_bytes);
/* Keeps the session in its file, if it has one. */
cli_exit cli_generation_save_session(const cli_generation *generation, const weft_session *session, const void *note,
                                     size_t n_note_bytes);

/* One dim line on a terminal's standard error: the speed of a generation after `n_prompt` tokens of prompt. */
void cli_speed_line(const cli_common *common, size_t n_prompt, const weft_generation *generation);

/* Sets the keys of a result: seed, prompt_tokens, n_reused_tokens (of the prompt, that were in the session already),
 * tokens, text, finish_reason, times and rates.  n_steps: the tokens that decode_ms is the time of. */
void cli_generation_json(json_t *root, const int32_t *prompt, size_t n_prompt, size_t n_reused, uint64_t seed,
                         const weft_generation *g, size_t n_steps);
/* Of a generation, all but the first, which comes out of the prefill. */
size_t cli_generation_steps(const weft_generation *g);

/* "stop", "length" or "canceled". */
const char *cli_finish_name(weft_finish_reason reason);

#endif
