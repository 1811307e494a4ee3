/* op_quantized.c - products with weights of 8 and 4 bits in blocks of 32.
 *
 * On the device such a weight [M,K] is two arrays in one buffer: the quants, [M][K/32] blocks of 8 or 4 words in the file's
 * order, and from the next multiple of SCALE_ALIGNMENT bytes on the scales, [M][(K/32 + 1) / 2] pairs of f16.
 * Fast arithmetic quantises the activations on the device and multiplies integers; exact arithmetic makes the weights f32
 * for the occasion. */
#include "gpu/gpu.h"

#include <string.h> /* memcpy, memset */

enum {
  BLOCK = 32,
  SCALE_ALIGNMENT = 256,
  PIECE_BYTES = 4 << 20, /* of a weight that is laid out on the host at a time */
  MATVEC_ROWS = 4,       /* of W, a workgroup (ROWS) */
  MAX_MATVEC_INPUTS = 4,
  GEMM_COLUMNS = 128, /* BN */
  QUANTIZE_BLOCKS = 32,
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

/* ---- fast arithmetic ---- */

/* Quantised activations of n rows. */
typedef struct activations {
  void *quants, *scales;
  size_t quant_bytes, scale_bytes;
} activations;

static void free_activations(weft__gpu *gpu, activations *x) {
  if (x->quants) weft__gpu_free(&gpu->base, x->quants, x->quant_bytes);
  if (x->scales) weft__gpu_free(&gpu->base, x->scales, x->scale_bytes);
}

/* `a` has n rows a_stride apart, from row `first` on. */
static weft_status quantize(weft__gpu *gpu, const weft_tensor *a, int64_t first, int64_t n, int64_t a_stride,
                            int64_t n_blocks, activations *x) {
  x->quant_bytes = (size_t)(n * n_blocks) * BLOCK;
  x->scale_bytes = (size_t)(n * n_blocks) * 4;
  weft_status status = weft__gpu_alloc(&gpu->base, x->quant_bytes, &x->quants);
  if (!status) status = weft__gpu_alloc(&gpu->base, x->scale_bytes, &x->scales);
  if (status) return status;
  int64_t k = weft__n_cols(a);
  weft__gpu_quantize_params p = {
      .n_rows = (uint32_t)n, .n = (uint32_t)k, .n_blocks = (uint32_t)n_blocks, .a_stride = (uint32_t)a_stride};
  const weft__gpu_range ranges[] = {weft__gpu_window(gpu, a, first * a_stride, (n - 1) * a_stride + k, &p.a_offset),
                                    {x->quants, 0, x->quant_bytes},
                                    {x->scales, 0, (x->scale_bytes + 15) / 16 * 16}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_quantize, NULL, ranges, &p,
                            (uint64_t)((n * n_blocks + QUANTIZE_BLOCKS - 1) / QUANTIZE_BLOCKS));
}

/* A power of two that covers the quads of a row, within what every device offers. */
static uint32_t matvec_threads(int64_t n_quads) {
  uint32_t threads = 32;
  while (threads < 256 && threads < n_quads) threads *= 2;
  return threads;
}

static weft_status dispatch_product(weft__gpu *gpu, const layout *l, const weft__gpu_quantized_params *p,
                                    const weft__gpu_range *ranges) {
  if (p->n <= MAX_MATVEC_INPUTS) {
    const weft__wgsl_const constants[] = {
        {"BITS", (uint32_t)l->bits}, {"N_X", p->n}, {"THREADS", matvec_threads(l->quant_words / 4)}, {NULL, 0}};
    return weft__gpu_dispatch(gpu, WEFT__KERNEL_matvec_quantized, constants, ranges, p,
                              (p->m + MATVEC_ROWS - 1) / MATVEC_ROWS);
  }
  uint32_t rows = p->n <= 64 ? 64 : 128;
  const weft__wgsl_const constants[] = {{"BITS", (uint32_t)l->bits}, {"BM", rows}, {NULL, 0}};
  const uint32_t groups[] = {(p->m + GEMM_COLUMNS - 1) / GEMM_COLUMNS, (p->n + rows - 1) / rows, 1};
  return weft__gpu_dispatch3(gpu, WEFT__KERNEL_gemm_quantized, constants, ranges, p, groups);
}

/* All of W with n rows of activations, in as many windows of W as the bindings ask for. */
static weft_status multiply(weft__gpu *gpu, const weft_tensor *w, const layout *l, const activations *x,
                            const weft_tensor *y, int64_t first, int64_t n) {
  int64_t m = w->shape[0], part;
  weft_status status = rows_of_window(gpu, l->quant_words, &part);
  for (int64_t row = 0; row < m && !status; row += part) {
    int64_t count = weft__min_i64(part, m - row);
    weft__gpu_quantized_params p = {
        .m = (uint32_t)count, .n = (uint32_t)n, .n_blocks = (uint32_t)l->n_blocks, .y_stride = (uint32_t)m};
    weft__gpu_range ranges[5];
    weight_windows(gpu, w, l, row, count, ranges, &p.q_offset, &p.s_offset);
    ranges[2] = (weft__gpu_range){x->quants, 0, x->quant_bytes};
    ranges[3] = (weft__gpu_range){x->scales, 0, (x->scale_bytes + 15) / 16 * 16};
    ranges[4] = weft__gpu_window(gpu, y, first * m + row, (n - 1) * m + count, &p.y_offset);
    status = dispatch_product(gpu, l, &p, ranges);
  }
  return status;
}

static weft_status product_fast(weft__gpu *gpu, const weft_tensor *a, const weft_tensor *w, const layout *l,
                                const weft_tensor *y) {
  int64_t n_rows = weft__n_rows(a), stride = a->rank == 2 ? a->strides[0] : weft__n_cols(a), m = w->shape[0];
  int64_t part;
  weft_status status = rows_of_window(gpu, weft__max_i64(stride, m), &part);
  if (part > 65535 * 64) part = 65535 * 64; /* a grid's rows */
  for (int64_t first = 0; first < n_rows && !status; first += part) {
    int64_t n = weft__min_i64(part, n_rows - first);
    activations x = {.quants = NULL};
    status = quantize(gpu, a, first, n, stride, l->n_blocks, &x);
    if (!status) status = multiply(gpu, w, l, &x, y, first, n);
    free_activations(gpu, &x);
  }
  return status;
}

/* ---- exact arithmetic ---- */

static weft_status dequantize(weft__gpu *gpu, const weft_tensor *w, const layout *l, int64_t first,
                              const weft_tensor *y) {
  weft__gpu_dequantize_params p = {
      .n_rows = (uint32_t)y->shape[0], .n = (uint32_t)y->shape[1], .n_blocks = (uint32_t)l->n_blocks};
  weft__gpu_range ranges[3];
  weight_windows(gpu, w, l, first, y->shape[0], ranges, &p.q_offset, &p.s_offset);
  ranges[2] = weft__gpu_window(gpu, y, 0, y->shape[0] * y->shape[1], &p.y_offset);
  const weft__wgsl_const constants[] = {{"BITS", (uint32_t)l->bits}, {NULL, 0}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_dequantize, constants, ranges, &p,
                            (uint64_t)((y->shape[0] * l->n_blocks * 8 + DEQUANTIZE_WORDS - 1) / DEQUANTIZE_WORDS));
}

static weft_status product_exact(weft__gpu *gpu, const weft_tensor *a, const weft_tensor *w, const layout *l,
                                 const weft_tensor *y) {
  int64_t m = w->shape[0], k = w->shape[1], part;
  weft_status status = rows_of_window(gpu, l->n_blocks * BLOCK, &part);
  for (int64_t first = 0; first < m && !status; first += part) {
    int64_t n = weft__min_i64(part, m - first);
    weft__storage storage = {.backend = &gpu->base, .n_bytes = (size_t)(n * k) * 4};
    weft_tensor rows = {.dtype = WEFT_F32, .rank = 2, .shape = {n, k}, .strides = {k, 1}, .storage = &storage};
    weft_tensor columns = *y;
    columns.shape[columns.rank - 1] = n;
    columns.offset += first;
    status = weft__gpu_alloc(&gpu->base, storage.n_bytes, &storage.buffer);
    if (status) break;
    status = dequantize(gpu, w, l, first, &rows);
    if (!status) status = weft__gpu_product(gpu, a, false, &rows, true, &columns);
    weft__gpu_free(&gpu->base, storage.buffer, storage.n_bytes);
  }
  return status;
}

weft_status weft__gpu_product_quantized(weft__gpu *gpu, const weft_tensor *a, const weft_tensor *w,
                                        const weft_tensor *y) {
  layout l = layout_of(w->dtype, w->shape[0], w->shape[1]);
  bool has_terms = l.n_blocks > 0; /* without, the f32 product writes the zeros */
  return gpu->is_exact || !has_terms ? product_exact(gpu, a, w, &l, y) : product_fast(gpu, a, w, &l, y);
}
