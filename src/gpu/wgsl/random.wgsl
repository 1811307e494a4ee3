// random: fill_uniform and fill_normal (NORMAL): draws by element, as weft/ops.h says, four elements an invocation.
//
// Shapes: p.n elements of Y_DTYPE from p.y_offset on, the first of them the first of a block: that of p.block_low and
// p.block_high.  A draw is scaled by p.scale and added to p.shift.
// Invariants: an invocation owns whole words.  Halves that begin in the middle of a word (ODD) are taken one earlier, so
// that an invocation's four elements come from two blocks.  The grid's surplus does nothing.

const Y_DTYPE = 0u;
const NORMAL = false;
const ODD = false;

@group(0) @binding(0) var<storage, read_write> y: array<u32>;

// ln x for x of (0, 1] that are multiples of 2^-24, within 2 ulp: the built-in one may lose all places near 1.
// x = 2^e m with m around 1, ln m = 2 atanh((m - 1) / (m + 1)).
fn log_of(x: f32) -> f32 {
  let bits = bitcast<u32>(x) - 0x3f3504f3u; // less the bits of sqrt(1/2)
  let e = f32(bitcast<i32>(bits) >> 23u);
  let f = bitcast<f32>((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0;
  let s = f / (2.0 + f);
  let z = s * s;
  let rest = fma(fma(fma(0.22222222, z, 0.2857143), z, 0.4), z, 0.6666667) * z;
  return fma(e, 0.6931472, fma(s, rest, 2.0 * s));
}

// Elements 4b .. 4b + 3.
fn draw(b: u32) -> vec4<f32> {
  let words = philox_block(vec2<u32>(p.seed_low, p.seed_high), vec2<u32>(p.stream_low, p.stream_high),
                           vec2<u32>(p.block_low, p.block_high), b);
  if (NORMAL) {
    let r = vec2<f32>(sqrt(-2.0 * log_of(unit_of(words.x) + 5.9604644775390625e-8)),
                      sqrt(-2.0 * log_of(unit_of(words.z) + 5.9604644775390625e-8)));
    let z = vec4<f32>(r.x * circle(words.y & 0xffffff00u), r.y * circle(words.w & 0xffffff00u));
    return fma(z, vec4<f32>(p.scale), vec4<f32>(p.shift));
  }
  let u = vec4<f32>(unit_of(words.x), unit_of(words.y), unit_of(words.z), unit_of(words.w));
  // The product is rounded before it is added to, on every device: what lies between keeps the two from being fused.
  let product = bitcast<vec4<f32>>(bitcast<vec4<u32>>(u * p.scale) ^ vec4<u32>(p.zero));
  let drawn = p.shift + product;
  return select(max(drawn, vec4<f32>(p.last)), min(drawn, vec4<f32>(p.last)), p.scale > 0.0);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  let start = select(0u, 1u, ODD); // elements are counted from the start of the first one's word
  let end = start + p.n;
  if (i * 4u < end) {
    var x = draw(i);
    if (ODD) {
      x = vec4<f32>(draw(i - 1u).w, x.xyz);
    }
    let bits = vec4<u32>(stored_as(x.x, Y_DTYPE), stored_as(x.y, Y_DTYPE), stored_as(x.z, Y_DTYPE), stored_as(x.w, Y_DTYPE));
    if (is_half(Y_DTYPE)) {
      let words = (bits.xz & vec2<u32>(0xffffu)) | (bits.yw << vec2<u32>(16u));
      // @unroll
      for (var k = 0u; k < 2u; k++) {
        let e = i * 4u + k * 2u;
        let word = p.y_offset / 2u + i * 2u + k;
        if (e >= start && e + 1u < end) {
          y[word] = words[k];
        } else if (e + 1u >= start && e < end) {
          let mask = select(0x0000ffffu, 0xffff0000u, e < start); // the half that is an element
          y[word] = (words[k] & mask) | (y[word] & ~mask);
        }
      }
    } else {
      // @unroll
      for (var k = 0u; k < 4u; k++) {
        if (i * 4u + k < end) {
          y[p.y_offset + i * 4u + k] = bits[k];
        }
      }
    }
  }
}
