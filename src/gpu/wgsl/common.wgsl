// common: functions that every shader may call; its text is part of each.

// e^x within 2 ulp, where the built-in exp may lose 2|x| + 3: 2^n * p(r) with r = x - n ln 2 in two steps, |r| <= ln2/2.
// Below -104 it is 0, above 89 infinite; NaN stays NaN.
fn exp4(x: vec4<f32>) -> vec4<f32> {
  let z = clamp(x, vec4<f32>(-104.0), vec4<f32>(89.0));
  let n = round(z * 1.44269504);
  // Both products are exact; the maximum, which changes nothing, keeps compilers from making one of the two.
  let r = fma(n, vec4<f32>(-1.42860677e-6), max(fma(n, vec4<f32>(-0.693145752), z), vec4<f32>(-1.0)));
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

// Told by their bits: compilers may take it that there are neither NaN nor infinities.
fn f32_is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn f32_is_infinite(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

// 1 / sqrt(mean square - mean^2 + eps) from the sums of n scaled squares, as two factors: the first brings numbers near
// f32's ends to where the second neither loses them nor makes them infinite.  NaN stays NaN, which max would drop.  eps
// comes scaled as the squares are: a compiler may multiply the scale by itself first, which is infinite.
fn norm_factor(squares: vec3<f32>, n: u32, mean: f32, eps: vec3<f32>, scales: vec2<f32>) -> vec2<f32> {
  if (f32_is_nan(squares.y)) {
    return vec2<f32>(1.0, squares.y);
  }
  var scale = 1.0;
  var square = squares.y;
  var added = eps.y;
  if (f32_is_infinite(squares.y)) {
    scale = scales.x;
    square = squares.x;
    added = eps.x;
  } else if (max(squares.y / f32(n) - mean * mean, 0.0) + eps.y < 1e-30) {
    scale = scales.y;
    square = squares.z;
    added = eps.z;
  }
  let scaled_mean = mean * scale;
  return vec2<f32>(scale, inverseSqrt(max(square / f32(n) - scaled_mean * scaled_mean, 0.0) + added));
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

// Is an element of this dtype half a word?
fn is_half(dtype: u32) -> bool {
  return dtype == F16 || dtype == BF16;
}

// Element `index` of any dtype as it is stored, out of its word.
fn stored_in(word: u32, dtype: u32, index: u32) -> u32 {
  return select(word, (word >> (16u * (index % 2u))) & 0xffffu, is_half(dtype));
}

// Element `index` of any dtype, an i32 too, as a real number.
fn number_in(word: u32, dtype: u32, index: u32) -> f32 {
  if (dtype == I32) {
    return f32(bitcast<i32>(word));
  }
  return real_in(word, dtype, index);
}

// f32's bits to the nearest f16, ties to even.  The built-in packing leaves rounding and overflow to the device.
fn f16_of(x: u32) -> u32 {
  let rest = x & 0x7fffffffu;
  let normal = ((rest + 0x0fffu + ((rest >> 13u) & 1u)) >> 13u) - (112u << 10u);
  // Below 2^-14, adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded.
  let tiny = bitcast<u32>(bitcast<f32>(rest) + 0.5) - 0x3f000000u;
  let finite = select(normal, tiny, rest < 0x38800000u);
  let infinite = select(finite, 0x7c00u, rest >= 0x477ff000u); // 65520 and above
  return ((x >> 16u) & 0x8000u) | select(infinite, 0x7e00u, rest > 0x7f800000u);
}

// A real number as an element of any dtype is stored: to the nearest, ties to even; to i32 without its fraction, the
// nearest i32 if it lies outside, 0 if it is NaN.
fn stored_as(x: f32, dtype: u32) -> u32 {
  let bits = bitcast<u32>(x);
  let is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  if (dtype == F16) {
    return f16_of(bits);
  }
  if (dtype == BF16) {
    return select((bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u, (bits >> 16u) | 0x40u, is_nan);
  }
  if (dtype == I32) {
    let fits = (bits & 0x7fffffffu) < 0x4f000000u; // |x| < 2^31
    let outside = select(0x7fffffffu, 0x80000000u, bits > 0x7fffffffu);
    return select(select(outside, bitcast<u32>(i32(select(0.0, x, fits))), fits), 0u, is_nan);
  }
  return bits;
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

// ---- angles ----

// cos and sin of a fraction of a turn, in units of 2^-32: to the nearest quarter, which is exact, and on from there.
fn circle(turn: u32) -> vec2<f32> {
  let quarter = (turn + 0x20000000u) >> 30u;
  let x = f32(bitcast<i32>(turn - (quarter << 30u))) * 1.4629180792671596e-9; // 2 pi / 2^32
  let z = x * x;
  let c = fma(fma(fma(fma(2.4801587e-5, z, -0.0013888889), z, 0.041666668), z, -0.5), z, 1.0);
  let s = fma(fma(fma(fma(2.7557319e-6, z, -1.9841270e-4), z, 0.008333334), z, -0.16666667) * z, x, x);
  let turned = select(vec2<f32>(c, s), vec2<f32>(-s, c), (quarter & 1u) == 1u);
  return select(turned, -turned, (quarter & 2u) == 2u);
}

// ---- random words ----

// The 64-bit product of two words: low word, high word.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
  return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u));
}

// Philox4x32-10 (Salmon et al. 2011) of a 128-bit counter under a 64-bit key: what base/rng.c draws.
fn philox(seed: vec2<u32>, counter: vec4<u32>) -> vec4<u32> {
  var key = seed;
  var x = counter;
  for (var round = 0; round < 10; round++) {
    let p0 = wide_product(0xD2511F53u, x.x);
    let p1 = wide_product(0xCD9E8D57u, x.z);
    x = vec4<u32>(p1.y ^ x.y ^ key.x, p1.x, p0.y ^ x.w ^ key.y, p0.x);
    key += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
  }
  return x;
}

// The words of block `first` + i, the counter's lower half, under a seed and a stream of two words each.
fn philox_block(seed: vec2<u32>, stream: vec2<u32>, first: vec2<u32>, i: u32) -> vec4<u32> {
  let low = first.x + i;
  return philox(seed, vec4<u32>(low, first.y + select(0u, 1u, low < i), stream));
}

// 24 bits of a word: multiples of 2^-24 from 0 on.
fn unit_of(word: u32) -> f32 {
  return f32(word >> 8u) * 5.9604644775390625e-8;
}
