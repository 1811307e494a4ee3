/* test_gguf.c - the GGUF reader: what a file holds comes out, and no file can do harm. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/gguf_cases.h"
#include "support/gguf_split.h"
#include "support/gguf_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file that the tests write and open, one after the other. */
static char scratch[] = "/tmp/weft-test-gguf-XXXXXX";

static int create_scratch(void **state) {
  (void)state;
  int descriptor = mkstemp(scratch);
  return descriptor < 0 ? -1 : close(descriptor);
}

static int remove_scratch(void **state) {
  (void)state;
  return unlink(scratch);
}

/* Finishes a file that must open; its tests close it. */
static weft_gguf *open_written(gguf_writer *w) {
  weft_gguf *gguf = NULL;
  gguf_writer_save(w, scratch);
  if (weft_gguf_open(&gguf, scratch)) fail_msg("%s", weft_last_error());
  return gguf;
}

/* The file with every type of value, whose contents gguf_make_full decides and the tests below know. */
static weft_gguf *open_full(void) {
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_make_full(&w);
  return open_written(&w);
}

static void assert_string(weft_gguf_string s, const char *expected) {
  assert_int_equal(s.n_bytes, strlen(expected));
  assert_memory_equal(s.data, expected, s.n_bytes);
}

/* Every message names the file and what is wrong in one printable line. */
static void assert_error(const char *path, const char *why) {
  const char *message = weft_last_error();
  if (strncmp(message, path, strlen(path)) != 0) fail_msg("\"%s\" does not start with %s", message, path);
  if (!strstr(message, why)) fail_msg("\"%s\" does not say \"%s\"", message, why);
  for (const char *c = message; *c; c++) assert_in_range((unsigned char)*c, ' ', '~');
}

/* ---- every kind of file ---- */

/* Opened one way or the other, the file in `scratch` is what the case says; if it opens, it is read all through. */
static void check_case(const gguf_case *c, weft_status (*open)(weft_gguf **, const char *)) {
  weft_gguf *gguf = NULL;
  weft_status status = open(&gguf, scratch);
  if (status != c->status)
    fail_msg("%s: %s (%s)", c->name, weft_status_name(status), status ? weft_last_error() : "opened");
  assert_int_equal(gguf != NULL, status == WEFT_OK);
  if (status == WEFT_OK)
    gguf_walk(gguf);
  else
    assert_error(scratch, c->why);
  weft_gguf_close(gguf);
}

/* The list says what must happen to each file. */
static void test_cases(void **state) {
  (void)state;
  for (size_t i = 0; i < gguf_n_cases; i++) {
    gguf_writer w;
    gguf_writer_init(&w);
    gguf_cases[i].make(&w);
    gguf_writer_save(&w, scratch);
    check_case(&gguf_cases[i], weft_gguf_open);
    check_case(&gguf_cases[i], weft_gguf_read);
  }
}

/* What was read stays, whatever becomes of the file. */
static void test_copy(void **state) {
  (void)state;
  weft_gguf *gguf = NULL;
  weft_gguf_close(open_full()); /* writes the file */
  assert_int_equal(weft_gguf_read(&gguf, scratch), WEFT_OK);
  assert_int_equal(truncate(scratch, 3), 0);
  gguf_walk(gguf);
  for (size_t i = 0; i < weft_gguf_n_tensors(gguf); i++) weft_gguf_release(gguf, weft_gguf_tensor_at(gguf, i));
  gguf_walk(gguf);
  weft_gguf_close(gguf);
  assert_int_equal(weft_gguf_read(&gguf, scratch), WEFT_EFORMAT);
  assert_error(scratch, "");
}

/* What is wrong with a path is said with the path, and in the system's words where it has some. */
static void test_paths(void **state) {
  (void)state;
  weft_gguf *gguf = NULL;
  assert_int_equal(weft_gguf_open(&gguf, "no-such-folder/m.gguf"), WEFT_EIO);
  assert_error("no-such-folder/m.gguf", "No such file");
  assert_int_equal(weft_gguf_open(&gguf, "/tmp"), WEFT_EINVAL);
  assert_error("/tmp", "folder");
  assert_int_equal(weft_gguf_open(&gguf, NULL), WEFT_EINVAL);
  assert_int_equal(weft_gguf_open(NULL, scratch), WEFT_EINVAL);
  assert_null(gguf);
  weft_gguf_close(NULL);
}

