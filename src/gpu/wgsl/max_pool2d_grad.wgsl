// max_pool2d_grad: an element of an image gathers dy of the windows whose largest element it is.
//
// Shapes: places [N,C,Ho,Wo] from max_pool2d.wgsl, contiguous; b, dy [N,C,Ho,Wo] of B_DTYPE by its strides; y p.n elements of
// [N,C,H,W], contiguous.  Sums are in the order of the kernel's elements.
// Invariant: the grid's surplus does nothing.

const B_DTYPE = 0u;

@group(0) @binding(0) var<storage, read> places: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    let row = i / p.width % p.height;
    let column = i % p.width;
    let plane = i / p.width / p.height;
    let first = p.b_offset + plane / p.n_channels * p.b_image + plane % p.n_channels * p.b_channel;
    var sum = 0.0;
    for (var ky = 0u; ky < p.kernel_height; ky++) {
      let from_y = row + p.padding_y - ky * p.dilation_y; // of the window, in the padded image
      let oy = from_y / p.stride_y;
      if (ky * p.dilation_y > row + p.padding_y || oy * p.stride_y != from_y || oy >= p.out_height) {
        continue;
      }
      for (var kx = 0u; kx < p.kernel_width; kx++) {
        let from_x = column + p.padding_x - kx * p.dilation_x;
        let ox = from_x / p.stride_x;
        if (kx * p.dilation_x > column + p.padding_x || ox * p.stride_x != from_x || ox >= p.out_width) {
          continue;
        }
        if (places[p.a_offset + (plane * p.out_height + oy) * p.out_width + ox] == row * p.width + column) {
          let at = first + oy * p.b_row + ox * p.b_column;
          sum += real_in(b[word_at(B_DTYPE, at)], B_DTYPE, at);
        }
      }
    }
    y[p.y_offset + i] = sum;
  }
}
