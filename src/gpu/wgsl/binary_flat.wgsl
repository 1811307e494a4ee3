// binary_flat: y = a OP b for operands of one shape that lie contiguously; four elements an invocation and step.
//
// Shapes: n elements each; the offsets multiples of 4.
// OP: 0 add, 1 sub, 2 mul, 3 div.
// Invariant: the last n % 4 elements are written one by one.

const OP = 0u;
const UNROLL = 4u;

@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

fn apply(l: vec4<f32>, r: vec4<f32>) -> vec4<f32> {
  switch OP {
    case 0u: { return l + r; }
    case 1u: { return l - r; }
    case 2u: { return l * r; }
    default: { return l / r; }
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = (group.x + group.y * groups.x) * 256u * UNROLL + t;
  let from_a = p.a_offset / 4u + first;
  let from_b = p.b_offset / 4u + first;
  let to = p.y_offset / 4u + first;
  if (first - t + 256u * UNROLL <= p.n / 4u) {
    // The whole group's share exists: all loads are in flight before the first store.
    var left: array<vec4<f32>, UNROLL>;
    var right: array<vec4<f32>, UNROLL>;
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      left[u] = a[from_a + u * 256u];
      right[u] = b[from_b + u * 256u];
    }
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      y[to + u * 256u] = apply(left[u], right[u]);
    }
  } else {
    for (var u = 0u; u < UNROLL; u++) {
      let i = first + u * 256u;
      if (i < p.n / 4u) {
        y[to + u * 256u] = apply(a[from_a + u * 256u], b[from_b + u * 256u]);
      } else if (i == p.n / 4u) {
        let value = apply(a[from_a + u * 256u], b[from_b + u * 256u]);
        for (var r = 0u; r < p.n % 4u; r++) {
          y[to + u * 256u][r] = value[r];
        }
      }
    }
  }
}
