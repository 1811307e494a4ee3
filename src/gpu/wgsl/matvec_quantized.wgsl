// matvec_quantized: y = x W^T for few rows of x, W in blocks of 32 with a scale each: x is quantised likewise by each
// workgroup on its way in, dot products are in integers, one float step a half or whole block.  In exact arithmetic x stays
// f32, and the weights become so in registers.
//
// Shapes: W [m][n_blocks] blocks of 8 (BITS 8) or 4 words (BITS 4: the low nibbles are columns 0 to 15, the high ones 16
// to 31, value + 8); scales [m][(n_blocks + 1) / 2] pairs of f16.  a [N_X,k] f32, rows a_stride apart; y [N_X][m], rows
// y_stride apart.
// LANES invocations share ROWS rows of W, of each of which UNROLL quads an invocation are in flight at once: the speed is the
// memory's.  x passes through workgroup memory in chunks of CHUNK blocks, of which a step of all lanes (LANES * UNROLL quads)
// is a whole part; it is fetched before the first quads and quantised while they are on their way.
// Invariants: all invocations reach every barrier; rows and quads beyond the last are read as the last one, and not
// written or not counted.

const BITS = 8u;
const N_X = 1u;
const ROWS = 2u;
const LANES = 16u;
const UNROLL = 4u;
const CHUNK = 128u;
const X_BLOCK = 2u; // quads of a block of x: 2 of bytes, 8 of f32 in exact arithmetic
const THREADS = 256u;
const ALIGNED = true; // rows of x are whole quads, on boundaries of quads

const GROUP_ROWS = THREADS / LANES * ROWS;
const SUMS = ROWS * N_X;
const FLIGHT = ROWS * UNROLL;
const QUADS = BITS / 4u; // of a block of W
const STEP = UNROLL * LANES;
const CHUNK_STEPS = CHUNK * QUADS / STEP;
const CHUNK_WORDS = CHUNK * 8u;
const WORDS = CHUNK_WORDS * N_X / THREADS; // that an invocation quantises
const X_QUADS = CHUNK * X_BLOCK * N_X;
const X_SCALES = CHUNK * N_X;
const LARGEST = CHUNK * 2u * N_X;
const WORDS_OF_QUAD = 32u / BITS; // of x, that meet a quad of W
const PARTIAL = GROUP_ROWS * N_X * (LANES + 1u); // one more spreads rows over the banks

@group(0) @binding(0) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> scales: array<u32>;
@group(0) @binding(2) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

// Quads as they meet those of W, neighbours side by side: of BITS 4 the first halves of the blocks, then the second ones.  Of
// f32 all that meet the first words of quads of W, and so on.
var<workgroup> x: array<vec4<u32>, X_QUADS>;
var<workgroup> x_scale: array<f32, X_SCALES>;
var<workgroup> largest: array<vec4<u32>, LARGEST>;
var<workgroup> partial: array<f32, PARTIAL>;

fn dot16(l: vec4<u32>, r: vec4<u32>, sum: i32) -> i32 {
  return dot4(l.w, r.w, dot4(l.z, r.z, dot4(l.y, r.y, dot4(l.x, r.x, sum))));
}

// The upper nibble of each byte less 8, times 16, as a signed byte: its highest bit is flipped.
fn upper_nibbles(quad: vec4<u32>) -> vec4<u32> {
  return (quad ^ vec4<u32>(0x80808080u)) & vec4<u32>(0xf0f0f0f0u);
}

fn largest_of(v: vec4<u32>) -> u32 {
  return max(max(v.x, v.y), max(v.z, v.w));
}

// Four columns of a row of x; zeros beyond the last.
fn x_quad(row: u32, column: u32) -> vec4<f32> {
  let at = p.a_offset + row * p.a_stride + column;
  var quad = vec4<f32>(0.0);
  if (ALIGNED) {
    if (column < p.k) {
      quad = a[at / 4u];
    }
    return quad;
  }
  // @unroll
  for (var e = 0u; e < 4u; e++) {
    if (column + e < p.k) {
      quad[e] = a[(at + e) / 4u][(at + e) % 4u];
    }
  }
  return quad;
}

