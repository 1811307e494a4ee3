// attention_tiles: what attention.wgsl and its gradients (attention_grad_*.wgsl) share; part of the tile kernels of
// kernels.def.
//
// A workgroup owns BR rows (queries, or keys) of one head and walks the columns (keys, or queries) in steps of BC.  An
// invocation (tx, ty) of NX * NY owns R rows that lie NY apart times C columns that lie NX apart of the scores, and the
// same rows times quads of dimensions that lie NX apart of what is summed.  A head's D dimensions are padded to DP.
// Workgroup memory holds in turn
//   for add_scores    CH dimensions of all rows and all columns, [BR][CH] and [BC][CH], a quad of padding a row against
//                     bank conflicts
//   for add_products  for each row the weights of 4 * NX columns, with such padding; behind them CV of the columns, [CV][DP]
// An invocation's scores of a row are GROUPS quads; quad g of invocation tx has the columns (g * 4 + e) * NX + tx, e being 0
// to 3.  Weights are stored in this order, and columns follow it.  What a step multiplies was fetched to registers while
// the step before it was multiplied.
// Query i sees the keys up to its own place among them, i + p.shift, and of these the last p.window.  Without a mask both are
// so large that it sees all keys.
// The kernel supplies row_quad and column_quad: four dimensions of a row or column of operand number `which`, zero beyond
// D; rows and columns that do not exist give what the last one has.

const BR = 64u;
const BC = 64u;
const NX = 8u;
const NY = 16u;
const DP = 64u;
const CH = 32u;
const CV = 32u;
const STAGE = 1088u; // quads: the larger of both uses
const IS_PADDED = false; // D < DP

const THREADS = NX * NY;
const R = BR / NY;
const C = BC / NX;
const GROUPS = C / 4u;     // quads of scores that an invocation owns for each row
const SCORES = R * GROUPS;
const OQ = DP / (4u * NX); // quads of dimensions
const OUTPUTS = R * OQ;
const CQ = CH / 4u;
const ROW = CQ + 1u;       // quads of a staged row
const COLUMNS = BR * ROW;  // where the columns begin
const ROW_QUADS = BR * CQ / THREADS; // that an invocation stages
const COLUMN_QUADS = BC * CQ / THREADS;
const WEIGHTS = NX + 1u;     // quads of a row of weights of a group
const VALUES = BR * WEIGHTS;  // where the columns begin behind the weights
const VQ = CV / 4u;
const SV = DP / 4u;
const VALUE_QUADS = CV * SV / THREADS;
const NEXT = ROW_QUADS + COLUMN_QUADS + VALUE_QUADS; // quads on their way to the stage
const RIGHT = 4u * OQ;
const LANES = BR * NX / 4u;
const LANE_QUADS = NX / 4u;

var<workgroup> stage: array<vec4<f32>, STAGE>;
var<workgroup> lanes: array<vec4<f32>, LANES>; // for each row a number of each of its NX invocations

