// rows: where the rows of a row kernel's operands lie; part of the shaders that kernels.def calls WEFT_ROW_KERNEL, whose
// parameter block is `rows`.
//
// The axes' extents and strides stand in vectors of four, as uniform memory wants it; outermost first.

// The first element of row `row` of a, of b, of y and of c.
fn row_at(row: u32) -> vec4<u32> {
  var rest = row;
  var at = vec4<u32>(p.a_offset, p.b_offset, p.y_offset, p.c_offset);
  for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
    let extent = p.shape[axis / 4][axis % 4];
    let index = rest % extent;
    rest /= extent;
    at += index * vec4<u32>(p.a_strides[axis / 4][axis % 4], p.b_strides[axis / 4][axis % 4],
                            p.y_strides[axis / 4][axis % 4], p.c_strides[axis / 4][axis % 4]);
  }
  return at;
}
