/* test_bench.c - weft bench gemm, matvec, ops, attention and load as their users meet them.
 *
 * Times are whatever they are on this machine: the tests ask that they are there, in the cases asked for, and that what
 * is computed from them agrees. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/gpu_env.h"
#include "support/weft_program.h"
#include "weft/tensor.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const no_gpu[] = {"WEFT_WGPU_LIB=/nonexistent/libwgpu_native.so", NULL};

/* ---- looking at results ---- */

static const json_t *case_at(const json_t *root, size_t i) { return json_array_get(get(root, "cases"), i); }

static void assert_near(double x, double want) {
  if (!(fabs(x / want - 1) < 1e-6)) fail_msg("%g, not %g", x, want);
}

/* A case with its name, times in order, and a rate of `work` millions a millisecond as a fraction of `peak`. */
static void assert_case(const json_t *row, const char *name, const char *rate, double work, double peak) {
  double median_ms = get_number(row, "median_ms"), min_ms = get_number(row, "min_ms");
  assert_string_equal(get_text(row, "name"), name);
  assert_true(min_ms > 0 && min_ms <= median_ms);
  assert_near(get_number(row, rate), 1e-6 * work / median_ms);
  assert_near(get_number(row, "fraction_of_peak"), get_number(row, rate) / peak);
}

/* ---- gemm ---- */

static void assert_bound(const json_t *row) {
  const char *bound = get_text(row, "bound_by");
  assert_true(strcmp(bound, "launch") == 0 || strcmp(bound, "memory") == 0 || strcmp(bound, "arithmetic") == 0);
}

/* Each way to write a shape. */
static void test_gemm_shapes(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double n_flops;
  } cases[] = {{"64x64@64x64", 2.0 * 64 * 64 * 64},
               {"100x784@784x128", 2.0 * 100 * 784 * 128},
               {"5x6@6x7", 2.0 * 5 * 6 * 7},
               {"3x16x32@32x8", 2.0 * 3 * 16 * 32 * 8}};
  json_t *root = take_json(WEFT_IN(NULL, "bench", "gemm", "64", "100x784@784x128", "5x6x7", "3x16x32@32x8",
                                   "--device=cpu", "-r", "2", "--json"),
                           0);
  double peak = get_number(root, "peak_gflops");
  assert_memory_equal(get_text(root, "device"), "cpu (", 5);
  assert_int_equal(json_integer_value(get(root, "n_reps")), 2);
  assert_true(get_number(root, "copy_gb_per_s") > 0);
  assert_int_equal(json_array_size(get(root, "cases")), 4);
  for (size_t i = 0; i < 4; i++) {
    const json_t *row = case_at(root, i);
    assert_case(row, cases[i].name, "gflops", cases[i].n_flops, peak);
    assert_bound(row);
    assert_string_equal(get_text(row, "tile"), "auto");
    assert_true(json_is_null(get(row, "occupancy_estimate")));
    assert_true(json_is_null(get(row, "peer_gflops")));
    assert_true(json_is_null(get(row, "ratio")));
  }
  json_decref(root);
}

static void test_gemm_text(void **state) {
  (void)state;
  run_result r = WEFT_IN(NULL, "bench", "gemm", "32", "--device", "cpu", "-t", "1", "-r", "1");
  assert_status(&r, 0);
  assert_non_null(strstr(r.out, "multiply-adds in registers"));
  assert_non_null(strstr(r.out, "GFLOP/s"));
  assert_non_null(strstr(r.out, "\n32x32@32x32 "));
  assert_null(strstr(r.out, "tile"));
  assert_null(strstr(r.out, "peer"));
  run_clear(&r);
}

