/* terminal.h - what is shown only where a person looks: on a terminal, and never with --quiet or --json. */
#ifndef WEFT_CLI_TERMINAL_H
#define WEFT_CLI_TERMINAL_H

#include "cli.h"

#include "base/base.h"

/* Whether the stream (STDOUT_FILENO or another) is a terminal that understands more than text. */
bool cli_is_terminal(int descriptor);

/* One line on standard error if that is a terminal: dim, or plain with NO_COLOR; control characters are escaped. */
void cli_dim_line(const cli_common *common, const char *format, ...) WEFT_PRINTF(2, 3);

/* A bar on standard error that shows once half a second has passed; zero at first. */
typedef struct cli_bar {
  const char *what;
  double start_ms;
  int shown; /* percent on the screen, -1 = nothing */
} cli_bar;

/* False if no bar is wanted here: then the other two are not to be called. */
bool cli_bar_start(cli_bar *bar, const char *what, const cli_common *common);
void cli_bar_set(cli_bar *bar, double fraction);
void cli_bar_end(cli_bar *bar); /* nothing of it stays on the screen */

#endif
