/* jsonl.h - weft run --jsonl: a prompt a line in, a result a line out. */
#ifndef WEFT_CLI_JSONL_H
#define WEFT_CLI_JSONL_H

#include "cli.h"
#include "generation.h"

/* What a line may say of its own and otherwise has from the command line. */
typedef struct cli_jsonl_defaults {
  cli_generation generation;
  int64_t seed;
  const char *system; /* NULL: none */
  bool raw;
} cli_jsonl_defaults;

/* Answers the lines of the file ("-": standard input) in their order.  A line that cannot be answered gets an object with
 * the error, and the status is CLI_FAILED at the end. */
cli_exit cli_jsonl_run(const cli_common *common, const char *path, const char *model_name,
                       const cli_jsonl_defaults *defaults);

#endif
