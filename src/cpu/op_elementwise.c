/* op_elementwise.c - operators that work element by element: add, sub, mul, div (with broadcasting), silu, relu, gelu,
 * gelu_tanh, scale, silu_mul; and concat. */
#include "cpu/cpu.h"

#include <string.h> /* memcpy */

enum { PIECE = 4096 }; /* elements that are worth a task's step */

/* ---- binary operators ---- */

typedef struct binary_loop {
  weft__cpu *cpu;
  weft__binary op;
  const float *a, *b;
  float *y;
  int rank;                                                 /* of the outer axes */
  int64_t shape[WEFT_MAX_RANK];                             /* outer axes, outermost first */
  int64_t a_stride[WEFT_MAX_RANK], b_stride[WEFT_MAX_RANK]; /* 0 along a broadcast axis */
  int64_t n, a_step, b_step;                                /* the inner axis */
} binary_loop;

static void binary_rows(void *context, int64_t first, int64_t end) {
  const binary_loop *l = context;
  for (int64_t row = first; row < end; row++) {
    int64_t rest = row, a = 0, b = 0;
    for (int i = l->rank - 1; i >= 0; i--) {
      int64_t index = rest % l->shape[i];
      rest /= l->shape[i];
      a += index * l->a_stride[i];
      b += index * l->b_stride[i];
    }
    l->cpu->kernels->binary(l->op, l->n, l->a + a, l->a_step, l->b + b, l->b_step, l->y + row * l->n);
  }
}

/* Elements of two contiguous tensors of one shape; a row is a piece of PIECE of them. */
static void binary_pieces(void *context, int64_t first, int64_t end) {
  const binary_loop *l = context;
  int64_t start = first * PIECE, n = (end * PIECE < l->n ? end * PIECE : l->n) - start;
  l->cpu->kernels->binary(l->op, n, l->a + start, 1, l->b + start, 1, l->y + start);
}

