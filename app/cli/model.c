/* model.c - from a MODEL argument to a loaded model or tokenizer.
 *
 * A name is matched against the .gguf files of the model folder without their suffix: exactly, else without regard to
 * case, else as the beginning of exactly one of them.  Anything with a slash in it is a path and never a name. */
#include "model.h"
#include "options.h"
#include "output.h"
#include "terminal.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char suffix[] = ".gguf";

/* ---- the model folder ---- */

/* WEFT_MODELS, else the XDG data folder's weft/models; an empty variable counts as unset, as XDG wants it. */
static char *models_folder(void) {
  weft__bytes path = {0};
  const char *models = getenv("WEFT_MODELS"), *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
  weft_status status;
  if (models && *models)
    status = weft__bytes_printf(&path, "%s", models);
  else if (data && *data)
    status = weft__bytes_printf(&path, "%s/weft/models", data);
  else
    status = weft__bytes_printf(&path, "%s/.local/share/weft/models", home ? home : "");
  if (!status) return weft__bytes_take(&path);
  weft__bytes_clear(&path);
  return NULL;
}

/* The names in the folder; n_names of them, each freed by free_names. */
typedef struct name_list {
  char **names;
  size_t n;
} name_list;

/* Leaves the list empty, so that it can be freed again. */
static void free_names(name_list *list) {
  for (size_t i = 0; i < list->n; i++) weft_free(list->names[i]);
  weft_free(list->names);
  *list = (name_list){0};
}

