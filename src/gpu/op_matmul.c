/* op_matmul.c - products of real matrices: which kernel, which tile, how many slices of k; batches; operands larger than
 * one binding.
 *
 * A product is cut in three steps: batches that are not one run of equal strides become products of their own; what does
 * not fit a binding is cut along m, n or k (the parts of k accumulate); the rest is one dispatch, or two when k is cut
 * into slices to fill the device.  Kernels read f32; halves are made f32 first, but the rows that one vector meets. */
#include "gpu/gpu.h"

/* One matrix of an operand: element (i,j) at first + i*ld + j, or first + j*ld + i if it is stored transposed. */
typedef struct matrix {
  const weft_tensor *t;
  int64_t first, ld;
  bool is_transposed;
  int64_t batch; /* elements from one batch to the next */
} matrix;

typedef struct product {
  weft__gpu *gpu;
  int64_t m, n, k, n_batch;
  matrix a, b, c;
  bool accumulate;
} product;

/* ---- one dispatch ---- */

/* A tile of gemm.wgsl; workgroups of nx * ny * slices. */
typedef struct tile_shape {
  uint32_t bm, bn, bk, nx, ny, slices;
} tile_shape;

/* Largest first. */
static const tile_shape TILES[] = {
    {128, 256, 8, 16, 16, 1},
    {128, 128, 16, 16, 16, 1},
    {64, 64, 8, 8, 8, 2},
    {32, 64, 8, 8, 8, 4},
};

enum {
  FULL_DEVICE = 128, /* workgroups below which a large device has idle cores */
  EDGE_TILE = 64,
  MAX_EXTENT =
      65535 * 16 / 256 * 256, /* m and n of a dispatch: at most 65535 of any tiles, whole ones of the largest */
};

static bool is_aligned(const matrix *x) {
  return x->first % 4 == 0 && x->t->offset % 4 == 0 && x->ld % 4 == 0 && x->batch % 4 == 0;
}

static int64_t n_tiles(const product *p, int64_t bm, int64_t bn) {
  return (p->m + bm - 1) / bm * ((p->n + bn - 1) / bn) * p->n_batch;
}

static bool fits_tile(const product *p, const tile_shape *t) {
  return p->m % t->bm == 0 && p->n % t->bn == 0 && p->k % (t->bk * t->slices) == 0 && is_aligned(&p->a) &&
         is_aligned(&p->b) && is_aligned(&p->c) && t->nx * t->ny * t->slices <= p->gpu->info.limits.max_invocations &&
         (t->bm / 4 + t->bn / 4 + 2) * t->bk * t->slices * 16 <= p->gpu->info.limits.max_workgroup_bytes;
}

/* The largest tile that fits the extents and fills the device, else the smallest that fits; NULL: the edge kernel. */
static const tile_shape *choose_tile(const product *p) {
  const tile_shape *best = NULL;
  for (size_t i = 0; i < WEFT_COUNT(TILES); i++) {
    if (!fits_tile(p, &TILES[i])) continue;
    best = &TILES[i];
    if (n_tiles(p, best->bm, best->bn) >= FULL_DEVICE) break;
  }
  return best;
}

/* Elements of a matrix' rows from its first to its last, all batches; `rows` and `columns` as stored. */
static int64_t extent(const matrix *x, int64_t rows, int64_t columns, int64_t n_batch) {
  return (n_batch - 1) * x->batch + (rows - 1) * x->ld + columns;
}

static int64_t extent_a(const product *p) {
  return p->a.is_transposed ? extent(&p->a, p->k, p->m, p->n_batch) : extent(&p->a, p->m, p->k, p->n_batch);
}
static int64_t extent_b(const product *p) {
  return p->b.is_transposed ? extent(&p->b, p->n, p->k, p->n_batch) : extent(&p->b, p->k, p->n, p->n_batch);
}
static int64_t extent_c(const product *p) { return extent(&p->c, p->m, p->n, p->n_batch); }

