/* gemm.c - f32 matrix products in blocks, as in Goto and van de Geijn (2008), and matrix times vector.
 *
 * For each block of C (m x n) and each run of k terms: all of A's and B's share is packed, then C's tiles are computed.
 * A task of the second step takes some panels of A through l2_columns columns of B: the panel of A is in the first-level
 * cache, those columns of B in the second.
 *
 * An output is summed in an order that the shape alone decides, and tasks are cut by shape alone, so results do not
 * depend on the number of threads. */
#include "cpu/gemm.h"

#include <string.h> /* memset */

enum {
  PANELS_PER_PACK = 4,  /* of a task: some 10 microseconds */
  PACK_TERMS = 32,      /* rows copied before the next panel's turn: short enough to leave the pages where they are */
  LEAST_TASK = 1 << 18, /* multiply-accumulates worth handing out */
  LEAST_MATVEC_TASK = 1 << 14, /* the same where each element comes from memory */
  LEAST_SHARED = 1 << 22,      /* multiply-accumulates of a product worth more than one thread */
  SMALL_PRODUCT = 1 << 22,     /* several products up to this size are computed side by side, a thread each */
};

/* One operand's share of the block at hand. */
typedef struct side {
  const float *x; /* element (0,0) of the block */
  int64_t ld;
  bool is_along; /* element (i,p) is x[p * ld + i], else x[i * ld + p] */
  int64_t n;     /* rows of A or columns of B */
  int width;     /* of a panel */
  int64_t n_panels;
  float *packed;
} side;

/* One product on its way. */
typedef struct run {
  const weft__gemm_kernels *kernels;
  weft__pool *pool; /* or NULL: see run_tasks */
  const weft__gemm *g;
  side a, b;
  int64_t k, k0; /* terms of the block, and its first term */
  float *c;      /* the block's first element */
  int64_t panels_per_task, n_row_tasks;
} run;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Runs tasks 0 .. n-1: on the pool, or, as a pool's task must not run a loop, on this thread alone if it is NULL. */
static void run_tasks(weft__pool *pool, int64_t n_tasks, weft__task task, void *context) {
  if (pool)
    weft__pool_run(pool, (int)n_tasks, task, context);
  else
    for (int64_t i = 0; i < n_tasks; i++) task(context, (int)i, 0);
}

/* ---- packing ---- */

/* The smallest tile height that holds n rows, or the largest there is. */
static int tile_height(const weft__gemm_kernels *kernels, int64_t n) {
  const int *height = kernels->tile_heights;
  while (height[0] < n && height[1]) height++;
  return *height;
}

/* Height of the panel of A that begins with row i of the block. */
static int panel_height(const run *r, int64_t i) { return tile_height(r->kernels, r->a.n - i); }

static void pack_panels(const run *r, const side *s, int64_t first, int64_t end) {
  int64_t n_terms = s->is_along ? PACK_TERMS : r->k;
  for (int64_t p = 0; p < r->k; p += n_terms)
    for (int64_t panel = first; panel < end; panel++) {
      int64_t i = panel * s->width, n = weft__min_i64(s->n - i, s->width), terms = weft__min_i64(n_terms, r->k - p);
      int width = s == &r->a ? panel_height(r, i) : s->width;
      float *to = s->packed + i * r->k + p * width;
      if (s->is_along)
        r->kernels->pack_along(terms, (int)n, width, s->x + p * s->ld + i, s->ld, to);
      else
        r->kernels->pack_across(terms, (int)n, width, s->x + i * s->ld + p, s->ld, to);
    }
}

/* First the tasks that pack A, then those that pack B. */
static void pack_task(void *context, int task, int worker) {
  (void)worker;
  const run *r = context;
  int64_t n_a_tasks = ceil_div(r->a.n_panels, PANELS_PER_PACK);
  const side *s = task < n_a_tasks ? &r->a : &r->b;
  int64_t first = (task < n_a_tasks ? task : task - n_a_tasks) * PANELS_PER_PACK;
  pack_panels(r, s, first, weft__min_i64(first + PANELS_PER_PACK, s->n_panels));
}

/* ---- tiles ---- */

