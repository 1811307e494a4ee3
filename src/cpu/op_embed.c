/* op_embed.c - rows of an embedding table, dequantised: x = d*q (+ m) in f32, as the format defines it. */
#include "cpu/cpu.h"
#include "cpu/half.h"

#include <string.h> /* memcpy */

typedef void (*row_reader)(const uint8_t *row, int64_t n, float *y);

static float f16_at(const uint8_t *p) {
  uint16_t bits;
  memcpy(&bits, p, sizeof bits);
  return weft__f16_to_f32(bits);
}

static void read_f32(const uint8_t *row, int64_t n, float *y) { memcpy(y, row, (size_t)n * sizeof *y); }

static void read_f16(const uint8_t *row, int64_t n, float *y) {
  for (int64_t i = 0; i < n; i++) y[i] = f16_at(row + 2 * i);
}

static void read_q8_0(const uint8_t *row, int64_t n, float *y) {
  for (int64_t b = 0; b < n / 32; b++, row += 34) {
    float d = f16_at(row);
    for (int i = 0; i < 32; i++) y[b * 32 + i] = d * (float)(int8_t)row[2 + i];
  }
}

static void read_q4_1(const uint8_t *row, int64_t n, float *y) {
  for (int64_t b = 0; b < n / 32; b++, row += 20) {
    float d = f16_at(row), m = f16_at(row + 2);
    for (int i = 0; i < 16; i++) {
      y[b * 32 + i] = d * (float)(row[4 + i] & 15) + m;
      y[b * 32 + 16 + i] = d * (float)(row[4 + i] >> 4) + m;
    }
  }
}

static const row_reader READ_ROW[WEFT_DTYPE_COUNT] = {
    [WEFT_F32] = read_f32,
    [WEFT_F16] = read_f16,
    [WEFT_Q8_0] = read_q8_0,
    [WEFT_Q4_1] = read_q4_1,
};

typedef struct embed_loop {
  const weft_tensor *table;
  const int32_t *ids;
  float *y;
} embed_loop;

static void embed_rows(void *context, int64_t first, int64_t end) {
  const embed_loop *l = context;
  int64_t n = l->table->shape[1];
  size_t row_bytes = 0;
  weft__dtype_bytes(l->table->dtype, n, &row_bytes);
  const uint8_t *rows = weft__cpu_data(l->table);
  for (int64_t i = first; i < end; i++)
    READ_ROW[l->table->dtype](rows + (size_t)l->ids[i] * row_bytes, n, l->y + i * n);
}

weft_status weft__cpu_embed(weft__backend *backend, const weft__op_call *call) {
  embed_loop l = {call->in[0], weft__cpu_data(call->in[1]), weft__cpu_data(call->out)};
  int64_t n = call->in[1]->shape[0];
  for (int64_t i = 0; i < n; i++)
    if (l.ids[i] < 0 || l.ids[i] >= l.table->shape[0])
      return weft__error(WEFT_EINVAL, "embed: id %d is outside the table's %lld rows", l.ids[i],
                         (long long)l.table->shape[0]);
  weft__cpu_rows(weft__cpu_of(backend), n, l.table->shape[1], embed_rows, &l);
  return WEFT_OK;
}
