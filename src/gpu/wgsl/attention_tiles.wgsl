// attention_tiles: what attention.wgsl and its gradients (attention_grad_*.wgsl) share; part of the tile kernels of
// kernels.def.
//
// A workgroup owns BR rows (queries, or keys) of one head and walks the columns (keys, or queries) in steps of BC.  An
// invocation (tx, ty) of NX * NY owns R rows that lie NY apart times C columns that lie NX apart of the scores, and the
// same rows times quads of dimensions that lie NX apart of what is summed.  A head's D dimensions are padded to DP.
// Workgroup memory holds in turn
//   for add_scores    CH dimensions of all rows and all columns, [BR][CH] and [BC][CH], a quad of padding a row against
//                     bank conflicts
//   for add_products  a weight for each row and column, [BR][BC] with such padding; behind it CV columns, [CV][DP]
// Weights stand so that an invocation's four scores of a row are one quad: quad g * NX + tx has the columns (g * 4 + e) *
// NX + tx.
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
const STAGE = 1600u; // quads: the larger of both uses
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
const STAGED = ROW_QUADS + COLUMN_QUADS;
const WEIGHTS = BC / 4u + 1u; // quads of a row of weights
const VALUES = BR * WEIGHTS;  // where the columns begin behind the weights
const VQ = CV / 4u;
const SV = DP / 4u;
const VALUE_QUADS = CV * SV / THREADS;
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

// s += rows of operand a times columns of operand b.
fn add_scores(s: ptr<function, array<vec4<f32>, SCORES>>, a: u32, b: u32, first_row: u32, first_column: u32, t: u32) {
  var staged: array<vec4<f32>, STAGED>;
  for (var first = 0u; first < SV; first += CQ) {
    // @unroll
    for (var i = 0u; i < ROW_QUADS; i++) {
      let e = t + i * THREADS;
      staged[i] = row_quad(a, first_row + e / CQ, first + e % CQ);
    }
    // @unroll
    for (var i = 0u; i < COLUMN_QUADS; i++) {
      let e = t + i * THREADS;
      staged[ROW_QUADS + i] = column_quad(b, first_column + e / CQ, first + e % CQ);
    }
    workgroupBarrier(); // what was staged has been read
    // @unroll
    for (var i = 0u; i < ROW_QUADS; i++) {
      let e = t + i * THREADS;
      stage[e / CQ * ROW + e % CQ] = staged[i];
    }
    // @unroll
    for (var i = 0u; i < COLUMN_QUADS; i++) {
      let e = t + i * THREADS;
      stage[COLUMNS + e / CQ * ROW + e % CQ] = staged[ROW_QUADS + i];
    }
    workgroupBarrier();
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

// Weight quad `g` of row `r` of an invocation; all have passed a barrier since the stage was read.
fn put_weights(r: u32, g: u32, t: u32, w: vec4<f32>) {
  stage[(r * NY + t / NX) * WEIGHTS + g * NX + t % NX] = w;
}

// sums += weights times columns of operand b.
fn add_products(sums: ptr<function, array<vec4<f32>, OUTPUTS>>, b: u32, first_column: u32, t: u32) {
  var staged: array<vec4<f32>, VALUE_QUADS>;
  let tx = t % NX;
  for (var first = 0u; first < BC / 4u; first += VQ) {
    // @unroll
    for (var i = 0u; i < VALUE_QUADS; i++) {
      let place = (t + i * THREADS) / SV; // VQ first columns of quads, VQ second ones ...
      let quad = first + place % VQ;
      staged[i] = column_quad(b, first_column + (quad / NX * 4u + place / VQ) * NX + quad % NX, (t + i * THREADS) % SV);
    }
    if (first > 0u) {
      workgroupBarrier(); // the columns have been read
    }
    // @unroll
    for (var i = 0u; i < VALUE_QUADS; i++) {
      stage[VALUES + t + i * THREADS] = staged[i];
    }
    workgroupBarrier();
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
        let w = stage[t / NX * WEIGHTS + first + i + r * NY * WEIGHTS];
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
