/* test_ops_elementwise.c - the operators that work element by element, on every variant of the CPU's code and on the GPU,
 * against formulas in double.  An operator is a row of OPERATORS; all of them run on the same operands: every size,
 * broadcasting, views, stored types.
 *
 * Results are computed in f32, so the unit of tolerances is half an f32 step.  The devices' new buffers are full of NaN,
 * so an element that an operator leaves out fails as well. */
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 2, MAX_INPUTS = 3 };

/* ---- the formulas ---- */

static double sum_of(const double *x) { return x[0] + x[1]; }
static double difference_of(const double *x) { return x[0] - x[1]; }
static double product_of(const double *x) { return x[0] * x[1]; }
static double quotient_of(const double *x) { return x[0] / x[1]; }
static double power_of(const double *x) { return pow(x[0], x[1]); }
static double larger_of(const double *x) { return isnan(x[0]) || isnan(x[1]) ? NAN : fmax(x[0], x[1]); }
static double smaller_of(const double *x) { return isnan(x[0]) || isnan(x[1]) ? NAN : fmin(x[0], x[1]); }
static double equal_of(const double *x) { return x[0] == x[1]; }
static double not_equal_of(const double *x) { return x[0] != x[1]; }
static double less_of(const double *x) { return x[0] < x[1]; }
static double less_equal_of(const double *x) { return x[0] <= x[1]; }
static double greater_of(const double *x) { return x[0] > x[1]; }
static double greater_equal_of(const double *x) { return x[0] >= x[1]; }
static double chosen_of(const double *x) { return x[0] != 0 ? x[1] : x[2]; }
static double scaled_of(const double *x) { return x[0] * -2.5; }
static double clamped_of(const double *x) { return x[0] < -0.75 ? -0.75 : x[0] > 1.5 ? 1.5 : x[0]; }
static double size_of(const double *x) { return fabs(x[0]); }
static double negative_of(const double *x) { return -x[0]; }
static double exponential_of(const double *x) { return exp(x[0]); }
static double logarithm_of(const double *x) { return log(x[0]); }
static double root_of(const double *x) { return sqrt(x[0]); }
static double tanh_of(const double *x) { return tanh(x[0]); }
static double sigmoid_of(const double *x) { return 1 / (1 + exp(-x[0])); }
static double relu_of(const double *x) { return isnan(x[0]) ? NAN : x[0] > 0 ? x[0] : 0; }
static double gelu_of(const double *x) { return 0.5 * x[0] * (1 + erf(x[0] * M_SQRT1_2)); }
static double gelu_tanh_of(const double *x) {
  return x[0] / (1 + exp(-2 * sqrt(2 / M_PI) * (x[0] + 0.044715 * x[0] * x[0] * x[0])));
}
static double silu_of(const double *x) { return x[0] / (1 + exp(-x[0])); }

/* The slopes, times what comes from above. */
static double slope_of_sigmoid(double v) { return 1 / (2 + exp(v) + exp(-v)); }
static double relu_grad_of(const double *x) { return isnan(x[0]) ? NAN : x[0] > 0 ? x[1] : 0; }
static double tanh_grad_of(const double *x) { return 4 * slope_of_sigmoid(2 * x[0]) * x[1]; }
static double sigmoid_grad_of(const double *x) { return slope_of_sigmoid(x[0]) * x[1]; }
static double gelu_grad_of(const double *x) {
  double density = isinf(x[0]) ? 0 : x[0] * exp(-x[0] * x[0] / 2) / sqrt(2 * M_PI);
  return x[1] * (erfc(-x[0] * M_SQRT1_2) / 2 + density);
}
static double gate_grad_of(double x, double v, double v_slope, double dy) {
  double below = isinf(x) ? 0 : x * v_slope * slope_of_sigmoid(v);
  return dy * (1 / (1 + exp(-v)) + below);
}
static double gelu_tanh_grad_of(const double *x) {
  double k = 2 * sqrt(2 / M_PI), square = x[0] * x[0];
  double v = k * x[0] * (1 + 0.044715 * square), v_slope = k * (1 + 3 * 0.044715 * square);
  return gate_grad_of(x[0], v, isinf(v) || fabs(v) > 700 ? 0 : v_slope, x[1]);
}
static double silu_grad_of(const double *x) { return gate_grad_of(x[0], x[0], 1, x[1]); }

