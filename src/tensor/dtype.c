/* dtype.c - what the rows of weft/dtype.def mean in bytes. */
#include "tensor/tensor.h"

static const weft__dtype_info DTYPES[WEFT_DTYPE_COUNT] = {
#define WEFT_DTYPE(id, name, block_len, block_bytes, gguf_type, quantised)                                             \
  [WEFT_##id] = {name, block_len, block_bytes, gguf_type, quantised},
#include "weft/dtype.def"
#undef WEFT_DTYPE
};

const weft__dtype_info *weft__dtype_get(weft_dtype dtype) { return &DTYPES[dtype]; }

const char *weft_dtype_name(weft_dtype dtype) {
  return (unsigned)dtype < WEFT_DTYPE_COUNT ? DTYPES[dtype].name : "unknown";
}

bool weft__dtype_bytes(weft_dtype dtype, int64_t n, size_t *n_bytes) {
  const weft__dtype_info *info = &DTYPES[dtype];
  if (n < 0 || n % info->block_len || (uint64_t)n > SIZE_MAX) return false;
  return weft__mul_size((size_t)(n / info->block_len), (size_t)info->block_bytes, n_bytes);
}

bool weft__shape_bytes(weft_dtype dtype, int rank, const int64_t *shape, size_t *n_bytes) {
  size_t n_rows = 1;
  *n_bytes = 0;
  for (int i = 0; i < rank; i++)
    if (shape[i] == 0) return true; /* whatever the others are */
  for (int i = 0; i + 1 < rank; i++)
    if (!weft__mul_size(n_rows, (size_t)shape[i], &n_rows)) return false;
  return weft__row_bytes(dtype, rank ? shape[rank - 1] : 1, n_bytes) && weft__mul_size(*n_bytes, n_rows, n_bytes);
}

bool weft__row_bytes(weft_dtype dtype, int64_t n, size_t *n_bytes) {
  const weft__dtype_info *info = &DTYPES[dtype];
  if (n < 0 || (uint64_t)n > SIZE_MAX) return false;
  int64_t n_blocks = n / info->block_len + (n % info->block_len != 0);
  return weft__mul_size((size_t)n_blocks, (size_t)info->block_bytes, n_bytes);
}