static weft__gpu_gemm_params gemm_params(const product *p) {
  return (weft__gpu_gemm_params){
      .m = (uint32_t)p->m,
      .n = (uint32_t)p->n,
      .k = (uint32_t)p->k,
      .lda = (uint32_t)p->a.ld,
      .ldb = (uint32_t)p->b.ld,
      .ldc = (uint32_t)p->c.ld,
      .a_batch = (uint32_t)p->a.batch,
      .b_batch = (uint32_t)p->b.batch,
      .c_batch = (uint32_t)p->c.batch,
      .n_batch = (uint32_t)p->n_batch,
      .k_slice = (uint32_t)p->k,
  };
}

/* Products of tiles, with `n_slices` planes at `to` if k is cut. */
static weft_status dispatch_tiles(const product *p, const tile_shape *t, weft__gpu_gemm_params *params,
                                  const weft__gpu_range *ranges, int64_t n_slices, bool accumulate) {
  const weft__wgsl_const constants[] = {{"BM", t->bm},
                                        {"BN", t->bn},
                                        {"BK", t->bk},
                                        {"NX", t->nx},
                                        {"NY", t->ny},
                                        {"SLICES", t->slices},
                                        {"TRANS_A", p->a.is_transposed},
                                        {"TRANS_B", p->b.is_transposed},
                                        {"ACCUMULATE", accumulate},
                                        {NULL, 0}};
  const uint32_t groups[] = {(uint32_t)(p->n / t->bn), (uint32_t)(p->m / t->bm), (uint32_t)(p->n_batch * n_slices)};
  return weft__gpu_dispatch3(p->gpu, WEFT__KERNEL_gemm, constants, ranges, params, groups);
}

static weft_status dispatch_edge(const product *p, weft__gpu_gemm_params *params, const weft__gpu_range *ranges,
                                 int64_t n_slices, bool accumulate) {
  const weft__wgsl_const constants[] = {
      {"TRANS_A", p->a.is_transposed}, {"TRANS_B", p->b.is_transposed}, {"ACCUMULATE", accumulate}, {NULL, 0}};
  const uint32_t groups[] = {(uint32_t)((p->n + EDGE_TILE - 1) / EDGE_TILE),
                             (uint32_t)((p->m + EDGE_TILE - 1) / EDGE_TILE), (uint32_t)(p->n_batch * n_slices)};
  return weft__gpu_dispatch3(p->gpu, WEFT__KERNEL_gemm_edge, constants, ranges, params, groups);
}

/* The textbook kernels, for comparison: tiles of gemm_tile x gemm_tile, 1 meaning none. */
static bool is_study(const product *p) {
  return p->gpu->gemm_tile && !p->a.is_transposed && !p->b.is_transposed && !p->accumulate;
}

static weft_status dispatch_study(const product *p, const weft__gpu_gemm_params *params,
                                  const weft__gpu_range *ranges) {
  uint32_t tile = p->gpu->gemm_tile == 1 ? 16 : (uint32_t)p->gpu->gemm_tile;
  const weft__wgsl_const constants[] = {
      {"TILE", tile}, {"OUTPUTS", tile == 32 ? 4 : 1}, {"STAGED", p->gpu->gemm_tile != 1}, {NULL, 0}};
  const uint32_t groups[] = {(uint32_t)((p->n + tile - 1) / tile), (uint32_t)((p->m + tile - 1) / tile),
                             (uint32_t)p->n_batch};
  return weft__gpu_dispatch3(p->gpu, WEFT__KERNEL_gemm_study, constants, ranges, params, groups);
}

/* Into how many slices to cut k: enough workgroups for the device, slices not below 256 columns of k. */
static int64_t choose_slices(const product *p, const tile_shape *t) {
  int64_t tiles = t ? n_tiles(p, t->bm, t->bn) : n_tiles(p, EDGE_TILE, EDGE_TILE);
  int64_t slices = weft__min_i64(FULL_DEVICE / weft__max_i64(tiles, 1), p->k / 256);
  bool is_dense = p->n_batch == 1 && p->c.ld == p->n && p->n % 4 == 0 && is_aligned(&p->c);
  return slices > 1 && is_dense ? weft__min_i64(slices, 32) : 1;
}

