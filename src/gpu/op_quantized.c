/* op_quantized.c - quantised weights: made, loaded, read, and multiplied.
 *
 * q8_0 and q4_0 are packed: on the device such a weight [M,K] is two arrays in one buffer: the quants, [M][K/32] blocks of 8 or 4 words in the file's
 * order, and from the next multiple of SCALE_ALIGNMENT bytes on the scales, [M][(K/32 + 1) / 2] pairs of f16.
 * Fast arithmetic quantises the activations on the device and multiplies integers; exact arithmetic makes the weights f32,
 * in registers for few rows, else for the occasion in memory, as is done with other formats, which stay as stored. */
#include "gpu/gpu.h"

#include <assert.h>
#include <string.h> /* memcpy, memset */

enum {
  BLOCK = 32,
  SCALE_ALIGNMENT = 256,
  PIECE_BYTES = 4 << 20, /* of a weight that is laid out on the host at a time */
  MAX_MATVEC_INPUTS = 4,
  SMALL_MATVEC_ROWS = 2048,                /* of W, below which workgroups are small */
  LARGE_MATVEC_ROWS = 8192,                /* and from which on they own more */
  GEMM_ROWS = 64,                          /* BM, or half of it for few rows */
  GEMM_COLUMNS = 64,                       /* BN */
  MAX_GRID_ROWS = 65535 * GEMM_ROWS,       /* of x */
  MAX_GRID_COLUMNS = 65535 * GEMM_COLUMNS, /* rows of W */
  QUANTIZE_BLOCKS = 128,
  QUANTIZE_PAIRS = 256, /* of weights' blocks */
  DEQUANTIZE_WORDS = 256,
};

/* ---- the layout ---- */

typedef struct layout {
  int bits;
  int64_t n_blocks, quant_words, scale_words; /* of a row */
  uint64_t scales_at;                         /* word */
  size_t n_bytes;
} layout;

int weft__gpu_quantized_bits(weft_dtype dtype) {
  switch (dtype) {
  case WEFT_Q8_0:
    return 8;
  case WEFT_Q4_0:
    return 4;
  default:
    return 0;
  }
}

static layout layout_of(weft_dtype dtype, int64_t m, int64_t k) {
  layout l = {.bits = weft__gpu_quantized_bits(dtype), .n_blocks = (k + BLOCK - 1) / BLOCK};
  l.quant_words = l.n_blocks * l.bits;
  l.scale_words = (l.n_blocks + 1) / 2;
  uint64_t quant_bytes = (uint64_t)(m * l.quant_words) * 4;
  l.scales_at = (quant_bytes + SCALE_ALIGNMENT - 1) / SCALE_ALIGNMENT * SCALE_ALIGNMENT / 4;
  l.n_bytes = (size_t)(l.scales_at + (uint64_t)(m * l.scale_words)) * 4;
  return l;
}

/* Takes `n_rows` stored rows apart into quants and scales. */
static void take_apart(const layout *l, const uint8_t *rows, int64_t n_rows, uint8_t *quants, uint8_t *scales) {
  size_t quant_bytes = (size_t)l->bits * 4;
  memset(scales, 0, (size_t)(n_rows * l->scale_words) * 4);
  for (int64_t r = 0; r < n_rows; r++, scales += l->scale_words * 4)
    for (int64_t b = 0; b < l->n_blocks; b++, rows += 2 + quant_bytes, quants += quant_bytes) {
      memcpy(scales + 2 * b, rows, 2);
      memcpy(quants, rows + 2, quant_bytes);
    }
}

