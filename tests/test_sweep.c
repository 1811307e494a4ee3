/* test_sweep.c - weft sweep and weft demo as their users meet them.
 *
 * Times are whatever they are on this machine: the tests ask that they are there, that what is computed from them
 * agrees, and that results are right.  The CPU alone climbs the whole ladder; the GPU of the tests, a software driver,
 * takes the two small shapes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/gpu_env.h"
#include "support/weft_program.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What every comparison of the GPU with the CPU must keep to, as max|gpu-cpu| / max|cpu|. */
static const double MAX_ERROR = 2.86e-6;

/* A folder for files that the tests write, and an environment where there is no GPU library. */
static char folder[] = "/tmp/weft-test-sweep-XXXXXX";
static const char *const no_gpu[] = {"WEFT_WGPU_LIB=/nonexistent/libwgpu_native.so", NULL};

static const char *in_folder(const char *name) {
  static char paths[4][128];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

/* ---- looking at results ---- */

static int count(const char *text, const char *part) {
  int n = 0;
  for (; (text = strstr(text, part)) != NULL; text++) n++;
  return n;
}

/* All of a file as text, freed with free. */
static char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("%s cannot be read", path);
  char *text = calloc(1, 1 << 20);
  assert_non_null(text);
  size_t n = fread(text, 1, (1 << 20) - 1, file);
  assert_true(n > 0);
  fclose(file);
  return text;
}

/* ---- the ladder, on the CPU ---- */

static const struct {
  const char *name, *shape;
  double mflop;
} ladder[] = {
    {"mnist dense", "1x100x784@784x128", 20.0704}, {"mnist conv2", "1x19600x72@72x16", 45.1584},
    {"tiny", "1x128x128@128x128", 4.194304},       {"small", "1x512x512@512x512", 268.435456},
    {"medium", "8x512x512@512x512", 2147.483648},  {"large", "32x512x512@512x512", 8589.934592},
    {"huge", "64x512x512@512x512", 17179.869184},
};

enum { N_RUNGS = sizeof ladder / sizeof *ladder };

static void assert_rung(const json_t *row, int i) {
  assert_string_equal(get_text(row, "name"), ladder[i].name);
  assert_string_equal(get_text(row, "shape"), ladder[i].shape);
  if (fabs(get_number(row, "mflop") / ladder[i].mflop - 1) > 1e-6)
    fail_msg("%s: %g MFLOP, not %g", ladder[i].name, get_number(row, "mflop"), ladder[i].mflop);
}

static void test_ladder(void **state) {
  (void)state;
  static const char *const of_gpu[] = {"gpu_xfer_ms", "resident_ms", "res_cpu_ratio", "max_diff", "n_together"};
  json_t *root = take_json(WEFT_IN(NULL, "sweep", "--device", "cpu", "--reps", "1", "--json"), 0);
  assert_true(json_is_null(get(root, "gpu")));
  assert_memory_equal(get_text(root, "cpu"), "cpu (", 5);
  assert_int_equal(json_integer_value(get(root, "n_reps")), 1);
  assert_int_equal(json_array_size(get(root, "rows")), N_RUNGS);
  for (int i = 0; i < N_RUNGS; i++) {
    const json_t *row = json_array_get(get(root, "rows"), (size_t)i);
    assert_rung(row, i);
    assert_true(get_number(row, "cpu_ms") > 0);
    for (size_t k = 0; k < sizeof of_gpu / sizeof *of_gpu; k++) assert_true(json_is_null(get(row, of_gpu[k])));
  }
  assert_true(json_is_null(get(get(root, "overtakes"), "resident")));
  assert_true(json_is_null(get(get(root, "overtakes"), "gpu_xfer")));
  json_decref(root);
}

/* Only the shapes named, in the ladder's order. */
static void test_chosen_shapes(void **state) {
  (void)state;
  json_t *root = take_json(WEFT_IN(NULL, "sweep", "tiny", "mnist dense", "--device=cpu", "-r", "2", "--json"), 0);
  assert_int_equal(json_array_size(get(root, "rows")), 2);
  assert_rung(json_array_get(get(root, "rows"), 0), 0);
  assert_rung(json_array_get(get(root, "rows"), 1), 2);
  json_decref(root);
  assert_error(WEFT_IN(NULL, "sweep", "tiny", "gigantic"), 2, "'gigantic'");
  assert_error(WEFT_IN(NULL, "sweep", "--reps", "0"), 2, "--reps");
}

