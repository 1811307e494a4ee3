/* test_tensor.c - tensors without arithmetic: scopes, storage and views, reading and writing, refused arguments, memory
 * that runs out, devices, and what every operator does with operands that are no operands. */
#include "support/tensors.h"

#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A device whose new buffers are full of NaN, a scope on it, and the environment as it was. */
typedef struct fixture {
  weft_device *device;
  weft_scope *scope;
  char *cpu, *threads; /* WEFT_CPU and WEFT_THREADS, NULL if not set */
} fixture;

static char *copy_of(const char *text) { return text ? strdup(text) : NULL; }

static void restore(const char *name, char *value) {
  if (value)
    setenv(name, value, 1);
  else
    unsetenv(name);
  free(value);
}

static weft_device *open_device(void) {
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .n_threads = 2};
  weft_device *device = NULL;
  assert_int_equal(weft_device_open(&device, &options), WEFT_OK);
  device->backend->poison = true;
  return device;
}

static weft_scope *open_scope(weft_device *device, weft_scope *parent) {
  weft_scope *scope = NULL;
  assert_int_equal(weft_scope_open(&scope, device, parent), WEFT_OK);
  return scope;
}

static int set_up(void **state) {
  fixture *f = test_alloc(1, sizeof *f);
  f->cpu = copy_of(getenv("WEFT_CPU"));
  f->threads = copy_of(getenv("WEFT_THREADS"));
  f->device = open_device();
  f->scope = open_scope(f->device, NULL);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  weft__alloc_fail_at(0);
  weft_scope_close(f->scope);
  weft_device_close(f->device);
  restore("WEFT_CPU", f->cpu);
  restore("WEFT_THREADS", f->threads);
  free(f);
  return 0;
}

/* A tensor f32 whose elements count from 0 in row-major order. */
static weft_tensor *counting(weft_scope *scope, int rank, const int64_t *shape) {
  weft_tensor *t = weft_tensor_new(scope, WEFT_F32, rank, shape);
  assert_non_null(t);
  int64_t n = weft_tensor_numel(t);
  float *data = test_alloc((size_t)n, sizeof *data);
  for (int64_t i = 0; i < n; i++) data[i] = (float)i;
  assert_int_equal(weft_tensor_write(t, data, weft_tensor_bytes(t)), WEFT_OK);
  free(data);
  return t;
}

#define STRIDES(...)                                                                                                   \
  (const int64_t[]) { __VA_ARGS__ }

/* Checks a view of a counting tensor: the value of an element is its place in the storage, so the elements in row-major
 * order follow from the place of the first and the strides. */
static void expect_view(const weft_tensor *view, int64_t first, int rank, const int64_t *shape,
                        const int64_t *strides) {
  if (!view) fail_msg("no view: %s", weft_last_error());
  assert_int_equal(weft_tensor_rank(view), rank);
  int64_t n = 1;
  for (int i = 0; i < rank; i++) {
    assert_int_equal(weft_tensor_shape(view)[i], shape[i]);
    assert_int_equal(weft_tensor_strides(view)[i], strides[i]);
    n *= shape[i];
  }
  assert_int_equal(weft_tensor_numel(view), n);
  assert_int_equal(weft_tensor_bytes(view), n * 4);
  float *got = test_read(view);
  for (int64_t e = 0; e < n; e++) {
    int64_t place = first;
    for (int64_t i = rank - 1, rest = e; i >= 0; rest /= shape[i], i--) place += rest % shape[i] * strides[i];
    if (got[e] != (float)place)
      fail_msg("element %lld is %g, not %lld", (long long)e, (double)got[e], (long long)place);
  }
  free(got);
}

/* The last call gave NULL: it must have said EINVAL, and why, beginning with `start`. */
static void expect_refused(const weft_tensor *t, const char *start) {
  assert_null(t);
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  if (strncmp(weft_last_error(), start, strlen(start)) != 0)
    fail_msg("\"%s\" does not begin with \"%s\"", weft_last_error(), start);
  weft__error(WEFT_EIO, "left from an earlier check");
}

/* ---- scopes ---- */

static void closing_a_scope_frees_its_tensors(void **state) {
  fixture *f = *state;
  weft_scope *inner = open_scope(f->device, f->scope);
  const void *buffers[3];
  for (int i = 0; i < 3; i++) buffers[i] = counting(inner, TEST_SHAPE(100))->storage->buffer;
  weft_scope_close(inner);
  /* The device hands the freed buffers out again, in whatever order. */
  for (int i = 0; i < 3; i++) {
    const void *buffer = counting(f->scope, TEST_SHAPE(100))->storage->buffer;
    assert_true(buffer == buffers[0] || buffer == buffers[1] || buffer == buffers[2]);
  }
}

static void handles_are_freed_in_any_order(void **state) {
  fixture *f = *state;
  enum { N = 5 };
  for (int first = 0; first < N; first++)
    for (int second = 0; second < N; second++) {
      weft_scope *scope = open_scope(f->device, NULL);
      weft_tensor *t[N];
      for (int i = 0; i < N; i++) t[i] = counting(scope, TEST_SHAPE(i + 1));
      weft_tensor_free(t[first]);
      if (second != first) weft_tensor_free(t[second]);
      for (int i = 0; i < N; i++)
        if (i != first && i != second) expect_view(t[i], 0, TEST_SHAPE(i + 1), STRIDES(1));
      weft_scope_close(scope);
    }
}

static void kept_tensors_move_up(void **state) {
  fixture *f = *state;
  weft_scope *middle = open_scope(f->device, f->scope), *inner = open_scope(f->device, middle);
  weft_tensor *t = counting(inner, TEST_SHAPE(3, 5)), *left = counting(inner, TEST_SHAPE(3, 5));
  const void *left_buffer = left->storage->buffer;
  assert_ptr_equal(weft_scope_keep(inner, t), t);
  weft_scope_close(inner);
  assert_ptr_equal(counting(middle, TEST_SHAPE(3, 5))->storage->buffer, left_buffer);
  expect_view(t, 0, TEST_SHAPE(3, 5), STRIDES(5, 1));
  assert_ptr_equal(weft_scope_keep(middle, t), t);
  weft_scope_close(middle);
  counting(f->scope, TEST_SHAPE(3, 5));
  expect_view(t, 0, TEST_SHAPE(3, 5), STRIDES(5, 1));
}

