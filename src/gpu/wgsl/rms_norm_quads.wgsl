// rms_norm_quads: y = a / sqrt(mean(a^2) + eps) * b for rows that fit the registers of a workgroup: each element is read
// once and written once.
//
// Shapes: a, y [n_rows,n], b [n]; n at most 1024 * QUADS and like the strides and offsets a multiple of 4.
// Two sums run side by side: of the squares, and of the squares times 2^-128, which counts where the first is infinite.
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const QUADS = 4u;
const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

var<workgroup> sums: array<vec2<f32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.n_rows;
  let n = p.n / 4u;
  let start = (p.a_offset + select(0u, row, in_range) * p.a_stride) / 4u;
  var x: array<vec4<f32>, QUADS>;
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    x[q] = vec4<f32>(0.0);
    if (t + q * THREADS < n) {
      x[q] = a[start + t + q * THREADS];
    }
  }
  var sum = vec2<f32>(0.0);
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    let small = x[q] * 5.421010862427522e-20;
    sum += vec2<f32>(dot(x[q], x[q]), dot(small, small));
  }
  sums[t] = sum;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (t < half) {
      sums[t] += sums[t + half];
    }
    workgroupBarrier();
  }
  if (in_range) {
    let factor = rms_factor(sums[0], p.n, p.eps);
    let to = (p.y_offset + row * p.y_stride) / 4u + t;
    // @unroll
    for (var q = 0u; q < QUADS; q++) {
      if (t + q * THREADS < n) {
        y[to + q * THREADS] = x[q] * factor * b[p.b_offset / 4u + t + q * THREADS];
      }
    }
  }
}
