/* pack.c - weights from the file's rows into panels of 16 interleaved rows (layouts: kernels.h).
 *
 * A panel is written block by block, for all of its rows, so that what is being written stays in the first-level cache.
 * Codes are moved as words of four; bits travel within their bytes. */
#include "cpu/cpu.h"

#include <string.h> /* memcpy, memset */

/* Of all rows. */
static inline size_t panel_block_bytes(const weft__quant_format *f) {
  return (size_t)(weft__block_head_bytes(f) + f->n_columns / WEFT__QBLOCK * weft__part_bytes(f));
}

size_t weft__panel_bytes(weft_dtype dtype, int64_t k) {
  const weft__quant_format *f = &WEFT__QUANT_FORMATS[dtype];
  size_t n_bytes = 0;
  if (f->n_columns) {
    size_t n_blocks = (size_t)(k / f->n_columns + (k % f->n_columns != 0));
    if (!weft__mul_size(n_blocks, panel_block_bytes(f), &n_bytes)) return SIZE_MAX;
  } else {
    weft__row_bytes(dtype, k, &n_bytes);
    if (!weft__mul_size(n_bytes, WEFT__PANEL, &n_bytes)) return SIZE_MAX;
  }
  return n_bytes > SIZE_MAX - 63 ? SIZE_MAX : (n_bytes + 63) / 64 * 64; /* panels start on cache lines */
}

/* ---- quantised ---- */

#define INLINE static inline __attribute__((always_inline))

