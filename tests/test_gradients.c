/* test_gradients.c - gradients as ops.def states them: what the operators named there compute is compared with central
 * differences of the operator's formula in double.  A case is a row of CASES: the operator, its formula for one element,
 * and for each operand the function that makes its gradient of operators.  Operands are broadcast to y [3,4,5]. */
#include "support/gradient.h"
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { N_THREADS = 1, MAX_INPUTS = 3, RANK = 3 };
static const int64_t Y_SHAPE[RANK] = {3, 4, 5};

/* One call of an operator, with the gradient by y. */
typedef struct call {
  weft_scope *scope;
  weft_tensor *in[MAX_INPUTS], *y, *dy;
} call;

typedef weft_tensor *(*gradient)(const call *c); /* of y's shape */

typedef struct gradient_case {
  weft_op op;
  int n_inputs;
  const void *attrs;
  double (*formula)(const double *x);
  double low, high;
  gradient by[MAX_INPUTS]; /* NULL: none */
} gradient_case;

static const weft_scale_attrs SCALE = {-2.5f}, HALF = {0.5f};
static const weft_clamp_attrs BOUNDS = {-0.75f, 1.5f};

/* ---- formulas ---- */

static double sum_of(const double *x) { return x[0] + x[1]; }
static double difference_of(const double *x) { return x[0] - x[1]; }
static double product_of(const double *x) { return x[0] * x[1]; }
static double quotient_of(const double *x) { return x[0] / x[1]; }
static double power_of(const double *x) { return pow(x[0], x[1]); }
static double larger_of(const double *x) { return fmax(x[0], x[1]); }
static double smaller_of(const double *x) { return fmin(x[0], x[1]); }
static double chosen_of(const double *x) { return x[0] != 0 ? x[1] : x[2]; }
static double scaled_of(const double *x) { return -2.5 * x[0]; }
static double clamped_of(const double *x) { return fmin(fmax(x[0], -0.75), 1.5); }
static double size_of(const double *x) { return fabs(x[0]); }
static double negative_of(const double *x) { return -x[0]; }
static double exponential_of(const double *x) { return exp(x[0]); }
static double logarithm_of(const double *x) { return log(x[0]); }
static double root_of(const double *x) { return sqrt(x[0]); }
static double tanh_of(const double *x) { return tanh(x[0]); }
static double sigmoid_of(const double *x) { return 1 / (1 + exp(-x[0])); }
static double relu_of(const double *x) { return fmax(x[0], 0); }
static double gelu_of(const double *x) { return x[0] * erfc(-x[0] * M_SQRT1_2) / 2; }
static double gelu_tanh_of(const double *x) {
  return x[0] * (1 + tanh(sqrt(2 / M_PI) * (x[0] + 0.044715 * x[0] * x[0] * x[0]))) / 2;
}
static double silu_of(const double *x) { return x[0] / (1 + exp(-x[0])); }
static double silu_mul_of(const double *x) { return silu_of(x) * x[1]; }
static double gelu_mul_of(const double *x) { return gelu_of(x) * x[1]; }

/* ---- gradients of operators ---- */

static weft_tensor *number(const call *c, float value) { return weft_tensor_from(c->scope, WEFT_F32, 0, NULL, &value); }

/* dy where a `relation` b, else 0. */
static weft_tensor *dy_where(const call *c, weft_tensor *a, weft_relation relation, weft_tensor *b) {
  return weft_where(c->scope, weft_compare(c->scope, a, b, &(weft_compare_attrs){relation}), c->dy, number(c, 0));
}