/* A key of the longest length, one that is longer, and names too long to be shown whole. */
static void test_long_names(void **state) {
  (void)state;
  char *name = malloc(65537);
  weft_gguf *gguf = NULL;
  gguf_writer w;
  assert_non_null(name);
  memset(name, 'k', 65536);
  name[65536] = 0;

  gguf_writer_init(&w);
  gguf_writer_u32(&w, name + 1, 7);
  gguf_writer_tensor(&w, name + 1, 0, 1, (const int64_t[]){1}, "....", 4);
  gguf = open_written(&w);
  gguf_walk(gguf);
  assert_null(weft_gguf_find(gguf, name));
  weft_gguf_close(gguf);

  gguf_writer_init(&w);
  gguf_writer_u32(&w, name, 7);
  gguf_writer_save(&w, scratch);
  assert_int_equal(weft_gguf_open(&gguf, scratch), WEFT_EFORMAT);
  assert_error(scratch, "key 0 at byte 24: its name has 65536 bytes");

  gguf_writer_init(&w);
  gguf_writer_bool(&w, name + 1, 3);
  gguf_writer_save(&w, scratch);
  assert_int_equal(weft_gguf_open(&gguf, scratch), WEFT_EFORMAT);
  assert_error(scratch, "kkkk...\": bool 0 is 3");
  free(name);
}

/* ---- damage ---- */

/* Whatever the damage, the answer is a file that can be read all through, or an error that names the file. */
static void open_damaged(const void *data, size_t n_bytes, weft_status *status) {
  weft_gguf *gguf = NULL;
  gguf_write_file(scratch, data, n_bytes);
  *status = weft_gguf_open(&gguf, scratch);
  if (*status == WEFT_OK) gguf_walk(gguf);
  if (*status != WEFT_OK) assert_error(scratch, ": ");
  weft_gguf_close(gguf);
}

static weft__bytes full_file(void) {
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_make_full(&w);
  return gguf_writer_finish(&w);
}

/* The last byte of the file is a tensor's, so no prefix is a file. */
static void test_every_prefix(void **state) {
  (void)state;
  weft_status status;
  weft__bytes file = full_file();
  for (size_t n = 0; n < file.n; n++) {
    open_damaged(file.data, n, &status);
    if (status != WEFT_EFORMAT) fail_msg("%zu of %zu bytes: %s", n, file.n, weft_status_name(status));
  }
  open_damaged(file.data, file.n, &status);
  assert_int_equal(status, WEFT_OK);
  weft__bytes_clear(&file);
}

/* Each bit of everything before the data: the file may still be valid, but nothing else may happen than a status. */
static void test_every_bit(void **state) {
  (void)state;
  int n_refused = 0, n_opened = 0;
  weft__bytes file = full_file();
  for (size_t bit = 0; bit < 8 * (file.n - 288); bit++) {
    weft_status status;
    file.data[bit / 8] ^= (char)(1 << bit % 8);
    open_damaged(file.data, file.n, &status);
    file.data[bit / 8] ^= (char)(1 << bit % 8);
    assert_true(status == WEFT_OK || status == WEFT_EFORMAT || status == WEFT_EUNSUPPORTED);
    n_refused += status != WEFT_OK;
    n_opened += status == WEFT_OK;
  }
  assert_true(n_refused > 1000 && n_opened > 1000);
  weft__bytes_clear(&file);
}

/* ---- memory ---- */

/* Enough names for the indexes to grow while they are filled. */
static void make_many(gguf_writer *w) {
  gguf_writer_init(w);
  for (int i = 0; i < 1000; i++) {
    char name[32];
    snprintf(name, sizeof name, "name.%d", i);
    gguf_writer_u32(w, name, (uint32_t)i);
    gguf_writer_tensor(w, name, 0, 1, (const int64_t[]){1}, "....", 4);
  }
}

/* Every one of them is found again, which gguf_walk insists on. */
static void test_many_names(void **state) {
  (void)state;
  gguf_writer w;
  make_many(&w);
  weft_gguf *gguf = open_written(&w);
  assert_int_equal(weft_gguf_n_entries(gguf), 1000);
  assert_int_equal(weft_gguf_n_tensors(gguf), 1000);
  gguf_walk(gguf);
  assert_null(weft_gguf_find(gguf, "name.1000"));
  weft_gguf_close(gguf);
}

