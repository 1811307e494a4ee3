// functions: the operators that work element by element, for four elements at once: y = NAME_of(a, b) for each row NAME of
// functions.def; one that has a single operand passes over b.  Part of the elementwise kernels, whose function `apply` is
// the one that the operator wants.
//
// Operands and results are words: bits of f32 (i32 in comparisons of such).  So NaN is told and made by its bits, as a
// compiler may take it that there is none, and signs are bits as well.  The formulas are those of src/cpu/kern/rows.inc.

const SIGN = vec4<u32>(0x80000000u);
const SIZE = vec4<u32>(0x7fffffffu);
const INFINITE = vec4<u32>(0x7f800000u);
const NOT_A_NUMBER = vec4<u32>(0x7fc00000u);

fn number(word: vec4<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(word);
}

fn words(x: vec4<f32>) -> vec4<u32> {
  return bitcast<vec4<u32>>(x);
}

fn is_nan(word: vec4<u32>) -> vec4<bool> {
  return (word & SIZE) > INFINITE;
}

fn is_zero(word: vec4<u32>) -> vec4<bool> {
  return (word & SIZE) == vec4<u32>(0u);
}

// y, but NaN where a is.
fn unless_nan(a: vec4<u32>, y: vec4<f32>) -> vec4<u32> {
  return select(words(y), a, is_nan(a));
}

// ---- arithmetic ----

fn add_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return words(number(a) + number(b));
}

fn sub_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return words(number(a) - number(b));
}

fn mul_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return words(number(a) * number(b));
}

fn scale_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return words(number(a) * p.parameter);
}

fn abs_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return a & SIZE;
}

fn neg_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return a ^ SIGN;
}

// Drivers divide by way of 1 / b, which is 0 where b is beyond 2^126.
fn div_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let factor = select(vec4<f32>(1.0), vec4<f32>(0.25), (b & SIZE) > vec4<u32>(0x7e000000u));
  return words((number(a) * factor) / (number(b) * factor));
}

fn sqrt_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let y = select(words(sqrt(number(a))), NOT_A_NUMBER, a > SIGN);
  return select(y, a, is_zero(a) | is_nan(a) | (a == INFINITE));
}

// ---- logarithms and powers ----

// x with the first 12 bits of its significand: products of two such numbers are exact.
fn high(x: vec4<f32>) -> vec4<f32> {
  return number(words(x) & vec4<u32>(0xfffff000u));
}

// A positive finite number is m * 2^e, m in [sqrt(1/2), sqrt(2)).
struct Parts {
  m: vec4<f32>,
  e: vec4<f32>,
}

// By bits alone, so that subnormals, which arithmetic may take for 0, have their parts as well.
fn parts_of(size: vec4<u32>) -> Parts {
  let is_subnormal = size < vec4<u32>(0x00800000u);
  let shift = select(vec4<u32>(0u), countLeadingZeros(size) - 8u, is_subnormal);
  let bits = size << (shift & vec4<u32>(31u));
  let exponent = bitcast<vec4<i32>>(bits - 0x3f3504f3u) >> vec4<u32>(23u);
  let m = number(bits - (bitcast<vec4<u32>>(exponent) << vec4<u32>(23u)));
  return Parts(m, vec4<f32>(exponent - bitcast<vec4<i32>>(shift)));
}

// ln x = e ln 2 + ln m, and ln m = 2 artanh(s), s = (m - 1) / (m + 1), by its series.
fn log_of(word: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let parts = parts_of(word & SIZE);
  let s = (parts.m - 1.0) / (parts.m + 1.0);
  let z = s * s;
  let series = s * (2.0 + z * (0.66666667 + z * (0.4 + z * (0.2857142857 + z * 0.2222222222))));
  // ln 2 in two parts; e times the first, of 15 bits, is exact.
  var y = words(parts.e * 0.693115234375 + (parts.e * 3.19461850e-5 + series));
  y = select(y, NOT_A_NUMBER, word >= SIGN);
  y = select(y, INFINITE | SIGN, is_zero(word));
  return select(y, word, is_nan(word) | (word == INFINITE));
}

