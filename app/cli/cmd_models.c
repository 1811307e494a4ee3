/* cmd_models.c - weft models: what is in the model folder; weft models rm: out of it. */
#include "cmd.h"
#include "model_folder.h"
#include "output.h"

#include "weft/format.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct models_options {
  cli_common common;
} models_options;

/* What the list shows of a model. */
typedef struct row {
  const cli_named_model *model;
  int64_t n_bytes;   /* of all its files */
  int64_t n_params;  /* 0: not readable */
  char family[32];   /* "llama" */
  char quant[16];    /* as the file calls it, else the type of most of its weights */
  char problem[512]; /* why it cannot be read; empty if it can */
} row;

/* ---- reading ---- */

static int64_t file_bytes(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

static int64_t model_bytes(const cli_named_model *model) {
  int64_t n = file_bytes(model->path);
  for (size_t i = 0; i < model->n_parts; i++) n += file_bytes(model->parts[i]);
  return n;
}

/* Elements by type, so that the few vectors that stay f32 do not name the file. */
static void read_weights(const weft_gguf *gguf, row *r) {
  struct {
    const char *name;
    int64_t n;
  } types[64] = {{NULL, 0}};
  size_t n_types = 0, most = 0;
  for (size_t i = 0; i < weft_gguf_n_tensors(gguf); i++) {
    const weft_gguf_tensor *t = weft_gguf_tensor_at(gguf, i);
    int64_t n = 1;
    size_t type = 0;
    for (int axis = 0; axis < t->rank; axis++) n *= t->shape[axis];
    r->n_params += n;
    while (type < n_types && strcmp(types[type].name, t->type_name) != 0) type++;
    if (type == WEFT_COUNT(types)) continue;
    if (type == n_types) types[n_types++].name = t->type_name;
    types[type].n += n;
    if (types[type].n > types[most].n) most = type;
  }
  snprintf(r->quant, sizeof r->quant, "%s", n_types ? types[most].name : "none");
}

/* The mixes of types that general.file_type counts, as ggml names them; NULL: none of that number. */
static const char *mix_name(int64_t file_type) {
  static const char *const names[] = {
      [0] = "F32",     [1] = "F16",     [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
      [8] = "Q5_0",    [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
      [13] = "Q3_K_L", [14] = "Q4_K_S", [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
      [18] = "Q6_K",   [25] = "IQ4_NL", [30] = "IQ4_XS", [32] = "BF16",   [38] = "MXFP4",
  };
  return file_type >= 0 && file_type < (int64_t)WEFT_COUNT(names) ? names[file_type] : NULL;
}

static weft_status read_header(const char *path, row *r) {
  weft_gguf *gguf = NULL;
  weft_gguf_string family = {"none", 4};
  int64_t file_type = -1;
  weft_status status = weft_gguf_open(&gguf, path);
  if (!status) status = weft_gguf_get_string(gguf, "general.architecture", &family);
  if (!status) status = weft_gguf_get_int(gguf, "general.file_type", 0, INT32_MAX, &file_type);
  if (!status) {
    snprintf(r->family, sizeof r->family, "%.*s", (int)(family.n_bytes < 31 ? family.n_bytes : 31), family.data);
    read_weights(gguf, r);
    if (mix_name(file_type)) snprintf(r->quant, sizeof r->quant, "%s", mix_name(file_type));
  }
  weft_gguf_close(gguf);
  return status;
}

static row read_row(const cli_named_model *model) {
  row r = {.model = model, .n_bytes = model_bytes(model)};
  if (read_header(model->path, &r)) snprintf(r.problem, sizeof r.problem, "%s", weft_last_error());
  return r;
}

/* ---- the list ---- */

static void set_text(json_t *object, const char *key, const char *text) {
  cli_json_set(object, key, *text ? cli_json_text(text, strlen(text)) : json_null());
}

static cli_exit print_json(const row *r) {
  json_t *object = json_object();
  set_text(object, "name", r->model->name);
  set_text(object, "path", r->model->path);
  cli_json_set(object, "n_files", json_integer(1 + (json_int_t)r->model->n_parts));
  cli_json_set(object, "file_bytes", json_integer(r->n_bytes));
  cli_json_set(object, "n_params", r->n_params ? json_integer(r->n_params) : json_null());
  set_text(object, "family", r->family);
  set_text(object, "quant", r->quant);
  set_text(object, "error", r->problem);
  return cli_json_print(object);
}

/* Names may be of any length, so their column is as wide as the longest; what is no text is shown escaped. */
static void print_text(const row *r, int name_width) {
  int n = (int)strlen(r->model->name);
  cli_out_escaped(r->model->name);
  cli_outf("%*s  %9.1f MB  ", n < name_width ? name_width - n : 0, "", (double)r->n_bytes / 1e6);
  if (*r->problem) {
    cli_out_escaped(r->problem);
    cli_out("\n", 1);
    return;
  }
  cli_out_escaped(r->family);
  cli_outf("%*s  %-8s %9.1f M parameters\n", (int)strlen(r->family) < 8 ? 8 - (int)strlen(r->family) : 0, "", r->quant,
           (double)r->n_params / 1e6);
}

static int longest_name(const cli_model_list *list) {
  size_t longest = 0;
  for (size_t i = 0; i < list->n; i++)
    if (strlen(list->models[i].name) > longest) longest = strlen(list->models[i].name);
  return longest < 60 ? (int)longest : 60;
}

static cli_exit print_list(const cli_common *common, const cli_model_list *list) {
  cli_exit code = CLI_OK;
  int width = longest_name(list);
  if (list->n == 0 && !common->quiet)
    cli_note("no model in %s (put .gguf files there, or set WEFT_MODELS)", list->folder);
  for (size_t i = 0; i < list->n && !code && !cli_out_failed(); i++) {
    row r = read_row(&list->models[i]);
    if (common->json)
      code = print_json(&r);
    else
      print_text(&r, width);
  }
  return code;
}

static cli_exit run_models(void *options, const cli_args *args) {
  const models_options *o = options;
  cli_model_list list;
  (void)args;
  cli_exit code = cli_model_list_read(&list);
  if (!code) code = print_list(&o->common, &list);
  cli_model_list_clear(&list);
  return code;
}

/* ---- removing ---- */

static cli_exit remove_file(const char *path, json_t *removed) {
  if (unlink(path) != 0) {
    cli_error("%s: %s (it is still there)", path, strerror(errno));
    return CLI_FAILED;
  }
  cli_json_add(removed, cli_json_text(path, strlen(path)));
  return CLI_OK;
}

/* The first file last: as long as it is there, the model is listed and the removal can be tried again. */
static cli_exit remove_model(const cli_named_model *model, json_t *removed, int64_t *n_bytes) {
  cli_exit code = CLI_OK;
  int64_t n = model_bytes(model);
  for (size_t i = 0; i < model->n_parts && !code; i++) code = remove_file(model->parts[i], removed);
  if (!code) code = remove_file(model->path, removed);
  if (!code) *n_bytes += n;
  return code;
}

/* All names are looked up before anything is removed, and one given twice is removed once. */
static cli_exit remove_all(const cli_model_list *list, const cli_args *args, json_t *removed, int64_t *n_bytes) {
  for (int i = 0; i < args->n; i++)
    if (!cli_model_find(list, args->values[i], CLI_MATCH_WHOLE)) return CLI_FAILED;
  cli_exit code = CLI_OK;
  for (int i = 0; i < args->n && !code; i++) {
    const cli_named_model *model = cli_model_find(list, args->values[i], CLI_MATCH_WHOLE);
    bool is_gone = false;
    for (int j = 0; j < i && !is_gone; j++) is_gone = cli_model_find(list, args->values[j], CLI_MATCH_WHOLE) == model;
    if (!is_gone) code = remove_model(model, removed, n_bytes);
  }
  return code;
}

/* What was removed is told even if the rest could not be. */
static cli_exit print_removed(const cli_common *common, json_t *removed, int64_t n_bytes) {
  if (!common->json) {
    for (size_t i = 0; i < json_array_size(removed); i++) {
      cli_outf("removed ");
      cli_out_escaped(json_string_value(json_array_get(removed, i)));
      cli_out("\n", 1);
    }
    json_decref(removed);
    return CLI_OK;
  }
  json_t *root = json_object();
  cli_json_set(root, "removed", removed);
  cli_json_set(root, "removed_bytes", json_integer(n_bytes));
  return cli_json_print(root);
}

static cli_exit run_models_rm(void *options, const cli_args *args) {
  const models_options *o = options;
  cli_model_list list;
  json_t *removed = json_array();
  int64_t n_bytes = 0;
  cli_exit code = cli_model_list_read(&list);
  if (!code) code = remove_all(&list, args, removed, &n_bytes);
  if (json_array_size(removed) > 0) {
    cli_exit printed = print_removed(&o->common, removed, n_bytes);
    if (!code) code = printed;
  } else
    json_decref(removed);
  cli_model_list_clear(&list);
  return code;
}

static const models_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_models = {
    .name = "models",
    .arguments = "",
    .summary = "list the models in the model folder",
    .details =
        "The folder is WEFT_MODELS, else weft/models in the XDG data folder. A row has the name, the size of the "
        "files, the family, the mix of weight types, and the number of parameters, or why the "
        "file cannot be read. A model in several files is one.\n"
        "With --json each line is an object: name, path, n_files, file_bytes, n_params, family, quant, error; "
        "what is not known is null.",
    .examples = "weft models\nweft models --json\nWEFT_MODELS=/data/models weft models",
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_models,
};

const cli_command cli_cmd_models_rm = {
    .name = "models rm",
    .arguments = "NAME...",
    .summary = "remove models from the model folder",
    .details = "A name must be given whole, with or without .gguf. Of a model in several files all go; a link is "
               "removed, not what it leads to. Nothing is removed if one of the names is not there.\n"
               "With --json the object has removed, the paths, and removed_bytes.",
    .examples = "weft models rm SmolLM2-135M-Instruct.Q4_1\nweft models rm old-model older-model --json",
    .min_args = 1,
    .max_args = 256,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_models_rm,
};