static const weft_scale_attrs SCALE = {-2.5f};
static const weft_clamp_attrs BOUNDS = {-0.75f, 1.5f};
static const weft_compare_attrs RELATIONS[] = {{WEFT_EQUAL},      {WEFT_NOT_EQUAL}, {WEFT_LESS},
                                               {WEFT_LESS_EQUAL}, {WEFT_GREATER},   {WEFT_GREATER_EQUAL}};

/* How close a result is: within absolute + units * TEST_ROUNDING * |y| + of_operand * |a|.  No units: the exact result,
 * rounded to f32 once.  The shading language allows a quotient more. */
typedef struct closeness {
  double absolute, units, of_operand, gpu_units;
} closeness;

#define EXACT                                                                                                          \
  { 0, 0, 0, 0 }

enum operand_kind { REAL, WORDS /* i32 */, CONDITION /* i32 0 and 1, then anything */ };

typedef struct operator_case {
  weft_op op;
  int n_inputs;
  enum operand_kind kind;
  const void *attrs;
  double (*formula)(const double *x);
  double low, high; /* of the operands */
  closeness close;
} operator_case;

/* The slopes of gelu, gelu_tanh and silu are sums whose terms nearly cancel left of 0: within 5e-7 of b's size there, as
 * a term is at most 1.1; 20 and 100 are that size in the wide rows.
 *
 * exp is good to 3 units, each operation that follows to one more.  Where exp(-a) exceeds f32, silu is 0 instead of at
 * most 89 / 3.4e38.  gelu: erf is within 2e-7 of 1, and that much of a is lost where 1 + erf nearly cancels.  gelu_tanh: an
 * exponent's rounding counts as often as the exponent is large, but then the exponential is small: at most 2e-7 of a.  exp
 * falls to 0 below 2^-149.  powf is the C library's. */