/* k cut into slices: planes of their own, then their sum. */
static weft_status run_sliced(const product *p, const tile_shape *t, weft__gpu_gemm_params *params,
                              weft__gpu_range *ranges, int64_t n_slices) {
  weft__gpu *gpu = p->gpu;
  int64_t step = t ? t->bk * t->slices : 16, plane = p->m * p->n;
  params->k_slice = (uint32_t)((p->k + n_slices * step - 1) / (n_slices * step) * step);
  n_slices = (p->k + params->k_slice - 1) / params->k_slice;
  params->c_slice = (uint32_t)plane;
  uint32_t c_offset = params->c_offset;
  weft__gpu_range target = ranges[2];
  size_t n_bytes = (size_t)(n_slices * plane) * 4;
  void *planes;
  weft_status status = weft__gpu_alloc(&gpu->base, n_bytes, &planes);
  if (status) return status;
  ranges[2] = (weft__gpu_range){planes, 0, n_bytes};
  params->c_offset = 0;
  status =
      t ? dispatch_tiles(p, t, params, ranges, n_slices, false) : dispatch_edge(p, params, ranges, n_slices, false);
  const weft__wgsl_const constants[] = {{"ACCUMULATE", p->accumulate}, {NULL, 0}};
  const weft__gpu_sum_slices_params sum = {(uint32_t)plane, (uint32_t)plane, (uint32_t)n_slices, c_offset};
  const weft__gpu_range sum_ranges[] = {ranges[2], target};
  if (!status)
    status = weft__gpu_dispatch(gpu, WEFT__KERNEL_sum_slices, constants, sum_ranges, &sum,
                                (uint64_t)((plane / 4 + 255) / 256));
  weft__gpu_free(&gpu->base, planes, n_bytes);
  return status;
}

static bool is_half(const weft_tensor *t) { return weft__dtype_get(t->dtype)->block_bytes == 2; }

/* A matrix with one vector: rows of `a` (k long, stored as rows) with x; y's elements c_stride apart. */
static weft_status run_matvec(const product *p, const matrix *rows, int64_t n_rows, const matrix *x, int64_t c_stride) {
  weft__gpu_matvec_params params = {
      .m = (uint32_t)n_rows, .k = (uint32_t)p->k, .lda = (uint32_t)rows->ld, .c_stride = (uint32_t)c_stride};
  weft__gpu_range ranges[3];
  ranges[0] = weft__gpu_window(p->gpu, rows->t, rows->first, extent(rows, n_rows, p->k, 1), &params.a_offset);
  ranges[1] = weft__gpu_window(p->gpu, x->t, x->first, p->k, &params.b_offset);
  ranges[2] = weft__gpu_window(p->gpu, p->c.t, p->c.first, (n_rows - 1) * c_stride + 1, &params.c_offset);
  const weft__wgsl_const constants[] = {{"A_DTYPE", rows->t->dtype}, {"X_QUADS", is_half(rows->t) ? 2 : 1}, {NULL, 0}};
  return weft__gpu_dispatch(p->gpu, WEFT__KERNEL_matvec, constants, ranges, &params, (uint64_t)n_rows);
}

static bool can_matvec(const product *p, const matrix *rows, const matrix *x, bool x_is_contiguous) {
  return p->n_batch == 1 && !p->accumulate && p->k % 4 == 0 && is_aligned(rows) && x->first % 4 == 0 &&
         x->t->offset % 4 == 0 && x_is_contiguous && x->t->dtype == WEFT_F32;
}

/* What fits the bindings. */
static weft_status run_part(const product *p) {
  bool is_plain = !is_study(p);
  if (is_plain && p->n == 1 && !p->a.is_transposed && can_matvec(p, &p->a, &p->b, p->b.is_transposed || p->b.ld == 1))
    return run_matvec(p, &p->a, p->m, &p->b, p->c.ld);
  if (is_plain && p->m == 1 && p->b.is_transposed && can_matvec(p, &p->b, &p->a, !p->a.is_transposed || p->a.ld == 1))
    return run_matvec(p, &p->b, p->n, &p->a, 1);
  const tile_shape *t = choose_tile(p);
  weft__gpu_gemm_params params = gemm_params(p);
  weft__gpu_range ranges[3];
  ranges[0] = weft__gpu_window(p->gpu, p->a.t, p->a.first, extent_a(p), &params.a_offset);
  ranges[1] = weft__gpu_window(p->gpu, p->b.t, p->b.first, extent_b(p), &params.b_offset);
  ranges[2] = weft__gpu_window(p->gpu, p->c.t, p->c.first, extent_c(p), &params.c_offset);
  if (!is_plain) return dispatch_study(p, &params, ranges);
  int64_t n_slices = choose_slices(p, t);
  if (n_slices > 1) return run_sliced(p, t, &params, ranges, n_slices);
  return t ? dispatch_tiles(p, t, &params, ranges, 1, p->accumulate)
           : dispatch_edge(p, &params, ranges, 1, p->accumulate);
}

