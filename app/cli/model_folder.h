/* model_folder.h - the folder where models are kept under names: WEFT_MODELS, else weft/models in the XDG data folder.
 *
 * A model's name is that of its .gguf file without the suffix; a model split into several files (NAME-00001-of-00003.gguf
 * ...) is one, named without the numbers unless another model has that name. */
#ifndef WEFT_CLI_MODEL_FOLDER_H
#define WEFT_CLI_MODEL_FOLDER_H

#include "cli.h"

typedef struct cli_named_model {
  char *name;
  char *path;     /* of its first or only file */
  char **parts;   /* paths of the others; NULL if n_parts is 0 */
  size_t n_parts; /* without the first */
  long n_split;   /* how many files their names speak of; 0: it is not split */
} cli_named_model;

typedef struct cli_model_list {
  char *folder;
  cli_named_model *models; /* n, by name */
  size_t n;
} cli_model_list;

/* The path of the folder, which may not be there; freed with weft_free.  NULL: out of memory, with the error set. */
char *cli_model_folder(void);

/* Reads the folder's models; a folder that cannot be read has none.  An error was reported.  The list is cleared whatever
 * was returned. */
cli_exit cli_model_list_read(cli_model_list *list);
void cli_model_list_clear(cli_model_list *list);

/* How near a name must come. */
typedef enum cli_matching {
  CLI_MATCH_BEGINNING, /* exactly, else but for case, else as the beginning of one name */
  CLI_MATCH_WHOLE,     /* without the last */
} cli_matching;

/* The one model that `name` stands for; NULL: none or several, and the error that was reported lists those near. */
const cli_named_model *cli_model_find(const cli_model_list *list, const char *name, cli_matching matching);

#endif