static const operator_case OPERATORS[] = {
    {WEFT_OP_ID_add, 2, REAL, NULL, sum_of, -3, 3, EXACT},
    {WEFT_OP_ID_sub, 2, REAL, NULL, difference_of, -3, 3, EXACT},
    {WEFT_OP_ID_mul, 2, REAL, NULL, product_of, -3, 3, EXACT},
    {WEFT_OP_ID_div, 2, REAL, NULL, quotient_of, -3, 3, {.gpu_units = 5}},
    {WEFT_OP_ID_pow, 2, REAL, NULL, power_of, 0, 3, {.units = 3}},
    {WEFT_OP_ID_pow, 2, REAL, NULL, power_of, 0, 25, {.units = 3, .absolute = 0x1p-148}},
    {WEFT_OP_ID_maximum, 2, REAL, NULL, larger_of, -3, 3, EXACT},
    {WEFT_OP_ID_minimum, 2, REAL, NULL, smaller_of, -3, 3, EXACT},
    {WEFT_OP_ID_compare, 2, REAL, &RELATIONS[0], equal_of, -3, 3, EXACT},
    {WEFT_OP_ID_compare, 2, REAL, &RELATIONS[2], less_of, -3, 3, EXACT},
    {WEFT_OP_ID_compare, 2, WORDS, &RELATIONS[0], equal_of, -3, 3, EXACT},
    {WEFT_OP_ID_compare, 2, WORDS, &RELATIONS[1], not_equal_of, -3, 3, EXACT},
    {WEFT_OP_ID_compare, 2, WORDS, &RELATIONS[2], less_of, -3, 3, EXACT},
    {WEFT_OP_ID_compare, 2, WORDS, &RELATIONS[3], less_equal_of, -3, 3, EXACT},
    {WEFT_OP_ID_compare, 2, WORDS, &RELATIONS[4], greater_of, -3, 3, EXACT},
    {WEFT_OP_ID_compare, 2, WORDS, &RELATIONS[5], greater_equal_of, -3, 3, EXACT},
    {WEFT_OP_ID_where, 3, CONDITION, NULL, chosen_of, -3, 3, EXACT},
    {WEFT_OP_ID_where, 3, WORDS, NULL, chosen_of, -2, 3, EXACT},
    {WEFT_OP_ID_scale, 1, REAL, &SCALE, scaled_of, -8, 8, {.units = 1}},
    {WEFT_OP_ID_clamp, 1, REAL, &BOUNDS, clamped_of, -3, 3, EXACT},
    {WEFT_OP_ID_abs, 1, REAL, NULL, size_of, -3, 3, EXACT},
    {WEFT_OP_ID_neg, 1, REAL, NULL, negative_of, -3, 3, EXACT},
    {WEFT_OP_ID_exp, 1, REAL, NULL, exponential_of, -8, 8, {.units = 5}},
    {WEFT_OP_ID_exp, 1, REAL, NULL, exponential_of, -100, 88.5, {.units = 5, .absolute = 0x1p-148}},
    {WEFT_OP_ID_log, 1, REAL, NULL, logarithm_of, 0.25, 4, {.units = 5}},
    {WEFT_OP_ID_log, 1, REAL, NULL, logarithm_of, 0.99, 1.01, {.units = 5}},
    {WEFT_OP_ID_log, 1, REAL, NULL, logarithm_of, 0, 3e38, {.units = 5}},
    {WEFT_OP_ID_log, 1, REAL, NULL, logarithm_of, 1e-45, 3e-38, {.units = 5}},
    {WEFT_OP_ID_sqrt, 1, REAL, NULL, root_of, 0, 100, {.units = 1}},
    {WEFT_OP_ID_tanh, 1, REAL, NULL, tanh_of, -1, 1, {.units = 6}},
    {WEFT_OP_ID_tanh, 1, REAL, NULL, tanh_of, -1e-4, 1e-4, {.units = 6}},
    {WEFT_OP_ID_tanh, 1, REAL, NULL, tanh_of, -200, 200, {.units = 6}},
    {WEFT_OP_ID_sigmoid, 1, REAL, NULL, sigmoid_of, -8, 8, {.units = 6}},
    {WEFT_OP_ID_sigmoid, 1, REAL, NULL, sigmoid_of, -100, 100, {.units = 6, .absolute = 3e-38}},
    {WEFT_OP_ID_relu, 1, REAL, NULL, relu_of, -8, 8, EXACT},
    {WEFT_OP_ID_gelu, 1, REAL, NULL, gelu_of, -8, 8, {1e-37, 8, 2e-7, 0}},
    {WEFT_OP_ID_gelu, 1, REAL, NULL, gelu_of, -1e-3, 1e-3, {1e-37, 8, 2e-7, 0}},
    {WEFT_OP_ID_gelu, 1, REAL, NULL, gelu_of, -100, 100, {1e-37, 8, 2e-7, 0}},
    {WEFT_OP_ID_gelu_tanh, 1, REAL, NULL, gelu_tanh_of, -8, 8, {1e-36, 8, 2e-7, 0}},
    {WEFT_OP_ID_gelu_tanh, 1, REAL, NULL, gelu_tanh_of, -100, 100, {1e-36, 8, 2e-7, 0}},
    {WEFT_OP_ID_silu, 1, REAL, NULL, silu_of, -8, 8, {.units = 8}},
    {WEFT_OP_ID_silu, 1, REAL, NULL, silu_of, -120, 120, {.absolute = 3e-37, .units = 8}},
    {WEFT_OP_ID_silu, 1, REAL, NULL, silu_of, -1e30, 1e30, {.absolute = 3e-37, .units = 8}},
    {WEFT_OP_ID_relu_grad, 2, REAL, NULL, relu_grad_of, -8, 8, EXACT},
    {WEFT_OP_ID_tanh_grad, 2, REAL, NULL, tanh_grad_of, -8, 8, {.units = 10}},
    {WEFT_OP_ID_tanh_grad, 2, REAL, NULL, tanh_grad_of, -100, 100, {.units = 10, .absolute = 1e-36}},
    {WEFT_OP_ID_sigmoid_grad, 2, REAL, NULL, sigmoid_grad_of, -8, 8, {.units = 10}},
    {WEFT_OP_ID_sigmoid_grad, 2, REAL, NULL, sigmoid_grad_of, -100, 100, {.units = 10, .absolute = 1e-36}},
    {WEFT_OP_ID_gelu_grad, 2, REAL, NULL, gelu_grad_of, -3, 3, {.absolute = 1.5e-6, .units = 4}},
    {WEFT_OP_ID_gelu_grad, 2, REAL, NULL, gelu_grad_of, -20, 20, {.absolute = 1e-5, .units = 4}},
    {WEFT_OP_ID_gelu_tanh_grad, 2, REAL, NULL, gelu_tanh_grad_of, -3, 3, {.absolute = 1.5e-6, .units = 4}},
    {WEFT_OP_ID_gelu_tanh_grad, 2, REAL, NULL, gelu_tanh_grad_of, -20, 20, {.absolute = 1e-5, .units = 4}},
    {WEFT_OP_ID_silu_grad, 2, REAL, NULL, silu_grad_of, -3, 3, {.absolute = 1e-6, .units = 4}},
    {WEFT_OP_ID_silu_grad, 2, REAL, NULL, silu_grad_of, -100, 100, {.absolute = 3e-5, .units = 4}},
};

