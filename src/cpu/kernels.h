/* kernels.h - what each ISA variant provides: one const table of functions over plain memory.
 *
 * The kernels are written once (kern/), over a vector vocabulary (vec/), and compiled once per variant (isa/).  A kernel
 * works on one task's share: it knows neither tensors nor threads.
 *
 * Products.  Weights [M,K] are kept in panels of WEFT__PANEL rows, interleaved so that a vector holds the same column of
 * 16 rows and no sum runs across lanes:
 *   f32, f16   K x [16 elements]
 *   q8_0       K/32 x { [16 f16 d], 8 x [16 rows x 4 bytes] }
 *   q4_1       K/32 x { [16 f16 d], [16 f16 m], 4 x [16 rows x 4 bytes: low nibbles columns 4j.., high 16+4j..] }
 * Activations are kept in tiles of `n_rows` rows (the tile heights of the variant), interleaved likewise, as f32 or
 * quantised to 8 bits per block of 32.  An output is computed by the same sequence of operations whatever the tile's
 * height: results depend neither on how many rows are multiplied at once nor on the number of threads. */
#ifndef WEFT_CPU_KERNELS_H
#define WEFT_CPU_KERNELS_H

#include "weft/tensor.h"

#include <stdbool.h>

enum {
  WEFT__PANEL = 16, /* rows of a weight panel */
  WEFT__QBLOCK = 32, /* columns of a quantisation block */
};

/* n_rows rows of activations, K columns; either the f32 or the quantised fields are set. */
typedef struct weft__x_tile {
  int n_rows;          /* a tile height of the variant; rows beyond the real ones are zero */
  int64_t k;
  const float *x;      /* [K][n_rows] */
  const float *x_sum;  /* [K/32][n_rows]: sum of a block (f32), d * sum of q (quantised) */
  const int32_t *q;    /* [K/4][n_rows]: four int8 each */
  const float *q_d;    /* [K/32][n_rows] */
  const int32_t *q_sum; /* [K/32][n_rows] */
} weft__x_tile;

/* y[row * y_stride + i] for the tile's rows and the 16 rows i of one weight panel. */
typedef void (*weft__panel_product)(const weft__x_tile *tile, const void *panel, float *y, int64_t y_stride);

typedef enum weft__binary {
  WEFT__ADD,
  WEFT__MUL,
} weft__binary;

/* Query rows that share one key/value head, and the cache of their slot. */
typedef struct weft__attention_tile {
  int n_rows;                /* at most WEFT__ATTENTION_TILE */
  int head_size;             /* D */
  float scale;
  const float *q[16];        /* [D] each */
  float *out[16];            /* [D] each */
  int last[16];              /* row r sees positions 0 .. last[r] */
  bool is_f16;
  const void *keys, *values; /* [n_blocks,G,D,P], [n_blocks,G,P,D], moved to the head in question */
  int64_t block_stride;      /* elements from block to block */
  const int32_t *blocks;     /* the slot's blocks */
} weft__attention_tile;

enum { WEFT__ATTENTION_TILE = 16 };

/* Floats (doubles in the scalar variant) of scratch that an attention tile needs. */
#define WEFT__ATTENTION_SCRATCH(head_size) (WEFT__ATTENTION_TILE * ((head_size) + WEFT_KV_BLOCK + 16))

typedef struct weft__cpu_kernels {
  const char *name;
  const int *tile_heights; /* ascending, 0 after the last */

  /* Packs row `row` of a tile of `n_rows`: x [K] (NULL: zeros).  The tile's arrays as in weft__x_tile. */
  void (*pack_f32)(const float *x, int64_t k, int row, int n_rows, float *tile_x, float *tile_sum);
  void (*pack_q8)(const float *x, int64_t k, int row, int n_rows, int32_t *q, float *d, int32_t *q_sum, float *x_sum);
  weft__panel_product product_f32[WEFT_DTYPE_COUNT]; /* by the weight's dtype; f32 activations */
  weft__panel_product product_q8[WEFT_DTYPE_COUNT];  /* quantised activations; NULL for f32, f16 */

  void (*binary)(weft__binary op, int64_t n, const float *a, int64_t a_stride, const float *b, int64_t b_stride,
                 float *y); /* strides in elements */
  void (*silu)(int64_t n, const float *a, float *y);
  void (*silu_mul)(int64_t n, const float *a, const float *b, float *y);
  void (*softmax)(int64_t n, const float *a, float *y);
  void (*rms_norm)(int64_t n, const float *a, const float *gain, float eps, float *y);
  /* One head, R rotated elements at distance `step` (1: pairs are neighbours; R/2: halves). */
  void (*rope)(int64_t n_rotated, bool is_interleaved, const float *a, const float *cos, const float *sin, float *y);
  void (*to_f16)(int64_t n, const float *a, uint16_t *y);
  void (*attention)(const weft__attention_tile *tile, void *scratch);
} weft__cpu_kernels;

/* The variants compiled in, best first (detect.c). */
extern const weft__cpu_kernels weft__kernels_scalar;
extern const weft__cpu_kernels weft__kernels_avx2;
extern const weft__cpu_kernels weft__kernels_avx512;

#endif