// The dimensions of a quad, none beyond the last.
fn dimensions(quad: u32) -> vec4<u32> {
  let d = vec4<u32>(quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
  return select(d, min(d, vec4<u32>(p.d - 1u)), IS_PADDED);
}

// Zero for dimensions beyond the last.
fn within(quad: u32, x: vec4<f32>) -> vec4<f32> {
  let d = vec4<u32>(quad * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
  return select(x, vec4<f32>(0.0), vec4<bool>(IS_PADDED) & (d >= vec4<u32>(p.d)));
}

// The columns of quad `g` of an invocation's scores in a row.
fn columns_of(tx: u32, g: u32) -> vec4<u32> {
  return vec4<u32>(g * 4u * NX + tx) + vec4<u32>(0u, NX, 2u * NX, 3u * NX);
}

// Whether queries at these places see these keys.
fn sees(place: vec4<u32>, key: vec4<u32>) -> vec4<bool> {
  return (key < vec4<u32>(p.n_keys)) & (key <= place) & (key + p.window > place);
}

// Whether any of BR x BC queries and keys may not see each other: n queries from place `place` on, keys from `key` on, m of
// them.
fn is_edge(place: u32, n: u32, key: u32, m: u32) -> bool {
  return key + m > min(p.n_keys, place + 1u) || place + n > key + p.window;
}

// What to fetch for the step after this one: the first rows and columns of add_scores, or the first columns of
// add_products.
struct Fetch {
  is_scores: bool,
  a: u32,
  b: u32,
  row: u32,
  column: u32,
}

// Loads to registers quads `first` .. of rows and columns, for add_scores.
fn fetch_scores(next: ptr<function, array<vec4<f32>, NEXT>>, f: Fetch, first: u32, t: u32) {
  // @unroll
  for (var i = 0u; i < ROW_QUADS; i++) {
    let e = t + i * THREADS;
    (*next)[i] = row_quad(f.a, f.row + e / CQ, first + e % CQ);
  }
  // @unroll
  for (var i = 0u; i < COLUMN_QUADS; i++) {
    let e = t + i * THREADS;
    (*next)[ROW_QUADS + i] = column_quad(f.b, f.column + e / CQ, first + e % CQ);
  }
}

// Loads to registers the columns of quads `first` .. of group `g` of the weights, for add_products: the first columns of
// VQ quads, the second ones, the third, the fourth.
fn fetch_values(next: ptr<function, array<vec4<f32>, NEXT>>, f: Fetch, g: u32, first: u32, t: u32) {
  // @unroll
  for (var i = 0u; i < VALUE_QUADS; i++) {
    let e = t + i * THREADS;
    let column = (g * 4u + e / SV / VQ) * NX + first + e / SV % VQ;
    (*next)[i] = column_quad(f.b, f.column + column, e % SV);
  }
}

fn fetch(next: ptr<function, array<vec4<f32>, NEXT>>, f: Fetch, t: u32) {
  if (f.is_scores) {
    fetch_scores(next, f, 0u, t);
  } else {
    fetch_values(next, f, 0u, 0u, t);
  }
}

// s += rows of operand a times columns of operand b, the first of which have been fetched; fetches what follows.
fn add_scores(s: ptr<function, array<vec4<f32>, SCORES>>, next: ptr<function, array<vec4<f32>, NEXT>>, f: Fetch,
              then: Fetch, t: u32) {
  for (var first = 0u; first < SV; first += CQ) {
    workgroupBarrier(); // what was staged has been read
    // @unroll
    for (var i = 0u; i < ROW_QUADS; i++) {
      let e = t + i * THREADS;
      stage[e / CQ * ROW + e % CQ] = (*next)[i];
    }
    // @unroll
    for (var i = 0u; i < COLUMN_QUADS; i++) {
      let e = t + i * THREADS;
      stage[COLUMNS + e / CQ * ROW + e % CQ] = (*next)[ROW_QUADS + i];
    }
    workgroupBarrier();
    if (first + CQ < SV) {
      fetch_scores(next, f, first + CQ, t);
    } else {
      fetch(next, then, t);
    }
    let left_at = t / NX * ROW;
    let right_at = COLUMNS + t % NX * ROW;
    for (var d = 0u; d < CQ; d++) {
      var right: array<vec4<f32>, C>;
      // @unroll
      for (var j = 0u; j < C; j++) {
        right[j] = stage[right_at + d + j * NX * ROW];
      }
      // @unroll
      for (var r = 0u; r < R; r++) {
        let left = stage[left_at + d + r * NY * ROW];
        // @unroll
        for (var e = 0u; e < 4u; e++) {
          // @unroll
          for (var g = 0u; g < GROUPS; g++) {
            (*s)[r * GROUPS + g] = fma(vec4<f32>(left[e]),
                                       vec4<f32>(right[g * 4u][e], right[g * 4u + 1u][e], right[g * 4u + 2u][e],
                                                 right[g * 4u + 3u][e]),
                                       (*s)[r * GROUPS + g]);
          }
        }
      }
    }
  }
}

// sums += weights, which lie as scores do, times columns of operand b, the first of which have been fetched; fetches what
// follows.
fn add_products(sums: ptr<function, array<vec4<f32>, OUTPUTS>>, weights: ptr<function, array<vec4<f32>, SCORES>>,
                next: ptr<function, array<vec4<f32>, NEXT>>, f: Fetch, then: Fetch, t: u32) {
  let tx = t % NX;
  let ty = t / NX;
  // @unroll
  for (var g = 0u; g < GROUPS; g++) {
    workgroupBarrier(); // what was staged has been read
    // @unroll
    for (var r = 0u; r < R; r++) {
      stage[(r * NY + ty) * WEIGHTS + tx] = (*weights)[r * GROUPS + g];
    }
    for (var first = 0u; first < NX; first += VQ) {
      if (first > 0u) {
        workgroupBarrier(); // the columns have been read
      }
      // @unroll
      for (var i = 0u; i < VALUE_QUADS; i++) {
        stage[VALUES + t + i * THREADS] = (*next)[i];
      }
      workgroupBarrier();
      if (first + VQ < NX) {
        fetch_values(next, f, g, first + VQ, t);
      } else if (g + 1u < GROUPS) {
        fetch_values(next, f, g + 1u, 0u, t);
      } else {
        fetch(next, then, t);
      }
      for (var i = 0u; i < VQ; i++) {
        var right: array<vec4<f32>, RIGHT>;
        // @unroll
        for (var e = 0u; e < 4u; e++) {
          // @unroll
          for (var j = 0u; j < OQ; j++) {
            right[e * OQ + j] = stage[VALUES + i * SV + tx + e * VQ * SV + j * NX];
          }
        }
        // @unroll
        for (var r = 0u; r < R; r++) {
          let w = stage[ty * WEIGHTS + first + i + r * NY * WEIGHTS];
          // @unroll
          for (var e = 0u; e < 4u; e++) {
            // @unroll
            for (var j = 0u; j < OQ; j++) {
              (*sums)[r * OQ + j] = fma(vec4<f32>(w[e]), right[e * OQ + j], (*sums)[r * OQ + j]);
            }
          }
        }
      }
    }
  }
}

// A number for row `r` of an invocation, for its neighbours.
fn put_lane(r: u32, t: u32, x: f32) {
  let lane = (r * NY + t / NX) * NX + t % NX;
  lanes[lane / 4u][lane % 4u] = x;
}

// The sum of what the NX invocations of row `r` have put, and the largest of it.
fn lane_sum(r: u32, t: u32) -> f32 {
  var sum = vec4<f32>(0.0);
  // @unroll
  for (var x = 0u; x < LANE_QUADS; x++) {
    sum += lanes[(r * NY + t / NX) * LANE_QUADS + x];
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

fn lane_max(r: u32, t: u32) -> f32 {
  var most = lanes[(r * NY + t / NX) * LANE_QUADS];
  // @unroll
  for (var x = 1u; x < LANE_QUADS; x++) {
    most = max(most, lanes[(r * NY + t / NX) * LANE_QUADS + x]);
  }
  return max(max(most.x, most.y), max(most.z, most.w));
}
