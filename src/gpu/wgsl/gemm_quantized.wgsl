// gemm_quantized: y = x W^T for many rows of x, both in blocks of 32 with a scale each: integer dot products of a block, then
// one float step.
//
// Shapes: as in matvec_quantized.wgsl; x [n][n_blocks][8] words of four signed bytes, x_scales [n][n_blocks] f32.
// A workgroup owns BM rows of x times BN rows of W, and walks BLOCKS blocks a step, as each step costs two barriers.  Pieces
// stand in workgroup memory row by row, a quad of padding a row, so that neighbours read over all banks; the next step's
// are on their way to registers while this one's are multiplied.  An invocation owns rows NY and NX apart; it keeps HELD
// rows of x in registers while its rows of W pass.
// Invariants: all invocations reach every barrier; rows beyond the last are read as the last one and not written; blocks
// beyond the last have scales of 0.

const BITS = 8u;
const BM = 64u;
const BN = 64u;
const NX = 8u;
const NY = 8u;
const HELD = 4u;
const BLOCKS = 2u;

const THREADS = NX * NY;
const IM = BM / NY;
const IN = BN / NX;
const OUTPUTS = IM * IN;
const GROUPS = IM / HELD;
const HELD_QUADS = HELD * 2u;
const QUADS = BLOCKS * 2u;  // of bytes, of a row of a piece
const STRIDE = QUADS + 1u;
const W_QUADS = BLOCKS * BITS / 4u; // of a row of W as stored
const A_QUADS = BM * STRIDE;
const B_QUADS = BN * STRIDE;
const A_SCALES = BM * BLOCKS;
const B_SCALES = BN * BLOCKS;
const LOADS_A = BM * QUADS;
const LOADS_B = BN * W_QUADS;
const QA = (LOADS_A + THREADS - 1u) / THREADS;
const QB = (LOADS_B + THREADS - 1u) / THREADS;
const SA = (A_SCALES + THREADS - 1u) / THREADS;
const SB = (B_SCALES + THREADS - 1u) / THREADS;

@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> x_scales: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> a: array<vec4<u32>, A_QUADS>;
var<workgroup> b: array<vec4<u32>, B_QUADS>;
var<workgroup> a_scale: array<f32, A_SCALES>;
var<workgroup> b_scale: array<f32, B_SCALES>;

fn signed_quad(quad: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(signed_nibbles(quad.x), signed_nibbles(quad.y), signed_nibbles(quad.z), signed_nibbles(quad.w));
}

// Quad i of a step's piece of W: bytes as they are, nibbles as two quads.
fn put_b(i: u32, quad: vec4<u32>) {
  if (BITS == 8u) {
    b[i / W_QUADS * STRIDE + i % W_QUADS] = quad;
  } else {
    b[i / W_QUADS * STRIDE + i % W_QUADS * 2u] = signed_quad(quad);
    b[i / W_QUADS * STRIDE + i % W_QUADS * 2u + 1u] = signed_quad(quad >> vec4<u32>(4u));
  }
}