static weft_status run_binary(weft__backend *backend, const weft__op_call *call, weft__binary op) {
  const weft_tensor *a = call->in[0], *b = call->in[1], *y = call->out;
  binary_loop l = {.cpu = weft__cpu_of(backend), .op = op, .n = 1};
  l.a = weft__cpu_data(a);
  l.b = weft__cpu_data(b);
  l.y = weft__cpu_data(y);
  int64_t numel = weft_tensor_numel(y);
  if (numel == 0) return WEFT_OK;
  if (weft__same_shape(a, b) && weft__is_contiguous(a) && weft__is_contiguous(b)) {
    l.n = numel;
    weft__cpu_rows(l.cpu, (numel + PIECE - 1) / PIECE, PIECE, binary_pieces, &l);
    return WEFT_OK;
  }
  if (y->rank > 0) {
    l.rank = y->rank - 1;
    for (int i = 0; i < l.rank; i++) {
      l.shape[i] = y->shape[i];
      l.a_stride[i] = weft__broadcast_stride(a, y->rank, i);
      l.b_stride[i] = weft__broadcast_stride(b, y->rank, i);
    }
    l.n = y->shape[l.rank];
    l.a_step = weft__broadcast_stride(a, y->rank, l.rank);
    l.b_step = weft__broadcast_stride(b, y->rank, l.rank);
  }
  weft__cpu_rows(l.cpu, numel / l.n, l.n, binary_rows, &l);
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

/* ---- unary operators ---- */

typedef struct unary_loop {
  const weft__cpu_kernels *kernels;
  weft__unary op;
  float parameter;
  const weft_tensor *a;
  float *y;
} unary_loop;

/* Elements of a contiguous tensor; a row is a piece of PIECE of them. */
static void unary_pieces(void *context, int64_t first, int64_t end) {
  const unary_loop *l = context;
  int64_t numel = weft_tensor_numel(l->a), start = first * PIECE;
  int64_t n = (end * PIECE < numel ? end * PIECE : numel) - start;
  l->kernels->unary(l->op, n, (const float *)weft__cpu_data(l->a) + start, l->parameter, l->y + start);
}

/* n elements `step` apart are gathered, some at a time. */
static void unary_row(const unary_loop *l, const float *a, int64_t step, int64_t n, float *y) {
  enum { GATHERED = 256 };
  float gathered[GATHERED];
  for (int64_t first = 0; first < n; first += GATHERED) {
    int64_t n_gathered = n - first < GATHERED ? n - first : GATHERED;
    for (int64_t i = 0; i < n_gathered; i++) gathered[i] = a[(first + i) * step];
    l->kernels->unary(l->op, n_gathered, gathered, l->parameter, y + first);
  }
}

static void unary_rows(void *context, int64_t first, int64_t end) {
  const unary_loop *l = context;
  const weft_tensor *a = l->a;
  int64_t n = weft__n_cols(a);
  for (int64_t row = first; row < end; row++) {
    const float *from = weft__row_at(a, row);
    if (a->strides[a->rank - 1] == 1)
      l->kernels->unary(l->op, n, from, l->parameter, l->y + row * n);
    else
      unary_row(l, from, a->strides[a->rank - 1], n, l->y + row * n);
  }
}

static weft_status run_unary(weft__backend *backend, const weft__op_call *call, weft__unary op, float parameter) {
  weft__cpu *cpu = weft__cpu_of(backend);
  unary_loop l = {cpu->kernels, op, parameter, call->in[0], weft__cpu_data(call->out)};
  if (weft__is_contiguous(l.a))
    weft__cpu_rows(cpu, (weft_tensor_numel(l.a) + PIECE - 1) / PIECE, PIECE, unary_pieces, &l);
  else
    weft__cpu_rows(cpu, weft__n_rows(l.a), weft__n_cols(l.a), unary_rows, &l);
  return WEFT_OK;
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

/* ---- silu_mul ---- */

typedef struct silu_mul_loop {
  const weft__cpu_kernels *kernels;
  const weft_tensor *a, *b;
  float *y;
} silu_mul_loop;

static void silu_mul_rows(void *context, int64_t first, int64_t end) {
  const silu_mul_loop *l = context;
  int64_t n = weft__n_cols(l->a);
  for (int64_t row = first; row < end; row++)
    l->kernels->gated(WEFT_GATE_SILU, n, (const float *)weft__cpu_data(l->a) + row * weft__row_stride(l->a),
                      (const float *)weft__cpu_data(l->b) + row * weft__row_stride(l->b), l->y + row * n);
}

weft_status weft__cpu_silu_mul(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  silu_mul_loop l = {cpu->kernels, call->in[0], call->in[1], weft__cpu_data(call->out)};
  weft__cpu_rows(cpu, weft__n_rows(l.a), weft__n_cols(l.a), silu_mul_rows, &l);
  return WEFT_OK;
}

/* ---- concat ---- */

weft_status weft__cpu_concat(weft__backend *backend, const weft__op_call *call) {
  (void)backend;
  const weft_tensor *a = call->in[0], *b = call->in[1];
  int axis = ((const weft_concat_attrs *)call->attrs)->axis;
  int64_t n_outer = 1, n_a = 1, n_b = 1; /* repetitions, and the run that each operand gives to one */
  for (int i = 0; i < a->rank; i++) {
    if (i < axis)
      n_outer *= a->shape[i];
    else
      n_a *= a->shape[i], n_b *= b->shape[i];
  }
  const float *from_a = weft__cpu_data(a), *from_b = weft__cpu_data(b);
  float *y = weft__cpu_data(call->out);
  for (int64_t i = 0; i < n_outer; i++, y += n_a + n_b) {
    if (n_a) memcpy(y, from_a + i * n_a, (size_t)n_a * sizeof *y);
    if (n_b) memcpy(y + n_a, from_b + i * n_b, (size_t)n_b * sizeof *y);
  }
  return WEFT_OK;
}
