// embed_grad: rows of y are sums of the rows of dy that token_order has listed for them; the others are 0.
//
// Shapes: rows and order as token_order leaves them.  dy [n_tokens, n_columns] of any strides; y's window [n_window,
// n_columns] contiguous, its first row row_first.
// The rows of more than MANY terms, as the commonest tokens of a text have hundreds, are left to a second dispatch: there a
// workgroup owns COLUMNS columns of one such row and cuts its terms in SLICES, which it adds at the end; groups that find
// no row left for them write nothing.
// Invariants: every element of the window is written once, so y needs no clearing and no atomics; with ACCUMULATE it is
// added to.  All invocations reach the barrier.

const DTYPE = 0u;
const ACCUMULATE = false;
const HAS_MANY = false; // the second dispatch
const MANY = 32u;
const EACH = 8u; // elements of an invocation
const COLUMNS = 32u;
const SLICES = 8u;
const THREADS = COLUMNS * SLICES;

@group(0) @binding(0) var<storage, read> rows: array<u32>;
@group(0) @binding(1) var<storage, read> order: array<u32>;
@group(0) @binding(2) var<storage, read> dy: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> slice_sums: array<f32, THREADS>;

fn term(at: u32) -> f32 {
  return real_in(dy[word_at(DTYPE, at)], DTYPE, at);
}

// Of a row's n terms every step-th from the first one on.
fn sum_of(row: u32, n: u32, column: u32, first_term: u32, step: u32) -> f32 {
  var sum = 0.0;
  if (n > 0u) {
    let list = p.n_tokens + rows[p.n_rows + row];
    let first = p.dy_offset + column * p.dy_column;
    var k = first_term;
    for (; k + 3u * step < n; k += 4u * step) { // four loads in flight
      let a = term(first + order[list + k] * p.dy_row);
      let b = term(first + order[list + k + step] * p.dy_row);
      let c = term(first + order[list + k + 2u * step] * p.dy_row);
      let d = term(first + order[list + k + 3u * step] * p.dy_row);
      sum += (a + b) + (c + d);
    }
    for (; k < n; k += step) {
      sum += term(first + order[list + k] * p.dy_row);
    }
  }
  return sum;
}

fn write_sum(at: u32, sum: f32) {
  if (ACCUMULATE) {
    y[p.y_offset + at] += sum;
  } else {
    y[p.y_offset + at] = sum;
  }
}

fn write_few(index: u32, t: u32) {
  // @unroll
  for (var j = 0; j < EACH; j++) {
    let i = (index * EACH + j) * 256u + t;
    if (i < p.n_window * p.n_columns) {
      let row = p.row_first + i / p.n_columns;
      let n = rows[row];
      if (n <= MANY) {
        write_sum(i, sum_of(row, n, i % p.n_columns, 0u, 1u));
      }
    }
  }
}

fn write_many(index: u32, t: u32) {
  let n_blocks = (p.n_columns + COLUMNS - 1u) / COLUMNS;
  let column = index % n_blocks * COLUMNS + t % COLUMNS;
  var row = p.n_rows;
  if (index / n_blocks < rows[2u * p.n_rows + 1u]) {
    row = order[2u * p.n_tokens + index / n_blocks];
  }
  let is_mine = column < p.n_columns && row >= p.row_first && row - p.row_first < p.n_window;
  slice_sums[t] = 0.0;
  if (is_mine) {
    slice_sums[t] = sum_of(row, rows[row], column, t / COLUMNS, SLICES);
  }
  workgroupBarrier();
  if (is_mine && t < COLUMNS) {
    var sum = 0.0;
    for (var slice = 0u; slice < SLICES; slice++) {
      sum += slice_sums[slice * COLUMNS + t];
    }
    write_sum((row - p.row_first) * p.n_columns + column, sum);
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  if (HAS_MANY) {
    write_many(group.x + group.y * groups.x, t);
  } else {
    write_few(group.x + group.y * groups.x, t);
  }
}
