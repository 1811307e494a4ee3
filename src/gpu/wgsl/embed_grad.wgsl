// embed_grad: rows of y are sums of the rows of dy that token_order has listed for them; the others are 0.
//
// Shapes: rows and order as token_order leaves them.  dy [n_tokens, n_columns] of any strides; y's window [n_window,
// n_columns] contiguous, its first row row_first.
// Invariants: every element of the window is written once, so y needs no clearing and no atomics; with ACCUMULATE it is
// added to.

const DTYPE = 0u;
const ACCUMULATE = false;
const EACH = 8u; // elements of an invocation

@group(0) @binding(0) var<storage, read> rows: array<u32>;
@group(0) @binding(1) var<storage, read> order: array<u32>;
@group(0) @binding(2) var<storage, read> dy: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

fn term(at: u32) -> f32 {
  return real_in(dy[word_at(DTYPE, at)], DTYPE, at);
}

fn sum_of(row: u32, column: u32) -> f32 {
  let n = rows[row];
  var sum = 0.0;
  if (n > 0u) {
    let list = p.n_tokens + rows[p.n_rows + row];
    let first = p.dy_offset + column * p.dy_column;
    var k = 0u;
    for (; k + 4u <= n; k += 4u) { // four loads in flight
      let a = term(first + order[list + k] * p.dy_row);
      let b = term(first + order[list + k + 1u] * p.dy_row);
      let c = term(first + order[list + k + 2u] * p.dy_row);
      let d = term(first + order[list + k + 3u] * p.dy_row);
      sum += (a + b) + (c + d);
    }
    for (; k < n; k++) {
      sum += term(first + order[list + k] * p.dy_row);
    }
  }
  return sum;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = (group.x + group.y * groups.x) * 256u * EACH + t;
  // @unroll
  for (var j = 0; j < EACH; j++) {
    let i = first + j * 256u;
    if (i < p.n_window * p.n_columns) {
      let sum = sum_of(p.row_first + i / p.n_columns, i % p.n_columns);
      if (ACCUMULATE) {
        y[p.y_offset + i] += sum;
      } else {
        y[p.y_offset + i] = sum;
      }
    }
  }
}
