// softmax: y = exp(a - max a) / sum exp(a - max a) along rows of any dtype and view: one workgroup a row, online (a running
// maximum and a sum relative to it), so that a row is read twice and written once, whatever its length.
//
// Shapes: a, y [n_rows,n].
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const A_DTYPE = 0u;
const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

var<workgroup> largest: array<f32, THREADS>;
var<workgroup> sums: array<f32, THREADS>;

fn a_at(index: u32) -> f32 {
  return real_in(a[word_at(A_DTYPE, index)], A_DTYPE, index);
}

const LOWEST = -3.4028234e38;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.n_rows;
  let at = row_at(select(0u, row, in_range));
  var m = LOWEST;
  var sum = 0.0;
  for (var i = t; i < p.n; i += THREADS) {
    let x = a_at(at.x + i * p.a_step);
    let next = max(m, x);
    sum = sum * exp1(m - next) + exp1(x - next);
    m = next;
  }
  largest[t] = m;
  sums[t] = sum;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (t < half) {
      let next = max(largest[t], largest[t + half]);
      sums[t] = sums[t] * exp1(largest[t] - next) + sums[t + half] * exp1(largest[t + half] - next);
      largest[t] = next;
    }
    workgroupBarrier();
  }
  if (in_range) {
    let scale = 1.0 / sums[0];
    for (var i = t; i < p.n; i += THREADS) {
      y[at.z + i] = exp1(a_at(at.x + i * p.a_step) - largest[0]) * scale;
    }
  }
}
