/* vec_scalar.h - the vector vocabulary for portable C: one lane, and arithmetic in double.
 *
 * This is the reference: every other vocabulary is compared with what the same kernels compute here.
 *
 * The vocabulary: W lanes; `real` is the type that intermediates are kept in; vf W numbers; vi W 32-bit words, which are
 * also W groups of four bytes.  *_n takes the first n < W lanes, the rest being zero.
 * DOT_PAIRS and the words vi_pair_*, which only vec_neon.h has, are explained there. */
#ifndef WEFT_VEC_SCALAR_H
#define WEFT_VEC_SCALAR_H

#include "cpu/half.h"

#include <math.h>
#include <string.h>

#include "cpu/vec/blocks.h"

#define W 1
#define VEC_NAME "scalar"
#define GEMM_TILES(X) X(1) X(4)
#define GEMM_MAX_ROWS 4
#define SGEMM_BLOCKS SGEMM_BLOCKS_SCALAR
#define SGEMM_HEIGHTS(X) X(1) X(4)
#define ATTENTION_ROWS 4
#define DOT_BIAS 0

typedef double real;
typedef double vf;
typedef int32_t vi;

static inline vf vf_zero(void) { return 0; }
static inline vf vf_set1(real x) { return x; }
static inline vf vf_load(const float *p) { return *p; }
static inline vf vf_load_n(const float *p, int n) { return n > 0 ? *p : 0; }
static inline void vf_store(float *p, vf x) { *p = (float)x; }
static inline void vf_store_n(float *p, vf x, int n) {
  if (n > 0) *p = (float)x;
}
static inline vf vf_load_real(const real *p) { return *p; }
static inline void vf_store_real(real *p, vf x) { *p = x; }
static inline vf vf_load_f16(const uint16_t *p) { return weft__f16_to_f32(*p); }
static inline vf vf_load_f16_n(const uint16_t *p, int n) { return n > 0 ? weft__f16_to_f32(*p) : 0; }
static inline vf vf_load_i8(const int8_t *p) { return *p; }
static inline vf vf_load_bf16(const uint16_t *p) { return weft__bf16_to_f32(*p); }
static inline vf vf_load_e8m0(const uint8_t *p) { return ldexp(1, *p - 128); } /* 2^(e-128) */
static inline void vf_store_f16(uint16_t *p, vf x) { *p = weft__f32_to_f16((float)x); }

static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_div(vf a, vf b) { return a / b; }
static inline vf vf_sqrt(vf x) { return sqrt(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf vf_max(vf a, vf b) { return a > b ? a : b; } /* max and min: b if either is NaN */
static inline vf vf_min(vf a, vf b) { return a < b ? a : b; }
static inline void vf_transpose(vf x[W]) {
  (void)x;
} /* of W x W numbers: lane j of x[i] and lane i of x[j] change places */
static inline vf vf_exp(vf x) { return exp(x); }
static inline real vf_sum(vf x) { return x; }
static inline real vf_hmax(vf x) { return x; }
static inline real real_exp(real x) { return exp(x); }
static inline vf vf_normal_tail(vf u) { return erfc(u * 0.70710678118654752440) / 2; } /* P(X > u), X normal; u >= 0 */

static inline vi vi_set1(int32_t x) { return x; }
static inline vi vi_load(const void *p) {
  vi x;
  memcpy(&x, p, sizeof x);
  return x;
}
static inline void vi_store(void *p, vi x) { memcpy(p, &x, sizeof x); }
static inline vi vi_load_i8(const void *p) { return *(const int8_t *)p; } /* W bytes to W words */
static inline vi vi_and(vi a, vi b) { return a & b; }
static inline vi vi_or(vi a, vi b) { return a | b; }
static inline vi vi_sub(vi a, vi b) { return a - b; }
static inline vi vi_shl(vi a, int n) { return (vi)((uint32_t)a << n); }
static inline vi vi_shr(vi a, int n) { return (vi)((uint32_t)a >> n); }               /* logical */
static inline vi vi_byte_s8(vi a, int i) { return (int8_t)((uint32_t)a >> (8 * i)); } /* byte i, sign-extended */
static inline vi vi_byte_u8(vi a, int i) { return (uint8_t)((uint32_t)a >> (8 * i)); }
/* Words as two numbers of 16 bits each, modulo 2^16. */
static inline vi vi_sub16(vi a, vi b) {
  uint32_t x = (uint32_t)a, y = (uint32_t)b;
  return (vi)(((x - y) & 0xffff) | ((x >> 16) - (y >> 16)) << 16);
}
static inline vi vi_mul16(vi a, vi b) {
  uint32_t x = (uint32_t)a, y = (uint32_t)b;
  return (vi)(((x & 0xffff) * (y & 0xffff) & 0xffff) | (x >> 16) * (y >> 16) << 16);
}
/* Bytes: the sum modulo 2^8; plus 128. */
static inline vi vi_add8(vi a, vi b) {
  uint32_t x = (uint32_t)a, y = (uint32_t)b, low = 0x7f7f7f7f;
  return (vi)(((x & low) + (y & low)) ^ ((x ^ y) & ~low));
}
static inline vi vi_flip8(vi a) { return (vi)((uint32_t)a ^ 0x80808080u); }
/* A table of 16 bytes, and its entries for the bytes of a, all below 16. */
typedef const int8_t *vtable;
static inline vtable vtable_load(const int8_t *p) { return p; }
static inline vi vi_lookup(vtable t, vi a) {
  uint32_t x = 0;
  for (int i = 0; i < 4; i++) x |= (uint32_t)(uint8_t)t[vi_byte_u8(a, i)] << (8 * i);
  return (vi)x;
}
static inline vf vf_from_i32(vi a) { return a; }

/* acc + the dot product of four unsigned bytes of w (below 128) and four signed bytes of x. */
static inline vi vi_dot_us(vi acc, vi w, vi x) {
  for (int i = 0; i < 4; i++) acc += (uint8_t)((uint32_t)w >> (8 * i)) * vi_byte_s8(x, i);
  return acc;
}
/* acc + the dot product of four signed bytes each, where those of w come as bytes of w + DOT_BIAS; plus DOT_BIAS times the
 * sum of x's bytes. */
static inline vi vi_dot_bs(vi acc, vi w, vi x) {
  for (int i = 0; i < 4; i++) acc += vi_byte_s8(w, i) * vi_byte_s8(x, i);
  return acc;
}

#endif
