/* op_matmul.c - products of activations [N,K] with weights [M,K]: matmul_nt and its composites.
 *
 * Three steps: the activations go into tiles (quantised once, for all the weights that they meet); weights that are not
 * packed yet are packed for the occasion; then the grid of tiles x panels is computed, a task being some of both.  Each
 * output is computed whole by one kernel call, so results do not depend on how the grid is cut. */
#include "cpu/cpu.h"

#include <string.h> /* memset */

enum {
  MAX_WEIGHTS = 3,
  MAX_TILE_ROWS = 16,
  TILES_PER_TASK = 8,
  MAX_EXPANDED = 2, /* panels that a task multiplies by at a time */
};

/* One weight, and where its product goes. */
typedef struct operand {
  const weft_tensor *weight;
  const char *panels;
  void *own_panels; /* packed for this product alone, or NULL */
  size_t own_bytes, panel_bytes;
  int64_t n_panels, n_blocks; /* n_blocks: of 32 columns, in a panel */
  bool is_q8;                 /* meets quantised activations */
  int64_t column;             /* of the output, where this weight's product begins */
} operand;

/* Tiles of all activations in one form. */
typedef struct tiles {
  char *buffer;
  size_t n_bytes, tile_bytes;
} tiles;

typedef struct product {
  weft__cpu *cpu;
  const weft_tensor *x; /* rows of f32 */
  int64_t n_rows, k;
  int64_t n_blocks; /* of 32 columns; as many as the widest block of a weight wants */
  int height;       /* rows of all tiles but the last */
  int64_t n_tiles;
  tiles f32, q8;  /* the forms that are needed; buffer NULL otherwise */
  tiles expanded; /* MAX_EXPANDED panels a thread, if there are tiles that want them */
  operand operands[MAX_WEIGHTS];
  int n_operands;
  const weft__wide_kernels *wide;          /* if the matrix unit multiplies, else NULL; all tiles are whole then */
  const weft_matmul_nt_gated_attrs *gated; /* out = gate(product 0) * product 1; NULL: products side by side */
  float *out;
  int64_t out_stride;
  int64_t tiles_per_task, panels_per_task, n_panels;
} product;

/* ---- tiles of activations ---- */

/* The smallest tile height that holds n rows, or the largest there is. */
static int tile_height(const weft__cpu_kernels *kernels, int64_t n) {
  const int *height = kernels->tile_heights;
  while (height[0] < n && height[1]) height++;
  return *height;
}

/* Pointers to the arrays of tile `index`; the last tile may be lower than the others. */
static weft__x_tile tile_at(const product *p, int64_t index, bool is_q8) {
  int64_t rest = p->n_rows - index * p->height, n = p->n_blocks;
  int height = rest < p->height && !p->wide ? tile_height(p->cpu->kernels, rest) : p->height;
  weft__x_tile t = {.n_rows = height, .k = p->k, .n_blocks = n};
  if (is_q8) {
    t.q = (int32_t *)(p->q8.buffer + (size_t)index * p->q8.tile_bytes);
    t.q_d = (float *)(t.q + 8 * n * height);
    t.q_start = (int32_t *)(t.q_d + n * height);
    t.q_start_half = t.q_start + n * height;
    t.x_sum = (float *)(t.q_start_half + 2 * n * height);
  } else {
    t.x = (float *)(p->f32.buffer + (size_t)index * p->f32.tile_bytes);
    t.x_sum = t.x + WEFT__QBLOCK * n * height;
  }
  t.x_half = t.x_sum + n * height;
  return t;
}

enum { /* bytes that tile_at hands out for 32 columns of a row */
       F32_BLOCK_BYTES = 4 * WEFT__QBLOCK + 4 * (1 + 2),
       Q8_BLOCK_BYTES = WEFT__QBLOCK + 4 * (1 + 1 + 2 + 1 + 2),
};

static void pack_tile(const product *p, int64_t index, bool is_q8) {
  const weft__cpu_kernels *kernels = p->cpu->kernels;
  weft__x_tile t = tile_at(p, index, is_q8);
  for (int r = 0; r < t.n_rows; r++) {
    int64_t row = index * p->height + r;
    const float *x = row < p->n_rows ? (const float *)weft__cpu_data(p->x) + row * weft__row_stride(p->x) : NULL;
    (p->wide ? p->wide->pack : is_q8 ? kernels->pack_q8 : kernels->pack_f32)(x, r, &t);
  }
}

static void pack_tile_range(void *context, int64_t first, int64_t end) {
  const product *p = context;
  for (int64_t i = first; i < end; i++) {
    if (p->f32.buffer) pack_tile(p, i, false);
    if (p->q8.buffer) pack_tile(p, i, true);
  }
}

