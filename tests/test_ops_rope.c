/* test_ops_rope.c - rope_table and rope on every variant, against angles in long double. */
#include "support/gradient.h"
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 2 };

/* Frequencies divided by the powers of two 1, 2, 4, 1, 2 ..., or by nothing. */
static double rope_factor(bool is_plain, int64_t i) { return is_plain ? 1 : (double)(1 << i % 3); }

static weft_tensor *rope_factors(test_device *d, int n_dims, bool is_plain) {
  float factors[128];
  for (int i = 0; i < n_dims / 2; i++) factors[i] = (float)rope_factor(is_plain, i);
  return weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(n_dims / 2), factors);
}

static weft_tensor *plain_rope_table(test_device *d, int64_t n, const int32_t *positions,
                                     const weft_rope_table_attrs *attrs) {
  return weft_rope_table(d->scope, test_i32(d, n, positions), rope_factors(d, attrs->n_dims, true), attrs);
}

/* The angle of pair i of n_dims/2 at a position, by exponential and logarithm instead of a power; YaRN by wavelengths. */
static long double rope_angle(const weft_rope_table_attrs *attrs, int32_t position, int64_t i) {
  long double frequency = expl(-2.0L * (long double)i / (long double)attrs->n_dims * logl((long double)attrs->base));
  if (attrs->yarn_factor > 0) {
    long double wavelength = 2 * acosl(-1) / frequency, ratio = (long double)attrs->yarn_context / wavelength;
    long double ramp = ratio < 1 ? 0 : ratio > 32 ? 1 : (ratio - 1) / 31;
    frequency = (1 - ramp) * frequency / (long double)attrs->yarn_factor + ramp * frequency;
  }
  return (long double)position * (long double)attrs->scale * frequency;
}

static const int32_t POSITIONS[] = {0, 1, 2, 31, 500, 8191, 100000, -3};
enum { N_POSITIONS = WEFT_COUNT(POSITIONS) };

/* Cosines and sines are rounded once, after arithmetic in double whose angle is off by 1e-11 at most. */
static void check_rope_table_of(test_device *d, bool is_plain) {
  static const weft_rope_table_attrs cases[] = {{64, 10000, 1, 0, 0, 0},
                                                {64, 500000, 1, 0, 0, 0},
                                                {2, 10000, 1, 0, 0, 0},
                                                {6, 100, 0.25f, 0, 0, 0},
                                                {128, 1e6f, 8, 0, 0, 0},
                                                {4, 1, 1, 0, 0, 0},
                                                {6, 100, -0.25f, 0, 0, 0},
                                                {6, 100, 0, 0, 0, 0},
                                                {128, 10000, 1, 4, 2048, 1.1386294f}, /* YaRN: 0.1 ln 4 + 1 */
                                                {128, 10000, 1, 1, 2048, 0},
                                                {64, 500000, 1, 32, 8192, 1.3465736f}};
  for (size_t t = 0; t < WEFT_COUNT(cases); t++) {
    int64_t half = cases[t].n_dims / 2;
    double *want = test_doubles((size_t)(N_POSITIONS * 2 * half));
    for (int64_t n = 0; n < N_POSITIONS; n++)
      for (int64_t i = 0; i < half; i++) {
        long double angle = rope_angle(&cases[t], POSITIONS[n], i) / (long double)rope_factor(is_plain, i);
        long double magnitude = cases[t].magnitude != 0 ? (long double)cases[t].magnitude : 1;
        want[(n * 2 + 0) * half + i] = (double)(magnitude * cosl(angle));
        want[(n * 2 + 1) * half + i] = (double)(magnitude * sinl(angle));
      }
    weft_tensor *factors = rope_factors(d, cases[t].n_dims, is_plain);
    weft_tensor *y = weft_rope_table(d->scope, test_i32(d, N_POSITIONS, POSITIONS), factors, &cases[t]);
    test_expect_shape("rope_table", y, WEFT_F32, TEST_SHAPE(N_POSITIONS, 2, half));
    test_compare("rope_table", d, y, want, NULL, 1e-9, TEST_ROUNDING);
    free(want);
  }
  test_expect_shape("rope_table", plain_rope_table(d, 0, NULL, &cases[0]), WEFT_F32, TEST_SHAPE(0, 2, 32));
}

