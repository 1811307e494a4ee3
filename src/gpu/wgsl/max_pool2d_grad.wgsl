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
    // The element's place in the padded image, and the kernel's first elements with which the last windows reach it.
    let at_y = row + p.padding_y;
    let at_x = column + p.padding_x;
    let last_y = (p.out_height - 1u) * p.stride_y;
    let last_x = (p.out_width - 1u) * p.stride_x;
    let first_y = (max(at_y, last_y) - last_y + p.dilation_y - 1u) / p.dilation_y;
    let first_x = (max(at_x, last_x) - last_x + p.dilation_x - 1u) / p.dilation_x;
    for (var ky = first_y; ky < p.kernel_height && ky * p.dilation_y <= at_y; ky++) {
      let from_y = at_y - ky * p.dilation_y; // of the window
      let oy = from_y / p.stride_y;
      if (oy * p.stride_y != from_y) {
        continue;
      }
      for (var kx = first_x; kx < p.kernel_width && kx * p.dilation_x <= at_x; kx++) {
        let from_x = at_x - kx * p.dilation_x;
        let ox = from_x / p.stride_x;
        if (ox * p.stride_x != from_x) {
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