/* A leak after a failure is the address sanitizer's to find. */
static void test_no_memory(void **state) {
  (void)state;
  long n = 0;
  weft_status status = WEFT_ENOMEM;
  gguf_writer w;
  make_many(&w);
  gguf_writer_save(&w, scratch);
  while (status == WEFT_ENOMEM) {
    weft_gguf *gguf = NULL;
    weft__alloc_fail_at(++n);
    status = weft_gguf_open(&gguf, scratch);
    weft__alloc_fail_at(0);
    assert_int_equal(gguf != NULL, status == WEFT_OK);
    if (status == WEFT_ENOMEM) assert_int_equal(weft_last_status(), WEFT_ENOMEM);
    weft_gguf_close(gguf);
  }
  assert_int_equal(status, WEFT_OK);
  assert_true(n > 10); /* two index tables and their growth were among those that failed */
}

/* The caller's pointer stays as it was, so that it can be freed without looking. */
static void test_no_memory_for_strings(void **state) {
  (void)state;
  weft_gguf *gguf = open_full();
  weft_gguf_string *strings = NULL;
  weft__alloc_fail_at(1);
  assert_int_equal(weft_gguf_strings(gguf, weft_gguf_find(gguf, "b.strings"), &strings), WEFT_ENOMEM);
  weft__alloc_fail_at(0);
  assert_null(strings);
  weft_gguf_close(gguf);
}

/* ---- values ---- */

/* Entries keep the file's order, and a key is found only whole. */
static void test_file(void **state) {
  (void)state;
  weft_gguf *gguf = open_full();
  assert_string_equal(weft_gguf_path(gguf), scratch);
  assert_int_equal(weft_gguf_version(gguf), 3);
  weft__bytes file = full_file();
  assert_int_equal(weft_gguf_file_bytes(gguf), file.n);
  weft__bytes_clear(&file);
  assert_int_equal(weft_gguf_n_entries(gguf), 22);
  assert_string(weft_gguf_entry_at(gguf, 0)->key, "a.u8");
  assert_string(weft_gguf_entry_at(gguf, 21)->key, "b.u64");
  assert_null(weft_gguf_entry_at(gguf, 22));
  assert_null(weft_gguf_find(gguf, "a"));
  weft_gguf_close(gguf);
}

/* Every integer type, at a value that the next narrower or the other signedness could not hold.  Equal bounds show that
 * both ends of the range are included. */
static void test_get_int(void **state) {
  (void)state;
  static const struct {
    const char *key;
    int64_t value;
  } rows[] = {{"a.u8", 200},         {"a.i8", -100},         {"a.u16", 60000},    {"a.i16", -30000},
              {"a.u32", 4000000000}, {"a.i32", -2000000000}, {"a.i64", INT64_MIN}};
  weft_gguf *gguf = open_full();
  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    int64_t value = 1;
    assert_int_equal(weft_gguf_get_int(gguf, rows[i].key, rows[i].value, rows[i].value, &value), WEFT_OK);
    assert_true(value == rows[i].value);
  }
  weft_gguf_close(gguf);
}

/* A look-up that fails leaves the default in place, and so does an absent key. */
static void test_get_int_refuses(void **state) {
  (void)state;
  weft_gguf *gguf = open_full();
  int64_t value = 42;
  assert_int_equal(weft_gguf_get_int(gguf, "absent", 0, 9, &value), WEFT_OK);
  assert_int_equal(weft_gguf_get_int(gguf, "a.u8", 201, 300, &value), WEFT_EFORMAT);
  assert_error(scratch, "key \"a.u8\": it is 200, expected 201 to 300");
  assert_int_equal(weft_gguf_get_int(gguf, "a.u8", 0, 199, &value), WEFT_EFORMAT);
  assert_int_equal(weft_gguf_get_int(gguf, "a.i8", -99, 300, &value), WEFT_EFORMAT);
  assert_error(scratch, "key \"a.i8\": it is -100, expected -99 to 300");
  assert_int_equal(weft_gguf_get_int(gguf, "a.u64", INT64_MIN, INT64_MAX, &value), WEFT_EFORMAT);
  assert_error(scratch, "key \"a.u64\": it is 18446744073709551615");
  assert_int_equal(weft_gguf_get_int(gguf, "a.f32", 0, 9, &value), WEFT_EFORMAT);
  assert_error(scratch, "key \"a.f32\": it has type f32, expected an integer");
  assert_int_equal(weft_gguf_get_int(gguf, "a.true", 0, 9, &value), WEFT_EFORMAT);
  assert_int_equal(weft_gguf_get_int(gguf, "a.string", 0, 9, &value), WEFT_EFORMAT);
  assert_int_equal(weft_gguf_get_int(gguf, "b.u8", 0, 255, &value), WEFT_EFORMAT);
  assert_error(scratch, "key \"b.u8\": it has type array of u8, expected an integer");
  assert_true(value == 42);
  weft_gguf_close(gguf);
}

