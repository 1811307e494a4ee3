/* cmd_bench_load.c - weft bench load: how long it takes until a model can be used, from storage and from memory.
 *
 * What the system keeps of a file in memory can be dropped without special rights unless another process holds it too;
 * how much was then read from storage is measured, so that a cold start that was none can be seen. */
#include "bench.h"
#include "cmd.h"
#include "model.h"
#include "output.h"
#include "system.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct bench_options {
  cli_common common;
  int n_reps;
} bench_options;

enum { COLD, WARM, N_CASES };

static const char *const case_names[N_CASES] = {"cold", "warm"};

/* The loads of a case. */
typedef struct row {
  double ms[CLI_BENCH_MAX_REPS];
  cli_bench_time time;
  double storage_bytes; /* read from storage by one load, on average; NAN: the system does not say */
} row;

typedef struct bench {
  const bench_options *o;
  char *path, *device_name;
  uint64_t file_bytes;
  row rows[N_CASES];
} bench;

/* Bytes that this process has had fetched from storage; NAN if the system does not say. */
static double storage_bytes(void) {
  char line[128];
  double n_bytes = NAN;
  FILE *file = fopen("/proc/self/io", "r");
  if (!file) return NAN;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, "read_bytes:", 11) == 0) n_bytes = strtod(line + 11, NULL);
  fclose(file);
  return n_bytes;
}

/* Pages that are not written yet cannot be dropped, hence the wait for those. */
static void drop_cached(const char *path) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for a writer */
  if (descriptor < 0) return;
  fsync(descriptor);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  close(descriptor);
}

/* Device and model, as `weft run` opens them. */
static cli_exit load_once(bench *b, row *r, int i) {
  cli_model model = {0};
  double before = storage_bytes();
  cli_exit code = cli_model_open(&model, b->path, &b->o->common);
  if (!code) {
    r->ms[i] = model.load_ms;
    r->storage_bytes += (storage_bytes() - before) / b->o->n_reps;
    b->file_bytes = weft_model_get_info(model.model)->file_bytes;
    if (!b->device_name)
      b->device_name = weft__dup(weft_device_name(model.device), strlen(weft_device_name(model.device)));
    if (!b->device_name) code = cli_fail();
  }
  cli_model_close(&model);
  return code;
}

/* A cold load leaves the file in memory for the warm one. */
static cli_exit measure(bench *b) {
  cli_exit code = CLI_OK;
  for (int i = 0; i < b->o->n_reps && !code; i++) {
    drop_cached(b->path);
    code = load_once(b, &b->rows[COLD], i);
    if (!code) code = load_once(b, &b->rows[WARM], i);
  }
  for (int c = 0; c < N_CASES && !code; c++) {
    b->rows[c].time.median_ms = cli_bench_median(b->rows[c].ms, b->o->n_reps);
    b->rows[c].time.min_ms = b->rows[c].ms[0];
  }
  return code;
}

static double gb_per_s(const bench *b, const row *r) { return 1e-6 * (double)b->file_bytes / r->time.median_ms; }

static cli_exit print_json(const bench *b) {
  json_t *root = json_object(), *cases = json_array();
  for (int c = 0; c < N_CASES; c++) {
    const row *r = &b->rows[c];
    json_t *object = cli_bench_row_json(case_names[c], r->time);
    cli_json_set(object, "gb_per_s", cli_json_number(gb_per_s(b, r)));
    cli_json_set(object, "storage_bytes", cli_json_number(r->storage_bytes));
    cli_json_add(cases, object);
  }
  cli_json_set(root, "model", cli_json_text(b->path, strlen(b->path)));
  cli_json_set(root, "device", cli_json_text(b->device_name, strlen(b->device_name)));
  cli_json_set(root, "n_reps", json_integer(b->o->n_reps));
  cli_json_set(root, "file_bytes", json_integer((json_int_t)b->file_bytes));
  cli_json_set(root, "peak_bytes", json_integer(cli_peak_bytes()));
  cli_json_set(root, "cases", cases);
  return cli_json_print(root);
}

static cli_exit print_text(const bench *b) {
  cli_out_escaped(b->path);
  cli_outf(", %.1f MB\n%s, median of %d, memory %.1f MB at most\n\n%-6s %12s %12s %10s %16s\n",
           (double)b->file_bytes / 1e6, b->device_name, b->o->n_reps, (double)cli_peak_bytes() / 1e6, "cache",
           "median ms", "min ms", "GB/s", "MB from storage");
  for (int c = 0; c < N_CASES; c++) {
    const row *r = &b->rows[c];
    cli_outf("%-6s %12.2f %12.2f %10.2f ", case_names[c], r->time.median_ms, r->time.min_ms, gb_per_s(b, r));
    if (isfinite(r->storage_bytes))
      cli_outf("%16.1f\n", r->storage_bytes / 1e6);
    else
      cli_outf("%16s\n", "unknown");
  }
  return CLI_OK;
}

static cli_exit run_bench_load(void *options, const cli_args *args) {
  bench *b = weft__calloc(1, sizeof *b);
  if (!b) return cli_fail();
  b->o = options;
  cli_exit code = cli_model_path(args->values[0], &b->path);
  if (!code) code = measure(b);
  if (!code) code = b->o->common.json ? print_json(b) : print_text(b);
  weft_free(b->path);
  weft_free(b->device_name);
  weft_free(b);
  return code;
}

static const cli_option bench_load_table[] = {
    CLI_INT(bench_options, n_reps, "reps", 'r', "R", 1, CLI_BENCH_MAX_REPS, "loads of each case (default 5)"),
    CLI_END,
};

static const bench_options defaults = {.common = CLI_COMMON_DEFAULTS, .n_reps = 5};

const cli_command cli_cmd_bench_load = {
    .name = "bench load",
    .arguments = "MODEL",
    .summary = "measure how long a model takes to load",
    .details =
        "The time from opening the device until the model can be used, in turn cold and warm. Before a cold load the "
        "system is asked to forget what it keeps of the file (of a model in several files, of the first); it need not, "
        "and does not while another program has the file mapped: MB from storage shows what was really read. Weights "
        "that are used as they are stored are read when they are first needed, and --no-mmap reads all at once.\n"
        "With --json the object has model, device, n_reps, file_bytes, peak_bytes and cases, a list of name (cold or "
        "warm), median_ms, min_ms, gb_per_s (of the file) and storage_bytes (by one load; null if not known).",
    .examples = "weft bench load model.gguf\n"
                "weft bench load model.gguf --no-mmap -r 3 --json",
    .min_args = 1,
    .max_args = 1,
    .uses = CLI_USES_DEVICE | CLI_USES_MODEL,
    .options = bench_load_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_bench_load,
};
