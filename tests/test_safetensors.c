/* test_safetensors.c - saving named tensors and reading them back, files written by hand after the format's description,
 * and everything that a malformed one can say. */
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char PATH[64]; /* of the file that the tests write */

/* Writes a file: the length as given, the header, n_data bytes 0, 1, 2 ... */
static void put_file(uint64_t n_header, const char *header, size_t n_data) {
  FILE *file = fopen(PATH, "wb");
  assert_non_null(file);
  fwrite(&n_header, sizeof n_header, 1, file);
  fwrite(header, 1, strlen(header), file);
  for (size_t i = 0; i < n_data; i++) fputc((int)i, file);
  assert_int_equal(fclose(file), 0);
}

/* ---- files by hand ---- */

static void a_file_is_read(void **state) {
  (void)state;
  static const char header[] =
      "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"I32\",\"shape\":[2,1],"
      "\"data_offsets\":[4,12]},\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
      "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]},\"w\":{\"dtype\":\"I64\","
      "\"shape\":[],\"data_offsets\":[12,20]}}   ";
  put_file(strlen(header), header, 20);
  weft_safetensors *s;
  if (weft_safetensors_open(&s, PATH)) fail_msg("%s", weft_last_error());
  static const char *const names[] = {"a", "empty", "b", "w"}; /* by place */
  static const size_t n_bytes[] = {4, 0, 8, 8};
  assert_int_equal(weft_safetensors_n_tensors(s), 4);
  for (size_t i = 0; i < 4; i++) {
    const weft_safetensors_tensor *t = weft_safetensors_tensor_at(s, i);
    assert_string_equal(t->name, names[i]);
    assert_int_equal(t->n_bytes, n_bytes[i]);
    assert_ptr_equal(weft_safetensors_find(s, names[i]), t);
  }
  const weft_safetensors_tensor *b = weft_safetensors_find(s, "b");
  assert_int_equal(b->rank, 2);
  assert_int_equal(b->shape[0], 2);
  assert_true(b->is_supported && b->dtype == WEFT_I32 && ((const uint8_t *)b->data)[0] == 4);
  assert_false(weft_safetensors_find(s, "w")->is_supported);
  assert_null(weft_safetensors_find(s, "c"));
  assert_null(weft_safetensors_find(s, "__metadata__"));
  assert_null(weft_safetensors_tensor_at(s, 4));
  assert_string_equal(weft_safetensors_metadata(s, "format"), "pt");
  assert_null(weft_safetensors_metadata(s, "a"));
  weft_safetensors_close(s);
  put_file(2, "{}", 0);
  assert_int_equal(weft_safetensors_open(&s, PATH), WEFT_OK);
  assert_int_equal(weft_safetensors_n_tensors(s), 0);
  assert_null(weft_safetensors_find(s, "a"));
  weft_safetensors_close(s);
}

#define TENSOR(dtype, shape, offsets)                                                                                  \
  "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

