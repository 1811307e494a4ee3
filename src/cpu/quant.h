/* quant.h - quantised weights: what their blocks consist of, for the code that unpacks, packs and multiplies them.
 *
 * Every format is the same thing with other numbers.  A weight has a code of a few bits, which stands for a small
 * integer: the code less an offset, or an entry of a table.  16 or 32 weights share an integer scale s and perhaps an
 * integer minimum n, a block of 32 or 256 shares d and perhaps m: x = d*s*value - m*n.  A format is a row of
 * WEFT__QUANT_FORMATS; the kernels are written once, and compiled for each row with its numbers as constants. */
#ifndef WEFT_QUANT_H
#define WEFT_QUANT_H

#include "weft/tensor.h"

#include <stdbool.h>

enum {
  WEFT__QBLOCK = 32,       /* columns of a block of activations; blocks of weights are one or eight of these */
  WEFT__SUPER_BLOCK = 256, /* columns of the largest block of weights */
};

/* What a code stands for. */
typedef enum weft__quant_values {
  WEFT__VALUE_OFFSET, /* code - offset */
  WEFT__VALUE_SIGNED, /* code as int8 */
  WEFT__VALUE_IQ4,    /* WEFT__IQ4_VALUES[code] */
  WEFT__VALUE_FP4,    /* WEFT__FP4_VALUES[code]: e2m1, doubled */
} weft__quant_values;

/* Integer scales within a block. */
typedef enum weft__quant_scales {
  WEFT__SCALE_NONE,
  WEFT__SCALE_32,         /* one for 32 columns */
  WEFT__SCALE_16,         /* one for 16 columns */
  WEFT__SCALE_16_BY_CODE, /* the same, and scale * value fits a byte */
} weft__quant_scales;

/* What is added to d*s*value. */
typedef enum weft__quant_minimum {
  WEFT__MIN_NONE,
  WEFT__MIN_ADDED,       /* + m */
  WEFT__MIN_SCALED,      /* - m*n, n a byte for each scale */
  WEFT__MIN_WITH_SCALES, /* the same; n is the upper nibble of the scale's byte */
} weft__quant_minimum;

typedef struct weft__quant_format {
  int n_columns;           /* of a block; 0: not a quantised dtype */
  int low_bits, high_bits; /* of a code, which is stored in two planes */
  weft__quant_values values;
  int offset;
  weft__quant_scales scales;
  weft__quant_minimum minimum;
  bool is_e8m0; /* d is 2^(e-128), of which e is stored (8 bits), instead of an f16 */
} weft__quant_format;

static const weft__quant_format WEFT__QUANT_FORMATS[WEFT_DTYPE_COUNT] = {
    [WEFT_Q8_0] = {32, 8, 0, WEFT__VALUE_SIGNED, 0, WEFT__SCALE_NONE, WEFT__MIN_NONE, false},
    [WEFT_Q4_0] = {32, 4, 0, WEFT__VALUE_OFFSET, 8, WEFT__SCALE_NONE, WEFT__MIN_NONE, false},
    [WEFT_Q4_1] = {32, 4, 0, WEFT__VALUE_OFFSET, 0, WEFT__SCALE_NONE, WEFT__MIN_ADDED, false},
    [WEFT_Q5_0] = {32, 4, 1, WEFT__VALUE_OFFSET, 16, WEFT__SCALE_NONE, WEFT__MIN_NONE, false},
    [WEFT_Q5_1] = {32, 4, 1, WEFT__VALUE_OFFSET, 0, WEFT__SCALE_NONE, WEFT__MIN_ADDED, false},
    [WEFT_Q2_K] = {256, 2, 0, WEFT__VALUE_OFFSET, 0, WEFT__SCALE_16_BY_CODE, WEFT__MIN_WITH_SCALES, false},
    [WEFT_Q3_K] = {256, 2, 1, WEFT__VALUE_OFFSET, 4, WEFT__SCALE_16_BY_CODE, WEFT__MIN_NONE, false},
    [WEFT_Q4_K] = {256, 4, 0, WEFT__VALUE_OFFSET, 0, WEFT__SCALE_32, WEFT__MIN_SCALED, false},
    [WEFT_Q5_K] = {256, 4, 1, WEFT__VALUE_OFFSET, 0, WEFT__SCALE_32, WEFT__MIN_SCALED, false},
    [WEFT_Q6_K] = {256, 4, 2, WEFT__VALUE_OFFSET, 32, WEFT__SCALE_16, WEFT__MIN_NONE, false},
    [WEFT_IQ4_NL] = {32, 4, 0, WEFT__VALUE_IQ4, 0, WEFT__SCALE_NONE, WEFT__MIN_NONE, false},
    [WEFT_IQ4_XS] = {256, 4, 0, WEFT__VALUE_IQ4, 0, WEFT__SCALE_32, WEFT__MIN_NONE, false},
    [WEFT_MXFP4] = {32, 4, 0, WEFT__VALUE_FP4, 0, WEFT__SCALE_NONE, WEFT__MIN_NONE, true},
};

static const int8_t WEFT__IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t WEFT__FP4_VALUES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Integer scales of 32 columns. */
static inline int weft__quant_n_scales(const weft__quant_format *f) {
  return f->scales == WEFT__SCALE_NONE ? 0 : f->scales == WEFT__SCALE_32 ? 1 : 2;
}

/* A block of a file, taken apart; entries that the format lacks are zero. */
typedef struct weft__quant_block {
  uint16_t d, m;                    /* as stored */
  uint8_t scales[16], minima[16];   /* in the order of the columns; signed where the format says so */
  uint8_t codes[WEFT__SUPER_BLOCK]; /* a byte each, in the order of the columns */
} weft__quant_block;

/* Takes apart a stored block of a quantised dtype. */
void weft__quant_read(weft_dtype dtype, const uint8_t *stored, weft__quant_block *block);

/* The way back, for q8_0 and q4_0. */
void weft__quant_write(weft_dtype dtype, const weft__quant_block *block, uint8_t *stored);

/* y[0..n_columns-1] of a block, in f32 as the formats' definition computes it. */
void weft__quant_compute(weft_dtype dtype, const weft__quant_block *block, float *y);

#endif