/* An integer is not taken for a float: a file that holds one there was written for something else. */
static void test_get_float(void **state) {
  (void)state;
  weft_gguf *gguf = open_full();
  double value = 42;
  assert_int_equal(weft_gguf_get_float(gguf, "absent", &value), WEFT_OK);
  assert_int_equal(weft_gguf_get_float(gguf, "a.u8", &value), WEFT_EFORMAT);
  assert_error(scratch, "key \"a.u8\": it has type u8, expected f32 or f64");
  assert_int_equal(weft_gguf_get_float(gguf, "b.f32", &value), WEFT_EFORMAT);
  assert_true(value == 42);
  assert_int_equal(weft_gguf_get_float(gguf, "a.f32", &value), WEFT_OK);
  assert_true(value == 0.5);
  assert_int_equal(weft_gguf_get_float(gguf, "a.f64", &value), WEFT_OK);
  assert_true(value == -1e300);
  weft_gguf_close(gguf);
}

/* A number is not taken for a bool, not even 1. */
static void test_get_bool(void **state) {
  (void)state;
  weft_gguf *gguf = open_full();
  int value = 42;
  assert_int_equal(weft_gguf_get_bool(gguf, "absent", &value), WEFT_OK);
  assert_int_equal(weft_gguf_get_bool(gguf, "a.u8", &value), WEFT_EFORMAT);
  assert_error(scratch, "key \"a.u8\": it has type u8, expected bool");
  assert_int_equal(weft_gguf_get_bool(gguf, "b.bool", &value), WEFT_EFORMAT);
  assert_int_equal(value, 42);
  assert_int_equal(weft_gguf_get_bool(gguf, "a.true", &value), WEFT_OK);
  assert_int_equal(value, 1);
  assert_int_equal(weft_gguf_get_bool(gguf, "a.false", &value), WEFT_OK);
  assert_int_equal(value, 0);
  weft_gguf_close(gguf);
}

static void test_get_string(void **state) {
  (void)state;
  weft_gguf *gguf = open_full();
  weft_gguf_string value = {"default", 7};
  assert_int_equal(weft_gguf_get_string(gguf, "absent", &value), WEFT_OK);
  assert_int_equal(weft_gguf_get_string(gguf, "a.i16", &value), WEFT_EFORMAT);
  assert_error(scratch, "key \"a.i16\": it has type i16, expected string");
  assert_int_equal(weft_gguf_get_string(gguf, "b.strings", &value), WEFT_EFORMAT);
  assert_string(value, "default");
  assert_int_equal(weft_gguf_get_string(gguf, "a.string", &value), WEFT_OK);
  assert_string(value, "Zebra \xf0\x9f\xa6\x93");
  assert_int_equal(weft_gguf_get_string(gguf, "a.empty", &value), WEFT_OK);
  assert_string(value, "");
  weft_gguf_close(gguf);
}

/* A single string is not an array of one. */
static void test_strings(void **state) {
  (void)state;
  weft_gguf *gguf = open_full();
  const weft_gguf_entry *entry = weft_gguf_find(gguf, "b.strings");
  weft_gguf_string *strings = NULL;
  assert_int_equal(weft_gguf_strings(gguf, weft_gguf_find(gguf, "b.i32"), &strings), WEFT_EFORMAT);
  assert_error(scratch, "key \"b.i32\": it has type array of i32, expected array of string");
  assert_int_equal(weft_gguf_strings(gguf, weft_gguf_find(gguf, "a.string"), &strings), WEFT_EFORMAT);
  assert_null(strings);
  assert_int_equal(entry->n_elements, 3);
  assert_int_equal(weft_gguf_strings(gguf, entry, &strings), WEFT_OK);
  assert_string(strings[0], "one");
  assert_string(strings[1], "");
  assert_string(strings[2], "three");
  weft_free(strings);
  weft_gguf_close(gguf);
}

