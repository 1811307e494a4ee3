// optimizer: a step of Adam or of SGD, in place: parameters a, their gradient b, moments c (and d, Adam's second), a factor
// e of the gradient.  Where the factor is infinite or NaN nothing is changed.
//
// Shapes: a, c, d n elements each, contiguous f32; b of dtype B_DTYPE, contiguous or, if STRIDED, by strides, outermost axis
// first, from element p.first of the row-major order on.
// STEP: 0 Adam; SGD 1 with momentum, 2 with Nesterov's, 3 without: then c is not touched.
// All buffers are bound for writing, since a binding that only reads may not share a buffer with one that writes, and
// operands may be parts of one tensor; b and e are only read.
// Invariant: an invocation takes UNROLL elements, all of them read before the first is written.

const STEP = 0u;
const B_DTYPE = 0u;
const STRIDED = false;
const UNROLL = 4u;
const THREADS = 256u;

const ADAM = 0u;
const MOMENTUM = 1u;
const NESTEROV = 2u;

@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<storage, read_write> d: array<f32>;
@group(0) @binding(4) var<storage, read_write> e: array<f32>;

// Element i of the gradient.
fn gradient_at(i: u32) -> f32 {
  var at = p.b_offset + i;
  if (STRIDED) {
    var rest = p.first + i;
    at = p.b_offset;
    for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
      let extent = p.shape[axis / 4][axis % 4];
      at += rest % extent * p.b_strides[axis / 4][axis % 4];
      rest /= extent;
    }
  }
  return real_in(b[word_at(B_DTYPE, at)], B_DTYPE, at);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = (group.x + group.y * groups.x) * THREADS * UNROLL + t;
  let factor = e[p.e_offset];
  let is_finite = (bitcast<u32>(factor) & 0x7f800000u) != 0x7f800000u;
  let end = select(0u, p.n, is_finite);
  var x: array<f32, UNROLL>;
  var g: array<f32, UNROLL>;
  var m: array<f32, UNROLL>;
  var v: array<f32, UNROLL>;
  // @unroll
  for (var u = 0u; u < UNROLL; u++) {
    let i = first + u * THREADS;
    if (i < end) {
      x[u] = a[p.a_offset + i];
      g[u] = gradient_at(i);
      if (STEP <= NESTEROV) {
        m[u] = c[p.c_offset + i];
      }
      if (STEP == ADAM) {
        v[u] = d[p.d_offset + i];
      }
    }
  }
  // @unroll
  for (var u = 0u; u < UNROLL; u++) {
    let i = first + u * THREADS;
    if (i < end) {
      let slope = g[u] * factor + p.l2 * x[u];
      var moved = slope;
      var scale = 1.0;
      if (STEP <= NESTEROV) {
        let moment = p.old_first * m[u] + p.new_first * slope;
        c[p.c_offset + i] = moment;
        moved = select(moment, slope + p.old_first * moment, STEP == NESTEROV);
      }
      if (STEP == ADAM) {
        let second = p.old_second * v[u] + p.new_second * slope * slope;
        d[p.d_offset + i] = second;
        scale = sqrt(second) * p.root_scale + p.eps;
      }
      a[p.a_offset + i] = x[u] * p.shrink - p.rate * moved / scale;
    }
  }
}