/* Each is refused, in one line that names the file and says what is wrong.  n_header 0: the header's length. */
static const struct {
  const char *header;
  size_t n_data;
  uint64_t n_header;
  const char *why;
} MALFORMED[] = {
    {"", 0, UINT64_MAX, "a header of 18446744073709551615 bytes"},
    {"", 0, 0xfffffffffffffffb, "a header of"}, /* plus 8 it wraps */
    {"{}", 0, 3, "a header of 3 bytes"},
    {"{}", 0, 1ull << 40, "a header of"},
    {"", 0, 0, "no JSON"},
    {"[]", 0, 0, "no JSON object"},
    {"{", 0, 0, "no JSON"},
    {"{} x", 0, 0, "no JSON"},
    {"{\"a\":5}", 0, 0, "tensor 'a' has no dtype"},
    {TENSOR("F33", "[1]", "[0,4]"), 4, 0, "dtype that the format does not know"},
    {TENSOR("F32", "5", "[0,4]"), 4, 0, "no shape"},
    {TENSOR("F32", "[-1]", "[0,4]"), 4, 0, "extent that is no count"},
    {TENSOR("F32", "[1.0]", "[0,4]"), 4, 0, "extent that is no count"},
    {TENSOR("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, 0, "more than 8 axes"},
    {TENSOR("F32", "[4611686018427387904,4]", "[0,0]"), 0, 0, "overflows"},
    {TENSOR("F32", "[4611686018427387904]", "[0,0]"), 0, 0, "do not fit"}, /* times four bytes it wraps to 0 */
    {TENSOR("F32", "[2,2]", "[0,15]"), 15, 0, "do not fit"},
    {TENSOR("F32", "[1]", "[8]"), 8, 0, "no data_offsets"},
    {TENSOR("F32", "[1]", "[0,4,8]"), 8, 0, "no data_offsets"},
    {TENSOR("F32", "[1]", "[-4,0]"), 4, 0, "no data_offsets"},
    {TENSOR("F32", "[1]", "[64,0]"), 64, 0, "outside"},
    {TENSOR("F32", "[2]", "[0,8]"), 7, 0, "outside"},
    {TENSOR("F32", "[1]", "[4,8]"), 8, 0, "does not begin where"},
    {TENSOR("F32", "[1]", "[0,4]"), 5, 0, "end before its data"},
    {TENSOR("F32", "[1]", "[0,99999999999999999999]"), 4, 0, "no JSON"},
    {"{\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, 0, "tensor 'b' does not begin where"},
    {"{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, 0, "duplicate"},
    {"{\"\\u0000\":{}}", 0, 0, "no JSON"},
    {"{\"\\u001b[2J\":{}}", 0, 0, "tensor '?[2J'"},
    {"{\"__metadata__\":[]}", 0, 0, "metadata is no object"},
    {"{\"__metadata__\":{\"k\":1}}", 0, 0, "metadata 'k' is no string"},
};

static void malformed_files_are_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < WEFT_COUNT(MALFORMED); i++) {
    weft_safetensors *s = NULL;
    put_file(MALFORMED[i].n_header ? MALFORMED[i].n_header : strlen(MALFORMED[i].header), MALFORMED[i].header,
             MALFORMED[i].n_data);
    if (weft_safetensors_open(&s, PATH) != WEFT_EFORMAT) fail_msg("case %zu was not refused", i);
    const char *message = weft_last_error();
    if (strncmp(message, PATH, strlen(PATH)) || !strstr(message, MALFORMED[i].why) || strpbrk(message, "\r\n\033"))
      fail_msg("case %zu: \"%s\" does not say \"%s\"", i, message, MALFORMED[i].why);
  }
}

/* Every beginning of a good file is refused, and does no harm; so is every file with one byte changed, or it is good. */
static void cut_and_changed_files_do_no_harm(void **state) {
  (void)state;
  static const char header[] = TENSOR("F32", "[2,1]", "[0,8]");
  uint8_t whole[8 + sizeof header + 8] = {0};
  size_t n = 8 + strlen(header) + 8;
  whole[0] = (uint8_t)strlen(header);
  memcpy(whole + 8, header, strlen(header));
  for (size_t cut = 0; cut < 2 * n; cut++) {
    weft_safetensors *s = NULL;
    FILE *file = fopen(PATH, "wb");
    assert_non_null(file);
    if (cut >= n) whole[cut - n] ^= 0x15;
    fwrite(whole, 1, cut < n ? cut : n, file);
    if (cut >= n) whole[cut - n] ^= 0x15;
    assert_int_equal(fclose(file), 0);
    weft_status status = weft_safetensors_open(&s, PATH);
    if (cut < n) assert_int_equal(status, WEFT_EFORMAT);
    if (status) continue;
    for (size_t i = 0; i < weft_safetensors_n_tensors(s); i++) {
      const weft_safetensors_tensor *t = weft_safetensors_tensor_at(s, i);
      unsigned sum = 0;
      for (size_t k = 0; k < t->n_bytes; k++) sum += ((const uint8_t *)t->data)[k];
      assert_true(sum < 256 * 8);
    }
    weft_safetensors_close(s);
  }
}

static void folders_and_missing_files_are_refused(void **state) {
  (void)state;
  weft_safetensors *s = NULL;
  assert_int_equal(weft_safetensors_open(&s, "/tmp"), WEFT_EINVAL);
  assert_int_equal(weft_safetensors_open(&s, "/tmp/weft_test_no_such_file"), WEFT_EIO);
}

/* ---- there and back ---- */

static const weft_dtype DTYPES[] = {WEFT_F32, WEFT_F16, WEFT_BF16, WEFT_I32};
static const struct {
  int rank;
  int64_t shape[8];
} SHAPES[] = {{0, {0}}, {1, {0}}, {1, {7}}, {2, {5, 33}}, {3, {2, 0, 3}}, {8, {2, 1, 3, 1, 2, 1, 2, 3}}};
enum { N_SAVED = WEFT_COUNT(DTYPES) * WEFT_COUNT(SHAPES) };

static void check_round_trip(test_device *d) {
  weft_named_tensor saved[N_SAVED];
  char names[N_SAVED][32];
  for (size_t i = 0; i < N_SAVED; i++) {
    size_t s = i / WEFT_COUNT(DTYPES);
    snprintf(names[i], sizeof names[i], "layer.%zu \"\\ \xc3\xa9", i);
    saved[i] =
        (weft_named_tensor){names[i], test_operand(d, (test_form)(i % TEST_N_FORMS), DTYPES[i % WEFT_COUNT(DTYPES)],
                                                   SHAPES[s].rank, SHAPES[s].shape, -9, 9, i)};
  }
  if (weft_safetensors_save(PATH, N_SAVED, saved)) fail_msg("%s", weft_last_error());
  weft_safetensors *s;
  if (weft_safetensors_open(&s, PATH)) fail_msg("%s", weft_last_error());
  assert_int_equal(weft_safetensors_n_tensors(s), N_SAVED);
  for (size_t i = 0; i < N_SAVED; i++) {
    weft_tensor *t = weft_safetensors_load(d->scope, s, names[i]);
    double *want = test_values(saved[i].tensor);
    test_expect_shape(names[i], t, saved[i].tensor->dtype, saved[i].tensor->rank, saved[i].tensor->shape);
    test_expect_values(names[i], d, t, want, 0);
    free(want);
  }
  weft_safetensors_close(s);
}

static void tensors_come_back(void **state) {
  (void)state;
  test_use_gpus();
  test_each_device(1, check_round_trip);
}

static void check_bytes(test_device *d) {
  const float x[] = {1, 2};
  const weft_named_tensor saved = {"w", weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(2, 1), x)};
  assert_int_equal(weft_safetensors_save(PATH, 1, &saved), WEFT_OK);
  static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}     ";
  char got[256];
  FILE *file = fopen(PATH, "rb");
  assert_non_null(file);
  size_t n = fread(got, 1, sizeof got, file), n_header = (strlen(header) / 8) * 8;
  fclose(file);
  assert_int_equal(n, 8 + n_header + 8);
  assert_int_equal(got[0], n_header);
  assert_memory_equal(got + 8, header, n_header);
  assert_memory_equal(got + 8 + n_header, x, 8);
}

