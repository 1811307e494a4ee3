/* op_top_k.c - top_k along any axis.
 *
 * Blocks of a line are sorted, and of each the first k are kept as pairs of key and place.  While more than one block is
 * left, those pairs are sorted in blocks again if that at least halves them, and merged by twos if k is too large for it. */
#include "gpu/gpu.h"

enum {
  BLOCK = 1024, /* elements that a workgroup sorts at most */
  PAIR_WORDS = 2,
  MERGED_PER_GROUP = 256, /* pairs */
  ENOUGH_PAIRS = 1 << 24, /* of the lines that are worked on together */
};

/* Some lines' runs of pairs in a buffer. */
typedef struct runs {
  weft__storage storage;
  int64_t n, length; /* of one line */
} runs;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static weft_status runs_open(weft__gpu *gpu, runs *r, int64_t n_lines, int64_t n, int64_t length) {
  *r = (runs){.n = n, .length = length};
  r->storage.n_bytes = (size_t)(n_lines * n * length) * PAIR_WORDS * sizeof(uint32_t);
  return weft__gpu_alloc(&gpu->base, r->storage.n_bytes, &r->storage.buffer);
}

static void runs_close(weft__gpu *gpu, runs *r) {
  if (r->storage.buffer) weft__gpu_free(&gpu->base, r->storage.buffer, r->storage.n_bytes);
  r->storage.buffer = NULL;
}

static weft__gpu_range range_of(const weft__gpu *gpu, const runs *r) {
  uint32_t offset;
  return weft__gpu_words(gpu, &r->storage, 0, (int64_t)(r->storage.n_bytes / sizeof(uint32_t)), &offset);
}

/* The smallest power of two that n elements fit, at least 2 and at most a block. */
static uint32_t block_for(int64_t n) {
  uint32_t size = 2;
  while (size < BLOCK && size < n) size *= 2;
  return size;
}

/* Sorts what `ranges[0]` holds of each line, p->n_in elements or pairs, in p->n_blocks blocks. */
static weft_status sort_blocks(weft__gpu *gpu, weft_dtype dtype, bool is_later, bool is_last,
                               const weft__gpu_top_k_params *p, const weft__gpu_range *ranges) {
  const weft__wgsl_const constants[] = {
      {"A_DTYPE", dtype}, {"IS_LATER", is_later}, {"IS_LAST", is_last}, {"SIZE", block_for(p->n_in)}, {NULL, 0}};
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_top_k_sort, constants, ranges, p, (uint64_t)p->n_lines * p->n_blocks);
}

/* One step from runs to fewer runs, or to places in y. */
static weft_status shorten(weft__gpu *gpu, weft__gpu_top_k_params p, int64_t k, runs *r, weft__gpu_range y) {
  bool is_sorted = 2 * r->length <= BLOCK; /* else merged */
  int64_t n_next = is_sorted ? ceil_div(r->n * r->length, BLOCK) : ceil_div(r->n, 2);
  bool is_last = n_next == 1;
  runs next = {.n = 1};
  p.run = (uint32_t)weft__min_i64(k, is_sorted ? BLOCK : 2 * r->length);
  p.n_in = (uint32_t)(is_sorted ? r->n * r->length : r->length);
  p.n_blocks = (uint32_t)(is_sorted ? n_next : r->n);
  weft_status status = is_last ? WEFT_OK : runs_open(gpu, &next, p.n_lines, n_next, p.run);
  if (status) return status;
  const weft__gpu_range ranges[] = {range_of(gpu, r), is_last ? y : range_of(gpu, &next)};
  if (is_sorted) {
    status = sort_blocks(gpu, WEFT_F32, true, is_last, &p, ranges);
  } else {
    uint64_t n = (uint64_t)p.n_lines * (uint64_t)n_next * 2 * p.n_in;
    status =
        weft__gpu_dispatch(gpu, WEFT__KERNEL_top_k_merge, (const weft__wgsl_const[]){{"IS_LAST", is_last}, {NULL, 0}},
                           ranges, &p, (n + MERGED_PER_GROUP - 1) / MERGED_PER_GROUP);
  }
  runs_close(gpu, r);
  *r = next;
  return status;
}

/* p->n_lines lines from p->first_line on. */
static weft_status choose(weft__gpu *gpu, weft__gpu_top_k_params p, int64_t k, weft_dtype dtype,
                          const weft__gpu_range *ranges) {
  runs r = {.n = ceil_div(p.n_in, BLOCK), .length = weft__min_i64(k, BLOCK)};
  p.run = (uint32_t)r.length;
  p.n_blocks = (uint32_t)r.n;
  if (r.n == 1) return sort_blocks(gpu, dtype, false, true, &p, ranges);
  weft_status status = runs_open(gpu, &r, p.n_lines, r.n, r.length);
  if (status) return status;
  status = sort_blocks(gpu, dtype, false, false, &p, (const weft__gpu_range[]){ranges[0], range_of(gpu, &r)});
  while (!status && r.n > 1) status = shorten(gpu, p, k, &r, ranges[1]);
  runs_close(gpu, &r);
  return status;
}

static weft_status choose_rows(weft__gpu *gpu, const weft__gpu_row_call *call, weft__gpu_rows_params *rows,
                               const weft__gpu_range *ranges) {
  int64_t n = weft__n_cols(call->a), k = weft__n_cols(call->y);
  int64_t n_pairs = ceil_div(n, BLOCK) * weft__min_i64(k, BLOCK), window = weft__gpu_window_elements(gpu) / PAIR_WORDS;
  if (n_pairs > window)
    return weft__error(WEFT_EUNSUPPORTED, "top_k: %lld of a line's %lld elements, beyond one binding of %s",
                       (long long)k, (long long)n, gpu->info.name);
  int64_t most = weft__max_i64(1, weft__min_i64(window, ENOUGH_PAIRS) / n_pairs);
  weft__gpu_top_k_params p = {.rank = rows->rank,
                              .n_in = rows->n,
                              .a_offset = rows->a_offset,
                              .a_step = rows->a_step,
                              .y_offset = rows->y_offset,
                              .y_step = (uint32_t)call->y->strides[call->y->rank - 1]};
  for (int i = 0; i < WEFT_MAX_RANK; i++) {
    p.shape[i] = rows->shape[i];
    p.a_strides[i] = rows->a_strides[i];
    p.y_strides[i] = rows->y_strides[i];
  }
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < rows->n_rows && !status; first += most) {
    p.first_line = (uint32_t)first;
    p.n_lines = (uint32_t)weft__min_i64(rows->n_rows - first, most);
    status = choose(gpu, p, k, call->a->dtype, (const weft__gpu_range[]){ranges[0], ranges[2]});
  }
  return status;
}

/* The view whose last axis is `axis`. */
static weft_tensor with_last(const weft_tensor *t, int axis) {
  weft_tensor view = *t;
  for (int i = axis; i < t->rank - 1; i++) {
    view.shape[i] = t->shape[i + 1];
    view.strides[i] = t->strides[i + 1];
  }
  view.shape[t->rank - 1] = t->shape[axis];
  view.strides[t->rank - 1] = t->strides[axis];
  return view;
}

weft_status weft__gpu_top_k(weft__backend *backend, const weft__op_call *call) {
  int axis = ((const weft_top_k_attrs *)call->attrs)->axis;
  weft_tensor a = with_last(call->in[0], axis), y = with_last(call->out, axis);
  const weft__gpu_row_call rows = {call->op, .a = &a, .y = &y, .run = choose_rows};
  return weft__gpu_each_rows(weft__gpu_of(backend), &rows);
}
