/* commands.c - the list of commands, the options they have in common, and how words find a command.
 *
 * To add a command: write cmd_<name>.c, declare it in cmd.h, and add its row here. */
#include "cmd.h"
#include "options.h"
#include "output.h"

#include "base/pool.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

const cli_command *const cli_commands[] = {
    &cli_cmd_run,        &cli_cmd_chat,
    &cli_cmd_tokenize,   &cli_cmd_detokenize,
    &cli_cmd_logits,     &cli_cmd_score,
    &cli_cmd_info,       &cli_cmd_models,
    &cli_cmd_models_rm,  &cli_cmd_bench_llm,
    &cli_cmd_bench_gemm, &cli_cmd_bench_matvec,
    &cli_cmd_bench_ops,  &cli_cmd_bench_attention,
    &cli_cmd_bench_load, &cli_cmd_devices,
    &cli_cmd_doctor,     &cli_cmd_sweep,
    &cli_cmd_demo,       &cli_cmd_version,
    &cli_cmd_help,       NULL,
};

const cli_option cli_common_options[] = {
    CLI_CHOICE(cli_common, device, "device", 0, "auto|cpu|gpu|low|high|N",
               "where to compute; low and high lean to an integrated and a discrete GPU, N is one of weft devices "
               "(default auto)",
               .needs = CLI_USES_DEVICE),
    CLI_INT(cli_common, n_threads, "threads", 't', "N", 1, WEFT_MAX_THREADS,
            "threads that compute; results do not depend on it (default WEFT_THREADS, else all processors)",
            .needs = CLI_USES_DEVICE),
    CLI_TEXT(cli_common, affinity, "affinity", 0, "LIST",
             "pin the threads to these processors in turn, as in 0-3,8 (Linux; default: the system places them)",
             .needs = CLI_USES_DEVICE),
    CLI_FLAG(cli_common, exact, "exact", 0, "do not quantise activations: slower, nearer to exact arithmetic",
             .needs = CLI_USES_DEVICE),
    CLI_FLAG(
        cli_common, no_mmap, "no-mmap", 0,
        "read the model file into memory instead of mapping it: takes its size more of memory, but nobody can change "
        "the file meanwhile",
        .needs = CLI_USES_MODEL),
    CLI_INT64(cli_common, seed, "seed", 0, "S", 0, INT64_MAX,
              "seed of the random numbers; the same seed gives the same text (default: drawn, see --verbose)",
              .needs = CLI_USES_SEED),
    CLI_FLAG(cli_common, json, "json", 0, "print one JSON object instead of text"),
    CLI_FLAG(cli_common, quiet, "quiet", 0, "print results and errors only, whatever else is given"),
    CLI_FLAG(cli_common, verbose, "verbose", 0, "tell about model, device, seed and speed on standard error"),
    CLI_FLAG(cli_common, help, "help", 'h', "print this page"),
    CLI_END,
};

/* ---- looking up ----
 *
 * A name of two words is compared with the first two words typed.  One list with full names keeps help, the parser and
 * what else reads it free of a special case for groups. */

static int count_words(const char *name) { return strchr(name, ' ') ? 2 : 1; }

/* The first n words of argv as one text, cut to the buffer. */
static void join_words(int argc, char **argv, int n, char *text, size_t n_bytes) {
  if (n > argc) n = argc;
  snprintf(text, n_bytes, "%s%s%s", n > 0 ? argv[0] : "", n > 1 ? " " : "", n > 1 ? argv[1] : "");
}

/* Two words come first: a command may have the name of a group. */
const cli_command *cli_command_find(int argc, char **argv, int *n_words) {
  char typed[128];
  for (int n = 2; n > 0; n--)
    for (const cli_command *const *c = cli_commands; *c; c++) {
      join_words(argc, argv, n, typed, sizeof typed);
      if (count_words((*c)->name) != n || strcmp(typed, (*c)->name) != 0) continue;
      *n_words = n;
      return *c;
    }
  return NULL;
}

/* Each name is compared with as many of the words as it has. */
cli_exit cli_command_unknown(int argc, char **argv) {
  char typed[128];
  const char *best = cli_commands[0]->name;
  int best_distance = INT_MAX;
  for (const cli_command *const *c = cli_commands; *c; c++) {
    join_words(argc, argv, count_words((*c)->name), typed, sizeof typed);
    int distance = cli_distance(typed, (*c)->name);
    if (distance < best_distance) best = (*c)->name, best_distance = distance;
  }
  join_words(argc, argv, count_words(best), typed, sizeof typed);
  cli_error("%s: no such command (the nearest is weft %s; weft help lists all)", typed, best);
  return CLI_USAGE;
}
