/* test_pieces.c - tensors beyond the limit of one buffer, which a GPU keeps in several: operators give what the CPU gives.
 * The limit is made small, so that a tensor of 3 MiB has four pieces, and every row of the operands lies differently to
 * their borders. */
#include "support/tensors.h"

#include "gpu/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { R = 769, C = 1023, N_IDS = 9 };

/* Both devices' operands, the same numbers. */
typedef struct operands {
  weft_scope *scope;
  weft_tensor *x, *z;        /* [R,C] */
  weft_tensor *half;         /* [2R,C] f16 */
  weft_tensor *ids, *places; /* [N_IDS], [N_IDS,1]: rows of x on both sides of the borders of its pieces */
  weft_tensor *terms;        /* [N_IDS,C] */
  weft_tensor *gain;         /* [C] */
} operands;

static operands make_operands(weft_scope *scope) {
  static const int32_t ids[N_IDS] = {0, 251, 252, 253, 504, 505, 757, 756, R - 1};
  operands o = {.scope = scope};
  o.x = weft_tensor_new(scope, WEFT_F32, TEST_SHAPE(R, C));
  float *data = test_alloc((size_t)R * C, sizeof *data);
  test_fill(data, (size_t)R * C, 1, 1);
  assert_int_equal(weft_tensor_write(o.x, data, sizeof *data * R * C), WEFT_OK);
  test_fill(data, (size_t)R * C, 1, 2);
  o.z = weft_tensor_from(scope, WEFT_F32, TEST_SHAPE(R, C), data);
  o.terms = weft_tensor_from(scope, WEFT_F32, TEST_SHAPE(N_IDS, C), data);
  o.gain = weft_tensor_from(scope, WEFT_F32, TEST_SHAPE(C), data);
  uint16_t *halves = test_alloc((size_t)2 * R * C, sizeof *halves);
  for (int i = 0; i < 2 * R * C; i++) halves[i] = (uint16_t)(i % 0x7000);
  o.half = weft_tensor_from(scope, WEFT_F16, TEST_SHAPE(2 * R, C), halves);
  o.ids = weft_tensor_from(scope, WEFT_I32, TEST_SHAPE(N_IDS), ids);
  o.places = weft_tensor_from(scope, WEFT_I32, TEST_SHAPE(N_IDS, 1), ids);
  free(data);
  free(halves);
  return o;
}

/* ---- what is computed ---- */

static const int TURN[] = {1, 0};

static weft_tensor *fill(const operands *o) {
  weft_tensor *y = weft_tensor_new(o->scope, WEFT_F32, TEST_SHAPE(R, C));
  return weft_fill(o->scope, y, &(weft_fill_attrs){3});
}

static weft_tensor *fill_uniform(const operands *o) {
  weft_tensor *y = weft_tensor_new(o->scope, WEFT_F16, TEST_SHAPE(2 * R, C));
  return weft_fill_uniform(o->scope, y, &(weft_fill_uniform_attrs){.seed = 1, .high = 1});
}

static weft_tensor *add(const operands *o) { return weft_add(o->scope, o->x, o->z); }
static weft_tensor *add_row(const operands *o) { return weft_add(o->scope, o->x, o->gain); }
static weft_tensor *scale(const operands *o) { return weft_scale(o->scope, o->x, &(weft_scale_attrs){2}); }
static weft_tensor *copy(const operands *o) { return weft_contiguous(o->scope, weft_permute(o->scope, o->x, TURN)); }
static weft_tensor *copy_halves(const operands *o) {
  return weft_contiguous(o->scope, weft_permute(o->scope, o->half, TURN));
}
static weft_tensor *cast(const operands *o) { return weft_cast(o->scope, o->half, &(weft_cast_attrs){WEFT_F32}); }
static weft_tensor *concat(const operands *o) {
  return weft_concat(o->scope, o->x, o->z, &(weft_concat_attrs){.axis = 1});
}

