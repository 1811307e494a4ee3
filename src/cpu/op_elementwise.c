/* op_elementwise.c - operators that work element by element: the binary ones, compare and where with broadcasting; the
 * unary ones and clamp; gated products, gradients; scale_in_place. */
#include "cpu/cpu.h"

/* ---- binary operators ---- */

typedef struct binary_context {
  const weft__cpu_kernels *kernels;
  weft__binary op;
} binary_context;

static void binary_piece(const void *context, const weft__piece *p) {
  const binary_context *c = context;
  c->kernels->binary(c->op, p->n, p->in[0], p->step[0], p->in[1], p->step[1], p->y);
}

static weft_status run_binary(weft__backend *backend, const weft__op_call *call, weft__binary op) {
  weft__cpu *cpu = weft__cpu_of(backend);
  const binary_context c = {cpu->kernels, op};
  weft__each(cpu, 2, call->in, call->out, WEFT__AS_REAL, binary_piece, &c);
  return WEFT_OK;
}

weft_status weft__cpu_add(weft__backend *backend, const weft__op_call *call) {
  return run_binary(backend, call, WEFT__ADD);
}

weft_status weft__cpu_sub(weft__backend *backend, const weft__op_call *call) {
  return run_binary(backend, call, WEFT__SUB);
}

weft_status weft__cpu_mul(weft__backend *backend, const weft__op_call *call) {
  return run_binary(backend, call, WEFT__MUL);
}

weft_status weft__cpu_div(weft__backend *backend, const weft__op_call *call) {
  return run_binary(backend, call, WEFT__DIV);
}

weft_status weft__cpu_pow(weft__backend *backend, const weft__op_call *call) {
  return run_binary(backend, call, WEFT__POW);
}

weft_status weft__cpu_maximum(weft__backend *backend, const weft__op_call *call) {
  return run_binary(backend, call, WEFT__MAXIMUM);
}

weft_status weft__cpu_minimum(weft__backend *backend, const weft__op_call *call) {
  return run_binary(backend, call, WEFT__MINIMUM);
}

/* ---- compare, where ---- */

/* One relation between numbers of one type; the compiler makes vectors of the loop. */
#define COMPARE_WITH(type, relation)                                                                                   \
  for (int64_t i = 0; i < p->n; i++)                                                                                   \
  y[i] = ((const type *)p->in[0])[i * p->step[0]] relation((const type *)p->in[1])[i * p->step[1]]
#define COMPARE(type)                                                                                                  \
  switch (relation) {                                                                                                  \
  case WEFT_EQUAL:                                                                                                     \
    COMPARE_WITH(type, ==);                                                                                            \
    break;                                                                                                             \
  case WEFT_NOT_EQUAL:                                                                                                 \
    COMPARE_WITH(type, !=);                                                                                            \
    break;                                                                                                             \
  case WEFT_LESS:                                                                                                      \
    COMPARE_WITH(type, <);                                                                                             \
    break;                                                                                                             \
  case WEFT_LESS_EQUAL:                                                                                                \
    COMPARE_WITH(type, <=);                                                                                            \
    break;                                                                                                             \
  case WEFT_GREATER:                                                                                                   \
    COMPARE_WITH(type, >);                                                                                             \
    break;                                                                                                             \
  case WEFT_GREATER_EQUAL:                                                                                             \
    COMPARE_WITH(type, >=);                                                                                            \
    break;                                                                                                             \
  }

static void compare_real(const void *context, const weft__piece *p) {
  const weft_relation relation = ((const weft_compare_attrs *)context)->relation;
  int32_t *y = p->y;
  COMPARE(float)
}

static void compare_i32(const void *context, const weft__piece *p) {
  const weft_relation relation = ((const weft_compare_attrs *)context)->relation;
  int32_t *y = p->y;
  COMPARE(int32_t)
}