weft_status weft__gpu_load_quantized(weft__gpu *gpu, weft_dtype dtype, int64_t m, int64_t k, const void *data,
                                     weft__storage *storage) {
  layout l = layout_of(dtype, m, k);
  storage->n_bytes = l.n_bytes;
  storage->layout = WEFT__LAYOUT_PACKED;
  weft_status status = weft__gpu_alloc(&gpu->base, l.n_bytes, &storage->buffer);
  if (status) return status;
  size_t quant_bytes = (size_t)l.quant_words * 4, scale_bytes = (size_t)l.scale_words * 4;
  int64_t rows_at_once = PIECE_BYTES / (int64_t)(quant_bytes + scale_bytes + 1) + 1;
  uint8_t *piece = weft__alloc((size_t)rows_at_once, quant_bytes + scale_bytes);
  if (!piece) status = WEFT_ENOMEM;
  size_t row_bytes = (size_t)l.n_blocks * (2 + (size_t)l.bits * 4);
  for (int64_t first = 0; first < m && !status; first += rows_at_once) {
    size_t n = (size_t)weft__min_i64(rows_at_once, m - first), at = (size_t)first;
    uint8_t *scales = piece + n * quant_bytes;
    take_apart(&l, (const uint8_t *)data + at * row_bytes, (int64_t)n, piece, scales);
    status = weft__gpu_write(&gpu->base, storage->buffer, at * quant_bytes, piece, n * quant_bytes);
    if (!status)
      status = weft__gpu_write(&gpu->base, storage->buffer, (size_t)l.scales_at * 4 + at * scale_bytes, scales,
                               n * scale_bytes);
  }
  weft_free(piece);
  if (status) weft__gpu_free(&gpu->base, storage->buffer, storage->n_bytes);
  return status;
}

/* The same of a quantised tensor of any rank. */
static layout layout_of_tensor(const weft_tensor *t) { return layout_of(t->dtype, weft__n_rows(t), weft__n_cols(t)); }

/* Puts rows together as they are stored. */
static void put_together(const layout *l, const uint8_t *quants, const uint8_t *scales, int64_t n_rows, uint8_t *rows) {
  size_t quant_bytes = (size_t)l->bits * 4;
  for (int64_t r = 0; r < n_rows; r++, scales += l->scale_words * 4)
    for (int64_t b = 0; b < l->n_blocks; b++, rows += 2 + quant_bytes, quants += quant_bytes) {
      memcpy(rows, scales + 2 * b, 2);
      memcpy(rows + 2, quants, quant_bytes);
    }
}

weft_status weft__gpu_read_quantized(weft__gpu *gpu, const weft_tensor *t, void *data) {
  layout l = layout_of_tensor(t);
  uint8_t *all = weft__alloc(l.n_bytes, 1);
  if (!all) return WEFT_ENOMEM;
  weft_status status = weft__gpu_read(&gpu->base, t->storage->buffer, 0, all, l.n_bytes);
  if (!status) put_together(&l, all, all + l.scales_at * 4, weft__n_rows(t), data);
  weft_free(all);
  return status;
}

/* Windows of rows `first` .. of a weight's two arrays; the offsets are in words. */
static void weight_windows(const weft__gpu *gpu, const weft_tensor *w, const layout *l, int64_t first, int64_t n,
                           weft__gpu_range *ranges, uint32_t *q_offset, uint32_t *s_offset) {
  ranges[0] = weft__gpu_words(gpu, w->storage, (uint64_t)(first * l->quant_words), n * l->quant_words, q_offset);
  ranges[1] =
      weft__gpu_words(gpu, w->storage, l->scales_at + (uint64_t)(first * l->scale_words), n * l->scale_words, s_offset);
}

/* Rows of n elements that a binding holds; 0 is an error. */
static weft_status rows_of_window(const weft__gpu *gpu, int64_t n, int64_t *n_rows) {
  *n_rows = n > 0 ? weft__gpu_window_elements(gpu) / n : weft__gpu_window_elements(gpu);
  if (*n_rows > 0) return WEFT_OK;
  return weft__error(WEFT_EUNSUPPORTED, "%s: a quantised product over rows of %lld words, beyond one binding",
                     gpu->info.name, (long long)n);
}

/* ---- quantize ---- */

/* Gives the result the packed layout in the place of the stored one. */
static weft_status pack_result(weft__gpu *gpu, weft__storage *storage, size_t n_bytes) {
  void *buffer;
  weft_status status = weft__gpu_alloc(&gpu->base, n_bytes, &buffer);
  if (status) return status;
  weft__gpu_free(&gpu->base, storage->buffer, storage->n_bytes);
  storage->buffer = buffer;
  storage->n_bytes = n_bytes;
  storage->layout = WEFT__LAYOUT_PACKED;
  return WEFT_OK;
}

