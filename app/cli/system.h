/* system.h - what the program asks of the operating system besides signals. */
#ifndef WEFT_CLI_SYSTEM_H
#define WEFT_CLI_SYSTEM_H

#include "cli.h"

#include "base/base.h"

/* Makes descriptors 0 to 2 safe to use and a closed pipe an error instead of a signal.  Call first. */
void cli_system_prepare(void);

/* A seed that differs from run to run, in 0..2^32-1 so that it is easily typed again. */
int64_t cli_draw_seed(void);

/* Most memory the process has had resident; 0 if the system does not say. */
int64_t cli_peak_bytes(void);

/* Adds all of a file ("-": standard input) to `text`, cleared by the caller.  CLI_FAILED: an error was reported. */
cli_exit cli_read_file(const char *path, weft__bytes *text);

#endif