/* n_bytes of `name`, without the suffix.  What was added before a failure is still the list's to free. */
static weft_status add_name(name_list *list, const char *name, size_t n_bytes) {
  char **names = weft__realloc(list->names, list->n + 1, sizeof *names);
  if (!names) return WEFT_ENOMEM;
  list->names = names;
  list->names[list->n] = weft__dup(name, n_bytes);
  if (!list->names[list->n]) return WEFT_ENOMEM;
  list->n++;
  return WEFT_OK;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* A folder that cannot be read has no models: the message that follows names the folder. */
static weft_status read_names(const char *folder, name_list *list) {
  DIR *dir = opendir(folder);
  weft_status status = WEFT_OK;
  if (!dir) return WEFT_OK;
  for (struct dirent *entry; !status && (entry = readdir(dir));) {
    size_t n = strlen(entry->d_name), n_suffix = sizeof suffix - 1;
    if (n > n_suffix && strcmp(entry->d_name + n - n_suffix, suffix) == 0)
      status = add_name(list, entry->d_name, n - n_suffix);
  }
  closedir(dir);
  /* The order of a folder is arbitrary, that of a message should not be. */
  if (list->n > 1) qsort(list->names, list->n, sizeof *list->names, compare_names);
  return status;
}

/* How well `name` stands for `candidate`: 0 exactly, 1 but for case, 2 as its beginning, 3 not at all. */
static int match_rank(const char *name, const char *candidate) {
  size_t n = strlen(name);
  if (n > sizeof suffix - 1 && strcmp(name + n - (sizeof suffix - 1), suffix) == 0) n -= sizeof suffix - 1;
  bool is_whole = strlen(candidate) == n;
  if (is_whole && strncmp(name, candidate, n) == 0) return 0;
  if (n == 0 || strncasecmp(name, candidate, n) != 0) return 3;
  return is_whole ? 1 : 2;
}

/* The one candidate of the best rank; NULL if there is none or more than one, *rank then says which. */
static const char *best_match(const char *name, const name_list *list, int *rank) {
  const char *best = NULL;
  *rank = 3;
  for (size_t i = 0; i < list->n; i++) {
    int r = match_rank(name, list->names[i]);
    if (r < *rank)
      best = list->names[i], *rank = r;
    else if (r == *rank)
      best = NULL;
  }
  return best;
}

/* The names that begin as asked, or else the nearest few, as "a, b". */
static weft_status list_near(const char *name, const name_list *list, int rank, weft__bytes *text) {
  enum { MAX_LISTED = 5 };
  weft_status status = WEFT_OK;
  bool *is_listed = weft__calloc(list->n + 1, sizeof *is_listed);
  if (!is_listed) return WEFT_ENOMEM;
  for (size_t n = 0; n < list->n && n < MAX_LISTED && !status; n++) {
    size_t best = list->n;
    int best_distance = INT_MAX;
    for (size_t i = 0; i < list->n; i++) {
      int distance = match_rank(name, list->names[i]) <= rank && rank < 3 ? -1 : cli_distance(name, list->names[i]);
      if (!is_listed[i] && distance < best_distance) best = i, best_distance = distance;
    }
    if (rank < 3 && best_distance >= 0) break;
    is_listed[best] = true;
    status = weft__bytes_printf(text, "%s%s", n ? ", " : "", list->names[best]);
  }
  weft_free(is_listed);
  return status;
}

/* `rank` is that of the best matches, of which there is more than one unless it is 3.  Always an error. */
static cli_exit no_such_name(const char *name, const char *folder, const name_list *list, int rank) {
  weft__bytes near = {0};
  cli_exit code = CLI_FAILED;
  if (list->n == 0)
    cli_error("%s: no such file, and no model in %s (give a path to a .gguf file, or set WEFT_MODELS)", name, folder);
  else if (list_near(name, list, rank, &near))
    code = cli_fail();
  else if (rank < 3)
    cli_error("%s: more than one model in %s is called so (choose: %s)", name, folder, near.data);
  else
    cli_error("%s: no such file, and no such model in %s (near: %s; or give a path to a .gguf file)", name, folder,
              near.data);
  weft__bytes_clear(&near);
  return code;
}

/* *path is the caller's. */
static cli_exit find_in_folder(const char *name, const char *folder, const name_list *list, char **path) {
  int rank;
  weft__bytes text = {0};
  const char *match = best_match(name, list, &rank);
  if (!match) return no_such_name(name, folder, list, rank);
  if (weft__bytes_printf(&text, "%s/%s%s", folder, match, suffix)) return cli_fail();
  *path = weft__bytes_take(&text);
  return *path ? CLI_OK : cli_fail();
}

/* A file in the working folder comes before a name: it is what the shell completes. */
cli_exit cli_model_path(const char *name, char **path) {
  name_list list = {0};
  if (!*name) {
    cli_error("MODEL: is empty (give a path to a .gguf file or a name in the model folder)");
    return CLI_USAGE;
  }
  if (strchr(name, '/') || access(name, F_OK) == 0) {
    *path = weft__dup(name, strlen(name));
    return *path ? CLI_OK : cli_fail();
  }
  char *folder = models_folder();
  if (!folder) return cli_fail();
  cli_exit code = read_names(folder, &list) ? cli_fail() : find_in_folder(name, folder, &list, path);
  free_names(&list);
  weft_free(folder);
  return code;
}

/* ---- opening ---- */

/* Language models run on the CPU: their operators have no GPU kernels yet, and one by one on the CPU's fallback they would
 * crawl. */
static cli_exit open_device(weft_device **out, const cli_common *common) {
  if (common->device > CLI_DEVICE_CPU) {
    cli_error("--device: language models do not run on a GPU yet (use --device cpu)");
    return CLI_NO_DEVICE;
  }
  const weft_device_options options = {
      .kind = WEFT_DEVICE_CPU,
      .arithmetic = common->exact ? WEFT_EXACT : WEFT_FAST,
      .n_threads = common->n_threads,
      .affinity = common->affinity,
  };
  return weft_device_open(out, &options) ? cli_fail() : CLI_OK;
}

static void show_progress(void *context, double fraction) { cli_bar_set(context, fraction); }

/* With a bar on the terminal where that takes long. */
static weft_status load(cli_model *m, const cli_common *common) {
  cli_bar bar;
  weft_model_options options = {.on_progress = show_progress, .context = &bar};
  if (!cli_bar_start(&bar, "loading", common)) options.on_progress = NULL;
  weft_status status = weft_model_load(&m->model, m->device, m->path, &options);
  cli_bar_end(&bar);
  return status;
}

/* The device comes first: asking for one that is not there is answered before a model is looked for. */
cli_exit cli_model_open(cli_model *m, const char *name, const cli_common *common) {
  double start_ms = weft__now_ms();
  cli_exit code = open_device(&m->device, common);
  if (!code) code = cli_model_path(name, &m->path);
  if (code) return code;
  if (load(m, common)) return cli_fail();
  m->load_ms = weft__now_ms() - start_ms;
  return CLI_OK;
}

/* In the reverse order: a device outlives its models. */
void cli_model_close(cli_model *m) {
  weft_model_free(m->model);
  weft_device_close(m->device);
  weft_free(m->path);
  *m = (cli_model){0};
}

/* The tokenizer copies what it needs, so the file is closed again. */
cli_exit cli_tokenizer_open(weft_tokenizer **out, const char *name) {
  char *path = NULL;
  weft_gguf *gguf = NULL;
  cli_exit code = cli_model_path(name, &path);
  if (code) return code;
  if (weft_gguf_open(&gguf, path) || weft_tokenizer_create(out, gguf)) code = cli_fail();
  weft_gguf_close(gguf);
  weft_free(path);
  return code;
}

/* Written for people; scripts read the same facts from `weft info --json`. */
void cli_model_note(const cli_model *m) {
  const weft_model_info *info = weft_model_get_info(m->model);
  cli_note("model: %s (%s, %.1f M parameters, %s, %.1f MB), trained for %d positions",
           *info->name ? info->name : m->path, info->architecture, (double)info->n_params / 1e6, info->weight_types,
           (double)info->file_bytes / 1e6, info->n_ctx_train);
  cli_note("device: %s; loaded in %.1f ms", weft_device_name(m->device), m->load_ms);
}

weft_dtype cli_kv_dtype(int choice) {
  static const weft_dtype DTYPES[] = {[CLI_KV_F32] = WEFT_F32, [CLI_KV_F16] = WEFT_F16, [CLI_KV_Q8] = WEFT_Q8_0};
  return DTYPES[choice];
}
