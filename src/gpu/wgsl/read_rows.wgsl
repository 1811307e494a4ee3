// read_rows: y[n] = row ids[n] of a table of any dtype, as f32; without ids, row n.
//
// Shapes: the table [n_rows, n_columns], of which the window holds the rows from row_first on, n_window; row_bytes between
// rows, the first at byte blocks_byte.  ids [N].  This dispatch writes elements first .. first + n of y [N, n_columns],
// those whose row is in the window.
// Invariant: an id outside the table is noted, and its row of y is left alone.

const DTYPE = 0u;
const LOOKS_UP = true;
const BLOCK_LEN = 1u;
const BLOCK_BYTES = 4u;

@group(0) @binding(0) var<storage, read> blocks: array<u32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn element_at(row: u32, column: u32) -> f32 {
  let at = p.blocks_byte + row * p.row_bytes + column / BLOCK_LEN * BLOCK_BYTES;
  if (DTYPE <= BF16) {
    return real_in(blocks[at / 4u], DTYPE, at / 2u);
  }
  return block_value(DTYPE, at, column % BLOCK_LEN);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    let n = (p.first + i) / p.n_columns;
    var row = n;
    if (LOOKS_UP) {
      row = ids[p.ids_offset + n];
    }
    if (row >= p.n_rows) { // negative ones as well
      note_fault(p.op, FAULT_TABLE_ROW, vec4<u32>(row, p.n_rows, 0u, 0u));
    } else if (row >= p.row_first && row - p.row_first < p.n_window) {
      y[p.y_offset + i] = element_at(row - p.row_first, (p.first + i) % p.n_columns);
    }
  }
}