static void only_own_tensors_are_kept(void **state) {
  fixture *f = *state;
  weft_scope *inner = open_scope(f->device, f->scope), *sibling = open_scope(f->device, f->scope);
  weft_tensor *t = counting(f->scope, TEST_SHAPE(4)), *other = counting(sibling, TEST_SHAPE(4));
  expect_refused(weft_scope_keep(inner, t), "keep: the tensor is another scope's");
  expect_refused(weft_scope_keep(inner, other), "keep: the tensor is another scope's");
  expect_refused(weft_scope_keep(f->scope, t), "keep: the scope has no parent");
  weft__error(WEFT_EIO, "first: reason");
  assert_null(weft_scope_keep(inner, NULL));
  assert_string_equal(weft_last_error(), "first: reason");
  weft_scope_close(inner);
  expect_view(t, 0, TEST_SHAPE(4), STRIDES(1));
  expect_view(other, 0, TEST_SHAPE(4), STRIDES(1));
  weft_scope_close(sibling);
}

static void scopes_need_a_device_and_a_parent_on_it(void **state) {
  fixture *f = *state;
  weft_scope *scope = f->scope;
  assert_int_equal(weft_scope_open(&scope, NULL, NULL), WEFT_EINVAL);
  assert_memory_equal(weft_last_error(), "scope: ", 7);
  weft_device *other = open_device();
  assert_int_equal(weft_scope_open(&scope, other, f->scope), WEFT_EINVAL);
  assert_non_null(strstr(weft_last_error(), "another device"));
  assert_ptr_equal(scope, f->scope);
  weft_device_close(other);
}

static void nothing_is_freed_and_closed(void **state) {
  (void)state;
  weft_scope_close(NULL);
  weft_tensor_free(NULL);
  weft_device_close(NULL);
}

/* ---- storage and views ---- */

/* New tensors of the base's size would be given its buffer, had it been freed with the base's handle. */
static void views_keep_storage_alive(void **state) {
  fixture *f = *state;
  weft_tensor *base = counting(f->scope, TEST_SHAPE(6, 10));
  const void *buffer = base->storage->buffer;
  weft_tensor *rows = weft_slice(f->scope, base, 0, 2, 3);
  weft_tensor *columns = weft_permute(f->scope, rows, (const int[]){1, 0});
  weft_tensor_free(base);
  for (int i = 0; i < 3; i++) assert_ptr_not_equal(counting(f->scope, TEST_SHAPE(60))->storage->buffer, buffer);
  expect_view(rows, 20, TEST_SHAPE(3, 10), STRIDES(10, 1));
  weft_tensor_free(rows);
  assert_ptr_not_equal(counting(f->scope, TEST_SHAPE(60))->storage->buffer, buffer);
  expect_view(columns, 20, TEST_SHAPE(10, 3), STRIDES(1, 10));
  weft_tensor_free(columns);
  assert_ptr_equal(counting(f->scope, TEST_SHAPE(60))->storage->buffer, buffer);
}

static void views_outlive_the_scope_of_their_base(void **state) {
  fixture *f = *state;
  weft_scope *inner = open_scope(f->device, f->scope);
  weft_tensor *base = counting(inner, TEST_SHAPE(4, 4));
  weft_tensor *kept = weft_scope_keep(inner, weft_slice(inner, base, 1, 1, 2));
  weft_tensor *outer = weft_reshape(f->scope, base, TEST_SHAPE(16));
  weft_scope_close(inner);
  counting(f->scope, TEST_SHAPE(16));
  expect_view(kept, 1, TEST_SHAPE(4, 2), STRIDES(4, 1));
  expect_view(outer, 0, TEST_SHAPE(16), STRIDES(1));
}

static void views_see_what_is_written(void **state) {
  fixture *f = *state;
  weft_tensor *base = counting(f->scope, TEST_SHAPE(3, 4)), *row = weft_slice(f->scope, base, 0, 1, 1);
  const float written[4] = {-1, -2, -3, -4};
  assert_int_equal(weft_tensor_write(row, written, sizeof written), WEFT_OK);
  float *got = test_read(base);
  for (int i = 0; i < 12; i++) assert_true(got[i] == (float)(i / 4 == 1 ? -(i - 3) : i));
  free(got);
}

static void slices_are_stretches_of_an_axis(void **state) {
  fixture *f = *state;
  weft_tensor *t = counting(f->scope, TEST_SHAPE(3, 5, 7));
  expect_view(weft_slice(f->scope, t, 0, 1, 2), 35, TEST_SHAPE(2, 5, 7), STRIDES(35, 7, 1));
  expect_view(weft_slice(f->scope, t, 1, 2, 3), 14, TEST_SHAPE(3, 3, 7), STRIDES(35, 7, 1));
  expect_view(weft_slice(f->scope, t, 2, 6, 1), 6, TEST_SHAPE(3, 5, 1), STRIDES(35, 7, 1));
  expect_view(weft_slice(f->scope, t, 1, 0, 5), 0, TEST_SHAPE(3, 5, 7), STRIDES(35, 7, 1));
  weft_tensor *block = weft_slice(f->scope, weft_slice(f->scope, t, 1, 1, 4), 2, 2, 3);
  expect_view(block, 9, TEST_SHAPE(3, 4, 3), STRIDES(35, 7, 1));
  expect_view(weft_slice(f->scope, block, 1, 3, 1), 30, TEST_SHAPE(3, 1, 3), STRIDES(35, 7, 1));
  for (int64_t start = 0; start <= 5; start++)
    expect_view(weft_slice(f->scope, t, 1, start, 0), 0, TEST_SHAPE(3, 0, 7), STRIDES(35, 7, 1));
}

static void slices_outside_are_refused(void **state) {
  fixture *f = *state;
  weft_tensor *t = counting(f->scope, TEST_SHAPE(3, 5));
  static const struct {
    int axis;
    int64_t start, length;
  } wrong[] = {{-1, 0, 1},
               {2, 0, 1},
               {1, -1, 2},
               {1, 0, -1},
               {1, 0, 6},
               {1, 5, 1},
               {1, 6, 0},
               {0, 2, 2},
               {1, INT64_MAX, 1},
               {1, 1, INT64_MAX},
               {1, INT64_MAX, INT64_MAX},
               {1, INT64_MIN, 1},
               {1, 0, INT64_MIN},
               {1, INT64_MIN, INT64_MIN}};
  for (size_t i = 0; i < WEFT_COUNT(wrong); i++)
    expect_refused(weft_slice(f->scope, t, wrong[i].axis, wrong[i].start, wrong[i].length),
                   "slice: does not fit a tensor [3,5] f32");
  weft_tensor *scalar = weft_tensor_new(f->scope, WEFT_F32, 0, NULL);
  expect_refused(weft_slice(f->scope, scalar, 0, 0, 1), "slice: does not fit a tensor [] f32");
}

