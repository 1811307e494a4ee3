/* plot.h - a line chart with two logarithmic axes, as SVG or, through gnuplot, as PNG. */
#ifndef WEFT_CLI_PLOT_H
#define WEFT_CLI_PLOT_H

#include "cli.h"

typedef struct cli_plot_line {
  const char *name;
  const double *y; /* [n_points], above 0 */
} cli_plot_line;

typedef struct cli_plot {
  const char *title, *x_title, *y_title;
  int n_points;             /* at least 1 */
  const double *x;          /* [n_points], above 0 and ascending */
  const char *const *names; /* [n_points], above the points */
  int n_lines;
  const cli_plot_line *lines;
  int mark;              /* a vertical line at this point; -1: none */
  const char *mark_name; /* what it stands for */
} cli_plot;

/* Before the work whose result is to be plotted: can a chart be written to a file of this name?  The name's end decides
 * the format.  CLI_USAGE, CLI_FAILED: an error was reported. */
cli_exit cli_plot_check(const char *path);

/* Writes the chart; after a failure, which was reported, there is no half of one. */
cli_exit cli_plot_write(const cli_plot *plot, const char *path);

#endif
