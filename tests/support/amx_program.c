/* amx_program.c - see amx_program.h.  Registers and configuration are each thread's own, as in the processor. */
#include "support/amx_program.h"

#if defined(__x86_64__)
#include "cpu/cpu.h"

#include <assert.h>
#include <string.h>

static _Thread_local struct {
  bool is_configured;
  uint8_t tiles[8][16][64];
} unit;

static void tile_zero(int tile);
static void tile_load(int tile, const void *from, size_t stride);
static void tile_store(int tile, void *to, size_t stride);
static void tile_dot(int sums, int a, int b);

#define TILE_ZERO tile_zero
#define TILE_LOAD tile_load
#define TILE_STORE tile_store
#define TILE_DOT tile_dot
#include "cpu/kern/amx.inc"

static void tile_zero(int tile) {
  assert(unit.is_configured);
  memset(unit.tiles[tile], 0, sizeof unit.tiles[tile]);
}

/* Bytes and rows beyond the configured ones are zero. */
static void tile_load(int tile, const void *from, size_t stride) {
  tile_zero(tile);
  for (int row = 0; row < CONFIG.rows[tile]; row++)
    memcpy(unit.tiles[tile][row], (const char *)from + (size_t)row * stride, CONFIG.row_bytes[tile]);
}

static void tile_store(int tile, void *to, size_t stride) {
  assert(unit.is_configured);
  for (int row = 0; row < CONFIG.rows[tile]; row++)
    memcpy((char *)to + (size_t)row * stride, unit.tiles[tile][row], CONFIG.row_bytes[tile]);
}

/* tdpbssd: sums[m][n] += the products of four signed bytes a[m][4k..] and b[k][4n..], over k. */
static void tile_dot(int sums, int a, int b) {
  assert(unit.is_configured);
  assert(CONFIG.rows[sums] == CONFIG.rows[a] && CONFIG.row_bytes[sums] == CONFIG.row_bytes[b]);
  assert(CONFIG.row_bytes[a] == 4 * CONFIG.rows[b]);
  for (int m = 0; m < CONFIG.rows[a]; m++)
    for (int n = 0; n < CONFIG.row_bytes[b] / 4; n++) {
      int32_t sum;
      memcpy(&sum, &unit.tiles[sums][m][4 * n], sizeof sum);
      for (int i = 0; i < CONFIG.row_bytes[a]; i++)
        sum += (int8_t)unit.tiles[a][m][i] * (int8_t)unit.tiles[b][i / 4][4 * n + i % 4];
      memcpy(&unit.tiles[sums][m][4 * n], &sum, sizeof sum);
    }
}

static void begin(void) {
  assert(!unit.is_configured);
  memset(unit.tiles, 0x55, sizeof unit.tiles);
  unit.is_configured = true;
}

static void end(void) {
  assert(unit.is_configured);
  unit.is_configured = false;
}

static struct {
  weft__wide_kernels wide;
  weft__cpu_kernels kernels;
} program;

const weft__cpu_kernels *test_amx_program(void) {
  bool is_usable = false;
  for (int i = 0; weft__cpu_variant(i, &is_usable); i++)
    if (weft__cpu_variant(i, &is_usable) == &weft__kernels_avx512) break;
  if (!is_usable) return NULL;
  program.kernels = weft__kernels_amx;
  program.wide = *weft__kernels_amx.wide;
  program.wide.begin = begin;
  program.wide.add = wide_add;
  program.wide.end = end;
  program.kernels.wide = &program.wide;
  return &program.kernels;
}
#else
const weft__cpu_kernels *test_amx_program(void) { return NULL; }
#endif
