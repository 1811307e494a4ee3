/* cmd_doctor.c - weft doctor: looks at what weft depends on in this place, and says what to do about what is wrong.
 *
 * A warning is what works, but slowly or not as it seems meant; a failure is what makes some command fail.  Nothing is
 * changed. */
#include "cmd.h"
#include "device.h"
#include "model_folder.h"
#include "options.h"
#include "output.h"
#include "pages.h"

#include "base/pool.h"
#include "weft/device.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct doctor_options {
  cli_common common;
} doctor_options;

typedef enum verdict { FINE, WARNING, FAILURE, N_VERDICTS } verdict;

static const char *const verdict_names[N_VERDICTS] = {"ok", "warning", "failure"};

typedef struct report {
  const cli_common *common;
  json_t *checks; /* with --json; else each is printed when it is done */
  int n[N_VERDICTS];
} report;

/* ---- telling ---- */

/* `advice` is NULL where there is nothing to do. */
static void tell(report *r, const char *name, verdict v, const char *advice, const char *format, ...) WEFT_PRINTF(5, 6);
static void tell(report *r, const char *name, verdict v, const char *advice, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(text, sizeof text, format, arguments) < 0) text[0] = 0;
  va_end(arguments);
  r->n[v]++;
  if (r->common->json) {
    json_t *check = json_object();
    cli_json_set(check, "name", json_string(name));
    cli_json_set(check, "status", json_string(verdict_names[v]));
    cli_json_set(check, "message", cli_json_text(text, strlen(text)));
    cli_json_set(check, "advice", advice ? cli_json_text(advice, strlen(advice)) : json_null());
    cli_json_add(r->checks, check);
    return;
  }
  cli_outf("%-8s %-16s ", verdict_names[v], name);
  cli_out_escaped(text);
  if (advice) cli_outf("\n%25s -> ", ""), cli_out_escaped(advice);
  cli_out("\n", 1);
}

/* ---- the processor ---- */

/* The best variant that the processor runs is the first usable one. */
static void check_cpu(report *r) {
  const char *selected = weft_cpu_variant_selected(), *best = NULL;
  for (int i = 0; weft_cpu_variant_name(i) && !best; i++)
    if (weft_cpu_variant_usable(i)) best = weft_cpu_variant_name(i);
  if (!selected)
    tell(r, "cpu", FAILURE, "unset WEFT_CPU, or give one that weft version lists", "%s", weft_last_error());
  else if (best && strcmp(best, selected) != 0)
    tell(r, "cpu", WARNING, "unset WEFT_CPU", "WEFT_CPU chose %s, where %s is faster", selected, best);
  else
    tell(r, "cpu", FINE, NULL, "variant %s", selected);
}

/* The frequency that a laptop saves its battery by. */
static void check_governor(report *r) {
  char line[64] = "";
  FILE *file = fopen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "r");
  if (!file) return;
  if (fgets(line, sizeof line, file) && strcmp(line, "powersave\n") == 0)
    tell(r, "frequency", WARNING, "cpupower frequency-set -g performance, as root, where speed matters",
         "the processor's governor is powersave");
  fclose(file);
}

static void check_threads(report *r) {
  weft_device *device = NULL;
  if (weft_device_open(&device, &(weft_device_options){.kind = WEFT_DEVICE_CPU})) {
    tell(r, "threads", FAILURE, "correct or unset WEFT_CPU and WEFT_THREADS", "%s", weft_last_error());
    return;
  }
  int n = cli_device_n_threads(device), n_processors = weft__processors();
  if (n > n_processors)
    tell(r, "threads", WARNING, "lower WEFT_THREADS, or unset it",
         "%d threads share %d processors, and wait for each other", n, n_processors);
  else
    tell(r, "threads", FINE, NULL, "%d, of %d processors that this process may use", n, n_processors);
  weft_device_close(device);
}

/* ---- memory ---- */

/* The value of a line "Name:  N kB" of /proc/meminfo in bytes; 0 if there is none. */
static double meminfo_bytes(const char *name) {
  char line[128];
  double n_bytes = 0;
  FILE *file = fopen("/proc/meminfo", "r");
  if (!file) return 0;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0) n_bytes = 1024 * strtod(line + strlen(name), NULL);
  fclose(file);
  return n_bytes;
}

static void check_memory(report *r) {
  enum { LEAST_GB = 1 };
  double available_gb = 1e-9 * meminfo_bytes("MemAvailable:"), total_gb = 1e-9 * meminfo_bytes("MemTotal:");
  struct rlimit limit;
  if (total_gb > 0)
    tell(r, "memory", available_gb < LEAST_GB ? WARNING : FINE,
         available_gb < LEAST_GB ? "close other programs, or take a smaller model" : NULL,
         "%.1f GB available of %.1f GB", available_gb, total_gb);
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    tell(r, "memory limit", WARNING, "ulimit -v unlimited",
         "addresses end at %.1f GB, and a model file must fit below besides what is computed",
         1e-9 * (double)limit.rlim_cur);
}