/* Elements of every width come from the right place, and no index leads out of an array, an empty one included. */
static void test_number(void **state) {
  (void)state;
  static const struct {
    const char *key;
    uint64_t index;
    double value;
  } rows[] = {{"a.u8", 0, 200},  {"a.i8", 0, -100}, {"a.u64", 0, 18446744073709551616.0},
              {"a.f32", 0, 0.5}, {"a.true", 0, 1},  {"b.i32", 0, -1},
              {"b.i32", 2, 7},   {"b.u8", 0, 255},  {"b.f32", 1, -2.0},
              {"b.bool", 1, 0},  {"b.bool", 2, 1},  {"b.f64", 0, 1e-300}};
  double value;
  weft_gguf *gguf = open_full();
  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    assert_int_equal(weft_gguf_number(weft_gguf_find(gguf, rows[i].key), rows[i].index, &value), WEFT_OK);
    assert_true(value == rows[i].value);
  }
  assert_int_equal(weft_gguf_number(weft_gguf_find(gguf, "b.i32"), 3, &value), WEFT_EINVAL);
  assert_int_equal(weft_gguf_number(weft_gguf_find(gguf, "b.i32"), UINT64_MAX, &value), WEFT_EINVAL);
  assert_int_equal(weft_gguf_number(weft_gguf_find(gguf, "b.u64"), 0, &value), WEFT_EINVAL);
  assert_int_equal(weft_gguf_number(weft_gguf_find(gguf, "b.strings"), 0, &value), WEFT_EFORMAT);
  assert_error("key \"b.strings\"", "it holds strings, expected numbers");
  weft_gguf_close(gguf);
}

/* ---- tensors ---- */

/* Shapes are turned outermost first, and the data is the bytes that were written, at their offset. */
static void test_tensors(void **state) {
  (void)state;
  weft_gguf *gguf = open_full();
  assert_int_equal(weft_gguf_n_tensors(gguf), 5);
  const weft_gguf_tensor *t = weft_gguf_find_tensor(gguf, "q4_1");
  assert_ptr_equal(t, weft_gguf_tensor_at(gguf, 2));
  assert_int_equal(t->rank, 2);
  assert_int_equal(t->shape[0], 3);
  assert_int_equal(t->shape[1], 64);
  assert_int_equal(t->file_type, 3);
  assert_string_equal(t->type_name, "Q4_1");
  assert_int_equal(t->is_supported, 1);
  assert_int_equal(t->dtype, WEFT_Q4_1);
  assert_int_equal(t->n_bytes, 120);
  for (size_t i = 0; i < t->n_bytes; i++)
    assert_int_equal(((const unsigned char *)t->data)[i], (unsigned char)(i * 7 + 1));
  t = weft_gguf_find_tensor(gguf, "q8_0");
  assert_int_equal(t->rank, 4);
  assert_int_equal(t->shape[1], 2);
  assert_int_equal(t->shape[3], 32);
  assert_null(weft_gguf_find_tensor(gguf, "q8"));
  weft_gguf_close(gguf);
}

/* Opens a file with one tensor of a type and `n` elements. */
static weft_gguf *open_of_type(uint32_t file_type, int64_t n, size_t n_bytes) {
  static const unsigned char zeros[4096];
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_writer_tensor(&w, "x", file_type, 1, &n, zeros, n_bytes);
  return open_written(&w);
}

