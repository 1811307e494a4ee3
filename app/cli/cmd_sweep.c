/* cmd_sweep.c - weft sweep: from which size on a GPU multiplies matrices faster than the CPU.
 *
 * A ladder of products, each measured in every column: on the GPU with its transfers, on the GPU with operands that stay
 * there, on the CPU, and on the CPU variants asked for.  All cells of a row are measured close together, so that what
 * else the machine does falls on all of them. */
#include "cmd.h"
#include "device.h"
#include "output.h"
#include "plot.h"
#include "product.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct sweep_options {
  cli_common common;
  const char *cpu;  /* "scalar,avx2": further columns; NULL: none */
  const char *plot; /* file; NULL: none */
  int n_reps;
  bool batched_b;
} sweep_options;

/* The ladder.  MNIST's are those of a small classifier with 100 images at a time: its first dense layer, and its second
 * convolution as one product. */
typedef struct rung {
  const char *name;
  int64_t batch, m, k, n;
} rung;

static const rung ladder[] = {
    {"mnist dense", 1, 100, 784, 128}, {"mnist conv2", 1, 19600, 72, 16}, {"tiny", 1, 128, 128, 128},
    {"small", 1, 512, 512, 512},       {"medium", 8, 512, 512, 512},      {"large", 32, 512, 512, 512},
    {"huge", 64, 512, 512, 512},
};

enum { N_RUNGS = WEFT_COUNT(ladder), MAX_CPUS = 9, MAX_REPS = 1000, SHAPE_BYTES = 48 };

/* A device whose products make a column.  The first is the CPU as it is chosen without being asked. */
typedef struct cpu_column {
  char name[16];
  weft_device *device;
} cpu_column;

/* A rung and what was measured on it; NAN where there is no GPU. */
typedef struct row {
  const rung *rung;
  double gpu_xfer_ms, resident_ms, max_diff;
  double cpu_ms[MAX_CPUS];
  int n_together; /* products in a submission of the resident ones; 0 without a GPU */
} row;

typedef struct sweep {
  const sweep_options *o;
  weft_device *gpu; /* NULL: none */
  cpu_column cpus[MAX_CPUS];
  int n_cpus;
  cli_timing gpu_timing, cpu_timing;
  row rows[N_RUNGS];
  int n_rows;
} sweep;

/* ---- measuring ---- */

static weft_status measure_gpu(const sweep *s, const cli_product *p, row *r) {
  float *got = weft__alloc((size_t)p->n_c, sizeof *got), *want = weft__alloc((size_t)p->n_c, sizeof *want);
  weft_status status = got && want ? cli_product_run(p, s->gpu, got) : WEFT_ENOMEM;
  if (!status) status = cli_product_run(p, s->cpus[0].device, want);
  if (!status) r->max_diff = cli_relative_error(got, want, p->n_c);
  weft_free(got);
  weft_free(want);
  if (!status) status = cli_product_time_run(p, s->gpu, &s->gpu_timing, &r->gpu_xfer_ms);
  if (!status) status = cli_product_time_resident(p, s->gpu, &s->gpu_timing, &r->resident_ms, &r->n_together);
  return status;
}

static weft_status measure_row(const sweep *s, row *r) {
  cli_product p = {r->rung->batch, r->rung->m, r->rung->k, r->rung->n, .is_b_batched = s->o->batched_b};
  int n_together;
  weft_status status = cli_product_fill(&p);
  if (!status && s->gpu) status = measure_gpu(s, &p, r);
  for (int i = 0; i < s->n_cpus && !status; i++)
    status = cli_product_time_resident(&p, s->cpus[i].device, &s->cpu_timing, &r->cpu_ms[i], &n_together);
  cli_product_clear(&p);
  return status;
}

/* Rows are counted when they are complete, so that what was measured before a failure can be printed. */
static weft_status measure_rows(sweep *s, const bool *is_chosen) {
  weft_status status = WEFT_OK;
  bool shows_progress = isatty(STDERR_FILENO) && !s->o->common.quiet && !s->o->common.json;
  for (int i = 0; i < (int)N_RUNGS && !status; i++) {
    row *r = &s->rows[s->n_rows];
    if (!is_chosen[i]) continue;
    if (shows_progress) cli_note("measuring %s", ladder[i].name);
    *r = (row){.rung = &ladder[i], .gpu_xfer_ms = NAN, .resident_ms = NAN, .max_diff = NAN};
    status = measure_row(s, r);
    if (!status) s->n_rows++;
  }
  return status;
}