/* ---- one operator, one set of operands ---- */

static weft_dtype result_dtype(const operator_case *c, weft_tensor *const *in) {
  if (c->op == WEFT_OP_ID_compare) return WEFT_I32;
  return c->op == WEFT_OP_ID_where ? in[1]->dtype : WEFT_F32;
}

/* The result's shape by NumPy's rule. */
static int broadcast_shape(int n_inputs, weft_tensor *const *in, int64_t *shape) {
  int rank = 0;
  for (int i = 0; i < n_inputs; i++) rank = in[i]->rank > rank ? in[i]->rank : rank;
  for (int axis = 0; axis < rank; axis++) {
    shape[axis] = 1;
    for (int i = 0; i < n_inputs; i++) {
      int own = axis - (rank - in[i]->rank);
      if (own >= 0 && in[i]->shape[own] != 1) shape[axis] = in[i]->shape[own];
    }
  }
  return rank;
}

static void check_operator(test_device *d, const operator_case *c, weft_tensor *const *in) {
  const char *name = weft__op_get(c->op)->name;
  int64_t shape[WEFT_MAX_RANK];
  int rank = broadcast_shape(c->n_inputs, in, shape);
  weft_tensor *y = weft__op_run(d->scope, c->op, in, c->attrs, false);
  test_expect_shape(name, y, result_dtype(c, in), rank, shape);
  size_t n = (size_t)weft_tensor_numel(y);
  double *x[MAX_INPUTS], *want = test_doubles(n), *tolerance = test_doubles(n);
  for (int i = 0; i < c->n_inputs; i++) x[i] = test_values(in[i]);
  double units = c->close.units + (test_is_gpu(d) ? c->close.gpu_units : 0);
  for (size_t e = 0; e < n; e++) {
    double operands[MAX_INPUTS];
    for (int i = 0; i < c->n_inputs; i++) operands[i] = x[i][test_broadcast_place(in[i], y, (int64_t)e)];
    want[e] = c->formula(operands);
    if (units == 0) want[e] = (double)(float)want[e];
    tolerance[e] = c->close.absolute + units * TEST_ROUNDING * fabs(want[e]) + c->close.of_operand * fabs(operands[0]);
  }
  test_compare(name, d, y, want, tolerance, 0, 0);
  for (int i = 0; i < c->n_inputs; i++) free(x[i]);
  free(want);
  free(tolerance);
  weft_tensor_free(y);
}

/* ---- the operands ---- */

/* What an operand's elements are, given what its neighbours are: `real` is the stored type of real numbers. */
static weft_dtype operand_dtype(const operator_case *c, int i, weft_dtype real) {
  if (c->kind == WORDS || (c->kind == CONDITION && i == 0)) return WEFT_I32;
  return real;
}

static weft_tensor *make_operand(test_device *d, const operator_case *c, int i, test_form form, weft_dtype real,
                                 int rank, const int64_t *shape) {
  bool is_condition = c->kind == CONDITION && i == 0;
  return test_operand(d, form, operand_dtype(c, i, real), rank, shape, is_condition ? 0 : c->low,
                      is_condition ? 2 : c->high, (uint64_t)(10 * c->op + i));
}

