/* pack.c - weights from the file's rows into panels of 16 interleaved rows (layouts: kernels.h).
 *
 * A panel is written block by block, for all of its rows, so that what is being written stays in the first-level cache.
 * Codes are moved as words of four; bits travel within their bytes. */
#include "cpu/cpu.h"

#include <string.h> /* memcpy, memset */

size_t weft__panel_bytes(weft_dtype dtype, int64_t k) {
  const weft__quant_format *f = &WEFT__QUANT_FORMATS[dtype];
  size_t n_bytes = 0;
  if (f->n_columns) {
    size_t block_bytes = (size_t)(weft__block_head_bytes(f) + f->n_columns / WEFT__QBLOCK * weft__part_bytes(f));
    if (!weft__mul_size((size_t)(k / f->n_columns + (k % f->n_columns != 0)), block_bytes, &n_bytes)) return SIZE_MAX;
  } else {
    weft__row_bytes(dtype, k, &n_bytes);
    if (!weft__mul_size(n_bytes, WEFT__PANEL, &n_bytes)) return SIZE_MAX;
  }
  return n_bytes > SIZE_MAX - 63 ? SIZE_MAX : (n_bytes + 63) / 64 * 64; /* panels start on cache lines */
}

/* ---- quantised ---- */

static uint32_t word_at(const uint8_t *p) {
  uint32_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

/* Writes a row's words of one plane: `bits` bits of each code of 32 columns, from bit `from` on. */
static void pack_plane(const uint8_t *codes, int bits, int from, uint8_t *words) {
  uint32_t mask = ((1u << bits) - 1) * 0x01010101u;
  for (int w = 0; w < bits; w++) {
    uint32_t word = 0;
    for (int to = 0; to < 8; to += bits) word |= (word_at(codes + 4 * (w + to)) >> from & mask) << to;
    memcpy(words + 4 * WEFT__PANEL * w, &word, sizeof word);
  }
}

/* Scales, minima and codes of the columns 32*i .. 32*i+31 of a block, at `part` for this row. */
static void pack_part(const weft__quant_format *f, const weft__quant_block *block, int i, int r, uint8_t *part) {
  const int n = weft__quant_n_scales(f);
  for (int s = 0; s < n; s++) {
    uint8_t scale = block->scales[n * i + s], minimum = block->minima[n * i + s];
    part[s * WEFT__PANEL + r] = f->minimum == WEFT__MIN_WITH_SCALES ? (uint8_t)(scale | minimum << 4) : scale;
    if (f->minimum == WEFT__MIN_SCALED) part[(n + s) * WEFT__PANEL + r] = minimum;
  }
  const uint8_t *codes = block->codes + i * WEFT__QBLOCK;
  uint8_t *words = part + weft__part_head_bytes(f) + 4 * r;
  if (f->high_bits) pack_plane(codes, f->high_bits, f->low_bits, words);
  pack_plane(codes, f->low_bits, 0, words + 4 * WEFT__PANEL * f->high_bits);
}

/* One block of row r, at `to`, where all rows' blocks lie. */
static void pack_block(const weft__quant_format *f, const weft__quant_block *block, int r, uint8_t *to) {
  if (f->is_e8m0)
    to[r] = (uint8_t)block->d;
  else
    memcpy(to + 2 * r, &block->d, 2);
  if (f->minimum) memcpy(to + 2 * (WEFT__PANEL + r), &block->m, 2);
  to += weft__block_head_bytes(f);
  for (int i = 0; i < f->n_columns / WEFT__QBLOCK; i++, to += weft__part_bytes(f)) pack_part(f, block, i, r, to);
}

/* Rows that are missing are zero: their panel's share of a format may not be zero bytes, but d = 0 makes it so. */
static void pack_quantised(weft_dtype dtype, const uint8_t *rows, int n_rows, int64_t k, size_t row_bytes,
                           uint8_t *panel) {
  const weft__quant_format *f = &WEFT__QUANT_FORMATS[dtype];
  const weft__dtype_info *info = weft__dtype_get(dtype);
  size_t block_bytes = (size_t)(weft__block_head_bytes(f) + f->n_columns / WEFT__QBLOCK * weft__part_bytes(f));
  weft__quant_block block;
  for (int64_t b = 0; b * f->n_columns < k; b++, panel += block_bytes) {
    if (n_rows < WEFT__PANEL) memset(panel, 0, block_bytes);
    for (int r = 0; r < n_rows; r++) {
      weft__quant_read(dtype, rows + (size_t)r * row_bytes + (size_t)(b * info->block_bytes), &block);
      pack_block(f, &block, r, panel);
    }
  }
}

/* ---- unquantised elements, interleaved one by one ---- */

static void pack_elements(const uint8_t *rows, int n_rows, int64_t k, size_t size, uint8_t *panel) {
  for (int r = 0; r < WEFT__PANEL; r++) {
    const uint8_t *row = rows + (size_t)r * (size_t)k * size;
    uint8_t *to = panel + size * (size_t)r;
    for (int64_t i = 0; i < k; i++, to += size * WEFT__PANEL)
      if (r >= n_rows)
        memset(to, 0, size);
      else if (size == 2)
        memcpy(to, row + 2 * i, 2);
      else
        memcpy(to, row + 4 * i, 4);
  }
}

/* ---- all panels ---- */

typedef struct packing {
  weft_dtype dtype;
  int64_t m, k;
  const uint8_t *data;
  uint8_t *panels;
} packing;

static void pack_range(void *context, int64_t first, int64_t end) {
  const packing *p = context;
  size_t row_bytes = 0, panel_bytes = weft__panel_bytes(p->dtype, p->k);
  weft__row_bytes(p->dtype, p->k, &row_bytes);
  for (int64_t i = first; i < end; i++) {
    const uint8_t *rows = p->data + (size_t)(i * WEFT__PANEL) * row_bytes;
    uint8_t *panel = p->panels + (size_t)i * panel_bytes;
    int64_t rest = p->m - i * WEFT__PANEL;
    int n_rows = rest < WEFT__PANEL ? (int)rest : WEFT__PANEL;
    if (weft__dtype_get(p->dtype)->is_quantised)
      pack_quantised(p->dtype, rows, n_rows, p->k, row_bytes, panel);
    else
      pack_elements(rows, n_rows, p->k, (size_t)weft__dtype_get(p->dtype)->block_bytes, panel);
  }
}

/* In parts, so that no more than one of them is in memory twice where the reader lets go of what was read. */
void weft__pack_weight(weft__cpu *cpu, weft_dtype dtype, int64_t m, int64_t k, const void *data,
                       const weft__weight_reader *reader, void *panels) {
  enum { PART_BYTES = 16 << 20 };
  size_t row_bytes = 0, panel_bytes = weft__panel_bytes(dtype, k);
  weft__row_bytes(dtype, k, &row_bytes);
  int64_t part = PART_BYTES / ((int64_t)row_bytes * WEFT__PANEL + 1) + 1,
          n_panels = (m + WEFT__PANEL - 1) / WEFT__PANEL;
  for (int64_t first = 0; first < n_panels; first += part) {
    int64_t row = first * WEFT__PANEL, n = n_panels - first < part ? n_panels - first : part;
    packing p = {dtype, m - row, k, (const uint8_t *)data + (size_t)row * row_bytes,
                 (uint8_t *)panels + (size_t)first * panel_bytes};
    weft__cpu_rows(cpu, n, WEFT__PANEL * k, pack_range, &p);
    int64_t n_rows = p.m < n * WEFT__PANEL ? p.m : n * WEFT__PANEL;
    if (reader) reader->on_read(reader->context, p.data, (size_t)n_rows * row_bytes);
  }
}
