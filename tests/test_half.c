/* test_half.c - f16 and bf16 to and from f32, every number of them. */
#include "support/tensors.h"

#include "base/rng.h"
#include "cpu/half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- f16 ---- */

static bool is_nan_half(uint16_t h) { return (h & 0x7fff) > 0x7c00; }

/* The value of a finite f16 by its definition: sign, exponent of 5 bits, 10 bits of fraction. */
static double half_value(uint16_t h) {
  int exponent = h >> 10 & 31, fraction = h & 1023;
  double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
  return h & 0x8000 ? -magnitude : magnitude;
}

/* The f16 nearest to a number, ties to even, by whole multiples of the last place. */
static uint16_t nearest_half(float x) {
  int sign = signbit(x) ? 0x8000 : 0, exponent;
  double magnitude = fabs((double)x);
  if (magnitude == 0) return (uint16_t)sign;
  if (magnitude >= 65520) return (uint16_t)(sign | 0x7c00);
  frexp(magnitude, &exponent);
  int last_place = exponent - 11 > -24 ? exponent - 11 : -24;
  return (uint16_t)(sign | ((last_place + 24) * 1024 + (int)lrint(ldexp(magnitude, -last_place))));
}

/* What the processor or the compiler makes of a number, where one of the two knows f16. */
#if defined(__x86_64__)
/* F16C came before AVX2, and clang 14 cannot be asked for it. */
static bool has_hardware_half(void) { return __builtin_cpu_supports("avx2"); }
__attribute__((target("f16c"))) static uint16_t hardware_to_half(float x) {
  return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0);
}
__attribute__((target("f16c"))) static float hardware_from_half(uint16_t h) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}
#elif defined(__FLT16_MANT_DIG__)
static bool has_hardware_half(void) { return true; }
static uint16_t hardware_to_half(float x) {
  _Float16 half = (_Float16)x;
  uint16_t bits;
  memcpy(&bits, &half, sizeof bits);
  return bits;
}
static float hardware_from_half(uint16_t h) {
  _Float16 half;
  memcpy(&half, &h, sizeof half);
  return (float)half;
}
#else
static bool has_hardware_half(void) { return false; }
static uint16_t hardware_to_half(float x) { return nearest_half(x); }
static float hardware_from_half(uint16_t h) { return (float)half_value(h); }
#endif

static void every_half_survives_f32(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits <= 0xffff; bits++) {
    uint16_t h = (uint16_t)bits, back;
    float x = weft__f16_to_f32(h);
    back = weft__f32_to_f16(x);
    if (is_nan_half(h)) {
      assert_true(isnan(x) && is_nan_half(back) && (back & 0x8000) == (h & 0x8000));
      continue;
    }
    assert_int_equal(back, h);
    if ((h & 0x7fff) == 0x7c00)
      assert_true(isinf(x) && !signbit(x) == !(h & 0x8000));
    else
      assert_true((double)x == half_value(h) && !signbit(x) == !(h & 0x8000));
    if (has_hardware_half()) assert_int_equal(weft__f32_bits(hardware_from_half(h)), weft__f32_bits(x));
  }
}

static void check_rounding(float magnitude) {
  for (int i = 0; i < 2; i++) {
    float x = i ? -magnitude : magnitude;
    uint16_t got = weft__f32_to_f16(x), want = nearest_half(x);
    if (got != want) fail_msg("%a becomes the f16 %#x, not %#x", (double)x, (unsigned)got, (unsigned)want);
    if (has_hardware_half()) assert_int_equal(hardware_to_half(x), want);
  }
}

/* Each f16, the middle between it and the next (65520 after the last), and the f32 on both sides of the two. */
static void f32_is_rounded_to_the_nearest_half(void **state) {
  (void)state;
  for (int h = 0; h <= 0x7bff; h++) {
    float x = (float)half_value((uint16_t)h);
    float next = h < 0x7bff ? (float)half_value((uint16_t)(h + 1)) : 65536.0f, middle = (x + next) / 2;
    const float near[] = {x,      nextafterf(x, INFINITY),      nextafterf(middle, 0),
                          middle, nextafterf(middle, INFINITY), nextafterf(next, 0)};
    for (size_t i = 0; i < WEFT_COUNT(near); i++) check_rounding(near[i]);
  }
  static const float far[] = {0x1p-149f, 0x1p-126f, 0x1p-25f, 65519.99609375f, 65520, 65536, 1e30f, FLT_MAX, INFINITY};
  for (size_t i = 0; i < WEFT_COUNT(far); i++) check_rounding(far[i]);
}

/* Any bits at all, NaN among them. */
static void any_f32_is_rounded_right(void **state) {
  (void)state;
  for (uint64_t i = 0; i < 1 << 19; i++) {
    uint32_t draw[4];
    weft__philox(16, i, 0, draw);
    for (int k = 0; k < 4; k++) {
      float x = weft__f32_from_bits(draw[k]),
            in_range = weft__f32_from_bits(draw[k] % (0x48000000 - 0x32000000) + 0x32000000);
      if (isnan(x))
        assert_true(is_nan_half(weft__f32_to_f16(x)) && weft__f32_to_f16(x) >> 15 == draw[k] >> 31);
      else
        check_rounding(fabsf(x));
      check_rounding(in_range); /* 2^-27 to 2^17, where results are neither 0 nor infinite */
    }
  }
}

/* ---- bf16 ---- */

/* The upper 16 bits of an f32, and back. */
static void every_bf16_survives_f32(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits <= 0xffff; bits++) {
    float x = weft__bf16_to_f32((uint16_t)bits);
    assert_int_equal(weft__f32_bits(x), bits << 16);
    if (isnan(x))
      assert_true(isnan(weft__bf16_to_f32(weft__f32_to_bf16(x))));
    else
      assert_int_equal(weft__f32_to_bf16(x), bits);
  }
}

/* Between two neighbours the nearer one, in the middle the even one. */
static void f32_is_rounded_to_the_nearest_bf16(void **state) {
  (void)state;
  for (uint32_t h = 0; h < 0x7f80; h++) {
    uint32_t even = h % 2 ? h + 1 : h;
    const struct {
      uint32_t bits, want;
    } cases[] = {{h << 16 | 0x7fff, h},
                 {h << 16 | 0x8000, even},
                 {h << 16 | 0x8001, h + 1},
                 {h << 16 | 1, h},
                 {h << 16 | 0xffff, h + 1}};
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
      assert_int_equal(weft__f32_to_bf16(weft__f32_from_bits(cases[i].bits)), cases[i].want);
      assert_int_equal(weft__f32_to_bf16(weft__f32_from_bits(cases[i].bits | 1u << 31)), cases[i].want | 0x8000);
    }
  }
  assert_true(isnan(weft__bf16_to_f32(weft__f32_to_bf16(weft__f32_from_bits(0x7f800001)))));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_half_survives_f32),
      cmocka_unit_test(f32_is_rounded_to_the_nearest_half),
      cmocka_unit_test(any_f32_is_rounded_right),
      cmocka_unit_test(every_bf16_survives_f32),
      cmocka_unit_test(f32_is_rounded_to_the_nearest_bf16),
  };
  return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
