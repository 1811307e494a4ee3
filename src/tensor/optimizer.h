/* optimizer.h - what an optimizer's step computes, in the numbers that it takes (optimizer.c). */
#ifndef WEFT_OPTIMIZER_H
#define WEFT_OPTIMIZER_H

#include <stdbool.h>

/* g = factor * gradient + l2 * p;  m = old_first * m + new_first * g;  v = old_second * v + new_second * g^2;
 * p = shrink * p - rate * m / (root_scale * sqrt(v) + eps) */
typedef struct weft__adam {
  float factor, l2, old_first, new_first, old_second, new_second, root_scale, eps, shrink, rate;
} weft__adam;

/* g = factor * gradient + l2 * p;  m = momentum * m + g;  p -= rate * (m, or g + momentum * m if Nesterov's, or g without
 * momentum) */
typedef struct weft__sgd {
  float factor, l2, momentum, rate;
  bool is_nesterov;
} weft__sgd;

/* From attributes that have passed their rules: computed in double and rounded once. */
struct weft_adam_step_attrs;
struct weft_sgd_step_attrs;
struct weft_clip_factor_attrs;
weft__adam weft__adam_of(const struct weft_adam_step_attrs *attrs, float factor);
weft__sgd weft__sgd_of(const struct weft_sgd_step_attrs *attrs, float factor);

/* What clip_factor adds to the norm, and the largest norm: where there is none, more than f32 has squares of. */
#define WEFT__CLIP_EPS 1e-6
double weft__clip_norm(const struct weft_clip_factor_attrs *attrs);

#endif
