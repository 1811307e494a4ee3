// col2im: the transpose of im2col.  An element of an image gathers what the windows that meet it have for it.
//
// Shapes: a [C*kh*kw, N*Ho*Wo] of DTYPE by its strides (a_row, a_column); y elements p.first .. p.first + p.n of [N,C,H,W].
// Sums are in the order of the kernel's elements.
// Invariant: the grid's surplus does nothing.

const DTYPE = 0u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    let e = p.first + i;
    let at_y = e / p.width % p.height + p.padding_y;
    let at_x = e % p.width + p.padding_x;
    let channel = e / p.width / p.height % p.n_channels;
    let image = e / p.width / p.height / p.n_channels;
    var sum = 0.0;
    for (var ky = 0u; ky < p.kernel_height; ky++) {
      let from_y = at_y - ky * p.dilation_y; // of the window, in the padded image
      let oy = from_y / p.stride_y;
      if (ky * p.dilation_y > at_y || oy * p.stride_y != from_y || oy >= p.out_height) {
        continue;
      }
      for (var kx = 0u; kx < p.kernel_width; kx++) {
        let from_x = at_x - kx * p.dilation_x;
        let ox = from_x / p.stride_x;
        if (kx * p.dilation_x > at_x || ox * p.stride_x != from_x || ox >= p.out_width) {
          continue;
        }
        let row = (channel * p.kernel_height + ky) * p.kernel_width + kx;
        let column = (image * p.out_height + oy) * p.out_width + ox;
        let at = p.a_offset + row * p.a_row + column * p.a_column;
        sum += real_in(a[word_at(DTYPE, at)], DTYPE, at);
      }
    }
    y[p.y_offset + i] = sum;
  }
}