/* ---- cutting ---- */

/* Rows of `x` that fit a window of `limit` elements, at most `rows`, in multiples of 128 if that leaves any. */
static int64_t rows_that_fit(const matrix *x, int64_t rows, int64_t limit) {
  int64_t fit = limit / weft__max_i64(x->ld, 1);
  if (fit >= rows) return rows;
  return fit > 128 ? fit / 128 * 128 : fit;
}

/* One matrix product, cut where an operand is larger than a binding or has more tiles than a grid. */
static weft_status run_matrix(product p) {
  int64_t limit = weft__gpu_window_elements(p.gpu), m = p.m, n = p.n, k = p.k;
  int64_t part_m = weft__min_i64(rows_that_fit(&p.c, m, limit), MAX_EXTENT), part_n = weft__min_i64(n, MAX_EXTENT);
  int64_t part_k = k;
  if (p.a.is_transposed)
    part_k = weft__min_i64(part_k, rows_that_fit(&p.a, k, limit));
  else
    part_m = weft__min_i64(part_m, rows_that_fit(&p.a, m, limit));
  if (p.b.is_transposed)
    part_n = weft__min_i64(part_n, rows_that_fit(&p.b, n, limit));
  else
    part_k = weft__min_i64(part_k, rows_that_fit(&p.b, k, limit));
  if (k == 0) part_k = 1; /* one part of no columns: it writes the zeros */
  if (part_m < 1 || part_n < 1 || part_k < 1)
    return weft__error(WEFT_EUNSUPPORTED, "%s: matmul of rows longer than one binding (%lld elements)",
                       p.gpu->info.name, (long long)limit);
  const product whole = p;
  weft_status status = WEFT_OK;
  for (int64_t i = 0; i < m && !status; i += part_m)
    for (int64_t j = 0; j < n && !status; j += part_n)
      for (int64_t l = 0; (l < k || l == 0) && !status; l += part_k) {
        p.m = weft__min_i64(part_m, m - i);
        p.n = weft__min_i64(part_n, n - j);
        p.k = weft__min_i64(part_k, k - l);
        p.a.first = whole.a.first + (whole.a.is_transposed ? l * p.a.ld + i : i * p.a.ld + l);
        p.b.first = whole.b.first + (whole.b.is_transposed ? j * p.b.ld + l : l * p.b.ld + j);
        p.c.first = whole.c.first + i * p.c.ld + j;
        p.accumulate = l > 0;
        status = run_part(&p);
      }
  return status;
}

/* ---- operands and batches ---- */

/* How the last two axes of a tensor [..., rows, columns] lie in memory; false if neither is contiguous. */
static bool describe(const weft_tensor *t, bool is_transposed, matrix *x) {
  int64_t rows = t->shape[t->rank - 2], columns = t->shape[t->rank - 1];
  int64_t row_stride = t->strides[t->rank - 2], column_stride = t->strides[t->rank - 1];
  x->t = t;
  x->first = 0;
  x->batch = 0;
  if (column_stride == 1 || columns == 1) {
    x->ld = rows == 1 ? weft__max_i64(columns, 1) : row_stride;
    x->is_transposed = is_transposed;
    return columns == 1 ? row_stride >= 1 && (x->ld = weft__max_i64(x->ld, 1)) : x->ld >= columns;
  }
  if (row_stride == 1 || rows == 1) {
    x->ld = columns == 1 ? weft__max_i64(rows, 1) : column_stride;
    x->is_transposed = !is_transposed;
    return x->ld >= rows;
  }
  return false;
}

