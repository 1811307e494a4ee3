// softmax_grad: y = a * (b - sum a * b) along rows of any dtype and view: one workgroup a row, which is read twice and written
// once, whatever its length.
//
// Shapes: a, b, y [n_rows,n].
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const A_DTYPE = 0u;
const B_DTYPE = 0u;
const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

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
  // Every fourth term goes into the same sum.
  var sums = vec4<f32>(0.0);
  for (var i = t; i < p.n; i += THREADS) {
    sums = vec4<f32>(sums.yzw, sums.x + a_at(at.x + i * p.a_step) * b_at(at.y + i * p.b_step));
  }
  sums = group_sum(t, sums);
  let sum = sums.x + sums.y + sums.z + sums.w;
  if (in_range) {
    for (var i = t; i < p.n; i += THREADS) {
      y[at.z + i] = a_at(at.x + i * p.a_step) * (b_at(at.y + i * p.b_step) - sum);
    }
  }
}
