// fill: p.n elements of y = p.value, four words an invocation.
//
// Shapes: p.n words from p.y_offset on; p.value is f32's bits.  Of the first and the last word the bits outside p.first_mask
// and p.last_mask stay: halves that are not of the tensor.
// Invariant: the grid's surplus does nothing.

const Y_DTYPE = 0u;
const PER = 4u;

@group(0) @binding(0) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = (group.x + group.y * groups.x) * 256u * PER + t;
  let element = stored_as(bitcast<f32>(p.value), Y_DTYPE);
  let word = select(element, element * 0x10001u, is_half(Y_DTYPE));
  // @unroll
  for (var k = 0u; k < PER; k++) {
    let i = first + k * 256u;
    if (i < p.n) {
      let mask = select(0xffffffffu, p.first_mask, i == 0u) & select(0xffffffffu, p.last_mask, i == p.n - 1u);
      var bits = word;
      if (mask != 0xffffffffu) {
        bits = (word & mask) | (y[p.y_offset + i] & ~mask);
      }
      y[p.y_offset + i] = bits;
    }
  }
}