typedef struct batches {
  int rank;                                                                           /* of the batch axes */
  int64_t shape[WEFT_MAX_RANK], a[WEFT_MAX_RANK], b[WEFT_MAX_RANK], c[WEFT_MAX_RANK]; /* extents and strides */
} batches;

static int64_t batch_stride(const weft_tensor *t, int rank, int axis) {
  int own = axis - (rank - (t->rank - 2));
  return own < 0 || t->shape[own] == 1 ? 0 : t->strides[own];
}

/* The batch axes, merged where the strides allow, outermost first. */
static batches describe_batches(const weft_tensor *a, const weft_tensor *b, const weft_tensor *c) {
  batches s = {0};
  int rank = c->rank - 2;
  for (int i = 0; i < rank; i++) {
    int64_t extent_i = c->shape[i], sa = batch_stride(a, rank, i), sb = batch_stride(b, rank, i), sc = c->strides[i];
    if (extent_i == 1) continue;
    int last = s.rank - 1;
    if (s.rank && s.a[last] == sa * extent_i && s.b[last] == sb * extent_i && s.c[last] == sc * extent_i) {
      s.shape[last] *= extent_i;
      s.a[last] = sa, s.b[last] = sb, s.c[last] = sc;
    } else {
      s.shape[s.rank] = extent_i;
      s.a[s.rank] = sa, s.b[s.rank] = sb, s.c[s.rank] = sc;
      s.rank++;
    }
  }
  return s;
}

/* Runs the products of batch axes `axis` and inwards. */
static weft_status run_batches(product p, const batches *s, int axis) {
  if (axis == s->rank) return run_matrix(p);
  if (axis == s->rank - 1) {
    /* A batch that shares b and lies row under row is one tall matrix. */
    if (s->b[axis] == 0 && !p.a.is_transposed && s->a[axis] == p.m * p.a.ld && s->c[axis] == p.m * p.c.ld) {
      p.m *= s->shape[axis];
      return run_matrix(p);
    }
    int64_t limit = weft__gpu_window_elements(p.gpu);
    product all = p;
    all.n_batch = s->shape[axis];
    all.a.batch = s->a[axis], all.b.batch = s->b[axis], all.c.batch = s->c[axis];
    bool fits_grid = all.n_batch <= 4096 && p.m <= MAX_EXTENT && p.n <= MAX_EXTENT;
    if (fits_grid && extent_a(&all) <= limit && extent_b(&all) <= limit && extent_c(&all) <= limit)
      return run_part(&all);
  }
  weft_status status = WEFT_OK;
  for (int64_t i = 0; i < s->shape[axis] && !status; i++) {
    product next = p;
    next.a.first += i * s->a[axis];
    next.b.first += i * s->b[axis];
    next.c.first += i * s->c[axis];
    status = run_batches(next, s, axis + 1);
  }
  return status;
}

weft_status weft__gpu_make_f32(weft__gpu *gpu, const weft_tensor *from, weft_tensor *to, weft__storage *storage) {
  *to = *from;
  to->dtype = WEFT_F32;
  weft__shape_strides(to->rank, to->shape, to->strides);
  to->offset = 0;
  to->storage = storage;
  *storage = (weft__storage){.backend = &gpu->base, .n_bytes = weft_tensor_bytes(to)};
  weft_status status = weft__gpu_alloc(&gpu->base, storage->n_bytes, &storage->buffer);
  return status ? status : weft__gpu_copy_strided(gpu, from, to);
}

/* Are these [N,K] halves of which whole quads meet one vector? */
static bool are_half_rows(const weft__gpu *gpu, const weft_tensor *t) {
  return is_half(t) && t->rank == 2 && t->strides[1] == 1 && t->shape[1] % 8 == 0 && t->strides[0] % 8 == 0 &&
         t->strides[0] >= t->shape[1] && t->offset % 8 == 0 && t->shape[1] <= weft__gpu_window_elements(gpu);
}

static bool is_vector_of_quads(const weft_tensor *t) {
  return t->dtype == WEFT_F32 && weft__is_contiguous(t) && t->offset % 4 == 0;
}

/* An operand as a kernel reads it, and its copy if it had to be made so. */
typedef struct operand {
  const weft_tensor *t;
  weft_tensor copy;
  weft__storage storage;
} operand;

