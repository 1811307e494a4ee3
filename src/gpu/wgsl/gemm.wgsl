// gemm: C = A @ B, f32, register-tiled.  For extents that are multiples of the tile (others: gemm_edge.wgsl).
//
// Shapes: A [m,k] (TRANS_A: stored [k,m]), B [k,n] (TRANS_B: stored [n,k]), C [m,n]; z counts batches, and slices of k.
// A workgroup owns BM x BN of C and walks its range of k in steps of SLICES*BK.  Both tiles are staged in workgroup memory,
// k-major, so that a row of either is contiguous; the next step's elements are on their way to registers while this step's
// are multiplied.  SLICES groups of NX*NY invocations share a step: group s multiplies rows s*BK .. of the tiles, and the
// groups' sums are added at the end.  An invocation owns quads of rows and columns that lie NY and NX quads apart, so that
// neighbours read neighbouring quads.
// Invariants: BM, BN multiples of 4*NY, 4*NX; strides and offsets multiples of 4; all invocations reach every barrier.

const BM = 128u;
const BN = 128u;
const BK = 8u;
const NX = 16u;
const NY = 16u;
const SLICES = 1u;
const TRANS_A = false;
const TRANS_B = false;
const ACCUMULATE = false; // C += A @ B

const THREADS = NX * NY * SLICES;
const STEP = BK * SLICES;
const QA = BM * STEP / 4u / THREADS; // quads of A that an invocation stages
const QB = BN * STEP / 4u / THREADS;
const IM = BM / (4u * NY);           // quads of rows that it owns
const IN = BN / (4u * NX);
const SA = BM / 4u + 1u;             // quads of a staged row; one more spreads transposing stores over the banks
const SB = BN / 4u + 1u;
const TILE_B = SA * STEP;            // where B's tile begins
const TILES = (SA + SB) * STEP;
const PART = 4u * IN;                // quads of C in a quad of its rows; those of NX * NY invocations fit the tiles
const OUTPUTS = IM * PART;           // quads of C (v22 wants the sizes of arrays as names)

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;

