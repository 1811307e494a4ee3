// softmax_grad_quads: softmax_grad.wgsl for f32 rows that fit the registers of a workgroup: each element is read once and
// written once.
//
// Shapes: a, b, y [n_rows,n], n at most 4 * THREADS * QUADS and like the strides and offsets a multiple of 4.
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const QUADS = 4u;
const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.n_rows;
  let n = p.n / 4u;
  let at = row_at(select(0u, row, in_range)) / 4u;
  var left: array<vec4<f32>, QUADS>;
  var right: array<vec4<f32>, QUADS>;
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    left[q] = vec4<f32>(0.0);
    right[q] = vec4<f32>(0.0);
    if (t + q * THREADS < n) {
      left[q] = a[at.x + t + q * THREADS];
      right[q] = b[at.y + t + q * THREADS];
    }
  }
  var sums = vec4<f32>(0.0);
  // @unroll
  for (var q = 0u; q < QUADS; q++) {
    sums += left[q] * right[q];
  }
  sums = group_sum(t, sums);
  let sum = sums.x + sums.y + sums.z + sums.w;
  if (in_range) {
    // @unroll
    for (var q = 0u; q < QUADS; q++) {
      if (t + q * THREADS < n) {
        y[at.z + t + q * THREADS] = left[q] * (right[q] - sum);
      }
    }
  }
}