static void test_gemm_errors(void **state) {
  (void)state;
  static const char *const shapes[] = {"0",           "12y", "2x3",         "2x3@4x5",  "1x2x3@3",
                                       "1x2x3x4@4x5", "@",   "3x4@4x5@5x6", "16777217", "1048576x1048576@1048576x1",
                                       "-1",          "x2x3"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    assert_error(WEFT_IN(NULL, "bench", "gemm", "--device=cpu", "--", shapes[i]), 2, shapes[i]);
  assert_error(WEFT_IN(NULL, "bench", "gemm", "8", "--device=cpu", "--tile", "16"), 2, "--tile");
  assert_error(WEFT_IN(NULL, "bench", "gemm", "8", "--device=cpu", "--tile", "16,17"), 2, "'17'");
  assert_error(WEFT_IN(NULL, "bench", "gemm", "8", "--device=cpu", "--tile", ""), 2, "''");
  assert_error(WEFT_IN(NULL, "bench", "gemm", "8", "--tile", "8,8,8,8,8,8"), 2, "one too many");
  assert_error(WEFT_IN(NULL, "bench", "gemm", "8", "--reps", "0"), 2, "--reps");
  assert_error(WEFT_IN(NULL, "bench", "gemm", "8", "--device=cpu", "--peer-blas", "/nonexistent/libblas.so"), 1,
               "/nonexistent/libblas.so");
  assert_error(WEFT_IN(NULL, "bench", "gemm", "8", "--device=cpu", "--peer-blas", "libm.so.6"), 1, "cblas_sgemm");
  assert_error(WEFT_IN(no_gpu, "bench", "gemm", "8", "--device=gpu"), 3, "");
}

/* ---- matvec and ops ---- */

static void test_matvec(void **state) {
  (void)state;
  json_t *root = take_json(WEFT_IN(NULL, "bench", "matvec", "300x200", "64x1", "--device=cpu", "-r", "2", "--json"), 0);
  double copy = get_number(root, "copy_gb_per_s");
  assert_true(json_is_null(get(root, "peak_gflops")));
  assert_int_equal(json_array_size(get(root, "cases")), 2);
  assert_case(case_at(root, 0), "300x200", "gb_per_s", 4.0 * 300 * 200, copy);
  assert_case(case_at(root, 1), "64x1", "gb_per_s", 4.0 * 64, copy);
  json_decref(root);
  root = take_json(
      WEFT_IN(NULL, "bench", "matvec", "300x256", "--device=cpu", "-r", "2", "--format=q8_0,q4_k", "--json"), 0);
  copy = get_number(root, "copy_gb_per_s");
  assert_int_equal(json_array_size(get(root, "cases")), 2);
  assert_case(case_at(root, 0), "300x256 q8_0", "gb_per_s", 300 * 8 * 34, copy);
  assert_case(case_at(root, 1), "300x256 q4_k", "gb_per_s", 300 * 144, copy);
  json_decref(root);
  root = take_json(WEFT_IN(NULL, "bench", "matvec", "16x256", "--device=cpu", "-r", "1", "--format=all", "--json"), 0);
  assert_int_equal(json_array_size(get(root, "cases")), WEFT_DTYPE_COUNT - 1);
  json_decref(root);
  root = take_json(
      WEFT_IN(NULL, "bench", "matvec", "30x64", "--device=cpu", "-r", "1", "--format=q8_0", "--rows=7", "--json"), 0);
  const json_t *row = case_at(root, 0);
  assert_near(get_number(row, "gflops"), 2e-6 * 7 * 30 * 64 / get_number(row, "median_ms"));
  json_decref(root);
  assert_error(WEFT_IN(NULL, "bench", "matvec", "--rows=7"), 2, "--rows");
  assert_error(WEFT_IN(NULL, "bench", "matvec", "--format=q8_0,q9"), 2, "'q9'");
  assert_error(WEFT_IN(NULL, "bench", "matvec", "3x64", "--format=q4_k"), 2, "multiple of 256");
  assert_error(WEFT_IN(NULL, "bench", "matvec", "300"), 2, "'300'");
  assert_error(WEFT_IN(NULL, "bench", "matvec", "3x3x3"), 2, "'3x3x3'");
  assert_error(WEFT_IN(NULL, "bench", "matvec", "1048576x1048576"), 2, "1048576x1048576");
  assert_error(WEFT_IN(no_gpu, "bench", "matvec", "3x3", "--device=0"), 3, "");
}

/* Each operator's row: its bytes, as a rate of the scale's and of the copy's. */
static void assert_ops(const json_t *root) {
  static const struct {
    const char *name;
    double n_elements; /* read and written */
  } ops[] = {{"scale 64x128", 2 * 64 * 128},
             {"add 64x128", 3 * 64 * 128},
             {"gelu 64x128", 2 * 64 * 128},
             {"gelu_grad 64x128", 3 * 64 * 128},
             {"softmax 64x128", 2 * 64 * 128},
             {"softmax_grad 64x128", 3 * 64 * 128},
             {"layer_norm 64x128", 2 * 64 * 128},
             {"layer_norm_grad 64x128", 3 * 64 * 128},
             {"rms_norm 64x128", 2 * 64 * 128},
             {"rms_norm_grad 64x128", 3 * 64 * 128},
             {"permute 64x128", 2 * 64 * 128},
             {"transpose 64x128", 2 * 64 * 128},
             {"sum_rows 64x128", 64 * 128},
             {"sum_columns 64x128", 64 * 128},
             {"embed_grad 64x128", (64 + 3 * 8192) * 128}};
  double copy = get_number(root, "copy_gb_per_s");
  assert_int_equal(json_array_size(get(root, "cases")), sizeof ops / sizeof *ops);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    const json_t *row = case_at(root, i);
    assert_case(row, ops[i].name, "gb_per_s", 4 * ops[i].n_elements, get_number(case_at(root, 0), "gb_per_s"));
    assert_near(get_number(row, "fraction_of_copy"), get_number(row, "gb_per_s") / copy);
  }
}

