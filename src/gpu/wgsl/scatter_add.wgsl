// scatter_add: y[..b[..i..]..] += c[..i..] along one axis, each term an atomic sum.
//
// Shapes: up to 8 axes, shape[i] of c outermost first; b_strides and c_strides in elements, b_strides 0 where b is
// broadcast; y_strides of the whole contiguous y, 0 along the indexed axis; b_places as in gather.  y's window holds n_y
// elements from y_first on; what lies elsewhere is left to other windows.
// Invariant: the order of terms that meet in one element is open.  An f32 is summed as the bits of a word: WGSL has
// atomics of integers alone.

const DTYPE = 0u;

@group(0) @binding(0) var<storage, read> b: array<i32>;
@group(0) @binding(1) var<storage, read> c: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<atomic<u32>>;

fn add_to(at: u32, term: f32) {
  var old = 0u; // most elements get few terms: a wrong guess costs what a load would
  loop {
    let result = atomicCompareExchangeWeak(&y[at], old, bitcast<u32>(bitcast<f32>(old) + term));
    if (result.exchanged) {
      break;
    }
    old = result.old_value;
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let e = (group.x + group.y * groups.x) * 256u + t;
  if (e < p.n) {
    var rest = e;
    var at_b = p.b_offset;
    var at_c = p.c_offset;
    var at_y = 0u;
    var place = 0u;
    for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
      let extent = p.shape[axis / 4][axis % 4];
      let i = rest % extent;
      rest /= extent;
      at_b += i * p.b_strides[axis / 4][axis % 4];
      at_c += i * p.c_strides[axis / 4][axis % 4];
      at_y += i * p.y_strides[axis / 4][axis % 4];
      place += i * p.b_places[axis / 4][axis % 4];
    }
    let index = b[at_b];
    if (index < 0 || u32(index) >= p.extent) {
      note_index(p.op, index, place, p.extent, p.axis);
    } else {
      at_y += u32(index) * p.y_axis_stride;
      if (at_y >= p.y_first && at_y - p.y_first < p.n_y) {
        add_to(p.y_offset + at_y - p.y_first, real_in(c[word_at(DTYPE, at_c)], DTYPE, at_c));
      }
    }
  }
}
