// common: functions that every shader may call; its text is part of each.

// e^x within 2 ulp, where the built-in exp may lose 2|x| + 3: 2^n * p(r) with r = x - n ln 2 in two steps, |r| <= ln2/2.
// Below -104 it is 0, above 89 infinite; NaN stays NaN.
fn exp4(x: vec4<f32>) -> vec4<f32> {
  let z = clamp(x, vec4<f32>(-104.0), vec4<f32>(89.0));
  let n = round(z * 1.44269504);
  let r = fma(n, vec4<f32>(-1.42860677e-6), fma(n, vec4<f32>(-0.693145752), z));
  var p = vec4<f32>(0.0013888889);
  p = fma(p, r, vec4<f32>(0.008333334));
  p = fma(p, r, vec4<f32>(0.041666668));
  p = fma(p, r, vec4<f32>(0.16666667));
  p = fma(p, r, vec4<f32>(0.5));
  p = fma(p, r, vec4<f32>(1.0));
  p = fma(p, r, vec4<f32>(1.0));
  // 2^n in two factors, as n alone may be beyond the exponents that there are.
  let half = vec4<i32>(n) / 2;
  let low = bitcast<vec4<f32>>((half + 127) << vec4<u32>(23u));
  let high = bitcast<vec4<f32>>((vec4<i32>(n) - half + 127) << vec4<u32>(23u));
  // Told by its bits: a compiler may take it that no number differs from itself.
  let is_nan = (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
  return select(p * low * high, x, is_nan);
}

fn exp1(x: f32) -> f32 {
  return exp4(vec4<f32>(x)).x;
}

// Squares may leave f32's range, or be lost below it: they are taken of x * 2^-80, of x and of x * 2^80.  The two powers,
// `scales`, come as parameters, since compilers may multiply constants with each other first.
fn scaled_squares(x: f32, scales: vec2<f32>) -> vec3<f32> {
  let scaled = vec3<f32>(x * scales.x, x, x * scales.y);
  return scaled * scaled;
}

fn scaled_squares4(x: vec4<f32>, scales: vec2<f32>) -> vec3<f32> {
  let low = x * scales.x;
  let high = x * scales.y;
  return vec3<f32>(dot(low, low), dot(x, x), dot(high, high));
}

// 1 / sqrt(mean square - mean^2 + eps) from the sums of n scaled squares, as two factors: the first brings numbers near
// f32's ends to where the second neither loses them nor makes them infinite.  NaN stays NaN: it is not below 0.
fn norm_factor(squares: vec3<f32>, n: u32, mean: f32, eps: f32, scales: vec2<f32>) -> vec2<f32> {
  let means = vec3<f32>(mean * scales.x, mean, mean * scales.y);
  let exact = squares / f32(n) - means * means;
  let variance = select(exact, vec3<f32>(0.0), exact < vec3<f32>(0.0));
  if (squares.y > 3.4028234e38) {
    return vec2<f32>(scales.x, inverseSqrt(variance.x + eps * scales.x * scales.x));
  }
  if (variance.y + eps < 1e-30) {
    return vec2<f32>(scales.y, inverseSqrt(variance.z + eps * scales.y * scales.y));
  }
  return vec2<f32>(1.0, inverseSqrt(variance.y + eps));
}

// The low nibble of each byte, less 8, as a signed byte.
fn signed_nibbles(word: u32) -> u32 {
  return ((word & 0x0f0f0f0fu | 0x80808080u) - 0x08080808u) ^ 0x80808080u;
}

// ---- elements of any dtype, in arrays of words; dtypes are numbered as weft_dtype ----

const F32 = 0u;
const F16 = 1u;
const BF16 = 2u;
const I32 = 3u;

// The word that holds element `index`.
fn word_at(dtype: u32, index: u32) -> u32 {
  return select(index, index / 2u, dtype == F16 || dtype == BF16);
}

// Element `index`, an f32, f16 or bf16, out of its word.
fn real_in(word: u32, dtype: u32, index: u32) -> f32 {
  if (dtype == F16) {
    return unpack2x16float(word)[index % 2u];
  }
  if (dtype == BF16) {
    return bitcast<f32>(select(word << 16u, word & 0xffff0000u, index % 2u == 1u));
  }
  return bitcast<f32>(word);
}

// ---- the order of real numbers, as unsigned numbers: a larger key is a larger number, NaN is above all ----

fn order_key(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let key = bits ^ select(0x80000000u, 0xffffffffu, bits >= 0x80000000u);
  return select(key, 0xffffffffu, (bits & 0x7fffffffu) > 0x7f800000u);
}

// The same where zeros of both signs are equal: the order of argmax and top_k.  No key is 0.
fn rank_key(x: f32) -> u32 {
  let key = order_key(x);
  return select(key, 0x80000000u, key == 0x7fffffffu);
}

// The key of -x; that of NaN is its own.
fn turned_key(key: u32) -> u32 {
  return select(~key, key, key == 0xffffffffu);
}

// The bits of a key's number.
fn key_bits(key: u32) -> u32 {
  return select(~key, key ^ 0x80000000u, key >= 0x80000000u);
}
