/* device.h - from the options --device, --threads, --affinity and --exact to an open device. */
#ifndef WEFT_CLI_DEVICE_H
#define WEFT_CLI_DEVICE_H

#include "cli.h"

#include "weft/device.h"

/* Opens the device that was asked for.  `auto` without a hardware GPU is the CPU, and the thread's last error says why.
 * An error was reported; CLI_NO_DEVICE: there is no such device. */
cli_exit cli_device_open(weft_device **out, const cli_common *common);

/* The same with the kernel of matrix products chosen: gemm_tile of weft_device_options. */
cli_exit cli_device_open_tile(weft_device **out, const cli_common *common, int gemm_tile);

/* The threads that a CPU device has taken, from whichever source. */
int cli_device_n_threads(const weft_device *device);

bool cli_device_is_cpu(const weft_device *device);

/* Whether a GPU device is a software driver (an adapter of kind cpu); false if that cannot be told. */
bool cli_device_is_software(const weft_device *device);

#endif
