// workgroup: sums and maxima over the invocations of a workgroup; part of the shaders that kernels.def calls WEFT_GROUP_KERNEL or
// WEFT_ROW_KERNEL.
//
// The shader says how many invocations there are: THREADS, a power of two.  The values are halved step by step.
// Invariant: all invocations call it together, and get the same bits; a call may follow another at once.

var<workgroup> group_values: array<vec4<f32>, THREADS>;
var<workgroup> group_numbers: array<f32, THREADS>;

// The sum of the values that the invocations give, t being the invocation's index.
fn group_sum(t: u32, value: vec4<f32>) -> vec4<f32> {
  group_values[t] = value;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (t < half) {
      group_values[t] += group_values[t + half];
    }
    workgroupBarrier();
  }
  let sum = group_values[0];
  workgroupBarrier();
  return sum;
}

// Likewise the largest.
fn group_max(t: u32, value: f32) -> f32 {
  group_numbers[t] = value;
  workgroupBarrier();
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    if (t < half) {
      group_numbers[t] = max(group_numbers[t], group_numbers[t + half]);
    }
    workgroupBarrier();
  }
  let largest = group_numbers[0];
  workgroupBarrier();
  return largest;
}
