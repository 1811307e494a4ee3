// binary: y = a OP b with NumPy broadcasting: an element an invocation, its coordinates taken apart axis by axis.
//
// Shapes: y contiguous with up to 8 axes, shape[i] outermost first; a and b by their strides, 0 along a broadcast axis.
// The axes' extents and strides stand in vectors of four, as uniform memory wants it.
// OP as in binary_flat.wgsl.
// Invariant: the grid's surplus does nothing.

const OP = 0u;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    var rest = i + p.first;
    var from_a = p.a_offset;
    var from_b = p.b_offset;
    for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
      let extent = p.shape[axis / 4][axis % 4];
      let index = rest % extent;
      rest /= extent;
      from_a += index * p.a_strides[axis / 4][axis % 4];
      from_b += index * p.b_strides[axis / 4][axis % 4];
    }
    let l = a[from_a];
    let r = b[from_b];
    var value = l + r;
    if (OP == 1u) {
      value = l - r;
    } else if (OP == 2u) {
      value = l * r;
    } else if (OP == 3u) {
      value = l / r;
    }
    y[p.y_offset + i] = value;
  }
}
