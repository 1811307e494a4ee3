/* normal_tail.h - the tail of the normal distribution in f32, for the vocabularies that have lanes.
 *
 * P(X > u) = exp(-u^2/2) * R(u) for u >= 0, where R is smooth and falls as 1/u.  So R(u) = t * p(t) with
 * t = 1 / (1 + 0.345 u) and p of degree 8, fitted for least relative error on [0, 14]: 2e-8.  In f32 the square's rounding
 * dominates: 4e-7 relative at u = 2, 4e-6 at u = 13, where the tail is 1e-38. */
#ifndef WEFT_NORMAL_TAIL_H
#define WEFT_NORMAL_TAIL_H

static inline vf vf_normal_tail(vf u) {
  static const float P[] = {-0.0283879174f, 0.145306968f, -0.271217199f, 0.18723932f, -0.0376262828f,
                            0.111808256f,   0.117236475f, 0.138021091f,  0.137619281f};
  vf t = vf_div(vf_set1(1), vf_fma(vf_set1(0.345f), u, vf_set1(1)));
  vf p = vf_set1(P[0]);
  for (int i = 1; i < 9; i++) p = vf_fma(p, t, vf_set1(P[i]));
  return vf_mul(vf_mul(p, t), vf_exp(vf_mul(vf_mul(u, u), vf_set1(-0.5f))));
}

#endif