/* 16 does not divide the rows: there is nothing to permute. */
static void test_odd_ops(void **state) {
  (void)state;
  json_t *root = take_json(WEFT_IN(NULL, "bench", "ops", "3x5", "--device=cpu", "-r", "1", "--json"), 0);
  assert_int_equal(json_array_size(get(root, "cases")), 14);
  for (size_t i = 0; i < 14; i++) assert_string_not_equal(get_text(case_at(root, i), "name"), "permute 3x5");
  json_decref(root);
}

static void test_ops(void **state) {
  (void)state;
  json_t *root = take_json(WEFT_IN(NULL, "bench", "ops", "64x128", "--device=cpu", "-r", "2", "--json"), 0);
  assert_ops(root);
  json_decref(root);
  run_result r = WEFT_IN(NULL, "bench", "ops", "64x128", "--device=cpu", "-r", "1");
  assert_status(&r, 0);
  assert_non_null(strstr(r.out, "\nsoftmax 64x128 "));
  assert_non_null(strstr(r.out, "of scale"));
  run_clear(&r);
  assert_error(WEFT_IN(NULL, "bench", "ops", "64x"), 2, "'64x'");
}

/* ---- attention ---- */

static void assert_attention(const json_t *root) {
  assert_int_equal(json_array_size(get(root, "cases")), 2);
  for (size_t i = 0; i < 2; i++) {
    const json_t *row = case_at(root, i);
    double median_ms = get_number(row, "median_ms"), min_ms = get_number(row, "min_ms");
    assert_string_equal(get_text(row, "name"), i ? "forward + backward 2x70x24" : "forward 2x70x24");
    assert_true(min_ms > 0 && min_ms <= median_ms);
    assert_near(get_number(row, "gflops"), 1e-6 * (i ? 14 : 4) * 2 * 70 * 70 / 2 * 24 / median_ms);
  }
}

static void test_attention(void **state) {
  (void)state;
  json_t *root = take_json(WEFT_IN(NULL, "bench", "attention", "2x70x24", "--device=cpu", "-r", "2", "--json"), 0);
  assert_attention(root);
  json_decref(root);
  run_result r = WEFT_IN(NULL, "bench", "attention", "1x5x4", "--device=cpu", "-r", "1");
  assert_status(&r, 0);
  assert_non_null(strstr(r.out, "\nforward + backward 1x5x4 "));
  run_clear(&r);
  assert_error(WEFT_IN(NULL, "bench", "attention", "2x70"), 2, "'2x70'");
  assert_error(WEFT_IN(NULL, "bench", "attention", "64x1048576x64"), 2, "64x1048576x64");
}

/* ---- on a GPU ---- */

/* Rows of all kernels side by side; the estimates follow from the workgroups that the help page describes. */
static void test_tiles(void **state) {
  (void)state;
  static const struct {
    const char *tile;
    double occupancy;
  } tiles[] = {{"naive", 1}, {"8", 1}, {"16", 1}, {"32", 0.75}};
  for (int g = 0; gpu_env_generations[g]; g++) {
    gpu_env_use(gpu_env_generations[g]);
    json_t *root = take_json(
        WEFT_IN(NULL, "bench", "gemm", "64", "--tile", "naive,8,16,32,auto", "--device=gpu", "-r", "1", "--json"), 0);
    assert_int_equal(json_array_size(get(root, "cases")), 5);
    for (size_t i = 0; i < 5; i++) {
      const json_t *row = case_at(root, i);
      assert_case(row, "64x64@64x64", "gflops", 2.0 * 64 * 64 * 64, get_number(root, "peak_gflops"));
      assert_bound(row);
      assert_string_equal(get_text(row, "tile"), i < 4 ? tiles[i].tile : "auto");
      if (i < 4) assert_near(get_number(row, "occupancy_estimate"), tiles[i].occupancy);
    }
    assert_true(json_is_null(get(case_at(root, 4), "occupancy_estimate")));
    json_decref(root);
  }
  gpu_env_use(NULL);
}

