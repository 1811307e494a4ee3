/* gradient.h - gradients by central differences of formulas in double: what every gradient operator is compared with. */
#ifndef WEFT_TEST_GRADIENT_H
#define WEFT_TEST_GRADIENT_H

#include <stddef.h>

/* An operator's formula in double, from the elements of its operands, in row-major order, to those of its result. */
typedef void (*test_formula)(const void *context, const double *const *in, double *y);

/* The gradient of sum(dy * y) by operand `which` of n elements, y of n_y: [n], freed with free.  The operands come back as
 * they were.  Near x, the difference over 2h with h = 1e-5 * max(1, |x|) is within 1e-9 of a smooth formula's slope. */
double *test_gradient(test_formula formula, const void *context, double **in, int which, size_t n, const double *dy,
                      size_t n_y);

#endif