static void reshapes_keep_the_order(void **state) {
  fixture *f = *state;
  weft_tensor *t = counting(f->scope, TEST_SHAPE(3, 5, 7));
  expect_view(weft_reshape(f->scope, t, TEST_SHAPE(105)), 0, TEST_SHAPE(105), STRIDES(1));
  expect_view(weft_reshape(f->scope, t, TEST_SHAPE(7, 1, 15)), 0, TEST_SHAPE(7, 1, 15), STRIDES(15, 15, 1));
  expect_view(weft_reshape(f->scope, weft_slice(f->scope, t, 0, 1, 2), TEST_SHAPE(10, 7)), 35, TEST_SHAPE(10, 7),
              STRIDES(7, 1));
  /* Not contiguous, but the axes that change are. */
  weft_tensor *columns = weft_slice(f->scope, weft_reshape(f->scope, t, TEST_SHAPE(3, 35)), 1, 5, 24);
  expect_view(weft_reshape(f->scope, columns, TEST_SHAPE(3, 4, 6)), 5, TEST_SHAPE(3, 4, 6), STRIDES(35, 6, 1));
  expect_view(weft_reshape(f->scope, columns, TEST_SHAPE(3, 1, 2, 12)), 5, TEST_SHAPE(3, 1, 2, 12),
              STRIDES(35, 35, 12, 1));
  weft_tensor *turned = weft_permute(f->scope, columns, (const int[]){1, 0});
  expect_view(weft_reshape(f->scope, turned, TEST_SHAPE(8, 3, 3)), 5, TEST_SHAPE(8, 3, 3), STRIDES(3, 1, 35));
  weft_tensor *no_rows = weft_slice(f->scope, columns, 0, 1, 0);
  expect_view(weft_reshape(f->scope, no_rows, TEST_SHAPE(0, 4, 6)), 40, TEST_SHAPE(0, 4, 6), STRIDES(24, 6, 1));
  weft_tensor *one = weft_slice(f->scope, weft_reshape(f->scope, t, TEST_SHAPE(105)), 0, 17, 1);
  expect_view(weft_reshape(f->scope, one, 0, NULL), 17, 0, NULL, NULL);
  weft_tensor *nothing = counting(f->scope, TEST_SHAPE(4, 0, 3));
  expect_view(weft_reshape(f->scope, nothing, TEST_SHAPE(0, 9)), 0, TEST_SHAPE(0, 9), STRIDES(9, 1));
}

static void misfitting_reshapes_are_refused(void **state) {
  fixture *f = *state;
  weft_tensor *t = counting(f->scope, TEST_SHAPE(3, 4));
  const char *start = "reshape: does not fit a tensor [3,4] f32";
  expect_refused(weft_reshape(f->scope, t, TEST_SHAPE(3, 5)), start);
  expect_refused(weft_reshape(f->scope, t, TEST_SHAPE(0)), start);
  expect_refused(weft_reshape(f->scope, t, TEST_SHAPE(-3, -4)), start);
  expect_refused(weft_reshape(f->scope, t, TEST_SHAPE(INT64_MAX, INT64_MAX)), start);
  expect_refused(weft_reshape(f->scope, t, TEST_SHAPE(1, 1, 1, 1, 1, 1, 1, 3, 4)), start);
  expect_refused(weft_reshape(f->scope, t, -1, NULL), start);
  expect_refused(weft_reshape(f->scope, weft_permute(f->scope, t, (const int[]){1, 0}), TEST_SHAPE(12)),
                 "reshape: does not fit a tensor [4,3] f32");
  expect_refused(weft_reshape(f->scope, weft_slice(f->scope, t, 1, 0, 2), TEST_SHAPE(2, 3)),
                 "reshape: does not fit a tensor [3,2] f32");
  expect_refused(weft_reshape(f->scope, weft_slice(f->scope, t, 1, 0, 2), TEST_SHAPE(6)),
                 "reshape: does not fit a tensor [3,2] f32");
}

static void permutations_reorder_axes(void **state) {
  fixture *f = *state;
  weft_tensor *t = counting(f->scope, TEST_SHAPE(2, 3, 5));
  expect_view(weft_permute(f->scope, t, (const int[]){0, 1, 2}), 0, TEST_SHAPE(2, 3, 5), STRIDES(15, 5, 1));
  expect_view(weft_permute(f->scope, t, (const int[]){2, 0, 1}), 0, TEST_SHAPE(5, 2, 3), STRIDES(1, 15, 5));
  expect_view(weft_permute(f->scope, t, (const int[]){1, 2, 0}), 0, TEST_SHAPE(3, 5, 2), STRIDES(5, 1, 15));
  expect_view(weft_permute(f->scope, t, (const int[]){1, 0, 2}), 0, TEST_SHAPE(3, 2, 5), STRIDES(5, 15, 1));
  weft_tensor *part = weft_slice(f->scope, weft_permute(f->scope, t, (const int[]){2, 1, 0}), 0, 1, 3);
  expect_view(part, 1, TEST_SHAPE(3, 3, 2), STRIDES(1, 5, 15));
  expect_view(weft_permute(f->scope, part, (const int[]){2, 1, 0}), 1, TEST_SHAPE(2, 3, 3), STRIDES(15, 5, 1));
  weft_tensor *nothing = counting(f->scope, TEST_SHAPE(2, 0));
  expect_view(weft_permute(f->scope, nothing, (const int[]){1, 0}), 0, TEST_SHAPE(0, 2), STRIDES(1, 0));
}

static void wrong_permutations_are_refused(void **state) {
  fixture *f = *state;
  weft_tensor *t = counting(f->scope, TEST_SHAPE(2, 3, 5));
  static const int wrong[][3] = {{0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, {2, 2, 2}, {0, 1, 33}, {0, 1, -2147483647 - 1}};
  for (size_t i = 0; i < WEFT_COUNT(wrong); i++)
    expect_refused(weft_permute(f->scope, t, wrong[i]), "permute: does not fit a tensor [2,3,5] f32");
}

static void views_of_nothing_keep_the_error(void **state) {
  fixture *f = *state;
  weft__error(WEFT_EIO, "first: reason");
  assert_null(weft_slice(f->scope, NULL, 0, 0, 1));
  assert_null(weft_reshape(f->scope, NULL, TEST_SHAPE(1)));
  assert_null(weft_permute(f->scope, NULL, (const int[]){0}));
  assert_string_equal(weft_last_error(), "first: reason");
}

static void ranks_0_to_8_exist(void **state) {
  fixture *f = *state;
  const float number = 3.5f;
  weft_tensor *scalar = weft_tensor_from(f->scope, WEFT_F32, 0, NULL, &number);
  assert_non_null(scalar);
  assert_int_equal(weft_tensor_rank(scalar), 0);
  assert_int_equal(weft_tensor_numel(scalar), 1);
  assert_int_equal(weft_tensor_bytes(scalar), 4);
  float got = 0;
  assert_int_equal(weft_tensor_read(scalar, &got, 4), WEFT_OK);
  assert_true(got == number);
  assert_non_null(weft_permute(f->scope, scalar, NULL));

  weft_tensor *deep = counting(f->scope, TEST_SHAPE(2, 1, 3, 2, 1, 2, 3, 2));
  expect_view(deep, 0, TEST_SHAPE(2, 1, 3, 2, 1, 2, 3, 2), STRIDES(72, 72, 24, 12, 12, 6, 2, 1));
  expect_view(weft_permute(f->scope, deep, (const int[]){7, 6, 5, 4, 3, 2, 1, 0}), 0,
              TEST_SHAPE(2, 3, 2, 1, 2, 3, 1, 2), STRIDES(1, 2, 6, 12, 12, 24, 72, 72));
  expect_view(weft_slice(f->scope, deep, 7, 1, 1), 1, TEST_SHAPE(2, 1, 3, 2, 1, 2, 3, 1),
              STRIDES(72, 72, 24, 12, 12, 6, 2, 1));

  const int64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, 9, ones), "tensor: rank 9");
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, -1, ones), "tensor: rank -1");
}