static void test_batched_b(void **state) {
  (void)state;
  json_t *root =
      take_json(WEFT_IN(NULL, "sweep", "medium", "tiny", "--batched-b", "--device=cpu", "-r", "1", "--json"), 0);
  assert_true(json_is_true(get(root, "batched_b")));
  assert_string_equal(get_text(json_array_get(get(root, "rows"), 0), "shape"), "1x128x128@1x128x128");
  assert_string_equal(get_text(json_array_get(get(root, "rows"), 1), "shape"), "8x512x512@8x512x512");
  json_decref(root);
}

/* Each variant that --cpu names is a column. */
static void test_cpu_variants(void **state) {
  (void)state;
  json_t *root = take_json(WEFT_IN(NULL, "sweep", "tiny", "--cpu", "scalar", "--device=cpu", "-r", "1", "--json"), 0);
  const json_t *variants = get(json_array_get(get(root, "rows"), 0), "cpu_variants_ms");
  assert_int_equal(json_object_size(variants), 1);
  assert_true(get_number(variants, "scalar") > 0);
  json_decref(root);
  run_result r = WEFT_IN(NULL, "sweep", "tiny", "--cpu=scalar,scalar", "--device=cpu", "-r", "1");
  assert_status(&r, 0);
  assert_int_equal(count(r.out, "    scalar"), 2);
  run_clear(&r);
  assert_error(WEFT_IN(NULL, "sweep", "--cpu", "scalar,mmx"), 2, "'mmx'");
  assert_error(WEFT_IN(NULL, "sweep", "--cpu", ""), 2, "--cpu");
  const char *const wrong_variant[] = {"WEFT_CPU=mmx", NULL};
  assert_error(WEFT_IN(wrong_variant, "sweep", "tiny", "--device=cpu"), 1, "mmx");
}

/* ---- without a GPU ---- */

static void test_no_gpu(void **state) {
  (void)state;
  run_result r = WEFT_IN(no_gpu, "sweep", "tiny", "-r", "1");
  assert_status(&r, 0);
  assert_int_equal(count(r.err, "\n"), 1);
  assert_non_null(strstr(r.err, "there is no GPU"));
  assert_non_null(strstr(r.out, "MFLOP"));
  assert_null(strstr(r.out, "gpu"));
  assert_null(strstr(r.out, "resident"));
  run_clear(&r);
  r = WEFT_IN(no_gpu, "sweep", "tiny", "-r", "1", "--quiet");
  assert_status(&r, 0);
  assert_string_equal(r.err, "");
  run_clear(&r);
  static const char *const devices[] = {"gpu", "low", "high", "0"};
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
    assert_error(WEFT_IN(no_gpu, "sweep", "tiny", "--device", devices[i]), 3, "");
}

static void test_demo_no_gpu(void **state) {
  (void)state;
  run_result r = WEFT_IN(no_gpu, "demo", "4");
  assert_status(&r, 0);
  assert_non_null(strstr(r.out, "no GPU"));
  run_clear(&r);
  json_t *root = take_json(WEFT_IN(no_gpu, "demo", "4", "--json"), 0);
  assert_true(json_is_null(get(root, "gpu")));
  assert_true(strlen(get_text(root, "why")) > 10);
  json_decref(root);
  assert_error(WEFT_IN(no_gpu, "demo", "4", "--device", "gpu"), 3, "");
}

/* ---- with a GPU ---- */

/* False in a build without GPU code. */
static bool use_first_generation(void) {
  if (gpu_env_generations[0]) gpu_env_use(gpu_env_generations[0]);
  return gpu_env_generations[0] != NULL;
}

