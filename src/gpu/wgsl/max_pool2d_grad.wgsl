// max_pool2d_grad: an element of an image gathers dy of the windows whose largest element it is, the first among equals.
//
// Shapes: a, the image [N,C,H,W] of DTYPE, and b, dy [N,C,Ho,Wo] of B_DTYPE, by their strides; y p.n elements like a,
// contiguous.  Each window that meets the element is looked through again, so that nothing but a need be kept.
// Invariant: the grid's surplus does nothing.

const DTYPE = 0u;
const B_DTYPE = 0u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// The rank of an element of the channel that begins at `first`.
fn key_at(first: u32, row: u32, column: u32) -> u32 {
  let at = first + row * p.a_row + column * p.a_column;
  return rank_key(real_in(a[word_at(DTYPE, at)], DTYPE, at));
}

// Is element `own` of the kernel, with this key, the largest of the window that begins at (top, left)?
fn is_largest(first: u32, top: i32, left: i32, own: u32, key: u32) -> bool {
  for (var k = 0u; k < p.kernel_height * p.kernel_width; k++) {
    let at_y = top + i32(k / p.kernel_width * p.dilation_y);
    let at_x = left + i32(k % p.kernel_width * p.dilation_x);
    if (k == own || at_y < 0 || at_y >= i32(p.height) || at_x < 0 || at_x >= i32(p.width)) {
      continue;
    }
    let other = key_at(first, u32(at_y), u32(at_x));
    if (other > key || (other == key && k < own)) {
      return false;
    }
  }
  return true;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    let row = i / p.width % p.height;
    let column = i % p.width;
    let plane = i / p.width / p.height;
    let channel = plane % p.n_channels;
    let image = plane / p.n_channels;
    let first = p.a_offset + image * p.a_image + channel * p.a_channel;
    let key = key_at(first, row, column);
    var sum = 0.0;
    for (var k = 0u; k < p.kernel_height * p.kernel_width; k++) {
      let back_y = k / p.kernel_width * p.dilation_y;
      let back_x = k % p.kernel_width * p.dilation_x;
      let oy = (row + p.padding_y - back_y) / p.stride_y;
      let ox = (column + p.padding_x - back_x) / p.stride_x;
      let top = oy * p.stride_y;
      let left = ox * p.stride_x;
      if (back_y <= row + p.padding_y && top + back_y == row + p.padding_y && oy < p.out_height &&
          back_x <= column + p.padding_x && left + back_x == column + p.padding_x && ox < p.out_width &&
          is_largest(first, i32(top) - i32(p.padding_y), i32(left) - i32(p.padding_x), k, key)) {
        let at = p.b_offset + image * p.b_image + channel * p.b_channel + oy * p.b_row + ox * p.b_column;
        sum += real_in(b[word_at(B_DTYPE, at)], B_DTYPE, at);
      }
    }
    y[p.y_offset + i] = sum;
  }
}