var<workgroup> tile: array<vec4<f32>, TILES>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let batch = group.z % p.n_batch;
  let slice = group.z / p.n_batch;
  let tx = t % NX;
  var ty = t / NX;
  var own = 0u; // this group's first row of the tiles
  if (SLICES > 1u) {
    ty = t / NX % NY;
    own = t / (NX * NY) * BK;
  }
  let row0 = group.y * BM;
  let col0 = group.x * BN;
  let k0 = slice * p.k_slice;
  let n_steps = (min(p.k, k0 + p.k_slice) - k0) / STEP;
  let lda = p.lda / 4u;
  let ldb = p.ldb / 4u;

  // Where this invocation's quads of A and B come from, and how far the next step is.
  var from_a: array<u32, QA>;
  var from_b: array<u32, QB>;
  var next_a: array<vec4<f32>, QA>;
  var next_b: array<vec4<f32>, QB>;
  let base_a = (p.a_offset + batch * p.a_batch) / 4u;
  let base_b = (p.b_offset + batch * p.b_batch) / 4u;
  let step_a = select(STEP / 4u, STEP * lda, TRANS_A);
  let step_b = select(STEP * ldb, STEP / 4u, TRANS_B);
  // @unroll
  for (var i = 0u; i < QA; i++) {
    let e = t + i * THREADS;
    if (TRANS_A) {
      from_a[i] = base_a + (k0 + e / (BM / 4u)) * lda + row0 / 4u + e % (BM / 4u);
    } else {
      from_a[i] = base_a + (row0 + e / (STEP / 4u)) * lda + k0 / 4u + e % (STEP / 4u);
    }
    next_a[i] = a[from_a[i]];
  }
  // @unroll
  for (var i = 0u; i < QB; i++) {
    let e = t + i * THREADS;
    if (TRANS_B) {
      from_b[i] = base_b + (col0 + e / (STEP / 4u)) * ldb + k0 / 4u + e % (STEP / 4u);
    } else {
      from_b[i] = base_b + (k0 + e / (BN / 4u)) * ldb + col0 / 4u + e % (BN / 4u);
    }
    next_b[i] = b[from_b[i]];
  }

  var acc: array<vec4<f32>, OUTPUTS>;
  for (var step = 0u; step < n_steps; step++) {
    // @unroll
    for (var i = 0u; i < QA; i++) {
      let e = t + i * THREADS;
      if (TRANS_A) {
        tile[e / (BM / 4u) * SA + e % (BM / 4u)] = next_a[i];
      } else {
        let row = e / (STEP / 4u);
        let k = e % (STEP / 4u) * 4u;
        tile[k * SA + row / 4u][row % 4u] = next_a[i].x;
        tile[(k + 1u) * SA + row / 4u][row % 4u] = next_a[i].y;
        tile[(k + 2u) * SA + row / 4u][row % 4u] = next_a[i].z;
        tile[(k + 3u) * SA + row / 4u][row % 4u] = next_a[i].w;
      }
    }
    // @unroll
    for (var i = 0u; i < QB; i++) {
      let e = t + i * THREADS;
      if (TRANS_B) {
        let col = e / (STEP / 4u);
        let k = e % (STEP / 4u) * 4u;
        tile[TILE_B + k * SB + col / 4u][col % 4u] = next_b[i].x;
        tile[TILE_B + (k + 1u) * SB + col / 4u][col % 4u] = next_b[i].y;
        tile[TILE_B + (k + 2u) * SB + col / 4u][col % 4u] = next_b[i].z;
        tile[TILE_B + (k + 3u) * SB + col / 4u][col % 4u] = next_b[i].w;
      } else {
        tile[TILE_B + e / (BN / 4u) * SB + e % (BN / 4u)] = next_b[i];
      }
    }
    workgroupBarrier();
    if (step + 1u < n_steps) {
      // @unroll
      for (var i = 0u; i < QA; i++) {
        from_a[i] += step_a;
        next_a[i] = a[from_a[i]];
      }
      // @unroll
      for (var i = 0u; i < QB; i++) {
        from_b[i] += step_b;
        next_b[i] = b[from_b[i]];
      }
    }
    // @unroll
    for (var k = 0u; k < BK; k++) {
      var left: array<vec4<f32>, IM>;
      var right: array<vec4<f32>, IN>;
      // @unroll
      for (var i = 0u; i < IM; i++) {
        left[i] = tile[(own + k) * SA + i * NY + ty];
      }
      // @unroll
      for (var j = 0u; j < IN; j++) {
        right[j] = tile[TILE_B + (own + k) * SB + j * NX + tx];
      }
      // @unroll
      for (var i = 0u; i < IM; i++) {
        // @unroll
        for (var r = 0u; r < 4u; r++) {
          // @unroll
          for (var j = 0u; j < IN; j++) {
            acc[(i * 4u + r) * IN + j] = fma(vec4<f32>(left[i][r]), right[j], acc[(i * 4u + r) * IN + j]);
          }
        }
      }
    }
    workgroupBarrier();
  }

  // The groups' sums: one group after another hands its own to the first, through the tiles' memory, which has room for
  // those of a quad of rows of each invocation.
  // @unroll
  for (var s = 1u; s < SLICES; s++) {
    // @unroll
    for (var part = 0u; part < IM; part++) {
      if (own == s * BK) {
        // @unroll
        for (var i = 0u; i < PART; i++) {
          tile[i * NX * NY + ty * NX + tx] = acc[part * PART + i];
        }
      }
      workgroupBarrier();
      if (own == 0u) {
        // @unroll
        for (var i = 0u; i < PART; i++) {
          acc[part * PART + i] += tile[i * NX * NY + ty * NX + tx];
        }
      }
      workgroupBarrier();
    }
  }
  if (own == 0u) {
    let base_c = (p.c_offset + batch * p.c_batch + slice * p.c_slice) / 4u;
    // @unroll
    for (var i = 0u; i < IM; i++) {
      // @unroll
      for (var r = 0u; r < 4u; r++) {
        let row = base_c + (row0 + (i * NY + ty) * 4u + r) * (p.ldc / 4u) + col0 / 4u + tx;
        // @unroll
        for (var j = 0u; j < IN; j++) {
          if (ACCUMULATE) {
            c[row + j * NX] += acc[(i * 4u + r) * IN + j];
          } else {
            c[row + j * NX] = acc[(i * 4u + r) * IN + j];
          }
        }
      }
    }
  }
}
