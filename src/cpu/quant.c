/* quant.c - blocks of quantised weights as files store them: taken apart, and computed.
 *
 * Where bits of several codes share a byte, the loops run over bytes that lie side by side, which compilers vectorise:
 * every weight of a model passes here when it is loaded. */
#include "cpu/quant.h"
#include "cpu/half.h"

#include <string.h> /* memcpy, memset */

typedef weft__quant_block quant_block;

static uint16_t u16_at(const uint8_t *p) {
  uint16_t bits;
  memcpy(&bits, p, sizeof bits);
  return bits;
}

/* ---- planes of bits ---- */

/* n bytes hold n codes of 4 bits in their lower halves and the n codes after these in their upper halves. */
static void read_nibbles(const uint8_t *q, int n, uint8_t *codes) {
  for (int i = 0; i < n; i++) {
    codes[i] = q[i] & 15;
    codes[n + i] = q[i] >> 4;
  }
}

/* Adds two bits, from bit `to` on, of 256 codes in two parts: byte i of the 32 of a part holds those of the codes i, 32+i,
 * 64+i and 96+i of its 128. */
static void add_pairs(const uint8_t *q, int to, uint8_t *codes) {
  for (int part = 0; part < 2; part++)
    for (int run = 0; run < 4; run++)
      for (int i = 0; i < 32; i++)
        codes[part * 128 + run * 32 + i] |= (uint8_t)((q[part * 32 + i] >> (2 * run) & 3) << to);
}

/* Adds bit `to` of 256 codes: byte i of 32 holds those of the codes i, 32+i, ..., 224+i. */
static void add_bits(const uint8_t *q, int to, uint8_t *codes) {
  for (int run = 0; run < 8; run++)
    for (int i = 0; i < 32; i++) codes[run * 32 + i] |= (uint8_t)((q[i] >> run & 1) << to);
}

/* Adds bit 4 of 32 codes, from 32 bits.  Eight at a time: a byte of bits is copied to eight bytes, each of which keeps the
 * bit of its own place, and adding 127 to its other seven bits carries that into the highest. */
static void add_fifth_bit(const uint8_t *q, uint8_t *codes) {
  const uint64_t ones = 0x0101010101010101u, own_bit = 0x8040201008040201u;
  for (int i = 0; i < 4; i++) {
    uint64_t word, bits = q[i] * ones & own_bit, set = (bits & 127 * ones) + 127 * ones;
    memcpy(&word, codes + 8 * i, sizeof word);
    word |= ((set | bits) & 128 * ones) >> 3;
    memcpy(codes + 8 * i, &word, sizeof word);
  }
}

/* ---- blocks of 32 ---- */

static void read_q8_0(const uint8_t *p, quant_block *b) {
  b->d = u16_at(p);
  memcpy(b->codes, p + 2, 32);
}

static void read_q4_0(const uint8_t *p, quant_block *b) { /* iq4_nl, too */
  b->d = u16_at(p);
  read_nibbles(p + 2, 16, b->codes);
}

static void read_q4_1(const uint8_t *p, quant_block *b) {
  b->d = u16_at(p);
  b->m = u16_at(p + 2);
  read_nibbles(p + 4, 16, b->codes);
}

static void read_q5_0(const uint8_t *p, quant_block *b) {
  b->d = u16_at(p);
  read_nibbles(p + 6, 16, b->codes);
  add_fifth_bit(p + 2, b->codes);
}

static void read_q5_1(const uint8_t *p, quant_block *b) {
  b->d = u16_at(p);
  b->m = u16_at(p + 2);
  read_nibbles(p + 8, 16, b->codes);
  add_fifth_bit(p + 4, b->codes);
}

static void read_mxfp4(const uint8_t *p, quant_block *b) {
  b->d = p[0];
  read_nibbles(p + 1, 16, b->codes);
}

/* ---- blocks of 256 ---- */

static void read_q2_k(const uint8_t *p, quant_block *b) {
  for (int i = 0; i < 16; i++) b->scales[i] = p[i] & 15, b->minima[i] = p[i] >> 4;
  memset(b->codes, 0, sizeof b->codes);
  add_pairs(p + 16, 0, b->codes);
  b->d = u16_at(p + 80);
  b->m = u16_at(p + 82);
}

/* 16 scales of 6 bits, moved up by 32: the lower four in the halves of bytes 0..7, the upper two in bytes 8..11. */
static void read_q3_k(const uint8_t *p, quant_block *b) {
  const uint8_t *s = p + 96;
  for (int i = 0; i < 16; i++) {
    int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
    b->scales[i] = (uint8_t)((low | high << 4) - 32);
  }
  memset(b->codes, 0, sizeof b->codes);
  add_pairs(p + 32, 0, b->codes);
  add_bits(p, 2, b->codes);
  b->d = u16_at(p + 108);
}

/* 8 scales and 8 minima of 6 bits in 12 bytes: the first four of each in the lower bits of bytes 0..3 and 4..7, the last
 * four in the halves of bytes 8..11, their upper two bits in those of bytes 0..7. */
