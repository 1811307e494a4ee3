/* vec_neon.h - the vector vocabulary (see vec_scalar.h) for arm64: 8 lanes in two registers.
 *
 * NEON's registers are half as wide as AVX2's, and there are twice as many.  In pairs, an activation that is spread over
 * a register serves two of weights, and a tile's sums fill the same three quarters of the register file as elsewhere.
 * All arm64 processors run this; NEON_DOTPROD and NEON_I8MM, which a file of isa/ defines and the compiler must be told
 * as well, add the instructions for dot products of bytes. */
#ifndef WEFT_VEC_NEON_H
#define WEFT_VEC_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu/vec/blocks.h"

#define W 8
#if defined(NEON_I8MM)
#define VEC_NAME "neon_i8mm"
#elif defined(NEON_DOTPROD)
#define VEC_NAME "neon_dotprod"
#else
#define VEC_NAME "neon_base"
#endif
/* 6 rows: 6 pairs of integer and of float accumulators leave 8 of the 32 registers for weights and scales. */
#define GEMM_TILES(X) X(1) X(2) X(4) X(6)
#define GEMM_MAX_ROWS 6
#define SGEMM_BLOCKS SGEMM_BLOCKS_NEON
#define SGEMM_HEIGHTS(X) X(1) X(2) X(4) X(6)
#define ATTENTION_ROWS 6
#define DOT_BIAS 0

typedef float real;
typedef struct vf {
  float32x4_t low, high;
} vf;
typedef struct vi {
  int32x4_t low, high;
} vi;

static inline vf vf_zero(void) { return (vf){vdupq_n_f32(0), vdupq_n_f32(0)}; }
static inline vf vf_set1(real x) { return (vf){vdupq_n_f32(x), vdupq_n_f32(x)}; }
static inline vf vf_load(const float *p) { return (vf){vld1q_f32(p), vld1q_f32(p + 4)}; }
static inline vf vf_load_n(const float *p, int n) {
  float all[W] = {0};
  for (int i = 0; i < n; i++) all[i] = p[i];
  return vf_load(all);
}
static inline void vf_store(float *p, vf x) {
  vst1q_f32(p, x.low);
  vst1q_f32(p + 4, x.high);
}
static inline void vf_store_n(float *p, vf x, int n) {
  float all[W];
  vf_store(all, x);
  for (int i = 0; i < n; i++) p[i] = all[i];
}
static inline vf vf_load_real(const real *p) { return vf_load(p); }
static inline void vf_store_real(real *p, vf x) { vf_store(p, x); }
static inline vf vf_load_f16(const uint16_t *p) {
  float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
  return (vf){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
static inline vf vf_load_f16_n(const uint16_t *p, int n) {
  uint16_t all[W] = {0};
  for (int i = 0; i < n; i++) all[i] = p[i];
  return vf_load_f16(all);
}
/* 8 bytes to words. */
static inline vi words_of_s8(int8x8_t bytes) {
  int16x8_t x = vmovl_s8(bytes);
  return (vi){vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x)};
}
static inline vf vf_from_i32(vi a) { return (vf){vcvtq_f32_s32(a.low), vcvtq_f32_s32(a.high)}; }
static inline vf vf_load_i8(const int8_t *p) { return vf_from_i32(words_of_s8(vld1_s8(p))); }
static inline vf vf_load_bf16(const uint16_t *p) { /* a half word is the upper half of its f32 */
  uint16x8_t h = vld1q_u16(p), zero = vdupq_n_u16(0);
  return (vf){vreinterpretq_f32_u16(vzip1q_u16(zero, h)), vreinterpretq_f32_u16(vzip2q_u16(zero, h))};
}
/* As in vec_avx512.h. */
static inline float32x4_t power_of(uint16x4_t exponents) {
  int32x4_t e = vreinterpretq_s32_u32(vmovl_u16(exponents)), one = vdupq_n_s32(1);
  int32x4_t normal = vshlq_n_s32(vsubq_s32(e, one), 23);
  return vreinterpretq_f32_s32(vmaxq_s32(normal, vshlq_n_s32(vaddq_s32(e, one), 21)));
}
static inline vf vf_load_e8m0(const uint8_t *p) {
  uint16x8_t e = vmovl_u8(vld1_u8(p));
  return (vf){power_of(vget_low_u16(e)), power_of(vget_high_u16(e))};
}
static inline void vf_store_f16(uint16_t *p, vf x) { /* rounds to nearest, ties to even */
  vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.low), x.high)));
}