static void check_rope_table(test_device *d) {
  check_rope_table_of(d, true);
  check_rope_table_of(d, false);
}

static void rope_table_holds_cosines_and_sines(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_table);
}

/* Linear scaling by 4 moves position 4n to where n was. */
static void check_rope_scaling(test_device *d) {
  static const int32_t near[] = {1, 2, 250}, far[] = {4, 8, 1000};
  weft_rope_table_attrs attrs = {.n_dims = 32, .base = 10000, .scale = 1};
  float *plain = test_read(plain_rope_table(d, 3, near, &attrs));
  attrs.scale = 0.25f;
  float *scaled = test_read(plain_rope_table(d, 3, far, &attrs));
  assert_memory_equal(plain, scaled, 3 * 32 * sizeof *plain);
  free(plain);
  free(scaled);
}

static void rope_table_scales_positions(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_scaling);
}

/* One way to rotate. */
typedef struct rope_case {
  weft_rope_table_attrs table;
  weft_rope_attrs rope;
  int n_heads;
} rope_case;

static const rope_case ROPE_CASES[] = {
    {{64, 10000, 1, 0, 0, 0}, {64, WEFT_ROPE_INTERLEAVED, 0}, 3},
    {{64, 10000, 1, 0, 0, 0}, {64, WEFT_ROPE_HALVES, 0}, 3},
    {{32, 10000, 1, 0, 0, 0}, {80, WEFT_ROPE_INTERLEAVED, 0}, 2}, /* partial */
    {{32, 10000, 1, 0, 0, 0}, {80, WEFT_ROPE_HALVES, 0}, 2},
    {{6, 1000, 0.5f, 0, 0, 0}, {6, WEFT_ROPE_INTERLEAVED, 0}, 1},
    {{6, 1000, 0.5f, 0, 0, 0}, {7, WEFT_ROPE_HALVES, 0}, 5},
    {{2, 10000, 1, 0, 0, 0}, {2, WEFT_ROPE_INTERLEAVED, 0}, 4},
    {{2, 10000, 1, 0, 0, 0}, {2, WEFT_ROPE_HALVES, 0}, 4},
};

/* The places of pair i within a head. */
static void pair_places(const rope_case *c, int64_t i, int64_t *real, int64_t *imaginary) {
  bool is_interleaved = c->rope.pairing == WEFT_ROPE_INTERLEAVED;
  *real = is_interleaved ? 2 * i : i;
  *imaginary = is_interleaved ? 2 * i + 1 : i + c->table.n_dims / 2;
}

/* Pairs as complex numbers times exp(i angle).  The table's two entries are rounded, the products and their sum: 4
 * units of |real| + |imaginary| are allowed.  Elements beyond the rotated ones stay as they are. */
static void check_rope_of(test_device *d, const rope_case *c, weft_tensor *a) {
  int64_t width = (int64_t)c->rope.head_size * c->n_heads;
  weft_tensor *table = plain_rope_table(d, N_POSITIONS, POSITIONS, &c->table);
  weft_tensor *y = weft_rope(d->scope, a, table, &c->rope);
  test_expect_shape("rope", y, WEFT_F32, TEST_SHAPE(N_POSITIONS, width));
  float *x = test_read(a);
  double *want = test_doubles((size_t)(N_POSITIONS * width)), *tolerance = test_doubles((size_t)(N_POSITIONS * width));
  for (int64_t e = 0; e < N_POSITIONS * width; e++) want[e] = (double)x[e];
  for (int64_t n = 0; n < N_POSITIONS; n++)
    for (int64_t h = n * width; h < (n + 1) * width; h += c->rope.head_size)
      for (int64_t i = 0; i < c->table.n_dims / 2; i++) {
        int64_t r, m;
        pair_places(c, i, &r, &m);
        double angle = (double)rope_angle(&c->table, POSITIONS[n], i), x_r = (double)x[h + r], x_m = (double)x[h + m];
        want[h + r] = x_r * cos(angle) - x_m * sin(angle);
        want[h + m] = x_m * cos(angle) + x_r * sin(angle);
        tolerance[h + r] = tolerance[h + m] = 4 * TEST_ROUNDING * (fabs(x_r) + fabs(x_m));
      }
  test_compare("rope", d, y, want, tolerance, 0, 0);
  free(x);
  free(want);
  free(tolerance);
}

