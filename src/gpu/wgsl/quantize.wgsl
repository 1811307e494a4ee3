// quantize: rows of f32 to 8 bits in blocks of 32: d = max |a| / 127, q = a / d to the nearest, ties to even.
//
// Shapes: a [n_rows,n], rows a_stride apart; quants [n_rows][n_blocks][8] words of four signed bytes; scales
// [n_rows][n_blocks] f32.  A row's last block may be filled with zeros.
// Eight invocations a block, four elements each.
// Invariant: all invocations reach every barrier; the grid's surplus writes nothing.

const THREADS = 256u;
const BLOCKS = 32u; // of a workgroup

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> quants: array<u32>;
@group(0) @binding(2) var<storage, read_write> scales: array<f32>;

var<workgroup> largest: array<f32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let block = (group.x + group.y * groups.x) * BLOCKS + t / 8u;
  let row = block / p.n_blocks;
  let column = block % p.n_blocks * 32u + t % 8u * 4u;
  let in_range = row < p.n_rows;
  var x = vec4<f32>(0.0);
  // @unroll
  for (var i = 0u; i < 4u; i++) {
    if (in_range && column + i < p.n) {
      x[i] = a[p.a_offset + row * p.a_stride + column + i];
    }
  }
  let size = abs(x);
  largest[t] = max(max(size.x, size.y), max(size.z, size.w));
  workgroupBarrier();
  var most = 0.0;
  // @unroll
  for (var i = 0u; i < 8u; i++) {
    most = max(most, largest[t / 8u * 8u + i]);
  }
  let d = most / 127.0;
  if (in_range) {
    let q = vec4<i32>(round(select(x * (1.0 / d), vec4<f32>(0.0), d == 0.0)));
    let bytes = vec4<u32>(q) & vec4<u32>(255u);
    quants[block * 8u + t % 8u] = bytes.x | bytes.y << 8u | bytes.z << 16u | bytes.w << 24u;
    if (t % 8u == 0u) {
      scales[block] = d;
    }
  }
}