/* ---- dtypes and sizes ---- */

static void dtypes_have_names(void **state) {
  (void)state;
  static const char *const names[WEFT_DTYPE_COUNT] = {
      [WEFT_F32] = "f32",    [WEFT_F16] = "f16",   [WEFT_BF16] = "bf16",     [WEFT_I32] = "i32",
      [WEFT_Q8_0] = "q8_0",  [WEFT_Q4_0] = "q4_0", [WEFT_Q4_1] = "q4_1",     [WEFT_Q5_0] = "q5_0",
      [WEFT_Q5_1] = "q5_1",  [WEFT_Q2_K] = "q2_k", [WEFT_Q3_K] = "q3_k",     [WEFT_Q4_K] = "q4_k",
      [WEFT_Q5_K] = "q5_k",  [WEFT_Q6_K] = "q6_k", [WEFT_IQ4_NL] = "iq4_nl", [WEFT_IQ4_XS] = "iq4_xs",
      [WEFT_MXFP4] = "mxfp4"};
  for (int i = 0; i < WEFT_DTYPE_COUNT; i++) assert_string_equal(weft_dtype_name((weft_dtype)i), names[i]);
  assert_string_equal(weft_dtype_name(WEFT_DTYPE_COUNT), "unknown");
  assert_string_equal(weft_dtype_name((weft_dtype)-1), "unknown");
}

static void unknown_dtypes_are_refused(void **state) {
  fixture *f = *state;
  expect_refused(weft_tensor_new(f->scope, WEFT_DTYPE_COUNT, TEST_SHAPE(2)), "tensor: unknown dtype");
  expect_refused(weft_tensor_new(f->scope, (weft_dtype)-1, TEST_SHAPE(2)), "tensor: unknown dtype");
}

static void quantised_rows_are_whole_blocks(void **state) {
  fixture *f = *state;
  static const struct {
    weft_dtype dtype;
    size_t block_bytes;
  } kinds[] = {{WEFT_Q8_0, 34}, {WEFT_Q4_1, 20}};
  for (size_t k = 0; k < WEFT_COUNT(kinds); k++) {
    weft_dtype dtype = kinds[k].dtype;
    assert_int_equal(weft_tensor_bytes(weft_tensor_new(f->scope, dtype, TEST_SHAPE(32))), kinds[k].block_bytes);
    assert_int_equal(weft_tensor_bytes(weft_tensor_new(f->scope, dtype, TEST_SHAPE(3, 64))), 6 * kinds[k].block_bytes);
    assert_int_equal(weft_tensor_bytes(weft_tensor_new(f->scope, dtype, TEST_SHAPE(3, 0))), 0);
    /* The last block of a row may hold more than the axis has. */
    static const struct {
      int64_t shape[2];
      size_t n_blocks;
    } ragged[] = {{{1, 31}, 1}, {{1, 33}, 2}, {{1, 1}, 1}, {{32, 16}, 32}, {{64, 48}, 128}};
    for (size_t i = 0; i < WEFT_COUNT(ragged); i++)
      assert_int_equal(weft_tensor_bytes(weft_tensor_new(f->scope, dtype, 2, ragged[i].shape)),
                       ragged[i].n_blocks * kinds[k].block_bytes);
    char start[64];
    snprintf(start, sizeof start, "tensor: a %s tensor is made of rows", weft_dtype_name(dtype));
    expect_refused(weft_tensor_new(f->scope, dtype, 0, NULL), start);
  }
}

/* Quantised elements have no strides: they can be read and written whole, and that is all. */
static void quantised_tensors_are_read_whole(void **state) {
  fixture *f = *state;
  enum { N_ROWS = 3, N_COLS = 64 };
  static const weft_dtype dtypes[] = {WEFT_Q8_0, WEFT_Q4_1};
  for (size_t i = 0; i < WEFT_COUNT(dtypes); i++) {
    double values[N_ROWS * N_COLS];
    void *stored = test_stored_weight(dtypes[i], N_ROWS, N_COLS, 5, values);
    weft_tensor *t = weft_tensor_from(f->scope, dtypes[i], TEST_SHAPE(N_ROWS, N_COLS), stored);
    assert_non_null(t);
    size_t n_bytes = weft_tensor_bytes(t);
    void *got = test_alloc(n_bytes, 1);
    assert_int_equal(weft_tensor_read(t, got, n_bytes), WEFT_OK);
    assert_memory_equal(got, stored, n_bytes);
    expect_refused(weft_slice(f->scope, t, 0, 0, 1), "slice: does not fit a tensor [3,64]");
    expect_refused(weft_reshape(f->scope, t, TEST_SHAPE(192)), "reshape: does not fit a tensor [3,64]");
    expect_refused(weft_permute(f->scope, t, (const int[]){1, 0}), "permute: does not fit a tensor [3,64]");
    free(got);
    free(stored);
  }
}

/* Reading strided views of elements that are not four bytes wide. */
static void narrow_elements_are_read_in_order(void **state) {
  fixture *f = *state;
  uint16_t stored[12], got[4];
  for (int i = 0; i < 12; i++) stored[i] = (uint16_t)(1000 + i);
  weft_tensor *t = weft_tensor_from(f->scope, WEFT_F16, TEST_SHAPE(3, 4), stored);
  weft_tensor *block = weft_slice(f->scope, weft_slice(f->scope, t, 0, 1, 2), 1, 1, 2);
  assert_int_equal(weft_tensor_bytes(block), 8);
  assert_int_equal(weft_tensor_read(block, got, 8), WEFT_OK);
  assert_memory_equal(got, ((const uint16_t[]){1005, 1006, 1009, 1010}), 8);
  weft_tensor *turned = weft_permute(f->scope, block, (const int[]){1, 0});
  assert_int_equal(weft_tensor_read(turned, got, 8), WEFT_OK);
  assert_memory_equal(got, ((const uint16_t[]){1005, 1009, 1006, 1010}), 8);
}