weft_status weft__cpu_compare(weft__backend *backend, const weft__op_call *call) {
  bool is_i32 = call->in[0]->dtype == WEFT_I32;
  weft__each(weft__cpu_of(backend), 2, call->in, call->out, is_i32 ? WEFT__AS_STORED : WEFT__AS_REAL,
             is_i32 ? compare_i32 : compare_real, call->attrs);
  return WEFT_OK;
}

/* Chosen elements are copied as they are, so only their size counts. */
#define WHERE(type)                                                                                                    \
  for (int64_t i = 0; i < p->n; i++)                                                                                   \
  ((type *)p->y)[i] =                                                                                                  \
      condition[i * p->step[0]] ? ((const type *)p->in[1])[i * p->step[1]] : ((const type *)p->in[2])[i * p->step[2]]

static void where_words(const void *context, const weft__piece *p) {
  const int32_t *condition = p->in[0];
  (void)context;
  WHERE(uint32_t);
}

static void where_halves(const void *context, const weft__piece *p) {
  const int32_t *condition = p->in[0];
  (void)context;
  WHERE(uint16_t);
}

weft_status weft__cpu_where(weft__backend *backend, const weft__op_call *call) {
  bool is_half = weft__dtype_get(call->out->dtype)->block_bytes == 2;
  weft__each(weft__cpu_of(backend), 3, call->in, call->out, WEFT__AS_STORED, is_half ? where_halves : where_words,
             NULL);
  return WEFT_OK;
}

/* ---- unary operators ---- */

typedef struct unary_context {
  const weft__cpu_kernels *kernels;
  weft__unary op;
  float parameter;
} unary_context;

static void unary_piece(const void *context, const weft__piece *p) {
  const unary_context *c = context;
  c->kernels->unary(c->op, p->n, p->in[0], c->parameter, p->y);
}

static weft_status run_unary(weft__backend *backend, const weft__op_call *call, weft__unary op, float parameter) {
  weft__cpu *cpu = weft__cpu_of(backend);
  const unary_context c = {cpu->kernels, op, parameter};
  weft__each(cpu, 1, call->in, call->out, WEFT__AS_REAL, unary_piece, &c);
  return WEFT_OK;
}

weft_status weft__cpu_abs(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__ABS, 0);
}

weft_status weft__cpu_neg(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__NEG, 0);
}

weft_status weft__cpu_exp(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__EXP, 0);
}

weft_status weft__cpu_log(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__LOG, 0);
}

weft_status weft__cpu_sqrt(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__SQRT, 0);
}

weft_status weft__cpu_tanh(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__TANH, 0);
}

weft_status weft__cpu_sigmoid(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__SIGMOID, 0);
}

weft_status weft__cpu_silu(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__SILU, 0);
}

weft_status weft__cpu_relu(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__RELU, 0);
}

weft_status weft__cpu_gelu(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__GELU, 0);
}

weft_status weft__cpu_gelu_tanh(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__GELU_TANH, 0);
}

weft_status weft__cpu_scale(weft__backend *backend, const weft__op_call *call) {
  return run_unary(backend, call, WEFT__SCALE, ((const weft_scale_attrs *)call->attrs)->factor);
}

static void clamp_piece(const void *context, const weft__piece *p) {
  const weft_clamp_attrs bounds = *(const weft_clamp_attrs *)context;
  const float *x = p->in[0];
  float *y = p->y;
  for (int64_t i = 0; i < p->n; i++) y[i] = x[i] < bounds.min ? bounds.min : x[i] > bounds.max ? bounds.max : x[i];
}

weft_status weft__cpu_clamp(weft__backend *backend, const weft__op_call *call) {
  weft__each(weft__cpu_of(backend), 1, call->in, call->out, WEFT__AS_REAL, clamp_piece, call->attrs);
  return WEFT_OK;
}

/* ---- silu_mul ---- */

static void silu_mul_piece(const void *context, const weft__piece *p) {
  const weft__cpu_kernels *kernels = context;
  kernels->gated(WEFT_GATE_SILU, p->n, p->in[0], p->in[1], p->y); /* of one shape, so both step on */
}

