/* kernels.h - what each ISA variant provides: one const table of functions over plain memory.
 *
 * The kernels are written once (kern/), over a vector vocabulary (vec/), and compiled once per variant (isa/).  A kernel
 * works on one task's share: it knows neither tensors nor threads.
 *
 * Products.  Weights [M,K] are kept in panels of WEFT__PANEL rows, interleaved so that a vector holds the same columns of
 * 16 rows and no sum runs across lanes:
 *   f32, f16, bf16   K x [16 elements]
 *   quantised        K/256 or K/32 blocks (cpu/quant.h says what a format has of these):
 *     head           [16 f16 d] or [16 u8 e], [16 f16 m]
 *     and then, for each 32 columns:
 *     scales         1 or 2 x [16 i8], the second for the last 16 columns; minima likewise as [16 i8]
 *     codes          a plane of high bits (1 or 2 x [16 words]), one of low bits (2, 4 or 8 x [16 words])
 * The four bytes of a word are four columns.  A plane of n bits holds its part of the columns 4j .. 4j+3 in word j % n, from
 * bit n * (j / n) of each byte on: a group of four columns is one load, one shift and one mask, and the words of 4- and
 * 8-bit formats are the file's own.  (Scales of 6 bits grow to bytes: at most 4 % more than the file has.)
 *
 * Activations are kept in tiles of `n_rows` rows (the tile heights of the variant), interleaved likewise, as f32 or
 * quantised to 8 bits per block of 32.  An output is computed by the same sequence of operations whatever the tile's
 * height: results depend neither on how many rows are multiplied at once nor on the number of threads. */
#ifndef WEFT_CPU_KERNELS_H
#define WEFT_CPU_KERNELS_H

#include "weft/op_enums.h"
#include "cpu/quant.h"
#include "tensor/optimizer.h"

enum { WEFT__PANEL = 16 }; /* rows of a weight panel */

/* Bytes of the parts of a quantised panel: a block's head; scales and minima of 32 columns; all of 32 columns. */
static inline int weft__block_head_bytes(const weft__quant_format *f) {
  return WEFT__PANEL * ((f->is_e8m0 ? 1 : 2) + (f->minimum ? 2 : 0));
}
static inline int weft__part_head_bytes(const weft__quant_format *f) {
  return WEFT__PANEL * weft__quant_n_scales(f) * (f->minimum == WEFT__MIN_SCALED ? 2 : 1);
}
static inline int weft__part_bytes(const weft__quant_format *f) {
  return weft__part_head_bytes(f) + WEFT__PANEL * 4 * (f->low_bits + f->high_bits);
}

/* A quantised panel for several tiles is expanded first: K/32 parts of 8 x [16 words] of bytes, in the order of the columns,
 * then per part 1 or 2 x [16 f32] scales and 0 to 2 x [16 f32] minima (two of a kind are of 16 columns each).  The bytes
 * are the weights' integers: unsigned and below 128, or signed, in the form that the variant multiplies best (DOT_BIAS in
 * vec/vec_scalar.h).  A weight is scale * integer + minimum. */
typedef struct weft__expanded {
  int n_scales, n_minima;
  bool is_signed;
} weft__expanded;

static inline weft__expanded weft__expanded_of(const weft__quant_format *f) {
  weft__expanded w = {f->scales == WEFT__SCALE_16 ? 2 : 1, f->minimum != WEFT__MIN_NONE,
                      f->values != WEFT__VALUE_OFFSET || f->offset != 0};
  if (f->minimum > WEFT__MIN_ADDED && weft__quant_n_scales(f) == 2) w.n_minima = 2;
  return w;
}
static inline int weft__expanded_part_bytes(weft__expanded w) {
  return WEFT__PANEL * (WEFT__QBLOCK + 4 * (w.n_scales + w.n_minima));
}

/* n_rows rows of activations, in blocks of 32 columns; either the f32 or the quantised fields are set.  Columns from K on
 * are zero; there are as many as blocks of the weights hold. */
typedef struct weft__x_tile {
  int n_rows; /* a tile height of the variant; rows beyond the real ones are zero */
  int64_t k, n_blocks;
  float *x;         /* [32*n_blocks][n_rows] */
  float *x_sum;     /* [n_blocks][n_rows]: sum of a block (f32), d * sum of q (quantised) */
  float *x_half;    /* [2*n_blocks][n_rows]: the same of 16 columns */
  int32_t *q;       /* [8*n_blocks][n_rows]: four int8 each */
  float *q_d;       /* [n_blocks][n_rows] */
  int32_t *q_start; /* [n_blocks][n_rows]: -DOT_BIAS * sum of q, where a sum of products with signed bytes starts */
  int32_t *q_start_half; /* [2*n_blocks][n_rows]: the same of 16 columns */
} weft__x_tile;

