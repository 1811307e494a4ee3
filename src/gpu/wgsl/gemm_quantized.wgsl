// gemm_quantized: y = x W^T for many rows of x, both in blocks of 32 with a scale each: integer dot products of a block, then
// one float step.
//
// Shapes: as in matvec_quantized.wgsl; x [n][n_blocks][8] words.
// A workgroup owns BM rows of x times BN rows of W, and walks the blocks; both pieces of a block stand in workgroup memory
// with their words outermost, so that an invocation reads quads of rows; the next block is on its way to registers while
// this one is multiplied.  An invocation owns quads of rows that lie NY and NX quads apart.
// Invariants: all invocations reach every barrier; rows beyond the last are read as the last one and not written.

const BITS = 8u;
const BM = 128u;
const BN = 128u;
const NX = 16u;
const NY = 16u;

const THREADS = NX * NY;
const IM = BM / (4u * NY);
const IN = BN / (4u * NX);
const SA = BM / 4u + 1u; // one more spreads transposing stores over the banks
const SB = BN / 4u + 1u;
const WORDS_A = 8u * SA;
const WORDS_B = 8u * SB;
const QUADS_A = BM * 2u; // of a block of BM rows of x
const QUADS_B = BN * BITS / 4u;
const QA = (QUADS_A + THREADS - 1u) / THREADS;
const QB = (QUADS_B + THREADS - 1u) / THREADS;
const A_SCALES = BM / 4u;
const B_SCALES = BN / 4u;
const OUTPUTS = IM * 4u * IN; // quads of y

@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> x_scales: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> a: array<vec4<u32>, WORDS_A>;
var<workgroup> b: array<vec4<u32>, WORDS_B>;
var<workgroup> a_scale: array<vec4<f32>, A_SCALES>;
var<workgroup> b_scale: array<vec4<f32>, B_SCALES>;

// Word by word into a column of a piece.
fn put_a(row: u32, word: u32, quad: vec4<u32>) {
  a[word * SA + row / 4u][row % 4u] = quad.x;
  a[(word + 1u) * SA + row / 4u][row % 4u] = quad.y;
  a[(word + 2u) * SA + row / 4u][row % 4u] = quad.z;
  a[(word + 3u) * SA + row / 4u][row % 4u] = quad.w;
}

fn put_b(row: u32, word: u32, quad: vec4<u32>) {
  b[word * SB + row / 4u][row % 4u] = quad.x;
  b[(word + 1u) * SB + row / 4u][row % 4u] = quad.y;
  b[(word + 2u) * SB + row / 4u][row % 4u] = quad.z;
  b[(word + 3u) * SB + row / 4u][row % 4u] = quad.w;
}

fn signed_quad(quad: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(signed_nibbles(quad.x), signed_nibbles(quad.y), signed_nibbles(quad.z), signed_nibbles(quad.w));
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
  var acc: array<vec4<f32>, OUTPUTS>;
  for (var step = 0u; step <= p.n_blocks; step++) {
    // Block `step` is fetched, block step - 1 multiplied.
    if (step > 0u) {
      workgroupBarrier(); // the pieces were read
      // @unroll
      for (var i = 0u; i < QA; i++) {
        let e = t + i * THREADS;
        if (e < QUADS_A) {
          put_a(e / 2u, e % 2u * 4u, next_a[i]);
        }
      }
      // @unroll
      for (var i = 0u; i < QB; i++) {
        let e = t + i * THREADS;
        if (e < QUADS_B) {
          if (BITS == 8u) {
            put_b(e / 2u, e % 2u * 4u, next_b[i]);
          } else {
            put_b(e, 0u, signed_quad(next_b[i]));
            put_b(e, 4u, signed_quad(next_b[i] >> vec4<u32>(4u)));
          }
        }
      }
      let block = step - 1u;
      for (var i = t; i < BM; i += THREADS) {
        a_scale[i / 4u][i % 4u] = x_scales[min(row0 + i, p.n - 1u) * p.n_blocks + block];
      }
      for (var i = t; i < BN; i += THREADS) {
        let pair = scales[p.s_offset + min(col0 + i, p.m - 1u) * pairs + block / 2u];
        b_scale[i / 4u][i % 4u] = unpack2x16float(pair)[block % 2u];
      }
      workgroupBarrier();
    }
    if (step < p.n_blocks) {
      // @unroll
      for (var i = 0u; i < QA; i++) {
        let e = min(t + i * THREADS, QUADS_A - 1u);
        next_a[i] = x[(min(row0 + e / 2u, p.n - 1u) * p.n_blocks + step) * 2u + e % 2u];
      }
      // @unroll
      for (var i = 0u; i < QB; i++) {
        let e = min(t + i * THREADS, QUADS_B - 1u);
        let row = min(col0 + e / (BITS / 4u), p.m - 1u);
        next_b[i] = w[p.q_offset / 4u + (row * p.n_blocks + step) * (BITS / 4u) + e % (BITS / 4u)];
      }
    }
    if (step > 0u) {
      var sums: array<vec4<i32>, OUTPUTS>;
      // @unroll
      for (var o = 0u; o < OUTPUTS; o++) {
        sums[o] = vec4<i32>(0);
      }
      // @unroll
      for (var word = 0u; word < 8u; word++) {
        // @unroll
        for (var i = 0u; i < IM; i++) {
          let left = a[word * SA + i * NY + ty];
          // @unroll
          for (var j = 0u; j < IN; j++) {
            let right = b[word * SB + j * NX + tx];
            // @unroll
            for (var r = 0u; r < 4u; r++) {
              let o = (i * 4u + r) * IN + j;
              sums[o] = vec4<i32>(dot4(left[r], right.x, sums[o].x), dot4(left[r], right.y, sums[o].y),
                                  dot4(left[r], right.z, sums[o].z), dot4(left[r], right.w, sums[o].w));
            }
          }
        }
      }
      // @unroll
      for (var i = 0u; i < IM; i++) {
        let d_a = a_scale[i * NY + ty];
        // @unroll
        for (var j = 0u; j < IN; j++) {
          let d_b = b_scale[j * NX + tx];
          // @unroll
          for (var r = 0u; r < 4u; r++) {
            let o = (i * 4u + r) * IN + j;
            acc[o] = fma(vec4<f32>(sums[o]), d_b * d_a[r], acc[o]);
          }
        }
      }
    }
  }
  // @unroll
  for (var i = 0u; i < IM; i++) {
    // @unroll
    for (var r = 0u; r < 4u; r++) {
      let row = row0 + (i * NY + ty) * 4u + r;
      // @unroll
      for (var j = 0u; j < IN; j++) {
        let column = col0 + (j * NX + tx) * 4u;
        for (var e = 0u; e < 4u; e++) {
          if (row < p.n && column + e < p.m) {
            y[p.y_offset + row * p.y_stride + column + e] = acc[(i * 4u + r) * IN + j][e];
          }
        }
      }
    }
  }
}