static void check_rope(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(ROPE_CASES); i++) {
    int64_t width = (int64_t)ROPE_CASES[i].rope.head_size * ROPE_CASES[i].n_heads;
    check_rope_of(d, &ROPE_CASES[i], test_random(d, TEST_SHAPE(N_POSITIONS, width), 4, i));
    check_rope_of(d, &ROPE_CASES[i], test_columns(d, N_POSITIONS, width, 4, i)); /* as out of a joint product */
  }
}

static void rope_rotates_pairs(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope);
}

/* A quarter of a turn, to be followed by eye. */
static void check_rope_quarter(test_device *d) {
  const float head[6] = {1, 2, 3, 4, 5, 6}, table[4] = {0, 0, 1, 1}; /* cosines, then sines */
  const double interleaved[6] = {-2, 1, -4, 3, 5, 6}, halves[6] = {-3, -4, 1, 2, 5, 6};
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1, 6), head);
  weft_tensor *b = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1, 2, 2), table);
  weft_rope_attrs attrs = {.head_size = 6, .pairing = WEFT_ROPE_INTERLEAVED};
  test_compare("rope, interleaved", d, weft_rope(d->scope, a, b, &attrs), interleaved, NULL, 0, 0);
  attrs.pairing = WEFT_ROPE_HALVES;
  test_compare("rope, halves", d, weft_rope(d->scope, a, b, &attrs), halves, NULL, 0, 0);
}

static void rope_pairs_by_layout(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_quarter);
}

/* There and back: two rotations, each as exact as above; back by the angles of the negative positions, and by the inverse. */
static void check_rope_inverse(test_device *d) {
  int32_t negative[N_POSITIONS];
  for (int n = 0; n < N_POSITIONS; n++) negative[n] = -POSITIONS[n];
  for (size_t k = 0; k < WEFT_COUNT(ROPE_CASES); k++) {
    const rope_case *c = &ROPE_CASES[k];
    int64_t width = (int64_t)c->rope.head_size * c->n_heads;
    weft_tensor *a = test_random(d, TEST_SHAPE(N_POSITIONS, width), 1, k);
    weft_tensor *forth = plain_rope_table(d, N_POSITIONS, POSITIONS, &c->table);
    weft_tensor *back = plain_rope_table(d, N_POSITIONS, negative, &c->table);
    weft_tensor *turned = weft_rope(d->scope, a, forth, &c->rope), *y = weft_rope(d->scope, turned, back, &c->rope);
    weft_rope_attrs inverse = c->rope;
    inverse.inverse = 1;
    float *x = test_read(a);
    double *want = test_doubles((size_t)(N_POSITIONS * width));
    for (int64_t e = 0; e < N_POSITIONS * width; e++) want[e] = (double)x[e];
    test_compare("rope, there and back", d, y, want, NULL, 20 * TEST_ROUNDING, 0);
    test_compare("rope, inverse", d, weft_rope(d->scope, turned, forth, &inverse), want, NULL, 20 * TEST_ROUNDING, 0);
    free(x);
    free(want);
  }
}

static void rope_is_undone_by_its_inverse(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_inverse);
}