/* Rows `first` .. first + n - 1 of a contiguous f32 tensor. */
static weft_status quantize_rows(weft__gpu *gpu, const weft_tensor *a, const weft_tensor *y, const layout *l,
                                 int64_t first, int64_t n) {
  int64_t k = weft__n_cols(a);
  weft__gpu_quantize_weight_params p = {.n_rows = (uint32_t)n,
                                        .n = (uint32_t)k,
                                        .n_blocks = (uint32_t)l->n_blocks,
                                        .first_row = (uint32_t)first,
                                        .op = gpu->base.current_op};
  weft__gpu_range ranges[3] = {weft__gpu_window(gpu, a, first * k, n * k, &p.a_offset)};
  weight_windows(gpu, y, l, first, n, ranges + 1, &p.q_offset, &p.s_offset);
  const weft__wgsl_const constants[] = {{"BITS", (uint32_t)l->bits}, {NULL, 0}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_quantize_weight, constants, ranges, &p,
                            (uint64_t)((n * l->scale_words + QUANTIZE_PAIRS - 1) / QUANTIZE_PAIRS));
}

weft_status weft__gpu_quantize(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const weft_tensor *a = call->in[0], *y = call->out;
  layout l = layout_of_tensor(y);
  int64_t n_rows = weft__n_rows(y), part;
  weft_tensor whole;
  weft__storage storage = {.buffer = NULL};
  weft_status status = rows_of_window(gpu, weft__max_i64(weft__n_cols(a), l.quant_words), &part);
  if (!status) status = pack_result(gpu, y->storage, l.n_bytes);
  if (!status && !(a->dtype == WEFT_F32 && weft__is_contiguous(a))) {
    status = weft__gpu_make_f32(gpu, a, &whole, &storage);
    a = &whole;
  }
  for (int64_t first = 0; first < n_rows && l.n_blocks > 0 && !status; first += part)
    status = quantize_rows(gpu, a, y, &l, first, weft__min_i64(part, n_rows - first));
  if (storage.buffer) weft__gpu_free(&gpu->base, storage.buffer, storage.n_bytes);
  return status;
}

/* ---- packed weights as they are: fast arithmetic, and few rows in exact arithmetic ---- */

/* Elements from row to row of rows of f32. */
static int64_t row_stride(const weft_tensor *a) { return a->rank == 2 ? a->strides[0] : weft__n_cols(a); }

/* Quantised activations of n rows. */
typedef struct activations {
  void *quants, *scales;
  size_t quant_bytes, scale_bytes;
} activations;

static void free_activations(weft__gpu *gpu, activations *x) {
  if (x->quants) weft__gpu_free(&gpu->base, x->quants, x->quant_bytes);
  if (x->scales) weft__gpu_free(&gpu->base, x->scales, x->scale_bytes);
}

/* A product of n rows of activations with some rows of W. */
typedef struct piece {
  weft__gpu *gpu;
  const layout *l;
  const weft_tensor *a, *w, *y; /* a: rows of f32 */
  int64_t first, n;             /* rows of a and y */
  int64_t w_first, w_n;         /* of W: columns of y */
} piece;

static weft__gpu_range y_window(const piece *c, uint32_t *offset) {
  int64_t m = c->w->shape[0];
  return weft__gpu_window(c->gpu, c->y, c->first * m + c->w_first, (c->n - 1) * m + c->w_n, offset);
}