static uint32_t word_at(const uint8_t *p) {
  uint32_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

/* Writes a row's words of one plane: `bits` bits of each code of 32 columns, from bit `from` on. */
INLINE void pack_plane(const uint8_t *codes, const int bits, const int from, uint8_t *words) {
  const uint32_t mask = ((1u << bits) - 1) * 0x01010101u;
  for (int w = 0; w < bits; w++) {
    uint32_t word = 0;
    for (int to = 0; to < 8; to += bits) word |= (word_at(codes + 4 * (w + to)) >> from & mask) << to;
    memcpy(words + 4 * WEFT__PANEL * w, &word, sizeof word);
  }
}

/* Scales, minima and codes of the columns 32*i .. 32*i+31 of a block, at `part` for this row. */
INLINE void pack_part(const weft__quant_format *f, const weft__quant_block *block, int i, int r, uint8_t *part) {
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
INLINE void pack_block(const weft__quant_format *f, const weft__quant_block *block, int r, uint8_t *to) {
  if (f->is_e8m0)
    to[r] = (uint8_t)block->d;
  else
    memcpy(to + 2 * r, &block->d, 2);
  if (f->minimum) memcpy(to + 2 * (WEFT__PANEL + r), &block->m, 2);
  to += weft__block_head_bytes(f);
  for (int i = 0; i < f->n_columns / WEFT__QBLOCK; i++, to += weft__part_bytes(f)) pack_part(f, block, i, r, to);
}

/* Rows of the file that become one panel. */
typedef struct panel_rows {
  const uint8_t *data;
  int n; /* those beyond are zero */
  size_t row_bytes;
  int64_t k;
} panel_rows;

/* Compiled once a format, whose row of the table is a constant then: loops over bits are what takes the time here. */
INLINE void pack_quantised(const weft_dtype dtype, const panel_rows *rows, uint8_t *panel) {
  const weft__quant_format *f = &WEFT__QUANT_FORMATS[dtype];
  const size_t stored_bytes = (size_t)weft__dtype_get(dtype)->block_bytes, block_bytes = panel_block_bytes(f);
  weft__quant_block block = {0};
  for (int64_t b = 0; b * f->n_columns < rows->k; b++, panel += block_bytes) {
    if (rows->n < WEFT__PANEL) memset(panel, 0, block_bytes);
    for (int r = 0; r < rows->n; r++) {
      weft__quant_read(dtype, rows->data + (size_t)r * rows->row_bytes + (size_t)b * stored_bytes, &block);
      pack_block(f, &block, r, panel);
    }
  }
}

/* ---- the way back ---- */

/* The word of a row in each group of a plane, as pack_plane wrote them. */
static void unpack_plane(const uint8_t *words, int bits, int from, uint8_t *codes) {
  const uint32_t mask = ((1u << bits) - 1) * 0x01010101u;
  for (int w = 0; w < bits; w++)
    for (int to = 0; to < 8; to += bits) {
      uint32_t group = word_at(codes + 4 * (w + to)) | (word_at(words + 4 * WEFT__PANEL * w) >> to & mask) << from;
      memcpy(codes + 4 * (w + to), &group, sizeof group);
    }
}

static void unpack_part(const weft__quant_format *f, const uint8_t *part, int i, int r, weft__quant_block *block) {
  const int n = weft__quant_n_scales(f);
  for (int s = 0; s < n; s++) {
    uint8_t scale = part[s * WEFT__PANEL + r];
    bool holds_both = f->minimum == WEFT__MIN_WITH_SCALES;
    block->scales[n * i + s] = holds_both ? scale & 15 : scale;
    if (holds_both) block->minima[n * i + s] = scale >> 4;
    if (f->minimum == WEFT__MIN_SCALED) block->minima[n * i + s] = part[(n + s) * WEFT__PANEL + r];
  }
  const uint8_t *words = part + weft__part_head_bytes(f) + 4 * r;
  uint8_t *codes = block->codes + i * WEFT__QBLOCK;
  if (f->high_bits) unpack_plane(words, f->high_bits, f->low_bits, codes);
  unpack_plane(words + 4 * WEFT__PANEL * f->high_bits, f->low_bits, 0, codes);
}

void weft__unpack_block(const weft_tensor *t, int64_t row, int64_t index, weft__quant_block *block) {
  const weft__quant_format *f = &WEFT__QUANT_FORMATS[t->dtype];
  const int r = (int)(row % WEFT__PANEL);
  const uint8_t *at = (const uint8_t *)t->storage->buffer +
                      (size_t)(row / WEFT__PANEL) * weft__panel_bytes(t->dtype, weft__n_cols(t)) +
                      (size_t)index * panel_block_bytes(f);
  *block = (weft__quant_block){0};
  if (f->is_e8m0)
    block->d = at[r];
  else
    memcpy(&block->d, at + 2 * r, 2);
  if (f->minimum) memcpy(&block->m, at + 2 * (WEFT__PANEL + r), 2);
  at += weft__block_head_bytes(f);
  for (int i = 0; i < f->n_columns / WEFT__QBLOCK; i++, at += weft__part_bytes(f)) unpack_part(f, at, i, r, block);
}

/* ---- unquantised elements, interleaved one by one ---- */

static void pack_elements(const panel_rows *rows, size_t size, uint8_t *panel) {
  for (int r = 0; r < WEFT__PANEL; r++) {
    const uint8_t *row = rows->data + (size_t)r * rows->row_bytes;
    uint8_t *to = panel + size * (size_t)r;
    for (int64_t i = 0; i < rows->k; i++, to += size * WEFT__PANEL)
      if (r >= rows->n)
        memset(to, 0, size);
      else if (size == 2)
        memcpy(to, row + 2 * i, 2);
      else
        memcpy(to, row + 4 * i, 4);
  }
}

/* ---- all panels ---- */

#define PACK_0(dtype) pack_elements(rows, (size_t)weft__dtype_get(dtype)->block_bytes, panel)
#define PACK_1(dtype) pack_quantised(dtype, rows, panel)

static void pack_panel(weft_dtype dtype, const panel_rows *rows, uint8_t *panel) {
  switch (dtype) {
#define WEFT_DTYPE(id, name, block_len, block_bytes, gguf_type, quantised)                                             \
  case WEFT_##id:                                                                                                      \
    PACK_##quantised(WEFT_##id);                                                                                       \
    break;
#include "weft/dtype.def"
#undef WEFT_DTYPE
  case WEFT_DTYPE_COUNT:
    break;
  }
}

typedef struct packing {
  weft_dtype dtype;
  int64_t m, k;
  const uint8_t *data;
  uint8_t *panels;
} packing;

static void pack_range(void *context, int64_t first, int64_t end) {
  const packing *p = context;
  panel_rows rows = {.k = p->k};
  size_t panel_bytes = weft__panel_bytes(p->dtype, p->k);
  weft__row_bytes(p->dtype, p->k, &rows.row_bytes);
  for (int64_t i = first; i < end; i++) {
    int64_t rest = p->m - i * WEFT__PANEL;
    rows.data = p->data + (size_t)(i * WEFT__PANEL) * rows.row_bytes;
    rows.n = rest < WEFT__PANEL ? (int)rest : WEFT__PANEL;
    pack_panel(p->dtype, &rows, p->panels + (size_t)i * panel_bytes);
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
