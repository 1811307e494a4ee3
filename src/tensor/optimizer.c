/* optimizer.c - attributes of optimizers as the numbers of a step (optimizer.h). */
#include "tensor/optimizer.h"

#include "weft/ops.h"

#include <math.h>

weft__adam weft__adam_of(const weft_adam_step_attrs *attrs, float factor) {
  const double n_steps = (double)attrs->step;
  const bool is_l2 = attrs->decay == WEFT_DECAY_L2;
  return (weft__adam){
      .factor = factor,
      .l2 = (float)(is_l2 ? attrs->weight_decay : 0),
      .old_first = (float)attrs->beta1,
      .new_first = (float)(1 - attrs->beta1),
      .old_second = (float)attrs->beta2,
      .new_second = (float)(1 - attrs->beta2),
      .root_scale = (float)(1 / sqrt(1 - pow(attrs->beta2, n_steps))),
      .eps = (float)attrs->eps,
      .shrink = (float)(is_l2 ? 1 : 1 - attrs->lr * attrs->weight_decay),
      .rate = (float)(attrs->lr / (1 - pow(attrs->beta1, n_steps))),
  };
}

weft__sgd weft__sgd_of(const weft_sgd_step_attrs *attrs, float factor) {
  return (weft__sgd){factor, (float)attrs->weight_decay, (float)attrs->momentum, (float)attrs->lr,
                     attrs->nesterov != 0};
}

double weft__clip_norm(const weft_clip_factor_attrs *attrs) { return fmin(attrs->max_norm, 1e30); }
