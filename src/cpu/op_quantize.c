/* op_quantize.c - quantize: rows of real numbers into blocks of 32 (weft/ops.h has the formats). */
#include "cpu/cpu.h"
#include "cpu/half.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h> /* memcpy */

typedef struct quantize_loop {
  const weft_tensor *a, *y;
  atomic_llong bad_row; /* one that cannot be stored; -1: none */
} quantize_loop;

/* Stores d as f16 and gives back what it became; false if it is not finite there. */
static bool put_scale(float d, uint8_t *block, float *stored) {
  uint16_t half = weft__f32_to_f16(d);
  memcpy(block, &half, sizeof half);
  *stored = weft__f16_to_f32(half);
  return isfinite(*stored);
}

/* x / d to the nearest integer, ties to even, within the bounds; 0 where everything is. */
static int code_of(float x, float d, int least, int most) {
  if (d == 0) return 0;
  float q = rintf(x / d);
  return q < (float)least ? least : q > (float)most ? most : (int)q;
}

static bool put_q8_0(const float *x, uint8_t *block) {
  float largest = 0, d;
  for (int i = 0; i < WEFT__QBLOCK; i++) largest = fabsf(x[i]) > largest || isnan(x[i]) ? fabsf(x[i]) : largest;
  if (!put_scale(largest / 127, block, &d)) return false;
  for (int i = 0; i < WEFT__QBLOCK; i++) block[2 + i] = (uint8_t)(int8_t)code_of(x[i], d, -127, 127);
  return true;
}

static bool put_q4_0(const float *x, uint8_t *block) {
  float extreme = 0, d; /* of the largest magnitude, with its sign: it gets the code 0, which has no opposite */
  for (int i = 0; i < WEFT__QBLOCK; i++) extreme = fabsf(x[i]) > fabsf(extreme) || isnan(x[i]) ? x[i] : extreme;
  if (!put_scale(extreme / -8, block, &d)) return false;
  for (int i = 0; i < WEFT__QBLOCK / 2; i++) {
    int low = code_of(x[i], d, -8, 7) + 8, high = code_of(x[i + WEFT__QBLOCK / 2], d, -8, 7) + 8;
    block[2 + i] = (uint8_t)(low | high << 4);
  }
  return true;
}

static void quantize_rows(void *context, int64_t first, int64_t end) {
  quantize_loop *l = context;
  const weft_tensor *a = l->a;
  int64_t n = weft__n_cols(a), step = a->strides[a->rank - 1];
  size_t row_bytes = 0, block_bytes = (size_t)weft__dtype_get(l->y->dtype)->block_bytes;
  weft__row_bytes(l->y->dtype, n, &row_bytes);
  for (int64_t row = first; row < end; row++) {
    uint8_t *block = (uint8_t *)weft__cpu_data(l->y) + (size_t)row * row_bytes;
    int64_t start = weft__row_offset(a, a->rank, a->shape, -1, row);
    for (int64_t i = 0; i < n; i += WEFT__QBLOCK, block += block_bytes) {
      float x[WEFT__QBLOCK] = {0};
      weft__read_real(a->dtype, weft__cpu_data(a), start + i * step, step, n - i < WEFT__QBLOCK ? n - i : WEFT__QBLOCK,
                      x);
      if (!(l->y->dtype == WEFT_Q8_0 ? put_q8_0 : put_q4_0)(x, block)) atomic_store(&l->bad_row, row);
    }
  }
}

weft_status weft__cpu_quantize(weft__backend *backend, const weft__op_call *call) {
  quantize_loop l = {call->in[0], call->out, -1};
  weft__cpu_rows(weft__cpu_of(backend), weft__n_rows(l.a), weft__n_cols(l.a), quantize_rows, &l);
  long long row = atomic_load(&l.bad_row);
  if (row < 0) return WEFT_OK;
  return weft__error(WEFT_EINVAL, "quantize: row %lld has an element that is not finite, or too large for %s", row,
                     weft_dtype_name(l.y->dtype));
}
