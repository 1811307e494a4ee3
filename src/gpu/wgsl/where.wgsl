// where: y = b where a is not 0, else c, for any views, as the bits lie: an invocation owns a word of y, which is one element
// or two halves.
//
// Shapes: p.n elements, the axes of places.wgsl; y is contiguous from p.y_offset on.
// Invariant: of a word that y shares with others, their half stays.

const IS_HALF = false; // elements of b, c and y are of two bytes

@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read> c: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;

fn half_in(word: u32, place: u32) -> u32 {
  return (word >> (place % 2u * 16u)) & 0xffffu;
}

fn chosen_word(i: u32) -> u32 {
  let at = places(i);
  if (a[at.x] != 0u) {
    return b[at.y];
  }
  return c[at.z];
}

fn chosen_half(i: u32) -> u32 {
  let at = places(i);
  if (a[at.x] != 0u) {
    return half_in(b[at.y / 2u], at.y);
  }
  return half_in(c[at.z / 2u], at.z);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) t: u32) {
  let i = (group.x + group.y * groups.x) * 256u + t;
  if (!IS_HALF) {
    if (i < p.n) {
      y[p.y_offset + i] = chosen_word(i);
    }
  } else {
    // Word `word` holds the elements 2 i - odd and 2 i + 1 - odd.
    let odd = p.y_offset % 2u;
    let word = p.y_offset / 2u + i;
    let low = 2u * i - odd;
    let has_low = low < p.n; // beyond all if odd and i = 0, as it wraps
    let has_high = low + 1u < p.n;
    if (has_low || has_high) {
      var value = y[word];
      if (has_low) {
        value = (value & 0xffff0000u) | chosen_half(low);
      }
      if (has_high) {
        value = (value & 0xffffu) | (chosen_half(low + 1u) << 16u);
      }
      y[word] = value;
    }
  }
}