/* Operands of any shape; the third has the second's. */
static const struct {
  int ranks[2];
  int64_t a[8], b[8];
} SHAPES[] = {
    {{1, 1}, {0}, {0}},
    {{1, 1}, {1}, {1}},
    {{1, 1}, {7}, {7}},
    {{1, 1}, {63}, {63}},
    {{1, 1}, {65}, {65}},
    {{1, 1}, {257}, {257}},
    {{2, 2}, {130, 257}, {130, 257}},
    {{1, 1}, {70000}, {1}},
    {{0, 0}, {0}, {0}},
    {{0, 1}, {0}, {1}},
    {{0, 3}, {0}, {2, 3, 4}},
    {{1, 1}, {1}, {9}},
    {{1, 2}, {33}, {4, 33}},
    {{2, 2}, {5, 1}, {5, 33}},
    {{2, 2}, {5, 1}, {1, 33}},
    {{2, 2}, {1, 33}, {5, 33}},
    {{3, 2}, {2, 3, 17}, {3, 1}},
    {{3, 2}, {2, 1, 17}, {3, 1}},
    {{3, 3}, {2, 1, 4}, {1, 3, 1}},
    {{4, 4}, {2, 1, 4, 1}, {1, 3, 1, 5}},
    {{4, 1}, {2, 3, 4, 5}, {5}},
    {{4, 2}, {2, 3, 4, 5}, {4, 1}},
    {{8, 8}, {2, 1, 2, 1, 2, 1, 2, 3}, {1, 2, 1, 2, 1, 2, 2, 1}},
    {{1, 1}, {1}, {0}},
    {{0, 2}, {0}, {0, 3}},
    {{2, 2}, {0, 1}, {1, 5}},
    {{2, 2}, {4, 1}, {4, 0}},
};

typedef void (*with_operator)(test_device *d, const operator_case *c);

/* On a GPU all operators share the code that finds their elements: a few of each kind see every shape, view and dtype on
 * every kind of device, the others some of them on the devices that compile anew. */
static bool is_sampled(const test_device *d, const operator_case *c) {
  bool is_model = c->op == WEFT_OP_ID_add || c->op == WEFT_OP_ID_where || c->op == WEFT_OP_ID_relu;
  return test_is_gpu(d) && !is_model;
}

/* Gradients want operands of one shape. */
static bool broadcasts(const operator_case *c) { return c->op < WEFT_OP_ID_relu_grad || c->op > WEFT_OP_ID_silu_grad; }

/* All rows, or one an operator. */
enum row_choice { EVERY_ROW, EVERY_OPERATOR };

static void each_operator(test_device *d, enum row_choice choice, with_operator check) {
  bool is_plain_gpu = !strcmp(d->variant, "gpu v29") || !strcmp(d->variant, "gpu v22");
  for (size_t k = 0; k < WEFT_COUNT(OPERATORS); k++) {
    bool repeats = k > 0 && OPERATORS[k - 1].op == OPERATORS[k].op;
    if ((repeats && choice == EVERY_OPERATOR) || (is_sampled(d, &OPERATORS[k]) && !is_plain_gpu)) continue;
    test_device inner = *d;
    assert_int_equal(weft_scope_open(&inner.scope, d->device, d->scope), WEFT_OK);
    check(&inner, &OPERATORS[k]);
    weft_scope_close(inner.scope);
  }
}

static void check_shapes(test_device *d, const operator_case *c) {
  for (size_t s = 0; s < WEFT_COUNT(SHAPES); s += is_sampled(d, c) ? 6 : 1) {
    weft_tensor *in[MAX_INPUTS];
    for (int swap = 0; swap < (c->n_inputs > 1 ? 2 : 1); swap++) {
      for (int i = 0; i < c->n_inputs; i++) {
        int which = broadcasts(c) ? (i > 0) != swap : swap;
        in[i] = make_operand(d, c, i, TEST_WHOLE, WEFT_F32, SHAPES[s].ranks[which], which ? SHAPES[s].b : SHAPES[s].a);
      }
      check_operator(d, c, in);
    }
  }
}

