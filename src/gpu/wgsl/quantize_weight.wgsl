// quantize_weight: rows of f32 to blocks of 32 with an f16 scale each, of 8 bits (q8_0) or 4 (q4_0): the CPU's bits.
//
// Shapes: a [n_rows,n]; quants, scales as in matvec_quantized.wgsl.  A row's last block is filled up with zeros.
// An invocation owns two blocks of a row, whose scales share a word.  Built-in divisions may be off by a few ulp, so what
// they give is put right by products and differences that are exact.
// Invariants: the grid's surplus writes nothing; a row with a block that no finite scale holds is noted as a fault.

const BITS = 8u;
const WORDS = BITS; // of a block

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> quants: array<u32>;
@group(0) @binding(2) var<storage, read_write> scales: array<u32>;

// x / 127, rounded to the nearest: the rest of x by a quotient of few bits at a time is exact.
fn div127(x: f32) -> f32 {
  let quotient = x / 127.0;
  let high = bitcast<f32>(bitcast<u32>(quotient) & 0xfffff000u);
  let rest = x - high * 127.0 - (quotient - high) * 127.0;
  return quotient + rest / 127.0;
}

// An f16's value, which the built-in function may take for 0 if it is subnormal.
fn f16_value(bits: u32) -> f32 {
  let tiny = f32(bits & 0x7fffu) * 5.9604645e-8;
  return select(unpack2x16float(bits).x, select(tiny, -tiny, bits > 0x7fffu), (bits & 0x7c00u) == 0u);
}

// x / d as f32 rounds it, to the nearest integer, ties to even.  d has 11 bits, so that its products with integers and
// with the numbers halfway between them are exact, and so are differences from x that are near 0.
fn nearest_code(x: f32, d: f32) -> f32 {
  let size = abs(x);
  let step = abs(d);
  var low = floor(size / step);
  low -= select(0.0, 1.0, low * step > size);
  low += select(0.0, 1.0, (low + 1.0) * step <= size);
  let middle = low + 0.5;
  let above = size - middle * step;
  let half_ulp = bitcast<f32>(bitcast<u32>(middle) & 0x7f800000u) * 5.9604645e-8;
  let is_odd = low - 2.0 * floor(low * 0.5) > 0.5;
  let is_up = select(above > 0.0, is_odd, abs(above) <= step * half_ulp);
  let code = low + select(0.0, 1.0, is_up);
  return select(code, -code, (x < 0.0) != (d < 0.0));
}

fn element(row: u32, column: u32) -> f32 {
  if (column < p.n) {
    return a[p.a_offset + row * p.n + column];
  }
  return 0.0;
}

// Writes a block's quants; gives its scale as f16.
fn put_block(row: u32, block: u32) -> u32 {
  var extreme = 0.0; // the first of the largest magnitude; infinities and NaN exceed numbers
  for (var i = 0u; i < 32u; i++) {
    let x = element(row, block * 32u + i);
    if ((bitcast<u32>(x) & 0x7fffffffu) > (bitcast<u32>(extreme) & 0x7fffffffu)) {
      extreme = x;
    }
  }
  let exact_d = select(extreme * -0.125, div127(abs(extreme)), BITS == 8u);
  let half = f16_of(bitcast<u32>(exact_d));
  let d = f16_value(half);
  if ((half & 0x7c00u) == 0x7c00u) {
    note_fault(p.op, FAULT_NO_SCALE, vec4<u32>(p.first_row + row, 0u, 0u, 0u));
  }
  for (var i = 0u; i < WORDS; i++) {
    var word = 0u;
    for (var e = 0u; e < 32u / BITS; e++) {
      // Of four bits the upper halves are 16 columns on.
      let column = select(i * 4u + e % 4u + e / 4u * 16u, i * 4u + e, BITS == 8u);
      let x = element(row, block * 32u + column);
      let code = select(nearest_code(x, d), 0.0, (half & 0x7fffu) == 0u);
      if (BITS == 8u) {
        word |= (bitcast<u32>(i32(clamp(code, -127.0, 127.0))) & 255u) << (e * 8u);
      } else {
        word |= u32(clamp(code, -8.0, 7.0) + 8.0) << (e % 4u * 8u + e / 4u * 4u);
      }
    }
    quants[p.q_offset + (row * p.n_blocks + block) * WORDS + i] = word;
  }
  return half;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let pairs = (p.n_blocks + 1u) / 2u;
  let i = (group.x + group.y * groups.x) * 256u + t;
  let row = i / pairs;
  let block = i % pairs * 2u;
  if (row < p.n_rows) {
    var pair = put_block(row, block);
    if (block + 1u < p.n_blocks) {
      pair |= put_block(row, block + 1u) << 16u;
    }
    scales[p.s_offset + i] = pair;
  }
}
