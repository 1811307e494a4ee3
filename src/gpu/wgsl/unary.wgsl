// unary: y = f(a) for contiguous elements, four an invocation and step.
//
// Shapes: n elements; the offsets multiples of 4.
// OP: 0 scale (a * p.factor), 1 relu, 2 gelu (erf form), 3 silu.
// erf: two polynomials, fitted at Chebyshev nodes: erf(x) / x in x^2 up to 1, log(erfc(x)) in x - 2.5 from 1 to 4; beyond
// 4 it is 1 in f32.  Each is within 8e-8.
// Invariant: the last n % 4 elements are written one by one.

const OP = 0u;
const UNROLL = 4u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;

fn erf(x: vec4<f32>) -> vec4<f32> {
  let z = min(abs(x), vec4<f32>(4.0));
  let s = z * z;
  var near = vec4<f32>(-0.000569671334233135);
  near = fma(near, s, vec4<f32>(0.004934519063681364));
  near = fma(near, s, vec4<f32>(-0.026726989075541496));
  near = fma(near, s, vec4<f32>(0.11280789226293564));
  near = fma(near, s, vec4<f32>(-0.37612414360046387));
  near = fma(near, s, vec4<f32>(1.1283791065216064));
  let w = z - 2.5;
  var far = vec4<f32>(-1.3309389942151029e-05);
  far = fma(far, w, vec4<f32>(8.465770224574953e-05));
  far = fma(far, w, vec4<f32>(-0.0004201445553917438));
  far = fma(far, w, vec4<f32>(0.0021549463272094727));
  far = fma(far, w, vec4<f32>(-0.01085851714015007));
  far = fma(far, w, vec4<f32>(-0.9438890218734741));
  far = fma(far, w, vec4<f32>(-5.352680683135986));
  far = fma(far, w, vec4<f32>(-7.8068156242370605));
  let value = select(1.0 - exp4(far), z * near, z < vec4<f32>(1.0));
  return select(value, -value, x < vec4<f32>(0.0));
}

fn apply(x: vec4<f32>) -> vec4<f32> {
  switch OP {
    case 0u: { return x * p.factor; }
    case 1u: { return max(x, vec4<f32>(0.0)); }
    case 2u: { return 0.5 * x * (1.0 + erf(x * 0.7071067811865476)); }
    default: { return x / (1.0 + exp4(-x)); }
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = (group.x + group.y * groups.x) * 256u * UNROLL + t;
  let from_a = p.a_offset / 4u + first;
  let to = p.y_offset / 4u + first;
  if (first - t + 256u * UNROLL <= p.n / 4u) {
    // The whole group's share exists: all loads are in flight before the first store.
    var left: array<vec4<f32>, UNROLL>;
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      left[u] = a[from_a + u * 256u];
    }
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      y[to + u * 256u] = apply(left[u]);
    }
  } else {
    for (var u = 0u; u < UNROLL; u++) {
      let i = first + u * 256u;
      if (i < p.n / 4u) {
        y[to + u * 256u] = apply(a[from_a + u * 256u]);
      } else if (i == p.n / 4u) {
        let value = apply(a[from_a + u * 256u]);
        for (var r = 0u; r < p.n % 4u; r++) {
          y[to + u * 256u][r] = value[r];
        }
      }
    }
  }
}
