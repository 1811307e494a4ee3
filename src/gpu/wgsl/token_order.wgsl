// token_order: sorts tokens by their ids, in four steps: a counting sort whose runs lie in any order.
//
// Shapes: ids [n_tokens] from ids_offset on.  rows [2 * n_rows + 2]: the tokens of each id, where its run begins in the
// list, then how much of the list is handed out, and how many ids have more than MANY tokens.  order: each token's place
// in its run [n_tokens], the list [n_tokens], then those ids.
// Invariant: a token whose id is none is noted, and in no run.

const MANY = 32u;
const STEP = 0u; // 0: rows = 0; 1: count; 2: hand out the list; 3: write it

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read_write> rows: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> order: array<u32>;

fn count(n: u32) {
  let id = ids[p.ids_offset + n];
  if (id >= p.n_rows) { // negative ones as well
    note_fault(p.op, FAULT_TABLE_ROW, vec4<u32>(id, p.n_rows, 0u, 0u));
  } else {
    order[n] = atomicAdd(&rows[id], 1u);
  }
}

fn hand_out(row: u32) {
  let n = atomicLoad(&rows[row]);
  if (n > 0u) {
    atomicStore(&rows[p.n_rows + row], atomicAdd(&rows[2u * p.n_rows], n));
  }
  if (n > MANY) {
    order[2u * p.n_tokens + atomicAdd(&rows[2u * p.n_rows + 1u], 1u)] = row;
  }
}

fn list(n: u32) {
  let id = ids[p.ids_offset + n];
  if (id < p.n_rows) {
    order[p.n_tokens + atomicLoad(&rows[p.n_rows + id]) + order[n]] = n;
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (STEP == 0u && i < 2u * p.n_rows + 2u) {
    atomicStore(&rows[i], 0u);
  }
  if (STEP == 1u && i < p.n_tokens) {
    count(i);
  }
  if (STEP == 2u && i < p.n_rows) {
    hand_out(i);
  }
  if (STEP == 3u && i < p.n_tokens) {
    list(i);
  }
}