/* One tile at row i and column j of the block.  Kernels write whole tiles, so ragged edges take a detour. */
static void compute_tile(const run *r, int64_t i, int64_t j) {
  int height = panel_height(r, i);
  int n_rows = (int)weft__min_i64(height, r->a.n - i), n_columns = (int)weft__min_i64(r->b.width, r->b.n - j);
  const float *a = r->a.packed + i * r->k, *b = r->b.packed + j * r->k;
  float *c = r->c + i * r->g->ldc + j;
  bool accumulate = r->k0 > 0;
  if (n_rows == height && n_columns == r->b.width) {
    r->kernels->tile(height, n_columns, r->k, a, b, accumulate, c, r->g->ldc);
    return;
  }
  float whole[WEFT__GEMM_MAX_ROWS * WEFT__GEMM_MAX_COLUMNS];
  r->kernels->tile(height, n_columns, r->k, a, b, false, whole, r->b.width);
  for (int y = 0; y < n_rows; y++)
    for (int x = 0; x < n_columns; x++) {
      float *to = c + y * r->g->ldc + x, value = whole[y * r->b.width + x];
      *to = accumulate ? *to + value : value;
    }
}

/* Some panels of A with l2_columns columns of B.  Neighbouring tasks share these columns. */
static void tile_task(void *context, int task, int worker) {
  (void)worker;
  const run *r = context;
  int64_t l2_columns = r->kernels->blocks.l2_columns;
  int64_t first_column = task / r->n_row_tasks * l2_columns,
          end_column = weft__min_i64(first_column + l2_columns, r->b.n);
  int64_t first = task % r->n_row_tasks * r->panels_per_task,
          end = weft__min_i64(first + r->panels_per_task, r->a.n_panels);
  for (int64_t panel = first; panel < end; panel++)
    for (int64_t j = first_column; j < end_column; j += r->b.width) compute_tile(r, panel * r->a.width, j);
}

/* ---- blocks ---- */

/* Points a side at n rows or columns of its matrix from i on, terms from k0 on. */
static void side_at(side *s, const float *x, int64_t i, int64_t n, int64_t k0) {
  s->x = s->is_along ? x + k0 * s->ld + i : x + i * s->ld + k0;
  s->n = n;
  s->n_panels = ceil_div(n, s->width);
}

/* All terms of one block of C. */
static void run_block(run *r, int64_t m0, int64_t n0) {
  const weft__gemm *g = r->g;
  const weft__gemm_blocks *blocks = &r->kernels->blocks;
  int64_t m = weft__min_i64(blocks->m, g->m - m0), n = weft__min_i64(blocks->n, g->n - n0);
  r->c = g->c + m0 * g->ldc + n0;
  for (r->k0 = 0; r->k0 < g->k; r->k0 += r->k) {
    r->k = weft__min_i64(blocks->k, g->k - r->k0);
    side_at(&r->a, g->a, m0, m, r->k0);
    side_at(&r->b, g->b, n0, n, r->k0);
    run_tasks(r->pool, ceil_div(r->a.n_panels, PANELS_PER_PACK) + ceil_div(r->b.n_panels, PANELS_PER_PACK), pack_task,
              r);
    int64_t panel_work = blocks->rows * r->k * weft__min_i64(n, blocks->l2_columns);
    r->panels_per_task = ceil_div(LEAST_TASK, panel_work);
    r->n_row_tasks = ceil_div(r->a.n_panels, r->panels_per_task);
    run_tasks(r->pool, r->n_row_tasks * ceil_div(n, blocks->l2_columns), tile_task, r);
  }
}

/* ---- matrix times vector ---- */

/* A product with one row or one column: y_i = sum over p of matrix(i,p) x_p. */
typedef struct matvec {
  const weft__gemm_kernels *kernels;
  const float *matrix;
  int64_t ld, m, k;
  bool is_along; /* (i,p) is matrix[p * ld + i], else matrix[i * ld + p] */
  const float *x;
  int64_t x_stride;
  float *y;
  int64_t outputs_per_task;
} matvec;

