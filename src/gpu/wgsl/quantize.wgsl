// quantize: rows of f32 to 8 bits in blocks of 32: d = max |a| / 127, q = a / d to the nearest, ties to even.  Sizes are
// compared as integers, in which infinities and NaN are the largest: they make d one of them.
//
// Shapes: a [n_rows,n], rows a_stride apart; quants [n_rows][n_blocks][8] words of four signed bytes; scales
// [n_rows][n_blocks] f32.  A row's last block may be filled with zeros.
// Eight invocations share a block, four elements each; an invocation works on WORDS blocks, whose elements are all in
// flight at once.
// Invariant: all invocations reach every barrier; the grid's surplus writes nothing.

const THREADS = 256u;
const WORDS = 4u;

const GROUP_WORDS = THREADS * WORDS;
const LARGEST = GROUP_WORDS / 4u;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> quants: array<u32>;
@group(0) @binding(2) var<storage, read_write> scales: array<f32>;

var<workgroup> largest: array<vec4<u32>, LARGEST>;

fn largest_of(v: vec4<u32>) -> u32 {
  return max(max(v.x, v.y), max(v.z, v.w));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let first = (group.x + group.y * groups.x) * GROUP_WORDS;
  let row_words = p.n_blocks * 8u;
  var quads: array<vec4<f32>, WORDS>;
  // @unroll
  for (var i = 0u; i < WORDS; i++) {
    let word = first + i * THREADS + t;
    let row = word / row_words;
    let column = word % row_words * 4u;
    // @unroll
    for (var e = 0u; e < 4u; e++) {
      if (row < p.n_rows && column + e < p.n) {
        quads[i][e] = a[p.a_offset + row * p.a_stride + column + e];
      }
    }
  }
  // @unroll
  for (var i = 0u; i < WORDS; i++) {
    let word = i * THREADS + t;
    largest[word / 4u][word % 4u] = largest_of(bitcast<vec4<u32>>(quads[i]) & vec4<u32>(0x7fffffffu));
  }
  workgroupBarrier();
  // @unroll
  for (var i = 0u; i < WORDS; i++) {
    let block = (i * THREADS + t) / 8u;
    let d = bitcast<f32>(largest_of(max(largest[block * 2u], largest[block * 2u + 1u]))) / 127.0;
    let word = first + i * THREADS + t;
    if (word < p.n_rows * row_words) {
      quants[word] = pack4xI8(vec4<i32>(round(quads[i] * select(1.0 / d, 0.0, d == 0.0))));
      if (t % 8u == 0u) {
        scales[word / 8u] = d;
      }
    }
  }
}