/* Every form beside every other, and views that are broadcast: a column, a row, one element far from the start. */
static void check_views(test_device *d, const operator_case *c) {
  weft_tensor *in[MAX_INPUTS];
  for (int forms = 0; forms < TEST_N_FORMS * TEST_N_FORMS; forms += is_sampled(d, c) ? 4 : 1) {
    for (int i = 0; i < c->n_inputs; i++)
      in[i] = make_operand(d, c, i, (test_form)(i == 1 ? forms / TEST_N_FORMS : (forms + i / 2) % TEST_N_FORMS),
                           WEFT_F32, TEST_SHAPE(33, 20));
    check_operator(d, c, in);
    if (c->n_inputs == 1 || !broadcasts(c)) continue;
    weft_tensor *last = in[c->n_inputs - 1], *column = weft_slice(d->scope, last, 1, 7, 1);
    weft_tensor *row = weft_slice(d->scope, last, 0, 30, 1), *cell = weft_slice(d->scope, column, 0, 31, 1);
    weft_tensor *parts[] = {column, row, cell};
    for (size_t i = 0; i < WEFT_COUNT(parts); i++) {
      in[c->n_inputs - 1] = parts[i];
      check_operator(d, c, in);
    }
  }
  for (int i = 0; i < c->n_inputs; i++) { /* three axes, in another order each */
    static const int orders[][3] = {{2, 0, 1}, {2, 0, 1}, {1, 2, 0}};
    int64_t shape[3];
    for (int axis = 0; axis < 3; axis++) shape[orders[i][axis]] = (const int64_t[]){6, 4, 5}[axis];
    in[i] = weft_permute(d->scope, make_operand(d, c, i, TEST_WHOLE, WEFT_F32, 3, shape), orders[i]);
  }
  check_operator(d, c, in);
  if (c->n_inputs == 2) check_operator(d, c, (weft_tensor *[]){in[0], in[0]});
}

/* f16 and bf16 among f32, in every form.  where copies, so its two are of one type. */
static void check_dtypes(test_device *d, const operator_case *c) {
  static const weft_dtype reals[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
  if (c->kind == WORDS) return;
  for (int pair = 1; pair < 9; pair += is_sampled(d, c) ? 7 : 1)
    for (int form = 0; form < TEST_N_FORMS; form++) {
      weft_tensor *in[MAX_INPUTS];
      weft_dtype both[] = {reals[pair % 3], reals[c->op == WEFT_OP_ID_where ? pair % 3 : pair / 3]};
      bool is_beyond = fmax(fabs(c->low), fabs(c->high)) > 65504 || (c->low > 0 && c->high < 0x1p-14);
      if (is_beyond && both[0] == WEFT_F16) continue; /* infinite or 0 there */
      for (int i = 0; i < c->n_inputs; i++)
        in[i] = make_operand(d, c, i, (test_form)form, both[i % 2], TEST_SHAPE(3, 67));
      check_operator(d, c, in);
      if (c->n_inputs == 2 && broadcasts(c)) {
        in[1] = make_operand(d, c, 1, TEST_WHOLE, both[1], TEST_SHAPE(3, 1));
        check_operator(d, c, in);
      }
    }
}

static void check_every_shape(test_device *d) { each_operator(d, EVERY_ROW, check_shapes); }
static void check_every_view(test_device *d) { each_operator(d, EVERY_OPERATOR, check_views); }
static void check_every_dtype(test_device *d) { each_operator(d, EVERY_OPERATOR, check_dtypes); }

static void operators_are_their_formulas(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_every_shape);
}

static void operators_take_any_view(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_every_view);
}

static void operators_take_halves(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_every_dtype);
}

/* Operands larger than a binding of 3072 elements, along every axis and broadcast, whole and odd: the same code on every
 * GPU. */
static void check_parts(test_device *d, const operator_case *c) {
  static const struct {
    int rank;
    int64_t shape[3], other[3];
    test_form form;
  } PARTS[] = {
      {1, {20001}, {20001}, TEST_WHOLE},           {1, {20001}, {1}, TEST_WHOLE},
      {2, {13, 257}, {1, 257}, TEST_TURNED},       {2, {5, 1300}, {5, 1}, TEST_TURNED},
      {2, {64, 50}, {64, 50}, TEST_TURNED},        {3, {3, 1001, 7}, {3, 1, 7}, TEST_COLUMNS},
      {3, {2, 8, 1000}, {2, 8, 1000}, TEST_WHOLE}, {3, {3, 3, 1501}, {3, 3, 1501}, TEST_TURNED},
  };
  if (is_sampled(d, c)) return;
  for (size_t k = 0; k < WEFT_COUNT(PARTS); k++) {
    weft_tensor *in[MAX_INPUTS];
    for (int i = 0; i < c->n_inputs; i++)
      in[i] = make_operand(d, c, i, i ? TEST_WHOLE : PARTS[k].form, c->op == WEFT_OP_ID_add ? WEFT_F32 : WEFT_BF16,
                           PARTS[k].rank, i ? PARTS[k].other : PARTS[k].shape);
    check_operator(d, c, in);
  }
}