/* Whether a product is one, with a result of neighbouring elements. */
static bool is_matvec(const weft__gemm *g) { return g->m == 1 || (g->n == 1 && g->ldc == 1); }

/* With one row, the matrix is B, transposed. */
static matvec as_matvec(const weft__gemm *g) {
  if (g->m == 1)
    return (matvec){.matrix = g->b,
                    .ld = g->ldb,
                    .m = g->n,
                    .k = g->k,
                    .is_along = !g->transpose_b,
                    .x = g->a,
                    .x_stride = g->transpose_a ? g->lda : 1,
                    .y = g->c};
  return (matvec){.matrix = g->a,
                  .ld = g->lda,
                  .m = g->m,
                  .k = g->k,
                  .is_along = g->transpose_a,
                  .x = g->b,
                  .x_stride = g->transpose_b ? 1 : g->ldb,
                  .y = g->c};
}

static void matvec_task(void *context, int task, int worker) {
  (void)worker;
  const matvec *v = context;
  int64_t first = task * v->outputs_per_task, n = weft__min_i64(v->outputs_per_task, v->m - first);
  if (v->is_along)
    v->kernels->matvec_columns(n, v->k, v->matrix + first, v->ld, v->x, v->y + first);
  else
    v->kernels->matvec_rows(n, v->k, v->matrix + first * v->ld, v->ld, v->x, v->y + first);
}

/* The vector is gathered in `scratch` unless its elements are neighbours. */
static void run_matvec(const weft__gemm_kernels *kernels, weft__pool *pool, const weft__gemm *g, float *scratch) {
  matvec v = as_matvec(g);
  v.kernels = kernels;
  v.outputs_per_task = v.is_along ? WEFT__GEMV_COLUMNS : ceil_div(LEAST_MATVEC_TASK, v.k);
  if (v.x_stride != 1) {
    for (int64_t p = 0; p < v.k; p++) scratch[p] = v.x[p * v.x_stride];
    v.x = scratch;
  }
  run_tasks(pool, ceil_div(v.m, v.outputs_per_task), matvec_task, &v);
}

/* ---- products ---- */

/* Floats of scratch that one product needs: a packed block, or a vector of k. */
static weft_status scratch_floats(const weft__gemm_blocks *blocks, const weft__gemm *g, int64_t *n_floats) {
  int64_t m = ceil_div(weft__min_i64(g->m, blocks->m), blocks->rows) * blocks->rows;
  int64_t n = ceil_div(weft__min_i64(g->n, blocks->n), blocks->columns) * blocks->columns;
  if (is_matvec(g)) m = 1, n = 0;
  int64_t k = is_matvec(g) ? g->k : weft__min_i64(g->k, blocks->k);
  if (!weft__mul_i64(m + n, k, n_floats) || *n_floats > INT64_MAX / 8)
    return weft__error(WEFT_ENOMEM, "matmul: its working memory exceeds the address space");
  return WEFT_OK;
}

static void run_blocks(const weft__gemm_kernels *kernels, weft__pool *pool, const weft__gemm *g, float *scratch) {
  const weft__gemm_blocks *blocks = &kernels->blocks;
  run r = {.kernels = kernels, .pool = pool, .g = g};
  int64_t n_rows = ceil_div(weft__min_i64(g->m, blocks->m), blocks->rows) * blocks->rows;
  r.a = (side){.ld = g->lda, .is_along = g->transpose_a, .width = blocks->rows, .packed = scratch};
  r.b = (side){.ld = g->ldb, .is_along = !g->transpose_b, .width = blocks->columns};
  r.b.packed = scratch + n_rows * weft__min_i64(g->k, blocks->k);
  for (int64_t m0 = 0; m0 < g->m; m0 += blocks->m)
    for (int64_t n0 = 0; n0 < g->n; n0 += blocks->n) run_block(&r, m0, n0);
}

static void run_product(const weft__gemm_kernels *kernels, weft__pool *pool, const weft__gemm *g, float *scratch) {
  if (is_matvec(g))
    run_matvec(kernels, pool, g, scratch);
  else
    run_blocks(kernels, pool, g, scratch);
}