static void impossible_shapes_are_refused(void **state) {
  fixture *f = *state;
  const int64_t most = INT64_MAX, half = (int64_t)1 << 32;
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(-1)), "tensor: an extent is negative");
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(2, INT64_MIN)), "tensor: an extent is negative");
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(0, -1)), "tensor: an extent is negative");
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(half, half)), "tensor: an extent");
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(3, most)), "tensor: an extent");
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(most)), "tensor: its size overflows");
  /* Extents whose product alone would overflow: without elements there are still strides to compute. */
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(most, most, 0)), "tensor: an extent");
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(0, most, most)), "tensor: an extent");
  expect_refused(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(most, 0, most)), "tensor: an extent");
  weft_tensor *nothing = counting(f->scope, TEST_SHAPE(0, 3));
  expect_refused(weft_reshape(f->scope, nothing, TEST_SHAPE(most, 0, most)), "reshape: ");
}

/* 2^62 bytes are more than any machine can address.  Nobody has held them, so the peak does not count them either: it
 * is looked at once the device has given out another buffer. */
static void too_large_a_tensor_is_out_of_memory(void **state) {
  fixture *f = *state;
  size_t before = weft_device_peak_bytes(f->device);
  assert_null(weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE((int64_t)1 << 60)));
  assert_int_equal(weft_last_status(), WEFT_ENOMEM);
  expect_view(counting(f->scope, TEST_SHAPE(10)), 0, TEST_SHAPE(10), STRIDES(1));
  assert_in_range(weft_device_peak_bytes(f->device), before, before + 64);
}

/* ---- reading and writing ---- */

static void transfers_of_another_size_are_refused(void **state) {
  fixture *f = *state;
  weft_tensor *t = counting(f->scope, TEST_SHAPE(2, 3));
  char data[64] = {0};
  static const size_t wrong[] = {0, 1, 23, 25, SIZE_MAX};
  for (size_t i = 0; i < WEFT_COUNT(wrong); i++) {
    char text[64];
    snprintf(text, sizeof text, "%zu bytes given for a tensor of 24", wrong[i]);
    assert_int_equal(weft_tensor_read(t, data, wrong[i]), WEFT_EINVAL);
    assert_non_null(strstr(weft_last_error(), text));
    weft__error(WEFT_EIO, "left from an earlier check");
    assert_int_equal(weft_tensor_write(t, data, wrong[i]), WEFT_EINVAL);
    assert_non_null(strstr(weft_last_error(), text));
  }
  expect_view(t, 0, TEST_SHAPE(2, 3), STRIDES(3, 1));
}

static void only_contiguous_tensors_are_written(void **state) {
  fixture *f = *state;
  weft_tensor *t = counting(f->scope, TEST_SHAPE(2, 3));
  const float data[6] = {9, 9, 9, 9, 9, 9};
  assert_int_equal(weft_tensor_write(weft_slice(f->scope, t, 1, 0, 2), data, 16), WEFT_EINVAL);
  assert_memory_equal(weft_last_error(), "tensor: only a contiguous", 25);
  assert_int_equal(weft_tensor_write(weft_permute(f->scope, t, (const int[]){1, 0}), data, 24), WEFT_EINVAL);
  expect_view(t, 0, TEST_SHAPE(2, 3), STRIDES(3, 1));
  /* A stride is of no consequence along an axis of one element. */
  weft_tensor *cell = weft_slice(f->scope, weft_slice(f->scope, t, 1, 1, 1), 0, 1, 1);
  const float four = 4;
  assert_int_equal(weft_tensor_write(cell, &four, sizeof four), WEFT_OK);
  expect_view(t, 0, TEST_SHAPE(2, 3), STRIDES(3, 1));
}

static void tensors_without_elements_are_tensors(void **state) {
  fixture *f = *state;
  weft_tensor *t = weft_tensor_from(f->scope, WEFT_F32, TEST_SHAPE(2, 0, 3), NULL);
  assert_non_null(t);
  assert_int_equal(weft_tensor_numel(t), 0);
  assert_int_equal(weft_tensor_bytes(t), 0);
  assert_int_equal(weft_tensor_read(t, NULL, 0), WEFT_OK);
  assert_int_equal(weft_tensor_write(t, NULL, 0), WEFT_OK);
  char byte = 0;
  assert_int_equal(weft_tensor_read(t, &byte, 1), WEFT_EINVAL);
}

/* What a product operand's memory looks like is the backend's affair. */
static void packed_weights_are_opaque(void **state) {
  fixture *f = *state;
  float data[4 * 32];
  test_fill(data, WEFT_COUNT(data), 1, 3);
  weft_tensor *w = weft__weight_load(f->scope, WEFT_F32, TEST_SHAPE(4, 32), data, WEFT__WEIGHT_PRODUCT, NULL);
  assert_non_null(w);
  assert_int_equal(weft_tensor_read(w, data, sizeof data), WEFT_EUNSUPPORTED);
  assert_int_equal(weft_tensor_write(w, data, sizeof data), WEFT_EUNSUPPORTED);
  expect_refused(weft_slice(f->scope, w, 0, 0, 1), "slice: ");
  expect_refused(weft_reshape(f->scope, w, TEST_SHAPE(128)), "reshape: ");
  expect_refused(weft_permute(f->scope, w, (const int[]){1, 0}), "permute: ");
}

/* A plain weight is the caller's memory, and stays it. */
static void plain_weights_are_borrowed(void **state) {
  fixture *f = *state;
  float data[3 * 5];
  for (int i = 0; i < 15; i++) data[i] = (float)i;
  size_t peak = weft_device_peak_bytes(f->device);
  weft_tensor *w = weft__weight_load(f->scope, WEFT_F32, TEST_SHAPE(3, 5), data, WEFT__WEIGHT_PLAIN, NULL);
  weft_tensor *row = weft_slice(f->scope, w, 0, 2, 1);
  weft_tensor_free(w);
  expect_view(row, 10, TEST_SHAPE(1, 5), STRIDES(5, 1));
  assert_int_equal(weft_device_peak_bytes(f->device), peak);
  weft_tensor_free(row);
  assert_true(data[14] == 14);
}

/* ---- memory ---- */

/* A lowering, views, a nested scope, a weight: everything that allocates on the way to a result. */
static weft_tensor *small_expression(weft_scope *scope, weft_scope *inner) {
  static const float data[64] = {1, 2, 3};
  static const int32_t ids[2] = {1, 0};
  const weft_concat_attrs last = {.axis = 1};
  weft_tensor *a = weft_tensor_from(inner, WEFT_F32, TEST_SHAPE(2, 32), data);
  weft_tensor *w = weft__weight_load(inner, WEFT_F32, TEST_SHAPE(2, 32), data, WEFT__WEIGHT_PRODUCT, NULL);
  weft_tensor *rows = weft_embed(inner, a, weft_tensor_from(inner, WEFT_I32, TEST_SHAPE(2), ids));
  weft_tensor *operands[] = {rows, weft_add(inner, a, weft_slice(inner, a, 0, 1, 1))};
  weft_tensor *product = weft_matmul_nt(inner, weft__op_run(inner, WEFT_OP_ID_silu_mul, operands, NULL, true), w);
  weft_tensor *joined = weft_concat(inner, product, weft_softmax(inner, rows), &last);
  weft_tensor *y = weft_scope_keep(inner, joined);
  return weft_reshape(scope, y, TEST_SHAPE(68));
}

