// softmax_quads: softmax for f32 rows that fit the registers of a workgroup: each element is read once and written once.
//
// Shapes: a, y [n_rows,n], n at most 4 * THREADS * QUADS and like the strides and offsets a multiple of 4.
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const QUADS = 4u;
const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.n_rows;
  let n = p.n / 4u;
  let at = row_at(select(0u, row, in_range)) / 4u;
  var x: array<vec4<f32>, QUADS>;
  var most = vec4<f32>(-3.4028234e38);
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    x[q] = vec4<f32>(-3.4028234e38);
    if (t + q * THREADS < n) {
      x[q] = a[at.x + t + q * THREADS];
    }
  }
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    most = max(most, x[q]);
  }
  let largest = group_max(t, max(max(most.x, most.y), max(most.z, most.w)));
  var sums = vec4<f32>(0.0);
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    x[q] = exp4(x[q] - largest);
    if (t + q * THREADS < n) {
      sums += x[q];
    }
  }
  sums = group_sum(t, sums);
  if (in_range) {
    let scale = 1.0 / (sums.x + sums.y + sums.z + sums.w);
    // @unroll
    for (var q = 0u; q < QUADS; q++) {
      if (t + q * THREADS < n) {
        y[at.z + t + q * THREADS] = x[q] * scale;
      }
    }
  }
}
