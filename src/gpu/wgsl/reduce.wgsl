// reduce: y = sum, largest, smallest or place of the largest of a over some of its axes, or what a workgroup has seen of it.
//
// Shapes: a has two lists of axes, those that are kept and those that are reduced, each with its extents, its strides in a
// and where an index leads: among y's elements (kept), or among the places (reduced).  Both are sorted by stride, the
// smallest last.  A workgroup takes RESULTS results and chunk number `chunk` of their elements; LANES invocations share a
// result.  ACROSS: neighbouring invocations take neighbouring results, as the kept axes have the smallest stride; else
// neighbouring elements of one result.
// OP: 0 sum (SQUARES: of squares), 1 max, 2 min, 3 argmax; DTYPE: a's.
// A total is a sum, or a key of common.wgsl and the place of its element.  IS_LATER: a holds totals (the places behind all
// keys, p.a_places words on), IS_PARTIAL: so does y.
// Sums: each of UNROLL running sums of an invocation takes every UNROLL-th of its elements, then they are added up in pairs.
// Invariant: all invocations reach every barrier; the grid's surplus sees nothing and writes nothing.

const OP = 0u;
const DTYPE = 0u;
const SQUARES = false;
const LANES = 256u;
const ACROSS = false;
const IS_LATER = false;
const IS_PARTIAL = false;
const IS_LINE = false;
const THREADS = 256u;
const RESULTS = THREADS / LANES;
const UNROLL = 8u;

const SUM = 0u;
const MIN = 2u;
const ARGMAX = 3u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

// The total of no elements.
const NOTHING = vec2<u32>(0u, 0xffffffffu);

var<workgroup> group_totals: array<vec2<u32>, THREADS>;

// Where kept element `number` lies in a, and where it goes.
fn kept_at(number: u32) -> vec2<u32> {
  var rest = number;
  var at = vec2<u32>(0u);
  for (var axis = i32(p.kept_rank) - 1; axis >= 0; axis--) {
    let extent = p.kept_shape[axis / 4][axis % 4];
    at += rest % extent * vec2<u32>(p.kept_strides[axis / 4][axis % 4], p.kept_to[axis / 4][axis % 4]);
    rest /= extent;
  }
  return at;
}

// Where reduced element `number` lies in a, and its place.  IS_LINE: there is one axis.
fn reduced_at(number: u32) -> vec2<u32> {
  if (IS_LINE) {
    return number * vec2<u32>(p.reduced_strides[0][0], p.reduced_to[0][0]);
  }
  var rest = number;
  var at = vec2<u32>(0u);
  for (var axis = i32(p.reduced_rank) - 1; axis >= 0; axis--) {
    let extent = p.reduced_shape[axis / 4][axis % 4];
    at += rest % extent * vec2<u32>(p.reduced_strides[axis / 4][axis % 4], p.reduced_to[axis / 4][axis % 4]);
    rest /= extent;
  }
  return at;
}

// The total of the one element at `at`.x from `start` on, whose place is `at`.y.
fn total_at(start: u32, at: vec2<u32>) -> vec2<u32> {
  let index = start + at.x;
  if (IS_LATER) {
    if (OP == ARGMAX) {
      return vec2<u32>(a[index], a[index + p.a_places]);
    }
    return vec2<u32>(a[index], 0u);
  }
  let x = real_in(a[word_at(DTYPE, index)], DTYPE, index);
  if (OP == SUM) {
    return vec2<u32>(bitcast<u32>(select(x * p.before, x * x, SQUARES)), 0u);
  }
  let key = order_key(x);
  if (OP == MIN) {
    return vec2<u32>(turned_key(key), 0u);
  }
  if (OP == ARGMAX) {
    return vec2<u32>(rank_key(x), p.first_place + at.y);
  }
  return vec2<u32>(key, 0u);
}

fn merged(left: vec2<u32>, right: vec2<u32>) -> vec2<u32> {
  if (OP == SUM) {
    return vec2<u32>(bitcast<u32>(bitcast<f32>(left.x) + bitcast<f32>(right.x)), 0u);
  }
  let is_right = right.x > left.x || (OP == ARGMAX && right.x == left.x && right.y < left.y);
  return select(left, right, is_right);
}

fn result_of(total: vec2<u32>) -> u32 {
  switch OP {
    case SUM: { return bitcast<u32>(bitcast<f32>(total.x) * p.after); }
    case MIN: { return key_bits(turned_key(total.x)); }
    case ARGMAX: { return total.y; }
    default: { return key_bits(total.x); }
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let number = group.x + group.y * groups.x;
  let n_blocks = (p.n_results + RESULTS - 1u) / RESULTS;
  let chunk = number / n_blocks;
  let result = number % n_blocks * RESULTS + select(t / LANES, t % RESULTS, ACROSS);
  let lane = select(t % LANES, t / RESULTS, ACROSS);
  let in_range = chunk < p.n_chunks && result < p.n_results;
  let at = kept_at(select(0u, result, in_range));
  let start = p.a_offset + at.x;
  var item = select(0u, chunk * p.chunk + lane, in_range);
  let end = select(0u, min(p.n_reduced, (chunk + 1u) * p.chunk), in_range);
  var totals: array<vec2<u32>, UNROLL>;
  // @unroll
  for (var u = 0u; u < UNROLL; u++) {
    totals[u] = NOTHING;
  }
  for (; item < end; item += UNROLL * LANES) {
    var seen: array<vec2<u32>, UNROLL>;
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      seen[u] = NOTHING;
      if (item + u * LANES < end) {
        seen[u] = total_at(start, reduced_at(item + u * LANES));
      }
    }
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      totals[u] = merged(totals[u], seen[u]);
    }
  }
  group_totals[t] = merged(merged(merged(totals[0], totals[1]), merged(totals[2], totals[3])),
                           merged(merged(totals[4], totals[5]), merged(totals[6], totals[7])));
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) {
      group_totals[t] = merged(group_totals[t], group_totals[t + half * select(1u, RESULTS, ACROSS)]);
    }
  }
  if (lane == 0u && in_range) {
    let slot = p.y_offset + chunk * p.y_chunk + at.y;
    if (IS_PARTIAL) {
      y[slot] = group_totals[t].x;
      if (OP == ARGMAX) {
        y[slot + p.y_places] = group_totals[t].y;
      }
    } else {
      y[slot] = result_of(group_totals[t]);
    }
  }
}