/* From an unopened device to a tensor that was read, releasing everything, whatever happened. */
static weft_status run_small_expression(void) {
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .n_threads = 2};
  weft_device *device = NULL;
  weft_scope *scope = NULL, *inner = NULL;
  weft_status status = weft_device_open(&device, &options);
  if (!status) status = weft_scope_open(&scope, device, NULL);
  if (!status) status = weft_scope_open(&inner, device, scope);
  if (!status) {
    const weft_tensor *y = small_expression(scope, inner);
    float values[68];
    status = y ? weft_tensor_read(y, values, sizeof values) : weft_last_status();
  }
  weft_scope_close(inner);
  weft_scope_close(scope);
  weft_device_close(device);
  return status;
}

/* Leaks and double frees show under the address sanitizer. */
static void every_allocation_may_fail(void **state) {
  (void)state;
  int n = 1;
  for (;; n++) {
    assert_in_range(n, 1, 1000);
    weft__error(WEFT_EIO, "left from an earlier run");
    weft__alloc_fail_at(n);
    weft_status status = run_small_expression();
    weft__alloc_fail_at(0);
    if (!status) break;
    assert_int_equal(status, WEFT_ENOMEM);
    assert_int_equal(weft_last_status(), WEFT_ENOMEM);
  }
  assert_in_range(n, 30, 1000); /* a device, two scopes, ten tensors of three blocks each */
}

/* The message of a refusal is built in memory; without it, the refusal still stands. */
static void refusals_do_without_memory(void **state) {
  fixture *f = *state;
  weft_tensor *a = counting(f->scope, TEST_SHAPE(2, 3)), *b = counting(f->scope, TEST_SHAPE(2, 4));
  for (int n = 1; n <= 3; n++) {
    weft__alloc_fail_at(n);
    weft_tensor *y = weft_add(f->scope, a, b);
    weft__alloc_fail_at(0);
    expect_refused(y, "add: ");
  }
}

static void closed_scopes_leave_their_buffers(void **state) {
  fixture *f = *state;
  size_t peak = 0;
  for (int i = 0; i < 1000; i++) {
    weft_scope *scope = open_scope(f->device, f->scope), *inner = open_scope(f->device, scope);
    assert_non_null(small_expression(scope, inner));
    weft_scope_close(inner);
    weft_scope_close(scope);
    if (i == 0) peak = weft_device_peak_bytes(f->device);
  }
  assert_true(peak > 0);
  assert_int_equal(weft_device_peak_bytes(f->device), peak);
}

static void peak_counts_what_tensors_held(void **state) {
  fixture *f = *state;
  size_t before = weft_device_peak_bytes(f->device);
  weft_tensor *a = weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(50000));
  weft_tensor *b = weft_tensor_new(f->scope, WEFT_F32, TEST_SHAPE(50000));
  size_t both = weft_device_peak_bytes(f->device);
  assert_in_range(both, before + 400000, before + 600000); /* sizes are rounded up by at most a quarter */
  weft_tensor_free(a);
  weft_tensor_free(b);
  assert_int_equal(weft_device_peak_bytes(f->device), both);
}

/* ---- devices ---- */

static weft_status open_with(weft_device_kind kind, int n_threads, weft_device **out) {
  const weft_device_options options = {.kind = kind, .n_threads = n_threads};
  return weft_device_open(out, &options);
}

static void expect_no_device(weft_device_kind kind, int n_threads, weft_status status, const char *start) {
  weft_device *untouched = (weft_device *)(uintptr_t)64, *device = untouched;
  weft__error(WEFT_EIO, "left from an earlier check");
  assert_int_equal(open_with(kind, n_threads, &device), status);
  assert_ptr_equal(device, untouched);
  assert_int_equal(weft_last_status(), status);
  if (strncmp(weft_last_error(), start, strlen(start)) != 0)
    fail_msg("\"%s\" does not begin with \"%s\"", weft_last_error(), start);
}

static void expect_name(const weft_device_options *options, const char *want) {
  weft_device *device = NULL;
  assert_int_equal(weft_device_open(&device, options), WEFT_OK);
  assert_string_equal(weft_device_name(device), want);
  weft_device_close(device);
}

static void threads_out_of_range_are_refused(void **state) {
  (void)state;
  unsetenv("WEFT_THREADS");
  static const int wrong[] = {-1, -2147483647 - 1, WEFT_MAX_THREADS + 1, 2147483647};
  for (size_t i = 0; i < WEFT_COUNT(wrong); i++) {
    char start[64];
    snprintf(start, sizeof start, "threads: %d (1 to %d)", wrong[i], WEFT_MAX_THREADS);
    expect_no_device(WEFT_DEVICE_CPU, wrong[i], WEFT_EINVAL, start);
  }
}

static void wrong_weft_threads_is_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {"0", "-1", "257", "two", "2x", "1.5", "99999999999999999999", " "};
  for (size_t i = 0; i < WEFT_COUNT(wrong); i++) {
    char start[64];
    setenv("WEFT_THREADS", wrong[i], 1);
    snprintf(start, sizeof start, "WEFT_THREADS=%s: ", wrong[i]);
    expect_no_device(WEFT_DEVICE_CPU, 0, WEFT_EINVAL, start);
  }
}

static void names_tell_variant_arithmetic_and_threads(void **state) {
  (void)state;
  weft_device_options options = {.kind = WEFT_DEVICE_CPU};
  setenv("WEFT_CPU", "scalar", 1);
  setenv("WEFT_THREADS", "3", 1);
  expect_name(&options, "cpu (scalar, 3 threads)");
  options.arithmetic = WEFT_EXACT;
  expect_name(&options, "cpu (scalar, exact, 3 threads)");
  options.n_threads = 1;
  expect_name(&options, "cpu (scalar, exact, 1 thread)");
  setenv("WEFT_THREADS", "nonsense", 1); /* not asked when the options say how many */
  options.arithmetic = WEFT_FAST;
  options.n_threads = 2;
  expect_name(&options, "cpu (scalar, 2 threads)");
  setenv("WEFT_THREADS", "", 1);
  options.n_threads = 0;
  char want[64];
  int n = weft__processors() < WEFT_MAX_THREADS ? weft__processors() : WEFT_MAX_THREADS;
  snprintf(want, sizeof want, "cpu (scalar, %d thread%s)", n, n == 1 ? "" : "s");
  expect_name(&options, want);
}