static weft_status tiles_alloc(product *p, tiles *t, size_t block_bytes) {
  size_t bytes = (size_t)p->height * (size_t)p->n_blocks * block_bytes;
  t->tile_bytes = (bytes + 63) / 64 * 64;
  if (!weft__mul_size(t->tile_bytes, (size_t)p->n_tiles, &t->n_bytes))
    return weft__error(WEFT_EINVAL, "matmul_nt: its size overflows");
  t->buffer = weft__buffers_get(p->cpu->buffers, t->n_bytes);
  return t->buffer ? WEFT_OK : WEFT_ENOMEM;
}

/* Packs the activations in the forms that the weights need. */
static weft_status pack_activations(product *p) {
  bool need_f32 = false, need_q8 = false;
  for (int i = 0; i < p->n_operands; i++) {
    need_q8 |= p->operands[i].is_q8;
    need_f32 |= !p->operands[i].is_q8;
  }
  weft_status status = WEFT_OK;
  if (need_f32) status = tiles_alloc(p, &p->f32, F32_BLOCK_BYTES);
  if (need_q8 && !status) status = tiles_alloc(p, &p->q8, Q8_BLOCK_BYTES);
  if (!status) weft__cpu_rows(p->cpu, p->n_tiles, p->height * p->k, pack_tile_range, p);
  return status;
}

/* ---- weights ---- */

static weft_status operand_open(product *p, operand *o, const weft_tensor *weight, int64_t column) {
  const weft__cpu_kernels *kernels = p->cpu->kernels;
  o->weight = weight;
  o->panel_bytes = weft__panel_bytes(weight->dtype, p->k);
  o->n_panels = (weight->shape[0] + WEFT__PANEL - 1) / WEFT__PANEL;
  o->is_q8 = !p->cpu->is_exact && kernels->product_q8[weight->dtype];
  o->column = column;
  int64_t block_len = weft__dtype_get(weight->dtype)->block_len,
          n = block_len > WEFT__QBLOCK ? block_len : WEFT__QBLOCK;
  o->n_blocks = (p->k + n - 1) / n * (n / WEFT__QBLOCK);
  if (o->n_blocks > p->n_blocks) p->n_blocks = o->n_blocks;
  if (weight->storage->layout == WEFT__LAYOUT_PACKED) {
    o->panels = weight->storage->buffer;
    return WEFT_OK;
  }
  if (!weft__mul_size(o->panel_bytes, (size_t)o->n_panels, &o->own_bytes))
    return weft__error(WEFT_EINVAL, "matmul_nt: its size overflows");
  o->own_panels = weft__buffers_get(p->cpu->buffers, o->own_bytes);
  if (!o->own_panels) return WEFT_ENOMEM;
  weft__pack_weight(p->cpu, weight->dtype, weight->shape[0], p->k, weft__cpu_data(weight), NULL, o->own_panels);
  o->panels = o->own_panels;
  return WEFT_OK;
}

/* The matrix unit, if there is one for as many rows and all weights. */
static const weft__wide_kernels *choose_wide(const product *p) {
  const weft__wide_kernels *wide = p->cpu->kernels->wide;
  if (!wide || p->n_rows < wide->least_rows) return NULL;
  for (int i = 0; i < p->n_operands; i++)
    if (!p->operands[i].is_q8 || !wide->unpack[p->operands[i].weight->dtype]) return NULL;
  return wide;
}

static void choose_tiles(product *p) {
  p->wide = choose_wide(p);
  p->height = p->wide ? WEFT__WIDE_ROWS : tile_height(p->cpu->kernels, p->n_rows);
  p->n_tiles = (p->n_rows + p->height - 1) / p->height;
}

/* Scratch for expanded panels, which low tiles and the matrix unit do without. */
static weft_status expanded_alloc(product *p) {
  if (p->wide || p->height < WEFT__EXPANDED_ROWS) return WEFT_OK;
  for (int i = 0; i < p->n_operands; i++) {
    const weft__quant_format *f = &WEFT__QUANT_FORMATS[p->operands[i].weight->dtype];
    size_t n_bytes = (size_t)p->n_blocks * (size_t)weft__expanded_part_bytes(weft__expanded_of(f));
    if (f->n_columns && n_bytes > p->expanded.tile_bytes) p->expanded.tile_bytes = (n_bytes + 63) / 64 * 64;
  }
  if (p->expanded.tile_bytes == 0) return WEFT_OK;
  p->expanded.n_bytes = p->expanded.tile_bytes * MAX_EXPANDED * (size_t)weft__pool_n_threads(p->cpu->pool);
  p->expanded.buffer = weft__buffers_get(p->cpu->buffers, p->expanded.n_bytes);
  return p->expanded.buffer ? WEFT_OK : WEFT_ENOMEM;
}

