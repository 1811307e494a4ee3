// scale_in_place: p.n words of y times the f32 whose bits p.value is, four words an invocation.
//
// Shapes and masks: as in fill.wgsl.  Halves are multiplied as f32 and rounded.
// Invariant: the grid's surplus does nothing.

const Y_DTYPE = 0u;
const PER = 4u;

@group(0) @binding(0) var<storage, read_write> y: array<u32>;

fn scaled(word: u32, index: u32) -> u32 {
  return stored_as(real_in(word, Y_DTYPE, index) * bitcast<f32>(p.value), Y_DTYPE);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = (group.x + group.y * groups.x) * 256u * PER + t;
  // @unroll
  for (var k = 0u; k < PER; k++) {
    let i = first + k * 256u;
    if (i < p.n) {
      let mask = select(0xffffffffu, p.first_mask, i == 0u) & select(0xffffffffu, p.last_mask, i == p.n - 1u);
      let before = y[p.y_offset + i];
      var bits = scaled(before, 0u);
      if (is_half(Y_DTYPE)) {
        bits |= scaled(before, 1u) << 16u;
      }
      y[p.y_offset + i] = (bits & mask) | (before & ~mask);
    }
  }
}
