// attention: y = softmax(q k^T * scale) v for each head, in one pass over the keys (Dao et al. 2022): a running maximum
// and a sum relative to it for each query, so that no matrix of scores exists.
//
// Shapes: q, y [B,T,H*D], k, v [B,S,G*D], rows and batches by strides; head h uses key/value head h * G/H.  lse [B,T,H]:
// the log of the sum of exp(scores * scale), for the gradient.  Rows are queries, columns are keys (attention_tiles.wgsl).
// Scores are in units of log 2, so that weights are powers of 2.
// Invariants: all invocations reach every barrier.  A query that sees no key of its first steps sums rubbish, which the
// first key that it sees multiplies by 0.

@group(0) @binding(0) var<storage, read> q: array<Cell>;
@group(0) @binding(1) var<storage, read> k: array<Cell>;
@group(0) @binding(2) var<storage, read> v: array<Cell>;
@group(0) @binding(3) var<storage, read_write> y: array<Cell>;
@group(0) @binding(4) var<storage, read_write> lse: array<f32>;

const LOWEST = -3.0e38;
const LOG2_E = 1.44269504;
const LN_2 = 0.693147181;

// Where this head begins.
var<private> q_base: u32;
var<private> k_base: u32;
var<private> v_base: u32;

const Q = 0u;

fn row_quad(which: u32, row: u32, quad: u32) -> vec4<f32> {
  let i = q_base + min(row, p.n_queries - 1u) * p.q_row;
  let d = dimensions(quad) + vec4<u32>(i);
  return within(quad, quad_of(q[d.x / CELL], q[d.y / CELL], q[d.z / CELL], q[d.w / CELL]) * (p.scale * LOG2_E));
}

const K = 0u;
const V = 1u;

fn column_quad(which: u32, column: u32, quad: u32) -> vec4<f32> {
  let row = min(column, p.n_keys - 1u);
  if (which == K) {
    let d = dimensions(quad) + vec4<u32>(k_base + row * p.k_row);
    return within(quad, quad_of(k[d.x / CELL], k[d.y / CELL], k[d.z / CELL], k[d.w / CELL]));
  }
  let d = dimensions(quad) + vec4<u32>(v_base + row * p.v_row);
  return within(quad, quad_of(v[d.x / CELL], v[d.y / CELL], v[d.z / CELL], v[d.w / CELL]));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let tx = t % NX;
  let ty = t / NX;
  let head = group.x;
  let first_query = (groups.y - 1u - group.y) * BR; // causal tiles at the end have the most keys: they start first
  q_base = p.q_offset + group.z * p.q_batch + head * p.d;
  k_base = p.k_offset + group.z * p.k_batch + head / p.group * p.d;
  v_base = p.v_offset + group.z * p.v_batch + head / p.group * p.d;
  let place = first_query + p.shift; // of the first query, among the keys
  let end_key = min(p.n_keys, place + BR);
  var first_key = place + 1u - min(p.window, place + 1u);

  var next: array<vec4<f32>, NEXT>;
  fetch(&next, Fetch(true, Q, K, first_query, first_key), t);
  var sums: array<vec4<f32>, OUTPUTS>; // of weighted values
  var total: array<f32, R>;            // of weights of this invocation's own keys
  var most: array<f32, R>;             // the largest score so far
  // @unroll
  for (var i = 0u; i < OUTPUTS; i++) {
    sums[i] = vec4<f32>(0.0);
  }
  // @unroll
  for (var r = 0u; r < R; r++) {
    total[r] = 0.0;
    most[r] = LOWEST;
  }
  for (; first_key < end_key; first_key += BC) {
    var s: array<vec4<f32>, SCORES>;
    // @unroll
    for (var i = 0u; i < SCORES; i++) {
      s[i] = vec4<f32>(0.0); // a declaration in a loop clears it in the first round alone
    }
    add_scores(&s, &next, Fetch(true, Q, K, first_query, first_key), Fetch(false, 0u, V, 0u, first_key), t);
    if (is_edge(place, BR, first_key, BC)) {
      // @unroll
      for (var r = 0u; r < R; r++) {
        // @unroll
        for (var g = 0u; g < GROUPS; g++) {
          let seen = sees(vec4<u32>(place + r * NY + ty), columns_of(tx, g) + first_key);
          s[r * GROUPS + g] = select(vec4<f32>(LOWEST), s[r * GROUPS + g], seen);
        }
      }
    }
    // @unroll
    for (var r = 0u; r < R; r++) {
      var largest = s[r * GROUPS];
      // @unroll
      for (var g = 1u; g < GROUPS; g++) {
        largest = max(largest, s[r * GROUPS + g]);
      }
      put_lane(r, t, max(max(largest.x, largest.y), max(largest.z, largest.w)));
    }
    workgroupBarrier();
    // @unroll
    for (var r = 0u; r < R; r++) {
      let largest = max(most[r], lane_max(r, t));
      let factor = exp2(most[r] - largest);
      most[r] = largest;
      var sum = vec4<f32>(0.0);
      // @unroll
      for (var g = 0u; g < GROUPS; g++) {
        let w = exp2(s[r * GROUPS + g] - largest);
        s[r * GROUPS + g] = w;
        sum += w;
      }
      total[r] = total[r] * factor + ((sum.x + sum.y) + (sum.z + sum.w));
      // @unroll
      for (var j = 0u; j < OQ; j++) {
        sums[r * OQ + j] *= factor;
      }
    }
    add_products(&sums, &s, &next, Fetch(false, 0u, V, 0u, first_key),
                 Fetch(true, Q, K, first_query, first_key + BC), t);
  }

  workgroupBarrier(); // the maxima of the last step have been read
  // @unroll
  for (var r = 0u; r < R; r++) {
    put_lane(r, t, total[r]);
  }
  workgroupBarrier();
  // @unroll
  for (var r = 0u; r < R; r++) {
    let sum = lane_sum(r, t);
    let query = first_query + r * NY + ty;
    if (query < p.n_queries) {
      let row = p.y_offset + group.z * p.y_batch + query * p.y_row + head * p.d;
      // @unroll
      for (var j = 0u; j < OQ; j++) {
        let quad = sums[r * OQ + j] / sum;
        let d = (j * NX + tx) * 4u;
        for (var i = 0u; i < 4u; i += CELL) {
          if (!IS_PADDED || d + i < p.d) {
            y[(row + d + i) / CELL] = cell_of(quad, i);
          }
        }
      }
      if (tx == 0u) {
        lse[p.lse_offset + (group.z * p.n_queries + query) * p.n_heads + head] = (most[r] + log2(sum)) * LN_2;
      }
    }
  }
}