weft_status weft__cpu_silu_mul(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  weft__each(cpu, 2, call->in, call->out, WEFT__AS_REAL, silu_mul_piece, cpu->kernels);
  return WEFT_OK;
}

/* ---- f(a) * b of one shape: gelu_mul and the gradients, where f is the slope ---- */

static void product_piece(const void *context, const weft__piece *p) {
  const unary_context *c = context;
  c->kernels->unary(c->op, p->n, p->in[0], c->parameter, p->y);
  c->kernels->binary(WEFT__MUL, p->n, p->y, 1, p->in[1], 1, p->y); /* of one shape, so both step on */
}

static weft_status run_product(weft__backend *backend, const weft__op_call *call, weft__unary op) {
  weft__cpu *cpu = weft__cpu_of(backend);
  const unary_context c = {cpu->kernels, op, 0};
  weft__each(cpu, 2, call->in, call->out, WEFT__AS_REAL, product_piece, &c);
  return WEFT_OK;
}

weft_status weft__cpu_gelu_mul(weft__backend *backend, const weft__op_call *call) {
  return run_product(backend, call, WEFT__GELU);
}

weft_status weft__cpu_tanh_grad(weft__backend *backend, const weft__op_call *call) {
  return run_product(backend, call, WEFT__TANH_SLOPE);
}

weft_status weft__cpu_sigmoid_grad(weft__backend *backend, const weft__op_call *call) {
  return run_product(backend, call, WEFT__SIGMOID_SLOPE);
}

weft_status weft__cpu_gelu_grad(weft__backend *backend, const weft__op_call *call) {
  return run_product(backend, call, WEFT__GELU_SLOPE);
}

weft_status weft__cpu_gelu_tanh_grad(weft__backend *backend, const weft__op_call *call) {
  return run_product(backend, call, WEFT__GELU_TANH_SLOPE);
}

weft_status weft__cpu_silu_grad(weft__backend *backend, const weft__op_call *call) {
  return run_product(backend, call, WEFT__SILU_SLOPE);
}

static void relu_grad_piece(const void *context, const weft__piece *p) {
  const float *x = p->in[0], *dy = p->in[1];
  float *y = p->y;
  (void)context;
  for (int64_t i = 0; i < p->n; i++) y[i] = x[i] > 0 ? dy[i] : x[i] <= 0 ? 0 : x[i];
}

weft_status weft__cpu_relu_grad(weft__backend *backend, const weft__op_call *call) {
  weft__each(weft__cpu_of(backend), 2, call->in, call->out, WEFT__AS_REAL, relu_grad_piece, NULL);
  return WEFT_OK;
}

/* ---- scale_in_place ---- */

typedef struct in_place_context {
  weft__cpu *cpu;
  const weft_tensor *tensor;
  float factor;
} in_place_context;

/* Pieces first .. end-1 of the contiguous elements. */
static void scale_pieces(void *context, int64_t first, int64_t end) {
  const in_place_context *c = context;
  const weft_tensor *t = c->tensor;
  float values[WEFT__PIECE];
  for (int64_t piece = first; piece < end; piece++) {
    int64_t at = piece * WEFT__PIECE, n = weft__min_i64(weft_tensor_numel(t) - at, WEFT__PIECE);
    c->cpu->kernels->unary(WEFT__SCALE, n, weft__real_run(t, at, 1, n, values), c->factor, values);
    weft__write_real(c->cpu, n, values, t, at);
  }
}

weft_status weft__cpu_scale_in_place(weft__backend *backend, const weft__op_call *call) {
  in_place_context c = {weft__cpu_of(backend), call->out, ((const weft_scale_in_place_attrs *)call->attrs)->factor};
  weft__cpu_rows(c.cpu, (weft_tensor_numel(call->out) + WEFT__PIECE - 1) / WEFT__PIECE, WEFT__PIECE, scale_pieces, &c);
  return WEFT_OK;
}
