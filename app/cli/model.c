/* model.c - from a MODEL argument to a loaded model or tokenizer.
 *
 * A name is looked up in the model folder.  Anything with a slash in it is a path and never a name. */
#include "model.h"
#include "model_folder.h"
#include "output.h"
#include "terminal.h"

#include <string.h>
#include <unistd.h>

/* A file in the working folder comes before a name: it is what the shell completes. */
cli_exit cli_model_path(const char *name, char **path) {
  cli_model_list list = {0};
  if (!*name) {
    cli_error("MODEL: is empty (give a path to a .gguf file or a name in the model folder)");
    return CLI_USAGE;
  }
  if (strchr(name, '/') || access(name, F_OK) == 0) {
    *path = weft__dup(name, strlen(name));
    return *path ? CLI_OK : cli_fail();
  }
  cli_exit code = cli_model_list_read(&list);
  const cli_named_model *found = code ? NULL : cli_model_find(&list, name, CLI_MATCH_BEGINNING);
  if (found) *path = weft__dup(found->path, strlen(found->path));
  if (found && !*path) code = cli_fail();
  cli_model_list_clear(&list);
  return found || code ? code : CLI_FAILED;
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
  weft_model_options options = {.on_progress = show_progress, .context = &bar, .no_mmap = common->no_mmap};
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
