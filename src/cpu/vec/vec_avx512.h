/* vec_avx512.h - the vector vocabulary (see vec_scalar.h) for AVX-512 F/BW/VL/DQ with VNNI: 16 lanes. */
#ifndef WEFT_VEC_AVX512_H
#define WEFT_VEC_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "cpu/vec/blocks.h"

#define W 16
#define VEC_NAME "avx512"
/* 12 rows: 12 integer and 12 float accumulators leave 8 of the 32 registers for weights and scales. */
#define GEMM_TILES(X) X(1) X(2) X(4) X(8) X(12)
#define GEMM_MAX_ROWS 12
#define SGEMM_BLOCKS SGEMM_BLOCKS_AVX512
#define SGEMM_HEIGHTS(X) X(1) X(2) X(4) X(8) X(12)
#define ATTENTION_ROWS 6
/* vpdpbusd multiplies unsigned by signed bytes, so signed weights are moved up by 128. */
#define DOT_BIAS 128

typedef float real;
typedef __m512 vf;
typedef __m512i vi;

static inline __mmask16 lanes(int n) { return (__mmask16)((1u << n) - 1); }

static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_set1(real x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(lanes(n), p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline void vf_store_n(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, lanes(n), x); }
static inline vf vf_load_real(const real *p) { return vf_load(p); }
static inline void vf_store_real(real *p, vf x) { vf_store(p, x); }
static inline vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
static inline vf vf_load_f16_n(const uint16_t *p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes(n), p));
}
static inline vf vf_load_i8(const int8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline vf vf_load_bf16(const uint16_t *p) {
  __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
/* Bits of 2^(e-128): (e-1) << 23, which is below (e+1) << 21 only for e < 2; these two are the subnormal powers. */
static inline vf vf_load_e8m0(const uint8_t *p) {
  __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)), one = _mm512_set1_epi32(1);
  __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
  return _mm512_castsi512_ps(_mm512_max_epi32(normal, _mm512_slli_epi32(_mm512_add_epi32(e, one), 21)));
}
static inline void vf_store_f16(uint16_t *p, vf x) {
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_sqrt(vf x) { return _mm512_sqrt_ps(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline real vf_sum(vf x) { return _mm512_reduce_add_ps(x); }
static inline real vf_hmax(vf x) { return _mm512_reduce_max_ps(x); }
static inline real real_exp(real x) { return expf(x); }

/* Pairs of rows are merged element by element, then pairs of pairs; the quarters that result are put in place. */
static inline void vf_transpose(vf x[W]) {
  vf t[W];
  for (int i = 0; i < W; i += 2) {
    t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < W; i += 4)
    for (int j = 0; j < 2; j++) {
      __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
      x[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      x[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < W; j += 8) {
      t[i + j] = _mm512_shuffle_f32x4(x[i + j], x[i + j + 4], 0x88);
      t[i + j + 4] = _mm512_shuffle_f32x4(x[i + j], x[i + j + 4], 0xdd);
    }
  for (int i = 0; i < 8; i++) {
    x[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    x[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
  }
}

/* exp by 2^n * p(r), |r| <= ln2/2, p of degree 6: 1.5 ulp.  Below -104 it is 0, above 89 infinite; NaN stays NaN
 * (max and min return their second operand then). */
static inline vf vf_exp(vf x) {
  x = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-104.0f), x));
  vf n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  vf r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x); /* ln 2, in a part whose low bits are 0 ... */
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);  /* ... and the rest */
  vf p = _mm512_set1_ps(1.0f / 720);
  p = vf_fma(p, r, vf_set1(1.0f / 120));
  p = vf_fma(p, r, vf_set1(1.0f / 24));
  p = vf_fma(p, r, vf_set1(1.0f / 6));
  p = vf_fma(p, r, vf_set1(0.5f));
  p = vf_fma(p, r, vf_set1(1.0f));
  p = vf_fma(p, r, vf_set1(1.0f));
  return _mm512_scalef_ps(p, n);
}

#include "cpu/vec/normal_tail.h"

static inline vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline void vi_store(void *p, vi x) { _mm512_storeu_si512(p, x); }
static inline vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
static inline vi vi_load_i8(const void *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
static inline vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
static inline vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
static inline vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
static inline vi vi_shl(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
static inline vi vi_shr(vi a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
static inline vi vi_byte_s8(vi a, int i) { return _mm512_srai_epi32(_mm512_slli_epi32(a, 24u - 8u * (unsigned)i), 24); }
static inline vi vi_byte_u8(vi a, int i) { return _mm512_srli_epi32(_mm512_slli_epi32(a, 24u - 8u * (unsigned)i), 24); }
static inline vi vi_sub16(vi a, vi b) { return _mm512_sub_epi16(a, b); }
static inline vi vi_mul16(vi a, vi b) { return _mm512_mullo_epi16(a, b); }
static inline vi vi_add8(vi a, vi b) { return _mm512_add_epi8(a, b); }
static inline vi vi_flip8(vi a) { return _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80)); }
typedef __m512i vtable;
static inline vtable vtable_load(const int8_t *p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p));
}
static inline vi vi_lookup(vtable t, vi a) { return _mm512_shuffle_epi8(t, a); }
static inline vf vf_from_i32(vi a) { return _mm512_cvtepi32_ps(a); }

static inline vi vi_dot_us(vi acc, vi w, vi x) { return _mm512_dpbusd_epi32(acc, w, x); }
static inline vi vi_dot_bs(vi acc, vi w, vi x) { return _mm512_dpbusd_epi32(acc, w, x); }

#endif
