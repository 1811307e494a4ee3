/* test_models.c - the model folder: weft models, weft models rm, models in several files; and what every command that
 * opens a model says of a path that is none. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/folder.h"
#include "support/gguf_writer.h"
#include "support/weft_program.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the folder ---- */

/* Runs weft with the model folder in the temporary one. */
#define HERE(...) WEFT_IN(((const char *const[]){models_variable(), NULL}), __VA_ARGS__)

static const char *models_variable(void) {
  static char variable[200];
  snprintf(variable, sizeof variable, "WEFT_MODELS=%s", in_folder("models"));
  return variable;
}

/* A file of a family with two tensors: most of its weights are of 4 bits. */
static void save_model(const char *path, const char *family) {
  gguf_writer w;
  static const unsigned char zeros[64 * 20];
  gguf_writer_init(&w);
  gguf_writer_string(&w, "general.architecture", family);
  gguf_writer_tensor(&w, "matrix", 3, 2, (const int64_t[]){64, 32}, zeros, sizeof zeros);
  gguf_writer_tensor(&w, "vector", 0, 1, (const int64_t[]){8}, zeros, 32);
  gguf_writer_save(&w, path);
}

/* Small.gguf, a model in three files, one whose first file is missing, one that is none, and what must not be listed. */
static void fill_folder(void) {
  run_result r = run_program((const char *const[]){"rm", "-rf", in_folder("models"), NULL}, NULL);
  run_clear(&r);
  assert_int_equal(mkdir(in_folder("models"), 0700), 0);
  save_model(in_folder("models/Small.gguf"), "llama");
  save_model(in_folder("models/big-00001-of-00003.gguf"), "qwen2");
  write_text("models/big-00002-of-00003.gguf", "GGUF");
  write_text("models/big-00003-of-00003.gguf", "GGUFGGUF");
  write_text("models/headless-00002-of-00002.gguf", "GGUF");
  write_text("models/broken\033.gguf", "no model");
  write_text("models/.hidden.gguf", "GGUF");
  write_text("models/readme.txt", "text");
}

/* The object of each line, by name; the caller drops it. */
static json_t *read_rows(run_result r) {
  json_t *rows = json_object();
  assert_status(&r, 0);
  for (char *line = r.out; *line; line = strchr(line, '\n') + 1) {
    json_t *row = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    if (!row) fail_msg("not JSON: %s", line);
    assert_int_equal(json_object_set_new(rows, get_text(row, "name"), row), 0);
  }
  run_clear(&r);
  return rows;
}

static void test_list(void **state) {
  (void)state;
  fill_folder();
  json_t *rows = read_rows(HERE("models", "--json"));
  assert_int_equal(json_object_size(rows), 3);
  json_t *small = get(rows, "Small"), *big = get(rows, "big"), *broken = get(rows, "broken\033");
  struct stat info;
  assert_int_equal(stat(in_folder("models/Small.gguf"), &info), 0);
  assert_string_equal(get_text(small, "path"), in_folder("models/Small.gguf"));
  assert_string_equal(get_text(small, "family"), "llama");
  assert_string_equal(get_text(small, "quant"), "Q4_1");
  assert_int_equal((int)get_number(small, "file_bytes"), info.st_size);
  assert_int_equal((int)get_number(small, "n_params"), 64 * 32 + 8);
  assert_true(json_is_null(get(small, "error")));
  assert_int_equal((int)get_number(big, "n_files"), 3);
  assert_int_equal((int)get_number(big, "file_bytes"), info.st_size + 12);
  assert_true(json_is_null(get(broken, "family")));
  assert_non_null(strstr(get_text(broken, "error"), "not a GGUF file"));
  json_decref(rows);
}

/* A line a model, in the order of names, without a control character whatever a file is called. */
static void test_list_text(void **state) {
  (void)state;
  fill_folder();
  run_result r = HERE("models");
  assert_status(&r, 0);
  assert_string_equal(r.err, "");
  assert_memory_equal(r.out, "Small ", 6);
  assert_non_null(strstr(r.out, "\nbig "));
  assert_non_null(strstr(r.out, "\nbroken\\x1B "));
  assert_non_null(strstr(r.out, "llama"));
  assert_null(strchr(r.out, '\033'));
  run_clear(&r);
  r = WEFT_IN(((const char *const[]){"WEFT_MODELS=/nonexistent", NULL}), "models");
  assert_status(&r, 0);
  assert_string_equal(r.out, "");
  assert_non_null(strstr(r.err, "no model in /nonexistent"));
  run_clear(&r);
}

