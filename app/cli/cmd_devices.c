/* cmd_devices.c - weft devices: what there is to compute on, the CPU and every GPU. */
#include "cmd.h"
#include "device.h"
#include "output.h"

#include "weft/device.h"

#include <stdio.h>
#include <string.h>

typedef struct devices_options {
  cli_common common;
} devices_options;

/* ---- JSON: an object a line ---- */

static cli_exit print_cpu_json(const char *name, int n_threads) {
  json_t *row = json_object();
  cli_json_set(row, "device", json_string("cpu"));
  cli_json_set(row, "name", json_string(name));
  cli_json_set(row, "kind", json_string("cpu"));
  cli_json_set(row, "variant", json_string(weft_cpu_variant_selected()));
  cli_json_set(row, "n_threads", json_integer(n_threads));
  return cli_json_print(row);
}

/* The names of a list with blanks between. */
static json_t *names_to_json(const char *names) {
  json_t *list = json_array();
  while (*names) {
    size_t n = strcspn(names, " ");
    if (n > 0) cli_json_add(list, cli_json_text(names, n));
    names += n + (names[n] == ' ');
  }
  return list;
}

static void set_text(json_t *row, const char *key, const char *text) {
  cli_json_set(row, key, cli_json_text(text, strlen(text)));
}

static void set_integer(json_t *row, const char *key, uint64_t value) {
  cli_json_set(row, key, json_integer((json_int_t)value));
}

static cli_exit print_adapter_json(const weft_adapter *a, int index) {
  json_t *row = json_object();
  cli_json_set(row, "device", json_integer(index));
  set_text(row, "name", a->name);
  set_text(row, "kind", a->kind);
  set_text(row, "vendor", a->vendor);
  set_text(row, "backend", a->backend);
  set_text(row, "driver", a->driver);
  cli_json_set(row, "memory_bytes", a->memory_bytes ? json_integer((json_int_t)a->memory_bytes) : json_null());
  set_integer(row, "max_buffer_bytes", a->max_buffer_bytes);
  set_integer(row, "max_binding_bytes", a->max_binding_bytes);
  set_integer(row, "max_bindings", a->max_bindings);
  set_integer(row, "max_invocations", a->max_invocations);
  set_integer(row, "max_workgroup_bytes", a->max_workgroup_bytes);
  set_integer(row, "max_groups_per_axis", a->max_groups_per_axis);
  cli_json_set(row, "features", names_to_json(a->features));
  set_text(row, "library", a->library);
  set_text(row, "library_version", a->library_version);
  set_text(row, "generation", a->generation);
  return cli_json_print(row);
}

/* ---- text: a paragraph a device ---- */

/* "2.0 GiB", "32 KiB"; "unknown" for 0. */
static const char *size_text(uint64_t n_bytes, char text[16]) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)n_bytes;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < sizeof units / sizeof *units) value /= 1024, unit++;
  if (n_bytes == 0)
    snprintf(text, 16, "unknown");
  else
    snprintf(text, 16, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
}

static void print_adapter_text(const weft_adapter *a, int index) {
  char memory[16], buffer[16], binding[16], workgroup[16];
  cli_outf("%3d  %s (%s)\n", index, a->name, a->kind);
  cli_outf("     backend   %s%s%s\n", a->backend, *a->driver ? ", driver " : "", a->driver);
  cli_outf("     memory    %s\n", size_text(a->memory_bytes, memory));
  cli_outf("     limits    buffer %s, binding %s, %u bindings, %u invocations, workgroup memory %s\n",
           size_text(a->max_buffer_bytes, buffer), size_text(a->max_binding_bytes, binding), a->max_bindings,
           a->max_invocations, size_text(a->max_workgroup_bytes, workgroup));
  cli_outf("     features  %s\n", *a->features ? a->features : "none");
  cli_outf("     library   wgpu-native %s (%s), %s\n", a->library_version, a->generation, a->library);
}

/* ---- the command ---- */

static cli_exit print_cpu(const cli_common *common) {
  weft_device *device;
  if (weft_device_open(&device, &(weft_device_options){.kind = WEFT_DEVICE_CPU})) return cli_fail();
  const char *name = weft_device_name(device);
  cli_exit code = CLI_OK;
  int n_threads = cli_device_n_threads(device);
  if (common->json)
    code = print_cpu_json(name, n_threads);
  else
    cli_outf("cpu  %s, %d thread%s\n", weft_cpu_variant_selected(), n_threads, n_threads == 1 ? "" : "s");
  weft_device_close(device);
  return code;
}

/* That there is no GPU is an answer, and why is worth a line. */
static cli_exit print_adapters(const cli_common *common) {
  weft_adapter *rows;
  int n;
  if (weft_adapters_list(&rows, &n)) {
    if (weft_last_status() == WEFT_ENOMEM) return cli_fail();
    if (!common->quiet) cli_note("%s", weft_last_error());
    return CLI_OK;
  }
  cli_exit code = CLI_OK;
  for (int i = 0; i < n && code == CLI_OK; i++) {
    if (common->json)
      code = print_adapter_json(&rows[i], i);
    else
      print_adapter_text(&rows[i], i);
  }
  weft_free(rows);
  return code;
}

static cli_exit run_devices(void *options, const cli_args *args) {
  const devices_options *o = options;
  (void)args;
  cli_exit code = print_cpu(&o->common);
  return code ? code : print_adapters(&o->common);
}

static const devices_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_devices = {
    .name = "devices",
    .arguments = "",
    .summary = "list what there is to compute on: the CPU and every GPU",
    .details =
        "The number of a GPU is what --device and WEFT_ADAPTER take. A GPU of kind cpu is a software driver, slower "
        "than the CPU itself: it is used only if it is asked for.",
    .examples = "weft devices\nweft devices --json",
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_devices,
};
