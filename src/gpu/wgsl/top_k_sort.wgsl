// top_k_sort: blocks of SIZE elements of a line, each sorted by rank, of which the first `run` are kept: as pairs of a key
// (common.wgsl) and a place, or if it is the line's only block as the places that top_k makes.
//
// Shapes: lines of n_in elements, a_step apart, found by the other axes of a; or (IS_LATER) of n_in pairs one after the other.
// Pairs are two words; blocks are numbered line by line, n_blocks a line.  IS_LAST: y has places y_step apart.
// Bitonic sort (Batcher 1968); what a block lacks is pairs that rank last.
// Invariant: all invocations reach every barrier; the grid's surplus sorts nothing and writes nothing.

const A_DTYPE = 0u;
const IS_LATER = false;
const IS_LAST = false;
const SIZE = 1024u;
const THREADS = 256u;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

var<workgroup> pairs: array<vec2<u32>, SIZE>;

// Where line `line` of a and of y begins.
fn line_at(line: u32) -> vec2<u32> {
  var rest = line;
  var at = vec2<u32>(p.a_offset, p.y_offset);
  for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
    let extent = p.shape[axis / 4][axis % 4];
    at += rest % extent * vec2<u32>(p.a_strides[axis / 4][axis % 4], p.y_strides[axis / 4][axis % 4]);
    rest /= extent;
  }
  return at;
}

fn ranks_before(left: vec2<u32>, right: vec2<u32>) -> bool {
  return left.x > right.x || (left.x == right.x && left.y < right.y);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let number = group.x + group.y * groups.x;
  let line = number / p.n_blocks;
  let in_range = line < p.n_lines;
  let at = line_at(p.first_line + select(0u, line, in_range));
  let first = number % p.n_blocks * SIZE;
  for (var i = t; i < SIZE; i += THREADS) {
    let e = first + i;
    pairs[i] = vec2<u32>(0u, 0xffffffffu);
    if (in_range && e < p.n_in) {
      if (IS_LATER) {
        let word = (line * p.n_in + e) * 2u;
        pairs[i] = vec2<u32>(a[word], a[word + 1u]);
      } else {
        let index = at.x + e * p.a_step;
        pairs[i] = vec2<u32>(rank_key(real_in(a[word_at(A_DTYPE, index)], A_DTYPE, index)), e);
      }
    }
  }
  for (var size = 2u; size <= SIZE; size *= 2u) {
    for (var stride = size / 2u; stride > 0u; stride /= 2u) {
      workgroupBarrier();
      for (var j = t; j < SIZE / 2u; j += THREADS) {
        let i = j / stride * stride * 2u + j % stride;
        let left = pairs[i];
        let right = pairs[i + stride];
        if (ranks_before(right, left) == ((i & size) == 0u)) {
          pairs[i] = right;
          pairs[i + stride] = left;
        }
      }
    }
  }
  workgroupBarrier();
  if (in_range) {
    for (var i = t; i < p.run; i += THREADS) {
      if (IS_LAST) {
        y[at.y + i * p.y_step] = pairs[i].y;
      } else {
        let word = (number * p.run + i) * 2u;
        y[word] = pairs[i].x;
        y[word + 1u] = pairs[i].y;
      }
    }
  }
}
