// dequantize: blocks of 32 weights of 8 or 4 bits to f32: y = d * q, or d * (q - 8).
//
// Shapes: quants, scales as in matvec_quantized.wgsl, from the first row; y [n_rows,n].
// Four elements an invocation.
// Invariant: the grid's surplus writes nothing.

const BITS = 8u;

@group(0) @binding(0) var<storage, read> quants: array<u32>;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  let row = i / (p.n_blocks * 8u);
  let block = i % (p.n_blocks * 8u) / 8u;
  let word = i % 8u;
  if (row < p.n_rows) {
    var bytes: u32;
    if (BITS == 8u) {
      bytes = quants[p.q_offset + i];
    } else {
      bytes = signed_nibbles(quants[p.q_offset + i / 8u * 4u + word % 4u] >> (word / 4u * 4u));
    }
    let d = unpack2x16float(scales[p.s_offset + row * ((p.n_blocks + 1u) / 2u) + block / 2u])[block % 2u];
    let values = vec4<f32>(unpack4xI8(bytes)) * d;
    let column = block * 32u + word * 4u;
    for (var e = 0u; e < 4u; e++) {
      if (column + e < p.n) {
        y[p.y_offset + row * p.n + column + e] = values[e];
      }
    }
  }
}