static weft_tensor *copy_rows_into(const operands *o) {
  weft_tensor *y = weft_contiguous(o->scope, o->z);
  return weft_copy_rows_into(o->scope, y, weft_slice(o->scope, o->x, 0, 0, 600), &(weft_copy_rows_into_attrs){101});
}

static weft_tensor *sum_rows(const operands *o) { return weft_sum(o->scope, o->x, &(weft_sum_attrs){1, {1}, 0}); }
static weft_tensor *sum_columns(const operands *o) { return weft_sum(o->scope, o->x, &(weft_sum_attrs){1, {0}, 0}); }
static weft_tensor *sum_all(const operands *o) { return weft_sum(o->scope, o->x, &(weft_sum_attrs){0}); }
static weft_tensor *softmax(const operands *o) { return weft_softmax(o->scope, o->x); }
static weft_tensor *rms_norm(const operands *o) {
  return weft_rms_norm(o->scope, o->x, o->gain, &(weft_rms_norm_attrs){1e-5f});
}
static weft_tensor *gather(const operands *o) {
  return weft_gather(o->scope, o->x, o->places, &(weft_gather_attrs){0});
}
static weft_tensor *embed(const operands *o) { return weft_embed(o->scope, o->half, o->ids); }
static weft_tensor *scatter_add(const operands *o) {
  return weft_scatter_add(o->scope, o->x, o->places, o->terms, &(weft_scatter_add_attrs){0});
}
static weft_tensor *matmul(const operands *o) {
  return weft_matmul(o->scope, o->terms, o->x, &(weft_matmul_attrs){0, 1});
}
static weft_tensor *matmul_left(const operands *o) {
  return weft_matmul(o->scope, o->x, o->terms, &(weft_matmul_attrs){0, 1});
}

/* Columns [first, first + n) of the last axis of a tensor [B,T,*]. */
static weft_tensor *columns(const operands *o, weft_tensor *t, int64_t first, int64_t n) {
  return weft_slice(o->scope, t, 2, first, n);
}

/* Parameters and moments are neighbouring parts, of odd length, of one tensor: the first moment lies across the border of
 * the first two pieces, and a binding of it begins within the parameters. */
static weft_tensor *adam_step(const operands *o) {
  enum { N = 63001, BORDER = 258048, START = BORDER - N - N / 2 };
  const weft_adam_step_attrs attrs = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .step = 3};
  weft_tensor *y = weft_reshape(o->scope, weft_mul(o->scope, o->x, o->x), TEST_SHAPE(R * C)), *parts[3];
  weft_tensor *gradient = weft_slice(o->scope, weft_reshape(o->scope, o->z, TEST_SHAPE(R * C)), 0, START, N);
  weft_tensor *factor = weft_tensor_new(o->scope, WEFT_F32, TEST_SHAPE(1));
  assert_non_null(weft_fill(o->scope, factor, &(weft_fill_attrs){1}));
  for (int i = 0; i < 3; i++) parts[i] = weft_slice(o->scope, y, 0, START + i * N, N);
  return weft_adam_step(o->scope, parts[0], gradient, parts[1], parts[2], factor, &attrs) ? y : NULL;
}