/* y[row * y_stride + i] for the tile's rows and the 16 rows i of one weight panel.  Tiles of WEFT__EXPANDED_ROWS rows and
 * more take a quantised panel expanded, lower ones as it is stored. */
typedef void (*weft__panel_product)(const weft__x_tile *tile, const void *panel, float *y, int64_t y_stride);
typedef void (*weft__panel_expand)(const void *panel, int64_t n_blocks, void *expanded);
enum { WEFT__EXPANDED_ROWS = 4 };

/* ---- products by a matrix unit, where the variant has one ----
 *
 * It takes tiles of exactly 16 rows, whose quantised activations lie row by row: q is [n_blocks][16][8], the other arrays
 * are as above.  Weights are unpacked for it, 8 blocks of 32 columns of one panel at a time, for all tiles of a task. */
enum {
  WEFT__WIDE_ROWS = 16,
  WEFT__WIDE_BLOCKS = 8,
};

/* The product of tile row r and panel row i gains, block by block: for each sum, (codes . q) * (scale[i] * q_d[r]); then for
 * each minimum, minimum[i] * x_sum[r] (or x_half[r] of each half, if there are two). */
typedef struct weft__wide_weights {
  _Alignas(64) int8_t codes[2 * WEFT__WIDE_BLOCKS][8 * WEFT__PANEL * 4]; /* a block's groups; zeros in the other half */
  float scale[2 * WEFT__WIDE_BLOCKS][WEFT__PANEL];
  float minimum[2 * WEFT__WIDE_BLOCKS][WEFT__PANEL];
  int n_blocks;
  int n_scales; /* sums a block: 1, or 2, one for each 16 columns */
  int n_minima; /* a block: 0, 1 or 2 */
} weft__wide_weights;

/* Blocks first .. first+n-1, n at most WEFT__WIDE_BLOCKS, first a multiple of it. */
typedef void (*weft__unpack)(const void *panel, int64_t first, int n, weft__wide_weights *weights);

typedef struct weft__wide_kernels {
  int least_rows;                                                  /* fewer are multiplied without the unit */
  void (*pack)(const float *x, int row, const weft__x_tile *tile); /* as pack_q8 */
  const weft__unpack *unpack;                                      /* by the weight's dtype; NULL if not quantised */
  void (*begin)(void);                                             /* by each thread, before ... */
  /* y [16][16] += the products with blocks first .. of the tile, as many as there are weights. */
  void (*add)(const weft__x_tile *tile, int64_t first, const weft__wide_weights *weights, float *y);
  void (*end)(void); /* ... and after */
} weft__wide_kernels;

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
  WEFT__POW,
  WEFT__MAXIMUM, /* NaN if either is */
  WEFT__MINIMUM,
} weft__binary;

typedef enum weft__unary {
  WEFT__SILU,      /* a / (1 + exp(-a)) */
  WEFT__RELU,      /* max(a, 0) */
  WEFT__GELU,      /* a * P(X < a), X normal */
  WEFT__GELU_TANH, /* the same by a tanh: a / (1 + exp(-2 u)), u = sqrt(2 / pi) * (a + 0.044715 a^3) */
  WEFT__SCALE,     /* a * parameter */
  WEFT__ABS,
  WEFT__NEG,
  WEFT__EXP,
  WEFT__LOG, /* natural */
  WEFT__SQRT,
  WEFT__TANH,
  WEFT__SIGMOID,    /* 1 / (1 + exp(-a)) */
  WEFT__TANH_SLOPE, /* derivatives */
  WEFT__SIGMOID_SLOPE,
  WEFT__GELU_SLOPE,
  WEFT__GELU_TANH_SLOPE,
  WEFT__SILU_SLOPE,
} weft__unary;

/* rms_norm, or layer_norm, where the mean is taken off; of n elements. */
typedef struct weft__norm {
  bool is_centred;
  const float *gain, *bias; /* [n]; NULL: the norm is not multiplied, nothing is added.  A gradient wants a gain. */
  float eps;
} weft__norm;

enum { WEFT__ATTENTION_TILE = 12 }; /* rows: a multiple of what any variant takes at once */