/* A list of processors decides the number of threads where nothing else does. */
static void affinity_pins_a_device(void **state) {
  (void)state;
  unsetenv("WEFT_THREADS");
  setenv("WEFT_CPU", "scalar", 1);
  weft_device_options options = {.kind = WEFT_DEVICE_CPU, .affinity = "0"};
  weft_device *device = NULL;
#if defined(__linux__)
  expect_name(&options, "cpu (scalar, 1 thread)");
  options.n_threads = 3;
  expect_name(&options, "cpu (scalar, 3 threads)");
  options.affinity = "1023";
  assert_int_equal(weft_device_open(&device, &options), WEFT_EINVAL);
#else
  assert_int_equal(weft_device_open(&device, &options), WEFT_EUNSUPPORTED);
#endif
  options.affinity = "0-";
  assert_int_equal(weft_device_open(&device, &options), WEFT_EINVAL);
  assert_non_null(strstr(weft_last_error(), "affinity: '0-' is not a list of processors"));
  assert_null(device);
  unsetenv("WEFT_CPU");
}

static void defaults_open_a_device(void **state) {
  (void)state;
  unsetenv("WEFT_THREADS");
  weft_device *device = NULL;
  assert_int_equal(weft_device_open(&device, NULL), WEFT_OK);
  assert_true(weft_device_name(device)[0]);
  weft_device_close(device);
}

static void there_is_no_gpu(void **state) {
  (void)state;
#ifdef WEFT_GPU
  setenv("WEFT_WGPU_LIB", "/nonexistent/libwgpu_native.so", 1);
  expect_no_device(WEFT_DEVICE_GPU, 0, WEFT_ENODEVICE, "WEFT_WGPU_LIB: /nonexistent/libwgpu_native.so: ");
  unsetenv("WEFT_WGPU_LIB");
#else
  expect_no_device(WEFT_DEVICE_GPU, 0, WEFT_EUNSUPPORTED, "device gpu: this build has no GPU code");
#endif
}

static void unknown_variants_are_refused(void **state) {
  (void)state;
  static const char *const wrong[] = {"none", "AVX2", "avx", "scalar ", "scalarx"};
  for (size_t w = 0; w < WEFT_COUNT(wrong); w++) {
    char start[64];
    setenv("WEFT_CPU", wrong[w], 1);
    snprintf(start, sizeof start, "WEFT_CPU=%s: no such variant", wrong[w]);
    expect_no_device(WEFT_DEVICE_CPU, 1, WEFT_EINVAL, start);
    for (int i = 0; weft_cpu_variant_name(i); i++)
      if (weft_cpu_variant_usable(i)) assert_non_null(strstr(strchr(weft_last_error(), '('), weft_cpu_variant_name(i)));
    assert_null(weft_cpu_variant_selected());
    assert_int_equal(weft_last_status(), WEFT_EINVAL);
  }
}

/* Variants that share the part of their name before "_" are a family; arm64's are. */
static void a_family_is_its_best_variant(void **state) {
  (void)state;
  const char *best = NULL;
  for (int i = 0; weft_cpu_variant_name(i) && !best; i++)
    if (weft_cpu_variant_usable(i) && strncmp(weft_cpu_variant_name(i), "neon_", 5) == 0)
      best = weft_cpu_variant_name(i);
  setenv("WEFT_CPU", "neon", 1);
#if defined(__aarch64__)
  assert_non_null(best);
  assert_string_equal(weft_cpu_variant_selected(), best);
#else
  assert_null(best);
  expect_no_device(WEFT_DEVICE_CPU, 1, WEFT_EINVAL, "WEFT_CPU=neon: no such variant");
#endif
  setenv("WEFT_CPU", "neo", 1);
  expect_no_device(WEFT_DEVICE_CPU, 1, WEFT_EINVAL, "WEFT_CPU=neo: no such variant");
}

static void variants_are_listed_best_first(void **state) {
  (void)state;
  const char *best = NULL, *last = NULL;
  int n = 0;
  for (; weft_cpu_variant_name(n); n++) {
    const char *name = last = weft_cpu_variant_name(n);
    setenv("WEFT_CPU", name, 1);
    if (weft_cpu_variant_usable(n)) {
      if (!best) best = name;
      assert_string_equal(weft_cpu_variant_selected(), name);
    } else {
      assert_null(weft_cpu_variant_selected());
      assert_non_null(strstr(weft_last_error(), "this processor cannot run it"));
    }
  }
  assert_string_equal(last, "scalar"); /* what every processor runs */
  assert_int_equal(weft_cpu_variant_usable(n - 1), 1);
  setenv("WEFT_CPU", "", 1);
  assert_string_equal(weft_cpu_variant_selected(), best);
  unsetenv("WEFT_CPU");
  assert_string_equal(weft_cpu_variant_selected(), best);
  static const int outside[] = {-1, 1000};
  for (size_t i = 0; i < WEFT_COUNT(outside); i++) {
    assert_null(weft_cpu_variant_name(outside[i]));
    assert_int_equal(weft_cpu_variant_usable(outside[i]), 0);
  }
}

/* ---- operands ---- */

static void first_error_of_an_expression_stays(void **state) {
  fixture *f = *state;
  const weft_rms_norm_attrs norm = {.eps = 1e-5f};
  weft_tensor *a = counting(f->scope, TEST_SHAPE(2, 3)), *b = counting(f->scope, TEST_SHAPE(4)),
              *gain = counting(f->scope, TEST_SHAPE(3));
  weft_tensor *wrong = weft_mul(f->scope, a, b);
  assert_null(wrong);
  assert_non_null(strstr(weft_last_error(), "mul: "));
  char message[256];
  snprintf(message, sizeof message, "%s", weft_last_error());
  weft__error(WEFT_EIO, "something else");
  weft_tensor *y = weft_add(
      f->scope, a,
      weft_softmax(f->scope,
                   weft_rms_norm(f->scope, weft_silu(f->scope, weft_slice(f->scope, weft_mul(f->scope, a, b), 0, 0, 1)),
                                 gain, &norm)));
  assert_null(y);
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  assert_string_equal(weft_last_error(), message);
}

/* Runs every operator once for each of its operands, with `odd` there and `usual` everywhere else. */
static void for_each_operand(weft_scope *scope, weft_tensor *usual, weft_tensor *odd,
                             void (*check)(const weft__op_row *row, int operand, weft_tensor *y)) {
  static const char attrs[64]; /* never looked at: operands are checked first */
  for (int op = 0; op < WEFT_OP_COUNT; op++) {
    const weft__op_row *row = weft__op_get((weft_op)op);
    for (int i = 0; i < row->n_inputs; i++) {
      weft_tensor *in[WEFT__OP_MAX_INPUTS];
      for (int k = 0; k < row->n_inputs; k++) in[k] = k == i ? odd : usual;
      weft__error(WEFT_EIO, "first: reason");
      check(row, i, weft__op_run(scope, (weft_op)op, in, attrs, false));
    }
  }
}

