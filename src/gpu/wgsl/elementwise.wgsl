// elementwise: y = f(a, b) in quads: four elements an invocation and step.  FUNCTION says what f is (functions.wgsl); an operand
// that it lacks is bound all the same and not read.
//
// Shapes: the axes of places.wgsl, with the innermost one counted in quads: extents and strides of that axis are those of
// quads, all other strides multiples of 4.  FLAT: there is one axis alone, of p.n elements; else p.n is a multiple of 4.
// An operand has A_STEP (B_STEP) 1 if it is contiguous along the innermost axis, 0 if one element meets all of it.  Operands
// are f32, f16 or bf16 (i32 in comparisons), y is f32 or i32.
// Invariant: the last p.n % 4 elements are written one by one.

const FUNCTION = 0u; // of functions.def: what `apply` is
const A_TYPE = 0u;
const B_TYPE = 0u;
const A_STEP = 1u;
const B_STEP = 1u;
const FLAT = true;
const UNROLL = 4u;

@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<u32>>;

fn places_of_quad(i: u32) -> vec4<u32> {
  if (FLAT) {
    return vec4<u32>(p.a_offset + 4u * A_STEP * i, p.b_offset + 4u * B_STEP * i, 0u, p.y_offset + 4u * i);
  }
  return places(i);
}

// Four words of 32 bits for f32 and i32; of halves there are two quads in four words.
fn quad_in(loaded: vec4<u32>, dtype: u32, quad: u32) -> vec4<u32> {
  let pair = select(loaded.xy, loaded.zw, quad % 2u == 1u);
  if (dtype == F16) {
    return bitcast<vec4<u32>>(vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y)));
  }
  if (dtype == BF16) {
    return vec4<u32>(pair.x << 16u, pair.x & 0xffff0000u, pair.y << 16u, pair.y & 0xffff0000u);
  }
  return loaded;
}

fn left_at(place: u32) -> vec4<u32> {
  if (A_STEP == 1u) {
    return quad_in(a[word_at(A_TYPE, place) / 4u], A_TYPE, place / 4u);
  }
  let word = word_at(A_TYPE, place);
  return vec4<u32>(bits_in(a[word / 4u][word % 4u], A_TYPE, place));
}

fn right_at(place: u32) -> vec4<u32> {
  if (B_STEP == 1u) {
    return quad_in(b[word_at(B_TYPE, place) / 4u], B_TYPE, place / 4u);
  }
  let word = word_at(B_TYPE, place);
  return vec4<u32>(bits_in(b[word / 4u][word % 4u], B_TYPE, place));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = (group.x + group.y * groups.x) * 256u * UNROLL + t;
  let last = (p.n - 1u) / 4u;
  var left: array<vec4<u32>, UNROLL>;
  var right: array<vec4<u32>, UNROLL>;
  var to: array<u32, UNROLL>;
  // All loads are in flight before the first store; what lies beyond the last quad loads that one.
  // @unroll
  for (var u = 0u; u < UNROLL; u++) {
    let at = places_of_quad(min(first + u * 256u, last));
    left[u] = left_at(at.x);
    right[u] = right_at(at.y);
    to[u] = at.w / 4u;
  }
  // @unroll
  for (var u = 0u; u < UNROLL; u++) {
    let value = apply(left[u], right[u]);
    if (first + u * 256u < p.n / 4u) {
      y[to[u]] = value;
    } else if (first + u * 256u == p.n / 4u) {
      for (var r = 0u; r < p.n % 4u; r++) {
        y[to[u]][r] = value[r];
      }
    }
  }
}
