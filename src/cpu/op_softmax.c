/* op_softmax.c - the gradient of softmax, the cross-entropy of logits and its gradient.
 *
 * Rows are read in pieces of f32, whatever they are stored as.  The exponentials of a piece are summed relative to its
 * largest element, the pieces' sums in double. */
#include "cpu/cpu.h"

#include <math.h> /* exp, log, INFINITY */

/* The elements of a row, some at a time. */
typedef struct row_reader {
  const weft_tensor *t;
  int64_t index, step;
} row_reader;

static row_reader row_of(const weft_tensor *t, int64_t row) {
  return (row_reader){t, weft__row_offset(t, t->rank, t->shape, -1, row), t->strides[t->rank - 1]};
}

static const float *read_piece(const row_reader *r, int64_t first, int64_t n, float *scratch) {
  return weft__real_run(r->t, r->index + first * r->step, r->step, n, scratch);
}

/* ---- softmax_grad ---- */

typedef struct grad_loop {
  const weft_tensor *a, *b;
  float *y;
} grad_loop;

static double product_sum(int64_t n, const float *a, const float *b) {
  enum { LANES = 8 };
  double lanes[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lanes[k] += (double)a[i + k] * (double)b[i + k];
  for (; i < n; i++) lanes[0] += (double)a[i] * (double)b[i];
  for (int k = 0; k < LANES; k++) sum += lanes[k];
  return sum;
}

static void softmax_grad_rows(void *context, int64_t first, int64_t end) {
  const grad_loop *l = context;
  float own_a[WEFT__PIECE], own_b[WEFT__PIECE];
  int64_t n = weft__n_cols(l->a);
  for (int64_t row = first; row < end; row++) {
    row_reader a = row_of(l->a, row), b = row_of(l->b, row);
    double sum = 0;
    for (int64_t i = 0; i < n; i += WEFT__PIECE) {
      int64_t n_piece = weft__min_i64(n - i, WEFT__PIECE);
      sum += product_sum(n_piece, read_piece(&a, i, n_piece, own_a), read_piece(&b, i, n_piece, own_b));
    }
    for (int64_t i = 0; i < n; i += WEFT__PIECE) {
      int64_t n_piece = weft__min_i64(n - i, WEFT__PIECE);
      const float *y = read_piece(&a, i, n_piece, own_a), *dy = read_piece(&b, i, n_piece, own_b);
      for (int64_t k = 0; k < n_piece; k++) l->y[row * n + i + k] = (float)((double)y[k] * ((double)dy[k] - sum));
    }
  }
}

weft_status weft__cpu_softmax_grad(weft__backend *backend, const weft__op_call *call) {
  grad_loop l = {call->in[0], call->in[1], weft__cpu_data(call->out)};
  if (weft_tensor_numel(l.a) > 0)
    weft__cpu_rows(weft__cpu_of(backend), weft__n_rows(l.a), weft__n_cols(l.a), softmax_grad_rows, &l);
  return WEFT_OK;
}

/* ---- cross_entropy and its gradient ---- */

typedef struct loss_loop {
  const weft__cpu_kernels *kernels;
  const weft_tensor *logits, *targets, *dlosses; /* [N,V], [N], [N]; dlosses NULL: the losses are wanted */
  float *y;                                      /* [N,V] or [N] */
} loss_loop;

static int32_t target_of(const weft_tensor *targets, int64_t row) {
  return ((const int32_t *)weft__cpu_data(targets))[row * targets->strides[0]];
}

/* Sum of exp(a - largest) over a row, and the largest. */
static double row_exp_sum(const loss_loop *l, const row_reader *row, int64_t n, double *largest) {
  float scratch[WEFT__PIECE], top;
  double sum = 0;
  *largest = -INFINITY;
  for (int64_t i = 0; i < n; i += WEFT__PIECE) {
    int64_t n_piece = weft__min_i64(n - i, WEFT__PIECE);
    double piece = l->kernels->exp_sum(n_piece, read_piece(row, i, n_piece, scratch), &top);
    double before = sum > 0 ? exp(*largest - fmax(*largest, (double)top)) : 1;
    *largest = fmax(*largest, (double)top);
    sum = sum * before + (piece > 0 ? piece * exp((double)top - *largest) : piece);
  }
  return sum;
}

/* y = softmax(a) * dloss, then the target's share is taken off. */
static void grad_row(const loss_loop *l, const row_reader *row, int64_t n, double largest, double sum, float dloss,
                     int32_t target, float *y) {
  float scratch[WEFT__PIECE];
  for (int64_t i = 0; i < n; i += WEFT__PIECE) {
    int64_t n_piece = weft__min_i64(n - i, WEFT__PIECE);
    const float *a = read_piece(row, i, n_piece, scratch);
    for (int64_t k = 0; k < n_piece; k++) scratch[k] = a[k] - (float)largest;
    l->kernels->unary(WEFT__EXP, n_piece, scratch, 0, y + i);
    for (int64_t k = 0; k < n_piece; k++) {
      double share = (double)y[i + k] / sum;
      y[i + k] = (float)((i + k == target ? share - 1 : share) * (double)dloss);
    }
  }
}

static void loss_rows(void *context, int64_t first, int64_t end) {
  const loss_loop *l = context;
  int64_t n = weft__n_cols(l->logits);
  for (int64_t row = first; row < end; row++) {
    int32_t target = target_of(l->targets, row);
    row_reader a = row_of(l->logits, row);
    double largest = 0, sum = target < 0 ? 1 : row_exp_sum(l, &a, n, &largest);
    float logit, *y = l->y + (l->dlosses ? row * n : row);
    if (l->dlosses && target >= 0) {
      float dloss = ((const float *)weft__cpu_data(l->dlosses))[row * l->dlosses->strides[0]];
      grad_row(l, &a, n, largest, sum, dloss, target, y);
    } else if (l->dlosses) {
      for (int64_t i = 0; i < n; i++) y[i] = 0;
    } else {
      *y = target < 0 ? 0 : (float)(log(sum) + (largest - (double)*read_piece(&a, target, 1, &logit)));
    }
  }
}

static weft_status run_loss(weft__backend *backend, const weft__op_call *call, const weft_tensor *dlosses) {
  weft__cpu *cpu = weft__cpu_of(backend);
  loss_loop l = {cpu->kernels, call->in[0], call->in[1], dlosses, weft__cpu_data(call->out)};
  int64_t n = weft__n_cols(l.logits), n_rows = weft__n_rows(l.logits);
  for (int64_t row = 0; row < n_rows; row++)
    if (target_of(l.targets, row) >= n)
      return weft__fault(call->op, WEFT__FAULT_INDEX, (const int64_t[4]){target_of(l.targets, row), row, n, 1});
  weft__cpu_rows(cpu, n_rows, 4 * n, loss_rows, &l);
  return WEFT_OK;
}

weft_status weft__cpu_cross_entropy(weft__backend *backend, const weft__op_call *call) {
  return run_loss(backend, call, NULL);
}

weft_status weft__cpu_cross_entropy_grad(weft__backend *backend, const weft__op_call *call) {
  return run_loss(backend, call, call->in[2]);
}