/* A model in several files is found by its name; one without its first file is not. */
static void test_split_name(void **state) {
  (void)state;
  fill_folder();
  run_result r = HERE("info", "Smal");
  assert_status(&r, 0);
  run_clear(&r);
  r = HERE("info", "big", "--json");
  if (!strstr(r.status ? r.err : r.out, "big-00001-of-00003.gguf")) fail_msg("%s%s", r.out, r.err);
  run_clear(&r);
  assert_error(HERE("info", "headless"), 1, "no such model");
}

/* ---- removing ---- */

static int exists(const char *name) { return access(in_folder(name), F_OK) == 0; }

/* All parts go, and nothing else. */
static void test_remove(void **state) {
  (void)state;
  fill_folder();
  json_t *root = take_json(HERE("models", "rm", "big", "BIG", "--json"), 0);
  assert_int_equal((int)json_array_size(get(root, "removed")), 3);
  assert_true(get_number(root, "removed_bytes") > 12);
  json_decref(root);
  assert_false(exists("models/big-00001-of-00003.gguf") || exists("models/big-00003-of-00003.gguf"));
  assert_true(exists("models/Small.gguf") && exists("models/headless-00002-of-00002.gguf"));
  run_result r = HERE("models", "rm", "small.gguf");
  assert_status(&r, 0);
  assert_memory_equal(r.out, "removed /", 9);
  assert_false(exists("models/Small.gguf"));
  run_clear(&r);
}

/* Models that would have the same name are kept apart, and only the one that is named goes. */
static void test_same_name(void **state) {
  (void)state;
  fill_folder();
  save_model(in_folder("models/big.gguf"), "llama");
  save_model(in_folder("models/big-00001-of-00002.gguf"), "llama");
  json_t *rows = read_rows(HERE("models", "--json"));
  assert_int_equal((int)get_number(get(rows, "big"), "n_files"), 1);
  assert_int_equal((int)get_number(get(rows, "big-00001-of-00002"), "n_files"), 1);
  assert_int_equal((int)get_number(get(rows, "big-00001-of-00003"), "n_files"), 3);
  json_decref(rows);
  run_result r = HERE("models", "rm", "big");
  assert_status(&r, 0);
  run_clear(&r);
  assert_false(exists("models/big.gguf"));
  assert_true(exists("models/big-00001-of-00002.gguf") && exists("models/big-00003-of-00003.gguf"));
  r = HERE("models", "rm", "big-00001-of-00003.gguf");
  assert_status(&r, 0);
  run_clear(&r);
  assert_true(exists("models/big-00001-of-00002.gguf"));
  assert_false(exists("models/big-00001-of-00003.gguf") || exists("models/big-00003-of-00003.gguf"));
}

/* A beginning is not enough, and one wrong name removes nothing. */
static void test_remove_wrong(void **state) {
  (void)state;
  fill_folder();
  assert_error(HERE("models", "rm", "Smal"), 1, "no such model");
  assert_error(HERE("models", "rm", "Small", "bg"), 1, "(near: big,");
  assert_error(HERE("models", "rm"), 2, "an argument is missing");
  assert_error(HERE("models", "rn"), 2, "'rn' is one argument too many");
  assert_true(exists("models/Small.gguf") && exists("models/big-00001-of-00003.gguf"));
}

/* What is removed is the link. */
static void test_remove_link(void **state) {
  (void)state;
  fill_folder();
  save_model(in_folder("kept.gguf"), "llama");
  assert_int_equal(symlink(in_folder("kept.gguf"), in_folder("models/linked.gguf")), 0);
  run_result r = HERE("models", "rm", "linked");
  assert_status(&r, 0);
  run_clear(&r);
  assert_true(exists("kept.gguf"));
  assert_false(exists("models/linked.gguf"));
}