/* The rule of the marks, from the rows: the least work from which on the device is ahead everywhere. */
static const char *overtaking(const json_t *rows, const char *key) {
  const char *name = NULL;
  double from_mflop = INFINITY;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    bool is_ahead = true;
    for (size_t j = 0; j < json_array_size(rows); j++) {
      const json_t *other = json_array_get(rows, j);
      if (get_number(other, "mflop") >= get_number(row, "mflop"))
        is_ahead = is_ahead && get_number(other, key) < get_number(other, "cpu_ms");
    }
    if (is_ahead && get_number(row, "mflop") < from_mflop) {
      name = get_text(row, "name");
      from_mflop = get_number(row, "mflop");
    }
  }
  return name;
}

static void assert_overtakes(const json_t *root, const char *which, const char *key) {
  const json_t *said = get(get(root, "overtakes"), which);
  const char *expected = overtaking(get(root, "rows"), key);
  if (expected)
    assert_string_equal(json_string_value(said), expected);
  else
    assert_true(json_is_null(said));
}

static void assert_gpu_row(const json_t *row) {
  double resident_ms = get_number(row, "resident_ms"), n_together = get_number(row, "n_together");
  assert_true(get_number(row, "gpu_xfer_ms") > 0);
  assert_true(resident_ms > 0);
  assert_true(fabs(get_number(row, "cpu_ms") / resident_ms / get_number(row, "res_cpu_ratio") - 1) < 1e-6);
  assert_true(n_together >= 2 && n_together <= 20);
  assert_true(get_number(row, "max_diff") >= 0 && get_number(row, "max_diff") <= MAX_ERROR);
}

static void test_gpu_rows(void **state) {
  (void)state;
  for (int i = 0; gpu_env_generations[i]; i++) {
    gpu_env_use(gpu_env_generations[i]);
    json_t *root = take_json(WEFT_IN(NULL, "sweep", "mnist dense", "tiny", "--device", "gpu", "-r", "3", "--json"), 0);
    assert_non_null(strstr(get_text(root, "gpu"), gpu_env_generations[i]));
    assert_int_equal(json_array_size(get(root, "rows")), 2);
    for (size_t k = 0; k < 2; k++) assert_gpu_row(json_array_get(get(root, "rows"), k));
    assert_overtakes(root, "resident", "resident_ms");
    assert_overtakes(root, "gpu_xfer", "gpu_xfer_ms");
    json_decref(root);
  }
  gpu_env_use(NULL);
}

/* The columns in their order, and one word on who is ahead. */
static void test_gpu_table(void **state) {
  (void)state;
  static const char *const columns[] = {"name",   "shape",  "MFLOP",   "gpu+xfer", "resident",
                                        "  cpu ", "scalar", "res/cpu", "max diff"};
  if (!use_first_generation()) return;
  run_result r = WEFT_IN(NULL, "sweep", "tiny", "--device", "0", "-r", "1", "--cpu", "scalar");
  assert_status(&r, 0);
  const char *at = strstr(r.out, "\n\n");
  assert_non_null(at);
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
    const char *column = strstr(at, columns[i]);
    if (column)
      at = column;
    else
      fail_msg("no column %s where it belongs in: %s", columns[i], r.out);
  }
  assert_int_equal(count(r.out, "<- the device overtakes") + count(r.out, "does not overtake"), 1);
  run_clear(&r);
  gpu_env_use(NULL);
}

static void test_gpu_choice(void **state) {
  (void)state;
  if (!use_first_generation()) return;
  static const char *const devices[] = {"low", "high"};
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    json_t *root = take_json(WEFT_IN(NULL, "sweep", "tiny", "--device", devices[i], "-r", "1", "--json"), 0);
    assert_true(json_is_string(get(root, "gpu")));
    json_decref(root);
  }
  assert_error(WEFT_IN(NULL, "sweep", "tiny", "--device", "99"), 3, "99");
  gpu_env_use(NULL);
}

/* ---- charts ---- */

/* Every tag is closed, and nothing stands in the text that XML forbids there. */
static void assert_well_formed(const char *svg) {
  int depth = 0;
  for (const char *c = svg; (c = strchr(c, '<')) != NULL;) {
    const char *end = strchr(c, '>');
    if (!end) fail_msg("a tag without an end: %.40s", c);
    const char *next = strchr(c + 1, '<');
    assert_true(!next || next > end);
    depth += c[1] == '/' ? -1 : end[-1] == '/' ? 0 : 1;
    assert_true(depth >= 0);
    c = end;
  }
  assert_int_equal(depth, 0);
  assert_int_equal(count(svg, "&"), count(svg, "&lt;") + count(svg, "&gt;") + count(svg, "&amp;"));
}