// x, which lies between -bound and bound: what keeps compilers from making a * (b + c) of the products a * b and a * c, the
// first of which is exact.
fn kept_apart(x: vec4<f32>, bound: f32) -> vec4<f32> {
  return clamp(x, vec4<f32>(-bound), vec4<f32>(bound));
}

// |a|^b = 2^(b log2 |a|), with log2 as the sum of a number of 12 bits and a rest: 2 ulp where the exponent is large, too.
// |b| beyond 2^33 does what 2^33 does: only of a = 1 is the result neither 0 nor infinite.
fn power_of_size(size: vec4<u32>, exponent: vec4<f32>) -> vec4<f32> {
  let parts = parts_of(size);
  let x = parts.m - 1.0;
  let t = parts.m + 1.0;
  let s = x / t; // and what its 12 bits lack
  let s_high = high(s);
  let t_high = high(t);
  let s_low = (kept_apart(x - s_high * t_high, 1.0) - s_high * (parts.m - (t_high - 1.0))) / t;
  let z = s * s;
  let series = s * z * (0.33333333 + z * (0.2 + z * (0.14285714 + z * (0.11111111 + z * 0.090909091))));
  let u_high = high(s_high + (s_low + series));
  let u_low = (s_low + series) - (u_high - s_high);
  let l = kept_apart(2.884765625 * u_high, 1.0); // 2 / ln 2 in two parts
  let rest = 2.884765625 * u_low + 0.00062445678 * (u_high + u_low);
  let l_high = high((l + rest) + parts.e);
  let l_low = rest - ((l_high - parts.e) - l);
  let b = clamp(exponent, vec4<f32>(-8589934592.0), vec4<f32>(8589934592.0));
  let b_high = high(b);
  let y = kept_apart(l_high * b_high, 200.0); // 2^160 is infinite already
  let y_low = kept_apart(l_high * (b - b_high) + l_low * b, 1.0);
  let n = round(clamp(y + y_low, vec4<f32>(-160.0), vec4<f32>(160.0)));
  let f = clamp((y - n) + y_low, vec4<f32>(-1.0), vec4<f32>(1.0));
  var q = vec4<f32>(1.5252734e-5);
  q = fma(q, f, vec4<f32>(1.5403530e-4));
  q = fma(q, f, vec4<f32>(1.3333558e-3));
  q = fma(q, f, vec4<f32>(9.6181291e-3));
  q = fma(q, f, vec4<f32>(0.055504109));
  q = fma(q, f, vec4<f32>(0.24022651));
  q = fma(q, f, vec4<f32>(0.69314718));
  q = fma(q, f, vec4<f32>(1.0));
  let half = vec4<i32>(n) / 2; // 2^n in two factors, as in exp4
  let low = number(bitcast<vec4<u32>>(half + 127) << vec4<u32>(23u));
  return q * low * number(bitcast<vec4<u32>>(vec4<i32>(n) - half + 127) << vec4<u32>(23u));
}

// As C's powf.
fn pow_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let size = a & SIZE;
  let exponent = number(b);
  let is_huge = (b & SIZE) >= vec4<u32>(0x4b800000u); // 2^24: even from there on
  let whole = floor(exponent);
  let is_whole = is_huge | (whole == exponent);
  let last_bit = vec4<i32>(clamp(whole, vec4<f32>(-16777216.0), vec4<f32>(16777216.0))) & vec4<i32>(1);
  let is_odd = is_whole & (last_bit == vec4<i32>(1)) & !is_huge;
  let is_negative = a >= SIGN;
  let is_end = is_zero(a) | (size == INFINITE); // which have no logarithm
  let end = select(INFINITE, vec4<u32>(0u), is_zero(a) == (b < SIGN));
  var y = select(words(power_of_size(size, exponent)), end, is_end);
  y = select(y, y | SIGN, is_negative & is_odd);
  y = select(y, NOT_A_NUMBER, (is_negative & !is_whole & !is_end) | is_nan(a) | is_nan(b));
  return select(y, vec4<u32>(0x3f800000u), is_zero(b) | (a == vec4<u32>(0x3f800000u)));
}

