// copy_quads: copy.wgsl where the innermost axis is contiguous on both sides: four elements an invocation.
//
// Shapes: as there, all extents of the innermost axis, strides and offsets counted in quads.
// Invariant: the grid's surplus does nothing.

@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    var rest = i;
    var at_a = p.a_offset;
    var at_y = p.y_offset;
    for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
      let extent = p.shape[axis / 4][axis % 4];
      let index = rest % extent;
      rest /= extent;
      at_a += index * p.a_strides[axis / 4][axis % 4];
      at_y += index * p.y_strides[axis / 4][axis % 4];
    }
    y[at_y] = a[at_a];
  }
}