/* Sizes as the types' makers publish them, in bits a weight: independent of blocks. */
static void test_known_types(void **state) {
  (void)state;
  static const struct {
    uint32_t file_type;
    const char *name;
    double bits;
  } rows[] = {{2, "Q4_0", 4.5},        {6, "Q5_0", 5.5},        {7, "Q5_1", 6},          {10, "Q2_K", 2.625},
              {11, "Q3_K", 3.4375},    {12, "Q4_K", 4.5},       {13, "Q5_K", 5.5},       {14, "Q6_K", 6.5625},
              {16, "IQ2_XXS", 2.0625}, {17, "IQ2_XS", 2.3125},  {18, "IQ3_XXS", 3.0625}, {19, "IQ1_S", 1.5625},
              {20, "IQ4_NL", 4.5},     {21, "IQ3_S", 3.4375},   {22, "IQ2_S", 2.5625},   {23, "IQ4_XS", 4.25},
              {24, "I8", 8},           {25, "I16", 16},         {27, "I64", 64},         {28, "F64", 64},
              {29, "IQ1_M", 1.75},     {30, "BF16", 16},        {31, "Q4_0_4_4", 4.5},   {34, "TQ1_0", 1.6875},
              {35, "TQ2_0", 2.0625},   {36, "IQ4_NL_4_4", 4.5}, {39, "MXFP4", 4.25},     {40, "NVFP4", 4.5}};
  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    size_t n_bytes = (size_t)(rows[i].bits * 256 / 8);
    weft_gguf *gguf = open_of_type(rows[i].file_type, 256, n_bytes);
    const weft_gguf_tensor *t = weft_gguf_find_tensor(gguf, "x");
    assert_string_equal(t->type_name, rows[i].name);
    assert_int_equal(t->n_bytes, n_bytes);
    weft_gguf_close(gguf);
  }
}

/* The two lists, of what files may hold and of what weft computes with, agree on the types that they share. */
static void test_supported_types(void **state) {
  (void)state;
  static const struct {
    weft_dtype dtype;
    uint32_t file_type;
    size_t block_len, block_bytes;
  } rows[] = {
#define WEFT_DTYPE(id, name, block_len, block_bytes, gguf_type, quantised)                                             \
  {WEFT_##id, gguf_type, block_len, block_bytes},
#include "weft/dtype.def"
#undef WEFT_DTYPE
  };
  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    weft_gguf *gguf = open_of_type(rows[i].file_type, (int64_t)rows[i].block_len, rows[i].block_bytes);
    const weft_gguf_tensor *t = weft_gguf_find_tensor(gguf, "x");
    assert_int_equal(t->is_supported, 1);
    assert_int_equal(t->dtype, rows[i].dtype);
    assert_int_equal(t->n_bytes, rows[i].block_bytes);
    weft_gguf_close(gguf);
  }
  weft_gguf *gguf = open_of_type(16, 256, 66);
  assert_int_equal(weft_gguf_find_tensor(gguf, "x")->is_supported, 0);
  weft_gguf_close(gguf);
}

/* Two tensors may share data, as tied weights do. */
static void test_overlap(void **state) {
  (void)state;
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_writer_tensor(&w, "x", 0, 1, (const int64_t[]){9}, "0123456789abcdef0123456789abcdef....", 36);
  gguf_writer_info(&w, "y", 1, (const uint64_t[]){1}, 1, 0, 32);
  weft_gguf *gguf = open_written(&w);
  const char *x = weft_gguf_find_tensor(gguf, "x")->data;
  assert_ptr_equal(weft_gguf_find_tensor(gguf, "y")->data, x + 32);
  assert_memory_equal(x + 32, "....", 4);
  weft_gguf_close(gguf);
}

/* ---- split models ---- */

/* The path of part `no` beside the scratch file. */
static const char *part_path(int no) {
  static char path[64];
  snprintf(path, sizeof path, "%s-%05d-of-%05d.gguf", scratch, no + 1, GGUF_SPLIT_PARTS);
  return path;
}

static void write_parts(const gguf_split_part parts[GGUF_SPLIT_PARTS]) {
  for (int no = 0; no < GGUF_SPLIT_PARTS; no++) {
    weft__bytes file = gguf_split_make(&parts[no]);
    gguf_write_file(part_path(no), file.data, file.n);
    weft__bytes_clear(&file);
  }
}

static int remove_parts(void **state) {
  (void)state;
  for (int no = 0; no < GGUF_SPLIT_PARTS; no++) remove(part_path(no));
  return 0;
}

static void assert_data(const weft_gguf *gguf, const char *name, float part, float place) {
  const weft_gguf_tensor *tensor = weft_gguf_find_tensor(gguf, name);
  const float expected[] = {part, place, 0.5f};
  assert_non_null(tensor);
  assert_memory_equal(tensor->data, expected, sizeof expected);
}