static void a_saved_file_is_laid_out_as_the_format_says(void **state) {
  (void)state;
  test_each_device(1, check_bytes);
}

/* A refused save leaves the file that was there. */
static void check_refusals(test_device *d) {
  weft_tensor *a = test_random(d, TEST_SHAPE(3), 1, 1);
  weft_tensor *q = weft_quantize(d->scope, a, &(weft_quantize_attrs){WEFT_Q8_0});
  const struct {
    weft_named_tensor tensors[2];
    weft_status status;
  } cases[] = {
      {{{"a", a}, {"a", a}}, WEFT_EINVAL},        {{{"a", a}, {"__metadata__", a}}, WEFT_EINVAL},
      {{{"a", a}, {NULL, a}}, WEFT_EINVAL},       {{{"a", a}, {"b", NULL}}, WEFT_EINVAL},
      {{{"a", a}, {"\xff\xfe", a}}, WEFT_EINVAL}, {{{"a", a}, {"q", q}}, WEFT_EUNSUPPORTED},
  };
  assert_int_equal(weft_safetensors_save(PATH, 1, cases[0].tensors), WEFT_OK);
  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    assert_int_equal(weft_safetensors_save(PATH, 2, cases[i].tensors), cases[i].status);
  assert_int_equal(weft_safetensors_save("/tmp/no_such_folder/x", 1, cases[0].tensors), WEFT_EIO);
  assert_int_equal(weft_safetensors_save("/tmp", 1, cases[0].tensors), WEFT_EINVAL);
  weft_safetensors *s;
  assert_int_equal(weft_safetensors_open(&s, PATH), WEFT_OK);
  assert_int_equal(weft_safetensors_n_tensors(s), 1);
  assert_null(weft_safetensors_load(d->scope, s, "b"));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  weft_safetensors_close(s);
}

static void saves_are_refused(void **state) {
  (void)state;
  test_each_device(1, check_refusals);
}

static int remove_file(void **state) {
  (void)state;
  unlink(PATH);
  return 0;
}

int main(void) {
  snprintf(PATH, sizeof PATH, "/tmp/weft_test_%d.safetensors", (int)getpid());
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_file_is_read),
      cmocka_unit_test(malformed_files_are_refused),
      cmocka_unit_test(cut_and_changed_files_do_no_harm),
      cmocka_unit_test(folders_and_missing_files_are_refused),
      cmocka_unit_test(a_saved_file_is_laid_out_as_the_format_says),
      cmocka_unit_test(saves_are_refused),
      cmocka_unit_test(tensors_come_back),
  };
  return cmocka_run_group_tests_name("safetensors", tests, NULL, remove_file);
}
