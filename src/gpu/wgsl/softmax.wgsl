// softmax: softmax and the loss of its target along rows of any dtype and view, one workgroup a row.  The sum of exponentials
// is taken online (relative to a running maximum), so a loss reads its row once, the others read it twice, whatever its
// length.
//
// Shapes: a [n_rows,n]; b [n_rows] targets below n, negative where a row is masked; c [n_rows] the losses' gradient.
// OP: 0 y = softmax(a) [n_rows,n]; 1 y = log sum exp a - a[b] [n_rows]; 2 y = (softmax(a) - onehot(b)) * c [n_rows,n].
// Exponentials that are summed use the built-in exp2: where its error of 2|x| + 3 ulp is large, the term is small.
// Invariant: all invocations reach every barrier; the grid's surplus rows are computed on row 0 and not written.

const OP = 0u;
const A_DTYPE = 0u;
const THREADS = 256u;
const UNROLL = 8u;
const LOSS = 1u;
const LOSS_GRAD = 2u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<i32>;
@group(0) @binding(2) var<storage, read> c: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

const LOWEST = -3.4028234e38;
const LOG2_E = 1.44269504;

fn a_at(index: u32) -> f32 {
  return real_in(a[word_at(A_DTYPE, index)], A_DTYPE, index);
}

// The row's target, -1 if it has none; one beyond the row is noted.
fn target_at(index: u32, row: u32, t: u32) -> i32 {
  if (OP == 0u || b[index] < 0) {
    return -1;
  }
  if (u32(b[index]) < p.n) {
    return b[index];
  }
  if (t == 0u) {
    note_index(p.op, b[index], p.first_row + row, p.n, 1u);
  }
  return -1;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.n_rows;
  let at = row_at(select(0u, row, in_range));
  var m = LOWEST;
  var sum = 0.0;
  var i = t;
  for (; i + (UNROLL - 1u) * THREADS < p.n; i += UNROLL * THREADS) {
    var x: array<f32, UNROLL>;
    var next = m;
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      x[u] = a_at(at.x + (i + u * THREADS) * p.a_step);
    }
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      next = max(next, x[u]);
    }
    var terms = 0.0;
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      terms += exp2((x[u] - next) * LOG2_E);
    }
    sum = sum * exp2((m - next) * LOG2_E) + terms;
    m = next;
  }
  for (; i < p.n; i += THREADS) {
    let x = a_at(at.x + i * p.a_step);
    let next = max(m, x);
    sum = sum * exp2((m - next) * LOG2_E) + exp2((x - next) * LOG2_E);
    m = next;
  }
  let largest = group_max(t, m);
  sum = group_sum(t, vec4<f32>(sum * exp2((m - largest) * LOG2_E), 0.0, 0.0, 0.0)).x;
  if (in_range) {
    let goal = target_at(at.y, row, t);
    if (OP == LOSS) {
      if (t == 0u) {
        y[at.z] = select(0.0, log(sum) + (largest - a_at(at.x + u32(max(goal, 0)) * p.a_step)), goal >= 0);
      }
    } else if (OP == LOSS_GRAD && goal < 0) {
      for (i = t; i < p.n; i += THREADS) {
        y[at.z + i] = 0.0;
      }
    } else {
      let factor = select(1.0, c[at.w], OP == LOSS_GRAD);
      let scale = 1.0 / sum;
      for (i = t; i < p.n; i += UNROLL * THREADS) {
        var x: array<f32, UNROLL>;
        // @unroll
        for (var u = 0u; u < UNROLL; u++) {
          if (i + u * THREADS < p.n) {
            x[u] = a_at(at.x + (i + u * THREADS) * p.a_step);
          }
        }
        // @unroll
        for (var u = 0u; u < UNROLL; u++) {
          let share = exp1(x[u] - largest) * scale;
          let is_goal = OP == LOSS_GRAD && i + u * THREADS == u32(goal);
          if (i + u * THREADS < p.n) {
            y[at.z + i + u * THREADS] = select(share, share - 1.0, is_goal) * factor;
          }
        }
      }
    }
  }
}