static weft_tensor *same(const call *c) { return c->dy; }
static weft_tensor *negated(const call *c) { return weft_neg(c->scope, c->dy); }
static weft_tensor *times_b(const call *c) { return weft_mul(c->scope, c->dy, c->in[1]); }
static weft_tensor *times_a(const call *c) { return weft_mul(c->scope, c->dy, c->in[0]); }
static weft_tensor *times_y(const call *c) { return weft_mul(c->scope, c->dy, c->y); }
static weft_tensor *over_a(const call *c) { return weft_div(c->scope, c->dy, c->in[0]); }
static weft_tensor *over_b(const call *c) { return weft_div(c->scope, c->dy, c->in[1]); }
static weft_tensor *div_by_b(const call *c) {
  return weft_div(c->scope, weft_mul(c->scope, weft_neg(c->scope, c->dy), c->y), c->in[1]);
}
static weft_tensor *pow_by_a(const call *c) {
  weft_tensor *power = weft_pow(c->scope, c->in[0], weft_sub(c->scope, c->in[1], number(c, 1)));
  return weft_mul(c->scope, weft_mul(c->scope, c->dy, c->in[1]), power);
}
static weft_tensor *pow_by_b(const call *c) {
  return weft_mul(c->scope, weft_mul(c->scope, c->dy, c->y), weft_log(c->scope, c->in[0]));
}
/* To what was chosen, half to each of equals. */
static weft_tensor *choice(const call *c, int from, weft_relation relation) {
  weft_tensor *a = c->in[from], *b = c->in[1 - from];
  weft_tensor *shared = weft_scale(c->scope, dy_where(c, a, WEFT_EQUAL, b), &HALF);
  return weft_add(c->scope, dy_where(c, a, relation, b), shared);
}
static weft_tensor *maximum_by_a(const call *c) { return choice(c, 0, WEFT_GREATER); }
static weft_tensor *maximum_by_b(const call *c) { return choice(c, 1, WEFT_GREATER); }
static weft_tensor *minimum_by_a(const call *c) { return choice(c, 0, WEFT_LESS); }
static weft_tensor *minimum_by_b(const call *c) { return choice(c, 1, WEFT_LESS); }
static weft_tensor *where_by_b(const call *c) { return weft_where(c->scope, c->in[0], c->dy, number(c, 0)); }
static weft_tensor *where_by_c(const call *c) { return weft_where(c->scope, c->in[0], number(c, 0), c->dy); }
static weft_tensor *scaled(const call *c) { return weft_scale(c->scope, c->dy, &SCALE); }
static weft_tensor *clamp_by_a(const call *c) {
  call above = *c;
  above.dy = dy_where(c, c->in[0], WEFT_GREATER_EQUAL, number(c, BOUNDS.min));
  return dy_where(&above, c->in[0], WEFT_LESS_EQUAL, number(c, BOUNDS.max));
}
static weft_tensor *abs_by_a(const call *c) {
  weft_tensor *zero = number(c, 0);
  return weft_sub(c->scope, dy_where(c, c->in[0], WEFT_GREATER, zero), dy_where(c, c->in[0], WEFT_LESS, zero));
}
static weft_tensor *sqrt_by_a(const call *c) { return weft_scale(c->scope, weft_div(c->scope, c->dy, c->y), &HALF); }
static weft_tensor *tanh_by_a(const call *c) { return weft_tanh_grad(c->scope, c->in[0], c->dy); }
static weft_tensor *sigmoid_by_a(const call *c) { return weft_sigmoid_grad(c->scope, c->in[0], c->dy); }
static weft_tensor *relu_by_a(const call *c) { return weft_relu_grad(c->scope, c->in[0], c->dy); }
static weft_tensor *gelu_by_a(const call *c) { return weft_gelu_grad(c->scope, c->in[0], c->dy); }
static weft_tensor *gelu_tanh_by_a(const call *c) { return weft_gelu_tanh_grad(c->scope, c->in[0], c->dy); }
static weft_tensor *silu_by_a(const call *c) { return weft_silu_grad(c->scope, c->in[0], c->dy); }
static weft_tensor *silu_mul_by_a(const call *c) { return weft_silu_grad(c->scope, c->in[0], times_b(c)); }
static weft_tensor *silu_mul_by_b(const call *c) { return weft_mul(c->scope, c->dy, weft_silu(c->scope, c->in[0])); }
static weft_tensor *gelu_mul_by_a(const call *c) { return weft_gelu_grad(c->scope, c->in[0], times_b(c)); }
static weft_tensor *gelu_mul_by_b(const call *c) { return weft_mul(c->scope, c->dy, weft_gelu(c->scope, c->in[0])); }

static const gradient_case CASES[] = {
    {WEFT_OP_ID_add, 2, NULL, sum_of, -3, 3, {same, same}},
    {WEFT_OP_ID_sub, 2, NULL, difference_of, -3, 3, {same, negated}},
    {WEFT_OP_ID_mul, 2, NULL, product_of, -3, 3, {times_b, times_a}},
    {WEFT_OP_ID_div, 2, NULL, quotient_of, 0.5, 3, {over_b, div_by_b}},
    {WEFT_OP_ID_pow, 2, NULL, power_of, 0.5, 3, {pow_by_a, pow_by_b}},
    {WEFT_OP_ID_maximum, 2, NULL, larger_of, -3, 3, {maximum_by_a, maximum_by_b}},
    {WEFT_OP_ID_minimum, 2, NULL, smaller_of, -3, 3, {minimum_by_a, minimum_by_b}},
    {WEFT_OP_ID_where, 3, NULL, chosen_of, -3, 3, {NULL, where_by_b, where_by_c}},
    {WEFT_OP_ID_scale, 1, &SCALE, scaled_of, -3, 3, {scaled}},
    {WEFT_OP_ID_clamp, 1, &BOUNDS, clamped_of, -3, 3, {clamp_by_a}},
    {WEFT_OP_ID_abs, 1, NULL, size_of, -3, 3, {abs_by_a}},
    {WEFT_OP_ID_neg, 1, NULL, negative_of, -3, 3, {negated}},
    {WEFT_OP_ID_exp, 1, NULL, exponential_of, -3, 3, {times_y}},
    {WEFT_OP_ID_log, 1, NULL, logarithm_of, 0.5, 3, {over_a}},
    {WEFT_OP_ID_sqrt, 1, NULL, root_of, 0.5, 3, {sqrt_by_a}},
    {WEFT_OP_ID_tanh, 1, NULL, tanh_of, -3, 3, {tanh_by_a}},
    {WEFT_OP_ID_sigmoid, 1, NULL, sigmoid_of, -5, 5, {sigmoid_by_a}},
    {WEFT_OP_ID_relu, 1, NULL, relu_of, -3, 3, {relu_by_a}},
    {WEFT_OP_ID_gelu, 1, NULL, gelu_of, -5, 5, {gelu_by_a}},
    {WEFT_OP_ID_gelu_tanh, 1, NULL, gelu_tanh_of, -5, 5, {gelu_tanh_by_a}},
    {WEFT_OP_ID_silu, 1, NULL, silu_of, -5, 5, {silu_by_a}},
    {WEFT_OP_ID_silu_mul, 2, NULL, silu_mul_of, -3, 3, {silu_mul_by_a, silu_mul_by_b}},
    {WEFT_OP_ID_gelu_mul, 2, NULL, gelu_mul_of, -3, 3, {gelu_mul_by_a, gelu_mul_by_b}},
};