/* ---- reading the table ---- */

static double mflop(const rung *g) { return 2e-6 * (double)g->batch * (double)g->m * (double)g->k * (double)g->n; }

static int compare_work(const void *a, const void *b) {
  double x = mflop((*(const row *const *)a)->rung), y = mflop((*(const row *const *)b)->rung);
  return (x > y) - (x < y);
}

/* The rows by ascending work. */
static void sort_rows(const sweep *s, const row *sorted[N_RUNGS]) {
  for (int i = 0; i < s->n_rows; i++) sorted[i] = &s->rows[i];
  qsort(sorted, (size_t)s->n_rows, sizeof *sorted, compare_work);
}

/* Where the GPU overtakes the CPU: the least work from which on it is ahead in all rows.  NULL: nowhere. */
static const row *overtaking_row(const sweep *s, bool with_transfers) {
  const row *sorted[N_RUNGS], *found = NULL;
  sort_rows(s, sorted);
  for (int i = s->n_rows - 1; i >= 0; i--) {
    const row *r = sorted[i];
    if (!((with_transfers ? r->gpu_xfer_ms : r->resident_ms) < r->cpu_ms[0])) break;
    found = r;
  }
  return found;
}

static const char *shape_text(const sweep *s, const rung *g, char text[SHAPE_BYTES]) {
  char batch[16] = "";
  if (s->o->batched_b) snprintf(batch, sizeof batch, "%dx", (int)g->batch);
  snprintf(text, SHAPE_BYTES, "%dx%dx%d@%s%dx%d", (int)g->batch, (int)g->m, (int)g->k, batch, (int)g->k, (int)g->n);
  return text;
}

/* ---- the table ---- */

static void print_head(const sweep *s) {
  if (s->gpu) cli_outf("gpu  %s\n", weft_device_name(s->gpu));
  cli_outf("cpu  %s\nms a product, median of %d\n\n%-12s %-26s %9s", weft_device_name(s->cpus[0].device), s->o->n_reps,
           "name", "shape", "MFLOP");
  if (s->gpu) cli_outf(" %10s %10s", "gpu+xfer", "resident");
  for (int i = 0; i < s->n_cpus; i++) cli_outf(" %10s", s->cpus[i].name);
  if (s->gpu) cli_outf(" %8s %9s", "res/cpu", "max diff");
  cli_out("\n", 1);
}

static const char *mark_text(bool is_resident, bool is_with_transfers) {
  if (is_resident && is_with_transfers) return "  <- the device overtakes the CPU, with transfers too";
  if (is_resident) return "  <- the device overtakes the CPU";
  return is_with_transfers ? "  <- with transfers it overtakes the CPU" : "";
}

static void print_row(const sweep *s, const row *r) {
  char shape[SHAPE_BYTES];
  cli_outf("%-12s %-26s %9.1f", r->rung->name, shape_text(s, r->rung, shape), mflop(r->rung));
  if (s->gpu) cli_outf(" %10.4g %10.4g", r->gpu_xfer_ms, r->resident_ms);
  for (int i = 0; i < s->n_cpus; i++) cli_outf(" %10.4g", r->cpu_ms[i]);
  if (s->gpu)
    cli_outf(" %8.3g %9.2e%s", r->cpu_ms[0] / r->resident_ms, r->max_diff,
             mark_text(r == overtaking_row(s, false), r == overtaking_row(s, true)));
  cli_out("\n", 1);
}

static void print_text(const sweep *s) {
  print_head(s);
  for (int i = 0; i < s->n_rows; i++) print_row(s, &s->rows[i]);
  if (s->gpu && !overtaking_row(s, false)) cli_outf("\nThe device does not overtake the CPU here.\n");
}

/* ---- JSON ---- */

