/* model_folder.c - see model_folder.h. */
#include "model_folder.h"
#include "options.h"
#include "output.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char suffix[] = ".gguf";

/* WEFT_MODELS, else the XDG data folder's weft/models; an empty variable counts as unset, as XDG wants it. */
char *cli_model_folder(void) {
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

/* ---- reading ---- */

/* The bytes before "-00002-of-00003", which ends `name` (n bytes), and its numbers; 0 if it does not end so. */
static size_t split_stem(const char *name, size_t n, long *part, long *n_split) {
  static const char form[] = "-00000-of-00000";
  size_t n_form = sizeof form - 1;
  if (n <= n_form) return 0;
  const char *end = name + n - n_form;
  for (size_t i = 0; i < n_form; i++)
    if (form[i] == '0' ? end[i] < '0' || end[i] > '9' : end[i] != form[i]) return 0;
  *part = strtol(end + 1, NULL, 10);
  *n_split = strtol(end + n_form - 5, NULL, 10);
  return n - n_form;
}

static cli_named_model *find_exactly(const cli_model_list *list, const char *name, size_t n, long n_split) {
  for (size_t i = 0; i < list->n; i++) {
    cli_named_model *model = &list->models[i];
    if (model->n_split == n_split && strlen(model->name) == n && memcmp(model->name, name, n) == 0) return model;
  }
  return NULL;
}

/* The model of that name in so many files, made if it is not there. */
static cli_named_model *get_model(cli_model_list *list, const char *name, size_t n, long n_split) {
  cli_named_model *model = find_exactly(list, name, n, n_split);
  if (model) return model;
  cli_named_model *models = weft__realloc(list->models, list->n + 1, sizeof *models);
  if (!models) return NULL;
  list->models = models;
  model = &list->models[list->n];
  *model = (cli_named_model){.name = weft__dup(name, n), .n_split = n_split};
  if (!model->name) return NULL;
  list->n++;
  return model;
}

/* Takes the path, or leaves it for a failure to clear. */
static weft_status add_part(cli_named_model *model, weft__bytes *path) {
  char **parts = weft__realloc(model->parts, model->n_parts + 1, sizeof *parts);
  if (!parts) return WEFT_ENOMEM;
  model->parts = parts;
  model->parts[model->n_parts++] = weft__bytes_take(path);
  return WEFT_OK;
}

/* Enters a file of the folder, unless it is hidden; what was entered before a failure is still the list's to free. */
static weft_status add_file(cli_model_list *list, const char *file) {
  size_t n = strlen(file), n_suffix = sizeof suffix - 1;
  long part = 1, n_split = 0;
  if (file[0] == '.' || n <= n_suffix || strcmp(file + n - n_suffix, suffix) != 0) return WEFT_OK;
  size_t n_stem = split_stem(file, n - n_suffix, &part, &n_split);
  cli_named_model *model = get_model(list, file, n_stem ? n_stem : n - n_suffix, n_split);
  if (!model) return WEFT_ENOMEM;
  weft__bytes path = {0};
  if (weft__bytes_printf(&path, "%s/%s", list->folder, file)) return WEFT_ENOMEM;
  weft_status status = WEFT_OK;
  if (part == 1 && !model->path)
    model->path = weft__bytes_take(&path);
  else
    status = add_part(model, &path);
  weft__bytes_clear(&path);
  return status;
}

static int compare_models(const void *a, const void *b) {
  return strcmp(((const cli_named_model *)a)->name, ((const cli_named_model *)b)->name);
}

static void clear_model(cli_named_model *model) {
  for (size_t i = 0; i < model->n_parts; i++) weft_free(model->parts[i]);
  weft_free(model->parts);
  weft_free(model->path);
  weft_free(model->name);
}

/* Parts whose first is missing are no model. */
static void drop_incomplete(cli_model_list *list) {
  size_t n = 0;
  for (size_t i = 0; i < list->n; i++)
    if (list->models[i].path)
      list->models[n++] = list->models[i];
    else
      clear_model(&list->models[i]);
  list->n = n;
}

/* The order of a folder is arbitrary, that of a list should not be. */
static void sort_models(cli_model_list *list) {
  if (list->n > 1) qsort(list->models, list->n, sizeof *list->models, compare_models);
}

/* Names the model after its first file, with the numbers. */
static weft_status take_file_name(cli_named_model *model) {
  const char *file = strrchr(model->path, '/') + 1;
  char *name = weft__dup(file, strlen(file) - (sizeof suffix - 1));
  if (!name) return WEFT_ENOMEM;
  weft_free(model->name);
  model->name = name;
  return WEFT_OK;
}

/* m.gguf and m-00001-of-00002.gguf are two models: only the one that is not split can be called m. */
static weft_status part_same_names(cli_model_list *list) {
  weft_status status = WEFT_OK;
  sort_models(list);
  for (size_t i = 0, end; i < list->n && !status; i = end) {
    for (end = i + 1; end < list->n && strcmp(list->models[i].name, list->models[end].name) == 0;) end++;
    for (size_t j = i; end - i > 1 && j < end && !status; j++)
      if (list->models[j].n_split) status = take_file_name(&list->models[j]);
  }
  sort_models(list);
  return status;
}

static weft_status read_folder(cli_model_list *list) {
  DIR *dir = opendir(list->folder);
  weft_status status = WEFT_OK;
  if (!dir) return WEFT_OK;
  for (struct dirent *entry; !status && (entry = readdir(dir));) status = add_file(list, entry->d_name);
  closedir(dir);
  drop_incomplete(list);
  return status ? status : part_same_names(list);
}

cli_exit cli_model_list_read(cli_model_list *list) {
  *list = (cli_model_list){.folder = cli_model_folder()};
  return list->folder && !read_folder(list) ? CLI_OK : cli_fail();
}

void cli_model_list_clear(cli_model_list *list) {
  for (size_t i = 0; i < list->n; i++) clear_model(&list->models[i]);
  weft_free(list->models);
  weft_free(list->folder);
  *list = (cli_model_list){0};
}

/* ---- finding ---- */

enum { RANK_EXACT, RANK_CASE, RANK_BEGINNING, RANK_NONE };

/* How well `name` stands for `candidate`. */
static int match_rank(const char *name, const char *candidate) {
  size_t n = strlen(name);
  if (n > sizeof suffix - 1 && strcmp(name + n - (sizeof suffix - 1), suffix) == 0) n -= sizeof suffix - 1;
  bool is_whole = strlen(candidate) == n;
  if (is_whole && strncmp(name, candidate, n) == 0) return RANK_EXACT;
  if (n == 0 || strncasecmp(name, candidate, n) != 0) return RANK_NONE;
  return is_whole ? RANK_CASE : RANK_BEGINNING;
}

/* The one candidate of the best rank; NULL if there is none or more than one, *rank then says which. */
static const cli_named_model *best_match(const char *name, const cli_model_list *list, int *rank) {
  const cli_named_model *best = NULL;
  *rank = RANK_NONE;
  for (size_t i = 0; i < list->n; i++) {
    int r = match_rank(name, list->models[i].name);
    if (r < *rank)
      best = &list->models[i], *rank = r;
    else if (r == *rank)
      best = NULL;
  }
  return best;
}

/* The names that begin as asked, or else the nearest few, as "a, b". */
static weft_status list_near(const char *name, const cli_model_list *list, int rank, weft__bytes *text) {
  enum { MAX_LISTED = 5 };
  weft_status status = WEFT_OK;
  bool *is_listed = weft__calloc(list->n + 1, sizeof *is_listed);
  if (!is_listed) return WEFT_ENOMEM;
  for (size_t n = 0; n < list->n && n < MAX_LISTED && !status; n++) {
    size_t best = list->n;
    int best_distance = INT_MAX;
    for (size_t i = 0; i < list->n; i++) {
      const char *candidate = list->models[i].name;
      int distance = match_rank(name, candidate) <= rank && rank < RANK_NONE ? -1 : cli_distance(name, candidate);
      if (!is_listed[i] && distance < best_distance) best = i, best_distance = distance;
    }
    if (rank < RANK_NONE && best_distance >= 0) break;
    is_listed[best] = true;
    status = weft__bytes_printf(text, "%s%s", n ? ", " : "", list->models[best].name);
  }
  weft_free(is_listed);
  return status;
}

/* `rank` is that of the best matches, of which there is more than one unless it is RANK_NONE. */
static void report_no_match(const char *name, const cli_model_list *list, int rank) {
  weft__bytes near = {0};
  if (list->n == 0)
    cli_error("%s: no such file, and no model in %s (give a path to a .gguf file, or set WEFT_MODELS)", name,
              list->folder);
  else if (list_near(name, list, rank, &near))
    cli_fail();
  else if (rank < RANK_NONE)
    cli_error("%s: more than one model in %s is called so (choose: %s)", name, list->folder, near.data);
  else
    cli_error("%s: no such file, and no such model in %s (near: %s; or give a path to a .gguf file)", name,
              list->folder, near.data);
  weft__bytes_clear(&near);
}

const cli_named_model *cli_model_find(const cli_model_list *list, const char *name, cli_matching matching) {
  int rank;
  const cli_named_model *match = best_match(name, list, &rank);
  if (match && matching == CLI_MATCH_WHOLE && rank == RANK_BEGINNING) {
    match = NULL;
    rank = RANK_NONE;
  }
  if (!match) report_no_match(name, list, rank);
  return match;
}
