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
  WEFT__PANEL = 16,  /* rows of a weight panel */
  WEFT__QBLOCK = 32, /* columns of a quantisation block */
};

/* n_rows rows of activations, K columns; either the f32 or the quantised fields are set. */
typedef struct weft__x_tile {
  int n_rows; /* a tile height of the variant; rows beyond the real ones are zero */
  int64_t k;
  const float *x;       /* [K][n_rows] */
  const float *x_sum;   /* [K/32][n_rows]: sum of a block (f32), d * sum of q (quantised) */
  const int32_t *q;     /* [K/4][n_rows]: four int8 each */
  const float *q_d;     /* [K/32][n_rows] */
  const int32_t *q_sum; /* [K/32][n_rows] */
} weft__x_tile;

/* y[row * y_stride + i] for the tile's rows and the 16 rows i of one weight panel. */
typedef void (*weft__panel_product)(const weft__x_tile *tile, const void *panel, float *y, int64_t y_stride);

/* f32 matrix products C [m,n] = A [m,k] B [k,n], in blocks (Goto and van de Geijn 2008).  A is kept in panels of `rows`
 * rows as [k][rows] (the last panel lower: a tile height), B in panels of `columns` columns as [k][columns]; both are
 * padded with zeros.  A tile of C is the product of two panels. */
typedef struct weft__gemm_blocks {
  int rows, columns;  /* a tile of C */
  int64_t k;          /* terms that a tile sums before it is added to C */
  int64_t l2_columns; /* columns of B that meet all of A before the next ones do */
  int64_t m, n;       /* rows of A, columns of B that are packed at a time */
} weft__gemm_blocks;

typedef struct weft__gemm_kernels {
  weft__gemm_blocks blocks;
  const int *tile_heights; /* ascending to blocks.rows, 0 after that */
  /* Pack n of `width` columns (rows beyond n are zero): element (i, p) of a panel, 0 <= p < k, is x[i * ld + p] ... */
  void (*pack_across)(int64_t k, int n, int width, const float *x, int64_t ld, float *panel);
  /* ... or x[p * ld + i]. */
  void (*pack_along)(int64_t k, int n, int width, const float *x, int64_t ld, float *panel);
  /* c = or += the product of two panels; writes `height` rows, and whole vectors that hold n_columns. */
  void (*tile)(int height, int n_columns, int64_t k, const float *a, const float *b, bool accumulate, float *c,
               int64_t c_stride);
  /* y[i] = sum over p < k of x[p] * a[i * ld + p], for i < m ... */
  void (*matvec_rows)(int64_t m, int64_t k, const float *a, int64_t ld, const float *x, float *y);
  /* ... or a[p * ld + i]; m is at most WEFT__GEMV_COLUMNS. */
  void (*matvec_columns)(int64_t m, int64_t k, const float *a, int64_t ld, const float *x, float *y);
} weft__gemm_kernels;

enum {
  WEFT__GEMM_MAX_ROWS = 16,
  WEFT__GEMM_MAX_COLUMNS = 32,
  WEFT__GEMV_COLUMNS = 1024,
};

typedef enum weft__binary {
  WEFT__ADD,
  WEFT__SUB,
  WEFT__MUL,
  WEFT__DIV,
} weft__binary;

typedef enum weft__unary {
  WEFT__SILU,  /* a / (1 + exp(-a)) */
  WEFT__RELU,  /* max(a, 0) */
  WEFT__GELU,  /* a * P(X < a), X normal */
  WEFT__SCALE, /* a * parameter */
} weft__unary;

/* Query rows that share one key/value head, and the cache of their slot. */
typedef struct weft__attention_tile {
  int n_rows;    /* at most WEFT__ATTENTION_TILE */
  int head_size; /* D */
  float scale;
  const float *q[16];        /* [D] each */
  float *out[16];            /* [D] each */
  int last[16];              /* row r sees positions 0 .. last[r] */
  weft_dtype dtype;          /* of the cache: f32, f16 or q8_0 (weft/ops.h) */
  const void *keys, *values; /* [n_blocks,G,D,P], [n_blocks,G,P,D], moved to the head in question */
  int64_t block_bytes;       /* from block to block */
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

  weft__gemm_kernels gemm;

  void (*binary)(weft__binary op, int64_t n, const float *a, int64_t a_stride, const float *b, int64_t b_stride,
                 float *y); /* strides in elements */
  void (*unary)(weft__unary op, int64_t n, const float *a, float parameter, float *y);
  void (*silu_mul)(int64_t n, const float *a, const float *b, float *y);
  void (*softmax)(int64_t n, const float *a, float *y);
  void (*rms_norm)(int64_t n, const float *a, const float *gain, float eps, float *y);
  /* One head, R rotated elements at distance `step` (1: pairs are neighbours; R/2: halves). */
  void (*rope)(int64_t n_rotated, bool is_interleaved, const float *a, const float *cos, const float *sin, float *y);
  void (*to_f16)(int64_t n, const float *a, uint16_t *y);
  void (*attention)(const weft__attention_tile *tile, void *scratch);

  /* n steps of fma_flops operations each, without memory; the result means nothing. */
  float (*fma_chains)(int64_t n);
  int fma_flops;
} weft__cpu_kernels;

/* The variants compiled in, best first (detect.c). */
extern const weft__cpu_kernels weft__kernels_scalar;
extern const weft__cpu_kernels weft__kernels_avx2;
extern const weft__cpu_kernels weft__kernels_avx512;

#endif