static weft_status quantize(const piece *c, activations *x) {
  weft__gpu *gpu = c->gpu;
  int64_t k = weft__n_cols(c->a), stride = row_stride(c->a), n_blocks = c->n * c->l->n_blocks;
  x->quant_bytes = (size_t)n_blocks * BLOCK;
  x->scale_bytes = (size_t)n_blocks * 4;
  weft_status status = weft__gpu_alloc(&gpu->base, x->quant_bytes, &x->quants);
  if (!status) status = weft__gpu_alloc(&gpu->base, x->scale_bytes, &x->scales);
  if (status) return status;
  weft__gpu_quantize_params p = {
      .n_rows = (uint32_t)c->n, .n = (uint32_t)k, .n_blocks = (uint32_t)c->l->n_blocks, .a_stride = (uint32_t)stride};
  const weft__gpu_range ranges[] = {
      weft__gpu_window(gpu, c->a, c->first * stride, (c->n - 1) * stride + k, &p.a_offset),
      {x->quants, 0, x->quant_bytes},
      {x->scales, 0, (x->scale_bytes + 15) / 16 * 16}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_quantize, NULL, ranges, &p,
                            (uint64_t)((n_blocks + QUANTIZE_BLOCKS - 1) / QUANTIZE_BLOCKS));
}

/* How a product of few rows is shared out. */
typedef struct matvec_shape {
  uint32_t threads, lanes, rows, unroll, chunk, x_block; /* constants of the kernel */
} matvec_shape;

/* What the kernel's arrays take of workgroup memory for n rows. */
static uint32_t matvec_bytes(const matvec_shape *s, uint32_t n) {
  uint32_t x = s->chunk * s->x_block * 16, scales = s->chunk * 4, largest = s->chunk * 2 * 16;
  uint32_t partial = s->threads / s->lanes * s->rows * (s->lanes + 1) * 4;
  return (x + scales + largest + partial) * n;
}

/* Workgroups own as many rows of W as leave no device idle, since each of them quantises all of x.  Chunks of x are of equal
 * size in workgroup memory, but for f32 twice that. */
static matvec_shape shape_matvec(const weft__gpu *gpu, int64_t n, int64_t m) {
  matvec_shape s = {.threads = 256, .lanes = 16, .rows = 2, .unroll = n == 1 ? 4 : 2, .chunk = 128, .x_block = 2};
  if (n > 1) s.chunk = n == 2 ? 64 : 32;
  if (m < SMALL_MATVEC_ROWS) s.threads = 64;
  if (m >= LARGE_MATVEC_ROWS && n == 1) s.rows = 4, s.unroll = 2;
  if (gpu->is_exact) s.chunk /= 2, s.x_block = 8;
  if (gpu->is_exact && n > 2) s.unroll = 1, s.threads = 64; /* so that the partial sums leave room */
  while (matvec_bytes(&s, (uint32_t)n) > gpu->info.limits.max_workgroup_bytes && s.threads > 64) s.threads /= 2;
  return s;
}

/* Few rows: the kernel quantises them itself, or in exact arithmetic makes the weights f32 in registers. */
static weft_status dispatch_matvec(const piece *c) {
  int64_t k = weft__n_cols(c->a), stride = row_stride(c->a);
  matvec_shape s = shape_matvec(c->gpu, c->n, c->w_n);
  uint32_t group_rows = s.threads / s.lanes * s.rows;
  /* The library does not check this limit. */
  assert(matvec_bytes(&s, (uint32_t)c->n) <= c->gpu->info.limits.max_workgroup_bytes);
  weft__gpu_matvec_quantized_params p = {.m = (uint32_t)c->w_n,
                                         .k = (uint32_t)k,
                                         .n_blocks = (uint32_t)c->l->n_blocks,
                                         .a_stride = (uint32_t)stride,
                                         .y_stride = (uint32_t)c->w->shape[0]};
  weft__gpu_range ranges[4];
  weight_windows(c->gpu, c->w, c->l, c->w_first, c->w_n, ranges, &p.q_offset, &p.s_offset);
  ranges[2] = weft__gpu_window(c->gpu, c->a, c->first * stride, (c->n - 1) * stride + k, &p.a_offset);
  ranges[3] = y_window(c, &p.y_offset);
  bool is_aligned = k % 4 == 0 && p.a_offset % 4 == 0 && (c->n == 1 || stride % 4 == 0);
  const weft__wgsl_const constants[] = {{"BITS", (uint32_t)c->l->bits},
                                        {"N_X", (uint32_t)c->n},
                                        {"LANES", s.lanes},
                                        {"ROWS", s.rows},
                                        {"UNROLL", s.unroll},
                                        {"CHUNK", s.chunk},
                                        {"X_BLOCK", s.x_block},
                                        {"THREADS", s.threads},
                                        {"ALIGNED", is_aligned},
                                        {NULL, 0}};
  return weft__gpu_dispatch(c->gpu, WEFT__KERNEL_matvec_quantized, constants, ranges, &p,
                            (p.m + group_rows - 1) / group_rows);
}

