/* gradient.c - central differences in double. */
#include "support/gradient.h"

#include "support/tensors.h"

#include <math.h>
#include <stdlib.h>

/* sum(dy * y) */
static double weighted(test_formula formula, const void *context, double *const *in, double *y, const double *dy,
                       size_t n_y) {
  double sum = 0;
  formula(context, (const double *const *)in, y);
  for (size_t e = 0; e < n_y; e++) sum += dy[e] * y[e];
  return sum;
}

double *test_gradient(test_formula formula, const void *context, double **in, int which, size_t n, const double *dy,
                      size_t n_y) {
  double *gradient = test_doubles(n), *y = test_doubles(n_y);
  for (size_t e = 0; e < n; e++) {
    double x = in[which][e], step = 1e-5 * fmax(1, fabs(x));
    in[which][e] = x + step;
    double above = weighted(formula, context, in, y, dy, n_y);
    in[which][e] = x - step;
    gradient[e] = (above - weighted(formula, context, in, y, dy, n_y)) / (2 * step);
    in[which][e] = x;
  }
  free(y);
  return gradient;
}
