// copy_tiles_quads: copy_tiles.wgsl where both sides are met in quads: tiles of 64 x 64.
//
// Shapes: as there; p.n_rows and p.n_columns are multiples of 4, offsets and strides are counted in quads, but for that of the
// rows in a and of the columns in y, which is one element.
// An invocation turns a block of 4 x 4 in its registers.  A row's quads change places by the row, so that neither the
// columns that are written to workgroup memory nor the rows that are read meet in a bank.
// Invariant: all invocations reach the barrier; what lies outside is neither read nor written.

const QUADS = 16u;     // of a tile's row
const TILE_QUADS = 1024u;

@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

var<workgroup> tile: array<vec4<u32>, TILE_QUADS>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let tiles_down = (p.n_rows / 4u + QUADS - 1u) / QUADS;
  let tiles_across = (p.n_columns / 4u + QUADS - 1u) / QUADS;
  var rest = group.x + group.y * groups.x;
  let row = rest % tiles_down * QUADS; // in quads, as all that follows
  rest /= tiles_down;
  let column = rest % tiles_across * QUADS;
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
  let lane = t % QUADS;
  let line = t / QUADS;
  if (is_there && row + lane < p.n_rows / 4u && column + line < p.n_columns / 4u) {
    let start = at_a + row + lane + (column + line) * 4u * p.a_column;
    let q0 = a[start];
    let q1 = a[start + p.a_column];
    let q2 = a[start + 2u * p.a_column];
    let q3 = a[start + 3u * p.a_column];
    let place = lane * 4u * QUADS + (line ^ lane);
    tile[place] = vec4<u32>(q0.x, q1.x, q2.x, q3.x);
    tile[place + QUADS] = vec4<u32>(q0.y, q1.y, q2.y, q3.y);
    tile[place + 2u * QUADS] = vec4<u32>(q0.z, q1.z, q2.z, q3.z);
    tile[place + 3u * QUADS] = vec4<u32>(q0.w, q1.w, q2.w, q3.w);
  }
  workgroupBarrier();
  // @unroll
  for (var i = 0u; i < 4u; i++) {
    let down = line + i * QUADS; // the row within the tile
    if (is_there && row * 4u + down < p.n_rows && column + lane < p.n_columns / 4u) {
      y[at_y + (row * 4u + down) * p.y_row + column + lane] = tile[down * QUADS + (lane ^ (down / 4u))];
    }
  }
}
