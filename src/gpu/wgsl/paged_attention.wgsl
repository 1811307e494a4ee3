// paged_attention: y = softmax(q K^T * scale) V over the positions that a token sees in a paged cache (weft/ops.h), one
// pass over keys and values (Dao et al. 2022).
//
// Shapes: q [N, n_heads * D], rows q_row apart; keys and values [n_blocks, n_kv_heads] of head_words words; table [n_slots,
// n_blocks_per_slot]; positions and slots [N]; y [N, n_heads * D].  A workgroup owns ROWS rows that share a key/value
// head: the p.group query heads of it, token by token.
//
// Positions are walked in steps of STEP, an invocation a position; then an invocation owns a few dimensions of all rows,
// and those of one slice of the step's positions; slices are added at the end.
// Invariants: rows of one slot are walked together, other slots after them.  A step begins at a multiple of STEP and a row
// skips what it does not see, so its result does not depend on the rows beside it.  Elements of the cache that nobody has
// written are read by no row.  All invocations reach every barrier.

const DTYPE = 0u;
const ROWS = 4u;
const STEP = 256u;   // positions, and invocations
const DEPTH = 1u;    // dimensions of an invocation: DEPTH * LANES >= D
const LANES = 64u;   // invocations side by side in a row of values; a power of two
const Q_SIZE = 256u; // ROWS * D or more
const SLICES = STEP / LANES;
const KEYS_EACH = 8u;   // loads of an invocation in flight
const VALUES_EACH = 4u; // the same of values, at most 32 / SLICES
const N_SUMS = ROWS * DEPTH;
const N_WEIGHTS = ROWS * STEP;
const N_BLOCKS = STEP / 32;

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> keys: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<u32>;
@group(0) @binding(3) var<storage, read> table: array<i32>;
@group(0) @binding(4) var<storage, read> positions: array<i32>;
@group(0) @binding(5) var<storage, read> slots: array<i32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

var<workgroup> queries: array<f32, Q_SIZE>;       // [ROWS][D]
var<workgroup> weights: array<f32, N_WEIGHTS>;    // [ROWS][STEP]
var<workgroup> blocks: array<i32, N_BLOCKS>;      // of the step, -1: none that any row sees

// What a row sees: positions first .. end - 1 of a slot; none if its token has no place, or beyond the last row.
struct Row {
  slot: i32,
  first: u32,
  end: u32,
}

fn row_of(index: u32, t: u32) -> Row {
  let token = index / p.group;
  if (token >= p.n_tokens) {
    return Row(-1, 0u, 0u);
  }
  let slot = slots[p.slots_offset + token];
  let last = positions[p.positions_offset + token];
  if (slot < 0 || u32(slot) >= p.n_slots || last < 0 || u32(last) / 32u >= p.n_blocks_per_slot) {
    if (t == 0u) {
      note_fault(p.op, FAULT_TOKEN_PLACE, vec4<u32>(token, bitcast<u32>(slot), bitcast<u32>(last), 0u));
    }
    return Row(-1, 0u, 0u);
  }
  let end = u32(last) + 1u;
  return Row(slot, select(0u, end - p.window, p.window > 0u && end > p.window), end);
}

// The block of a slot's positions 32 * index .., noted if it is missing.
fn block_of(slot: i32, index: u32) -> i32 {
  let block = table[p.table_offset + u32(slot) * p.n_blocks_per_slot + index];
  if (block < 0 || u32(block) >= p.n_blocks) {
    note_fault(p.op, FAULT_NO_BLOCK, vec4<u32>(bitcast<u32>(slot), index * 32u, 0u, 0u));
    return -1;
  }
  return block;
}

fn signed_byte(word: u32, index: u32) -> f32 {
  return f32(bitcast<i32>(word << (24u - index % 4u * 8u)) >> 24u);
}

fn half_of(word: u32, index: u32) -> f32 {
  return unpack2x16float(word)[index % 2u];
}

// Element `index` of the keys of a head that begin at word `head`; for q8_0 without its scale.
fn key_at(head: u32, index: u32) -> f32 {
  if (DTYPE == 4u) {
    return signed_byte(keys[head + index / 4u], index);
  }
  return real_in(keys[head + word_at(DTYPE, index)], DTYPE, index);
}

fn key_scale(head: u32, index: u32) -> f32 {
  return half_of(keys[head + p.d * 8u + index / 2u], index);
}

