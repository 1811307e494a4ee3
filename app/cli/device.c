/* device.c - from the options --device, --threads, --affinity and --exact to an open device. */
#include "device.h"
#include "output.h"

#include <stdlib.h> /* strtol */
#include <string.h>

static weft_device_options device_options(const cli_common *common) {
  weft_device_options options = {
      .kind = WEFT_DEVICE_GPU,
      .arithmetic = common->exact ? WEFT_EXACT : WEFT_FAST,
      .n_threads = common->n_threads,
      .affinity = common->affinity,
  };
  if (common->device == CLI_DEVICE_AUTO) options.kind = WEFT_DEVICE_AUTO;
  if (common->device == CLI_DEVICE_CPU) options.kind = WEFT_DEVICE_CPU;
  if (common->device == CLI_DEVICE_LOW) options.power = WEFT_POWER_LOW;
  if (common->device == CLI_DEVICE_HIGH) options.power = WEFT_POWER_HIGH;
  if (common->device >= CLI_DEVICE_NUMBER) options.adapter = 1 + common->device - CLI_DEVICE_NUMBER;
  return options;
}

/* A build without GPU code lacks the device just as a machine without a GPU does. */
static cli_exit open_failed(const weft_device_options *options) {
  cli_exit code = cli_fail();
  return options->kind == WEFT_DEVICE_GPU && weft_last_status() == WEFT_EUNSUPPORTED ? CLI_NO_DEVICE : code;
}

cli_exit cli_device_open_tile(weft_device **out, const cli_common *common, int gemm_tile) {
  weft_device_options options = device_options(common);
  options.gemm_tile = gemm_tile;
  return weft_device_open(out, &options) ? open_failed(&options) : CLI_OK;
}

cli_exit cli_device_open(weft_device **out, const cli_common *common) { return cli_device_open_tile(out, common, 0); }

/* The library names its CPU devices "cpu (...)", GPUs by their adapters. */
bool cli_device_is_cpu(const weft_device *device) { return strncmp(weft_device_name(device), "cpu (", 5) == 0; }

/* Its name ends with them: "cpu (avx512, 2 threads)". */
int cli_device_n_threads(const weft_device *device) {
  const char *comma = strrchr(weft_device_name(device), ',');
  long n = comma ? strtol(comma + 1, NULL, 10) : 1;
  return n > 0 ? (int)n : 1;
}

/* A GPU's name begins with its adapter's. */
bool cli_device_is_software(const weft_device *device) {
  weft_adapter *rows;
  int n;
  bool is_software = false;
  if (weft_adapters_list(&rows, &n)) return false;
  for (int i = 0; i < n; i++)
    if (strncmp(weft_device_name(device), rows[i].name, strlen(rows[i].name)) == 0)
      is_software = strcmp(rows[i].kind, "cpu") == 0;
  weft_free(rows);
  return is_software;
}
