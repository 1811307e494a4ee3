/* half.h - IEEE 754 binary16 to and from binary32, and bfloat16 to it, in portable C (round to nearest, ties to even). */
#ifndef WEFT_HALF_H
#define WEFT_HALF_H

#include <stdint.h>
#include <string.h>

static inline float weft__f32_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint32_t weft__f32_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float weft__f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) return weft__f32_from_bits(sign | 0x7f800000 | rest << 13); /* infinity, NaN */
  if (rest >= 0x0400) return weft__f32_from_bits(sign | ((rest << 13) + (112u << 23)));
  float tiny = (float)rest * 0x1p-24f; /* subnormal: a multiple of 2^-24, exact in f32 */
  return sign ? -tiny : tiny;
}

static inline uint16_t weft__f32_to_f16(float x) {
  uint32_t bits = weft__f32_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);  /* NaN */
  if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above round to infinity */
  if (rest < 0x38800000) { /* below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded */
    uint32_t shifted = weft__f32_bits(weft__f32_from_bits(rest) + 0.5f);
    return (uint16_t)(sign | (shifted - 0x3f000000));
  }
  uint32_t rounded = rest + 0x0fff + (rest >> 13 & 1);
  return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

static inline float weft__bf16_to_f32(uint16_t h) { return weft__f32_from_bits((uint32_t)h << 16); }

static inline uint16_t weft__f32_to_bf16(float x) {
  uint32_t bits = weft__f32_bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN stays NaN */
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