fn dot16(l: vec4<u32>, r: vec4<u32>, sum: i32) -> i32 {
  return dot4(l.w, r.w, dot4(l.z, r.z, dot4(l.y, r.y, dot4(l.x, r.x, sum))));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let tx = t % NX;
  let ty = t / NX;
  let row0 = group.y * BM;
  let col0 = group.x * BN;
  let pairs = (p.n_blocks + 1u) / 2u;
  var next_a: array<vec4<u32>, QA>;
  var next_b: array<vec4<u32>, QB>;
  var next_sa: array<f32, SA>;
  var next_sb: array<f32, SB>;
  var acc: array<f32, OUTPUTS>;
  for (var step = 0u; step < p.n_blocks + BLOCKS; step += BLOCKS) {
    // The blocks from `step` on are fetched, those before it multiplied.
    if (step > 0u) {
      workgroupBarrier(); // the pieces were read
      // @unroll
      for (var i = 0u; i < QA; i++) {
        let e = t + i * THREADS;
        if (e < LOADS_A) {
          a[e / QUADS * STRIDE + e % QUADS] = next_a[i];
        }
      }
      // @unroll
      for (var i = 0u; i < QB; i++) {
        if (t + i * THREADS < LOADS_B) {
          put_b(t + i * THREADS, next_b[i]);
        }
      }
      // @unroll
      for (var i = 0u; i < SA; i++) {
        if (t + i * THREADS < A_SCALES) {
          a_scale[t + i * THREADS] = next_sa[i];
        }
      }
      // @unroll
      for (var i = 0u; i < SB; i++) {
        if (t + i * THREADS < B_SCALES) {
          b_scale[t + i * THREADS] = next_sb[i];
        }
      }
      workgroupBarrier();
    }
    if (step < p.n_blocks) {
      // @unroll
      for (var i = 0u; i < QA; i++) {
        let e = min(t + i * THREADS, LOADS_A - 1u);
        let quad = min(step * 2u + e % QUADS, p.n_blocks * 2u - 1u);
        next_a[i] = x[min(row0 + e / QUADS, p.n - 1u) * p.n_blocks * 2u + quad];
      }
      // @unroll
      for (var i = 0u; i < QB; i++) {
        let e = min(t + i * THREADS, LOADS_B - 1u);
        let n_quads = p.n_blocks * (BITS / 4u);
        let quad = min(step * (BITS / 4u) + e % W_QUADS, n_quads - 1u);
        next_b[i] = w[p.q_offset / 4u + min(col0 + e / W_QUADS, p.m - 1u) * n_quads + quad];
      }
      // @unroll
      for (var i = 0u; i < SA; i++) {
        let e = min(t + i * THREADS, A_SCALES - 1u);
        let block = step + e % BLOCKS;
        let d = x_scales[min(row0 + e / BLOCKS, p.n - 1u) * p.n_blocks + min(block, p.n_blocks - 1u)];
        next_sa[i] = select(0.0, d, block < p.n_blocks);
      }
      // @unroll
      for (var i = 0u; i < SB; i++) {
        let e = min(t + i * THREADS, B_SCALES - 1u);
        let block = step + e % BLOCKS;
        let pair = scales[p.s_offset + min(col0 + e / BLOCKS, p.m - 1u) * pairs + min(block / 2u, pairs - 1u)];
        next_sb[i] = select(0.0, unpack2x16float(pair)[block % 2u], block < p.n_blocks);
      }
    }
    if (step > 0u) {
      for (var k = 0u; k < BLOCKS; k++) {
        // @unroll
        for (var g = 0u; g < GROUPS; g++) {
          var left: array<vec4<u32>, HELD_QUADS>;
          var d_a: array<f32, HELD>;
          // @unroll
          for (var i = 0u; i < HELD; i++) {
            let row = (g * HELD + i) * NY + ty;
            left[i * 2u] = a[row * STRIDE + k * 2u];
            left[i * 2u + 1u] = a[row * STRIDE + k * 2u + 1u];
            d_a[i] = a_scale[row * BLOCKS + k];
          }
          // @unroll
          for (var j = 0u; j < IN; j++) {
            let row = j * NX + tx;
            let right0 = b[row * STRIDE + k * 2u];
            let right1 = b[row * STRIDE + k * 2u + 1u];
            let d_b = b_scale[row * BLOCKS + k];
            // A sum of 32 products is below 2^22: counted from the bits of 1.5 * 2^23 on, it is that number plus the sum.
            // @unroll
            for (var i = 0u; i < HELD; i++) {
              let o = (g * HELD + i) * IN + j;
              let sum = dot16(left[i * 2u + 1u], right1, dot16(left[i * 2u], right0, 0x4b400000));
              acc[o] = fma(bitcast<f32>(sum) - 12582912.0, d_a[i] * d_b, acc[o]);
            }
          }
        }
      }
    }
  }
  // @unroll
  for (var i = 0u; i < IM; i++) {
    let row = row0 + i * NY + ty;
    // @unroll
    for (var j = 0u; j < IN; j++) {
      let column = col0 + j * NX + tx;
      if (row < p.n && column < p.m) {
        y[p.y_offset + row * p.y_stride + column] = acc[i * IN + j];
      }
    }
  }
}