/* rope in double: context is the case, in[1] the table. */
static void rope_formula(const void *context, const double *const *in, double *y) {
  const rope_case *c = context;
  int64_t width = (int64_t)c->rope.head_size * c->n_heads, half = c->table.n_dims / 2;
  for (int64_t e = 0; e < 2 * width; e++) y[e] = in[0][e];
  for (int64_t n = 0; n < 2; n++)
    for (int64_t h = n * width; h < (n + 1) * width; h += c->rope.head_size)
      for (int64_t i = 0; i < half; i++) {
        int64_t r, m;
        pair_places(c, i, &r, &m);
        double cosine = in[1][n * 2 * half + i], sine = in[1][n * 2 * half + half + i];
        y[h + r] = in[0][h + r] * cosine - in[0][h + m] * sine;
        y[h + m] = in[0][h + m] * cosine + in[0][h + r] * sine;
      }
}

static void check_rope_gradient(test_device *d) {
  for (size_t k = 0; k < WEFT_COUNT(ROPE_CASES); k++) {
    const rope_case *c = &ROPE_CASES[k];
    int64_t width = (int64_t)c->rope.head_size * c->n_heads;
    weft_rope_attrs inverse = c->rope;
    inverse.inverse = 1;
    weft_tensor *a = test_random(d, TEST_SHAPE(2, width), 2, k), *dy = test_columns(d, 2, width, 1, k + 9);
    weft_tensor *table = plain_rope_table(d, 2, (const int32_t[]){3, 100}, &c->table);
    double *x = test_values(a), *angles = test_values(table), *weights = test_values(dy);
    double *want =
        test_gradient(rope_formula, c, (double *[]){x, angles}, 0, (size_t)(2 * width), weights, (size_t)(2 * width));
    test_compare("rope's gradient", d, weft_rope(d->scope, dy, table, &inverse), want, NULL, 1e-6, 0);
    free(x);
    free(angles);
    free(weights);
    free(want);
  }
}

static void rope_inverse_is_the_gradient(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_gradient);
}

/* Rows enough for several tasks, no rows, and a table that rotates nothing. */
static void check_rope_extremes(test_device *d) {
  enum { N = 400, WIDTH = 128 };
  const weft_rope_table_attrs table_attrs = {.n_dims = 64, .base = 10000, .scale = 1};
  const weft_rope_attrs attrs = {.head_size = 64, .pairing = WEFT_ROPE_HALVES};
  int32_t positions[N];
  for (int n = 0; n < N; n++) positions[n] = n;
  weft_tensor *a = test_random(d, TEST_SHAPE(N, WIDTH), 1, 1);
  weft_tensor *table = plain_rope_table(d, N, positions, &table_attrs);
  weft_tensor *y = weft_rope(d->scope, a, table, &attrs);
  /* Row by row the same, to the bit. */
  for (int n = 0; n < N; n += 37) {
    weft_tensor *alone = weft_rope(d->scope, weft_slice(d->scope, a, 0, n, 1),
                                   plain_rope_table(d, 1, positions + n, &table_attrs), &attrs);
    float *one = test_read(alone), *all = test_read(weft_slice(d->scope, y, 0, n, 1));
    assert_memory_equal(one, all, WIDTH * sizeof *one);
    free(one);
    free(all);
  }
  weft_tensor *no_rows =
      weft_rope(d->scope, weft_slice(d->scope, a, 0, 0, 0), plain_rope_table(d, 0, NULL, &table_attrs), &attrs);
  test_expect_shape("rope", no_rows, WEFT_F32, TEST_SHAPE(0, WIDTH));
  float *before = test_read(a);
  float *after = test_read(weft_rope(d->scope, a, weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(N, 2, 0)), &attrs));
  assert_memory_equal(after, before, N * WIDTH * sizeof *before);
  free(before);
  free(after);
}

static void rope_of_many_rows_and_of_none(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_rope_extremes);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rope_table_holds_cosines_and_sines),
      cmocka_unit_test(rope_table_scales_positions),
      cmocka_unit_test(rope_rotates_pairs),
      cmocka_unit_test(rope_pairs_by_layout),
      cmocka_unit_test(rope_is_undone_by_its_inverse),
      cmocka_unit_test(rope_inverse_is_the_gradient),
      cmocka_unit_test(rope_of_many_rows_and_of_none),
  };
  return cmocka_run_group_tests_name("ops_rope", tests, NULL, NULL);
}