/* Any part opens them all: the entries are the first part's, the tensors everybody's, in order. */
static void test_split(void **state) {
  (void)state;
  gguf_split_part parts[GGUF_SPLIT_PARTS];
  gguf_split_init(parts);
  write_parts(parts);
  uint64_t n_bytes = 0;
  for (int no = 0; no < GGUF_SPLIT_PARTS; no++) {
    weft__bytes file = gguf_split_make(&parts[no]);
    n_bytes += file.n;
    weft__bytes_clear(&file);
  }
  for (int no = 0; no < GGUF_SPLIT_PARTS; no++) {
    weft_gguf *gguf = NULL;
    weft_gguf_string name = {NULL, 0};
    if (weft_gguf_open(&gguf, part_path(no))) fail_msg("%s", weft_last_error());
    assert_string_equal(weft_gguf_path(gguf), part_path(0));
    assert_int_equal(weft_gguf_n_parts(gguf), 3);
    assert_int_equal(weft_gguf_file_bytes(gguf), n_bytes);
    assert_int_equal(weft_gguf_get_string(gguf, "general.name", &name), WEFT_OK);
    assert_string(name, "split");
    assert_int_equal(weft_gguf_n_tensors(gguf), 3);
    assert_string(weft_gguf_tensor_at(gguf, 0)->name, "a");
    assert_string(weft_gguf_tensor_at(gguf, 1)->name, "b");
    assert_string(weft_gguf_tensor_at(gguf, 2)->name, "c");
    assert_null(weft_gguf_tensor_at(gguf, 3));
    for (size_t i = 0; i < 3; i++) {
      const weft_gguf_tensor *t = weft_gguf_tensor_at(gguf, i);
      weft_gguf_release_part(gguf, t, t->data, (size_t)t->n_bytes / 2);
      weft_gguf_release(gguf, t);
    }
    assert_data(gguf, "a", 1, 0);
    assert_data(gguf, "b", 1, 1);
    assert_data(gguf, "c", 2, 0);
    gguf_walk(gguf);
    weft_gguf_close(gguf);
  }
}

static void take_count(gguf_split_part *parts) { parts[1].count = 4; }
static void take_number(gguf_split_part *parts) { parts[2].no = 1; }
static void take_first_number(gguf_split_part *parts) { parts[0].no = 1; }
static void take_tensor_count(gguf_split_part *parts) { parts[2].n_tensors = 4; }
static void drop_tensor_count(gguf_split_part *parts) { parts[2].n_tensors = -1; }
static void lose_tensor(gguf_split_part *parts) { parts[2].tensors[0] = NULL; }
static void repeat_tensor(gguf_split_part *parts) { parts[2].tensors[0] = "b"; }
static void be_no_part(gguf_split_part *parts) { parts[1].count = 0; }
static void cut_last(gguf_split_part *parts) { parts[2].max_bytes = 160; }
static void empty_second(gguf_split_part *parts) { parts[1].max_bytes = 0; }

/* What is wrong, the part that the message must name, and words that it must have.  The first part is opened. */
static const struct {
  void (*spoil)(gguf_split_part *parts);
  int part;
  const char *why;
} wrong_splits[] = {
    {take_count, 1, "part 2 of 4"},
    {take_number, 2, "it says that it is part 2 of 3 with 3 tensors in all, but it stands for part 3 of 3"},
    {take_first_number, 0, "its name does not end in -00002-of-00003.gguf"},
    {take_tensor_count, 2, "with 4 tensors"},
    {drop_tensor_count, 2, "split.tensors.count"},
    {lose_tensor, 0, "split.tensors.count is 3, but the 3 parts hold 2 tensors"},
    {repeat_tensor, 2, "tensor \"b\": it occurs twice"},
    {be_no_part, 1, "it says that it is part 0 of 1"},
    {cut_last, 2, "left of the file"},
    {empty_second, 1, "it is empty"},
};

static void test_wrong_splits(void **state) {
  (void)state;
  for (size_t i = 0; i < WEFT_COUNT(wrong_splits); i++) {
    gguf_split_part parts[GGUF_SPLIT_PARTS];
    weft_gguf *gguf = NULL;
    gguf_split_init(parts);
    wrong_splits[i].spoil(parts);
    write_parts(parts);
    if (weft_gguf_open(&gguf, part_path(0)) != WEFT_EFORMAT) fail_msg("case %zu: %s", i, weft_last_error());
    assert_null(gguf);
    assert_error(part_path(wrong_splits[i].part), wrong_splits[i].why);
  }
}

