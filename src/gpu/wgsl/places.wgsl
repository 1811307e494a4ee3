// places: where the elements of up to three operands and of the result lie.  Part of the kernels that share the parameter
// block `elementwise`: p.rank axes, p.shape[i] outermost first, strides in elements, 0 along a broadcast axis.  The axes'
// extents and strides stand in vectors of four, as uniform memory wants it.

// Places of a, b, c and y for step i of the row-major order of the axes.
fn places(i: u32) -> vec4<u32> {
  var rest = i;
  var at = vec4<u32>(p.a_offset, p.b_offset, p.c_offset, p.y_offset);
  for (var axis = p.rank; axis > 0u; axis--) {
    let v = (axis - 1u) / 4u;
    let c = (axis - 1u) % 4u;
    var index = rest; // along the outermost axis
    if (axis > 1u) {
      index = rest % p.shape[v][c];
      rest /= p.shape[v][c];
    }
    at += index * vec4<u32>(p.a_strides[v][c], p.b_strides[v][c], p.c_strides[v][c], p.y_strides[v][c]);
  }
  return at;
}

// The bits of an element as f32, or of an i32 as they are, out of its word.
fn bits_in(word: u32, dtype: u32, index: u32) -> u32 {
  if (dtype == F16 || dtype == BF16) {
    return bitcast<u32>(real_in(word, dtype, index));
  }
  return word;
}
