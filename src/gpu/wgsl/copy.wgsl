// copy: y = a, each by strides of its own and of a dtype of its own: what makes views contiguous, joins and converts
// tensors.  The other copy kernels are faster where they fit.
//
// Shapes: up to 8 axes, shape[i] outermost first; a_strides and y_strides in elements.  The axes' extents and strides stand
// in vectors of four, as uniform memory wants it.  Where y is of halves, p.run elements each lie side by side in it, and
// runs do not touch.
// Invariants: an invocation owns a word of y; the half of a word that is no element of y stays as it is.  The grid's
// surplus does nothing.

const A_DTYPE = 0u;
const Y_DTYPE = 0u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

// Where element i of the row-major order lies in a, and where in y.
fn place(i: u32) -> vec2<u32> {
  var rest = i;
  var at = vec2<u32>(p.a_offset, p.y_offset);
  for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
    let extent = p.shape[axis / 4][axis % 4];
    let index = rest % extent;
    rest /= extent;
    at += index * vec2<u32>(p.a_strides[axis / 4][axis % 4], p.y_strides[axis / 4][axis % 4]);
  }
  return at;
}

// The element at `at` of a as it will be stored.
fn element(at: u32) -> u32 {
  let word = a[word_at(A_DTYPE, at)];
  if (A_DTYPE == Y_DTYPE) {
    return stored_in(word, A_DTYPE, at);
  }
  return stored_as(number_in(word, A_DTYPE, at), Y_DTYPE);
}

// Word i of those that hold runs: p.run / 2 + 1 each, the last of which may hold nothing.
fn copy_halves(i: u32) {
  let n_words = p.run / 2u + 1u;
  let first = i / n_words * p.run;
  let start = place(first).y;
  let word = start / 2u + i % n_words;
  let low = word * 2u >= start && word * 2u < start + p.run;
  let high = word * 2u + 1u >= start && word * 2u + 1u < start + p.run;
  if (low || high) {
    var bits = 0u;
    if (!(low && high)) {
      bits = y[word] & select(0x0000ffffu, 0xffff0000u, low);
    }
    if (low) {
      bits |= element(place(first + (word * 2u - start)).x);
    }
    if (high) {
      bits |= element(place(first + (word * 2u + 1u - start)).x) << 16u;
    }
    y[word] = bits;
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    if (is_half(Y_DTYPE)) {
      copy_halves(i);
    } else {
      let at = place(i);
      y[at.y] = element(at.x);
    }
  }
}
