// rope: pairs of elements of each head turn by the angles of a table; the rest of a head stays.
//
// Shapes: a [n_rows, width], rows a_row apart; table [n_rows, 2, n_pairs]: cosines, then sines; y [n_rows, width].  Heads of
// head_size.  n elements are written.
// Invariant: an invocation writes one element; its partner's computes the same products.

const INTERLEAVED = false; // pairs are neighbours, else n_pairs apart
const INVERSE = false;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> table: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let e = (group.x + group.y * groups.x) * 256u + t;
  if (e < p.n) {
    let row = e / p.width;
    let column = e % p.width;
    let i = column % p.head_size;
    let at = p.a_offset + row * p.a_row + column;
    var x = a[at];
    if (i < 2u * p.n_pairs) {
      let pair = select(i % p.n_pairs, i / 2u, INTERLEAVED);
      let is_second = select(i >= p.n_pairs, i % 2u == 1u, INTERLEAVED);
      let step = select(p.n_pairs, 1u, INTERLEAVED);
      let partner = a[select(at + step, at - step, is_second)];
      let angle = p.table_offset + row * 2u * p.n_pairs + pair;
      let s = table[angle + p.n_pairs];
      x = x * table[angle] + select(-s, s, is_second != INVERSE) * partner;
    }
    y[p.y_offset + e] = x;
  }
}