// ---- choices ----

// b, but a where it is chosen, and NaN if either is.
fn chosen(a: vec4<u32>, b: vec4<u32>, is_a: vec4<bool>) -> vec4<u32> {
  return select(select(b, a, is_a & !is_nan(b)), a, is_nan(a));
}

fn maximum_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return chosen(a, b, number(a) > number(b));
}

fn minimum_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return chosen(a, b, number(a) < number(b));
}

fn clamp_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, min(max(number(a), vec4<f32>(p.parameter)), vec4<f32>(p.bound)));
}

fn relu_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, max(number(a), vec4<f32>(0.0)));
}

// ---- relations: of NaN only not_equal holds ----

fn truth(holds: vec4<bool>) -> vec4<u32> {
  return select(vec4<u32>(0u), vec4<u32>(1u), holds);
}

fn are_numbers(a: vec4<u32>, b: vec4<u32>) -> vec4<bool> {
  return !(is_nan(a) | is_nan(b));
}

fn equal_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return truth((number(a) == number(b)) & are_numbers(a, b));
}

fn not_equal_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return 1u - equal_of(a, b);
}

fn less_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return truth((number(a) < number(b)) & are_numbers(a, b));
}

fn less_equal_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return truth((number(a) <= number(b)) & are_numbers(a, b));
}

fn greater_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return less_of(b, a);
}

fn greater_equal_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return less_equal_of(b, a);
}

fn equal_i32_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return truth(a == b);
}

fn not_equal_i32_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return truth(a != b);
}

fn less_i32_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return truth(bitcast<vec4<i32>>(a) < bitcast<vec4<i32>>(b));
}

fn less_equal_i32_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return truth(bitcast<vec4<i32>>(a) <= bitcast<vec4<i32>>(b));
}

fn greater_i32_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return less_i32_of(b, a);
}

fn greater_equal_i32_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return less_equal_i32_of(b, a);
}

// ---- exponentials ----

fn exp_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, exp4(number(a)));
}

// tanh |x| = 1 - 2 / (exp(2 |x|) + 1); near 0, where that would cancel, by the continued fraction
// x/(1 + x^2/(3 + x^2/(5 + ...))) cut after 9.  From 9.1 on it is 1.
fn tanh_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let size = min(number(a & SIZE), vec4<f32>(10.0));
  let z = size * size;
  let far = 1.0 - 2.0 / (exp4(2.0 * size) + 1.0);
  let fraction = size * (945.0 + z * (105.0 + z)) / (945.0 + z * (420.0 + 15.0 * z));
  let y = words(select(far, fraction, size < vec4<f32>(0.625))) | (a & SIGN);
  return select(y, a, is_nan(a));
}

// 1 / (1 + exp(-x)), or the same fraction with exp(x) above and below: no exponential overflows.
fn sigmoid(x: vec4<f32>) -> vec4<f32> {
  let e = exp4(-abs(x));
  return select(e, vec4<f32>(1.0), x >= vec4<f32>(0.0)) / (1.0 + e);
}

fn sigmoid_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, sigmoid(number(a)));
}

fn silu_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, number(a) * sigmoid(number(a)));
}

fn silu_mul_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, number(a) * sigmoid(number(a)) * number(b));
}

// (1 + tanh u) / 2 is the sigmoid of 2 u.
fn gelu_tanh_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let x = number(a);
  return unless_nan(a, x * sigmoid(1.5957691216 * x + 0.0713548163 * x * x * x));
}