/* ---- GPUs ---- */

static void check_adapters(report *r) {
  weft_adapter *rows;
  int n, n_hardware = 0;
  if (weft_adapters_list(&rows, &n)) {
    tell(r, "gpu", WARNING, "install the GPU's Vulkan driver (docs/gpu-setup.md), or go on with the CPU", "%s",
         weft_last_error());
    return;
  }
  for (int i = 0; i < n; i++) {
    bool is_software = strcmp(rows[i].kind, "cpu") == 0;
    if (!is_software) n_hardware++;
    tell(r, "gpu", FINE, NULL, "%d: %s (%s), %s, driver %s", i, rows[i].name,
         is_software ? "cpu: a software driver, used only if asked for" : rows[i].kind, rows[i].backend,
         *rows[i].driver ? rows[i].driver : "unknown");
  }
  if (n_hardware == 0)
    tell(r, "gpu", WARNING, "install the GPU's Vulkan driver (docs/gpu-setup.md), or go on with the CPU",
         "there is no hardware GPU, so --device auto is the CPU");
  weft_free(rows);
}

static void check_gpu(report *r) {
  char library[1200];
  if (!weft_gpu_generation_name(0)) {
    tell(r, "gpu", FINE, NULL, "this build has no GPU code");
    return;
  }
  if (weft_gpu_library_find(library, sizeof library)) {
    tell(r, "webgpu library", WARNING, "make setup fetches one; WEFT_WGPU_LIB names another", "%s", weft_last_error());
    return;
  }
  tell(r, "webgpu library", FINE, NULL, "%s", library);
  check_adapters(r);
}

/* ---- folders ---- */

/* Whether the folder, or the one that it would be made in, can be written to. */
static bool can_be_made(const char *path) {
  char parent[PATH_MAX];
  size_t n = strlen(path);
  if (n >= sizeof parent) return false;
  memcpy(parent, path, n + 1);
  while (access(parent, F_OK) != 0) {
    while (n > 0 && parent[n - 1] == '/') n--;
    while (n > 0 && parent[n - 1] != '/') n--;
    if (n == 0) return access(".", W_OK) == 0;
    parent[n] = 0;
  }
  return access(parent, W_OK) == 0;
}

/* *reason gets why it cannot be used as a folder that is written to, NULL if it can.  Returns whether it is there. */
static bool examine_folder(const char *path, const char **reason) {
  struct stat info;
  *reason = NULL;
  if (stat(path, &info) != 0) {
    if (errno != ENOENT || !can_be_made(path)) *reason = strerror(errno == ENOENT ? EACCES : errno);
    return false;
  }
  if (!S_ISDIR(info.st_mode))
    *reason = strerror(ENOTDIR);
  else if (access(path, R_OK | W_OK | X_OK) != 0)
    *reason = strerror(errno);
  return true;
}

static void check_model_folder(report *r) {
  cli_model_list list;
  const char *reason;
  if (cli_model_list_read(&list)) {
    tell(r, "model folder", FAILURE, "close other programs", "its models cannot be listed: %s", weft_last_error());
    cli_model_list_clear(&list);
    return;
  }
  bool is_there = examine_folder(list.folder, &reason);
  if (reason)
    tell(r, "model folder", FAILURE, "correct its permissions, or set WEFT_MODELS to another folder", "%s: %s",
         list.folder, reason);
  else if (!is_there)
    tell(r, "model folder", WARNING, "mkdir -p that folder and put .gguf files there, or set WEFT_MODELS", "%s: %s",
         list.folder, strerror(ENOENT));
  else
    tell(r, "model folder", FINE, NULL, "%s: %zu model%s", list.folder, list.n, list.n == 1 ? "" : "s");
  cli_model_list_clear(&list);
}

/* Drivers keep compiled shaders there. */
static void check_cache_folder(report *r) {
  char path[PATH_MAX];
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *reason;
  if (cache && *cache)
    snprintf(path, sizeof path, "%s", cache);
  else
    snprintf(path, sizeof path, "%s/.cache", home ? home : "");
  examine_folder(path, &reason);
  tell(r, "cache folder", reason ? WARNING : FINE, reason ? "correct its permissions, or set XDG_CACHE_HOME" : NULL,
       reason ? "%s: %s, so GPU drivers compile their shaders anew each time" : "%s", path, reason);
}

/* ---- the environment ---- */

