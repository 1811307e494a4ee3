/* test_quant.c - the quantised formats: every value bit for bit as the Python package gguf gives it
 * (tests/golden/quant.json, see make_quant_golden.py), and blocks that hold no numbers. */
#include "support/tensors.h"
#include "cpu/half.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct { json_t *root; } golden;

static weft_dtype dtype_by_name(const char *name) {
  for (int i = 0; i < WEFT_DTYPE_COUNT; i++)
    if (!strcmp(weft_dtype_name((weft_dtype)i), name)) return (weft_dtype)i;
  fail_msg("no dtype %s", name);
  return WEFT_F32;
}

/* "0a1b..." as bytes, freed with free. */
static uint8_t *bytes_of(const char *hex, size_t *n_bytes) {
  *n_bytes = strlen(hex) / 2;
  uint8_t *bytes = test_alloc(*n_bytes, 1);
  for (size_t i = 0; i < *n_bytes; i++) {
    const char digits[3] = {hex[2 * i], hex[2 * i + 1], 0};
    bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
  }
  return bytes;
}

/* A case as a table of one block a row, all of which are looked up. */
static weft_tensor *look_up(test_device *d, const json_t *item, int64_t *n_values) {
  size_t n_bytes;
  weft_dtype dtype = dtype_by_name(json_string_value(json_object_get(item, "type")));
  int64_t n_blocks = json_integer_value(json_object_get(item, "n_blocks"));
  uint8_t *bytes = bytes_of(json_string_value(json_object_get(item, "blocks")), &n_bytes);
  const int64_t shape[] = {n_blocks, weft__dtype_get(dtype)->block_len};
  weft_tensor *table = weft_tensor_from(d->scope, dtype, 2, shape, bytes);
  assert_non_null(table);
  assert_int_equal(weft_tensor_bytes(table), n_bytes);
  int32_t *ids = test_alloc((size_t)n_blocks, sizeof *ids);
  for (int32_t i = 0; i < n_blocks; i++) ids[i] = i;
  weft_tensor *y = weft_embed(d->scope, table, weft_tensor_from(d->scope, WEFT_I32, 1, &n_blocks, ids));
  free(ids);
  free(bytes);
  *n_values = n_blocks * shape[1];
  return y;
}

static void check_case(test_device *d, const json_t *item) {
  int64_t n;
  const char *want = json_string_value(json_object_get(item, "values"));
  float *got = test_read(look_up(d, item, &n));
  assert_int_equal(strlen(want), 8 * n);
  for (int64_t i = 0; i < n; i++) {
    char bits[9];
    snprintf(bits, sizeof bits, "%08x", weft__f32_bits(got[i]));
    if (memcmp(bits, want + 8 * i, 8))
      fail_msg("%s (%s): value %lld has bits %s, expected %.8s", json_string_value(json_object_get(item, "type")),
               d->variant, (long long)i, bits, want + 8 * i);
  }
  free(got);
}

static void check_cases(test_device *d) {
  size_t i;
  json_t *item;
  json_array_foreach(json_object_get(golden.root, "cases"), i, item) check_case(d, item);
}

static void values_are_those_of_another_program(void **state) {
  (void)state;
  json_error_t error;
  golden.root = json_load_file("tests/golden/quant.json", 0, &error);
  if (!golden.root) fail_msg("%s", error.text);
  /* Every quantised dtype, and bf16. */
  size_t n_cases = json_array_size(json_object_get(golden.root, "cases")), n_dtypes = 1;
  for (int i = 0; i < WEFT_DTYPE_COUNT; i++) n_dtypes += weft__dtype_get((weft_dtype)i)->is_quantised;
  assert_int_equal(n_cases, n_dtypes);
  test_each_device(1, check_cases);
  json_decref(golden.root);
}

/* Bytes without meaning, all ones: NaN scales where a format has f16.  Nothing crashes, and no product hides them. */
static void check_garbage(test_device *d) {
  enum { N_ROWS = 17, N_COLS = 256 };
  for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
    if (i == WEFT_I32) continue;
    const weft__dtype_info *info = weft__dtype_get((weft_dtype)i);
    size_t n_bytes = (size_t)(N_ROWS * N_COLS / info->block_len * info->block_bytes);
    uint8_t *bytes = test_alloc(n_bytes, 1);
    memset(bytes, 0xff, n_bytes);
    const int64_t shape[] = {N_ROWS, N_COLS};
    weft_tensor *x = test_random(d, 2, (const int64_t[]){3, N_COLS}, 1, 1);
    weft_tensor *table = weft_tensor_from(d->scope, (weft_dtype)i, 2, shape, bytes);
    weft_tensor *w = weft__weight_load(d->scope, (weft_dtype)i, 2, shape, bytes, WEFT__WEIGHT_PRODUCT, NULL);
    float *product = test_read(weft_matmul_nt(d->scope, x, w));
    float *values = test_read(
        weft_embed(d->scope, table, weft_tensor_from(d->scope, WEFT_I32, 1, (const int64_t[]){1}, (int32_t[]){16})));
    for (int j = 0; j < 3 * N_ROWS && i != WEFT_MXFP4; j++) assert_true(product[j] != product[j]);
    for (int j = 0; j < N_COLS && i != WEFT_MXFP4; j++) assert_true(values[j] != values[j]);
    free(values);
    free(product);
    free(bytes);
  }
}

static void garbage_comes_out_as_garbage(void **state) {
  (void)state;
  test_each_device(1, check_garbage);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_those_of_another_program),
      cmocka_unit_test(garbage_comes_out_as_garbage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
