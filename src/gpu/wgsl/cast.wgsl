// cast: y = a in another dtype, both contiguous: a quad of y an invocation.
//
// Shapes: p.n quads of four elements, or of eight halves; p.a_offset and p.y_offset in elements, multiples of eight.
// Invariant: the grid's surplus does nothing.

const A_DTYPE = 0u;
const Y_DTYPE = 1u;

@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

// Four elements of a, from a multiple of four on.
fn four_at(index: u32) -> vec4<f32> {
  if (is_half(A_DTYPE)) {
    let quad = a[index / 8u];
    let words = select(quad.xy, quad.zw, index % 8u == 4u);
    return vec4<f32>(number_in(words.x, A_DTYPE, 0u), number_in(words.x, A_DTYPE, 1u), number_in(words.y, A_DTYPE, 0u),
                     number_in(words.y, A_DTYPE, 1u));
  }
  let quad = a[index / 4u];
  return vec4<f32>(number_in(quad.x, A_DTYPE, 0u), number_in(quad.y, A_DTYPE, 0u), number_in(quad.z, A_DTYPE, 0u),
                   number_in(quad.w, A_DTYPE, 0u));
}

fn stored_four(x: vec4<f32>) -> vec4<u32> {
  return vec4<u32>(stored_as(x.x, Y_DTYPE), stored_as(x.y, Y_DTYPE), stored_as(x.z, Y_DTYPE), stored_as(x.w, Y_DTYPE));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    if (is_half(Y_DTYPE)) {
      let low = stored_four(four_at(p.a_offset + 8u * i));
      let high = stored_four(four_at(p.a_offset + 8u * i + 4u));
      y[p.y_offset / 8u + i] = vec4<u32>(low.xz, high.xz) | (vec4<u32>(low.yw, high.yw) << vec4<u32>(16u));
    } else {
      y[p.y_offset / 4u + i] = stored_four(four_at(p.a_offset + 4u * i));
    }
  }
}
