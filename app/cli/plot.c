/* plot.c - a line chart with two logarithmic axes, as SVG or, through gnuplot, as PNG.
 *
 * SVG needs no other program, but a PNG wants fonts and anti-aliasing, which gnuplot has.  gnuplot reads its script from
 * a pipe and writes to the file that we opened, so no file name is ever quoted in its language. */
#include "plot.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The picture in pixels; the curves are drawn between the margins. */
enum { WIDTH = 960, HEIGHT = 600, LEFT = 80, RIGHT = 140, TOP = 90, BOTTOM = 60 };

/* Told apart by people of any colour vision (Okabe, Ito 2008). */
static const char *const colours[] = {"#D55E00", "#0072B2", "#000000", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"};

/* ---- text that grows ---- */

typedef struct text {
  weft__bytes bytes;
  weft_status status; /* of the first addition that failed; later ones do nothing */
} text;

/* Pieces are short: longer than a few numbers they are cut. */
static void add(text *t, const char *format, ...) WEFT_PRINTF(2, 3);

static void add(text *t, const char *format, ...) {
  char piece[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(piece, sizeof piece, format, arguments);
  va_end(arguments);
  if (!t->status) t->status = weft__bytes_add(&t->bytes, piece, strlen(piece));
}

/* Control characters mean nothing in a title and are forbidden in XML. */
static char printable(char c) { return (unsigned char)c < ' ' ? ' ' : c; }

/* The mark's name stands on the side of its line where there is more room. */
static bool is_mark_name_left(const cli_plot *p) {
  return p->x[p->mark] * p->x[p->mark] > p->x[0] * p->x[p->n_points - 1];
}

/* ---- SVG ---- */

/* The ends of an axis, in decades. */
typedef struct axis {
  double low, high;
} axis;

typedef struct chart {
  const cli_plot *plot;
  axis x, y;
  text svg;
} chart;

static double pixel_x(const chart *c, double value) {
  return LEFT + (log10(value) - c->x.low) / (c->x.high - c->x.low) * (WIDTH - LEFT - RIGHT);
}

static double pixel_y(const chart *c, double value) {
  return HEIGHT - BOTTOM - (log10(value) - c->y.low) / (c->y.high - c->y.low) * (HEIGHT - TOP - BOTTOM);
}

/* Widens the axis to hold a value and some room around it. */
static void widen(axis *a, double value) {
  const double room = 0.1;
  a->low = fmin(a->low, log10(value) - room);
  a->high = fmax(a->high, log10(value) + room);
}

static void scale_axes(chart *c) {
  c->x = c->y = (axis){INFINITY, -INFINITY};
  for (int i = 0; i < c->plot->n_points; i++) {
    widen(&c->x, c->plot->x[i]);
    for (int l = 0; l < c->plot->n_lines; l++) widen(&c->y, c->plot->lines[l].y[i]);
  }
}

static void add_escaped(text *t, const char *string) {
  for (; *string; string++) switch (*string) {
    case '<':
      add(t, "&lt;");
      break;
    case '>':
      add(t, "&gt;");
      break;
    case '&':
      add(t, "&amp;");
      break;
    default:
      add(t, "%c", printable(*string));
    }
}

static void add_label(chart *c, double x, double y, const char *attributes, const char *string) {
  add(&c->svg, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes);
  add_escaped(&c->svg, string);
  add(&c->svg, "</text>\n");
}

static void add_stroke(chart *c, double x1, double y1, double x2, double y2, const char *attributes) {
  add(&c->svg, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, attributes);
}

static void add_tick(chart *c, bool is_x, double value) {
  static const char grey[] = "stroke=\"#DDD\"";
  char number[32];
  snprintf(number, sizeof number, "%g", value);
  if (is_x) {
    double x = pixel_x(c, value);
    add_stroke(c, x, TOP, x, HEIGHT - BOTTOM, grey);
    add_label(c, x, HEIGHT - BOTTOM + 18, "text-anchor=\"middle\"", number);
  } else {
    double y = pixel_y(c, value);
    add_stroke(c, LEFT, y, WIDTH - RIGHT, y, grey);
    add_label(c, LEFT - 8, y + 4, "text-anchor=\"end\"", number);
  }
}

/* A line of the grid and its number at 1, 2 and 5 of each decade. */
static void add_grid(chart *c, bool is_x) {
  static const double steps[] = {1, 2, 5};
  const axis *a = is_x ? &c->x : &c->y;
  for (int decade = (int)floor(a->low); decade <= (int)floor(a->high); decade++)
    for (size_t i = 0; i < WEFT_COUNT(steps); i++) {
      double value = steps[i] * pow(10, decade);
      if (log10(value) >= a->low && log10(value) <= a->high) add_tick(c, is_x, value);
    }
}

static void add_titles(chart *c) {
  const cli_plot *p = c->plot;
  char turned[96];
  snprintf(turned, sizeof turned, "text-anchor=\"middle\" transform=\"rotate(-90 24 %d)\"", HEIGHT / 2);
  add_label(c, WIDTH / 2.0, 30, "text-anchor=\"middle\" font-size=\"15\"", p->title);
  add_label(c, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 16, "text-anchor=\"middle\"", p->x_title);
  add_label(c, 24, HEIGHT / 2.0, turned, p->y_title);
  /* Neighbours may be close, so their names take turns at two heights. */
  for (int i = 0; i < p->n_points; i++)
    add_label(c, pixel_x(c, p->x[i]), TOP - 8 - i % 2 * 16, "text-anchor=\"middle\"", p->names[i]);
}

static void add_mark(chart *c) {
  if (c->plot->mark < 0) return;
  double x = pixel_x(c, c->plot->x[c->plot->mark]);
  add_stroke(c, x, TOP, x, HEIGHT - BOTTOM, "stroke=\"#555\" stroke-dasharray=\"6 4\"");
  if (is_mark_name_left(c->plot))
    add_label(c, x - 6, HEIGHT - BOTTOM - 8, "fill=\"#555\" text-anchor=\"end\"", c->plot->mark_name);
  else
    add_label(c, x + 6, HEIGHT - BOTTOM - 8, "fill=\"#555\"", c->plot->mark_name);
}

/* The line, its points, and its row of the legend. */
static void add_curve(chart *c, int index) {
  const cli_plot *p = c->plot;
  const cli_plot_line *line = &p->lines[index];
  const char *colour = colours[(size_t)index % WEFT_COUNT(colours)];
  int legend_y = TOP + 16 + 22 * index;
  add(&c->svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
  for (int i = 0; i < p->n_points; i++) add(&c->svg, "%.1f,%.1f ", pixel_x(c, p->x[i]), pixel_y(c, line->y[i]));
  add(&c->svg, "\"/>\n");
  for (int i = 0; i < p->n_points; i++)
    add(&c->svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", pixel_x(c, p->x[i]),
        pixel_y(c, line->y[i]), colour);
  add(&c->svg, "<rect x=\"%d\" y=\"%d\" width=\"18\" height=\"4\" fill=\"%s\"/>\n", WIDTH - RIGHT + 16, legend_y - 6,
      colour);
  add_label(c, WIDTH - RIGHT + 40, legend_y, "", line->name);
}

/* Later shapes cover earlier ones: grid, names, curves. */
static void draw(chart *c) {
  scale_axes(c);
  add(&c->svg,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#FFF\"/>\n",
      WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
  add_grid(c, true);
  add_grid(c, false);
  add(&c->svg, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#333\"/>\n", LEFT, TOP,
      WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
  add_titles(c);
  add_mark(c);
  for (int i = 0; i < c->plot->n_lines; i++) add_curve(c, i);
  add(&c->svg, "</svg>\n");
}

/* ---- gnuplot ---- */

/* In single quotes only the quote itself has a meaning, and doubled it has none. */
static void add_quoted(text *t, const char *string) {
  add(t, "'");
  for (; *string; string++) add(t, "%c%s", printable(*string), *string == '\'' ? "'" : "");
  add(t, "'");
}

static void add_setting(text *t, const char *setting, const char *string) {
  add(t, "set %s ", setting);
  add_quoted(t, string);
  add(t, "\n");
}

static void add_point_names(text *t, const cli_plot *p) {
  for (int i = 0; i < p->n_points; i++) {
    add(t, "set label ");
    add_quoted(t, p->names[i]);
    add(t, " at first %.9g, graph %g center\n", p->x[i], i % 2 ? 1.055 : 1.02);
  }
  if (p->mark < 0) return;
  add(t, "set arrow from first %.9g, graph 0 to first %.9g, graph 1 nohead dashtype 2\nset label ", p->x[p->mark],
      p->x[p->mark]);
  add_quoted(t, p->mark_name);
  add(t, " at first %.9g, graph 0.03 %s\n", p->x[p->mark], is_mark_name_left(p) ? "right offset -1,0" : "offset 1,0");
}

/* The values follow the plot command, a block a line. */
static void add_lines(text *t, const cli_plot *p) {
  add(t, "plot");
  for (int l = 0; l < p->n_lines; l++) {
    add(t, "%s '-' using 1:2 with linespoints pointtype 7 linewidth 2 linecolor rgb '%s' title ", l ? "," : "",
        colours[(size_t)l % WEFT_COUNT(colours)]);
    add_quoted(t, p->lines[l].name);
  }
  add(t, "\n");
  for (int l = 0; l < p->n_lines; l++) {
    for (int i = 0; i < p->n_points; i++) add(t, "%.9g %.9g\n", p->x[i], p->lines[l].y[i]);
    add(t, "e\n");
  }
}

static void add_script(text *t, const cli_plot *p) {
  add(t,
      "if (strstrt(GPVAL_TERMINALS, 'pngcairo')) set terminal pngcairo noenhanced size %d,%d; "
      "else set terminal png noenhanced size %d,%d\n",
      WIDTH, HEIGHT, WIDTH, HEIGHT);
  add(t, "set logscale xy\nset grid\nset format '%%g'\nset key outside right top\nset tmargin 5\n");
  add_setting(t, "title", p->title);
  add(t, "set title offset 0,1.5\n");
  add_setting(t, "xlabel", p->x_title);
  add_setting(t, "ylabel", p->y_title);
  add_point_names(t, p);
  add_lines(t, p);
}

static cli_exit gnuplot_error(const char *why) {
  cli_error("gnuplot: %s (install it anew, or let --plot write an .svg file, which needs no program)", why);
  return CLI_FAILED;
}

/* False with errno set: not everything could be written. */
static bool write_all(int file, const char *data, size_t n) {
  while (n > 0) {
    ssize_t n_written = write(file, data, n);
    if (n_written < 0 && errno == EINTR) continue;
    if (n_written < 0) return false;
    data += n_written;
    n -= (size_t)n_written;
  }
  return true;
}

/* Starts gnuplot between two descriptors; 0 or an errno.  It gets back the SIGPIPE that we ignore. */
static int spawn_gnuplot(int input, int output, pid_t *child) {
  char *argv[] = {"gnuplot", NULL};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t defaults;
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  error = posix_spawnattr_init(&attributes);
  if (!error) {
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    error = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (!error) error = posix_spawnp(child, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/* Has gnuplot run a script and write to `output`. */
static cli_exit run_gnuplot(const char *script, size_t n, int output) {
  int ends[2], status = 0;
  pid_t child;
  if (pipe2(ends, O_CLOEXEC) != 0) return gnuplot_error(strerror(errno));
  int error = spawn_gnuplot(ends[0], output, &child);
  close(ends[0]);
  /* A script that is not read to its end shows in the status. */
  if (!error) write_all(ends[1], script, n);
  close(ends[1]);
  if (error == ENOENT) {
    cli_error("gnuplot is not installed (a .png file needs it: install gnuplot, or name an .svg file)");
    return CLI_FAILED;
  }
  if (error) return gnuplot_error(strerror(error));
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return status == 0 ? CLI_OK : gnuplot_error("could not draw the chart");
}

/* ---- files ---- */

static bool ends_with(const char *string, const char *end) {
  size_t n = strlen(string), n_end = strlen(end);
  return n > n_end && strcmp(string + n - n_end, end) == 0;
}

static cli_exit file_error(const char *path) {
  cli_error("%s: %s (let --plot write to a file that can be written)", path, strerror(errno));
  return CLI_FAILED;
}

/* An empty script shows whether there is a gnuplot. */
cli_exit cli_plot_check(const char *path) {
  if (ends_with(path, ".svg")) return CLI_OK;
  if (!ends_with(path, ".png")) {
    cli_error("--plot: '%s' tells no format (end it in .svg or .png)", path);
    return CLI_USAGE;
  }
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return file_error("/dev/null");
  cli_exit code = run_gnuplot("", 0, nowhere);
  close(nowhere);
  return code;
}

static cli_exit write_svg(const cli_plot *plot, const char *path, int file) {
  chart c = {.plot = plot};
  draw(&c);
  cli_exit code = CLI_OK;
  if (c.svg.status)
    code = cli_fail();
  else if (!write_all(file, c.svg.bytes.data, c.svg.bytes.n))
    code = file_error(path);
  weft__bytes_clear(&c.svg.bytes);
  return code;
}

static cli_exit write_png(const cli_plot *plot, int file) {
  text script = {.status = WEFT_OK};
  add_script(&script, plot);
  cli_exit code = script.status ? cli_fail() : run_gnuplot(script.bytes.data, script.bytes.n, file);
  weft__bytes_clear(&script.bytes);
  return code;
}

cli_exit cli_plot_write(const cli_plot *plot, const char *path) {
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return file_error(path);
  cli_exit code = ends_with(path, ".svg") ? write_svg(plot, path, file) : write_png(plot, file);
  if (close(file) != 0 && code == CLI_OK) code = file_error(path);
  if (code) remove(path);
  return code;
}
