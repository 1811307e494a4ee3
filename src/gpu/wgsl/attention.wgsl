// attention: y = softmax(q k^T * scale) v for each head, in one pass over the keys (Dao et al. 2022): a running maximum
// and a sum relative to it for each query, so that no matrix of scores exists.
//
// Shapes: q, y [B,T,H*D], k, v [B,S,G*D], rows and batches by strides; head h uses key/value head h * G/H.  With CAUSAL,
// query i sees the keys up to i + S - T.  D is padded to DP; the padding is read as zero and not written.
// A workgroup owns BQ queries of one head and walks the keys in tiles of BK.  An invocation owns 4 * RQ queries (quads of
// them, NY quads apart) times 4 keys of the scores, and the same queries times quads of y that lie NX quads apart.
//   chunk    a piece of q and k, [CH][BQ] and [CH][BK], dimensions outermost; later a piece of v, [CV][DP]
//   weights  exp of the scores, [BK][BQ], keys outermost; before that the maxima of NX invocations, [NX][BQ]
// Invariants: all invocations reach every barrier; a first key tile holds a visible key for each query, so a maximum is a
// real score when it counts.

const BQ = 64u;
const BK = 64u;
const NX = 16u; // BK / 4
const NY = 8u;
const RQ = 2u;  // BQ / (4 * NY)
const DP = 64u;
const CH = 32u; // dimensions of a piece of q and k
const CV = 32u; // keys of a piece of v
const CAUSAL = true;

const THREADS = NX * NY;
const QUERIES = RQ * 4u;
const OQ = DP / (4u * NX); // quads of y that an invocation owns for each query
const OUTPUTS = QUERIES * OQ;
const SQ = BQ / 4u;
const SK = BK / 4u + 1u;   // one more spreads transposing stores over the banks
const SV = DP / 4u;
const CHUNK_K = CH * SQ;   // where k's piece begins
const CHUNK = CH * (SQ + SK); // CV * SV is no larger
const WEIGHTS = BK * SQ;

@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

var<workgroup> chunk: array<vec4<f32>, CHUNK>;
var<workgroup> weights: array<vec4<f32>, WEIGHTS>;
var<workgroup> most: array<vec4<f32>, SQ>;   // the maximum of each query so far
var<workgroup> shrink: array<vec4<f32>, SQ>; // what older sums are multiplied by

