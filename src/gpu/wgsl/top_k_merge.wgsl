// top_k_merge: sorted runs of pairs merged by twos, of which the first `run` are kept; or the places of the last run.
//
// Shapes: lines of n_blocks runs of n_in pairs each, one after the other (top_k_sort.wgsl); a line without a second run for
// its last one copies it.  IS_LAST: a line has two runs, and y has places y_step apart.
// A pair's rank in the merged run is its own in its run and the number of pairs of the other run before it.
// Invariant: an invocation a pair of the runs that are merged, of which the missing ones rank last.

const IS_LAST = false;

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

// Where line `line` of y begins.
fn line_at(line: u32) -> u32 {
  var rest = line;
  var at = p.y_offset;
  for (var axis = i32(p.rank) - 1; axis >= 0; axis--) {
    let extent = p.shape[axis / 4][axis % 4];
    at += rest % extent * p.y_strides[axis / 4][axis % 4];
    rest /= extent;
  }
  return at;
}

// How many of the run that begins at pair `start` come before `own`; an equal pair does if the run is the `first`.
fn n_before(start: u32, own: vec2<u32>, first: bool) -> u32 {
  var low = 0u;
  var high = p.n_in;
  while (low < high) {
    let middle = (low + high) / 2u;
    let word = (start + middle) * 2u;
    let other = vec2<u32>(a[word], a[word + 1u]);
    if (other.x > own.x || (other.x == own.x && (other.y < own.y || (first && other.y == own.y)))) {
      low = middle + 1u;
    } else {
      high = middle;
    }
  }
  return low;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let number = (group.x + group.y * groups.x) * 256u + t;
  let n_merged = (p.n_blocks + 1u) / 2u;
  let merged = number / (2u * p.n_in); // of all lines
  let line = merged / n_merged;
  if (line < p.n_lines) {
    let i = number % p.n_in;
    let side = number / p.n_in % 2u;
    let lower = line * p.n_blocks + merged % n_merged * 2u; // the run of side 0
    let has_both = merged % n_merged * 2u + 1u < p.n_blocks;
    var own = vec2<u32>(0u, 0xffffffffu);
    var rank = number % (2u * p.n_in);
    if (side == 0u || has_both) {
      let word = ((lower + side) * p.n_in + i) * 2u;
      own = vec2<u32>(a[word], a[word + 1u]);
    }
    if (has_both) {
      rank = i + n_before((lower + 1u - side) * p.n_in, own, side == 1u);
    }
    if (rank < p.run) {
      if (IS_LAST) {
        y[line_at(p.first_line + line) + rank * p.y_step] = own.y;
      } else {
        let word = (merged * p.run + rank) * 2u;
        y[word] = own.x;
        y[word + 1u] = own.y;
      }
    }
  }
}
