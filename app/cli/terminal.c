/* terminal.c - dim lines and bars.
 *
 * Invariant: every line that turns an attribute on turns it off again, in one write, so an interrupt leaves the terminal
 * as it was. */
#include "terminal.h"
#include "output.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 30, BAR_DELAY_MS = 500 };

bool cli_is_terminal(int descriptor) {
  const char *term = getenv("TERM");
  return isatty(descriptor) && term && *term && strcmp(term, "dumb") != 0;
}

/* As no-color.org has it, an empty variable counts as unset. */
static bool has_color(void) {
  const char *no_color = getenv("NO_COLOR");
  return !no_color || !*no_color;
}

static bool is_wanted(const cli_common *common) {
  return !common->quiet && !common->json && cli_is_terminal(STDERR_FILENO);
}

void cli_dim_line(const cli_common *common, const char *format, ...) {
  va_list arguments;
  if (!is_wanted(common)) return;
  va_start(arguments, format);
  cli_note_between(has_color() ? "\033[2m" : "", has_color() ? "\033[0m" : "", format, arguments);
  va_end(arguments);
}

bool cli_bar_start(cli_bar *bar, const char *what, const cli_common *common) {
  *bar = (cli_bar){what, weft__now_ms(), -1};
  return is_wanted(common) && has_color();
}

/* The stream is line-buffered and a bar is no line, hence the flush. */
void cli_bar_set(cli_bar *bar, double fraction) {
  char cells[BAR_WIDTH + 1];
  int percent = (int)(fraction * 100);
  if (percent == bar->shown || weft__now_ms() - bar->start_ms < BAR_DELAY_MS) return;
  bar->shown = percent;
  for (int i = 0; i < BAR_WIDTH; i++) cells[i] = i * 100 < percent * BAR_WIDTH ? '#' : '.';
  cells[BAR_WIDTH] = 0;
  fprintf(stderr, "\r%s [%s] %3d %%", bar->what, cells, percent);
  fflush(stderr);
}

void cli_bar_end(cli_bar *bar) {
  if (bar->shown < 0) return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
}