/* Gradients are columns of one tensor; batch 165 of those of 1560 elements lies across the border of two pieces. */
static weft_tensor *attention_grad(const operands *o) {
  enum { B = 174, T = 65, HEADS = 4, D = 4, WIDTH = 6 * D, FIRST = 164, N = 3 };
  const weft_attention_attrs attrs = {HEADS, 0.5F, WEFT_MASK_CAUSAL, 0};
  weft_tensor *packed = weft_tensor_new(o->scope, WEFT_F32, TEST_SHAPE(B, T, WIDTH)), *in[3], *grads[3];
  assert_non_null(weft_fill(o->scope, packed, &(weft_fill_attrs){7}));
  weft_tensor *numbers = weft_slice(o->scope, weft_reshape(o->scope, o->x, TEST_SHAPE(R * C)), 0, 0, B * T * WIDTH);
  numbers = weft_reshape(o->scope, numbers, TEST_SHAPE(B, T, WIDTH));
  for (int i = 0; i < 3; i++) {
    int64_t first = i == 0 ? 0 : (HEADS + i - 1) * D, n = i == 0 ? HEADS * D : D;
    grads[i] = columns(o, weft_slice(o->scope, packed, 0, FIRST, N), first, n);
    in[i] = columns(o, weft_slice(o->scope, numbers, 0, FIRST, N), first, n);
  }
  weft_tensor *y = weft_tensor_new(o->scope, WEFT_F32, TEST_SHAPE(N, T, HEADS * D));
  weft_tensor *lse = weft_tensor_new(o->scope, WEFT_F32, TEST_SHAPE(N, T, HEADS));
  weft_tensor *dy = columns(o, weft_slice(o->scope, numbers, 0, 0, N), 0, HEADS * D);
  assert_non_null(weft_attention_lse(o->scope, y, lse, in[0], in[1], in[2], &attrs));
  return weft_attention_grad(o->scope, grads[0], grads[1], grads[2], in[0], in[1], in[2], y, lse, dy, &attrs) ? packed
                                                                                                              : NULL;
}

static const struct {
  const char *name;
  weft_tensor *(*run)(const operands *o);
  double absolute; /* what sums in another order may differ by; 0: not at all */
} CASES[] = {
    {"fill", fill, 0},
    {"fill_uniform", fill_uniform, 0},
    {"add", add, 0},
    {"add of a row", add_row, 0},
    {"scale", scale, 0},
    {"a transposed copy", copy, 0},
    {"a transposed copy of halves", copy_halves, 0},
    {"cast", cast, 0},
    {"concat", concat, 0},
    {"copy_rows_into", copy_rows_into, 0},
    {"sum of rows", sum_rows, 1e-4},
    {"sum of columns", sum_columns, 1e-4},
    {"sum", sum_all, 1e-2},
    {"softmax", softmax, 1e-8},
    {"rms_norm", rms_norm, 1e-5},
    {"gather", gather, 0},
    {"embed", embed, 0},
    {"scatter_add", scatter_add, 1e-6},
    {"matmul", matmul, 1e-3},
    {"matmul, on the left", matmul_left, 1e-3},
    {"adam_step", adam_step, 1e-5},
    {"attention_grad", attention_grad, 1e-4},
};

/* Pieces of a megabyte, windows of a quarter of that. */
static void check_pieces(test_device *d) {
  weft__gpu *gpu = weft__gpu_of(d->device->backend);
  gpu->info.limits.max_buffer_bytes = 1 << 20;
  gpu->info.limits.max_binding_bytes = 1 << 18;
  gpu->base.poison = false; /* a fill of all that is freed and taken again, for each of many results */
  weft_device *cpu;
  weft_scope *scope;
  assert_int_equal(weft_device_open(&cpu, &(weft_device_options){.kind = WEFT_DEVICE_CPU}), WEFT_OK);
  assert_int_equal(weft_scope_open(&scope, cpu, NULL), WEFT_OK);
  const operands here = make_operands(d->scope), there = make_operands(scope);
  assert_true(weft__gpu_is_pieced(gpu, here.x->storage->buffer));
  for (size_t i = 0; i < WEFT_COUNT(CASES); i++) {
    weft_tensor *y = CASES[i].run(&there), *z = CASES[i].run(&here);
    if (!y || !z) fail_msg("%s: %s", CASES[i].name, weft_last_error());
    double *want = test_values(y);
    test_compare(CASES[i].name, d, z, want, NULL, CASES[i].absolute, 0);
    free(want);
    weft_tensor_free(z);
    weft_tensor_free(y);
  }
  weft_scope_close(scope);
  weft_device_close(cpu);
}

static void operators_take_tensors_of_several_buffers(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_pieces);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(operators_take_tensors_of_several_buffers)};
  return cmocka_run_group_tests_name("pieces", tests, NULL, NULL);
}