static void expect_first_error(const weft__op_row *row, int operand, weft_tensor *y) {
  (void)row, (void)operand;
  assert_null(y);
  assert_int_equal(weft_last_status(), WEFT_EIO);
  assert_string_equal(weft_last_error(), "first: reason");
}

static void null_operands_give_null(void **state) {
  fixture *f = *state;
  for_each_operand(f->scope, counting(f->scope, TEST_SHAPE(2, 3)), NULL, expect_first_error);
}

static void expect_other_device(const weft__op_row *row, int operand, weft_tensor *y) {
  char start[96];
  snprintf(start, sizeof start, "%s: operand %c is on another device", row->name, 'a' + operand);
  expect_refused(y, start);
}

static void operands_of_two_devices_are_refused(void **state) {
  fixture *f = *state;
  weft_device *other = open_device();
  weft_scope *scope = open_scope(other, NULL);
  for_each_operand(f->scope, counting(f->scope, TEST_SHAPE(2, 3)), counting(scope, TEST_SHAPE(2, 3)),
                   expect_other_device);
  weft_scope_close(scope);
  weft_device_close(other);
}

/* In a thread without an error there is none to keep, so NULL is an error of its own. */
static void *add_nothing(void *scope) {
  static const int64_t shape[] = {2};
  weft_tensor *a = weft_tensor_new(scope, WEFT_F32, 1, shape);
  bool is_right = a && !weft_add(scope, a, NULL) && weft_last_status() == WEFT_EINVAL &&
                  strcmp(weft_last_error(), "add: operand b is NULL") == 0;
  return is_right ? scope : NULL;
}

static void null_without_an_error_is_one(void **state) {
  fixture *f = *state;
  pthread_t thread;
  void *answer = NULL;
  assert_int_equal(pthread_create(&thread, NULL, add_nothing, f->scope), 0);
  assert_int_equal(pthread_join(thread, &answer), 0);
  assert_non_null(answer);
}

static void missing_attributes_are_refused(void **state) {
  fixture *f = *state;
  weft_tensor *t = counting(f->scope, TEST_SHAPE(2, 3));
  weft_tensor *in[WEFT__OP_MAX_INPUTS];
  for (int i = 0; i < WEFT__OP_MAX_INPUTS; i++) in[i] = t;
  int n_checked = 0;
  for (int op = 0; op < WEFT_OP_COUNT; op++) {
    const weft__op_row *row = weft__op_get((weft_op)op);
    if (!row->has_attrs) continue;
    char start[96];
    snprintf(start, sizeof start, "%s: no attributes", row->name);
    expect_refused(weft__op_run(f->scope, (weft_op)op, in, NULL, false), start);
    n_checked++;
  }
  assert_true(n_checked > 0);
  expect_refused(weft_concat(f->scope, t, t, NULL), "concat: no attributes");
}

#define TENSOR_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

/* In a thread that has no error yet. */
static void *view_nothing(void *scope) {
  bool is_told = !weft_slice(scope, NULL, 0, 0, 1) && weft_last_status() == WEFT_EINVAL;
  return is_told ? scope : NULL;
}

static void views_of_nothing_are_errors(void **state) {
  const fixture *f = *state;
  pthread_t thread;
  void *told;
  assert_int_equal(pthread_create(&thread, NULL, view_nothing, f->scope), 0);
  assert_int_equal(pthread_join(thread, &told), 0);
  assert_ptr_equal(told, f->scope);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TENSOR_TEST(views_of_nothing_are_errors),
      TENSOR_TEST(closing_a_scope_frees_its_tensors),
      TENSOR_TEST(handles_are_freed_in_any_order),
      TENSOR_TEST(kept_tensors_move_up),
      TENSOR_TEST(only_own_tensors_are_kept),
      TENSOR_TEST(scopes_need_a_device_and_a_parent_on_it),
      TENSOR_TEST(nothing_is_freed_and_closed),
      TENSOR_TEST(views_keep_storage_alive),
      TENSOR_TEST(views_outlive_the_scope_of_their_base),
      TENSOR_TEST(views_see_what_is_written),
      TENSOR_TEST(slices_are_stretches_of_an_axis),
      TENSOR_TEST(slices_outside_are_refused),
      TENSOR_TEST(reshapes_keep_the_order),
      TENSOR_TEST(misfitting_reshapes_are_refused),
      TENSOR_TEST(permutations_reorder_axes),
      TENSOR_TEST(wrong_permutations_are_refused),
      TENSOR_TEST(views_of_nothing_keep_the_error),
      TENSOR_TEST(ranks_0_to_8_exist),
      TENSOR_TEST(dtypes_have_names),
      TENSOR_TEST(unknown_dtypes_are_refused),
      TENSOR_TEST(quantised_rows_are_whole_blocks),
      TENSOR_TEST(quantised_tensors_are_read_whole),
      TENSOR_TEST(narrow_elements_are_read_in_order),
      TENSOR_TEST(impossible_shapes_are_refused),
      TENSOR_TEST(too_large_a_tensor_is_out_of_memory),
      TENSOR_TEST(transfers_of_another_size_are_refused),
      TENSOR_TEST(only_contiguous_tensors_are_written),
      TENSOR_TEST(tensors_without_elements_are_tensors),
      TENSOR_TEST(packed_weights_are_opaque),
      TENSOR_TEST(plain_weights_are_borrowed),
      TENSOR_TEST(every_allocation_may_fail),
      TENSOR_TEST(refusals_do_without_memory),
      TENSOR_TEST(closed_scopes_leave_their_buffers),
      TENSOR_TEST(peak_counts_what_tensors_held),
      TENSOR_TEST(threads_out_of_range_are_refused),
      TENSOR_TEST(wrong_weft_threads_is_refused),
      TENSOR_TEST(names_tell_variant_arithmetic_and_threads),
      TENSOR_TEST(affinity_pins_a_device),
      TENSOR_TEST(defaults_open_a_device),
      TENSOR_TEST(there_is_no_gpu),
      TENSOR_TEST(unknown_variants_are_refused),
      TENSOR_TEST(a_family_is_its_best_variant),
      TENSOR_TEST(variants_are_listed_best_first),
      TENSOR_TEST(first_error_of_an_expression_stays),
      TENSOR_TEST(null_operands_give_null),
      TENSOR_TEST(operands_of_two_devices_are_refused),
      TENSOR_TEST(null_without_an_error_is_one),
      TENSOR_TEST(missing_attributes_are_refused),
  };
  return cmocka_run_group_tests_name("tensor", tests, NULL, NULL);
}