static void test_gpu_ops(void **state) {
  (void)state;
  for (int g = 0; gpu_env_generations[g]; g++) {
    gpu_env_use(gpu_env_generations[g]);
    json_t *root = take_json(WEFT_IN(NULL, "bench", "ops", "64x128", "--device=gpu", "-r", "1", "--json"), 0);
    assert_ops(root);
    json_decref(root);
    root = take_json(WEFT_IN(NULL, "bench", "attention", "2x70x24", "--device=gpu", "-r", "1", "--json"), 0);
    assert_attention(root);
    json_decref(root);
  }
  gpu_env_use(NULL);
}

/* The table of the trace names the operators that have run; a run without the variable has none. */
static void test_trace(void **state) {
  (void)state;
  static const char *const trace[] = {"WEFT_GPU_TRACE=1", NULL};
  if (!gpu_env_generations[0]) skip(); /* a build without GPU code */
  gpu_env_use(gpu_env_generations[0]);
  run_result r = WEFT_IN(trace, "bench", "matvec", "64x64", "--device=gpu", "-r", "1");
  assert_status(&r, 0);
  assert_non_null(strstr(r.err, "matmul"));
  assert_non_null(strstr(r.err, "scale"));
  run_clear(&r);
  r = WEFT_IN(NULL, "bench", "matvec", "64x64", "--device=gpu", "-r", "1");
  assert_status(&r, 0);
  assert_string_equal(r.err, "");
  run_clear(&r);
  assert_error(WEFT_IN(NULL, "bench", "gemm", "8", "--device=gpu", "--peer-blas", "libm.so.6"), 2, "--peer-blas");
  gpu_env_use(NULL);
}

/* ---- load ---- */

static const char *model(void) {
  const char *path = getenv("WEFT_TEST_MODEL");
  return path ? path : "models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

/* Mapped and read: both cases, and the rates of the file's size.  Read means that all of the file was fetched at some time,
 * and is in memory beside the weights. */
static void test_load(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    json_t *root = take_json(WEFT(NULL, "bench", "load", model(), "-r", "2", "--json", i ? "--no-mmap" : "--quiet"), 0);
    double n_bytes = get_number(root, "file_bytes");
    assert_int_equal(json_array_size(get(root, "cases")), 2);
    for (size_t c = 0; c < 2; c++) {
      const json_t *row = case_at(root, c);
      double median_ms = get_number(row, "median_ms"), min_ms = get_number(row, "min_ms");
      assert_string_equal(get_text(row, "name"), c ? "warm" : "cold");
      assert_true(min_ms > 0 && min_ms <= median_ms);
      assert_near(get_number(row, "gb_per_s"), 1e-6 * n_bytes / median_ms);
      assert_non_null(json_object_get(row, "storage_bytes"));
    }
    assert_true(get_number(root, "peak_bytes") > n_bytes);
    assert_memory_equal(get_text(root, "device"), "cpu (", 5);
    json_decref(root);
  }
  run_result text = WEFT(NULL, "bench", "load", model(), "-r", "1");
  assert_status(&text, 0);
  assert_non_null(strstr(text.out, "\ncold "));
  assert_non_null(strstr(text.out, "\nwarm "));
  run_clear(&text);
}

int main(void) {
  gpu_env_prepare();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gemm_shapes), cmocka_unit_test(test_gemm_text), cmocka_unit_test(test_gemm_errors),
      cmocka_unit_test(test_matvec),      cmocka_unit_test(test_ops),       cmocka_unit_test(test_odd_ops),
      cmocka_unit_test(test_attention),   cmocka_unit_test(test_tiles),     cmocka_unit_test(test_gpu_ops),
      cmocka_unit_test(test_trace),       cmocka_unit_test(test_load),
  };
  return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
