// gemm_study: C = A @ B the way textbooks do it, to be measured beside gemm.wgsl: each invocation computes OUTPUTS elements
// of a column, from memory (STAGED false) or from TILE x TILE tiles in workgroup memory.
//
// Shapes: A [m,k], B [k,n], C [m,n], rows lda, ldb, ldc apart; z counts batches.
// Invariant: all invocations reach every barrier; nothing outside the operands is read or written.

const TILE = 16u;
const OUTPUTS = 1u;
const STAGED = true;

const ROWS = TILE / OUTPUTS; // of invocations
const AREA = TILE * TILE;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

var<workgroup> tile_a: array<f32, AREA>;
var<workgroup> tile_b: array<f32, AREA>;

@compute @workgroup_size(TILE, ROWS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) t: vec3<u32>) {
  let col = group.x * TILE + t.x;
  let row0 = group.y * TILE + t.y;
  let base_a = p.a_offset + group.z * p.a_batch;
  let base_b = p.b_offset + group.z * p.b_batch;
  var acc: array<f32, OUTPUTS>;
  if (STAGED) {
    for (var k0 = 0u; k0 < p.k; k0 += TILE) {
      // @unroll
      for (var i = 0u; i < OUTPUTS; i++) {
        let row = row0 + i * ROWS;
        let k = t.y + i * ROWS;
        tile_a[k * TILE + t.x] = 0.0;
        if (row < p.m && k0 + t.x < p.k) {
          tile_a[k * TILE + t.x] = a[base_a + row * p.lda + k0 + t.x];
        }
        tile_b[k * TILE + t.x] = 0.0;
        if (k0 + k < p.k && col < p.n) {
          tile_b[k * TILE + t.x] = b[base_b + (k0 + k) * p.ldb + col];
        }
      }
      workgroupBarrier();
      for (var k = 0u; k < TILE; k++) {
        let right = tile_b[k * TILE + t.x];
        // @unroll
        for (var i = 0u; i < OUTPUTS; i++) {
          acc[i] = fma(tile_a[(t.y + i * ROWS) * TILE + k], right, acc[i]);
        }
      }
      workgroupBarrier();
    }
  } else {
    for (var k = 0u; k < p.k; k++) {
      // @unroll
      for (var i = 0u; i < OUTPUTS; i++) {
        let row = row0 + i * ROWS;
        if (row < p.m && col < p.n) {
          acc[i] = fma(a[base_a + row * p.lda + k], b[base_b + k * p.ldb + col], acc[i]);
        }
      }
    }
  }
  // @unroll
  for (var i = 0u; i < OUTPUTS; i++) {
    let row = row0 + i * ROWS;
    if (row < p.m && col < p.n) {
      c[p.c_offset + group.z * p.c_batch + row * p.ldc + col] = acc[i];
    }
  }
}