static void test_svg(void **state) {
  (void)state;
  const char *path = in_folder("chart.svg");
  run_result r =
      WEFT_IN(NULL, "sweep", "tiny", "mnist dense", "--device=cpu", "--cpu", "scalar", "-r", "1", "--plot", path);
  assert_status(&r, 0);
  assert_non_null(strstr(r.out, "MFLOP"));
  run_clear(&r);
  char *svg = read_file(path);
  assert_memory_equal(svg, "<svg ", 5);
  assert_string_equal(svg + strlen(svg) - 7, "</svg>\n");
  assert_well_formed(svg);
  assert_int_equal(count(svg, "<polyline"), 2);
  assert_int_equal(count(svg, "<circle"), 4);
  static const char *const texts[] = {">tiny<", ">mnist dense<", ">cpu<", ">scalar<", ">GFLOP/s<"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) assert_non_null(strstr(svg, texts[i]));
  assert_null(strstr(svg, "nan"));
  assert_null(strstr(svg, "inf"));
  free(svg);
}

/* One shape has no extent, so the axes need room of their own. */
static void test_svg_of_one_shape(void **state) {
  (void)state;
  const char *path = in_folder("one.svg");
  run_result r = WEFT_IN(NULL, "sweep", "tiny", "--device=cpu", "-r", "1", "--plot", path, "--json");
  json_decref(take_json(r, 0));
  char *svg = read_file(path);
  assert_well_formed(svg);
  assert_int_equal(count(svg, "<circle"), 1);
  assert_null(strstr(svg, "nan"));
  free(svg);
}

static void test_plot_errors(void **state) {
  (void)state;
  assert_error(WEFT_IN(NULL, "sweep", "--plot", "chart.gif"), 2, "'chart.gif'");
  assert_error(WEFT_IN(NULL, "sweep", "--plot", ".svg"), 2, "'.svg'");
  const char *const no_programs[] = {"PATH=/nonexistent", NULL};
  assert_error(WEFT_IN(no_programs, "sweep", "--plot", "chart.png"), 1, "gnuplot is not installed");
  /* What was measured is not lost. */
  run_result r = WEFT_IN(NULL, "sweep", "tiny", "--device=cpu", "-r", "1", "--plot", in_folder("none/chart.svg"));
  assert_status(&r, 1);
  assert_non_null(strstr(r.out, "tiny"));
  assert_non_null(strstr(r.err, "none/chart.svg"));
  run_clear(&r);
}

/* Puts a program called gnuplot where PATH finds it. */
static void write_gnuplot(const char *script) {
  const char *path = in_folder("gnuplot");
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(script, file);
  fclose(file);
  assert_int_equal(chmod(path, 0755), 0);
}

