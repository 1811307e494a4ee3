/* op_gemm.c - matmul: from tensors, with their strides and leading axes, to products over plain memory.
 *
 * An operand is a batch of matrices.  Each matrix is used where it is if its rows or its columns are contiguous, which
 * covers slices and transposed views; any other view is copied first.  If b is one matrix and a's matrices lie behind one
 * another, they are the rows of one product. */
#include "cpu/gemm.h"
#include "tensor/accelerator.h"

/* An operand: matrices [rows,cols] along the result's leading axes. */
typedef struct matrices {
  const float *data;
  int64_t rows, cols, ld;
  bool is_transposed;                   /* stored as [cols,rows] */
  int64_t batch_strides[WEFT_MAX_RANK]; /* along the result's leading axes; 0 where this operand is broadcast */
  weft__storage copy;                   /* of a view that had to be copied; buffer NULL otherwise */
} matrices;

/* ---- views that no product reads ---- */

weft_status weft__cpu_make_f32(weft__cpu *cpu, const weft_tensor *from, weft_tensor *to, weft__storage *storage) {
  *storage = (weft__storage){.backend = &cpu->base};
  if (!weft__mul_size((size_t)weft_tensor_numel(from), sizeof(float), &storage->n_bytes))
    return weft__error(WEFT_EINVAL, "matmul: its size overflows");
  storage->buffer = weft__buffers_get(cpu->buffers, storage->n_bytes);
  if (!storage->buffer) return WEFT_ENOMEM;
  *to = *from;
  to->dtype = WEFT_F32;
  to->offset = 0;
  weft__shape_strides(to->rank, to->shape, to->strides);
  to->storage = storage;
  weft__copy(cpu, from, to);
  return WEFT_OK;
}

/* ---- operands ---- */

/* Rows, columns, and their strides: a vector is one row as a, one column as b, and has no transpose. */
typedef struct matrix_axes {
  int64_t rows, cols, row_stride, col_stride;
} matrix_axes;

static matrix_axes axes_of(const weft_tensor *t, bool is_b, bool is_transposed) {
  int last = t->rank - 1;
  if (t->rank == 1)
    return is_b ? (matrix_axes){t->shape[0], 1, t->strides[0], 1} : (matrix_axes){1, t->shape[0], 1, t->strides[0]};
  matrix_axes m = {t->shape[last - 1], t->shape[last], t->strides[last - 1], t->strides[last]};
  return is_transposed ? (matrix_axes){m.cols, m.rows, m.col_stride, m.row_stride} : m;
}

/* Whether the elements of an axis are neighbours; one element has no others. */
static bool is_unit(int64_t extent, int64_t stride) { return extent <= 1 || stride == 1; }

static weft_status operand_open(weft__cpu *cpu, const weft_tensor *t, bool is_b, bool is_transposed, int n_leading,
                                matrices *x) {
  matrix_axes m = axes_of(t, is_b, is_transposed);
  weft_tensor flat;
  x->data = weft__cpu_data(t);
  if (t->dtype != WEFT_F32 || (!is_unit(m.cols, m.col_stride) && !is_unit(m.rows, m.row_stride))) {
    weft_status status = weft__cpu_make_f32(cpu, t, &flat, &x->copy);
    if (status) return status;
    t = &flat;
    x->data = x->copy.buffer;
    m = axes_of(t, is_b, is_transposed);
  }
  x->rows = m.rows;
  x->cols = m.cols;
  x->is_transposed = !is_unit(m.cols, m.col_stride);
  if (x->is_transposed)
    x->ld = m.cols > 1 ? m.col_stride : m.rows;
  else
    x->ld = m.rows > 1 ? m.row_stride : m.cols;
  for (int i = 0; i < n_leading; i++) {
    int own = i - n_leading + (t->rank > 2 ? t->rank - 2 : 0);
    x->batch_strides[i] = own < 0 || t->shape[own] == 1 ? 0 : t->strides[own];
  }
  return WEFT_OK;
}

/* ---- the batch ---- */

typedef struct product {
  matrices a, b;
  int n_leading;
  const int64_t *leading; /* the result's leading extents */
  int64_t n_matrices;
  bool is_offered; /* to the accelerator: the whole batch is large enough */
} product;