/* Several products, a task each. */
typedef struct batch {
  const weft__gemm_kernels *kernels;
  const weft__gemm *products;
  float *scratch; /* a part for each thread */
  int64_t part_floats;
} batch;

static void product_task(void *context, int task, int worker) {
  const batch *b = context;
  run_product(b->kernels, NULL, &b->products[task], b->scratch + worker * b->part_floats);
}

/* Without terms, a sum is 0. */
static void clear(const weft__gemm *g) {
  for (int64_t i = 0; i < g->m; i++) memset(g->c + i * g->ldc, 0, (size_t)g->n * sizeof *g->c);
}

weft_status weft__gemm_run(weft__cpu *cpu, int64_t n_products, const weft__gemm *products) {
  const weft__gemm *g = products;
  if (n_products == 0 || g->m == 0 || g->n == 0) return WEFT_OK;
  if (g->k == 0) {
    for (int64_t i = 0; i < n_products; i++) clear(&products[i]);
    return WEFT_OK;
  }
  double n_macs = (double)g->m * (double)g->n * (double)g->k;
  bool side_by_side = n_products > 1 && n_macs <= SMALL_PRODUCT;
  batch b = {.kernels = &cpu->kernels->gemm, .products = products};
  weft_status status = scratch_floats(&b.kernels->blocks, g, &b.part_floats);
  if (status) return status;
  b.part_floats = (b.part_floats + 15) / 16 * 16; /* every part on a cache line */
  size_t n_bytes;
  int n_parts = side_by_side ? weft__pool_n_threads(cpu->pool) : 1;
  if (!weft__mul_size((size_t)b.part_floats * sizeof *b.scratch, (size_t)n_parts, &n_bytes))
    return weft__error(WEFT_ENOMEM, "matmul: its working memory exceeds the address space");
  b.scratch = weft__buffers_get(cpu->buffers, n_bytes);
  if (!b.scratch) return WEFT_ENOMEM;
  if (side_by_side)
    weft__pool_run(cpu->pool, (int)n_products, product_task, &b);
  else
    for (int64_t i = 0; i < n_products; i++)
      run_product(b.kernels, n_macs >= LEAST_SHARED ? cpu->pool : NULL, &products[i], b.scratch);
  weft__buffers_put(cpu->buffers, b.scratch, n_bytes);
  return WEFT_OK;
}

/* ---- operands that the caller keeps ---- */

/* A panel of `width`, of which n columns are there. */
static void pack_panel(const weft__gemm_kernels *kernels, int64_t k, int64_t n, int width, const float *x, int64_t ld,
                       bool is_along, float *panel) {
  (is_along ? kernels->pack_along : kernels->pack_across)(k, (int)n, width, x, ld, panel);
}

void weft__gemm_pack_left(const weft__gemm_kernels *kernels, int64_t m, int64_t k, const float *x, int64_t ld,
                          bool is_along, float *packed) {
  const int most = kernels->blocks.rows;
  for (int64_t i = 0; i < m; i += most)
    pack_panel(kernels, k, weft__min_i64(m - i, most), tile_height(kernels, m - i), x + i * (is_along ? 1 : ld), ld,
               is_along, packed + i * k);
}

void weft__gemm_pack_right(const weft__gemm_kernels *kernels, int64_t k, int64_t n, const float *x, int64_t ld,
                           bool is_along, float *packed) {
  const int width = kernels->blocks.columns;
  for (int64_t j = 0; j < n; j += width)
    pack_panel(kernels, k, weft__min_i64(n - j, width), width, x + j * (is_along ? 1 : ld), ld, is_along,
               packed + j * k);
}

void weft__gemm_tiles(const weft__gemm_kernels *kernels, int64_t m, int64_t n, int64_t k, const float *left,
                      const float *right, bool accumulate, float *c, int64_t ldc) {
  for (int64_t i = 0; i < m; i += kernels->blocks.rows)
    for (int64_t j = 0; j < n; j += kernels->blocks.columns)
      kernels->tile(tile_height(kernels, m - i), (int)weft__min_i64(n - j, kernels->blocks.columns), k, left + i * k,
                    right + j * k, accumulate, c + i * ldc + j, ldc);
}