static json_t *row_to_json(const sweep *s, const row *r) {
  json_t *object = json_object(), *variants = json_object();
  char shape[SHAPE_BYTES];
  for (int i = 1; i < s->n_cpus; i++) cli_json_set(variants, s->cpus[i].name, cli_json_number(r->cpu_ms[i]));
  cli_json_set(object, "name", json_string(r->rung->name));
  cli_json_set(object, "shape", json_string(shape_text(s, r->rung, shape)));
  cli_json_set(object, "mflop", cli_json_number(mflop(r->rung)));
  cli_json_set(object, "gpu_xfer_ms", cli_json_number(r->gpu_xfer_ms));
  cli_json_set(object, "resident_ms", cli_json_number(r->resident_ms));
  cli_json_set(object, "cpu_ms", cli_json_number(r->cpu_ms[0]));
  cli_json_set(object, "cpu_variants_ms", variants);
  cli_json_set(object, "res_cpu_ratio", cli_json_number(r->cpu_ms[0] / r->resident_ms));
  cli_json_set(object, "max_diff", cli_json_number(r->max_diff));
  cli_json_set(object, "n_together", r->n_together ? json_integer(r->n_together) : json_null());
  return object;
}

static json_t *name_or_null(const row *r) { return r ? json_string(r->rung->name) : json_null(); }

static cli_exit print_json(const sweep *s) {
  json_t *root = json_object(), *rows = json_array(), *overtakes = json_object();
  const char *gpu = s->gpu ? weft_device_name(s->gpu) : NULL;
  for (int i = 0; i < s->n_rows; i++) cli_json_add(rows, row_to_json(s, &s->rows[i]));
  cli_json_set(overtakes, "resident", name_or_null(overtaking_row(s, false)));
  cli_json_set(overtakes, "gpu_xfer", name_or_null(overtaking_row(s, true)));
  cli_json_set(root, "gpu", gpu ? cli_json_text(gpu, strlen(gpu)) : json_null());
  cli_json_set(root, "cpu", json_string(weft_device_name(s->cpus[0].device)));
  cli_json_set(root, "n_reps", json_integer(s->o->n_reps));
  cli_json_set(root, "batched_b", json_boolean(s->o->batched_b));
  cli_json_set(root, "rows", rows);
  cli_json_set(root, "overtakes", overtakes);
  return cli_json_print(root);
}

/* ---- the curve ---- */

/* Speeds rather than times: a curve that is flat has reached what the device can do. */
typedef struct curves {
  double x[N_RUNGS];
  double y[2 + MAX_CPUS][N_RUNGS];
  const char *names[N_RUNGS];
  cli_plot_line lines[2 + MAX_CPUS];
  int n_lines;
} curves;

static void add_curve(curves *c, const char *name, int n, const double *ms) {
  double *y = c->y[c->n_lines];
  for (int i = 0; i < n; i++) y[i] = c->x[i] / ms[i]; /* MFLOP a millisecond are GFLOP a second */
  c->lines[c->n_lines++] = (cli_plot_line){name, y};
}

static void add_curves(const sweep *s, curves *c, const row *const *sorted) {
  double ms[N_RUNGS];
  for (int i = 0; i < s->n_rows; i++) {
    c->x[i] = mflop(sorted[i]->rung);
    c->names[i] = sorted[i]->rung->name;
  }
  for (int i = 0; i < s->n_rows && s->gpu; i++) ms[i] = sorted[i]->gpu_xfer_ms;
  if (s->gpu) add_curve(c, "gpu+xfer", s->n_rows, ms);
  for (int i = 0; i < s->n_rows && s->gpu; i++) ms[i] = sorted[i]->resident_ms;
  if (s->gpu) add_curve(c, "resident", s->n_rows, ms);
  for (int cpu = 0; cpu < s->n_cpus; cpu++) {
    for (int i = 0; i < s->n_rows; i++) ms[i] = sorted[i]->cpu_ms[cpu];
    add_curve(c, s->cpus[cpu].name, s->n_rows, ms);
  }
}

