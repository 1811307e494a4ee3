// im2col: what windows over images meet, as columns; zeros outside the images.
//
// Shapes: a [N,C,H,W] of DTYPE by its strides; y rows p.first .. p.first + p.n of [C*kh*kw, N*Ho*Wo], contiguous.
// A column and ROWS rows an invocation: the column is taken apart once, and the rows are the same for a workgroup.
// Invariant: the grid's surplus does nothing.

const DTYPE = 0u;
const ROWS = 8u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let n_columns = p.n_images * p.out_height * p.out_width;
  let column = (group.x + group.y * groups.x) * 256u + t;
  if (column < n_columns) {
    let rest = column / p.out_width;
    let top = i32(rest % p.out_height * p.stride_y) - i32(p.padding_y);
    let left = i32(column % p.out_width * p.stride_x) - i32(p.padding_x);
    let image = p.a_offset + rest / p.out_height * p.a_image;
    for (var i = group.z * ROWS; i < min(p.n, (group.z + 1u) * ROWS); i++) {
      let row = p.first + i;
      let of_channel = row / p.kernel_width;
      let at_y = top + i32(of_channel % p.kernel_height * p.dilation_y);
      let at_x = left + i32(row % p.kernel_width * p.dilation_x);
      var value = 0.0;
      if (at_y >= 0 && at_y < i32(p.height) && at_x >= 0 && at_x < i32(p.width)) {
        let at = image + of_channel / p.kernel_height * p.a_channel + u32(at_y) * p.a_row + u32(at_x) * p.a_column;
        value = real_in(a[word_at(DTYPE, at)], DTYPE, at);
      }
      y[p.y_offset + i * n_columns + column] = value;
    }
  }
}
