/* generation.c - from the options of run and chat to those of the library. */
#include "generation.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"
#include "terminal.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* "ID:V"; also "ID:-inf", which bans the token. */
static cli_exit parse_bias(const char *text, weft_logit_bias *bias) {
  char id_text[16];
  int64_t id;
  size_t n = strcspn(text, ":");
  const char *value = text[n] ? text + n + 1 : "";
  snprintf(id_text, sizeof id_text, "%.*s", (int)(n < sizeof id_text ? n : sizeof id_text - 1), text);
  bool is_ban = strcmp(value, "-inf") == 0;
  if (is_ban) bias->bias = -INFINITY;
  if (n < sizeof id_text && cli_parse_int(id_text, 0, INT32_MAX, &id) &&
      (is_ban || cli_parse_real(value, -100, 100, &bias->bias))) {
    bias->token = (int32_t)id;
    return CLI_OK;
  }
  cli_error("--logit-bias: '%s' is not ID:V (give a token id, a colon and a number from -100 to 100 or -inf)", text);
  return CLI_USAGE;
}

/* *out gets the biases even if one of them is wrong, so that they are released. */
static cli_exit parse_biases(const cli_list *list, weft_sampler_options *out) {
  if (list->n == 0) return CLI_OK;
  weft_logit_bias *biases = weft__alloc(list->n, sizeof *biases);
  if (!biases) return cli_fail();
  out->logit_bias = biases;
  out->n_logit_bias = list->n;
  for (size_t i = 0; i < list->n; i++) {
    cli_exit code = parse_bias(list->items[i], &biases[i]);
    if (code) return code;
  }
  return CLI_OK;
}

/* An empty stop string would be found at once and end every reply before its first character. */
static cli_exit check_stops(const cli_list *stop) {
  for (size_t i = 0; i < stop->n; i++)
    if (!*stop->items[i]) {
      cli_error("--stop: it is empty (give the text that ends the reply)");
      return CLI_USAGE;
    }
  return CLI_OK;
}

/* The library's 0 means its default, the program's 0 means off. */
static void set_penalties(const cli_generation *g, weft_sampler_options *out) {
  if (g->repeat_last == 0) return;
  out->repeat_last = g->repeat_last;
  out->repeat_penalty = g->repeat_penalty;
  out->frequency_penalty = g->frequency_penalty;
  out->presence_penalty = g->presence_penalty;
}

cli_exit cli_generation_prepare(const cli_generation *g, weft_generate_options *out) {
  *out = (weft_generate_options){
      .sampler = {.temperature = g->temperature, .top_k = g->top_k, .top_p = g->top_p, .min_p = g->min_p},
      .max_tokens = g->max_tokens,
      .ignore_end = g->ignore_eos,
      .stop = g->stop.items,
      .n_stop = g->stop.n,
  };
  set_penalties(g, &out->sampler);
  cli_exit code = check_stops(&g->stop);
  return code ? code : parse_biases(&g->logit_bias, &out->sampler);
}

void cli_generation_use_model(const weft_model *model, weft_generate_options *out) {
  float recommended = weft_model_get_info(model)->temperature;
  if (out->sampler.temperature < 0) out->sampler.temperature = recommended < 0 ? 0.8f : recommended;
}

int cli_generation_is_canceled(void *context) {
  (void)context;
  return cli_interrupt_seen() || cli_out_failed();
}

bool cli_is_blank(const char *text) { return text[strspn(text, " \t\r\n")] == 0; }

void cli_generation_clear(weft_generate_options *out) {
  weft_free((void *)(uintptr_t)out->sampler.logit_bias);
  *out = (weft_generate_options){0};
}

/* A file that is not there yet is made at the end, when an answer has been paid for: so it is known now whether it can be. */
static cli_exit check_new_session(const char *path) {
  if (!*path) {
    cli_error("--session: it is empty (name a file)");
    return CLI_USAGE;
  }
  const char *slash = strrchr(path, '/');
  weft__bytes folder = {0};
  if (weft__bytes_printf(&folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".")) return cli_fail();
  cli_exit code = access(folder.data, W_OK) == 0 ? CLI_OK : CLI_FAILED;
  if (code)
    cli_error("--session %s: %s: %s (name a file in a folder that you may write to)", path, folder.data,
              strerror(errno));
  weft__bytes_clear(&folder);
  return code;
}

cli_exit cli_generation_open_session(const cli_generation *g, weft_model *model, weft_session **out, char **note,
                                     size_t *n_note_bytes) {
  const weft_session_options options = {.n_ctx = g->n_ctx, .kv_dtype = cli_kv_dtype(g->kv)};
  if (weft_session_create(out, model, &options)) return cli_fail();
  if (!g->session) return CLI_OK;
  if (access(g->session, F_OK) != 0 && errno == ENOENT) return check_new_session(g->session);
  return weft_session_load(*out, g->session, note, n_note_bytes) ? cli_fail() : CLI_OK;
}

cli_exit cli_generation_save_session(const cli_generation *g, const weft_session *session, const void *note,
                                     size_t n_note_bytes) {
  if (!g->session) return CLI_OK;
  return weft_session_save(session, g->session, note, n_note_bytes) ? cli_fail() : CLI_OK;
}

/* The first token comes out of the prefill, so a reply of one has no rate. */
void cli_speed_line(const cli_common *common, size_t n_prompt, const weft_generation *g) {
  char decode[64] = "";
  if (g->n_tokens > 1 && g->decode_ms > 0)
    snprintf(decode, sizeof decode, ", %.1f tokens/s", (double)(g->n_tokens - 1) / (g->decode_ms / 1e3));
  if (g->prefill_ms > 0)
    cli_dim_line(common, "[prompt %zu tokens, %.1f tokens/s; reply %zu tokens%s]", n_prompt,
                 (double)n_prompt / (g->prefill_ms / 1e3), g->n_tokens, decode);
}

size_t cli_generation_steps(const weft_generation *g) { return g->n_tokens > 0 ? g->n_tokens - 1 : 0; }

/* A rate over no time at all (one token, or none) comes out as infinite or NaN and is printed as null. */
void cli_generation_json(json_t *root, const int32_t *prompt, size_t n_prompt, size_t n_reused, uint64_t seed,
                         const weft_generation *g, size_t n_steps) {
  cli_json_set(root, "seed", json_integer((json_int_t)seed));
  cli_json_set(root, "prompt_tokens", cli_json_ids(prompt, n_prompt));
  cli_json_set(root, "n_reused_tokens", json_integer((json_int_t)n_reused));
  cli_json_set(root, "tokens", cli_json_ids(g->tokens, g->n_tokens));
  cli_json_set(root, "text", cli_json_text(g->text, g->n_text_bytes));
  cli_json_set(root, "finish_reason", json_string(cli_finish_name(g->finish_reason)));
  cli_json_set(root, "prefill_ms", cli_json_number(g->prefill_ms));
  cli_json_set(root, "decode_ms", cli_json_number(g->decode_ms));
  cli_json_set(root, "prefill_tokens_per_s", cli_json_number((double)(n_prompt - n_reused) / (g->prefill_ms / 1e3)));
  cli_json_set(root, "decode_tokens_per_s", cli_json_number((double)n_steps / (g->decode_ms / 1e3)));
}

const char *cli_finish_name(weft_finish_reason reason) {
  switch (reason) {
  case WEFT_FINISH_STOP:
    return "stop";
  case WEFT_FINISH_LENGTH:
    return "length";
  case WEFT_FINISH_CANCELED:
    return "canceled";
  }
  return "unknown";
}
