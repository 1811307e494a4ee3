// copy_tiles: copy.wgsl where a is contiguous along one axis (the rows here) and y along another (the columns): tiles of
// 32 x 32 go through workgroup memory, so that both sides are met in whole lines.
//
// Shapes: p.n_rows elements lie side by side in a, p.n_columns in y; a column is a_column apart in a, a row y_row in y.
// The other axes, p.rank of them, as in copy.wgsl.
// Invariant: all invocations reach the barrier; what lies outside is neither read nor written.

const TILE = 32u;
const STEP = 8u;
const PADDED = 1056u; // 32 rows of 33 words: columns fall into different banks

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

var<workgroup> tile: array<u32, PADDED>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let tiles_down = (p.n_rows + TILE - 1u) / TILE;
  let tiles_across = (p.n_columns + TILE - 1u) / TILE;
  var rest = group.x + group.y * groups.x;
  let row = rest % tiles_down * TILE;
  rest /= tiles_down;
  let column = rest % tiles_across * TILE;
  rest /= tiles_across;
  var at_a = p.a_offset;
  var at_y = p.y_offset;
  for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
    let extent = p.shape[axis / 4][axis % 4];
    let index = rest % extent;
    rest /= extent;
    at_a += index * p.a_strides[axis / 4][axis % 4];
    at_y += index * p.y_strides[axis / 4][axis % 4];
  }
  let is_there = rest == 0u; // the grid may have surplus groups
  let lane = t % TILE;
  for (var i = t / TILE; i < TILE; i += STEP) {
    if (is_there && row + lane < p.n_rows && column + i < p.n_columns) {
      tile[i * (TILE + 1u) + lane] = a[at_a + row + lane + (column + i) * p.a_column];
    }
  }
  workgroupBarrier();
  for (var i = t / TILE; i < TILE; i += STEP) {
    if (is_there && row + i < p.n_rows && column + lane < p.n_columns) {
      y[at_y + (row + i) * p.y_row + column + lane] = tile[lane * (TILE + 1u) + i];
    }
  }
}
