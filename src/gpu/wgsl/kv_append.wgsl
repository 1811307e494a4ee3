// kv_append: rows of keys or of values go to their places in a paged cache (layout: weft/ops.h).
//
// Shapes: rows [N, n_heads * head_size] f32, rows_row apart; cache [n_blocks, n_heads] of head_words words each; table
// [n_slots, n_blocks_per_slot]; positions and slots [N].  An invocation writes one element of a row, for q8_0 32 of them
// and their scale; p.n of them in all.
// Invariants: elements of less than a word share it with those of other tokens, which other invocations write at the same
// time: bits are cleared and set by atomics, which leave the others alone.  A token without a place is noted and written
// nowhere.

const DTYPE = 0u;
const KEYS = true; // stored transposed within a block

@group(0) @binding(0) var<storage, read> rows: array<f32>;
@group(0) @binding(1) var<storage, read> table: array<i32>;
@group(0) @binding(2) var<storage, read> positions: array<i32>;
@group(0) @binding(3) var<storage, read> slots: array<i32>;
@group(0) @binding(4) var<storage, read_write> cache: array<atomic<u32>>;

// The lower `bits` of value become element `index` of elements of so many bits from word `first` on.
fn put(first: u32, index: u32, bits: u32, value: u32) {
  if (bits == 32u) {
    atomicStore(&cache[first + index], value);
    return;
  }
  let word = first + index * bits / 32u;
  let shift = index * bits % 32u;
  let mask = ((1u << bits) - 1u) << shift;
  atomicAnd(&cache[word], ~mask);
  atomicOr(&cache[word], (value << shift) & mask);
}

// The place of element d of a head at a position within its block.
fn place_of(d: u32, in_block: u32) -> u32 {
  return select(in_block * p.head_size + d, d * 32u + in_block, KEYS);
}

// 32 elements as bytes: d = max |x| / 127, q = x / d to the nearest, ties to even; d is stored as f16.
fn put_block(row: u32, head: u32, d: u32, in_block: u32) {
  var most = 0.0;
  for (var i = 0u; i < 32u; i++) {
    most = max(most, abs(rows[row + i]));
  }
  let scale = most / 127.0;
  for (var i = 0u; i < 32u; i++) {
    let q = i32(round(select(rows[row + i] * (1.0 / scale), 0.0, scale == 0.0)));
    put(head, place_of(d + i, in_block), 8u, bitcast<u32>(q));
  }
  put(head + p.head_size * 8u, d / 32u * 32u + in_block, 16u, stored_as(scale, F16));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    let each = select(1u, 32u, DTYPE == 4u);
    let width = p.n_heads * p.head_size;
    let token = i * each / width;
    let column = i * each % width;
    let block = block_of(token, positions[p.positions_offset + token], slots[p.slots_offset + token]);
    if (block >= 0) {
      let in_block = u32(positions[p.positions_offset + token]) % 32u;
      let head = p.cache_offset + (u32(block) * p.n_heads + column / p.head_size) * p.head_words;
      let row = p.rows_offset + token * p.rows_row + column;
      let d = column % p.head_size;
      if (DTYPE == 4u) {
        put_block(row, head, d, in_block);
      } else {
        put(head, place_of(d, in_block), select(32u, 16u, DTYPE == F16), stored_as(rows[row], DTYPE));
      }
    }
  }
}

// The block of the cache that holds a token's position, -1 if there is none.
fn block_of(token: u32, position: i32, slot: i32) -> i32 {
  if (slot < 0 || u32(slot) >= p.n_slots || position < 0 || u32(position) / 32u >= p.n_blocks_per_slot) {
    note_fault(p.op, FAULT_TOKEN_PLACE, vec4<u32>(token, bitcast<u32>(slot), bitcast<u32>(position), 0u));
    return -1;
  }
  let block = table[p.table_offset + u32(slot) * p.n_blocks_per_slot + u32(position) / 32u];
  if (block < 0 || u32(block) >= p.n_blocks) {
    note_fault(p.op, FAULT_NO_BLOCK, vec4<u32>(bitcast<u32>(slot), u32(position) / 32u * 32u, 0u, 0u));
    return -1;
  }
  return block;
}