static void check_every_part(test_device *d) {
  if (strcmp(d->variant, "gpu v29")) return;
  test_narrow_bindings(d, 3073 * 4 + 256);
  each_operator(d, EVERY_OPERATOR, check_parts);
}

static void operands_may_exceed_a_binding(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_every_part);
}

/* ---- numbers that are none: what C's arithmetic makes of them ---- */

static const float SPECIAL[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1.5f, -FLT_MAX, 0x1p-140f, -1.0f};
enum { N_SPECIAL = WEFT_COUNT(SPECIAL), N_PAIRS = N_SPECIAL * N_SPECIAL + 3 /* an incomplete vector */ };

/* The sign of 0 is left open where the operator chooses among equal zeros, and NaN's by everything. */
static bool is_same(double got, double want, double allowed) {
  if (isnan(want)) return isnan(got);
  return got == want || fabs(got - want) <= allowed;
}

/* Every pair of special numbers, by every operator of real numbers.  A GPU may take subnormals for 0. */
static void check_special_pairs(test_device *d) {
  float a[N_PAIRS], b[N_PAIRS];
  for (int i = 0; i < N_PAIRS; i++) {
    a[i] = SPECIAL[i / N_SPECIAL % N_SPECIAL];
    b[i] = SPECIAL[i % N_SPECIAL];
    if (test_is_gpu(d) && fpclassify(a[i]) == FP_SUBNORMAL) a[i] = 0;
    if (test_is_gpu(d) && fpclassify(b[i]) == FP_SUBNORMAL) b[i] = 0;
  }
  weft_tensor *in[] = {weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_PAIRS), a),
                       weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(N_PAIRS), b)};
  for (size_t k = 0; k < WEFT_COUNT(OPERATORS); k++) {
    const operator_case *c = &OPERATORS[k];
    if (c->kind != REAL) continue;
    weft_tensor *y = weft__op_run(d->scope, c->op, in, c->attrs, false);
    double *got = test_values(y);
    for (int i = 0; i < N_PAIRS; i++) {
      const double operands[] = {(double)a[i], (double)b[i]};
      double want = (double)(float)c->formula(operands);
      if (c->op == WEFT_OP_ID_gelu && a[i] == -INFINITY) want = 0; /* its limit; the formula is 0 times infinity */
      if (c->op == WEFT_OP_ID_gelu && a[i] == -FLT_MAX) want = 0;
      if (c->op == WEFT_OP_ID_silu && a[i] == -FLT_MAX) want = 0;
      double lost = test_is_gpu(d) ? (double)FLT_MIN : 0; /* results may be subnormal, too */
      if (!is_same(got[i], want, c->close.absolute + lost + 8 * TEST_ROUNDING * fabs(want)))
        fail_msg("%s (%s) of %g, %g is %g, not %g", weft__op_get(c->op)->name, d->variant, (double)a[i], (double)b[i],
                 got[i], want);
    }
    free(got);
  }
}

static void special_values_are_computed_with(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_special_pairs);
}

/* Zeros keep the signs that arithmetic gives them. */
static void check_zero_signs(test_device *d) {
  const float zeros[] = {0.0f, -0.0f};
  weft_tensor *a = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(2), zeros);
  test_expect_values("neg", d, weft_neg(d->scope, a), (const double[]){-0.0, 0.0}, 0);
  test_expect_values("abs", d, weft_abs(d->scope, a), (const double[]){0.0, 0.0}, 0);
  test_expect_values("sqrt", d, weft_sqrt(d->scope, a), (const double[]){0.0, -0.0}, 0);
  test_expect_values("tanh", d, weft_tanh(d->scope, a), (const double[]){0.0, -0.0}, 0);
  test_expect_values("add", d, weft_add(d->scope, a, a), (const double[]){0.0, -0.0}, 0);
}

