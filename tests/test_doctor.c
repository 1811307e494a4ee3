/* test_doctor.c - weft doctor: what it finds right and wrong, and that each thing wrong comes with what to do. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/folder.h"
#include "support/gpu_env.h"
#include "support/weft_program.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char models_setting[200], home_setting[200];

/* A home with a model folder, so that what the machine has does not matter. */
static int prepare(void **state) {
  if (folder_create(state)) return -1;
  snprintf(models_setting, sizeof models_setting, "WEFT_MODELS=%s", in_folder("models"));
  snprintf(home_setting, sizeof home_setting, "HOME=%s", folder_path());
  return mkdir(in_folder("models"), 0700);
}

/* The report with one more setting; the caller drops it. */
static json_t *examine(const char *setting, int status) {
  const char *const environment[] = {"XDG_CACHE_HOME", home_setting, models_setting, setting, NULL};
  return take_json(WEFT_IN(environment, "doctor", "--json"), status);
}

/* The first check of that name whose message holds `part`; NULL if there is none. */
static const json_t *find_check(const json_t *root, const char *name, const char *part) {
  const json_t *checks = get(root, "checks");
  for (size_t i = 0; i < json_array_size(checks); i++) {
    const json_t *check = json_array_get(checks, i);
    if (strcmp(get_text(check, "name"), name) == 0 && strstr(get_text(check, "message"), part)) return check;
  }
  return NULL;
}

/* Every check has the keys, advice exactly if something is to be done, and the sums are right. */
static void check_form(const json_t *root) {
  int n[3] = {0};
  static const char *const statuses[] = {"ok", "warning", "failure"}, *const sums[] = {"n_ok", "n_warnings",
                                                                                       "n_failures"};
  const json_t *checks = get(root, "checks");
  for (size_t i = 0; i < json_array_size(checks); i++) {
    const json_t *check = json_array_get(checks, i);
    int status = 0;
    while (status < 3 && strcmp(get_text(check, "status"), statuses[status]) != 0) status++;
    assert_true(status < 3);
    n[status]++;
    assert_int_equal(json_is_null(get(check, "advice")), status == 0);
    assert_true(*get_text(check, "message"));
  }
  for (int i = 0; i < 3; i++) assert_int_equal((int)get_number(root, sums[i]), n[i]);
}

/* In a place where all is well there is no failure, and each subject is named. */
static void test_well(void **state) {
  (void)state;
  static const char *const names[] = {"cpu", "threads", "memory", "model folder", "cache folder"};
  json_t *root = examine(NULL, 0);
  check_form(root);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!find_check(root, names[i], "")) fail_msg("there is no check %s", names[i]);
  assert_true(find_check(root, "webgpu library", "") || find_check(root, "gpu", "no GPU code"));
  assert_non_null(find_check(root, "model folder", "0 models"));
  assert_string_equal(get_text(find_check(root, "environment", "WEFT_MODELS="), "status"), "ok");
  json_decref(root);
}

/* Each setting that is wrong is a failure that names it, and the exit status says so. */
static void test_wrong_settings(void **state) {
  (void)state;
  static const char *const wrong[] = {"WEFT_CPU=nonsense",
                                      "WEFT_THREADS=0",
                                      "WEFT_THREADS=many",
                                      "WEFT_ADAPTER=first",
                                      "WEFT_STRICT=yes",
                                      "WEFT_GPU_TRACE=2",
                                      "WEFT_WGPU_LIB=/nonexistent/lib.so",
                                      "WEFT_MODELS=/dev/null"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    json_t *root = examine(wrong[i], 1);
    check_form(root);
    const json_t *check = find_check(root, "environment", wrong[i]);
    if (!check) fail_msg("%s is not found", wrong[i]);
    assert_string_equal(get_text(check, "status"), "failure");
    json_decref(root);
  }
}

