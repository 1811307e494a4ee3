/* op_quantize.c - quantize: rows of real numbers into blocks of 32 (weft/ops.h has the formats), kept as a product's
 * weight is: packed; and the way back from there. */
#include "cpu/cpu.h"
#include "cpu/half.h"

#include <math.h>
#include <stdatomic.h>

typedef struct quantize_loop {
  const weft_tensor *a, *y;
  atomic_llong bad_row; /* one that cannot be stored; -1: none */
} quantize_loop;

/* Stores d as f16 and gives back what it became; false if it is not finite there. */
static bool put_scale(float d, weft__quant_block *block, float *stored) {
  block->d = weft__f32_to_f16(d);
  *stored = weft__f16_to_f32(block->d);
  return isfinite(*stored);
}

/* x / d to the nearest integer, ties to even, within the bounds; 0 where everything is. */
static int code_of(float x, float d, int least, int most) {
  if (d == 0) return 0;
  float q = rintf(x / d);
  return q < (float)least ? least : q > (float)most ? most : (int)q;
}

static bool make_q8_0(const float *x, weft__quant_block *block) {
  float largest = 0, d;
  for (int i = 0; i < WEFT__QBLOCK; i++) largest = fabsf(x[i]) > largest || isnan(x[i]) ? fabsf(x[i]) : largest;
  if (!put_scale(largest / 127, block, &d)) return false;
  for (int i = 0; i < WEFT__QBLOCK; i++) block->codes[i] = (uint8_t)(int8_t)code_of(x[i], d, -127, 127);
  return true;
}

static bool make_q4_0(const float *x, weft__quant_block *block) {
  float extreme = 0, d; /* of the largest magnitude, with its sign: it gets the code 0, which has no opposite */
  for (int i = 0; i < WEFT__QBLOCK; i++) extreme = fabsf(x[i]) > fabsf(extreme) || isnan(x[i]) ? x[i] : extreme;
  if (!put_scale(extreme / -8, block, &d)) return false;
  for (int i = 0; i < WEFT__QBLOCK; i++) block->codes[i] = (uint8_t)(code_of(x[i], d, -8, 7) + 8);
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
      weft__quant_block made;
      if (!(l->y->dtype == WEFT_Q8_0 ? make_q8_0 : make_q4_0)(x, &made)) atomic_store(&l->bad_row, row);
      weft__quant_write(l->y->dtype, &made, block);
    }
  }
}

/* Puts panels in the place of the stored rows, so that no product need pack them. */
static weft_status pack_result(weft__backend *backend, const weft_tensor *y) {
  int64_t n_rows = weft__n_rows(y), n_cols = weft__n_cols(y);
  weft__storage packed = {.backend = backend}, *storage = y->storage;
  weft_status status = backend->class->load_weight(backend, y->dtype, n_rows, n_cols, storage->buffer,
                                                   WEFT__WEIGHT_PRODUCT, NULL, &packed);
  if (status) return status;
  backend->class->free(backend, storage->buffer, storage->n_bytes);
  storage->buffer = packed.buffer;
  storage->n_bytes = packed.n_bytes;
  storage->layout = packed.layout;
  return WEFT_OK;
}

weft_status weft__cpu_quantize(weft__backend *backend, const weft__op_call *call) {
  quantize_loop l = {call->in[0], call->out, -1};
  weft__cpu_rows(weft__cpu_of(backend), weft__n_rows(l.a), weft__n_cols(l.a), quantize_rows, &l);
  int64_t row = atomic_load(&l.bad_row);
  if (row >= 0) return weft__fault(call->op, WEFT__FAULT_NO_SCALE, (const int64_t[4]){row});
  return pack_result(backend, l.y);
}

/* ---- the way back ---- */

typedef struct packed_reading {
  const weft_tensor *t;
  uint8_t *data;
} packed_reading;

static void read_rows(void *context, int64_t first, int64_t end) {
  const packed_reading *r = context;
  const weft_tensor *t = r->t;
  int64_t n_blocks = (weft__n_cols(t) + WEFT__QBLOCK - 1) / WEFT__QBLOCK;
  size_t block_bytes = (size_t)weft__dtype_get(t->dtype)->block_bytes;
  uint8_t *to = r->data + (size_t)(first * n_blocks) * block_bytes;
  for (int64_t row = first; row < end; row++)
    for (int64_t i = 0; i < n_blocks; i++, to += block_bytes) {
      weft__quant_block block;
      weft__unpack_block(t, row, i, &block);
      weft__quant_write(t->dtype, &block, to);
    }
}

weft_status weft__cpu_read_packed(weft__backend *backend, const weft_tensor *t, void *data) {
  if (t->dtype != WEFT_Q8_0 && t->dtype != WEFT_Q4_0)
    return weft__error(WEFT_EUNSUPPORTED, "tensor: a packed product weight of %s cannot be read",
                       weft_dtype_name(t->dtype));
  packed_reading r = {t, data};
  weft__cpu_rows(weft__cpu_of(backend), weft__n_rows(t), weft__n_cols(t), read_rows, &r);
  return WEFT_OK;
}
