/* shape.c - arithmetic on shapes and strides.  Every product is checked. */
#include "tensor/tensor.h"

#include <stdio.h>  /* snprintf */
#include <string.h> /* memcmp */

bool weft__shape_numel(int rank, const int64_t *shape, int64_t *numel) {
  int64_t span = 1; /* without the zeros: strides are products of it */
  bool is_empty = false;
  for (int i = 0; i < rank; i++) {
    if (shape[i] < 0 || !weft__mul_i64(span, shape[i] ? shape[i] : 1, &span)) return false;
    is_empty |= shape[i] == 0;
  }
  *numel = is_empty ? 0 : span;
  return true;
}

void weft__shape_strides(int rank, const int64_t *shape, int64_t *strides) {
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= shape[i];
  }
}

bool weft__broadcast(const weft_tensor *a, const weft_tensor *b, weft__shape *out) {
  out->rank = a->rank > b->rank ? a->rank : b->rank;
  for (int i = 1; i <= out->rank; i++) { /* from the innermost axis outwards */
    int64_t da = i <= a->rank ? a->shape[a->rank - i] : 1;
    int64_t db = i <= b->rank ? b->shape[b->rank - i] : 1;
    if (da != db && da != 1 && db != 1) return false;
    out->dim[out->rank - i] = da == 1 ? db : da;
  }
  return true;
}

int64_t weft__broadcast_stride(const weft_tensor *t, int rank, int axis) {
  int own = axis - (rank - t->rank);
  return own < 0 || t->shape[own] == 1 ? 0 : t->strides[own];
}

int64_t weft__tensor_span(const weft_tensor *t) {
  int64_t last = 0;
  for (int i = 0; i < t->rank; i++)
    if (t->shape[i] > 1) last += (t->shape[i] - 1) * t->strides[i];
  return last + 1;
}

bool weft__is_contiguous(const weft_tensor *t) {
  int64_t stride = 1;
  for (int i = t->rank - 1; i >= 0; i--) {
    if (t->shape[i] != 1 && t->strides[i] != stride) return false;
    stride *= t->shape[i];
  }
  return true;
}

bool weft__reshaped_strides(const weft_tensor *t, int rank, const int64_t *shape, int64_t *strides) {
  int old = t->rank - 1, axis = rank - 1;
  if (weft__is_contiguous(t) || weft_tensor_numel(t) == 0) {
    weft__shape_strides(rank, shape, strides);
    return true;
  }
  while (old >= 0) { /* from the innermost axis outwards: old axes that lie as one are cut into new ones */
    int64_t n = 1, stride = 1;
    for (; old >= 0 && (t->shape[old] == 1 || n == 1 || t->strides[old] == n * stride); old--) {
      if (t->shape[old] > 1 && n == 1) stride = t->strides[old];
      n *= t->shape[old];
    }
    for (; n > 1; axis--) {
      if (n % shape[axis]) return false;
      strides[axis] = stride;
      stride *= shape[axis];
      n /= shape[axis];
    }
  }
  for (; axis >= 0; axis--) strides[axis] = 1; /* what is left has an extent of 1 */
  return true;
}

bool weft__same_shape(const weft_tensor *a, const weft_tensor *b) {
  return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

const char *weft__shape_text(const weft_tensor *t, char *text) {
  enum { ROOM = 160 };
  int n = snprintf(text, ROOM, "[");
  for (int i = 0; i < t->rank && n < ROOM - 32; i++)
    n += snprintf(text + n, (size_t)(ROOM - n), i ? ",%lld" : "%lld", (long long)t->shape[i]);
  snprintf(text + n, (size_t)(ROOM - n), "] %s", weft_dtype_name(t->dtype));
  return text;
}

int64_t weft__n_rows(const weft_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i + 1 < t->rank; i++) n *= t->shape[i];
  return n;
}

int64_t weft__n_cols(const weft_tensor *t) { return t->rank ? t->shape[t->rank - 1] : 1; }