/* ---- the grid ---- */

/* A panel, and the same expanded (kernels.h); NULL: no tile needs it. */
typedef struct panel_forms {
  const void *stored, *expanded;
} panel_forms;

/* Expands panel `index` into the worker's scratch, part `slot` of it, if the product has tiles that want it so. */
static panel_forms panel_at(const product *p, const operand *o, int64_t index, int worker, int slot) {
  panel_forms forms = {o->panels + (size_t)index * o->panel_bytes, NULL};
  weft__panel_expand expand = p->cpu->kernels->expand[o->weight->dtype];
  if (!p->expanded.buffer || !expand) return forms;
  void *to = p->expanded.buffer + (size_t)(worker * MAX_EXPANDED + slot) * p->expanded.tile_bytes;
  expand(forms.stored, o->n_blocks, to);
  forms.expanded = to;
  return forms;
}

/* Product of one tile and one panel to y; the kernel wants room for whole tiles and panels, so ragged edges take a
 * detour. */
static void tile_product(const product *p, const operand *o, int64_t tile_index, panel_forms panel, float *y,
                         int64_t y_stride, int64_t n_rows, int64_t n_columns) {
  const weft__cpu_kernels *kernels = p->cpu->kernels;
  weft__x_tile tile = tile_at(p, tile_index, o->is_q8);
  tile.n_blocks = o->n_blocks; /* beside a weight of wider blocks the tile may hold more than this panel */
  weft__panel_product run = (o->is_q8 ? kernels->product_q8 : kernels->product_f32)[o->weight->dtype];
  const void *weights = panel.expanded && tile.n_rows >= WEFT__EXPANDED_ROWS ? panel.expanded : panel.stored;
  if (n_rows == tile.n_rows && n_columns == WEFT__PANEL) {
    run(&tile, weights, y, y_stride);
    return;
  }
  float whole[MAX_TILE_ROWS * WEFT__PANEL];
  run(&tile, weights, whole, WEFT__PANEL);
  for (int64_t r = 0; r < n_rows; r++)
    for (int64_t c = 0; c < n_columns; c++) y[r * y_stride + c] = whole[r * WEFT__PANEL + c];
}

/* A task's tiles by the matrix unit. */
enum { WIDE_TASK = TILES_PER_TASK * WEFT__WIDE_ROWS * WEFT__PANEL };

/* y [rows of the tiles][16] = their products with one panel. */
static void wide_product(const product *p, const operand *o, int64_t first_tile, int64_t end_tile, int64_t panel,
                         float y[WIDE_TASK]) {
  const void *weights = o->panels + (size_t)panel * o->panel_bytes;
  weft__wide_weights unpacked;
  memset(y, 0, WIDE_TASK * sizeof *y);
  for (int64_t b = 0; b < o->n_blocks; b += WEFT__WIDE_BLOCKS) {
    p->wide->unpack[o->weight->dtype](weights, b, (int)weft__min_i64(o->n_blocks - b, WEFT__WIDE_BLOCKS), &unpacked);
    for (int64_t t = first_tile; t < end_tile; t++) {
      weft__x_tile tile = tile_at(p, t, true);
      p->wide->add(&tile, b, &unpacked, y + (t - first_tile) * WEFT__WIDE_ROWS * WEFT__PANEL);
    }
  }
}

static int64_t panel_columns(const operand *o, int64_t panel) {
  return weft__min_i64(o->weight->shape[0] - panel * WEFT__PANEL, WEFT__PANEL);
}

/* Panels first .. end-1 of one weight for a range of tiles.  The panel is the outer loop: it is expanded once, and stays
 * in the first-level cache while the tiles pass. */
static void plain_block(const product *p, const operand *o, int64_t first_tile, int64_t end_tile, int64_t first,
                        int64_t end, int worker) {
  for (int64_t i = first; i < end; i++) {
    panel_forms panel = panel_at(p, o, i, worker, 0);
    for (int64_t t = first_tile; t < end_tile; t++) {
      float *y = p->out + t * p->height * p->out_stride + o->column + i * WEFT__PANEL;
      tile_product(p, o, t, panel, y, p->out_stride, weft__min_i64(p->n_rows - t * p->height, p->height),
                   panel_columns(o, i));
    }
  }
}