static cli_exit write_plot(const sweep *s) {
  const row *sorted[N_RUNGS], *overtaking = overtaking_row(s, false);
  curves c = {.n_lines = 0};
  char title[256];
  int mark = -1;
  sort_rows(s, sorted);
  add_curves(s, &c, sorted);
  for (int i = 0; i < s->n_rows && overtaking; i++)
    if (sorted[i] == overtaking) mark = i;
  snprintf(title, sizeof title, "f32 matrix products: %s%s%s", s->gpu ? weft_device_name(s->gpu) : "",
           s->gpu ? " and " : "", weft_device_name(s->cpus[0].device));
  cli_plot plot = {
      .title = title,
      .x_title = "MFLOP of the product",
      .y_title = "GFLOP/s",
      .n_points = s->n_rows,
      .x = c.x,
      .names = c.names,
      .n_lines = c.n_lines,
      .lines = c.lines,
      .mark = mark,
      .mark_name = "the device overtakes the CPU",
  };
  return cli_plot_write(&plot, s->o->plot);
}

/* ---- the command ---- */

/* The rungs that the arguments name; without arguments all. */
static cli_exit choose_rungs(const cli_args *args, bool is_chosen[N_RUNGS]) {
  for (int i = 0; i < (int)N_RUNGS; i++) is_chosen[i] = args->n == 0;
  for (int a = 0; a < args->n; a++) {
    int i = 0;
    while (i < (int)N_RUNGS && strcmp(args->values[a], ladder[i].name) != 0) i++;
    if (i == (int)N_RUNGS) {
      cli_error("sweep: '%s' is none of its shapes (weft help sweep lists them)", args->values[a]);
      return CLI_USAGE;
    }
    is_chosen[i] = true;
  }
  return CLI_OK;
}

/* The device that a variant's name stands for is chosen by the library's variable, which is put back. */
static cli_exit open_variant(const sweep *s, cpu_column *column) {
  const char *variable = getenv("WEFT_CPU");
  char *former = variable ? weft__dup(variable, strlen(variable)) : NULL;
  if (variable && !former) return cli_fail();
  weft_device_options options = {
      .kind = WEFT_DEVICE_CPU, .n_threads = s->o->common.n_threads, .affinity = s->o->common.affinity};
  if (*column->name) setenv("WEFT_CPU", column->name, 1);
  cli_exit code = weft_device_open(&column->device, &options) ? cli_fail() : CLI_OK;
  if (former)
    setenv("WEFT_CPU", former, 1);
  else
    unsetenv("WEFT_CPU");
  weft_free(former);
  return code;
}

/* The index of the variant that n bytes name, or -1. */
static int find_variant(const char *name, size_t n) {
  for (int i = 0; weft_cpu_variant_name(i); i++)
    if (strlen(weft_cpu_variant_name(i)) == n && memcmp(weft_cpu_variant_name(i), name, n) == 0) return i;
  return -1;
}

/* A column for each name of --cpu; the devices come later. */
static cli_exit choose_variants(sweep *s) {
  for (const char *name = s->o->cpu; name; name = strchr(name, ','), name += name != NULL) {
    size_t n = strcspn(name, ",");
    int variant = find_variant(name, n);
    if (variant < 0 || !weft_cpu_variant_usable(variant)) {
      cli_error("--cpu: '%.*s' is no CPU variant %s (weft version lists them)", (int)n, name,
                variant < 0 ? "of this program" : "for this processor");
      return CLI_USAGE;
    }
    if (s->n_cpus == MAX_CPUS) {
      cli_error("--cpu: too many variants (give at most %d)", MAX_CPUS - 1);
      return CLI_USAGE;
    }
    snprintf(s->cpus[s->n_cpus++].name, sizeof s->cpus[0].name, "%.*s", (int)n, name);
  }
  return CLI_OK;
}

/* Software drivers have no clocks that rise, and take their time. */
static void choose_timing(sweep *s) {
  enum { WARM_UP_MS = 200 };
  s->cpu_timing = s->gpu_timing = (cli_timing){WARM_UP_MS, s->o->n_reps};
  if (s->gpu && cli_device_is_software(s->gpu)) s->gpu_timing.warm_up_ms = 0;
}

