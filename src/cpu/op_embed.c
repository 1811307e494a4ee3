/* op_embed.c - rows of an embedding table, dequantised in f32 as the formats define it. */
#include "cpu/cpu.h"
#include "cpu/half.h"
#include "cpu/quant.h"

#include <string.h> /* memcpy */

static float f16_at(const uint8_t *p) {
  uint16_t bits;
  memcpy(&bits, p, sizeof bits);
  return weft__f16_to_f32(bits);
}

static void read_f32(const uint8_t *row, int64_t n, float *y) { memcpy(y, row, (size_t)n * sizeof *y); }

static void read_f16(const uint8_t *row, int64_t n, float *y) {
  for (int64_t i = 0; i < n; i++) y[i] = f16_at(row + 2 * i);
}

static void read_bf16(const uint8_t *row, int64_t n, float *y) {
  for (int64_t i = 0; i < n; i++) y[i] = weft__bf16_to_f32((uint16_t)(row[2 * i] | row[2 * i + 1] << 8));
}

/* The last block of a row may hold more columns than are left. */
static void read_quantised(weft_dtype dtype, const uint8_t *row, int64_t n, float *y) {
  const weft__dtype_info *info = weft__dtype_get(dtype);
  weft__quant_block block;
  float values[WEFT__SUPER_BLOCK];
  for (int64_t i = 0; i < n; i += info->block_len, row += info->block_bytes) {
    weft__quant_read(dtype, row, &block);
    weft__quant_compute(dtype, &block, values);
    memcpy(y + i, values, (size_t)(n - i < info->block_len ? n - i : info->block_len) * sizeof *y);
  }
}

void weft__read_row(weft_dtype dtype, const uint8_t *row, int64_t n, float *y) {
  switch (dtype) {
  case WEFT_F32:
    read_f32(row, n, y);
    break;
  case WEFT_F16:
    read_f16(row, n, y);
    break;
  case WEFT_BF16:
    read_bf16(row, n, y);
    break;
  default:
    read_quantised(dtype, row, n, y);
  }
}

typedef struct embed_loop {
  const weft_tensor *table;
  const int32_t *ids;
  float *y;
} embed_loop;

static void embed_rows(void *context, int64_t first, int64_t end) {
  const embed_loop *l = context;
  int64_t n = l->table->shape[1];
  size_t row_bytes = 0;
  weft__row_bytes(l->table->dtype, n, &row_bytes);
  const uint8_t *rows = weft__cpu_data(l->table);
  for (int64_t i = first; i < end; i++)
    weft__read_row(l->table->dtype, rows + (size_t)l->ids[i] * row_bytes, n, l->y + i * n);
}

weft_status weft__check_ids(const weft__op_call *call, const weft_tensor *ids, int64_t n_rows) {
  const int32_t *id = weft__cpu_data(ids);
  for (int64_t i = 0; i < ids->shape[0]; i++)
    if (id[i] < 0 || id[i] >= n_rows)
      return weft__fault(call->op, WEFT__FAULT_TABLE_ROW, (const int64_t[4]){id[i], n_rows});
  return WEFT_OK;
}

weft_status weft__cpu_embed(weft__backend *backend, const weft__op_call *call) {
  embed_loop l = {call->in[0], weft__cpu_data(call->in[1]), weft__cpu_data(call->out)};
  int64_t n = call->in[1]->shape[0];
  weft_status status = weft__check_ids(call, call->in[1], l.table->shape[0]);
  if (status) return status;
  weft__cpu_rows(weft__cpu_of(backend), n, l.table->shape[1], embed_rows, &l);
  return WEFT_OK;
}
