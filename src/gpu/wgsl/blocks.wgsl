// blocks: elements of quantised tensors as files store them (weft/dtype.def), out of the words of the binding `blocks`;
// part of each shader that reads them.
//
// A block begins at byte `at`, i is the element's place in it.  Products with scales are rounded first, then that with the
// value, then the sum, unless the compiler fuses the last two.

const Q8_0 = 4u;
const Q4_0 = 5u;
const Q4_1 = 6u;
const Q5_0 = 7u;
const Q5_1 = 8u;
const Q2_K = 9u;
const Q3_K = 10u;
const Q4_K = 11u;
const Q5_K = 12u;
const Q6_K = 13u;
const IQ4_NL = 14u;
const IQ4_XS = 15u;
const MXFP4 = 16u;

fn byte_at(at: u32) -> u32 {
  return (blocks[at / 4u] >> (at % 4u * 8u)) & 255u;
}

fn signed_byte(byte: u32) -> f32 {
  return f32(bitcast<i32>(byte << 24u) >> 24u);
}

// An f16 at an even byte.
fn half_at(at: u32) -> f32 {
  return unpack2x16float(blocks[at / 4u])[at / 2u % 2u];
}

// Code i of 4 bits: n bytes hold n codes in their lower halves and the n codes after these in their upper halves.
fn nibble_at(at: u32, n: u32, i: u32) -> u32 {
  return (byte_at(at + i / (2u * n) * n + i % n) >> (i / n % 2u * 4u)) & 15u;
}

// Two bits of code i of 256: byte j of the 32 of a part of 128 codes holds those of the codes j, 32+j, 64+j and 96+j.
fn pair_at(at: u32, i: u32) -> u32 {
  return (byte_at(at + i / 128u * 32u + i % 32u) >> (i % 128u / 32u * 2u)) & 3u;
}

// A bit of code i of 256: byte j of 32 holds those of the codes j, 32+j, ...
fn bit_at(at: u32, i: u32) -> u32 {
  return (byte_at(at + i % 32u) >> (i / 32u)) & 1u;
}

// The fifth bit of code i of 32, from 32 bits.
fn fifth_bit_at(at: u32, i: u32) -> u32 {
  return (byte_at(at + i / 8u) >> (i % 8u)) & 1u;
}

// What a code of the iq4 formats stands for, from a table of 16 bytes.
fn iq4_value(code: u32) -> f32 {
  let table = vec4<u32>(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
  return signed_byte(table[code / 4u] >> (code % 4u * 8u));
}

// An e2m1 float, doubled: a sign over 0, 1, 2, 3, 4, 6, 8 or 12.
fn fp4_value(code: u32) -> f32 {
  let table = vec2<u32>(0x03020100u, 0x0c080604u);
  let magnitude = f32((table[code / 4u % 2u] >> (code % 4u * 8u)) & 255u);
  return select(magnitude, -magnitude, code >= 8u);
}

// Scale and minimum k of eight of each, 6 bits in 12 bytes (q4_k, q5_k).
fn six_bits_at(at: u32, k: u32) -> vec2<f32> {
  if (k < 4u) {
    return vec2<f32>(f32(byte_at(at + k) & 63u), f32(byte_at(at + 4u + k) & 63u));
  }
  let low = byte_at(at + 4u + k);
  return vec2<f32>(f32((low & 15u) | (byte_at(at + k - 4u) >> 6u << 4u)), f32((low >> 4u) | (byte_at(at + k) >> 6u << 4u)));
}

// Scale k of 16, 6 bits moved up by 32 (q3_k).
fn q3_k_scale(at: u32, k: u32) -> f32 {
  let low = (byte_at(at + k % 8u) >> (k / 8u * 4u)) & 15u;
  let high = (byte_at(at + 8u + k % 4u) >> (k / 4u * 2u)) & 3u;
  return f32(low | (high << 4u)) - 32.0;
}

// Scale k of 8, 6 bits moved up by 32 (iq4_xs).
fn iq4_xs_scale(at: u32, k: u32) -> f32 {
  let low = (byte_at(at + 4u + k / 2u) >> (k % 2u * 4u)) & 15u;
  let high = (byte_at(at + 2u + k / 4u) >> (k % 4u * 2u)) & 3u;
  return f32(low | (high << 4u)) - 32.0;
}

// 2^(e - 128); the least two are subnormal.
fn e8m0_half(e: u32) -> f32 {
  return bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << (e % 2u), e < 2u));
}

fn super_block_value(dtype: u32, at: u32, i: u32) -> f32 {
  if (dtype == Q2_K) {
    let scale = byte_at(at + i / 16u);
    let x = half_at(at + 80u) * f32(scale & 15u) * f32(pair_at(at + 16u, i));
    return x - half_at(at + 82u) * f32(scale >> 4u);
  }
  if (dtype == Q3_K) {
    let code = pair_at(at + 32u, i) | (bit_at(at, i) << 2u);
    return half_at(at + 108u) * q3_k_scale(at + 96u, i / 16u) * (f32(code) - 4.0);
  }
  if (dtype == Q6_K) {
    let code = nibble_at(at, 64u, i) | (pair_at(at + 128u, i) << 4u);
    return half_at(at + 208u) * signed_byte(byte_at(at + 192u + i / 16u)) * (f32(code) - 32.0);
  }
  if (dtype == IQ4_XS) {
    return half_at(at) * iq4_xs_scale(at, i / 32u) * iq4_value(nibble_at(at + 8u, 16u, i));
  }
  let scales = six_bits_at(at + 4u, i / 32u);
  var code = nibble_at(at + 16u, 32u, i);
  if (dtype == Q5_K) {
    code = nibble_at(at + 48u, 32u, i) | (bit_at(at + 16u, i) << 4u);
  }
  return half_at(at) * scales.x * f32(code) - half_at(at + 2u) * scales.y;
}

fn block_value(dtype: u32, at: u32, i: u32) -> f32 {
  if (dtype == Q8_0) {
    return half_at(at) * signed_byte(byte_at(at + 2u + i));
  }
  if (dtype == Q4_0) {
    return half_at(at) * (f32(nibble_at(at + 2u, 16u, i)) - 8.0);
  }
  if (dtype == Q4_1) {
    return half_at(at) * f32(nibble_at(at + 4u, 16u, i)) + half_at(at + 2u);
  }
  if (dtype == Q5_0) {
    let code = nibble_at(at + 6u, 16u, i) | (fifth_bit_at(at + 2u, i) << 4u);
    return half_at(at) * (f32(code) - 16.0);
  }
  if (dtype == Q5_1) {
    let code = nibble_at(at + 8u, 16u, i) | (fifth_bit_at(at + 4u, i) << 4u);
    return half_at(at) * f32(code) + half_at(at + 2u);
  }
  if (dtype == IQ4_NL) {
    return half_at(at) * iq4_value(nibble_at(at + 2u, 16u, i));
  }
  if (dtype == MXFP4) {
    return e8m0_half(byte_at(at)) * fp4_value(nibble_at(at + 1u, 16u, i));
  }
  return super_block_value(dtype, at, i);
}