/* Why the value is none of its kind, NULL if it is. */
static const char *variable_problem(const cli_variable *v, const char *value) {
  int64_t number;
  struct stat info;
  switch (v->kind) {
  case CLI_VARIABLE_SWITCH:
    return strcmp(value, "0") == 0 || strcmp(value, "1") == 0 ? NULL : "is neither 0 nor 1";
  case CLI_VARIABLE_THREADS:
    return cli_parse_int(value, 1, WEFT_MAX_THREADS, &number) ? NULL : "is no number of threads";
  case CLI_VARIABLE_NUMBER:
    return cli_parse_int(value, 0, INT_MAX, &number) ? NULL : "is no number of a GPU";
  case CLI_VARIABLE_VARIANT:
    return weft_cpu_variant_selected() ? NULL : "is no variant that this processor runs";
  case CLI_VARIABLE_FILE:
    return stat(value, &info) != 0 ? strerror(errno) : S_ISREG(info.st_mode) ? NULL : "is not a file";
  case CLI_VARIABLE_FOLDER:
    return stat(value, &info) == 0 && !S_ISDIR(info.st_mode) ? "is not a folder" : NULL;
  case CLI_VARIABLE_TEXT:
    break;
  }
  return NULL;
}

/* Switches that are meant for tests and measurements cost time. */
static void check_variable(report *r, const cli_variable *v) {
  const char *value = getenv(v->name);
  if (!value || !*value) return;
  const char *problem = variable_problem(v, value);
  bool is_slow = v->kind == CLI_VARIABLE_SWITCH && strcmp(value, "1") == 0 && strncmp(v->name, "WEFT_GPU_", 9) == 0;
  if (problem)
    tell(r, "environment", FAILURE, "correct it, or unset it", "%s=%s: %s", v->name, value, problem);
  else if (is_slow)
    tell(r, "environment", WARNING, "unset it when you are done", "%s=%s makes GPUs slower", v->name, value);
  else
    tell(r, "environment", FINE, NULL, "%s=%s", v->name, value);
}

/* A variable of ours that nobody reads is a typing error, but for those of the tests. */
static void check_unknown_variable(report *r, const char *setting) {
  char name[64], advice[128];
  const char *nearest = cli_variables[0].name;
  int best_distance = INT_MAX;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(setting, "="), setting);
  for (const cli_variable *v = cli_variables; v->name; v++) {
    if (strcmp(v->name, name) == 0) return;
    int distance = cli_distance(name, v->name);
    if (distance < best_distance) nearest = v->name, best_distance = distance;
  }
  snprintf(advice, sizeof advice, "the nearest is %s; weft help environment lists all", nearest);
  tell(r, "environment", WARNING, advice, "%s: weft reads no such variable", name);
}

static void check_environment(report *r) {
  for (const cli_variable *v = cli_variables; v->name; v++) check_variable(r, v);
  for (char **setting = environ; *setting; setting++)
    if (strncmp(*setting, "WEFT_", 5) == 0 && strncmp(*setting, "WEFT_TEST_", 10) != 0)
      check_unknown_variable(r, *setting);
}

/* ---- the command ---- */

static cli_exit print_sum(report *r) {
  if (!r->common->json) {
    cli_outf("%d ok, %d warning%s, %d failure%s\n", r->n[FINE], r->n[WARNING], r->n[WARNING] == 1 ? "" : "s",
             r->n[FAILURE], r->n[FAILURE] == 1 ? "" : "s");
    return CLI_OK;
  }
  json_t *root = json_object();
  cli_json_set(root, "checks", r->checks);
  cli_json_set(root, "n_ok", json_integer(r->n[FINE]));
  cli_json_set(root, "n_warnings", json_integer(r->n[WARNING]));
  cli_json_set(root, "n_failures", json_integer(r->n[FAILURE]));
  return cli_json_print(root);
}

static cli_exit run_doctor(void *options, const cli_args *args) {
  static void (*const checks[])(report *) = {
      check_cpu, check_governor,     check_threads,      check_memory,
      check_gpu, check_model_folder, check_cache_folder, check_environment,
  };
  const doctor_options *o = options;
  report r = {.common = &o->common, .checks = o->common.json ? json_array() : NULL};
  (void)args;
  for (size_t i = 0; i < WEFT_COUNT(checks); i++) checks[i](&r);
  cli_exit code = print_sum(&r);
  return code ? code : r.n[FAILURE] ? CLI_FAILED : CLI_OK;
}

static const doctor_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "check what weft depends on here, and say what to do",
    .details =
        "Looks at the CPU variant, threads, memory, the WebGPU library, GPUs, the model folder, the cache folder "
        "and the environment variables. A warning is what works, but slowly or not as it seems meant. Exit "
        "status 1 if there is a failure.\n"
        "With --json the object has checks, a list of name, status (ok, warning or failure), message and "
        "advice, and n_ok, n_warnings and n_failures.",
    .examples = "weft doctor\nweft doctor --json",
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_doctor,
};
