// rms_norm: y = a / sqrt(mean(a^2) + eps) * b over rows of n elements: one workgroup a row, which is read twice and written
// once, whatever its length.
//
// Shapes: a, y [n_rows,n], b [n]; rows a_stride and y_stride apart.
// Two sums as in rms_norm_quads.wgsl.
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> sums: array<vec2<f32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.n_rows;
  let start = p.a_offset + select(0u, row, in_range) * p.a_stride;
  var sum = vec2<f32>(0.0);
  for (var i = t; i < p.n; i += THREADS) {
    let x = vec2<f32>(a[start + i], a[start + i] * 5.421010862427522e-20);
    sum += x * x;
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
    let to = p.y_offset + row * p.y_stride;
    for (var i = t; i < p.n; i += THREADS) {
      y[to + i] = a[start + i] * factor * b[p.b_offset + i];
    }
  }
}
