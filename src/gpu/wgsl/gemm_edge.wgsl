// gemm_edge: C = A @ B for any extents, strides and offsets; the layout of gemm.wgsl with loads and stores of single
// elements, guarded at the edges (outside they are zero).
//
// Invariants: all invocations reach every barrier; nothing outside the operands is read or written.

const BM = 64u;
const BN = 64u;
const BK = 16u;
const NX = 16u;
const NY = 16u;
const TRANS_A = false;
const TRANS_B = false;
const ACCUMULATE = false;

const THREADS = NX * NY;
const EA = BM * BK / THREADS; // elements of A that an invocation stages
const EB = BN * BK / THREADS;
const IM = BM / NY;           // rows that it owns, NY apart
const IN = BN / NX;
const OUTPUTS = IM * IN;
const TILE_A = BK * (BM + 1u); // a column more a row: fewer bank conflicts
const TILE_B = BK * (BN + 1u);

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

var<workgroup> tile_a: array<f32, TILE_A>;
var<workgroup> tile_b: array<f32, TILE_B>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
  let batch = group.z % p.n_batch;
  let slice = group.z / p.n_batch;
  let tx = t % NX;
  let ty = t / NX;
  let row0 = group.y * BM;
  let col0 = group.x * BN;
  let k_begin = slice * p.k_slice;
  let k_end = min(p.k, k_begin + p.k_slice);
  let base_a = p.a_offset + batch * p.a_batch;
  let base_b = p.b_offset + batch * p.b_batch;
  var acc: array<f32, OUTPUTS>;
  for (var k0 = k_begin; k0 < k_end; k0 += BK) {
    for (var i = 0u; i < EA; i++) {
      let e = t + i * THREADS;
      // Neighbouring invocations read neighbouring elements, whichever way A is stored.
      let row = select(e / BK, e % BM, TRANS_A);
      let k = select(e % BK, e / BM, TRANS_A);
      var x = 0.0;
      if (row0 + row < p.m && k0 + k < k_end) {
        x = a[base_a + select((row0 + row) * p.lda + k0 + k, (k0 + k) * p.lda + row0 + row, TRANS_A)];
      }
      tile_a[k * (BM + 1u) + row] = x;
    }
    for (var i = 0u; i < EB; i++) {
      let e = t + i * THREADS;
      let col = select(e % BN, e / BK, TRANS_B);
      let k = select(e / BN, e % BK, TRANS_B);
      var x = 0.0;
      if (col0 + col < p.n && k0 + k < k_end) {
        x = b[base_b + select((k0 + k) * p.ldb + col0 + col, (col0 + col) * p.ldb + k0 + k, TRANS_B)];
      }
      tile_b[k * (BN + 1u) + col] = x;
    }
    workgroupBarrier();
    for (var k = 0u; k < BK; k++) {
      var right: array<f32, IN>;
      // @unroll
      for (var j = 0u; j < IN; j++) {
        right[j] = tile_b[k * (BN + 1u) + j * NX + tx];
      }
      // @unroll
      for (var i = 0u; i < IM; i++) {
        let left = tile_a[k * (BM + 1u) + i * NY + ty];
        // @unroll
        for (var j = 0u; j < IN; j++) {
          acc[i * IN + j] = fma(left, right[j], acc[i * IN + j]);
        }
      }
    }
    workgroupBarrier();
  }
  let base_c = p.c_offset + batch * p.c_batch + slice * p.c_slice;
  // @unroll
  for (var i = 0u; i < IM; i++) {
    let row = row0 + i * NY + ty;
    // @unroll
    for (var j = 0u; j < IN; j++) {
      let col = col0 + j * NX + tx;
      if (row < p.m && col < p.n) {
        if (ACCUMULATE) {
          c[base_c + row * p.ldc + col] += acc[i * IN + j];
        } else {
          c[base_c + row * p.ldc + col] = acc[i * IN + j];
        }
      }
    }
  }
}