/* The same by the matrix unit. */
static void wide_block(const product *p, const operand *o, int64_t first_tile, int64_t end_tile, int64_t first,
                       int64_t end) {
  int64_t row = first_tile * p->height, n_rows = weft__min_i64(p->n_rows, end_tile * p->height) - row;
  for (int64_t panel = first; panel < end; panel++) {
    float whole[WIDE_TASK], *y = p->out + row * p->out_stride + o->column + panel * WEFT__PANEL;
    wide_product(p, o, first_tile, end_tile, panel, whole);
    for (int64_t r = 0; r < n_rows; r++)
      memcpy(y + r * p->out_stride, whole + r * WEFT__PANEL, (size_t)panel_columns(o, panel) * sizeof *y);
  }
}

static void wide_gated_block(const product *p, int64_t first_tile, int64_t end_tile, int64_t first, int64_t end) {
  const operand *gate = &p->operands[0], *up = &p->operands[1];
  int64_t row = first_tile * p->height, n_rows = weft__min_i64(p->n_rows, end_tile * p->height) - row;
  for (int64_t panel = first; panel < end; panel++) {
    float a[WIDE_TASK], b[WIDE_TASK], *y = p->out + row * p->out_stride + panel * WEFT__PANEL;
    wide_product(p, gate, first_tile, end_tile, panel, a);
    wide_product(p, up, first_tile, end_tile, panel, b);
    for (int64_t r = 0; r < n_rows; r++)
      p->cpu->kernels->gated(p->gated->gate, panel_columns(gate, panel), a + r * WEFT__PANEL, b + r * WEFT__PANEL,
                             y + r * p->out_stride);
  }
}

static void gated_block(const product *p, int64_t first_tile, int64_t end_tile, int64_t first, int64_t end,
                        int worker) {
  const operand *gate = &p->operands[0], *up = &p->operands[1];
  enum { WIDTH = WEFT__PANEL };
  float a[MAX_TILE_ROWS * WIDTH], b[MAX_TILE_ROWS * WIDTH];
  for (int64_t i = first; i < end; i++) {
    panel_forms gate_panel = panel_at(p, gate, i, worker, 0), up_panel = panel_at(p, up, i, worker, 1);
    for (int64_t t = first_tile; t < end_tile; t++) {
      int64_t n_rows = weft__min_i64(p->n_rows - t * p->height, p->height), n = panel_columns(gate, i);
      tile_product(p, gate, t, gate_panel, a, WIDTH, n_rows, n);
      tile_product(p, up, t, up_panel, b, WIDTH, n_rows, n);
      float *y = p->out + t * p->height * p->out_stride + i * WEFT__PANEL;
      for (int64_t r = 0; r < n_rows; r++)
        p->cpu->kernels->gated(p->gated->gate, n, a + r * WIDTH, b + r * WIDTH, y + r * p->out_stride);
    }
  }
}

/* Some tiles, and a range of the weights' panels, counted through. */
static void multiply(const product *p, int64_t first_tile, int64_t end_tile, int64_t first, int64_t end, int worker) {
  if (p->gated) {
    if (p->wide)
      wide_gated_block(p, first_tile, end_tile, first, end);
    else
      gated_block(p, first_tile, end_tile, first, end, worker);
    return;
  }
  int64_t base = 0; /* number of this weight's first panel */
  for (const operand *o = p->operands; o < p->operands + p->n_operands; base += o++->n_panels) {
    int64_t from = first > base ? first - base : 0, to = weft__min_i64(end - base, o->n_panels);
    if (from >= to) continue;
    if (p->wide)
      wide_block(p, o, first_tile, end_tile, from, to);
    else
      plain_block(p, o, first_tile, end_tile, from, to, worker);
  }
}

/* Task (i,j) of the grid. */
static void grid_task(void *context, int task, int worker) {
  const product *p = context;
  int64_t n_panel_tasks = (p->n_panels + p->panels_per_task - 1) / p->panels_per_task;
  int64_t first_tile = task / n_panel_tasks * p->tiles_per_task;
  int64_t end_tile = weft__min_i64(first_tile + p->tiles_per_task, p->n_tiles);
  int64_t first = task % n_panel_tasks * p->panels_per_task,
          end = weft__min_i64(first + p->panels_per_task, p->n_panels);
  if (p->wide) p->wide->begin();
  multiply(p, first_tile, end_tile, first, end, worker);
  if (p->wide) p->wide->end();
}

/* Makes tasks smaller where that costs no more rounds of all threads: 12 tasks of 5 panels take 16 threads longer than 14
 * of 4. */
