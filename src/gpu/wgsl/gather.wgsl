// gather: y[..i..] = a[..b[..i..]..] along one axis; elements as stored, each operand by strides of its own.
//
// Shapes: up to 8 axes, shape[i] of y outermost first; a_strides (0 along the indexed axis) and b_strides in elements, 0
// where an operand is broadcast; b_places: what an axis adds to the row-major place of an element of b.  This dispatch
// writes elements first .. first + n of y, from those of the indices from index_first on, n_indices of `extent`, that lie
// within the window of a.
// Invariants: an invocation owns a whole word of y; what other windows write to it stays.

const DTYPE = 0u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<i32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let per_word = select(1u, 2u, DTYPE == F16 || DTYPE == BF16);
  let word = (group.x + group.y * groups.x) * 256u + t;
  for (var e = word * per_word; e < min(p.n, (word + 1u) * per_word); e++) {
    var rest = p.first + e;
    var at_a = p.a_offset;
    var at_b = p.b_offset;
    var place = 0u;
    for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
      let extent = p.shape[axis / 4][axis % 4];
      let i = rest % extent;
      rest /= extent;
      at_a += i * p.a_strides[axis / 4][axis % 4];
      at_b += i * p.b_strides[axis / 4][axis % 4];
      place += i * p.b_places[axis / 4][axis % 4];
    }
    let index = b[at_b];
    if (index < 0 || u32(index) >= p.extent) {
      note_index(p.op, index, place, p.extent, p.axis);
    } else if (u32(index) >= p.index_first && u32(index) - p.index_first < p.n_indices) {
      at_a += (u32(index) - p.index_first) * p.a_axis_stride;
      let stored = a[word_at(DTYPE, at_a)];
      if (per_word == 1u) {
        y[p.y_offset + word] = stored;
      } else {
        let half = (stored >> (at_a % 2u * 16u)) & 0xffffu;
        let keep = 0xffff0000u >> (e % 2u * 16u);
        y[p.y_offset + word] = (y[p.y_offset + word] & keep) | (half << (e % 2u * 16u));
      }
    }
  }
}
