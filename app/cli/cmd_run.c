/* cmd_run.c - weft run: generates from a prompt, or forces given tokens and reports what the model would have said.
 *
 * Text goes out as it becomes certain and is flushed each time, so that a reader sees every word at once; with --json
 * nothing goes out before the end.  Ctrl-C ends the generation, not the program: what was said so far is completed. */
#include "cmd.h"
#include "generation.h"
#include "interrupt.h"
#include "jsonl.h"
#include "model.h"
#include "options.h"
#include "output.h"
#include "prompt.h"
#include "system.h"
#include "terminal.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

typedef struct run_options {
  cli_common common;
  cli_prompt prompt;
  cli_generation generation;
  const char *force_tokens; /* ids as text; NULL: generate */
  bool jsonl;
} run_options;

/* One forced step: what the logits before it preferred. */
typedef struct forced_step {
  int32_t argmax;
  double margin; /* best minus second logit */
} forced_step;

/* Everything that one run holds; zero at first, released by clear_run. */
typedef struct run_state {
  const run_options *options;
  weft_generate_options generate;
  cli_model model;
  weft_session *session;
  char *note; /* n_note bytes that the session's file holds for chat, NULL if none */
  size_t n_note;
  int32_t *prompt, *force; /* ids */
  size_t n_prompt, n_force;
  size_t n_reused;     /* of the prompt: what the session had already */
  forced_step *forced; /* n_force steps */
  uint64_t seed;
  weft_generation generation; /* forcing fills its times too */
} run_state;

/* ---- generating ---- */

/* Flushed each time; a reader that has gone ends the generation.  A pipe gets the text as it is, a terminal nothing that it
 * would act on. */
static int on_text(void *context, const char *text, size_t n_bytes) {
  (void)context;
  if (cli_is_terminal(STDOUT_FILENO))
    cli_out_text(text, n_bytes);
  else
    cli_out(text, n_bytes);
  cli_out_flush();
  return cli_out_failed();
}

static weft_status generate(run_state *r) {
  r->generate.sampler.seed = r->seed;
  r->generate.on_text = r->options->common.json ? NULL : on_text;
  r->generate.is_canceled = cli_generation_is_canceled;
  return weft_session_generate(r->session, r->prompt + r->n_reused, r->n_prompt - r->n_reused, &r->generate,
                               &r->generation);
}

/* ---- forcing ---- */

/* Ties go to the lowest id, as in greedy sampling. */
static forced_step best_and_margin(const float *logits, int n_vocab) {
  int best = 0;
  float second = -INFINITY;
  for (int i = 1; i < n_vocab; i++)
    if (logits[i] > logits[best]) best = i;
  for (int i = 0; i < n_vocab; i++)
    if (i != best && logits[i] > second) second = logits[i];
  return (forced_step){best, (double)logits[best] - (double)second};
}

/* `logits` are those after the prompt; each step reports on them before it appends its token and gets the next. */
static weft_status force_steps(run_state *r, const float *logits) {
  int n_vocab = weft_model_get_info(r->model.model)->n_vocab;
  for (size_t i = 0; i < r->n_force; i++) {
    if (cli_interrupt_seen()) return weft__error(WEFT_ECANCELED, "run: interrupted");
    r->forced[i] = best_and_margin(logits, n_vocab);
    weft_status status = weft_session_append(r->session, &r->force[i], 1, &logits);
    if (status) return status;
    r->generation.n_tokens++;
  }
  return WEFT_OK;
}

/* Stands in for generate: the forced tokens are the generation, n_tokens of them once that many steps are done. */
static weft_status force(run_state *r) {
  const float *logits;
  weft_generation *g = &r->generation;
  g->finish_reason = WEFT_FINISH_LENGTH;
  g->tokens = weft__dup(r->force, r->n_force * sizeof *r->force);
  if (!g->tokens) return WEFT_ENOMEM;
  double start_ms = weft__now_ms();
  weft_status status = weft_session_append(r->session, r->prompt + r->n_reused, r->n_prompt - r->n_reused, &logits);
  g->prefill_ms = weft__now_ms() - start_ms;
  if (!status) status = force_steps(r, logits);
  g->decode_ms = weft__now_ms() - start_ms - g->prefill_ms;
  if (status) return status;
  return weft_tokenizer_decode(weft_model_tokenizer(r->model.model), g->tokens, g->n_tokens, 0, &g->text,
                               &g->n_text_bytes);
}

/* Reads the ids before the model is loaded; without the option there is nothing to do. */
static cli_exit prepare_forcing(run_state *r) {
  const char *text = r->options->force_tokens;
  if (!text) return CLI_OK;
  cli_exit code = cli_parse_ids("--force-tokens", text, &r->force, &r->n_force);
  if (code) return code;
  if (r->n_force == 0) {
    cli_error("--force-tokens: it is empty (give token ids, separated by commas)");
    return CLI_USAGE;
  }
  r->forced = weft__calloc(r->n_force, sizeof *r->forced);
  return r->forced ? CLI_OK : cli_fail();
}

