/* each.c - loops over the elements of strided, broadcast operands: what the operators that work element by element, the
 * reductions and the copies read their operands with.
 *
 * Invariant: a piece's operands are contiguous or one element, whatever the views were; what is not is gathered into
 * scratch of the loop's, a piece at a time, so no operator needs a copy of a whole operand. */
#include "cpu/cpu.h"
#include "cpu/half.h"

#include <assert.h>
#include <string.h> /* memcpy */

/* ---- elements of any dtype ---- */

static const uint16_t *halves_at(const void *data, int64_t index) { return (const uint16_t *)data + index; }

void weft__read_real(weft_dtype dtype, const void *data, int64_t index, int64_t step, int64_t n, float *to) {
  if (dtype == WEFT_F16) {
    const uint16_t *from = halves_at(data, index);
    for (int64_t i = 0; i < n; i++) to[i] = weft__f16_to_f32(from[i * step]);
  } else if (dtype == WEFT_BF16) {
    const uint16_t *from = halves_at(data, index);
    for (int64_t i = 0; i < n; i++) to[i] = weft__bf16_to_f32(from[i * step]);
  } else {
    assert(dtype == WEFT_F32);
    const float *from = (const float *)data + index;
    for (int64_t i = 0; i < n; i++) to[i] = from[i * step];
  }
}

/* n elements of 2 or 4 bytes as they are. */
static void gather_stored(size_t size, const void *data, int64_t index, int64_t step, int64_t n, void *to) {
  if (size == 2) {
    const uint16_t *from = halves_at(data, index);
    for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[i] = from[i * step];
  } else {
    const uint32_t *from = (const uint32_t *)data + index;
    for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i] = from[i * step];
  }
}

const float *weft__real_run(const weft_tensor *t, int64_t index, int64_t step, int64_t n, float *scratch) {
  const void *data = weft__cpu_data(t);
  if (t->dtype == WEFT_F32 && (step == 1 || n <= 1)) return (const float *)data + index;
  weft__read_real(t->dtype, data, index, step, n, scratch);
  return scratch;
}

int64_t weft__row_offset(const weft_tensor *t, int rank, const int64_t *shape, int skipped, int64_t row) {
  int64_t offset = 0;
  for (int i = rank - 2; i >= 0; i--) {
    if (i != skipped) offset += row % shape[i] * weft__broadcast_stride(t, rank, i);
    row /= shape[i];
  }
  return offset;
}

/* ---- the loop ---- */

enum { MAX_OPERANDS = WEFT__EACH_MAX + 1 }; /* the last is the result */

typedef struct each_loop {
  weft__each_function run;
  const void *context;
  weft__each_read read;
  int n_in;
  const weft_tensor *tensors[MAX_OPERANDS];
  int rank;                                     /* of the outer axes */
  int64_t shape[WEFT_MAX_RANK];                 /* theirs, outermost first */
  int64_t strides[MAX_OPERANDS][WEFT_MAX_RANK]; /* 0 where an operand is broadcast */
  int64_t n, steps[MAX_OPERANDS];               /* the inner axis */
  int64_t n_pieces;                             /* of the inner axis */
} each_loop;

static size_t element_bytes(const weft_tensor *t) { return (size_t)weft__dtype_get(t->dtype)->block_bytes; }

/* Appends axis `axis` of the result to the loop's, or merges the two if every operand steps on from one into the other. */
static void add_axis(each_loop *l, const weft_tensor *out, int axis) {
  int64_t extent = out->shape[axis], stride[MAX_OPERANDS];
  if (extent == 1) return;
  bool merges = l->rank > 0;
  for (int i = 0; i <= l->n_in; i++) {
    stride[i] = weft__broadcast_stride(l->tensors[i], out->rank, axis);
    merges = merges && l->strides[i][l->rank - 1] == stride[i] * extent;
  }
  if (merges)
    l->shape[l->rank - 1] *= extent;
  else
    l->shape[l->rank++] = extent;
  for (int i = 0; i <= l->n_in; i++) l->strides[i][l->rank - 1] = stride[i];
}

/* Points the piece at operand `i`: where it lies, or in scratch. */
static void place_operand(const each_loop *l, int i, int64_t index, weft__piece *piece, float *scratch) {
  const weft_tensor *t = l->tensors[i];
  int64_t step = l->steps[i], n = step == 0 ? 1 : piece->n;
  size_t size = element_bytes(t);
  piece->in[i] = scratch;
  piece->step[i] = step == 0 ? 0 : 1;
  if (l->read == WEFT__AS_REAL)
    piece->in[i] = weft__real_run(t, index, step, n, scratch);
  else if (step <= 1)
    piece->in[i] = (const char *)weft__cpu_data(t) + (size_t)index * size;
  else
    gather_stored(size, weft__cpu_data(t), index, step, n, scratch);
}

