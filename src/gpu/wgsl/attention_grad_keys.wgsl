// attention_grad_keys: dk and dv of attention (Dao et al. 2022), after attention_grad_queries has written delta.
//
// Shapes: as there; dk, dv as k.  Rows are keys, columns are the queries of one head after another of those that share
// the key/value head, so that nothing is added up between workgroups.
//   p = exp(q k^T * scale - lse), ds = p * (dy v^T - delta), dv = p^T dy, dk = ds^T q * scale
// Invariant: all invocations reach every barrier.

@group(0) @binding(0) var<storage, read> q: array<Cell>;
@group(0) @binding(1) var<storage, read> k: array<Cell>;
@group(0) @binding(2) var<storage, read> v: array<Cell>;
@group(0) @binding(3) var<storage, read> dy: array<Cell>;
@group(0) @binding(4) var<storage, read> lse: array<f32>;
@group(0) @binding(5) var<storage, read> delta: array<f32>;
@group(0) @binding(6) var<storage, read_write> dk: array<Cell>;
@group(0) @binding(7) var<storage, read_write> dv: array<Cell>;

const LOG2_E = 1.44269504;

// Where this head begins.
var<private> q_base: u32;
var<private> k_base: u32;
var<private> v_base: u32;
var<private> dy_base: u32;

const K = 0u;
const V = 1u;

fn row_quad(which: u32, row: u32, quad: u32) -> vec4<f32> {
  let key = min(row, p.n_keys - 1u);
  if (which == K) {
    let d = dimensions(quad) + vec4<u32>(k_base + key * p.k_row);
    return within(quad, quad_of(k[d.x / CELL], k[d.y / CELL], k[d.z / CELL], k[d.w / CELL]) * (p.scale * LOG2_E));
  }
  let d = dimensions(quad) + vec4<u32>(v_base + key * p.v_row);
  return within(quad, quad_of(v[d.x / CELL], v[d.y / CELL], v[d.z / CELL], v[d.w / CELL]));
}

const Q = 0u;
const DY = 1u;

fn column_quad(which: u32, column: u32, quad: u32) -> vec4<f32> {
  let query = min(column, p.n_queries - 1u);
  if (which == Q) {
    let d = dimensions(quad) + vec4<u32>(q_base + query * p.q_row);
    return within(quad, quad_of(q[d.x / CELL], q[d.y / CELL], q[d.z / CELL], q[d.w / CELL]));
  }
  let d = dimensions(quad) + vec4<u32>(dy_base + query * p.dy_row);
  return within(quad, quad_of(dy[d.x / CELL], dy[d.y / CELL], dy[d.z / CELL], dy[d.w / CELL]));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let tx = t % NX;
  let ty = t / NX;
  let first_key = group.y * BR; // causal tiles at the beginning have the most queries: they start first
  k_base = p.k_offset + group.z * p.k_batch + group.x * p.d;
  v_base = p.v_offset + group.z * p.v_batch + group.x * p.d;
  // The first query stands where the first key does, the last one at most p.window - 1 behind the last key.
  let begin_query = max(first_key, p.shift) - p.shift;
  let end_query = min(p.n_queries, max(first_key + BR - 1u + p.window, p.shift) - p.shift);

  var next: array<vec4<f32>, NEXT>;
  var dk_sums: array<vec4<f32>, OUTPUTS>;
  var dv_sums: array<vec4<f32>, OUTPUTS>;
  // @unroll
  for (var i = 0u; i < OUTPUTS; i++) {
    dk_sums[i] = vec4<f32>(0.0);
    dv_sums[i] = vec4<f32>(0.0);
  }
  for (var head = group.x * p.group; head < (group.x + 1u) * p.group; head++) {
    q_base = p.q_offset + group.z * p.q_batch + head * p.d;
    dy_base = p.dy_offset + group.z * p.dy_batch + head * p.d;
    if (begin_query < end_query) {
      fetch(&next, Fetch(true, K, Q, first_key, begin_query), t);
    }
    for (var first_query = begin_query; first_query < end_query; first_query += BC) {
      var s: array<vec4<f32>, SCORES>;
      var dp: array<vec4<f32>, SCORES>;
      // @unroll
      for (var i = 0u; i < SCORES; i++) {
        s[i] = vec4<f32>(0.0); // a declaration in a loop clears it in the first round alone
        dp[i] = vec4<f32>(0.0);
      }
      let scores = Fetch(true, K, Q, first_key, first_query);
      let products = Fetch(true, V, DY, first_key, first_query);
      let gradients = Fetch(false, 0u, DY, 0u, first_query);
      let queries = Fetch(false, 0u, Q, 0u, first_query);
      add_scores(&s, &next, scores, products, t);
      add_scores(&dp, &next, products, gradients, t);
      let is_masked = first_query + BC > p.n_queries || is_edge(first_query + p.shift, BC, first_key, BR);
      // @unroll
      for (var g = 0u; g < GROUPS; g++) {
        let query = columns_of(tx, g) + first_query;
        var logs: vec4<f32>;
        var deltas: vec4<f32>;
        // @unroll
        for (var e = 0u; e < 4u; e++) {
          let i = (group.z * p.n_queries + min(query[e], p.n_queries - 1u)) * p.n_heads + head;
          logs[e] = lse[p.lse_offset + i] * LOG2_E;
          deltas[e] = delta[p.delta_offset + i];
        }
        // @unroll
        for (var r = 0u; r < R; r++) {
          var weight = exp2(s[r * GROUPS + g] - logs);
          if (is_masked) {
            let seen = sees(query + p.shift, vec4<u32>(first_key + r * NY + ty));
            weight = select(vec4<f32>(0.0), weight, seen & (query < vec4<u32>(p.n_queries)));
          }
          s[r * GROUPS + g] = weight;
          dp[r * GROUPS + g] = weight * (dp[r * GROUPS + g] - deltas);
        }
      }
      add_products(&dv_sums, &s, &next, gradients, queries, t);
      add_products(&dk_sums, &dp, &next, queries, Fetch(true, K, Q, first_key, first_query + BC), t);
    }
  }

  // @unroll
  for (var r = 0u; r < R; r++) {
    let key = first_key + r * NY + ty;
    if (key < p.n_keys) {
      let dk_row = p.dk_offset + group.z * p.dk_batch + key * p.dk_row + group.x * p.d;
      let dv_row = p.dv_offset + group.z * p.dv_batch + key * p.dv_row + group.x * p.d;
      // @unroll
      for (var j = 0u; j < OQ; j++) {
        let dk_quad = dk_sums[r * OQ + j] * p.scale;
        let d = (j * NX + tx) * 4u;
        for (var i = 0u; i < 4u; i += CELL) {
          if (!IS_PADDED || d + i < p.d) {
            dk[(dk_row + d + i) / CELL] = cell_of(dk_quad, i);
            dv[(dv_row + d + i) / CELL] = cell_of(dv_sums[r * OQ + j], i);
          }
        }
      }
    }
  }
}
