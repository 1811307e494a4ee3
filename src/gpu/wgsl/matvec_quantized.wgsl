// matvec_quantized: y = x W^T for few rows of x, W in blocks of 32 with a scale each, x quantised to 8 bits likewise: dot
// products in integers, one float step a half or whole block.
//
// Shapes: W [m][n_blocks] blocks of 8 (BITS 8) or 4 words (BITS 4: the low nibbles are columns 0 to 15, the high ones 16
// to 31, value + 8); scales [m][(n_blocks + 1) / 2] pairs of f16.  x [N_X][n_blocks][8] words, x_scales [N_X][n_blocks];
// y [N_X][m], rows y_stride apart.
// A workgroup owns ROWS rows, whose quads are all in flight at once: the speed is the memory's.
// Invariants: all invocations reach every barrier; rows beyond m are read as the last one and not written.

const BITS = 8u;
const N_X = 1u;
const ROWS = 4u;
const THREADS = 256u;

const SUMS = ROWS * N_X;
const WORDS = BITS / 4u; // quads of x that meet a quad of W

@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> x_scales: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> partial: array<f32, THREADS>;

fn dot16(a: vec4<u32>, b: vec4<u32>, sum: i32) -> i32 {
  return dot4(a.w, b.w, dot4(a.z, b.z, dot4(a.y, b.y, dot4(a.x, b.x, sum))));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = (group.x + group.y * groups.x) * ROWS;
  let n_quads = p.n_blocks * BITS / 4u;
  let x_quads = p.n_blocks * 2u;
  let pairs = (p.n_blocks + 1u) / 2u;
  var acc: array<f32, SUMS>;
  for (var i = t; i < n_quads; i += THREADS) {
    let block = i * 4u / BITS;
    var quads: array<vec4<u32>, ROWS>;
    // @unroll
    for (var r = 0u; r < ROWS; r++) {
      quads[r] = w[p.q_offset / 4u + min(first + r, p.m - 1u) * n_quads + i];
    }
    // @unroll
    for (var r = 0u; r < ROWS; r++) {
      let d = unpack2x16float(scales[p.s_offset + min(first + r, p.m - 1u) * pairs + block / 2u])[block % 2u];
      // @unroll
      for (var c = 0u; c < N_X; c++) {
        var sum: i32;
        if (BITS == 8u) {
          sum = dot16(quads[r], x[c * x_quads + i], 0);
        } else {
          let low = quads[r] & vec4<u32>(0x0f0f0f0fu);
          let high = quads[r] >> vec4<u32>(4u) & vec4<u32>(0x0f0f0f0fu);
          let x_low = x[c * x_quads + i * 2u];
          let x_high = x[c * x_quads + i * 2u + 1u];
          let eights = vec4<u32>(0x08080808u);
          sum = dot16(high, x_high, dot16(low, x_low, 0)) - dot16(eights, x_high, dot16(eights, x_low, 0));
        }
        acc[r * N_X + c] = fma(f32(sum), d * x_scales[c * p.n_blocks + block], acc[r * N_X + c]);
      }
    }
  }
  // @unroll
  for (var s = 0u; s < SUMS; s++) {
    partial[t] = acc[s];
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half /= 2u) {
      if (t < half) {
        partial[t] += partial[t + half];
      }
      workgroupBarrier();
    }
    if (t == 0u && first + s / N_X < p.m) {
      y[p.y_offset + s % N_X * p.y_stride + first + s / N_X] = partial[0];
    }
    workgroupBarrier();
  }
}