/* Makes one matrix of a's matrices if b is one matrix and the rows of each follow those of the one before. */
static void fold_batch(product *p) {
  matrices *a = &p->a;
  int64_t rows = a->rows, ld = a->ld;
  for (int i = p->n_leading - 1; i >= 0; i--) {
    if (p->leading[i] == 1) continue;
    if (rows == 1) ld = a->batch_strides[i];
    if (a->is_transposed || p->b.batch_strides[i] || a->batch_strides[i] != rows * ld) return;
    rows *= p->leading[i];
  }
  a->rows = rows;
  a->ld = ld;
  p->n_matrices = 1;
}

/* Offset of an operand's matrix number `index` of the batch. */
static int64_t matrix_offset(const product *p, const matrices *x, int64_t index) {
  int64_t offset = 0;
  for (int i = p->n_leading - 1; i >= 0; i--) {
    offset += index % p->leading[i] * x->batch_strides[i];
    index /= p->leading[i];
  }
  return offset;
}

/* What the accelerator does not take, or fails at, is computed here. */
static weft_status run_offered(weft__cpu *cpu, int64_t n_products, const weft__gemm *products) {
  for (int64_t i = 0; i < n_products; i++) {
    const weft__gemm *g = &products[i];
    if (weft__accelerator_matmul(g->m, g->n, g->k, g->a, g->lda, g->transpose_a, g->b, g->ldb, g->transpose_b, g->c,
                                 g->ldc))
      continue;
    weft_status status = weft__gemm_run(cpu, 1, g);
    if (status) return status;
  }
  return WEFT_OK;
}

static bool is_offered(const product *p) {
  double n = (double)p->n_matrices * (double)p->a.rows * (double)p->a.cols * (double)p->b.cols;
  return weft__accelerator_wants(n < 0x1p62 ? (int64_t)n : INT64_MAX);
}

static weft_status run_batch(weft__cpu *cpu, const product *p, float *c) {
  enum { CHUNK = 64 };
  const matrices *a = &p->a, *b = &p->b;
  weft__gemm chunk[CHUNK];
  for (int64_t first = 0; first < p->n_matrices; first += CHUNK) {
    int64_t n = p->n_matrices - first < CHUNK ? p->n_matrices - first : CHUNK;
    for (int64_t i = 0; i < n; i++)
      chunk[i] = (weft__gemm){
          .m = a->rows,
          .n = b->cols,
          .k = a->cols,
          .a = a->data + matrix_offset(p, a, first + i),
          .lda = a->ld,
          .transpose_a = a->is_transposed,
          .b = b->data + matrix_offset(p, b, first + i),
          .ldb = b->ld,
          .transpose_b = b->is_transposed,
          .c = c + (first + i) * a->rows * b->cols,
          .ldc = b->cols,
      };
    weft_status status = p->is_offered ? run_offered(cpu, n, chunk) : weft__gemm_run(cpu, n, chunk);
    if (status) return status;
  }
  return WEFT_OK;
}

weft_status weft__cpu_matmul(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  const weft_tensor *a = call->in[0], *b = call->in[1], *out = call->out;
  const weft_matmul_attrs *attrs = call->attrs;
  if (weft__dtype_get(b->dtype)->is_quantised) return weft__cpu_matmul_nt(backend, call);
  product p = {.n_leading = out->rank - (a->rank > 1) - (b->rank > 1), .leading = out->shape, .n_matrices = 1};
  if (weft_tensor_numel(out) == 0) return WEFT_OK;
  for (int i = 0; i < p.n_leading; i++) p.n_matrices *= out->shape[i];
  weft_status status = operand_open(cpu, a, false, attrs->transpose_a, p.n_leading, &p.a);
  if (!status) status = operand_open(cpu, b, true, attrs->transpose_b, p.n_leading, &p.b);
  if (!status) {
    p.is_offered = is_offered(&p);
    fold_batch(&p);
    status = run_batch(cpu, &p, weft__cpu_data(out));
  }
  weft__buffers_put(cpu->buffers, p.a.copy.buffer, p.a.copy.n_bytes);
  weft__buffers_put(cpu->buffers, p.b.copy.buffer, p.b.copy.n_bytes);
  return status;
}
