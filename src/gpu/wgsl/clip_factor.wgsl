// clip_factor: y = min(1, max_norm / (sqrt(a) + 1e-6)) of one element, NaN if a is infinite or NaN.
//
// Told by the bits, and NaN comes as a parameter: a compiler may take it that there is none.

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(1)
fn main() {
  let squares = a[p.a_offset];
  let is_finite = (bitcast<u32>(squares) & 0x7f800000u) != 0x7f800000u;
  let factor = min(1.0, p.max_norm / (sqrt(squares) + 1e-6));
  y[p.y_offset] = select(p.nan, bitcast<u32>(factor), is_finite);
}
