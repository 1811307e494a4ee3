// matvec: y[r] = sum over i of A[r,i] * x[i]: one workgroup a row, four quads in flight an invocation.
//
// Shapes: A [m,k] rows lda apart, f32 or halves; x [k], y [m] c_stride apart, f32.  k, lda and the offsets are multiples of
// the elements of a quad of A: 4, or 8 halves, which meet two quads of x (X_QUADS).
// Bound by memory: a single load in flight an invocation reaches less than half of its speed.
// Invariant: all invocations reach every barrier.

const A_DTYPE = 0u;
const X_QUADS = 1u;
const THREADS = 256u;
const UNROLL = 4u;

@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> sums: array<f32, THREADS>;

fn halves(low: u32, high: u32) -> vec4<f32> {
  return vec4<f32>(real_in(low, A_DTYPE, 0u), real_in(low, A_DTYPE, 1u), real_in(high, A_DTYPE, 0u),
                   real_in(high, A_DTYPE, 1u));
}

// sum + a quad of A times what it meets, from quad i of x on.
fn add_quad(quad: vec4<u32>, i: u32, sum: vec4<f32>) -> vec4<f32> {
  if (X_QUADS == 2u) {
    return fma(halves(quad.x, quad.y), x[i], fma(halves(quad.z, quad.w), x[i + 1u], sum));
  }
  return fma(bitcast<vec4<f32>>(quad), x[i], sum);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let row = group.x + group.y * groups.x;
  let in_range = row < p.m;
  let n_quads = select(0u, p.k / (4u * X_QUADS), in_range);
  let base_a = p.a_offset / (4u * X_QUADS) + select(0u, row, in_range) * (p.lda / (4u * X_QUADS));
  let base_x = p.b_offset / 4u;
  var acc: array<vec4<f32>, UNROLL>;
  var i = t;
  for (; i + (UNROLL - 1u) * THREADS < n_quads; i += UNROLL * THREADS) {
    var left: array<vec4<u32>, UNROLL>;
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      left[u] = a[base_a + i + u * THREADS];
    }
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      acc[u] = add_quad(left[u], base_x + (i + u * THREADS) * X_QUADS, acc[u]);
    }
  }
  for (; i < n_quads; i += THREADS) {
    acc[0] = add_quad(a[base_a + i], base_x + i * X_QUADS, acc[0]);
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