static void test_missing_part(void **state) {
  (void)state;
  gguf_split_part parts[GGUF_SPLIT_PARTS];
  weft_gguf *gguf = NULL;
  gguf_split_init(parts);
  for (int missing = 0; missing < GGUF_SPLIT_PARTS; missing++) {
    char why[64];
    write_parts(parts);
    assert_int_equal(remove(part_path(missing)), 0);
    assert_int_equal(weft_gguf_open(&gguf, part_path((missing + 1) % GGUF_SPLIT_PARTS)), WEFT_EIO);
    snprintf(why, sizeof why, "No such file or directory (it is part %d of 3", missing + 1);
    assert_error(part_path(missing), why);
  }
  assert_null(gguf);
}

static void test_no_memory_for_parts(void **state) {
  (void)state;
  gguf_split_part parts[GGUF_SPLIT_PARTS];
  weft_status status = WEFT_ENOMEM;
  long n = 0;
  gguf_split_init(parts);
  write_parts(parts);
  while (status == WEFT_ENOMEM) {
    weft_gguf *gguf = NULL;
    weft__alloc_fail_at(++n);
    status = weft_gguf_open(&gguf, part_path(1));
    weft__alloc_fail_at(0);
    assert_int_equal(gguf != NULL, status == WEFT_OK);
    weft_gguf_close(gguf);
  }
  assert_int_equal(status, WEFT_OK);
  assert_true(n > 20);
}

/* ---- a real model ---- */

/* Facts about the sample model, and a walk over all of it. */
static void test_model(void **state) {
  (void)state;
  const char *path = getenv("WEFT_TEST_MODEL");
  if (!path) path = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  weft_gguf *gguf = NULL;
  if (weft_gguf_open(&gguf, path)) fail_msg("%s (run `make setup`)", weft_last_error());
  assert_int_equal(weft_gguf_version(gguf), 3);
  assert_int_equal(weft_gguf_n_entries(gguf), 33);
  assert_int_equal(weft_gguf_n_tensors(gguf), 272);

  weft_gguf_string text;
  int64_t n_layers = 0;
  assert_int_equal(weft_gguf_get_string(gguf, "general.architecture", &text), WEFT_OK);
  assert_string(text, "llama");
  assert_int_equal(weft_gguf_get_int(gguf, "llama.block_count", 1, 1000, &n_layers), WEFT_OK);
  assert_int_equal(n_layers, 30);

  weft_gguf_string *tokens;
  const weft_gguf_entry *entry = weft_gguf_find(gguf, "tokenizer.ggml.tokens");
  assert_non_null(entry);
  assert_int_equal(entry->n_elements, 49152);
  assert_int_equal(weft_gguf_strings(gguf, entry, &tokens), WEFT_OK);
  assert_string(tokens[1], "<|im_start|>");
  assert_string(tokens[2], "<|im_end|>");
  weft_free(tokens);

  const weft_gguf_tensor *embedding = weft_gguf_find_tensor(gguf, "token_embd.weight");
  assert_non_null(embedding);
  assert_int_equal(embedding->rank, 2);
  assert_int_equal(embedding->shape[0], 49152);
  assert_int_equal(embedding->shape[1], 576);
  gguf_walk(gguf);
  weft_gguf_close(gguf);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cases),
      cmocka_unit_test(test_paths),
      cmocka_unit_test(test_copy),
      cmocka_unit_test(test_long_names),
      cmocka_unit_test(test_every_prefix),
      cmocka_unit_test(test_every_bit),
      cmocka_unit_test(test_many_names),
      cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_no_memory_for_strings),
      cmocka_unit_test(test_file),
      cmocka_unit_test(test_get_int),
      cmocka_unit_test(test_get_int_refuses),
      cmocka_unit_test(test_get_float),
      cmocka_unit_test(test_get_bool),
      cmocka_unit_test(test_get_string),
      cmocka_unit_test(test_strings),
      cmocka_unit_test(test_number),
      cmocka_unit_test(test_tensors),
      cmocka_unit_test(test_known_types),
      cmocka_unit_test(test_supported_types),
      cmocka_unit_test(test_overlap),
      cmocka_unit_test_teardown(test_split, remove_parts),
      cmocka_unit_test_teardown(test_wrong_splits, remove_parts),
      cmocka_unit_test_teardown(test_missing_part, remove_parts),
      cmocka_unit_test_teardown(test_no_memory_for_parts, remove_parts),
      cmocka_unit_test(test_model),
  };
  return cmocka_run_group_tests(tests, create_scratch, remove_scratch);
}