static weft_status dispatch_gemm(const piece *c, const activations *x) {
  weft__gpu_quantized_params p = {.m = (uint32_t)c->w_n,
                                  .n = (uint32_t)c->n,
                                  .n_blocks = (uint32_t)c->l->n_blocks,
                                  .y_stride = (uint32_t)c->w->shape[0]};
  weft__gpu_range ranges[5];
  weight_windows(c->gpu, c->w, c->l, c->w_first, c->w_n, ranges, &p.q_offset, &p.s_offset);
  ranges[2] = (weft__gpu_range){x->quants, 0, x->quant_bytes};
  ranges[3] = (weft__gpu_range){x->scales, 0, (x->scale_bytes + 15) / 16 * 16};
  ranges[4] = y_window(c, &p.y_offset);
  uint32_t rows = p.n <= GEMM_ROWS / 2 ? GEMM_ROWS / 2 : GEMM_ROWS;
  const weft__wgsl_const constants[] = {{"BITS", (uint32_t)c->l->bits}, {"BM", rows}, {NULL, 0}};
  const uint32_t groups[] = {(p.m + GEMM_COLUMNS - 1) / GEMM_COLUMNS, (p.n + rows - 1) / rows, 1};
  return weft__gpu_dispatch3(c->gpu, WEFT__KERNEL_gemm_quantized, constants, ranges, &p, groups);
}

/* All of W with n rows of a, in as many windows of W as the bindings ask for. */
static weft_status multiply_rows(piece c) {
  activations x = {.quants = NULL};
  int64_t m = c.w->shape[0], window;
  bool is_matvec = c.n <= MAX_MATVEC_INPUTS;
  weft_status status = rows_of_window(c.gpu, c.l->quant_words, &window);
  window = weft__min_i64(window, MAX_GRID_COLUMNS);
  if (!status && !is_matvec) status = quantize(&c, &x);
  for (c.w_first = 0; c.w_first < m && !status; c.w_first += window) {
    c.w_n = weft__min_i64(window, m - c.w_first);
    status = is_matvec ? dispatch_matvec(&c) : dispatch_gemm(&c, &x);
  }
  free_activations(c.gpu, &x);
  return status;
}

static weft_status product_packed(weft__gpu *gpu, const weft_tensor *a, const weft_tensor *w, const layout *l,
                                  const weft_tensor *y) {
  int64_t n_rows = weft__n_rows(a), window;
  weft_status status = rows_of_window(gpu, weft__max_i64(row_stride(a), w->shape[0]), &window);
  if (window > MAX_GRID_ROWS) window = MAX_GRID_ROWS;
  for (int64_t first = 0; first < n_rows && !status; first += window)
    status = multiply_rows((piece){gpu, l, a, w, y, first, weft__min_i64(window, n_rows - first), 0, 0});
  return status;
}

/* ---- weights made f32 for the occasion ---- */

/* Rows `first` .. first + n - 1 of a packed w to those of y from row `y_first` on. */
static weft_status dequantize(weft__gpu *gpu, const weft_tensor *w, const layout *l, int64_t first, int64_t n,
                              const weft_tensor *y, int64_t y_first) {
  int64_t k = weft__n_cols(w);
  weft__gpu_dequantize_params p = {.n_rows = (uint32_t)n, .n = (uint32_t)k, .n_blocks = (uint32_t)l->n_blocks};
  weft__gpu_range ranges[3];
  weight_windows(gpu, w, l, first, n, ranges, &p.q_offset, &p.s_offset);
  ranges[2] = weft__gpu_window(gpu, y, y_first * k, n * k, &p.y_offset);
  const weft__wgsl_const constants[] = {{"BITS", (uint32_t)l->bits}, {NULL, 0}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_dequantize, constants, ranges, &p,
                            (uint64_t)((n * l->n_blocks * 8 + DEQUANTIZE_WORDS - 1) / DEQUANTIZE_WORDS));
}

