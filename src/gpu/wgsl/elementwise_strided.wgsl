// elementwise_strided: y = f(a, b) for any views: an element an invocation, its places taken apart axis by axis (places.wgsl).
// FUNCTION says what f is (functions.wgsl); an operand that it lacks is bound all the same and not used.
//
// Shapes: p.n elements.  The operands' dtypes are parameters: what they cost is little beside the divisions, and one
// pipeline serves them all.
// Invariant: the grid's surplus does nothing.

const FUNCTION = 0u; // of functions.def: what `apply` is

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (i < p.n) {
    let at = places(i);
    let left = bits_in(a[word_at(p.a_type, at.x)], p.a_type, at.x);
    let right = bits_in(b[word_at(p.b_type, at.y)], p.b_type, at.y);
    y[at.w] = apply(vec4<u32>(left), vec4<u32>(right)).x;
  }
}
