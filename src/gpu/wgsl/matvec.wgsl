// matvec: y[r] = sum over i of A[r,i] * x[i]: one workgroup a row, four quads in flight an invocation.
//
// Shapes: A [m,k] rows lda apart, x [k], y [m] c_stride apart; k, lda and the offsets multiples of 4.
// Bound by memory: a single load in flight an invocation reaches less than half of its speed.
// Invariant: all invocations reach every barrier.

const THREADS = 256u;
const UNROLL = 4u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> sums: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.m;
  let n_quads = select(0u, p.k / 4u, in_range);
  let base_a = p.a_offset / 4u + select(0u, row, in_range) * (p.lda / 4u);
  let base_x = p.b_offset / 4u;
  var acc: array<vec4<f32>, UNROLL>;
  var i = t;
  for (; i + (UNROLL - 1u) * THREADS < n_quads; i += UNROLL * THREADS) {
    var left: array<vec4<f32>, UNROLL>;
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      left[u] = a[base_a + i + u * THREADS];
    }
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      acc[u] = fma(left[u], x[base_x + i + u * THREADS], acc[u]);
    }
  }
  for (; i < n_quads; i += THREADS) {
    acc[0] = fma(a[base_a + i], x[base_x + i], acc[0]);
  }
  var total = vec4<f32>(0.0);
  // @unroll
  for (var u = 0u; u < UNROLL; u++) {
    total += acc[u];
  }
  sums[t] = total.x + total.y + total.z + total.w;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (t < half) {
      sums[t] += sums[t + half];
    }
    workgroupBarrier();
  }
  if (t == 0u && in_range) {
    y[p.c_offset + row * p.c_stride] = sums[0];
  }
}