/* Query rows that share one key/value head, and the cache of their slot. */
typedef struct weft__attention_tile {
  int n_rows;    /* at most WEFT__ATTENTION_TILE */
  int head_size; /* D */
  float scale;
  const float *q[WEFT__ATTENTION_TILE];                        /* [D] each */
  float *out[WEFT__ATTENTION_TILE];                            /* [D] each */
  int first[WEFT__ATTENTION_TILE], last[WEFT__ATTENTION_TILE]; /* row r sees positions first[r] .. last[r] */
  weft_dtype dtype;                                            /* of the cache: f32, f16 or q8_0 (weft/ops.h) */
  const void *keys, *values; /* [n_blocks,G,D,P], [n_blocks,G,P,D], moved to the head in question */
  int64_t block_bytes;       /* from block to block */
  const int32_t *blocks;     /* the slot's blocks */
} weft__attention_tile;

/* Floats (doubles in the scalar variant) of scratch that an attention tile needs. */
#define WEFT__ATTENTION_SCRATCH(head_size) (WEFT__ATTENTION_TILE * ((head_size) + WEFT_KV_BLOCK + 16))

typedef struct weft__cpu_kernels {
  const char *name;
  const int *tile_heights; /* ascending, 0 after the last */

  /* Writes row `row` of a tile: x [K] (NULL: zeros). */
  void (*pack_f32)(const float *x, int row, const weft__x_tile *tile);
  void (*pack_q8)(const float *x, int row, const weft__x_tile *tile);
  const weft__panel_product *product_f32; /* by the weight's dtype; f32 activations */
  const weft__panel_product *product_q8;  /* quantised activations; NULL for dtypes that are not quantised */
  const weft__panel_expand *expand;       /* NULL for dtypes that are not quantised */

  const weft__wide_kernels *wide; /* NULL: there is no matrix unit */

  weft__gemm_kernels gemm;

  void (*binary)(weft__binary op, int64_t n, const float *a, int64_t a_stride, const float *b, int64_t b_stride,
                 float *y); /* strides in elements */
  void (*unary)(weft__unary op, int64_t n, const float *a, float parameter, float *y);
  void (*gated)(weft_gate gate, int64_t n, const float *a, const float *b, float *y); /* gate(a) * b */
  void (*softmax)(int64_t n, const float *a, float *y);                               /* a may be y, here and in norm */
  double (*exp_sum)(int64_t n, const float *a, float *largest); /* sum of exp(a - largest); 0 if all are -infinity */
  void (*norm)(const weft__norm *norm, int64_t n, const float *a, float *y);
  void (*norm_grad)(const weft__norm *norm, int64_t n, const float *a, const float *dy, float *da); /* dy may be da */
  /* A step over n parameters p with the gradient g, moments m (sgd: NULL if there is no momentum) and v, in place. */
  void (*adam)(const weft__adam *step, int64_t n, const float *g, float *p, float *m, float *v);
  void (*sgd)(const weft__sgd *step, int64_t n, const float *g, float *p, float *m);
  /* One head, R rotated elements at distance `step` (1: pairs are neighbours; R/2: halves). */
  void (*rope)(int64_t n_rotated, bool is_interleaved, bool is_inverse, const float *a, const float *cos,
               const float *sin, float *y);
  void (*to_f16)(int64_t n, const float *a, uint16_t *y);
  void (*attention)(const weft__attention_tile *tile, void *scratch);
  /* n more scores s of a row, times scale, join its softmax: the row's largest and the sum of the exponentials, which begin
   * with -inf and 0, take account of them, and s becomes exp(s * scale - largest).  Returns what was summed with the
   * weights of before is to be multiplied by. */
  float (*softmax_join)(int64_t n, float scale, float *s, float *largest, double *sum);
  /* s becomes p = exp(s * scale - lse), and dp the gradient by s: p * (dp - delta) * scale. */
  void (*softmax_part_grad)(int64_t n, float scale, float lse, float delta, float *s, float *dp);

  /* n steps of fma_flops operations each, without memory; the result means nothing. */
  float (*fma_chains)(int64_t n);
  int fma_flops;
} weft__cpu_kernels;

/* The variants compiled in, best first (detect.c). */
extern const weft__cpu_kernels weft__kernels_scalar;
extern const weft__cpu_kernels weft__kernels_avx2;
extern const weft__cpu_kernels weft__kernels_avx512;
extern const weft__cpu_kernels weft__kernels_amx;
extern const weft__cpu_kernels weft__kernels_neon_base;
extern const weft__cpu_kernels weft__kernels_neon_dotprod;
extern const weft__cpu_kernels weft__kernels_neon_i8mm;

/* isa/amx.c, for the variant amx */
void weft__amx_begin(void);
void weft__amx_add(const weft__x_tile *tile, int64_t first, const weft__wide_weights *weights, float *y);
void weft__amx_end(void);

#endif
