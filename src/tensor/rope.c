/* rope.c - the frequencies of rotary embedding, computed alike for every backend. */
#include "tensor/tensor.h"

#include <math.h>

/* Of a pair that turns often within the context the model was trained on YaRN keeps the frequency, of one that never turns
 * once it stretches the wave as linear scaling does, and between the two it goes from one to the other. */
static double yarn_frequency(const weft_rope_table_attrs *attrs, double frequency) {
  const double slow = 1, fast = 32, two_pi = 6.283185307179586;
  double turns = attrs->yarn_context * frequency / two_pi;
  double kept = fmin(fmax((turns - slow) / (fast - slow), 0), 1);
  return (1 - kept) * frequency / (double)attrs->yarn_factor + kept * frequency;
}

double weft__rope_frequency(const weft_rope_table_attrs *attrs, int64_t pair) {
  double frequency = pow((double)attrs->base, -2.0 * (double)pair / attrs->n_dims);
  if (attrs->yarn_factor > 1) frequency = yarn_frequency(attrs, frequency);
  return frequency * (double)attrs->scale;
}

double weft__rope_magnitude(const weft_rope_table_attrs *attrs) {
  return attrs->magnitude != 0 ? (double)attrs->magnitude : 1;
}