/* scale_in_place writes to part of a tensor, whose other elements stay: halves that share a word with them. */
static void check_in_place(test_device *d) {
  static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_BF16};
  static const int64_t sizes[] = {0, 1, 2, 7, 65, 257, 5000};
  for (size_t t = 0; t < WEFT_COUNT(dtypes); t++)
    for (size_t k = 0; k < WEFT_COUNT(sizes); k++) {
      int64_t n = sizes[k];
      weft_tensor *whole = test_operand(d, TEST_WHOLE, dtypes[t], TEST_SHAPE(n + 3), -8, 8, k);
      weft_tensor *part = weft_slice(d->scope, whole, 0, 1, n);
      weft_tensor *scaled = weft_scale(d->scope, part, &SCALE);
      double *want = test_values(whole),
             *inner = test_values(weft_cast(d->scope, scaled, &(weft_cast_attrs){dtypes[t]}));
      memcpy(want + 1, inner, (size_t)n * sizeof *want);
      weft_tensor *y = weft_scale_in_place(d->scope, part, &(weft_scale_in_place_attrs){SCALE.factor});
      assert_non_null(y);
      assert_ptr_equal(y->storage, whole->storage);
      test_compare("scale_in_place", d, whole, want, NULL, 0, 0);
      free(want);
      free(inner);
    }
}

static void scaling_in_place_leaves_the_rest(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_in_place);
}

static void zeros_have_signs(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_zero_signs);
}

/* ---- devices ---- */

/* Every operator runs on its device: none is handed to the CPU. */
static void check_fallbacks(test_device *d) {
  for (size_t k = 0; k < WEFT_COUNT(OPERATORS); k++) {
    weft_tensor *in[MAX_INPUTS];
    for (int i = 0; i < OPERATORS[k].n_inputs; i++)
      in[i] = make_operand(d, &OPERATORS[k], i, TEST_TURNED, WEFT_F16, TEST_SHAPE(5, 7));
    assert_non_null(weft__op_run(d->scope, OPERATORS[k].op, in, OPERATORS[k].attrs, false));
  }
  assert_int_equal(weft_device_n_fallbacks(d->device), 0);
}

static void no_operator_falls_back(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_fallbacks);
}

/* A GPU without a kernel for add: the CPU's result comes back to the device, is counted, and WEFT_STRICT forbids it. */
static void check_missing_kernel(test_device *d) {
  weft__backend *backend = d->device->backend;
  const weft__backend_class *whole = backend->class;
  weft__backend_class lacking = *whole;
  lacking.ops[WEFT_OP_ID_add] = NULL;
  backend->class = &lacking;
  weft_tensor *a = test_operand(d, TEST_TURNED, WEFT_F16, TEST_SHAPE(5, 7), 0, 2, 1);
  double *x = test_values(a), want[35];
  for (int i = 0; i < 35; i++) want[i] = 2 * x[i];
  unsetenv("WEFT_STRICT");
  test_compare("add by the CPU", d, weft_add(d->scope, a, a), want, NULL, 0, 0);
  assert_int_equal(weft_device_n_fallbacks(d->device), 1);
  setenv("WEFT_STRICT", "1", 1);
  assert_null(weft_add(d->scope, a, a));
  assert_int_equal(weft_last_status(), WEFT_EUNSUPPORTED);
  assert_int_equal(weft_device_n_fallbacks(d->device), 1);
  free(x);
  backend->class = whole;
}

static void fallbacks_are_counted(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_missing_kernel);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operators_are_their_formulas),
      cmocka_unit_test(operators_take_any_view),
      cmocka_unit_test(operators_take_halves),
      cmocka_unit_test(operands_may_exceed_a_binding),
      cmocka_unit_test(special_values_are_computed_with),
      cmocka_unit_test(scaling_in_place_leaves_the_rest),
      cmocka_unit_test(zeros_have_signs),
      cmocka_unit_test(no_operator_falls_back),
      cmocka_unit_test(fallbacks_are_counted),
  };
  return cmocka_run_group_tests_name("ops_elementwise", tests, NULL, NULL);
}
