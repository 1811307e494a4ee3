/* amx.c - the matrix unit of x86-64 from Sapphire Rapids (2023) on, for the products of the variant amx; everything else
 * of it is the AVX-512 kernels (avx512.c). */
#if defined(__x86_64__) || defined(_M_X64)
#define TILE_ZERO(tile) _tile_zero(tile)
#define TILE_LOAD(tile, from, stride) _tile_loadd(tile, from, stride)
#define TILE_STORE(tile, to, stride) _tile_stored(tile, to, stride)
#define TILE_DOT(sums, a, b) _tile_dpbssd(sums, a, b)
#include "cpu/kern/amx.inc"

void weft__amx_begin(void) { _tile_loadconfig(&CONFIG); }
void weft__amx_end(void) { _tile_release(); }
void weft__amx_add(const weft__x_tile *t, int64_t first, const weft__wide_weights *w, float *y) {
  wide_add(t, first, w, y);
}
#else
typedef int weft__no_amx; /* a translation unit must not be empty */
#endif