// ---- the normal distribution ----

// P(X > u) / exp(-u^2/2) for a normal X, u of 0 to 15: the fit of src/cpu/vec/normal_tail.h.
fn normal_tail_ratio(u: vec4<f32>) -> vec4<f32> {
  let t = 1.0 / fma(vec4<f32>(0.345), u, vec4<f32>(1.0));
  var q = vec4<f32>(-0.0283879174);
  q = fma(q, t, vec4<f32>(0.145306968));
  q = fma(q, t, vec4<f32>(-0.271217199));
  q = fma(q, t, vec4<f32>(0.18723932));
  q = fma(q, t, vec4<f32>(-0.0376262828));
  q = fma(q, t, vec4<f32>(0.111808256));
  q = fma(q, t, vec4<f32>(0.117236475));
  q = fma(q, t, vec4<f32>(0.138021091));
  q = fma(q, t, vec4<f32>(0.137619281));
  return q * t;
}

// exp(-u^2/2); what the built-in exp2 may lose, 2|x| + 3 ulp, is what rounding the square loses.
fn bell(u: vec4<f32>) -> vec4<f32> {
  return exp2(u * u * -0.72134752);
}

// x P(X < x) is max(x, 0) - |x| P(X > |x|), without cancellation on the left of 0.
fn gelu(x: vec4<f32>) -> vec4<f32> {
  let u = min(abs(x), vec4<f32>(14.0));
  return max(x, vec4<f32>(0.0)) - u * (normal_tail_ratio(u) * bell(u));
}

fn gelu_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, gelu(number(a)));
}

fn gelu_mul_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, gelu(number(a)) * number(b));
}

// ---- gradients: the slope at a times b ----

fn relu_grad_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return select(select(vec4<u32>(0u), b, number(a) > vec4<f32>(0.0)), a, is_nan(a));
}

// s (1 - s) for the sigmoid s: the same on both sides of 0, where exp(-|x|) does not overflow.
fn sigmoid_slope(x: vec4<f32>) -> vec4<f32> {
  let e = exp4(-abs(x));
  let s = 1.0 / (1.0 + e);
  return e * s * s;
}

fn tanh_grad_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, 4.0 * sigmoid_slope(2.0 * number(a)) * number(b));
}

fn sigmoid_grad_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  return unless_nan(a, sigmoid_slope(number(a)) * number(b));
}

// The slope of x s(v): s(v) + x s'(v) v'.
fn gate_slope(x: vec4<f32>, v: vec4<f32>, v_slope: vec4<f32>) -> vec4<f32> {
  let e = exp4(-abs(v));
  let s = 1.0 / (1.0 + e);
  return select(e, vec4<f32>(1.0), v >= vec4<f32>(0.0)) * s + x * v_slope * (e * s * s);
}

fn silu_grad_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let x = clamp(number(a), vec4<f32>(-110.0), vec4<f32>(110.0));
  return unless_nan(a, gate_slope(x, x, vec4<f32>(1.0)) * number(b));
}

fn gelu_tanh_grad_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let x = clamp(number(a), vec4<f32>(-11.0), vec4<f32>(11.0));
  let square = x * x;
  let v = x * fma(square, vec4<f32>(0.0713548163), vec4<f32>(1.5957691216));
  let v_slope = fma(square, vec4<f32>(0.2140644488), vec4<f32>(1.5957691216));
  return unless_nan(a, gate_slope(x, v, v_slope) * number(b));
}

// P(X < x) + x p(x) for a normal X of density p.
fn gelu_grad_of(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let x = clamp(number(a), vec4<f32>(-15.0), vec4<f32>(15.0));
  let e = bell(x);
  let tail = normal_tail_ratio(abs(x)) * e;
  let below = select(tail, 1.0 - tail, x >= vec4<f32>(0.0));
  return unless_nan(a, (below + x * (0.39894228 * e)) * number(b));
}