// Where word i of a chunk of a row of x stands.
fn exact_place(i: u32) -> u32 {
  let block = i / 8u;
  let word = i % 8u;
  return select(word * CHUNK + block, word % 4u * CHUNK * 2u + block * 2u + word / 4u, BITS == 8u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let lane = t % LANES;
  let group_first = (group.x + group.y * groups.x) * GROUP_ROWS;
  let first = group_first + t / LANES * ROWS;
  let n_quads = p.n_blocks * QUADS;
  let pairs = (p.n_blocks + 1u) / 2u;
  let n_steps = (n_quads + STEP - 1u) / STEP;
  var acc: array<f32, SUMS>;
  for (var step = 0u; step < n_steps; step++) {
    let is_chunk = step % CHUNK_STEPS == 0u;
    var fetched: array<vec4<f32>, WORDS>;
    if (is_chunk) {
      // @unroll
      for (var i = 0u; i < WORDS; i++) {
        let word = i * THREADS + t;
        fetched[i] = x_quad(word / CHUNK_WORDS, step / CHUNK_STEPS * CHUNK * 32u + word % CHUNK_WORDS * 4u);
      }
    }
    var quads: array<vec4<u32>, FLIGHT>;
    var d: array<f32, FLIGHT>;
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      let i = step * STEP + u * LANES + lane;
      let block = min(i, n_quads - 1u) / QUADS;
      // @unroll
      for (var r = 0u; r < ROWS; r++) {
        let row = min(first + r, p.m - 1u);
        quads[u * ROWS + r] = w[p.q_offset / 4u + row * n_quads + min(i, n_quads - 1u)];
        let pair = unpack2x16float(scales[p.s_offset + row * pairs + block / 2u]);
        d[u * ROWS + r] = select(0.0, pair[block % 2u], i < n_quads);
      }
    }
    if (is_chunk && X_BLOCK == 8u) {
      workgroupBarrier(); // the last chunk was read
      // @unroll
      for (var i = 0u; i < WORDS; i++) {
        let word = i * THREADS + t;
        x[word / CHUNK_WORDS * CHUNK_WORDS + exact_place(word % CHUNK_WORDS)] = bitcast<vec4<u32>>(fetched[i]);
      }
      workgroupBarrier();
    } else if (is_chunk) {
      // d = max |x| / 127, q = x / d to the nearest.  Sizes are compared as integers, in which infinities and NaN are the
      // largest: they make d one of them.
      // @unroll
      for (var i = 0u; i < WORDS; i++) {
        let word = i * THREADS + t;
        largest[word / 4u][word % 4u] = largest_of(bitcast<vec4<u32>>(fetched[i]) & vec4<u32>(0x7fffffffu));
      }
      workgroupBarrier(); // the last chunk was read as well
      // @unroll
      for (var i = 0u; i < WORDS; i++) {
        let word = i * THREADS + t;
        let block = word / 8u; // of the chunks of all rows
        let d_x = bitcast<f32>(largest_of(max(largest[block * 2u], largest[block * 2u + 1u]))) / 127.0;
        let codes = pack4xI8(vec4<i32>(round(fetched[i] * select(1.0 / d_x, 0.0, d_x == 0.0))));
        let row = block / CHUNK;
        let place = select(row * CHUNK * 2u + word / 4u % 2u * CHUNK + block % CHUNK, word / 4u, BITS == 8u);
        x[place][word % 4u] = codes;
        if (word % 8u == 0u) {
          x_scale[block] = d_x;
        }
      }
      workgroupBarrier();
    }
    // @unroll
    for (var u = 0u; u < UNROLL; u++) {
      let i = step % CHUNK_STEPS * STEP + u * LANES + lane;
      // @unroll
      for (var c = 0u; c < N_X; c++) {
        if (X_BLOCK == 8u) {
          var sums: array<f32, ROWS>;
          // @unroll
          for (var r = 0u; r < ROWS; r++) {
            sums[r] = 0.0;
          }
          // @unroll
          for (var word = 0u; word < WORDS_OF_QUAD; word++) {
            let right = bitcast<vec4<f32>>(x[c * CHUNK_WORDS + word * CHUNK * QUADS + i]);
            // @unroll
            for (var r = 0u; r < ROWS; r++) {
              var bytes = quads[u * ROWS + r][word % 4u];
              if (BITS == 4u) {
                bytes = signed_nibbles(bytes >> (word / 4u * 4u));
              }
              sums[r] += dot(vec4<f32>(unpack4xI8(bytes)), right);
            }
          }
          // @unroll
          for (var r = 0u; r < ROWS; r++) {
            acc[r * N_X + c] = fma(sums[r], d[u * ROWS + r], acc[r * N_X + c]);
          }
        } else if (BITS == 8u) {
          let d_x = x_scale[c * CHUNK + i / QUADS];
          let all = x[c * CHUNK * 2u + i];
          // @unroll
          for (var r = 0u; r < ROWS; r++) {
            let sum = dot16(quads[u * ROWS + r], all, 0);
            acc[r * N_X + c] = fma(f32(sum), d[u * ROWS + r] * d_x, acc[r * N_X + c]);
          }
        } else {
          let d_x = x_scale[c * CHUNK + i / QUADS];
          let low = x[c * CHUNK * 2u + i];
          let high = x[c * CHUNK * 2u + CHUNK + i];
          // @unroll
          for (var r = 0u; r < ROWS; r++) {
            let quad = quads[u * ROWS + r];
            let sum = dot16(upper_nibbles(quad), high, dot16(upper_nibbles(quad << vec4<u32>(4u)), low, 0));
            acc[r * N_X + c] = fma(f32(sum), d[u * ROWS + r] * d_x * 0.0625, acc[r * N_X + c]);
          }
        }
      }
    }
  }
  // @unroll
  for (var s = 0u; s < SUMS; s++) {
    partial[((t / LANES * ROWS + s / N_X) * N_X + s % N_X) * (LANES + 1u) + lane] = acc[s];
  }
  workgroupBarrier();
  for (var o = t; o < GROUP_ROWS * N_X; o += THREADS) {
    var sum = 0.0;
    // @unroll
    for (var l = 0u; l < LANES; l++) {
      sum += partial[o * (LANES + 1u) + l];
    }
    let row = group_first + o / N_X;
    if (row < p.m) {
      y[p.y_offset + o % N_X * p.y_stride + row] = sum;
    }
  }
}