static void each_units(void *context, int64_t first, int64_t end) {
  const each_loop *l = context;
  float scratch[WEFT__EACH_MAX][WEFT__PIECE];
  const weft_tensor *out = l->tensors[l->n_in];
  for (int64_t unit = first; unit < end; unit++) {
    int64_t start = unit % l->n_pieces * WEFT__PIECE, rest = unit / l->n_pieces, index[MAX_OPERANDS];
    for (int i = 0; i <= l->n_in; i++) index[i] = start * l->steps[i];
    for (int axis = l->rank - 1; axis >= 0; axis--) {
      int64_t along = rest % l->shape[axis];
      rest /= l->shape[axis];
      for (int i = 0; i <= l->n_in; i++) index[i] += along * l->strides[i][axis];
    }
    weft__piece piece = {.n = l->n - start < WEFT__PIECE ? l->n - start : WEFT__PIECE};
    for (int i = 0; i < l->n_in; i++) place_operand(l, i, index[i], &piece, scratch[i]);
    piece.y = (char *)weft__cpu_data(out) + (size_t)index[l->n_in] * element_bytes(out);
    l->run(l->context, &piece);
  }
}

void weft__each(weft__cpu *cpu, int n_in, weft_tensor *const *in, const weft_tensor *out, weft__each_read read,
                weft__each_function run, const void *context) {
  each_loop l = {.run = run, .context = context, .read = read, .n_in = n_in, .n = 1};
  if (weft_tensor_numel(out) == 0) return;
  for (int i = 0; i < n_in; i++) l.tensors[i] = in[i];
  l.tensors[n_in] = out;
  int64_t n_rows = 1;
  for (int axis = 0; axis < out->rank; axis++) add_axis(&l, out, axis);
  if (l.rank > 0 &&
      l.strides[n_in][l.rank - 1] == 1) { /* the innermost axis, unless the result is not contiguous there */
    l.n = l.shape[--l.rank];
    for (int i = 0; i <= n_in; i++) l.steps[i] = l.strides[i][l.rank];
  }
  for (int axis = 0; axis < l.rank; axis++) n_rows *= l.shape[axis];
  l.n_pieces = (l.n + WEFT__PIECE - 1) / WEFT__PIECE;
  weft__cpu_rows(cpu, n_rows * l.n_pieces, l.n < WEFT__PIECE ? l.n : WEFT__PIECE, each_units, &l);
}

/* ---- copies ---- */

typedef struct conversion {
  weft__cpu *cpu;
  weft_dtype to;
} conversion;

static void copy_stored(const void *context, const weft__piece *piece) {
  size_t size = *(const size_t *)context;
  if (piece->step[0] || piece->n == 1)
    memcpy(piece->y, piece->in[0], (size_t)piece->n * size);
  else
    gather_stored(size, piece->in[0], 0, 0, piece->n, piece->y);
}

/* Nearest i32 to a number without its fraction; the bounds are exact in f32. */
static int32_t to_i32(float x) {
  if (!(x >= -0x1p31f)) return x < 0 ? INT32_MIN : 0; /* NaN: 0 */
  return x >= 0x1p31f ? INT32_MAX : (int32_t)x;
}

/* x[i * step], i < n, to elements of another dtype. */
static void write_real(weft__cpu *cpu, int64_t n, const float *x, int64_t step, weft_dtype to, void *y) {
  uint16_t *halves = y;
  if (to == WEFT_F32)
    for (int64_t i = 0; i < n; i++) ((float *)y)[i] = x[i * step];
  else if (to == WEFT_I32)
    for (int64_t i = 0; i < n; i++) ((int32_t *)y)[i] = to_i32(x[i * step]);
  else if (to == WEFT_BF16)
    for (int64_t i = 0; i < n; i++) halves[i] = weft__f32_to_bf16(x[i * step]);
  else if (step == 1)
    cpu->kernels->to_f16(n, x, halves);
  else
    for (int64_t i = 0; i < n; i++) halves[i] = weft__f32_to_f16(x[0]);
}

void weft__write_real(weft__cpu *cpu, int64_t n, const float *x, const weft_tensor *t, int64_t index) {
  write_real(cpu, n, x, 1, t->dtype, (char *)weft__cpu_data(t) + (size_t)index * element_bytes(t));
}

static void convert_real(const void *context, const weft__piece *piece) {
  const conversion *c = context;
  write_real(c->cpu, piece->n, piece->in[0], piece->step[0], c->to, piece->y);
}

static void convert_i32(const void *context, const weft__piece *piece) {
  float values[WEFT__PIECE];
  weft__piece real = *piece;
  const int32_t *x = piece->in[0];
  const int64_t n = piece->n, step = piece->step[0] != 0;
  real.n = n;
  real.in[0] = values;
  real.step[0] = step;
  for (int64_t i = 0; i < (step ? n : 1); i++) values[i] = (float)x[i];
  convert_real(context, &real);
}

void weft__copy(weft__cpu *cpu, const weft_tensor *from, const weft_tensor *to) {
  weft_tensor *in[] = {(weft_tensor *)from};
  const conversion c = {cpu, to->dtype};
  const size_t size = element_bytes(to);
  if (from->dtype == to->dtype)
    weft__each(cpu, 1, in, to, WEFT__AS_STORED, copy_stored, &size);
  else if (from->dtype == WEFT_I32)
    weft__each(cpu, 1, in, to, WEFT__AS_STORED, convert_i32, &c);
  else
    weft__each(cpu, 1, in, to, WEFT__AS_REAL, convert_real, &c);
}
