// norm: y = x * b + c, x = (a - mean) / sqrt(variance + eps) along rows of any length, dtype and view (layer_norm), or
// y = x * b, x = a / sqrt(mean square + eps) (rms_norm); or x alone.  A workgroup owns a row, and reads it once a pass.
//
// Shapes: a, y [n_rows,n], b, c [n].
// CENTRED: the mean is taken off, in two steps: its first sum is rounded where all elements lie far from 0, the second is
// of what is left and therefore good (Chan, Golub and LeVeque 1983).
// HAS_GAIN, HAS_BIAS: b and c are there.
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const A_DTYPE = 0u;
const CENTRED = false;
const HAS_GAIN = true;
const HAS_BIAS = false;
const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read> c: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

fn a_at(index: u32) -> f32 {
  return real_in(a[word_at(A_DTYPE, index)], A_DTYPE, index);
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
  if (in_range) {
    for (var i = t; i < p.n; i += THREADS) {
      var value = (a_at(at.x + i * p.a_step) - mean - rest) * factor.x * factor.y;
      if (HAS_GAIN) {
        value *= b[p.gain_offset + i];
      }
      if (HAS_BIAS) {
        value += c[p.bias_offset + i];
      }
      y[at.z + i] = value;
    }
  }
}
