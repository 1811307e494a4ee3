/* vec_avx2.h - the vector vocabulary (see vec_scalar.h) for AVX2 with FMA and F16C: 8 lanes. */
#ifndef WEFT_VEC_AVX2_H
#define WEFT_VEC_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "cpu/vec/blocks.h"

#define W 8
#define VEC_NAME "avx2"
/* 4 rows: 4 integer and 4 float accumulators leave 8 of the 16 registers for weights, scales and the byte products. */
#define GEMM_TILES(X) X(1) X(2) X(4)
#define GEMM_MAX_ROWS 4
#define SGEMM_BLOCKS SGEMM_BLOCKS_AVX2
#define SGEMM_HEIGHTS(X) X(1) X(2) X(4) X(6)
#define ATTENTION_ROWS 4
#define DOT_BIAS 0

typedef float real;
typedef __m256 vf;
typedef __m256i vi;

/* All ones in the first n lanes. */
static inline __m256i lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_set1(real x) { return _mm256_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline vf vf_load_n(const float *p, int n) { return _mm256_maskload_ps(p, lanes(n)); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline void vf_store_n(float *p, vf x, int n) { _mm256_maskstore_ps(p, lanes(n), x); }
static inline vf vf_load_real(const real *p) { return vf_load(p); }
static inline void vf_store_real(real *p, vf x) { vf_store(p, x); }
static inline vf vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
static inline vf vf_load_f16_n(const uint16_t *p, int n) {
  uint16_t all[W] = {0};
  for (int i = 0; i < n; i++) all[i] = p[i];
  return vf_load_f16(all);
}
static inline vf vf_load_i8(const int8_t *p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static inline vf vf_load_bf16(const uint16_t *p) {
  __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}
/* As in vec_avx512.h. */
static inline vf vf_load_e8m0(const uint8_t *p) {
  __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)), one = _mm256_set1_epi32(1);
  __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
  return _mm256_castsi256_ps(_mm256_max_epi32(normal, _mm256_slli_epi32(_mm256_add_epi32(e, one), 21)));
}
static inline void vf_store_f16(uint16_t *p, vf x) {
  _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_sqrt(vf x) { return _mm256_sqrt_ps(x); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline real vf_sum(vf x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline real vf_hmax(vf x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
static inline real real_exp(real x) { return expf(x); }

/* As in vec_avx512.h, with two halves instead of four quarters. */
static inline void vf_transpose(vf x[W]) {
  vf t[W];
  for (int i = 0; i < W; i += 2) {
    t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < W; i += 4)
    for (int j = 0; j < 2; j++) {
      __m256d a = _mm256_castps_pd(t[i + j]), b = _mm256_castps_pd(t[i + j + 2]);
      x[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
      x[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
    }
  for (int i = 0; i < 4; i++) {
    vf low = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20);
    x[i + 4] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
    x[i] = low;
  }
}

/* exp as in vec_avx512.h; 2^n is applied in two halves, so that results run out into 0 and infinity gradually. */
static inline vf vf_exp(vf x) {
  x = _mm256_min_ps(_mm256_set1_ps(89.0f), _mm256_max_ps(_mm256_set1_ps(-104.0f), x));
  vf n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  vf r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
  vf p = vf_set1(1.0f / 720);
  p = vf_fma(p, r, vf_set1(1.0f / 120));
  p = vf_fma(p, r, vf_set1(1.0f / 24));
  p = vf_fma(p, r, vf_set1(1.0f / 6));
  p = vf_fma(p, r, vf_set1(0.5f));
  p = vf_fma(p, r, vf_set1(1.0f));
  p = vf_fma(p, r, vf_set1(1.0f));
  __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
  __m256i rest = _mm256_sub_epi32(whole, half);
  vf a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  vf b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return vf_mul(vf_mul(p, a), b);
}

#include "cpu/vec/normal_tail.h"

static inline vi vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
static inline vi vi_load(const void *p) { return _mm256_loadu_si256(p); }
static inline void vi_store(void *p, vi x) { _mm256_storeu_si256(p, x); }
static inline vi vi_load_i8(const void *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
static inline vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
static inline vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
static inline vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
static inline vi vi_shl(vi a, int n) { return _mm256_slli_epi32(a, n); }
static inline vi vi_shr(vi a, int n) { return _mm256_srli_epi32(a, n); }
static inline vi vi_byte_s8(vi a, int i) { return _mm256_srai_epi32(_mm256_slli_epi32(a, 24 - 8 * i), 24); }
static inline vi vi_byte_u8(vi a, int i) { return _mm256_srli_epi32(_mm256_slli_epi32(a, 24 - 8 * i), 24); }
static inline vi vi_sub16(vi a, vi b) { return _mm256_sub_epi16(a, b); }
static inline vi vi_mul16(vi a, vi b) { return _mm256_mullo_epi16(a, b); }
static inline vi vi_add8(vi a, vi b) { return _mm256_add_epi8(a, b); }
static inline vi vi_flip8(vi a) { return _mm256_xor_si256(a, _mm256_set1_epi8((char)0x80)); }
typedef __m256i vtable;
static inline vtable vtable_load(const int8_t *p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}
static inline vi vi_lookup(vtable t, vi a) { return _mm256_shuffle_epi8(t, a); }
static inline vf vf_from_i32(vi a) { return _mm256_cvtepi32_ps(a); }

/* Pairs of byte products fit 16 bits: 2 * 127 * 128 unsigned, 2 * 128 * 127 signed, so vpmaddubsw never saturates. */
static inline vi vi_dot_us(vi acc, vi w, vi x) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
static inline vi vi_dot_bs(vi acc, vi w, vi x) { return vi_dot_us(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w)); }

#endif