/* What gnuplot writes is the file, and what it reads is the whole chart. */
static void test_png(void **state) {
  (void)state;
  char path_variable[128], copy_variable[128];
  snprintf(path_variable, sizeof path_variable, "PATH=%s", folder);
  snprintf(copy_variable, sizeof copy_variable, "SCRIPT_COPY=%s", in_folder("script"));
  const char *const environment[] = {path_variable, copy_variable, NULL};
  write_gnuplot("#!/bin/sh\n/bin/cat >\"$SCRIPT_COPY\"\necho drawn\n");
  const char *chart = in_folder("chart.png");
  run_result r = WEFT_IN(environment, "sweep", "tiny", "small", "--device=cpu", "-r", "1", "--plot", chart);
  assert_status(&r, 0);
  assert_null(strstr(r.out, "drawn"));
  run_clear(&r);
  char *drawn = read_file(chart), *script = read_file(in_folder("script"));
  assert_string_equal(drawn, "drawn\n");
  static const char *const parts[] = {"set terminal png", "set logscale xy", "'tiny'", "'small'", "\nplot '-'", "'cpu'",
                                      "\n4.194304 ",      "\n268.435456 ",   "\ne\n"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (!strstr(script, parts[i])) fail_msg("no \"%s\" in the script: %s", parts[i], script);
  free(drawn);
  free(script);
}

/* A gnuplot that is there but fails leaves no file behind. */
static void test_png_fails(void **state) {
  (void)state;
  char path_variable[128];
  snprintf(path_variable, sizeof path_variable, "PATH=%s", folder);
  const char *const environment[] = {path_variable, NULL};
  write_gnuplot("#!/bin/sh\nread -r line || exit 0\necho half\nexit 1\n");
  const char *chart = in_folder("half.png");
  run_result r = WEFT_IN(environment, "sweep", "tiny", "--device=cpu", "-r", "1", "--plot", chart);
  assert_status(&r, 1);
  assert_non_null(strstr(r.err, "gnuplot: could not draw"));
  assert_int_equal(access(chart, F_OK), -1);
  run_clear(&r);
}

/* ---- demos ---- */

static void test_demo_list(void **state) {
  (void)state;
  run_result r = WEFT_IN(NULL, "demo");
  assert_status(&r, 0);
  assert_memory_equal(r.out, "4  the GPU", 10);
  assert_int_equal(count(r.out, "\n"), 1);
  run_clear(&r);
  json_t *root = take_json(WEFT_IN(NULL, "demo", "--json"), 0);
  assert_int_equal(json_array_size(get(root, "demos")), 1);
  assert_int_equal(json_integer_value(get(json_array_get(get(root, "demos"), 0), "number")), 4);
  json_decref(root);
  static const char *const wrong[] = {"1", "5", "four", "", "4x", "-4"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_error(WEFT_IN(NULL, "demo", "--", wrong[i]), 2, "demo");
}

static void test_demo_gpu(void **state) {
  (void)state;
  static const char *const names[] = {"8x(32x24) @ (24x40)", "512x512 @ 512x512", "scale", "add", "relu"};
  for (int i = 0; gpu_env_generations[i]; i++) {
    gpu_env_use(gpu_env_generations[i]);
    json_t *root = take_json(WEFT_IN(NULL, "demo", "4", "--device", "gpu", "--json"), 0);
    assert_int_equal(json_array_size(get(root, "checks")), 5);
    for (size_t k = 0; k < 5; k++) {
      const json_t *check = json_array_get(get(root, "checks"), k);
      assert_string_equal(get_text(check, "name"), names[k]);
      assert_true(get_number(check, "max_error") <= MAX_ERROR);
      assert_true(json_is_true(get(check, "passed")));
    }
    assert_true(get_number(root, "cpu_ms") > 0 && get_number(root, "resident_ms") > 0);
    assert_true(get_number(root, "gpu_xfer_ms") > 0);
    json_decref(root);
  }
  gpu_env_use(NULL);
}

static void test_demo_text(void **state) {
  (void)state;
  if (!use_first_generation()) return;
  run_result r = WEFT_IN(NULL, "demo", "4", "--device", "gpu");
  assert_status(&r, 0);
  assert_int_equal(count(r.out, "  ok\n"), 5);
  assert_non_null(strstr(r.out, "ms on the CPU"));
  run_clear(&r);
  gpu_env_use(NULL);
}

/* ---- the suite ---- */

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  static const char *const names[] = {"chart.svg", "one.svg", "gnuplot", "script", "chart.png"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(in_folder(names[i]));
  return rmdir(folder);
}

int main(void) {
  gpu_env_prepare();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ladder),       cmocka_unit_test(test_chosen_shapes),    cmocka_unit_test(test_batched_b),
      cmocka_unit_test(test_cpu_variants), cmocka_unit_test(test_no_gpu),           cmocka_unit_test(test_demo_no_gpu),
      cmocka_unit_test(test_gpu_rows),     cmocka_unit_test(test_gpu_table),        cmocka_unit_test(test_gpu_choice),
      cmocka_unit_test(test_svg),          cmocka_unit_test(test_svg_of_one_shape), cmocka_unit_test(test_plot_errors),
      cmocka_unit_test(test_png),          cmocka_unit_test(test_png_fails),        cmocka_unit_test(test_demo_list),
      cmocka_unit_test(test_demo_gpu),     cmocka_unit_test(test_demo_text),
  };
  return cmocka_run_group_tests_name("sweep", tests, make_folder, remove_folder);
}
