// attention_grad_queries: dq of attention, and for attention_grad_keys the sums delta = rowsum(y * dy) (Dao et al. 2022).
//
// Shapes: as in attention.wgsl; dy, dq as q, lse and delta [B,T,H].  Rows are queries, columns are keys.
//   p = exp(q k^T * scale - lse), ds = p * (dy v^T - delta), dq = ds k * scale
// Invariant: all invocations reach every barrier.

@group(0) @binding(0) var<storage, read> q: array<Cell>;
@group(0) @binding(1) var<storage, read> k: array<Cell>;
@group(0) @binding(2) var<storage, read> v: array<Cell>;
@group(0) @binding(3) var<storage, read> dy: array<Cell>;
@group(0) @binding(4) var<storage, read> lse: array<f32>;
@group(0) @binding(5) var<storage, read> y: array<Cell>;
@group(0) @binding(6) var<storage, read_write> delta: array<f32>;
@group(0) @binding(7) var<storage, read_write> dq: array<Cell>;

const LOG2_E = 1.44269504;

// Where this head begins.
var<private> q_base: u32;
var<private> k_base: u32;
var<private> v_base: u32;
var<private> dy_base: u32;

const Q = 0u;
const DY = 1u;

fn row_quad(which: u32, row: u32, quad: u32) -> vec4<f32> {
  let query = min(row, p.n_queries - 1u);
  if (which == Q) {
    let d = dimensions(quad) + vec4<u32>(q_base + query * p.q_row);
    return within(quad, quad_of(q[d.x / CELL], q[d.y / CELL], q[d.z / CELL], q[d.w / CELL]) * (p.scale * LOG2_E));
  }
  let d = dimensions(quad) + vec4<u32>(dy_base + query * p.dy_row);
  return within(quad, quad_of(dy[d.x / CELL], dy[d.y / CELL], dy[d.z / CELL], dy[d.w / CELL]));
}

const K = 0u;
const V = 1u;

fn column_quad(which: u32, column: u32, quad: u32) -> vec4<f32> {
  let key = min(column, p.n_keys - 1u);
  if (which == K) {
    let d = dimensions(quad) + vec4<u32>(k_base + key * p.k_row);
    return within(quad, quad_of(k[d.x / CELL], k[d.y / CELL], k[d.z / CELL], k[d.w / CELL]));
  }
  let d = dimensions(quad) + vec4<u32>(v_base + key * p.v_row);
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
  dy_base = p.dy_offset + group.z * p.dy_batch + head * p.d;
  let place = first_query + p.shift; // of the first query, among the keys
  let end_key = min(p.n_keys, place + BR);
  var first_key = place + 1u - min(p.window, place + 1u);

  // ---- rowsum(y * dy) ----
  // @unroll
  for (var r = 0u; r < R; r++) {
    let query = min(first_query + r * NY + ty, p.n_queries - 1u);
    let y_base = p.y_offset + group.z * p.y_batch + query * p.y_row + head * p.d;
    var sum = 0.0;
    // @unroll
    for (var j = 0u; j < OQ; j++) {
      let quad = j * NX + tx;
      let d = dimensions(quad) + vec4<u32>(y_base);
      let outputs = quad_of(y[d.x / CELL], y[d.y / CELL], y[d.z / CELL], y[d.w / CELL]);
      sum += dot(outputs, row_quad(DY, query, quad)); // which is 0 beyond D
    }
    put_lane(r, t, sum);
  }
  workgroupBarrier();
  var deltas: array<f32, R>;
  var logs: array<f32, R>;
  // @unroll
  for (var r = 0u; r < R; r++) {
    let query = first_query + r * NY + ty;
    let i = (group.z * p.n_queries + min(query, p.n_queries - 1u)) * p.n_heads + head;
    deltas[r] = lane_sum(r, t);
    logs[r] = lse[p.lse_offset + i] * LOG2_E;
    if (tx == 0u && query < p.n_queries) {
      delta[p.delta_offset + i] = deltas[r];
    }
  }

  var next: array<vec4<f32>, NEXT>;
  fetch(&next, Fetch(true, Q, K, first_query, first_key), t);
  var sums: array<vec4<f32>, OUTPUTS>; // of ds k
  // @unroll
  for (var i = 0u; i < OUTPUTS; i++) {
    sums[i] = vec4<f32>(0.0);
  }
  for (; first_key < end_key; first_key += BC) {
    var s: array<vec4<f32>, SCORES>;
    var dp: array<vec4<f32>, SCORES>;
    // @unroll
    for (var i = 0u; i < SCORES; i++) {
      s[i] = vec4<f32>(0.0); // a declaration in a loop clears it in the first round alone
      dp[i] = vec4<f32>(0.0);
    }
    let scores = Fetch(true, Q, K, first_query, first_key);
    let products = Fetch(true, DY, V, first_query, first_key);
    let keys = Fetch(false, 0u, K, 0u, first_key);
    add_scores(&s, &next, scores, products, t);
    add_scores(&dp, &next, products, keys, t);
    let is_masked = is_edge(place, BR, first_key, BC);
    // @unroll
    for (var r = 0u; r < R; r++) {
      // @unroll
      for (var g = 0u; g < GROUPS; g++) {
        var weight = exp2(s[r * GROUPS + g] - logs[r]);
        if (is_masked) {
          let seen = sees(vec4<u32>(place + r * NY + ty), columns_of(tx, g) + first_key);
          weight = select(vec4<f32>(0.0), weight, seen);
        }
        s[r * GROUPS + g] = weight * (dp[r * GROUPS + g] - deltas[r]);
      }
    }
    add_products(&sums, &s, &next, keys, Fetch(true, Q, K, first_query, first_key + BC), t);
  }

  // @unroll
  for (var r = 0u; r < R; r++) {
    let query = first_query + r * NY + ty;
    if (query < p.n_queries) {
      let row = p.dq_offset + group.z * p.dq_batch + query * p.dq_row + head * p.d;
      // @unroll
      for (var j = 0u; j < OQ; j++) {
        let quad = sums[r * OQ + j] * p.scale;
        let d = (j * NX + tx) * 4u;
        for (var i = 0u; i < 4u; i += CELL) {
          if (!IS_PADDED || d + i < p.d) {
            dq[(row + d + i) / CELL] = cell_of(quad, i);
          }
        }
      }
    }
  }
}