fn value_at(head: u32, d: u32, in_block: u32) -> f32 {
  let index = in_block * p.d + d;
  if (DTYPE == 4u) {
    let scale_index = d / 32u * 32u + in_block;
    return signed_byte(values[head + index / 4u], index) * half_of(values[head + p.d * 8u + scale_index / 2u], scale_index);
  }
  return real_in(values[head + word_at(DTYPE, index)], DTYPE, index);
}

// Adds to sums the products of all rows with elements first .. first + KEYS_EACH of one position's key, whose loads are all
// in flight, times a scale.
fn add_products(sums: ptr<function, array<f32, ROWS>>, head: u32, first: u32, in_block: u32) {
  var k: array<f32, KEYS_EACH>;
  // @unroll
  for (var i = 0u; i < KEYS_EACH; i++) {
    k[i] = 0.0;
    if (first + i < p.d) {
      k[i] = key_at(head, (first + i) * 32u + in_block);
    }
  }
  // @unroll
  for (var i = 0u; i < KEYS_EACH; i++) {
    if (first + i < p.d) {
      // @unroll
      for (var r = 0u; r < ROWS; r++) {
        (*sums)[r] = fma(queries[r * p.d + first + i], k[i], (*sums)[r]);
      }
    }
  }
}

// Scores of all rows with one position's key; those of q8_0 are scaled a block of 32 at a time.
fn scores_at(head: u32, in_block: u32) -> array<f32, ROWS> {
  var sums: array<f32, ROWS>;
  let part = select(p.d, 32u, DTYPE == 4u);
  for (var first = 0u; first < p.d; first += part) {
    var of_part: array<f32, ROWS>;
    // @unroll
    for (var r = 0u; r < ROWS; r++) {
      of_part[r] = 0.0;
    }
    for (var d = first; d < first + part; d += KEYS_EACH) {
      add_products(&of_part, head, d, in_block);
    }
    var scale = 1.0;
    if (DTYPE == 4u) {
      scale = key_scale(head, first + in_block);
    }
    // @unroll
    for (var r = 0u; r < ROWS; r++) {
      sums[r] = fma(of_part[r], scale, sums[r]);
    }
  }
  return sums;
}

fn sees(row: Row, slot: i32, position: u32) -> bool {
  return row.slot == slot && position >= row.first && position < row.end;
}

