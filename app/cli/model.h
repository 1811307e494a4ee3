/* model.h - from a MODEL argument to a loaded model or tokenizer. */
#ifndef WEFT_CLI_MODEL_H
#define WEFT_CLI_MODEL_H

#include "cli.h"

#include "weft/llm.h"

/* A model on the device that the common options name. */
typedef struct cli_model {
  char *path;
  weft_device *device;
  weft_model *model;
  double load_ms; /* device and model */
} cli_model;

/* Each reports its own error.  `m` must be zero before and is released with cli_model_close whatever was returned. */
cli_exit cli_model_open(cli_model *m, const char *name, const cli_common *common);
void cli_model_close(cli_model *m);

/* The tokenizer alone, without reading the weights. */
cli_exit cli_tokenizer_open(weft_tokenizer **out, const char *name);

/* The file that a MODEL argument stands for: a path as it is, a name looked up in the model folder.  Freed by the
 * caller with weft_free. */
cli_exit cli_model_path(const char *name, char **path);

/* What --verbose says of a model and its device. */
void cli_model_note(const cli_model *m);

/* The words of --kv. */
#define CLI_KV_CHOICES "f32|f16|q8"
enum { CLI_KV_F32, CLI_KV_F16, CLI_KV_Q8 };
weft_dtype cli_kv_dtype(int choice);

#endif