weft_status weft__gpu_dequantize(weft__gpu *gpu, const weft_tensor *w, const weft_tensor *y) {
  if (w->storage->layout == WEFT__LAYOUT_PLAIN) return weft__gpu_read_rows(gpu, w, NULL, y);
  layout l = layout_of_tensor(w);
  int64_t n_rows = weft__n_rows(w), window;
  weft_status status = rows_of_window(gpu, l.n_blocks * BLOCK, &window);
  for (int64_t first = 0; first < n_rows && l.n_blocks > 0 && !status; first += window)
    status = dequantize(gpu, w, &l, first, weft__min_i64(window, n_rows - first), y, first);
  return status;
}

/* The same of some rows of w [M,K]. */
static weft_status dequantize_rows(weft__gpu *gpu, const weft_tensor *w, int64_t first, const weft_tensor *rows) {
  if (w->storage->layout == WEFT__LAYOUT_PACKED) {
    layout l = layout_of_tensor(w);
    return dequantize(gpu, w, &l, first, rows->shape[0], rows, 0);
  }
  weft_tensor part = *w;
  int64_t block_len = weft__dtype_get(w->dtype)->block_len;
  part.shape[0] = rows->shape[0];
  part.offset = first * ((w->shape[1] + block_len - 1) / block_len * block_len); /* of whole blocks */
  return weft__gpu_read_rows(gpu, &part, NULL, rows);
}

/* y = a @ w^T, a window of w's rows at a time. */
static weft_status product_in_f32(weft__gpu *gpu, const weft_tensor *a, const weft_tensor *w, const weft_tensor *y) {
  int64_t m = w->shape[0], k = w->shape[1], window;
  weft_status status = rows_of_window(gpu, k + BLOCK, &window);
  for (int64_t first = 0; first < m && !status; first += window) {
    int64_t n = weft__min_i64(window, m - first);
    weft__storage storage = {.backend = &gpu->base, .n_bytes = (size_t)(n * k) * 4};
    weft_tensor rows = {.dtype = WEFT_F32, .rank = 2, .shape = {n, k}, .strides = {k, 1}, .storage = &storage};
    weft_tensor columns = *y;
    columns.shape[columns.rank - 1] = n;
    columns.offset += first;
    status = weft__gpu_alloc(&gpu->base, storage.n_bytes, &storage.buffer);
    if (status) break;
    if (k > 0) status = dequantize_rows(gpu, w, first, &rows);
    if (!status) status = weft__gpu_product(gpu, a, false, &rows, true, &columns);
    weft__gpu_free(&gpu->base, storage.buffer, storage.n_bytes);
  }
  return status;
}

/* ---- all products ---- */

/* Rows of contiguous f32 at one stride? */
static bool are_f32_rows(const weft_tensor *a) {
  if (a->dtype != WEFT_F32) return false;
  return weft__is_contiguous(a) || (a->rank == 2 && (a->shape[1] <= 1 || a->strides[1] == 1));
}

weft_status weft__gpu_product_quantized(weft__gpu *gpu, const weft_tensor *a, const weft_tensor *w,
                                        const weft_tensor *y) {
  bool is_packed = w->storage->layout == WEFT__LAYOUT_PACKED && w->shape[1] > 0;
  if (!is_packed || (gpu->is_exact && weft__n_rows(a) > MAX_MATVEC_INPUTS)) return product_in_f32(gpu, a, w, y);
  layout l = layout_of_tensor(w);
  if (are_f32_rows(a)) return product_packed(gpu, a, w, &l, y);
  weft_tensor copy;
  weft__storage storage;
  weft_status status = weft__gpu_make_f32(gpu, a, &copy, &storage);
  if (!status) status = product_packed(gpu, &copy, w, &l, y);
  if (storage.buffer) weft__gpu_free(&gpu->base, storage.buffer, storage.n_bytes);
  return status;
}
