// rope_table: cosines and sines of position * frequency / factor, times a magnitude.
//
// Shapes: positions [N] i32; frequencies [R/2], in turns (radians / 2 pi) a position: x and y are the upper and lower 24
// bits of a mantissa, z is 1 for a negative one, w the exponent that belongs to its last bit; factors [R/2] f32; y
// [N,2,R/2].  This dispatch writes the rows first .. first + n / (R/2) of y.
//
// A turn is 2^64 of a two-word fraction, so that a product with a position is reduced by dropping what lies above: it is
// right to position * 2^-64 of a turn, where an f32 angle is off by 5e-4 at position 8192.  All of it is integers, which no
// compiler fuses or reorders.

@group(0) @binding(0) var<storage, read> positions: array<i32>;
@group(0) @binding(1) var<storage, read> frequencies: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> factors: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

// (upper, lower) word * 2^shift, bits beyond either end dropped.
fn shifted(x: vec2<u32>, shift: i32) -> vec2<u32> {
  let n = u32(abs(shift));
  if (n >= 64u) {
    return vec2<u32>(0u);
  }
  if (n == 0u) {
    return x;
  }
  if (shift > 0) {
    if (n >= 32u) {
      return vec2<u32>(x.y << (n - 32u), 0u);
    }
    return vec2<u32>((x.x << n) | (x.y >> (32u - n)), x.y << n);
  }
  if (n >= 32u) {
    return vec2<u32>(0u, x.x >> (n - 32u));
  }
  return vec2<u32>(x.x >> n, (x.y >> n) | (x.x << (32u - n)));
}

// The 48 bits in x and y, with 32 zeros behind them, over a divisor of 24 bits: a byte at a time, as on paper.
fn quotient(x: u32, y: u32, divisor: u32) -> vec2<u32> {
  var result = vec2<u32>(0u);
  var rest = 0u;
  for (var i = 0u; i < 10u; i++) {
    let digits = select(y, x, i < 3u);
    let digit = select((digits >> (16u - i % 3u * 8u)) & 255u, 0u, i >= 6u);
    rest = rest * 256u + digit;
    result = vec2<u32>((result.x << 8u) | (result.y >> 24u), (result.y << 8u) | rest / divisor);
    rest %= divisor;
  }
  return result;
}

// Turns a position, as a fraction, of a frequency over a factor that is finite and not 0.
fn turns_of(frequency: vec4<u32>, factor: u32) -> vec2<u32> {
  let exponent = i32((factor >> 23u) & 255u) - 150;
  let ratio = quotient(frequency.x, frequency.y, (factor & 0x7fffffu) | 0x800000u);
  return shifted(ratio, bitcast<i32>(frequency.w) - exponent - 32 + 64);
}

fn entry(position: i32, frequency: vec4<u32>, factor: u32) -> vec2<f32> {
  let rest = factor & 0x7fffffffu;
  if (rest < 0x00800000u || rest > 0x7f800000u) { // an infinite frequency, or none
    return vec2<f32>(bitcast<f32>(0x7fc00000u | p.zero));
  }
  let turns = turns_of(frequency, rest);
  let n = u32(abs(position));
  var turn = wide_product(n, turns.y).y + n * turns.x;
  if ((position < 0) != ((frequency.z == 1u) != (factor > 0x7fffffffu))) {
    turn = 0u - turn;
  }
  return circle(select(turn, 0u, rest == 0x7f800000u)) * p.magnitude;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    let row = i / p.n_pairs;
    let pair = i % p.n_pairs;
    let at = p.y_offset + row * 2u * p.n_pairs + pair;
    let value = entry(positions[p.positions_offset + row], frequencies[pair], factors[p.factors_offset + pair]);
    y[at] = value.x;
    y[at + p.n_pairs] = value.y;
  }
}
