// sum_slices: C[i] (+)= sum over s of X[s*stride + i], the last step of a product whose k was cut into slices.
//
// Shapes: X n_slices planes of n elements, stride apart; C n elements from c_offset, all multiples of 4.
// Invariant: one invocation a quad; the grid's surplus does nothing.

const ACCUMULATE = false;

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> c: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n / 4u) {
    var sum = x[i];
    for (var s = 1u; s < p.n_slices; s++) {
      sum += x[s * (p.stride / 4u) + i];
    }
    if (ACCUMULATE) {
      c[p.c_offset / 4u + i] += sum;
    } else {
      c[p.c_offset / 4u + i] = sum;
    }
  }
}
