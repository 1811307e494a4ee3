// dropout: y = a / p.keep where the element's uniform draw is at least p.rate, else 0; four elements an invocation.
//
// Shapes: p.n elements, contiguous on both sides; the first is the first of a block of draws, p.block_low and p.block_high.
// Invariant: the grid's surplus does nothing.

const A_DTYPE = 0u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i * 4u < p.n) {
    let words = philox_block(vec2<u32>(p.seed_low, p.seed_high), vec2<u32>(p.stream_low, p.stream_high),
                             vec2<u32>(p.block_low, p.block_high), i);
    // @unroll
    for (var k = 0u; k < 4u; k++) {
      let e = i * 4u + k;
      if (e < p.n) {
        let x = real_in(a[word_at(A_DTYPE, p.a_offset + e)], A_DTYPE, p.a_offset + e);
        y[p.y_offset + e] = select(0.0, x / p.keep, unit_of(words[k]) >= p.rate);
      }
    }
  }
}