const LOWEST = -1.0e30;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let tx = t % NX;
  let ty = t / NX;
  // Causal tiles at the end have the most keys: they start first.
  let first_query = select(group.x, groups.x - 1u - group.x, CAUSAL) * BQ;
  let kv_head = group.y / p.group;
  let q_base = p.q_offset + group.z * p.q_batch + group.y * p.d;
  let k_base = p.k_offset + group.z * p.k_batch + kv_head * p.d;
  let v_base = p.v_offset + group.z * p.v_batch + kv_head * p.d;
  var n_keys = p.n_keys;
  if (CAUSAL) {
    n_keys = min(n_keys, first_query + BQ + p.n_keys - p.n_queries);
  }

  var acc: array<vec4<f32>, OUTPUTS>;
  var sums: array<f32, QUERIES>; // of this invocation's own keys
  if (t < SQ) {
    most[t] = vec4<f32>(LOWEST);
  }
  for (var first_key = 0u; first_key < n_keys; first_key += BK) {
    // ---- scores ----
    var s: array<vec4<f32>, QUERIES>;
    // @unroll
    for (var i = 0u; i < QUERIES; i++) {
      s[i] = vec4<f32>(0.0); // a declaration in a loop clears it in the first round alone
    }
    for (var d0 = 0u; d0 < DP; d0 += CH) {
      workgroupBarrier(); // the chunk was read
      for (var i = t; i < CH * BQ; i += THREADS) {
        let d = i % CH;
        let row = i / CH;
        var x = 0.0;
        if (d0 + d < p.d && first_query + row < p.n_queries) {
          x = q[q_base + (first_query + row) * p.q_row + d0 + d] * p.scale;
        }
        chunk[d * SQ + row / 4u][row % 4u] = x;
      }
      for (var i = t; i < CH * BK; i += THREADS) {
        let d = i % CH;
        let row = i / CH;
        var x = 0.0;
        if (d0 + d < p.d && first_key + row < p.n_keys) {
          x = k[k_base + (first_key + row) * p.k_row + d0 + d];
        }
        chunk[CHUNK_K + d * SK + row / 4u][row % 4u] = x;
      }
      workgroupBarrier();
      for (var d = 0u; d < CH; d++) {
        let keys = chunk[CHUNK_K + d * SK + tx];
        // @unroll
        for (var i = 0u; i < RQ; i++) {
          let queries = chunk[d * SQ + i * NY + ty];
          // @unroll
          for (var r = 0u; r < 4u; r++) {
            s[i * 4u + r] = fma(vec4<f32>(queries[r]), keys, s[i * 4u + r]);
          }
        }
      }
    }
    if (first_key + BK > p.n_keys || CAUSAL && first_key + BK > first_query + p.n_keys - p.n_queries) {
      let key = vec4<u32>(first_key + tx * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
      // @unroll
      for (var i = 0u; i < RQ; i++) {
        // @unroll
        for (var r = 0u; r < 4u; r++) {
          var end = p.n_keys;
          if (CAUSAL) {
            end = min(end, first_query + (i * NY + ty) * 4u + r + p.n_keys - p.n_queries + 1u);
          }
          s[i * 4u + r] = select(s[i * 4u + r], vec4<f32>(LOWEST), key >= vec4<u32>(end));
        }
      }
    }

    // ---- the maximum of each query: of an invocation's keys, then of all ----
    // @unroll
    for (var i = 0u; i < RQ; i++) {
      var largest: vec4<f32>;
      // @unroll
      for (var r = 0u; r < 4u; r++) {
        let x = s[i * 4u + r];
        largest[r] = max(max(x.x, x.y), max(x.z, x.w));
      }
      weights[tx * SQ + i * NY + ty] = largest;
    }
    workgroupBarrier();
    if (t < SQ) {
      var largest = most[t];
      for (var i = 0u; i < NX; i++) {
        largest = max(largest, weights[i * SQ + t]);
      }
      shrink[t] = exp2((most[t] - largest) * 1.44269504);
      most[t] = largest;
    }
    workgroupBarrier();

    // ---- weights, and sums of them ----
    // @unroll
    for (var i = 0u; i < RQ; i++) {
      let largest = most[i * NY + ty];
      let factor = shrink[i * NY + ty];
      // @unroll
      for (var r = 0u; r < 4u; r++) {
        let w = exp2((s[i * 4u + r] - largest[r]) * 1.44269504);
        s[i * 4u + r] = w;
        sums[i * 4u + r] = sums[i * 4u + r] * factor[r] + (w.x + w.y + w.z + w.w);
        // @unroll
        for (var j = 0u; j < OQ; j++) {
          acc[(i * 4u + r) * OQ + j] *= factor[r];
        }
      }
      // @unroll
      for (var r = 0u; r < 4u; r++) {
        weights[(tx * 4u + r) * SQ + i * NY + ty] =
          vec4<f32>(s[i * 4u][r], s[i * 4u + 1u][r], s[i * 4u + 2u][r], s[i * 4u + 3u][r]);
      }
    }

    // ---- y += weights @ v ----
    for (var k0 = 0u; k0 < BK; k0 += CV) {
      if (k0 > 0u) {
        workgroupBarrier(); // the chunk was read; the scores' chunk was, before the maxima
      }
      for (var i = t; i < CV * DP; i += THREADS) {
        let d = i % DP;
        let row = first_key + k0 + i / DP;
        var x = 0.0;
        if (d < p.d && row < p.n_keys) {
          x = v[v_base + row * p.v_row + d];
        }
        chunk[i / DP * SV + d / 4u][d % 4u] = x;
      }
      workgroupBarrier();
      for (var key = 0u; key < CV; key++) {
        // @unroll
        for (var i = 0u; i < RQ; i++) {
          let w = weights[(k0 + key) * SQ + i * NY + ty];
          // @unroll
          for (var j = 0u; j < OQ; j++) {
            let values = chunk[key * SV + j * NX + tx];
            // @unroll
            for (var r = 0u; r < 4u; r++) {
              acc[(i * 4u + r) * OQ + j] = fma(vec4<f32>(w[r]), values, acc[(i * 4u + r) * OQ + j]);
            }
          }
        }
      }
    }
  }

  // ---- the sums of NX invocations, and the quotient ----
  workgroupBarrier();
  // @unroll
  for (var i = 0u; i < RQ; i++) {
    weights[tx * SQ + i * NY + ty] = vec4<f32>(sums[i * 4u], sums[i * 4u + 1u], sums[i * 4u + 2u], sums[i * 4u + 3u]);
  }
  workgroupBarrier();
  // @unroll
  for (var i = 0u; i < RQ; i++) {
    var sum = vec4<f32>(0.0);
    for (var x = 0u; x < NX; x++) {
      sum += weights[x * SQ + i * NY + ty];
    }
    // @unroll
    for (var r = 0u; r < 4u; r++) {
      let query = first_query + (i * NY + ty) * 4u + r;
      if (query < p.n_queries) {
        let row = p.y_offset + group.z * p.y_batch + query * p.y_row + group.y * p.d;
        // @unroll
        for (var j = 0u; j < OQ; j++) {
          let quad = acc[(i * 4u + r) * OQ + j] / sum[r];
          // @unroll
          for (var e = 0u; e < 4u; e++) {
            let d = (j * NX + tx) * 4u + e;
            if (d < p.d) {
              y[row + d] = quad[e];
            }
          }
        }
      }
    }
  }
}
