// max_pool2d: the largest element under each window, by the keys of argmax: NaN is above all, zeros are equal.
//
// Shapes: a [N,C,H,W] of DTYPE by its strides; y p.n elements of [N,C,Ho,Wo], contiguous, written as bits.
// A window that meets no element makes -inf.  With PLACES, y has the largest element's place in its channel instead (the
// first among equals), 0xffffffff for none.
// Invariant: the grid's surplus does nothing.

const DTYPE = 0u;
const PLACES = false;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    let rest = i / p.out_width;
    let plane = rest / p.out_height;
    let top = i32(rest % p.out_height * p.stride_y) - i32(p.padding_y);
    let left = i32(i % p.out_width * p.stride_x) - i32(p.padding_x);
    let first = p.a_offset + plane / p.n_channels * p.a_image + plane % p.n_channels * p.a_channel;
    var key = 0u;
    var largest = select(0xff800000u, 0xffffffffu, PLACES);
    // The kernel's elements before the first that the image can meet are passed over.
    let first_y = (u32(max(-top, 0)) + p.dilation_y - 1u) / p.dilation_y;
    let first_x = (u32(max(-left, 0)) + p.dilation_x - 1u) / p.dilation_x;
    for (var ky = first_y; ky < p.kernel_height; ky++) {
      let at_y = top + i32(ky * p.dilation_y);
      if (at_y >= i32(p.height)) {
        break;
      }
      for (var kx = first_x; kx < p.kernel_width; kx++) {
        let at_x = left + i32(kx * p.dilation_x);
        if (at_x >= i32(p.width)) {
          break;
        }
        let at = first + u32(at_y) * p.a_row + u32(at_x) * p.a_column;
        let value = real_in(a[word_at(DTYPE, at)], DTYPE, at);
        if (rank_key(value) > key) {
          key = rank_key(value);
          largest = select(bitcast<u32>(value), u32(at_y) * p.width + u32(at_x), PLACES);
        }
      }
    }
    y[p.y_offset + i] = largest;
  }
}