/* The system's reason, and the model is still there. */
static void test_remove_refused(void **state) {
  (void)state;
  fill_folder();
  assert_int_equal(chmod(in_folder("models"), 0500), 0);
  const run_options o = {.permissions_apply = 1, .environment = (const char *const[]){models_variable(), NULL}};
  assert_error(WEFT(&o, "models", "rm", "Small"), 1, "Permission denied");
  assert_int_equal(chmod(in_folder("models"), 0700), 0);
  assert_true(exists("models/Small.gguf"));
}

/* ---- paths that are no models ---- */

/* Every command that opens a model, with what else it needs. */
static const char *const openers[][6] = {
    {"info", "MODEL"},
    {"tokenize", "MODEL", "hi"},
    {"detokenize", "MODEL", "1"},
    {"logits", "MODEL", "-p", "hi"},
    {"score", "MODEL", "--text-file", "/etc/hostname"},
    {"run", "MODEL", "-p", "hi"},
    {"chat", "MODEL"},
    {"bench", "llm", "MODEL"},
    {"bench", "load", "MODEL"},
    {"run", "MODEL", "-p", "hi", "--no-mmap"},
    {"run", "MODEL", "--jsonl"},
};

/* One line with the path and the reason, whatever the command; no command waits for a pipe that nobody writes. */
static void check_openers(const char *path, const char *reason) {
  const run_options o = {.permissions_apply = 1};
  for (size_t i = 0; i < sizeof openers / sizeof *openers; i++) {
    const char *words[7] = {NULL};
    for (int w = 0; w < 6 && openers[i][w]; w++) words[w] = strcmp(openers[i][w], "MODEL") == 0 ? path : openers[i][w];
    run_result r = run_weft(&o, words);
    assert_error_message(&r, 1, path);
    assert_error_message(&r, 1, reason);
    assert_string_equal(r.out, "");
    run_clear(&r);
  }
}

static void test_no_models(void **state) {
  (void)state;
  char secret[128], empty[128], fifo[128];
  snprintf(secret, sizeof secret, "%s", write_text("secret.gguf", "GGUF"));
  snprintf(empty, sizeof empty, "%s", write_text("empty.gguf", ""));
  snprintf(fifo, sizeof fifo, "%s", in_folder("fifo.gguf"));
  assert_int_equal(chmod(secret, 0), 0);
  assert_int_equal(mkfifo(fifo, 0600), 0);
  check_openers("/nonexistent/x.gguf", "No such file or directory");
  check_openers(secret, "Permission denied");
  check_openers(folder_path(), "is a folder");
  check_openers(empty, "empty");
  check_openers(fifo, "is not a regular file");
  check_openers("/dev/null", "is not a regular file");
}

/* ---- texts that cannot be read ---- */

/* Every option that names a file of text. */
static const char *const readers[][5] = {
    {"run", "m", "--prompt-file", "FILE"},    {"run", "m", "--jsonl", "--prompt-file", "FILE"},
    {"logits", "m", "--prompt-file", "FILE"}, {"tokenize", "m", "--file", "FILE"},
    {"detokenize", "m", "--file", "FILE"},    {"score", "m", "--text-file", "FILE"},
};

/* The path and the system's words, before a model is looked for. */
static void check_readers(const char *path, const char *reason) {
  const run_options o = {.permissions_apply = 1};
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
    const char *words[6] = {NULL};
    for (int w = 0; w < 5 && readers[i][w]; w++) words[w] = strcmp(readers[i][w], "FILE") == 0 ? path : readers[i][w];
    run_result r = run_weft(&o, words);
    assert_error_message(&r, 1, path);
    assert_error_message(&r, 1, reason);
    run_clear(&r);
  }
}

static void test_no_texts(void **state) {
  (void)state;
  const char *secret = write_text("secret.txt", "hi");
  assert_int_equal(chmod(secret, 0), 0);
  check_readers("/nonexistent/x.txt", "No such file or directory");
  check_readers(secret, "Permission denied");
  check_readers(folder_path(), "Is a directory");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_list),           cmocka_unit_test(test_list_text),    cmocka_unit_test(test_split_name),
      cmocka_unit_test(test_remove),         cmocka_unit_test(test_remove_wrong), cmocka_unit_test(test_remove_link),
      cmocka_unit_test(test_remove_refused), cmocka_unit_test(test_no_models),    cmocka_unit_test(test_no_texts),
      cmocka_unit_test(test_same_name),
  };
  return cmocka_run_group_tests(tests, folder_create, folder_remove);
}
