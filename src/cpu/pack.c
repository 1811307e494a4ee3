/* pack.c - weights from the file's rows into panels of 16 interleaved rows (layouts: kernels.h).
 *
 * The order of bytes within a block is such that packing moves whole 32-bit words: it runs at memory speed. */
#include "cpu/cpu.h"

#include <string.h> /* memcpy, memset */

size_t weft__panel_bytes(weft_dtype dtype, int64_t k) {
  size_t row_bytes = 0;
  weft__dtype_bytes(dtype, k, &row_bytes);
  return (row_bytes * WEFT__PANEL + 63) / 64 * 64; /* panels start on cache lines */
}

/* Writes row r of a panel; `row` NULL stands for a row of zeros. */
typedef void (*pack_row)(const uint8_t *row, int64_t k, int r, uint8_t *panel);

/* A quantised row: per block n_scales f16, then n_groups groups of four bytes; all of them interleaved with the other
 * rows'. */
static void pack_blocks(const uint8_t *row, int64_t k, int r, int n_scales, int n_groups, uint8_t *panel) {
  for (int64_t b = 0; b < k / WEFT__QBLOCK; b++) {
    for (int i = 0; i < n_scales; i++, panel += 2 * WEFT__PANEL) {
      if (row)
        memcpy(panel + 2 * r, row, 2), row += 2;
      else
        memset(panel + 2 * r, 0, 2);
    }
    for (int i = 0; i < n_groups; i++, panel += 4 * WEFT__PANEL) {
      if (row)
        memcpy(panel + 4 * r, row, 4), row += 4;
      else
        memset(panel + 4 * r, 0, 4);
    }
  }
}

static void pack_q8_0(const uint8_t *row, int64_t k, int r, uint8_t *panel) { pack_blocks(row, k, r, 1, 8, panel); }
static void pack_q4_1(const uint8_t *row, int64_t k, int r, uint8_t *panel) { pack_blocks(row, k, r, 2, 4, panel); }

/* Unquantised elements, interleaved one by one. */
static void pack_elements(const uint8_t *row, int64_t k, int r, size_t size, uint8_t *panel) {
  for (int64_t i = 0; i < k; i++, panel += size * WEFT__PANEL) {
    if (row)
      memcpy(panel + size * (size_t)r, row, size), row += size;
    else
      memset(panel + size * (size_t)r, 0, size);
  }
}

static void pack_f16(const uint8_t *row, int64_t k, int r, uint8_t *panel) { pack_elements(row, k, r, 2, panel); }
static void pack_f32(const uint8_t *row, int64_t k, int r, uint8_t *panel) { pack_elements(row, k, r, 4, panel); }

static const pack_row PACK_ROW[WEFT_DTYPE_COUNT] = {
    [WEFT_F32] = pack_f32,
    [WEFT_F16] = pack_f16,
    [WEFT_Q8_0] = pack_q8_0,
    [WEFT_Q4_1] = pack_q4_1,
};

typedef struct packing {
  weft_dtype dtype;
  int64_t m, k;
  const uint8_t *data;
  uint8_t *panels;
} packing;

static void pack_range(void *context, int64_t first, int64_t end) {
  const packing *p = context;
  size_t row_bytes = 0, panel_bytes = weft__panel_bytes(p->dtype, p->k);
  weft__dtype_bytes(p->dtype, p->k, &row_bytes);
  for (int64_t panel = first; panel < end; panel++)
    for (int r = 0; r < WEFT__PANEL; r++) {
      int64_t row = panel * WEFT__PANEL + r;
      PACK_ROW[p->dtype](row < p->m ? p->data + (size_t)row * row_bytes : NULL, p->k, r,
                         p->panels + (size_t)panel * panel_bytes);
    }
}

void weft__pack_weight(weft__cpu *cpu, weft_dtype dtype, int64_t m, int64_t k, const void *data, void *panels) {
  packing p = {dtype, m, k, data, panels};
  weft__cpu_rows(cpu, (m + WEFT__PANEL - 1) / WEFT__PANEL, WEFT__PANEL * k, pack_range, &p);
}