/* The device asked for is the GPU's columns, or, being a CPU, the first CPU column. */
static cli_exit open_devices(sweep *s) {
  cli_exit code = cli_device_open(&s->gpu, &s->o->common);
  if (code) return code;
  if (cli_device_is_cpu(s->gpu)) {
    if (s->o->common.device == CLI_DEVICE_AUTO && !s->o->common.quiet)
      cli_note("sweep: there is no GPU, so only the CPU is measured: %s", weft_last_error());
    s->cpus[0].device = s->gpu;
    s->gpu = NULL;
  }
  for (int i = 0; i < s->n_cpus && !code; i++)
    if (!s->cpus[i].device) code = open_variant(s, &s->cpus[i]);
  snprintf(s->cpus[0].name, sizeof s->cpus[0].name, "cpu");
  choose_timing(s);
  return code;
}

static void close_devices(sweep *s) {
  weft_device_close(s->gpu);
  for (int i = 0; i < s->n_cpus; i++) weft_device_close(s->cpus[i].device);
}

/* The table comes out before the chart, so that a chart that cannot be written loses nothing. */
static cli_exit measure_and_print(sweep *s, const bool *is_chosen) {
  cli_exit code = measure_rows(s, is_chosen) ? cli_fail() : CLI_OK;
  if (s->n_rows == 0) return code;
  if (!s->o->common.json)
    print_text(s);
  else if (code == CLI_OK)
    code = print_json(s);
  cli_out_flush();
  return code == CLI_OK && s->o->plot ? write_plot(s) : code;
}

static cli_exit run_sweep(void *options, const cli_args *args) {
  sweep s = {.o = options, .n_cpus = 1};
  bool is_chosen[N_RUNGS];
  cli_exit code = choose_rungs(args, is_chosen);
  if (!code) code = choose_variants(&s);
  if (!code && s.o->plot) code = cli_plot_check(s.o->plot);
  if (!code) code = open_devices(&s);
  if (!code) code = measure_and_print(&s, is_chosen);
  close_devices(&s);
  return code;
}

static const cli_option sweep_table[] = {
    CLI_TEXT(sweep_options, cpu, "cpu", 0, "VARIANT,...",
             "a further column for each of these CPU variants; weft version lists them"),
    CLI_INT(sweep_options, n_reps, "reps", 'r', "R", 1, MAX_REPS,
            "measurements of each cell, after a warm-up (default 5)"),
    CLI_FLAG(sweep_options, batched_b, "batched-b", 0, "a right operand for each product of a batch, not one for all"),
    CLI_TEXT(sweep_options, plot, "plot", 0, "FILE", "draw the speeds as FILE.svg, or, with gnuplot, as FILE.png"),
    CLI_END,
};

static const sweep_options defaults = {.common = CLI_COMMON_DEFAULTS, .n_reps = 5};

const cli_command cli_cmd_sweep = {
    .name = "sweep",
    .arguments = "[SHAPE...]",
    .summary = "find the size from which on a GPU multiplies faster than the CPU",
    .details =
        "The shapes, batch x rows x inner @ inner x columns: mnist dense 1x100x784@784x128, mnist conv2 "
        "1x19600x72@72x16, tiny 1x128x128@128x128, small 1x512x512@512x512, medium 8x, large 32x and huge 64x "
        "512x512@512x512.\n"
        "gpu+xfer uploads both operands, multiplies, downloads and frees; resident multiplies what is on the GPU and "
        "leaves it there, several products in a submission; cpu is the library's CPU path. res/cpu tells how many "
        "times faster resident is than cpu. max diff is max|gpu-cpu| / max|cpu|.\n"
        "Without a GPU there are only the columns of the CPU.\n"
        "With --json the object has gpu, cpu, n_reps, batched_b, rows and overtakes (the names of the first rows from "
        "which on resident and gpu_xfer beat the CPU, or null). A row has name, shape, mflop, gpu_xfer_ms, "
        "resident_ms, cpu_ms, cpu_variants_ms, res_cpu_ratio, max_diff and n_together (products in a submission).",
    .examples = "weft sweep\n"
                "weft sweep --cpu scalar,avx2 --plot sweep.svg\n"
                "weft sweep \"mnist dense\" small --device 0 --reps 20 --json",
    .max_args = N_RUNGS,
    .uses = CLI_USES_DEVICE,
    .options = sweep_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_sweep,
};