@compute @workgroup_size(STEP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let tile = group.x + group.y * groups.x;
  let kv_head = tile % p.n_kv_heads;
  let first_row = tile / p.n_kv_heads * ROWS;
  let lane = t % LANES;
  let slice = t / LANES;
  var seen: array<Row, ROWS>;
  var largest: array<f32, ROWS>;
  var total: array<f32, ROWS>; // of the weights at this invocation's positions
  var sums: array<f32, N_SUMS>;
  // @unroll
  for (var r = 0u; r < ROWS; r++) {
    seen[r] = row_of(first_row + r, t);
    largest[r] = -3.0e38;
    total[r] = 0.0;
  }
  // @unroll
  for (var i = 0u; i < N_SUMS; i++) {
    sums[i] = 0.0;
  }
  for (var i = t; i < ROWS * p.d; i += STEP) {
    let row = first_row + i / p.d;
    let token = row / p.group;
    queries[i] = 0.0;
    if (token < p.n_tokens) {
      queries[i] = q[p.q_offset + token * p.q_row + (kv_head * p.group + row % p.group) * p.d + i % p.d];
    }
  }
  var lead = 0u; // the first row of a slot
  loop {
    if (lead >= ROWS) {
      break;
    }
    let slot = seen[lead].slot;
    var begin = 0xffffffffu;
    var end = 0u;
    var is_done = slot < 0;
    for (var r = 0u; r < ROWS; r++) {
      if (seen[r].slot == slot) {
        is_done = is_done || r < lead; // with an earlier row
        begin = min(begin, seen[r].first);
        end = max(end, seen[r].end);
      }
    }
    lead++;
    if (is_done) {
      continue;
    }
    for (var step = begin / STEP * STEP; step < end; step += STEP) {
      workgroupBarrier(); // the last step's weights have been used
      if (t < N_BLOCKS) {
        let index = step / 32u + t;
        var is_seen = false;
        for (var r = 0u; r < ROWS; r++) {
          is_seen = is_seen || (seen[r].slot == slot && seen[r].first < index * 32u + 32u && seen[r].end > index * 32u);
        }
        blocks[t] = -1;
        if (is_seen) {
          blocks[t] = block_of(slot, index);
        }
      }
      workgroupBarrier();
      let position = step + t;
      let block = blocks[t / 32u];
      var scores: array<f32, ROWS>;
      if (block >= 0) {
        scores = scores_at(p.keys_offset + (u32(block) * p.n_kv_heads + kv_head) * p.head_words, t % 32u);
      }
      // @unroll
      for (var r = 0u; r < ROWS; r++) {
        scores[r] = select(-3.0e38, scores[r] * p.scale, block >= 0 && sees(seen[r], slot, position));
        weights[r * STEP + t] = scores[r];
      }
      for (var width = STEP / 2u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if (t < width) {
          // @unroll
          for (var r = 0u; r < ROWS; r++) {
            weights[r * STEP + t] = max(weights[r * STEP + t], weights[r * STEP + t + width]);
          }
        }
      }
      workgroupBarrier();
      var of_step: array<f32, ROWS>;
      // @unroll
      for (var r = 0u; r < ROWS; r++) {
        of_step[r] = max(largest[r], weights[r * STEP]);
      }
      workgroupBarrier();
      // @unroll
      for (var r = 0u; r < ROWS; r++) {
        let shrink = exp1(largest[r] - of_step[r]);
        let weight = select(0.0, exp1(scores[r] - of_step[r]), block >= 0 && sees(seen[r], slot, position));
        largest[r] = of_step[r];
        total[r] = fma(total[r], shrink, weight);
        weights[r * STEP + t] = weight;
        // @unroll
        for (var k = 0u; k < DEPTH; k++) {
          sums[r * DEPTH + k] *= shrink;
        }
      }
      workgroupBarrier();
      for (var i = 0u; i < N_BLOCKS; i++) {
        let of_positions = blocks[i];
        if (of_positions >= 0) {
          let head = p.values_offset + (u32(of_positions) * p.n_kv_heads + kv_head) * p.head_words;
          for (var first = slice; first < 32u; first += VALUES_EACH * SLICES) {
            // @unroll
            for (var k = 0u; k < DEPTH; k++) {
              let d = lane + k * LANES;
              if (d < p.d) {
                var value: array<f32, VALUES_EACH>;
                // @unroll
                for (var j = 0u; j < VALUES_EACH; j++) {
                  value[j] = value_at(head, d, first + j * SLICES);
                }
                // @unroll
                for (var j = 0u; j < VALUES_EACH; j++) {
                  // @unroll
                  for (var r = 0u; r < ROWS; r++) { // what a row does not see may be no number
                    let weight = weights[r * STEP + i * 32u + first + j * SLICES];
                    let sum = fma(weight, value[j], sums[r * DEPTH + k]);
                    sums[r * DEPTH + k] = select(sum, sums[r * DEPTH + k], weight == 0.0);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  workgroupBarrier();
  // @unroll
  for (var r = 0u; r < ROWS; r++) {
    weights[r * STEP + t] = total[r];
  }
  for (var width = STEP / 2u; width > 0u; width /= 2u) {
    workgroupBarrier();
    if (t < width) {
      // @unroll
      for (var r = 0u; r < ROWS; r++) {
        weights[r * STEP + t] += weights[r * STEP + t + width];
      }
    }
  }
  workgroupBarrier();
  // @unroll
  for (var r = 0u; r < ROWS; r++) {
    total[r] = weights[r * STEP];
  }
  // @unroll
  for (var k = 0u; k < DEPTH; k++) {
    workgroupBarrier();
    // @unroll
    for (var r = 0u; r < ROWS; r++) {
      weights[r * STEP + t] = sums[r * DEPTH + k];
    }
    workgroupBarrier();
    let d = lane + k * LANES;
    if (slice == 0u && d < p.d) {
      // @unroll
      for (var r = 0u; r < ROWS; r++) {
        if (seen[r].slot >= 0) {
          var sum = 0.0;
          for (var s = 0u; s < SLICES; s++) {
            sum += weights[r * STEP + s * LANES + lane];
          }
          let row = first_row + r;
          let head = row / p.group * p.n_kv_heads * p.group + kv_head * p.group + row % p.group;
          y[p.y_offset + head * p.d + d] = sum / total[r];
        }
      }
    }
  }
}
