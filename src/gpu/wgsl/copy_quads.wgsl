// copy_quads: copy.wgsl without conversion where the innermost axis is contiguous on both sides: a quad of words an
// invocation.
//
// Shapes: as there, RANK axes; the innermost extent, strides and offsets are counted in quads.
// Invariant: the grid's surplus does nothing.

const RANK = 1u;

@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    var rest = i;
    var at = vec2<u32>(p.a_offset, p.y_offset);
    // @unroll
    for (var k = 0u; k < RANK; k++) {
      let axis = RANK - 1u - k;
      let extent = p.shape[axis / 4u][axis % 4u];
      let outer = select(rest / extent, 0u, axis == 0u); // nothing is left before the first axis
      at += (rest - outer * extent) * vec2<u32>(p.a_strides[axis / 4u][axis % 4u], p.y_strides[axis / 4u][axis % 4u]);
      rest = outer;
    }
    y[at.y] = a[at.x];
  }
}