static void read_six_bits(const uint8_t *s, quant_block *b) {
  for (int i = 0; i < 4; i++) {
    b->scales[i] = s[i] & 63;
    b->minima[i] = s[4 + i] & 63;
    b->scales[4 + i] = (uint8_t)((s[8 + i] & 15) | (s[i] >> 6) << 4);
    b->minima[4 + i] = (uint8_t)(s[8 + i] >> 4 | (s[4 + i] >> 6) << 4);
  }
}

static void read_q4_k(const uint8_t *p, quant_block *b) {
  b->d = u16_at(p);
  b->m = u16_at(p + 2);
  read_six_bits(p + 4, b);
  for (int i = 0; i < 4; i++) read_nibbles(p + 16 + 32 * i, 32, b->codes + 64 * i);
}

static void read_q5_k(const uint8_t *p, quant_block *b) {
  b->d = u16_at(p);
  b->m = u16_at(p + 2);
  read_six_bits(p + 4, b);
  for (int i = 0; i < 4; i++) read_nibbles(p + 48 + 32 * i, 32, b->codes + 64 * i);
  add_bits(p + 16, 4, b->codes);
}

static void read_q6_k(const uint8_t *p, quant_block *b) {
  for (int i = 0; i < 2; i++) read_nibbles(p + 64 * i, 64, b->codes + 128 * i);
  add_pairs(p + 128, 4, b->codes);
  memcpy(b->scales, p + 192, 16);
  b->d = u16_at(p + 208);
}

/* 8 scales of 6 bits, moved up by 32: the upper two in a word, the lower four in the halves of four bytes. */
static void read_iq4_xs(const uint8_t *p, quant_block *b) {
  b->d = u16_at(p);
  for (int i = 0; i < 8; i++) {
    int low = p[4 + i / 2] >> (4 * (i % 2)) & 15, high = u16_at(p + 2) >> (2 * i) & 3;
    b->scales[i] = (uint8_t)((low | high << 4) - 32);
    read_nibbles(p + 8 + 16 * i, 16, b->codes + 32 * i);
  }
}

/* ---- by dtype ---- */

static void (*const READ_BLOCK[WEFT_DTYPE_COUNT])(const uint8_t *stored, quant_block *block) = {
    [WEFT_Q8_0] = read_q8_0,   [WEFT_Q4_0] = read_q4_0, [WEFT_Q4_1] = read_q4_1,   [WEFT_Q5_0] = read_q5_0,
    [WEFT_Q5_1] = read_q5_1,   [WEFT_Q2_K] = read_q2_k, [WEFT_Q3_K] = read_q3_k,   [WEFT_Q4_K] = read_q4_k,
    [WEFT_Q5_K] = read_q5_k,   [WEFT_Q6_K] = read_q6_k, [WEFT_IQ4_NL] = read_q4_0, [WEFT_IQ4_XS] = read_iq4_xs,
    [WEFT_MXFP4] = read_mxfp4,
};

void weft__quant_read(weft_dtype dtype, const uint8_t *stored, quant_block *block) { READ_BLOCK[dtype](stored, block); }

void weft__quant_write(weft_dtype dtype, const quant_block *block, uint8_t *stored) {
  memcpy(stored, &block->d, 2);
  if (dtype == WEFT_Q8_0)
    memcpy(stored + 2, block->codes, 32);
  else
    for (int i = 0; i < 16; i++) stored[2 + i] = (uint8_t)(block->codes[i] | block->codes[16 + i] << 4);
}

/* ---- values ---- */

/* 2^(e-128); the least two are subnormal. */
static float e8m0_half(unsigned e) { return weft__f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

static int value_of(const weft__quant_format *f, uint8_t code) {
  switch (f->values) {
  case WEFT__VALUE_SIGNED:
    return (int8_t)code;
  case WEFT__VALUE_IQ4:
    return WEFT__IQ4_VALUES[code];
  case WEFT__VALUE_FP4:
    return WEFT__FP4_VALUES[code];
  case WEFT__VALUE_OFFSET:
    break;
  }
  return code - f->offset;
}

/* The products with the scales are rounded first, then that with the value, then the sum. */
void weft__quant_compute(weft_dtype dtype, const quant_block *block, float *y) {
  const weft__quant_format *f = &WEFT__QUANT_FORMATS[dtype];
  float d = f->is_e8m0 ? e8m0_half(block->d) : weft__f16_to_f32(block->d), m = weft__f16_to_f32(block->m);
  int n_scales = weft__quant_n_scales(f), run = n_scales == 2 ? 16 : 32;
  for (int i = 0; i < f->n_columns / run; i++) {
    float scale = n_scales ? d * (float)(int8_t)block->scales[i] : d, minimum = 0;
    if (f->minimum == WEFT__MIN_ADDED)
      minimum = -m;
    else if (f->minimum)
      minimum = m * (float)block->minima[i];
    for (int c = i * run; c < (i + 1) * run; c++) y[c] = scale * (float)value_of(f, block->codes[c]) - minimum;
  }
}