static weft_status operand_open(weft__gpu *gpu, operand *o, bool is_transposed, bool is_taken, matrix *x) {
  if (is_taken && describe(o->t, is_transposed, x)) return WEFT_OK;
  weft_status status = weft__gpu_make_f32(gpu, o->t, &o->copy, &o->storage);
  o->t = &o->copy;
  describe(o->t, is_transposed, x);
  return status;
}

static void operand_close(weft__gpu *gpu, operand *o) {
  if (o->storage.buffer) weft__gpu_free(&gpu->base, o->storage.buffer, o->storage.n_bytes);
}

weft_status weft__gpu_product(weft__gpu *gpu, const weft_tensor *a, bool transpose_a, const weft_tensor *b,
                              bool transpose_b, const weft_tensor *c) {
  operand left = {.t = a}, right = {.t = b};
  product p = {.gpu = gpu,
               .m = c->shape[c->rank - 2],
               .n = c->shape[c->rank - 1],
               .k = a->shape[transpose_a ? a->rank - 2 : a->rank - 1],
               .n_batch = 1};
  bool is_plain = c->rank == 2 && p.k > 0 && !gpu->gemm_tile;
  bool a_is_rows = is_plain && p.n == 1 && !transpose_a && are_half_rows(gpu, a);
  bool b_is_rows = is_plain && p.m == 1 && transpose_b && are_half_rows(gpu, b) && !a_is_rows;
  bool takes_a = a_is_rows || (b_is_rows ? is_vector_of_quads(a) : a->dtype == WEFT_F32);
  bool takes_b = b_is_rows || (a_is_rows ? is_vector_of_quads(b) : b->dtype == WEFT_F32);
  weft_status status = operand_open(gpu, &left, transpose_a, takes_a, &p.a);
  if (!status) status = operand_open(gpu, &right, transpose_b, takes_b, &p.b);
  describe(c, false, &p.c);
  if (!status) {
    batches s = describe_batches(left.t, right.t, c);
    status = run_batches(p, &s, 0);
  }
  operand_close(gpu, &left);
  operand_close(gpu, &right);
  return status;
}

/* An axis of one element before axis `at`. */
static void insert_axis(weft_tensor *t, int at) {
  for (int i = t->rank; i > at; i--) t->shape[i] = t->shape[i - 1], t->strides[i] = t->strides[i - 1];
  t->shape[at] = 1;
  t->strides[at] = 1;
  t->rank++;
}

weft_status weft__gpu_matmul(weft__backend *backend, const weft__op_call *call) {
  const weft_matmul_attrs *attrs = call->attrs;
  if (weft__dtype_get(call->in[1]->dtype)->is_quantised) return weft__gpu_matmul_nt(backend, call); /* the same then */
  if (weft_tensor_numel(call->out) == 0) return WEFT_OK;
  /* A vector is a matrix of one row on the left, of one column on the right; the result lacks that axis. */
  weft_tensor a = *call->in[0], b = *call->in[1], c = *call->out;
  if (a.rank == 1) insert_axis(&a, attrs && attrs->transpose_a ? 1 : 0);
  if (b.rank == 1) insert_axis(&b, attrs && attrs->transpose_b ? 0 : 1);
  if (call->in[0]->rank == 1) insert_axis(&c, c.rank - (call->in[1]->rank > 1));
  if (call->in[1]->rank == 1) insert_axis(&c, c.rank);
  return weft__gpu_product(weft__gpu_of(backend), &a, attrs && attrs->transpose_a, &b, attrs && attrs->transpose_b, &c);
}

weft_status weft__gpu_matmul_nt(weft__backend *backend, const weft__op_call *call) {
  if (weft_tensor_numel(call->out) == 0) return WEFT_OK;
  const weft_tensor *b = call->in[1];
  weft_tensor a = *call->in[0], c = *call->out;
  if (a.rank == 1) insert_axis(&a, 0), insert_axis(&c, 0);
  if (weft__dtype_get(b->dtype)->is_quantised) return weft__gpu_product_quantized(weft__gpu_of(backend), &a, b, &c);
  return weft__gpu_product(weft__gpu_of(backend), &a, false, b, true, &c);
}
