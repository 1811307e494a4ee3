// norm_grad_quads: norm_grad.wgsl for f32 rows that fit the registers of a workgroup: each element is read once and
// written once.
//
// Shapes: a, b = dy, y [n_rows,n], gain [n]; n at most 4 * THREADS * QUADS and like the strides and offsets a multiple of 4.
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const CENTRED = false;
const QUADS = 4u;
const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> gain: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.n_rows;
  let at = row_at(select(0u, row, in_range)) / 4u;
  let n = p.n / 4u;
  let scales = vec2<f32>(p.shrink, p.stretch);
  let one = 1.0 / f32(p.n);
  var x: array<vec4<f32>, QUADS>;
  var g: array<vec4<f32>, QUADS>;
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    x[q] = vec4<f32>(0.0);
    g[q] = vec4<f32>(0.0);
    if (t + q * THREADS < n) {
      x[q] = a[at.x + t + q * THREADS];
      g[q] = b[at.y + t + q * THREADS];
    }
  }
  if (CENTRED) {
    var sum = vec4<f32>(0.0);
    // @unroll
    for (var q = 0u; q < QUADS; q++) {
      sum += x[q] * one;
    }
    sum = group_sum(t, sum);
    let mean = sum.x + sum.y + sum.z + sum.w;
    // @unroll
    for (var q = 0u; q < QUADS; q++) {
      if (t + q * THREADS < n) {
        x[q] -= mean;
      }
    }
  }
  var sums = vec4<f32>(0.0);
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    sums += vec4<f32>(scaled_squares4(x[q], scales), dot(x[q], vec4<f32>(one)));
  }
  sums = group_sum(t, sums);
  let rest = select(0.0, sums.w, CENTRED);
  let eps = vec3<f32>(p.shrunk_eps, p.eps, p.stretched_eps);
  let factor = norm_factor(sums.xyz, p.n, rest, eps, scales);
  var means = vec4<f32>(0.0);
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    x[q] = (x[q] - rest) * factor.x * factor.y;
    if (t + q * THREADS < n) {
      g[q] *= gain[p.gain_offset / 4u + t + q * THREADS];
    }
    means += vec4<f32>(dot(g[q], vec4<f32>(one)), dot(g[q], x[q]) * one, 0.0, 0.0);
  }
  means = group_sum(t, means);
  if (in_range) {
    // @unroll
    for (var q = 0u; q < QUADS; q++) {
      if (t + q * THREADS < n) {
        y[at.z + t + q * THREADS] = (g[q] - select(0.0, means.x, CENTRED) - x[q] * means.y) * factor.x * factor.y;
      }
    }
  }
}