/* ---- comparison ---- */

typedef struct formula_context {
  const gradient_case *row;
  const call *call;
} formula_context;

static void each_element(const void *context, const double *const *in, double *y) {
  const formula_context *f = context;
  for (int64_t e = 0; e < weft_tensor_numel(f->call->y); e++) {
    double x[MAX_INPUTS];
    for (int i = 0; i < f->row->n_inputs; i++) x[i] = in[i][test_broadcast_place(f->call->in[i], f->call->y, e)];
    y[e] = f->row->formula(x);
  }
}

/* A gradient of y's shape, summed over the axes that operand t was broadcast along. */
static weft_tensor *summed(weft_scope *scope, weft_tensor *g, const weft_tensor *t) {
  weft_sum_attrs axes = {.keep_dims = 1};
  int n_missing = RANK - weft_tensor_rank(t);
  for (int i = 0; i < RANK; i++)
    if (i < n_missing || weft_tensor_shape(t)[i - n_missing] != weft_tensor_shape(g)[i]) axes.axes[axes.n_axes++] = i;
  weft_tensor *sum = axes.n_axes ? weft_sum(scope, g, &axes) : g;
  return weft_reshape(scope, sum, weft_tensor_rank(t), weft_tensor_shape(t));
}

static void check_case(test_device *d, const gradient_case *row) {
  bool is_pair = row->op == WEFT_OP_ID_silu_mul || row->op == WEFT_OP_ID_gelu_mul; /* of one shape */
  bool broadcasts = row->n_inputs > 1 && !is_pair;
  call c = {.scope = d->scope};
  double *x[MAX_INPUTS];
  for (int i = 0; i < row->n_inputs; i++) {
    bool is_condition = row->op == WEFT_OP_ID_where && i == 0, is_first = i == 0 && broadcasts;
    const int64_t first[] = {3, 1, 5}, others[] = {4, 5};
    c.in[i] = test_operand(d, TEST_TURNED, is_condition ? WEFT_I32 : WEFT_F32, broadcasts && i > 0 ? 2 : RANK,
                           is_first     ? first
                           : broadcasts ? others
                                        : Y_SHAPE,
                           is_condition ? 0 : row->low, is_condition ? 2 : row->high, (uint64_t)(row->op * 10 + i));
    x[i] = test_values(c.in[i]);
  }
  c.y = weft__op_run(d->scope, row->op, c.in, row->attrs, false);
  c.dy = test_random(d, RANK, Y_SHAPE, 1, 77);
  size_t n_y = (size_t)weft_tensor_numel(c.y);
  double *dy = test_values(c.dy);
  const formula_context context = {row, &c};
  for (int i = 0; i < row->n_inputs; i++) {
    if (!row->by[i]) continue;
    double *want = test_gradient(each_element, &context, x, i, (size_t)weft_tensor_numel(c.in[i]), dy, n_y);
    /* Terms of up to 80 (3^3 times log 3, its slope likewise), a dozen of them, each good to a few ulp. */
    test_compare(weft__op_get(row->op)->name, d, summed(d->scope, row->by[i](&c), c.in[i]), want, NULL, 1e-5, 1e-5);
    free(want);
  }
  for (int i = 0; i < row->n_inputs; i++) free(x[i]);
  free(dy);
}

static void check_cases(test_device *d) {
  for (size_t k = 0; k < WEFT_COUNT(CASES); k++) check_case(d, &CASES[k]);
}

static void gradients_are_central_differences(void **state) {
  (void)state;
  test_each_device(N_THREADS, check_cases);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_central_differences)};
  return cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
}
