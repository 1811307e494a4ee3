// norm_grad: the gradient of norm.wgsl by a.  With x as there, s = 1 / sqrt(... + eps) and g = dy * gain,
// y = (g - mean g - x * mean(g * x)) * s (layer_norm), or without mean g (rms_norm).
//
// Shapes: a, b = dy, y [n_rows,n], any dtypes and views; gain [n].  A workgroup owns a row, and reads it once a pass.
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const A_DTYPE = 0u;
const B_DTYPE = 0u;
const CENTRED = false;
const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> gain: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

fn a_at(index: u32) -> f32 {
  return real_in(a[word_at(A_DTYPE, index)], A_DTYPE, index);
}

fn b_at(index: u32) -> f32 {
  return real_in(b[word_at(B_DTYPE, index)], B_DTYPE, index);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.n_rows;
  let at = row_at(select(0u, row, in_range));
  let scales = vec2<f32>(p.shrink, p.stretch);
  let one = 1.0 / f32(p.n);
  var mean = 0.0;
  if (CENTRED) {
    var sum = 0.0;
    for (var i = t; i < p.n; i += THREADS) {
      sum += a_at(at.x + i * p.a_step) * one;
    }
    mean = group_sum(t, vec4<f32>(sum)).x;
  }
  var sums = vec4<f32>(0.0);
  for (var i = t; i < p.n; i += THREADS) {
    let left = a_at(at.x + i * p.a_step) - mean;
    sums += vec4<f32>(scaled_squares(left, scales), left * one);
  }
  sums = group_sum(t, sums);
  let rest = select(0.0, sums.w, CENTRED);
  let eps = vec3<f32>(p.shrunk_eps, p.eps, p.stretched_eps);
  let factor = norm_factor(sums.xyz, p.n, rest, eps, scales);
  var means = vec4<f32>(0.0);
  for (var i = t; i < p.n; i += THREADS) {
    let x = (a_at(at.x + i * p.a_step) - mean - rest) * factor.x * factor.y;
    let g = b_at(at.y + i * p.b_step) * gain[p.gain_offset + i];
    means += vec4<f32>(g, g * x, 0.0, 0.0) * one;
  }
  means = group_sum(t, means);
  if (in_range) {
    for (var i = t; i < p.n; i += THREADS) {
      let x = (a_at(at.x + i * p.a_step) - mean - rest) * factor.x * factor.y;
      let g = b_at(at.y + i * p.b_step) * gain[p.gain_offset + i];
      y[at.z + i] = (g - select(0.0, means.x, CENTRED) - x * means.y) * factor.x * factor.y;
    }
  }
}