/* What works but is slow, or does nothing, is a warning. */
static void test_doubtful_settings(void **state) {
  (void)state;
  static const struct {
    const char *setting, *name, *part;
  } doubtful[] = {
      {"WEFT_CPU=scalar", "cpu", "scalar"},
      {"WEFT_THREADS=256", "threads", "256 threads share"},
      {"WEFT_GPU_CHECKED=1", "environment", "makes GPUs slower"},
      {"WEFT_THREDS=2", "environment", "WEFT_THREDS: weft reads no such variable"},
      {"WEFT_MODELS=/nonexistent/models", "model folder", "/nonexistent/models"},
  };
  for (size_t i = 0; i < sizeof doubtful / sizeof *doubtful; i++) {
    json_t *root = examine(doubtful[i].setting, 0);
    const json_t *check = find_check(root, doubtful[i].name, doubtful[i].part);
    if (!check) fail_msg("%s is not found", doubtful[i].setting);
    assert_string_equal(get_text(check, "status"), "warning");
    json_decref(root);
  }
  json_t *root = examine("WEFT_THREDS=2", 0);
  assert_non_null(strstr(get_text(find_check(root, "environment", "THREDS"), "advice"), "WEFT_THREADS"));
  json_decref(root);
}

/* Folders that cannot be written to. */
static void test_read_only_folders(void **state) {
  (void)state;
  char cache[200], models[200];
  assert_int_equal(mkdir(in_folder("locked"), 0500), 0);
  snprintf(cache, sizeof cache, "XDG_CACHE_HOME=%s", in_folder("locked"));
  snprintf(models, sizeof models, "WEFT_MODELS=%s", in_folder("locked/models"));
  const run_options o = {.permissions_apply = 1, .environment = (const char *const[]){cache, models, NULL}};
  json_t *root = take_json(WEFT(&o, "doctor", "--json"), 1);
  check_form(root);
  assert_string_equal(get_text(find_check(root, "cache folder", "Permission denied"), "status"), "warning");
  assert_string_equal(get_text(find_check(root, "model folder", "Permission denied"), "status"), "failure");
  json_decref(root);
}

/* Software drivers are named as such; without any, the reason. */
static void test_gpus(void **state) {
  (void)state;
  if (gpu_env_generations[0]) gpu_env_use(gpu_env_generations[0]);
  json_t *root = examine("VK_DRIVER_FILES=/nonexistent", 0);
  const json_t *check = find_check(root, "gpu", "");
  assert_non_null(check);
  if (!strstr(get_text(check, "message"), "no GPU code")) assert_string_equal(get_text(check, "status"), "warning");
  json_decref(root);
}

/* ---- weft devices ---- */

/* Whatever the lines of --json say of a device is in the form for people too. */
static void check_device(const json_t *row, const char *text) {
  static const char *const keys[] = {"name", "kind", "backend", "driver", "generation", "library_version", "library"};
  if (json_is_string(get(row, "device"))) {
    assert_non_null(strstr(text, get_text(row, "variant")));
    return;
  }
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strstr(text, get_text(row, keys[i]))) fail_msg("%s is not shown: %s", keys[i], text);
  for (size_t i = 0; i < json_array_size(get(row, "features")); i++)
    assert_non_null(strstr(text, json_string_value(json_array_get(get(row, "features"), i))));
  assert_true(get_number(row, "max_buffer_bytes") > 0 && get_number(row, "max_bindings") > 0);
  get(row, "memory_bytes");
}

static void test_devices(void **state) {
  (void)state;
  run_result text = WEFT(NULL, "devices"), lines = WEFT(NULL, "devices", "--json");
  assert_status(&text, 0);
  assert_status(&lines, 0);
  int n = 0;
  for (char *line = lines.out; *line; line = strchr(line, '\n') + 1, n++) {
    json_t *row = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(row);
    check_device(row, text.out);
    json_decref(row);
  }
  assert_true(n >= 1);
  run_clear(&text);
  run_clear(&lines);
}

/* The form for people says the same. */
static void test_text(void **state) {
  (void)state;
  const char *const environment[] = {home_setting, models_setting, "WEFT_THREADS=0", NULL};
  run_result r = WEFT_IN(environment, "doctor");
  assert_status(&r, 1);
  assert_string_equal(r.err, "");
  assert_non_null(strstr(r.out, "failure  threads"));
  assert_non_null(strstr(r.out, " -> correct"));
  assert_non_null(strstr(r.out, " failures\n"));
  assert_null(strchr(r.out, '\033'));
  run_clear(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_well),
      cmocka_unit_test(test_wrong_settings),
      cmocka_unit_test(test_doubtful_settings),
      cmocka_unit_test(test_read_only_folders),
      cmocka_unit_test(test_gpus),
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_devices),
  };
  gpu_env_prepare();
  return cmocka_run_group_tests(tests, prepare, folder_remove);
}