static void even_out(product *p, int64_t n_tile_tasks) {
  int64_t n_threads = weft__pool_n_threads(p->cpu->pool);
  int64_t n_tasks = (p->n_panels + p->panels_per_task - 1) / p->panels_per_task * n_tile_tasks;
  int64_t n_shares = (n_tasks + n_threads - 1) / n_threads * n_threads;
  int64_t panels = (p->n_panels * n_tile_tasks + n_shares - 1) / n_shares;
  if (panels > 0 && panels < p->panels_per_task) p->panels_per_task = panels;
}

/* Cuts the grid: enough tasks for the threads to finish together, few enough to keep a task worth its handing out. */
static void run_grid(product *p) {
  enum { TASKS_PER_THREAD = 6, LEAST_WORK = 1 << 16 };
  p->n_panels = 0;
  for (int i = 0; i < (p->gated ? 1 : p->n_operands); i++) p->n_panels += p->operands[i].n_panels;
  p->tiles_per_task = weft__min_i64(p->n_tiles, TILES_PER_TASK);
  int64_t n_tile_tasks = (p->n_tiles + p->tiles_per_task - 1) / p->tiles_per_task;
  int64_t wanted = weft__pool_n_threads(p->cpu->pool) * TASKS_PER_THREAD;
  p->panels_per_task = p->n_panels * n_tile_tasks / wanted;
  int64_t panel_work = p->tiles_per_task * p->height * p->k * WEFT__PANEL;
  int64_t least = panel_work > 0 ? (LEAST_WORK + panel_work - 1) / panel_work : p->n_panels;
  if (p->panels_per_task < least) p->panels_per_task = least;
  if (p->panels_per_task < 1) p->panels_per_task = 1;
  even_out(p, n_tile_tasks);
  int64_t n_panel_tasks = (p->n_panels + p->panels_per_task - 1) / p->panels_per_task;
  weft__pool_run(p->cpu->pool, (int)(n_tile_tasks * n_panel_tasks), grid_task, p);
}

/* Rows of contiguous f32 at one stride, as tiles are made of. */
static bool are_f32_rows(const weft_tensor *x) {
  if (x->dtype != WEFT_F32) return false;
  return weft__is_contiguous(x) || (x->rank == 2 && (x->shape[1] <= 1 || x->strides[1] == 1));
}

static weft_status run_product(weft__backend *backend, const weft__op_call *call,
                               const weft_matmul_nt_gated_attrs *gated) {
  product p = {.cpu = weft__cpu_of(backend),
               .x = call->in[0],
               .n_rows = weft__n_rows(call->in[0]),
               .k = weft__n_cols(call->in[0]),
               .n_operands = call->n_inputs - 1,
               .gated = gated,
               .out = weft__cpu_data(call->out),
               .out_stride = weft__n_cols(call->out)};
  if (p.n_rows == 0 || p.out_stride == 0) return WEFT_OK;
  weft_tensor copy;
  weft__storage storage = {.buffer = NULL};
  weft_status status = WEFT_OK;
  if (!are_f32_rows(p.x)) {
    status = weft__cpu_make_f32(p.cpu, p.x, &copy, &storage);
    p.x = &copy;
  }
  int64_t column = 0;
  for (int i = 0; i < p.n_operands && !status; i++) {
    status = operand_open(&p, &p.operands[i], call->in[i + 1], column);
    column += call->in[i + 1]->shape[0];
  }
  if (!status) choose_tiles(&p);
  if (!status) status = pack_activations(&p);
  if (!status) status = expanded_alloc(&p);
  if (!status) run_grid(&p);
  weft__buffers_put(p.cpu->buffers, storage.buffer, storage.n_bytes);
  weft__buffers_put(p.cpu->buffers, p.expanded.buffer, p.expanded.n_bytes);
  weft__buffers_put(p.cpu->buffers, p.f32.buffer, p.f32.n_bytes);
  weft__buffers_put(p.cpu->buffers, p.q8.buffer, p.q8.n_bytes);
  for (int i = 0; i < p.n_operands; i++)
    weft__buffers_put(p.cpu->buffers, p.operands[i].own_panels, p.operands[i].own_bytes);
  return status;
}

weft_status weft__cpu_matmul_nt(weft__backend *backend, const weft__op_call *call) {
  return run_product(backend, call, NULL);
}

weft_status weft__cpu_matmul_nt3(weft__backend *backend, const weft__op_call *call) {
  return run_product(backend, call, NULL);
}

weft_status weft__cpu_matmul_nt_gated(weft__backend *backend, const weft__op_call *call) {
  return run_product(backend, call, call->attrs);
}