static inline vf vf_add(vf a, vf b) { return (vf){vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
static inline vf vf_sub(vf a, vf b) { return (vf){vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
static inline vf vf_mul(vf a, vf b) { return (vf){vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
static inline vf vf_div(vf a, vf b) { return (vf){vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
static inline vf vf_sqrt(vf x) { return (vf){vsqrtq_f32(x.low), vsqrtq_f32(x.high)}; }
static inline vf vf_fma(vf a, vf b, vf c) {
  return (vf){vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
/* fmax and fmin give NaN where either is: a comparison gives the second one, as the vocabulary wants. */
static inline vf vf_max(vf a, vf b) {
  return (vf){vbslq_f32(vcgtq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcgtq_f32(a.high, b.high), a.high, b.high)};
}
static inline vf vf_min(vf a, vf b) {
  return (vf){vbslq_f32(vcltq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcltq_f32(a.high, b.high), a.high, b.high)};
}
static inline real vf_sum(vf x) { return vaddvq_f32(vaddq_f32(x.low, x.high)); }
static inline real vf_hmax(vf x) { return vmaxnmvq_f32(vmaxnmq_f32(x.low, x.high)); }
static inline real real_exp(real x) { return expf(x); }

static inline void transpose_square(float32x4_t *a, float32x4_t *b, float32x4_t *c, float32x4_t *d) {
  float64x2_t ab_even = vreinterpretq_f64_f32(vtrn1q_f32(*a, *b)), ab_odd = vreinterpretq_f64_f32(vtrn2q_f32(*a, *b));
  float64x2_t cd_even = vreinterpretq_f64_f32(vtrn1q_f32(*c, *d)), cd_odd = vreinterpretq_f64_f32(vtrn2q_f32(*c, *d));
  *a = vreinterpretq_f32_f64(vtrn1q_f64(ab_even, cd_even));
  *b = vreinterpretq_f32_f64(vtrn1q_f64(ab_odd, cd_odd));
  *c = vreinterpretq_f32_f64(vtrn2q_f64(ab_even, cd_even));
  *d = vreinterpretq_f32_f64(vtrn2q_f64(ab_odd, cd_odd));
}

/* Four squares are transposed, and the two beside the diagonal change places. */
static inline void vf_transpose(vf x[W]) {
  for (int i = 0; i < W; i += 4) {
    transpose_square(&x[i].low, &x[i + 1].low, &x[i + 2].low, &x[i + 3].low);
    transpose_square(&x[i].high, &x[i + 1].high, &x[i + 2].high, &x[i + 3].high);
  }
  for (int i = 0; i < 4; i++) {
    float32x4_t high = x[i].high;
    x[i].high = x[i + 4].low;
    x[i + 4].low = high;
  }
}

/* exp as in vec_avx2.h.  Here the bounds' instructions pass NaN on. */
static inline float32x4_t exp_of_4(float32x4_t x) {
  x = vminq_f32(vdupq_n_f32(89.0f), vmaxq_f32(vdupq_n_f32(-104.0f), x));
  float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(1.44269504f)));
  float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0.693145752f));
  r = vfmsq_f32(r, n, vdupq_n_f32(1.42860677e-6f));
  float32x4_t p = vdupq_n_f32(1.0f / 720);
  p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
  p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
  int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half);
  int32x4_t bias = vdupq_n_s32(127);
  float32x4_t a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
  float32x4_t b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
  return vmulq_f32(vmulq_f32(p, a), b);
}
static inline vf vf_exp(vf x) { return (vf){exp_of_4(x.low), exp_of_4(x.high)}; }

#include "cpu/vec/normal_tail.h"

static inline vi vi_set1(int32_t x) { return (vi){vdupq_n_s32(x), vdupq_n_s32(x)}; }
static inline vi vi_load(const void *p) {
  const uint8_t *bytes = p;
  return (vi){vreinterpretq_s32_u8(vld1q_u8(bytes)), vreinterpretq_s32_u8(vld1q_u8(bytes + 16))};
}
static inline void vi_store(void *p, vi x) {
  uint8_t *bytes = p;
  vst1q_u8(bytes, vreinterpretq_u8_s32(x.low));
  vst1q_u8(bytes + 16, vreinterpretq_u8_s32(x.high));
}
static inline vi vi_load_i8(const void *p) { return words_of_s8(vld1_s8(p)); }
static inline vi vi_and(vi a, vi b) { return (vi){vandq_s32(a.low, b.low), vandq_s32(a.high, b.high)}; }
static inline vi vi_or(vi a, vi b) { return (vi){vorrq_s32(a.low, b.low), vorrq_s32(a.high, b.high)}; }
static inline vi vi_sub(vi a, vi b) { return (vi){vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)}; }
/* The intrinsics of shifts by a constant want it in the source.  These find it after inlining, and make one of them. */
static inline int32x4_t shift_left(int32x4_t a, int n) { return vshlq_s32(a, vdupq_n_s32(n)); }
static inline int32x4_t shift_right(int32x4_t a, int n) {
  return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vdupq_n_s32(-n)));
}
static inline vi vi_shl(vi a, int n) { return (vi){shift_left(a.low, n), shift_left(a.high, n)}; }
static inline vi vi_shr(vi a, int n) { return (vi){shift_right(a.low, n), shift_right(a.high, n)}; }
static inline vi vi_byte_s8(vi a, int i) {
  vi top = vi_shl(a, 24 - 8 * i);
  return (vi){vshrq_n_s32(top.low, 24), vshrq_n_s32(top.high, 24)};
}
static inline vi vi_byte_u8(vi a, int i) { return vi_shr(vi_shl(a, 24 - 8 * i), 24); }

/* The registers as halves and bytes. */
static inline int16x8_t s16(int32x4_t a) { return vreinterpretq_s16_s32(a); }
static inline int8x16_t s8(int32x4_t a) { return vreinterpretq_s8_s32(a); }
static inline vi vi_sub16(vi a, vi b) {
  return (vi){vreinterpretq_s32_s16(vsubq_s16(s16(a.low), s16(b.low))),
              vreinterpretq_s32_s16(vsubq_s16(s16(a.high), s16(b.high)))};
}
static inline vi vi_mul16(vi a, vi b) {
  return (vi){vreinterpretq_s32_s16(vmulq_s16(s16(a.low), s16(b.low))),
              vreinterpretq_s32_s16(vmulq_s16(s16(a.high), s16(b.high)))};
}
static inline vi vi_add8(vi a, vi b) {
  return (vi){vreinterpretq_s32_s8(vaddq_s8(s8(a.low), s8(b.low))),
              vreinterpretq_s32_s8(vaddq_s8(s8(a.high), s8(b.high)))};
}
static inline vi vi_flip8(vi a) {
  int32x4_t signs = vdupq_n_s32((int32_t)0x80808080);
  return (vi){veorq_s32(a.low, signs), veorq_s32(a.high, signs)};
}
typedef int8x16_t vtable;
static inline vtable vtable_load(const int8_t *p) { return vld1q_s8(p); }
static inline vi vi_lookup(vtable t, vi a) {
  return (vi){vreinterpretq_s32_s8(vqtbl1q_s8(t, vreinterpretq_u8_s32(a.low))),
              vreinterpretq_s32_s8(vqtbl1q_s8(t, vreinterpretq_u8_s32(a.high)))};
}

/* acc + dot products of four signed bytes.  Without the instruction, pairs of byte products fit 16 bits, 2 * 128 * 127. */
static inline int32x4_t dot_bytes(int32x4_t acc, int32x4_t w, int32x4_t x) {
#ifdef NEON_DOTPROD
  return vdotq_s32(acc, s8(w), s8(x));
#else
  int16x8_t first = vmull_s8(vget_low_s8(s8(w)), vget_low_s8(s8(x))), last = vmull_high_s8(s8(w), s8(x));
  return vpadalq_s16(acc, vpaddq_s16(first, last));
#endif
}
static inline vi vi_dot_bs(vi acc, vi w, vi x) {
  return (vi){dot_bytes(acc.low, w.low, x.low), dot_bytes(acc.high, w.high, x.high)};
}
/* Unsigned bytes below 128 are the same numbers when signed. */
static inline vi vi_dot_us(vi acc, vi w, vi x) { return vi_dot_bs(acc, w, x); }

#ifdef NEON_I8MM
/* smmla: 2 rows of 8 activations times 2 rows of 8 weights make 2x2 sums, {x0 w0, x0 w1, x1 w0, x1 w1}.  The sums of a
 * pair of rows with 8 rows of weights are four of these, in the two vectors of the rows; all tiles but 1 are even. */
#define DOT_PAIRS
static inline void vi_pair_set(vi *pair, int32_t row0, int32_t row1) {
  int32x4_t start = vcombine_s32(vdup_n_s32(row0), vdup_n_s32(row1));
  pair[0] = pair[1] = (vi){start, start};
}
/* {q[0], q[1], q[0], q[1]} */
static inline int32x4_t twice(const int32_t *q) {
  int64_t both;
  memcpy(&both, q, sizeof both);
  return vreinterpretq_s32_s64(vdupq_n_s64(both));
}
/* Columns 0 .. 3 are w0 and the rows' words q0[0], q0[1]; 4 .. 7 are w1, q1[0] and q1[1]. */
static inline void vi_pair_dot(vi *pair, vi w0, vi w1, const int32_t *q0, const int32_t *q1) {
  int32x4_t x0 = twice(q0), x1 = twice(q1);
  int8x16_t x = s8(vzip1q_s32(x0, x1));
  pair[0].low = vmmlaq_s32(pair[0].low, x, s8(vzip1q_s32(w0.low, w1.low)));
  pair[0].high = vmmlaq_s32(pair[0].high, x, s8(vzip2q_s32(w0.low, w1.low)));
  pair[1].low = vmmlaq_s32(pair[1].low, x, s8(vzip1q_s32(w0.high, w1.high)));
  pair[1].high = vmmlaq_s32(pair[1].high, x, s8(vzip2q_s32(w0.high, w1.high)));
}
/* To a vector of sums a row. */
static inline int32x4_t rows_0(int32x4_t a, int32x4_t b) { return vcombine_s32(vget_low_s32(a), vget_low_s32(b)); }
static inline int32x4_t rows_1(int32x4_t a, int32x4_t b) { return vcombine_s32(vget_high_s32(a), vget_high_s32(b)); }
static inline void vi_pair_rows(vi *pair) {
  vi a = pair[0], b = pair[1];
  pair[0] = (vi){rows_0(a.low, a.high), rows_0(b.low, b.high)};
  pair[1] = (vi){rows_1(a.low, a.high), rows_1(b.low, b.high)};
}
#endif

#endif