/* ---- reporting ---- */

/* Forcing times all of its tokens. */
static size_t n_timed_steps(const run_state *r) {
  return r->force ? r->generation.n_tokens : cli_generation_steps(&r->generation);
}

/* After an interrupt the steps that were done. */
static json_t *forced_to_json(const run_state *r) {
  json_t *list = json_array();
  for (size_t i = 0; i < r->generation.n_tokens; i++) {
    json_t *step = json_object();
    cli_json_set(step, "argmax", json_integer(r->forced[i].argmax));
    cli_json_set(step, "margin", cli_json_number(r->forced[i].margin));
    cli_json_add(list, step);
  }
  return list;
}

/* The keys are what scripts rely on; new ones may come, these stay. */
static cli_exit print_json(const run_state *r) {
  const weft_generation *g = &r->generation;
  json_t *root = json_object();
  cli_json_set(root, "model", cli_json_text(r->model.path, strlen(r->model.path)));
  cli_json_set(root, "device", json_string(weft_device_name(r->model.device)));
  cli_json_set(root, "load_ms", cli_json_number(r->model.load_ms));
  cli_generation_json(root, r->prompt, r->n_prompt, r->n_reused, r->seed, g, n_timed_steps(r));
  cli_json_set(root, "peak_bytes", json_integer(cli_peak_bytes()));
  if (r->force) cli_json_set(root, "forced", forced_to_json(r));
  return cli_json_print(root);
}

/* A terminal's prompt, or the next line of a pipe, starts on a line of its own even after a failure. */
static void end_text(const weft_generation *g) {
  if (g->n_text_bytes == 0 || g->text[g->n_text_bytes - 1] != '\n') cli_out("\n", 1);
  cli_out_flush();
}

/* Columns separated by tabs, so that cut and awk can read them. */
static void print_forced(const run_state *r) {
  for (size_t i = 0; i < r->generation.n_tokens; i++)
    cli_outf("%d\targmax %d\tmargin %.6f\n", r->force[i], r->forced[i].argmax, r->forced[i].margin);
}

/* A reply of one token took no decode pass, so there is no rate to tell. */
static void note_speed(const run_state *r) {
  const weft_generation *g = &r->generation;
  cli_note("prompt: %zu tokens in %.1f ms (%.1f tokens/s)", r->n_prompt - r->n_reused, g->prefill_ms,
           (double)(r->n_prompt - r->n_reused) / (g->prefill_ms / 1e3));
  if (g->decode_ms > 0)
    cli_note("reply: %zu tokens in %.1f ms (%.1f tokens/s), ended by %s", g->n_tokens, g->decode_ms,
             (double)n_timed_steps(r) / (g->decode_ms / 1e3), cli_finish_name(g->finish_reason));
  cli_note("memory: %.1f MB at most", (double)cli_peak_bytes() / 1e6);
}

/* ---- the command ---- */

/* Loads the model and makes the session, with the prompt's ids. */
static cli_exit open_run(run_state *r, const char *model_name, const weft__bytes *text) {
  const run_options *o = r->options;
  cli_exit code = cli_model_open(&r->model, model_name, &o->common);
  if (code) return code;
  cli_generation_use_model(r->model.model, &r->generate);
  /* From here on there may be text to complete. */
  cli_interrupt_defer(true);
  if (o->common.verbose) {
    cli_model_note(&r->model);
    cli_note("seed: %llu", (unsigned long long)r->seed);
  }
  code = cli_prompt_encode(&o->prompt, text, r->model.model, &r->prompt, &r->n_prompt);
  if (code) return code;
  code = cli_generation_open_session(&o->generation, r->model.model, &r->session, &r->note, &r->n_note);
  if (!code) r->n_reused = weft_session_reuse(r->session, r->prompt, r->n_prompt);
  return code;
}

/* Generates or forces, and prints.  A failure after the first words still ends their line, then is reported. */
static cli_exit produce(run_state *r) {
  const run_options *o = r->options;
  weft_status status = r->force ? force(r) : generate(r);
  bool is_interrupted = cli_interrupt_seen();
  cli_exit code = CLI_OK;
  if (status && status != WEFT_ECANCELED) {
    if (!o->common.json && r->generation.n_text_bytes > 0) end_text(&r->generation);
    return cli_fail();
  }
  if (is_interrupted) r->generation.finish_reason = WEFT_FINISH_CANCELED;
  if (o->common.json)
    code = print_json(r);
  else if (r->force)
    print_forced(r);
  else
    end_text(&r->generation);
  if (o->common.verbose)
    note_speed(r);
  else if (!r->force)
    cli_speed_line(&o->common, r->n_prompt - r->n_reused, &r->generation);
  if (!code) code = cli_generation_save_session(&o->generation, r->session, r->note, r->n_note);
  return is_interrupted ? CLI_INTERRUPTED : code;
}

