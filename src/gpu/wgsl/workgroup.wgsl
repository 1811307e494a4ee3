// workgroup: sums and maxima over the invocations of a workgroup; part of the shaders that kernels.def calls WEFT_GROUP_KERNEL or
// WEFT_ROW_KERNEL.
//
// The shader says how many invocations there are: THREADS, a multiple of 16.  Sixteen of them fold the values of the
// others, then every one adds up those sixteen: two barriers, where halving step by step takes eight.
// Invariant: all invocations call it together, and get the same bits; a call may follow another at once.

const FOLDED = 16u;

var<workgroup> group_values: array<vec4<f32>, THREADS>;
var<workgroup> group_folded: array<vec4<f32>, FOLDED>;

// The sum of the values that the invocations give, t being the invocation's index.
fn group_sum(t: u32, value: vec4<f32>) -> vec4<f32> {
  group_values[t] = value;
  workgroupBarrier();
  if (t < FOLDED) {
    var folded = group_values[t];
    for (var i = t + FOLDED; i < THREADS; i += FOLDED) {
      folded += group_values[i];
    }
    group_folded[t] = folded;
  }
  workgroupBarrier();
  var sum = group_folded[0];
  for (var i = 1u; i < FOLDED; i++) {
    sum += group_folded[i];
  }
  return sum;
}

// Likewise the largest.
fn group_max(t: u32, value: f32) -> f32 {
  group_values[t].x = value;
  workgroupBarrier();
  if (t < FOLDED) {
    var folded = value;
    for (var i = t + FOLDED; i < THREADS; i += FOLDED) {
      folded = max(folded, group_values[i].x);
    }
    group_folded[t].x = folded;
  }
  workgroupBarrier();
  var largest = group_folded[0].x;
  for (var i = 1u; i < FOLDED; i++) {
    largest = max(largest, group_folded[i].x);
  }
  return largest;
}
