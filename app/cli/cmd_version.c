/* cmd_version.c - weft version: what this program is and what it can use on this processor. */
#include "cmd.h"
#include "output.h"

#include "weft/device.h"

typedef struct version_options {
  cli_common common;
} version_options;

/* Clang defines the other's macros too, so it is asked first. */
#if defined(__clang__)
static const char compiler[] = "clang " __clang_version__;
#elif defined(__GNUC__)
static const char compiler[] = "gcc " __VERSION__;
#else
static const char compiler[] = "unknown";
#endif

/* What was set at build time and changes behaviour or speed. */
static const char *const build_options[] = {
#ifdef NDEBUG
    "assertions off",
#else
    "assertions on",
#endif
#ifdef __SANITIZE_ADDRESS__
    "address sanitizer",
#endif
#ifdef __OPTIMIZE__
    "optimised",
#else
    "not optimised",
#endif
    NULL};

#if defined(__x86_64__)
static const char target[] = "x86-64";
#elif defined(__aarch64__)
static const char target[] = "arm64";
#else
static const char target[] = "other";
#endif

/* The library that a GPU would be opened with, or why there is none. */
static const char *gpu_library(char *text, size_t n_bytes) {
  return weft_gpu_library_find(text, n_bytes) ? weft_last_error() : text;
}

/* `selected` is NULL if WEFT_CPU names no variant of this processor. */
static cli_exit print_json(const char *selected) {
  json_t *root = json_object(), *options = json_array(), *variants = json_array();
  for (const char *const *o = build_options; *o; o++) cli_json_add(options, json_string(*o));
  for (int i = 0; weft_cpu_variant_name(i); i++) {
    json_t *variant = json_object();
    cli_json_set(variant, "name", json_string(weft_cpu_variant_name(i)));
    cli_json_set(variant, "usable", json_boolean(weft_cpu_variant_usable(i)));
    cli_json_add(variants, variant);
  }
  cli_json_set(root, "version", json_string(weft_version()));
  cli_json_set(root, "target", json_string(target));
  cli_json_set(root, "compiler", json_string(compiler));
  cli_json_set(root, "build_options", options);
  cli_json_set(root, "cpu_variants", variants);
  cli_json_set(root, "cpu_variant", selected ? json_string(selected) : json_null());
  json_t *generations = json_array();
  for (int i = 0; weft_gpu_generation_name(i); i++) cli_json_add(generations, json_string(weft_gpu_generation_name(i)));
  cli_json_set(root, "gpu_generations", generations);
  char text[1200];
  cli_json_set(root, "gpu_library", weft_gpu_library_find(text, sizeof text) ? json_null() : json_string(text));
  return cli_json_print(root);
}

/* Variants in the order of preference. */
static void print_text(const char *selected) {
  cli_outf("weft %s\ntarget    %s\ncompiler  %s\nbuild    ", weft_version(), target, compiler);
  for (const char *const *o = build_options; *o; o++) cli_outf("%s %s", o == build_options ? "" : ",", *o);
  cli_outf("\ncpu      ");
  for (int i = 0; weft_cpu_variant_name(i); i++)
    cli_outf(" %s%s", weft_cpu_variant_name(i), weft_cpu_variant_usable(i) ? "" : " (not on this processor)");
  cli_outf("; in use: %s\ngpu      ", selected ? selected : "none");
  for (int i = 0; weft_gpu_generation_name(i); i++) cli_outf(" %s", weft_gpu_generation_name(i));
  char text[1200];
  if (weft_gpu_generation_name(0))
    cli_outf(" compiled in; library: %s\n", gpu_library(text, sizeof text));
  else
    cli_outf(" none in this build\n");
}

static cli_exit run_version(void *options, const cli_args *args) {
  const version_options *o = options;
  cli_exit code = CLI_OK;
  (void)args;
  const char *selected = weft_cpu_variant_selected();
  if (o->common.json)
    code = print_json(selected);
  else
    print_text(selected);
  /* A wrong WEFT_CPU is reported after the list of what it could be. */
  if (code || selected) return code;
  weft_cpu_variant_selected(); /* sets its error again, after that of a missing GPU */
  return cli_fail();
}

static const version_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_version = {
    .name = "version",
    .arguments = "",
    .summary = "print version, build options and CPU variants",
    .examples = "weft version\nweft version --json",
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_version,
};