/* Releases what any part of the run made, in the reverse order; each of the calls takes what is not there. */
static void clear_run(run_state *r) {
  weft_generation_clear(&r->generation);
  weft_session_free(r->session);
  weft_free(r->note);
  cli_model_close(&r->model);
  cli_generation_clear(&r->generate);
  weft_free(r->prompt);
  weft_free(r->force);
  weft_free(r->forced);
}

/* The options of the command line are checked as if they were a line's, before a model is looked for. */
static cli_exit run_jsonl(const run_options *o, const cli_args *args) {
  weft_generate_options checked;
  if (args->n > 1 || o->prompt.text || o->force_tokens || o->generation.session) {
    cli_error("--jsonl: the prompts come from standard input or --prompt-file, a line each (leave out %s)",
              o->force_tokens         ? "--force-tokens"
              : o->generation.session ? "--session"
                                      : "the prompt");
    return CLI_USAGE;
  }
  cli_exit code = cli_prompt_check_raw(&o->prompt);
  if (code) return code;
  code = cli_generation_prepare(&o->generation, &checked);
  cli_generation_clear(&checked);
  if (code) return code;
  const cli_jsonl_defaults lines = {
      .generation = o->generation,
      .seed = o->common.seed >= 0 ? o->common.seed : cli_draw_seed(),
      .system = o->prompt.system,
      .raw = o->prompt.raw,
  };
  return cli_jsonl_run(&o->common, o->prompt.file ? o->prompt.file : "-", args->values[0], &lines);
}

/* All that can be wrong with the words is found before the model is loaded. */
static cli_exit run_run(void *options, const cli_args *args) {
  const run_options *o = options;
  if (o->jsonl) return run_jsonl(o, args);
  weft__bytes text = {0};
  run_state r = {.options = o};
  r.seed = (uint64_t)(o->common.seed >= 0 ? o->common.seed : cli_draw_seed());
  cli_exit code = cli_generation_prepare(&o->generation, &r.generate);
  if (!code) code = prepare_forcing(&r);
  if (!code) code = cli_prompt_read(&o->prompt, args->n > 1 ? args->values[1] : NULL, &text);
  if (!code) code = open_run(&r, args->values[0], &text);
  if (!code) code = produce(&r);
  clear_run(&r);
  weft__bytes_clear(&text);
  return code;
}

static const cli_option run_table[] = {
    CLI_PROMPT_OPTIONS(run_options),
    CLI_GENERATION_OPTIONS(run_options),
    CLI_FLAG(run_options, jsonl, "jsonl", 0,
             "answer a prompt a line, from --prompt-file or standard input, with a JSON object a line"),
    CLI_TEXT(run_options, force_tokens, "force-tokens", 0, "IDS",
             "after the prompt append these token ids, and print for each the id that had the largest logit before it "
             "and its margin over the second"),
    CLI_END,
};

static const run_options defaults = {
    .common = CLI_COMMON_DEFAULTS,
    .generation = CLI_GENERATION_DEFAULTS,
};

const cli_command cli_cmd_run = {
    .name = "run",
    .arguments = "MODEL [PROMPT]",
    .summary = "answer a prompt",
    .details =
        "Sends the prompt through the model's chat template and prints the reply as it is made. Standard input is "
        "read only with --prompt-file - or --jsonl. Ctrl-C ends the reply with status 130; a second one ends the "
        "program at "
        "once.\n" CLI_GENERATION_DETAILS
        "With --json the object has model, device, seed, prompt_tokens, n_reused_tokens (of the prompt, from "
        "--session), tokens, text, finish_reason (stop, length "
        "or canceled), load_ms, prefill_ms, decode_ms, prefill_tokens_per_s, decode_tokens_per_s, peak_bytes, and "
        "with --force-tokens forced.\n"
        "With --jsonl each line is a JSON string, the prompt, or an object: prompt, or messages, a list of role and "
        "content; id, which the result repeats; and options of generation with _ for -, system, raw and seed, in "
        "place of the command line's. Results come in the order of the lines: line, id, and the keys of --json that "
        "are not about the model; or line, id and error, and the exit status is 1 at the end.",
    .examples = "weft run model.gguf \"What is the capital of France?\"\n"
                "weft run model.gguf --raw -p \"Once upon a time\" -n 64 --temperature 0\n"
                "weft run model.gguf --prompt-file question.txt -s \"Answer in one sentence.\" --seed 1\n"
                "git diff | weft run model.gguf --prompt-file - --stop END\n"
                "weft run model.gguf --jsonl --prompt-file questions.jsonl --temperature 0 >answers.jsonl\n"
                "echo '{\"prompt\": \"1 2 3\", \"raw\": true, \"max_tokens\": 8}' | weft run model.gguf --jsonl\n"
                "weft run model.gguf -- \"--why does this work?\"",
    .min_args = 1,
    .max_args = 2,
    .uses = CLI_USES_DEVICE | CLI_USES_SEED | CLI_USES_MODEL,
    .options = run_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_run,
};
