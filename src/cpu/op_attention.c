/* op_attention.c - attention over whole tensors, and its gradient, in tiles of queries x keys (Dao et al. 2022).
 *
 * A tile's scores, and what is made of them, are products of packed tiles in a thread's scratch: nothing has T x S elements.
 * Tiles begin at the same keys whoever computes them and are added up in the order of the keys, or queries, so results do
 * not depend on how the work is cut. */
#include "cpu/gemm.h"

#include <assert.h>
#include <math.h>   /* log */
#include <string.h> /* memset, memcpy */

/* Multiples of what any variant's tiles have, so that only the last ones are ragged.  A tile of keys is packed for many
 * queries; the gradient has more tiles of scores to keep in the second-level cache. */
enum { QUERIES = 192, GRAD_QUERIES = 96, KEYS = 96 };

/* What both read of their operands: q [B,T,H*D], k and v [B,S,G*D]. */
typedef struct attention_loop {
  weft__cpu *cpu;
  const weft__gemm_kernels *gemm;
  const weft_tensor *q, *k, *v;
  int64_t n_batches, n_queries, n_keys, n_heads, n_kv_heads, head_size;
  int64_t width; /* D in whole tiles */
  float scale;
  bool is_causal;
  int64_t window;
  int64_t n_units, units_per_task;
  void (*run)(const struct attention_loop *l, int64_t unit, float *scratch);
  const weft_tensor *written[3], *read[3]; /* y and lse; or dq, dk, dv, and y, lse, dy */
  float *scratch;
  int64_t scratch_floats; /* a thread */
} attention_loop;

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
static int64_t ceil_div(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

static attention_loop make_loop(weft__backend *backend, weft_tensor *const *qkv, const weft_attention_attrs *attrs) {
  const weft_tensor *q = qkv[0], *k = qkv[1];
  int axis = q->rank - 2; /* of positions */
  attention_loop l = {.cpu = weft__cpu_of(backend), .q = q, .k = k, .v = qkv[2], .n_heads = attrs->n_heads};
  l.gemm = &l.cpu->kernels->gemm;
  assert(QUERIES % l.gemm->blocks.rows == 0 && GRAD_QUERIES % l.gemm->blocks.rows == 0);
  assert(KEYS % l.gemm->blocks.rows == 0 && KEYS % l.gemm->blocks.columns == 0);
  l.n_batches = axis ? q->shape[0] : 1;
  l.n_queries = q->shape[axis];
  l.n_keys = k->shape[axis];
  l.head_size = q->shape[axis + 1] / l.n_heads;
  l.n_kv_heads = k->shape[axis + 1] / l.head_size;
  l.width = round_up(l.head_size, l.gemm->blocks.columns);
  l.scale = attrs->scale;
  l.is_causal = attrs->mask == WEFT_MASK_CAUSAL;
  l.window = attrs->window;
  return l;
}

static int64_t row_step(const weft_tensor *t) { return t->strides[t->rank - 2]; }

/* Row `row` of a batch of [B,T,C] or [T,C], from column `column` on. */
static float *row_of(const weft_tensor *t, int64_t batch, int64_t row, int64_t column) {
  return (float *)weft__cpu_data(t) + (t->rank == 3 ? batch * t->strides[0] : 0) + row * row_step(t) + column;
}

/* Keys begin .. end-1. */
typedef struct key_range {
  int64_t begin, end;
} key_range;

/* What a query sees. */
static key_range seen_by(const attention_loop *l, int64_t query) {
  key_range seen = {0, l->n_keys};
  if (l->is_causal) seen.end = query + l->n_keys - l->n_queries + 1;
  if (l->window && seen.end > l->window) seen.begin = seen.end - l->window;
  return seen;
}

/* What some of n queries see. */
static key_range seen_by_all(const attention_loop *l, int64_t first, int64_t n) {
  return (key_range){seen_by(l, first).begin, seen_by(l, first + n - 1).end};
}

/* What a query sees of the n keys from `first` on, counted from there; begin == end if none. */
static key_range seen_part(const attention_loop *l, int64_t query, int64_t first, int64_t n) {
  key_range seen = seen_by(l, query);
  seen.begin = weft__min_i64(weft__max_i64(seen.begin - first, 0), n);
  seen.end = weft__max_i64(weft__min_i64(seen.end - first, n), seen.begin);
  return seen;
}

/* Zeros for the keys of a tile's row that are not seen. */
static void clear_unseen(float *row, key_range seen, int64_t n) {
  memset(row, 0, (size_t)seen.begin * sizeof *row);
  memset(row + seen.end, 0, (size_t)(n - seen.end) * sizeof *row);
}

/* ---- the loop over units: the results of a unit are its own ---- */

static void units_task(void *context, int task, int worker) {
  const attention_loop *l = context;
  int64_t first = task * l->units_per_task, end = weft__min_i64(first + l->units_per_task, l->n_units);
  for (int64_t unit = first; unit < end; unit++) l->run(l, unit, l->scratch + worker * l->scratch_floats);
}

/* `unit_work`: multiply-adds of a unit; little ones share a task. */
static void run_units(attention_loop *l, int64_t n_units, int64_t unit_work,
                      void (*run)(const attention_loop *l, int64_t unit, float *scratch)) {
  enum { LEAST_TASK = 1 << 16, MOST_TASKS = 1 << 20 };
  l->n_units = n_units;
  l->run = run;
  l->units_per_task = weft__max_i64(LEAST_TASK / (unit_work + 1), ceil_div(n_units, MOST_TASKS));
  if (l->units_per_task == 0) l->units_per_task = 1;
  weft__pool_run(l->cpu->pool, (int)ceil_div(n_units, l->units_per_task), units_task, l);
}

/* Scratch of n_floats a thread; its bytes are for close_scratch. */
static weft_status open_scratch(attention_loop *l, int64_t n_floats, size_t *n_bytes) {
  l->scratch_floats = round_up(n_floats, 16); /* every part on a cache line */
  if (!weft__mul_size((size_t)l->scratch_floats * sizeof(float), (size_t)weft__pool_n_threads(l->cpu->pool), n_bytes))
    return weft__error(WEFT_ENOMEM, "attention: its working memory exceeds the address space");
  l->scratch = weft__buffers_get(l->cpu->buffers, *n_bytes);
  return l->scratch ? WEFT_OK : WEFT_ENOMEM;
}

/* Takes n floats of a thread's scratch. */
static float *take(float **scratch, int64_t n) {
  float *part = *scratch;
  *scratch += n;
  return part;
}

/* ---- attention ---- */

/* Up to QUERIES queries of one head on their way. */
typedef struct query_tile {
  int64_t batch, kv_column, first, n;
  float *q;                /* packed [n,D] */
  float *k, *v;            /* packed: k^T [D,KEYS], v [KEYS,D] */
  float *scores, *weights; /* [n,KEYS]; packed */
  float *out;              /* [n,width] */
  float largest[QUERIES];
  double sum[QUERIES];
} query_tile;

static int64_t attention_floats(const attention_loop *l) {
  return (QUERIES + KEYS) * l->head_size + (KEYS + QUERIES) * l->width + 2 * QUERIES * KEYS;
}

/* The keys from `first` on join the tile's sums. */
static void add_keys(const attention_loop *l, query_tile *t, int64_t first) {
  int64_t n_keys = weft__min_i64(KEYS, l->n_keys - first);
  const float *k = row_of(l->k, t->batch, first, t->kv_column), *v = row_of(l->v, t->batch, first, t->kv_column);
  weft__gemm_pack_right(l->gemm, l->head_size, n_keys, k, row_step(l->k), false, t->k);
  weft__gemm_pack_right(l->gemm, n_keys, l->head_size, v, row_step(l->v), true, t->v);
  weft__gemm_tiles(l->gemm, t->n, n_keys, l->head_size, t->q, t->k, false, t->scores, KEYS);
  for (int64_t r = 0; r < t->n; r++) {
    key_range seen = seen_part(l, t->first + r, first, n_keys);
    float *row = t->scores + r * KEYS, *out = t->out + r * l->width;
    clear_unseen(row, seen, n_keys);
    if (seen.begin == seen.end) continue;
    float fade =
        l->cpu->kernels->softmax_join(seen.end - seen.begin, l->scale, row + seen.begin, &t->largest[r], &t->sum[r]);
    if (fade != 1) l->cpu->kernels->unary(WEFT__SCALE, l->width, out, fade, out);
  }
  weft__gemm_pack_left(l->gemm, t->n, n_keys, t->scores, KEYS, false, t->weights);
  weft__gemm_tiles(l->gemm, t->n, l->head_size, n_keys, t->weights, t->v, true, t->out, l->width);
}

static void finish_queries(const attention_loop *l, const query_tile *t, int64_t head) {
  for (int64_t r = 0; r < t->n; r++) {
    float *y = row_of(l->written[0], t->batch, t->first + r, head * l->head_size);
    l->cpu->kernels->unary(WEFT__SCALE, l->head_size, t->out + r * l->width, (float)(1 / t->sum[r]), y);
    if (l->written[1])
      *row_of(l->written[1], t->batch, t->first + r, head) = (float)((double)t->largest[r] + log(t->sum[r]));
  }
}

/* A unit: one tile of queries of one head. */
static void attend(const attention_loop *l, int64_t unit, float *scratch) {
  int64_t n_tiles = ceil_div(l->n_queries, QUERIES), head = unit / n_tiles % l->n_heads;
  query_tile t = {.batch = unit / n_tiles / l->n_heads, .first = unit % n_tiles * QUERIES};
  t.n = weft__min_i64(QUERIES, l->n_queries - t.first);
  t.kv_column = head / (l->n_heads / l->n_kv_heads) * l->head_size;
  t.q = take(&scratch, QUERIES * l->head_size);
  t.k = take(&scratch, KEYS * l->head_size);
  t.v = take(&scratch, KEYS * l->width);
  t.scores = take(&scratch, QUERIES * KEYS);
  t.weights = take(&scratch, QUERIES * KEYS);
  t.out = take(&scratch, QUERIES * l->width);
  for (int64_t r = 0; r < t.n; r++) t.largest[r] = -INFINITY, t.sum[r] = 0;
  memset(t.out, 0, (size_t)(round_up(t.n, l->gemm->blocks.rows) * l->width) * sizeof *t.out);
  weft__gemm_pack_left(l->gemm, t.n, l->head_size, row_of(l->q, t.batch, t.first, head * l->head_size), row_step(l->q),
                       false, t.q);
  key_range seen = seen_by_all(l, t.first, t.n);
  for (int64_t first = seen.begin / KEYS * KEYS; first < seen.end; first += KEYS) add_keys(l, &t, first);
  finish_queries(l, &t, head);
}

static weft_status run_attention(attention_loop *l) {
  size_t n_bytes;
  weft_status status = open_scratch(l, attention_floats(l), &n_bytes);
  if (status) return status;
  int64_t n_units = l->n_batches * l->n_heads * ceil_div(l->n_queries, QUERIES);
  run_units(l, n_units, weft__min_i64(l->n_queries, QUERIES) * l->n_keys, attend);
  weft__buffers_put(l->cpu->buffers, l->scratch, n_bytes);
  return WEFT_OK;
}

weft_status weft__cpu_attention(weft__backend *backend, const weft__op_call *call) {
  attention_loop l = make_loop(backend, call->in, call->attrs);
  l.written[0] = call->out;
  return run_attention(&l);
}

weft_status weft__cpu_attention_lse(weft__backend *backend, const weft__op_call *call) {
  attention_loop l = make_loop(backend, call->in + 2, call->attrs);
  l.written[0] = call->in[0];
  l.written[1] = call->in[1];
  return run_attention(&l);
}

/* ---- its gradient ---- */

/* A tile of keys and one of queries: what is known of them, and their share of the gradients.  Packed ones are named by
 * what they are in the products. */
typedef struct grad_tiles {
  int64_t batch, head, kv_head;
  int64_t first_query, n_queries, first_key, n_keys;
  float *left_q, *left_dy;    /* packed [n,D] */
  float *right_q, *right_dy;  /* packed [n,D] */
  float *turned_k, *turned_v; /* packed [D,KEYS] */
  float *right_k;             /* packed [KEYS,D] */
  float *p, *ds;              /* [n,KEYS]: scores, then p; dy v^T, then ds */
  float *left;                /* packed: p or ds, turned or not */
  float *dq;                  /* [n,width] */
  float *dk, *dv;             /* [KEYS,width]: sums */
  float lse[GRAD_QUERIES], delta[GRAD_QUERIES];
} grad_tiles;

static grad_tiles place_tiles(const attention_loop *l, float *scratch) {
  grad_tiles t = {0};
  t.left_q = take(&scratch, GRAD_QUERIES * l->head_size);
  t.left_dy = take(&scratch, GRAD_QUERIES * l->head_size);
  t.right_q = take(&scratch, GRAD_QUERIES * l->width);
  t.right_dy = take(&scratch, GRAD_QUERIES * l->width);
  t.turned_k = take(&scratch, KEYS * l->head_size);
  t.turned_v = take(&scratch, KEYS * l->head_size);
  t.right_k = take(&scratch, KEYS * l->width);
  t.p = take(&scratch, GRAD_QUERIES * KEYS);
  t.ds = take(&scratch, GRAD_QUERIES * KEYS);
  t.left = take(&scratch, GRAD_QUERIES * KEYS);
  t.dq = take(&scratch, GRAD_QUERIES * l->width);
  t.dk = take(&scratch, KEYS * l->width);
  t.dv = take(&scratch, KEYS * l->width);
  return t;
}

static int64_t grad_floats(const attention_loop *l) {
  return (2 * GRAD_QUERIES + 2 * KEYS) * l->head_size + (3 * GRAD_QUERIES + 3 * KEYS) * l->width +
         3 * GRAD_QUERIES * KEYS;
}

static void load_keys(const attention_loop *l, grad_tiles *t, int64_t first) {
  t->first_key = first;
  t->n_keys = weft__min_i64(KEYS, l->n_keys - first);
  int64_t column = t->kv_head * l->head_size, k_step = row_step(l->k);
  const float *k = row_of(l->k, t->batch, first, column), *v = row_of(l->v, t->batch, first, column);
  weft__gemm_pack_right(l->gemm, l->head_size, t->n_keys, k, k_step, false, t->turned_k);
  weft__gemm_pack_right(l->gemm, l->head_size, t->n_keys, v, row_step(l->v), false, t->turned_v);
  weft__gemm_pack_right(l->gemm, t->n_keys, l->head_size, k, k_step, true, t->right_k);
}

static void load_queries(const attention_loop *l, grad_tiles *t, int64_t first) {
  const weft_tensor *y = l->read[0], *lse = l->read[1], *dy = l->read[2];
  t->first_query = first;
  int64_t n = t->n_queries = weft__min_i64(GRAD_QUERIES, l->n_queries - first), column = t->head * l->head_size;
  const float *q_rows = row_of(l->q, t->batch, first, column), *dy_rows = row_of(dy, t->batch, first, column);
  weft__gemm_pack_left(l->gemm, n, l->head_size, q_rows, row_step(l->q), false, t->left_q);
  weft__gemm_pack_left(l->gemm, n, l->head_size, dy_rows, row_step(dy), false, t->left_dy);
  weft__gemm_pack_right(l->gemm, n, l->head_size, q_rows, row_step(l->q), true, t->right_q);
  weft__gemm_pack_right(l->gemm, n, l->head_size, dy_rows, row_step(dy), true, t->right_dy);
  for (int64_t r = 0; r < n; r++) {
    t->lse[r] = *row_of(lse, t->batch, first + r, t->head);
    l->gemm->matvec_rows(1, l->head_size, row_of(y, t->batch, first + r, column), 0, dy_rows + r * row_step(dy),
                         &t->delta[r]);
  }
}

/* p and ds of the two tiles. */
static void find_scores(const attention_loop *l, const grad_tiles *t) {
  weft__gemm_tiles(l->gemm, t->n_queries, t->n_keys, l->head_size, t->left_q, t->turned_k, false, t->p, KEYS);
  weft__gemm_tiles(l->gemm, t->n_queries, t->n_keys, l->head_size, t->left_dy, t->turned_v, false, t->ds, KEYS);
  for (int64_t r = 0; r < t->n_queries; r++) {
    key_range seen = seen_part(l, t->first_query + r, t->first_key, t->n_keys);
    float *p = t->p + r * KEYS, *ds = t->ds + r * KEYS;
    clear_unseen(p, seen, t->n_keys);
    clear_unseen(ds, seen, t->n_keys);
    l->cpu->kernels->softmax_part_grad(seen.end - seen.begin, l->scale, t->lse[r], t->delta[r], p + seen.begin,
                                       ds + seen.begin);
  }
}

/* dv += p^T dy, dk += ds^T q */
static void add_to_keys(const attention_loop *l, const grad_tiles *t) {
  weft__gemm_pack_left(l->gemm, t->n_keys, t->n_queries, t->p, KEYS, true, t->left);
  weft__gemm_tiles(l->gemm, t->n_keys, l->head_size, t->n_queries, t->left, t->right_dy, true, t->dv, l->width);
  weft__gemm_pack_left(l->gemm, t->n_keys, t->n_queries, t->ds, KEYS, true, t->left);
  weft__gemm_tiles(l->gemm, t->n_keys, l->head_size, t->n_queries, t->left, t->right_q, true, t->dk, l->width);
}

/* dq += ds k, in the result itself. */
static void add_to_queries(const attention_loop *l, const grad_tiles *t) {
  weft__gemm_pack_left(l->gemm, t->n_queries, t->n_keys, t->ds, KEYS, false, t->left);
  weft__gemm_tiles(l->gemm, t->n_queries, l->head_size, t->n_keys, t->left, t->right_k, false, t->dq, l->width);
  for (int64_t r = 0; r < t->n_queries; r++) {
    float *dq = row_of(l->written[0], t->batch, t->first_query + r, t->head * l->head_size);
    l->cpu->kernels->binary(WEFT__ADD, l->head_size, dq, 1, t->dq + r * l->width, 1, dq);
  }
}

/* Zeros for dq of queries first .. end-1 of the head. */
static void clear_queries(const attention_loop *l, const grad_tiles *t, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; i++)
    memset(row_of(l->written[0], t->batch, i, t->head * l->head_size), 0, (size_t)l->head_size * sizeof(float));
}

static bool do_meet(const attention_loop *l, const grad_tiles *t, int64_t first_query) {
  key_range seen = seen_by_all(l, first_query, weft__min_i64(GRAD_QUERIES, l->n_queries - first_query));
  return seen.begin < t->first_key + t->n_keys && seen.end > t->first_key;
}

/* dk and dv of one tile of keys, from all queries of the heads that share them; dq as well if that is wanted. */
static void grad_of_keys(const attention_loop *l, grad_tiles *t, int64_t first_key, bool wants_queries) {
  int64_t group = l->n_heads / l->n_kv_heads;
  size_t n_bytes = (size_t)(KEYS * l->width) * sizeof(float);
  load_keys(l, t, first_key);
  memset(t->dk, 0, n_bytes);
  memset(t->dv, 0, n_bytes);
  for (t->head = t->kv_head * group; t->head < (t->kv_head + 1) * group; t->head++)
    for (int64_t first = 0; first < l->n_queries; first += GRAD_QUERIES) {
      if (!do_meet(l, t, first)) continue;
      load_queries(l, t, first);
      find_scores(l, t);
      add_to_keys(l, t);
      if (wants_queries) add_to_queries(l, t);
    }
  n_bytes = (size_t)l->head_size * sizeof(float);
  for (int64_t i = 0; i < t->n_keys; i++) {
    memcpy(row_of(l->written[1], t->batch, first_key + i, t->kv_head * l->head_size), t->dk + i * l->width, n_bytes);
    memcpy(row_of(l->written[2], t->batch, first_key + i, t->kv_head * l->head_size), t->dv + i * l->width, n_bytes);
  }
}

/* A unit: all gradients of one key/value head and of the heads that share it. */
static void grad_of_head(const attention_loop *l, int64_t unit, float *scratch) {
  grad_tiles t = place_tiles(l, scratch);
  int64_t group = l->n_heads / l->n_kv_heads;
  t.batch = unit / l->n_kv_heads;
  t.kv_head = unit % l->n_kv_heads;
  for (t.head = t.kv_head * group; t.head < (t.kv_head + 1) * group; t.head++) clear_queries(l, &t, 0, l->n_queries);
  for (int64_t first = 0; first < l->n_keys; first += KEYS) grad_of_keys(l, &t, first, true);
}

/* A unit: dk and dv of one tile of keys. */
static void grad_of_key_tile(const attention_loop *l, int64_t unit, float *scratch) {
  grad_tiles t = place_tiles(l, scratch);
  int64_t n_tiles = ceil_div(l->n_keys, KEYS);
  t.batch = unit / n_tiles / l->n_kv_heads;
  t.kv_head = unit / n_tiles % l->n_kv_heads;
  grad_of_keys(l, &t, unit % n_tiles * KEYS, false);
}

/* A unit: dq of one tile of queries of one head. */
static void grad_of_query_tile(const attention_loop *l, int64_t unit, float *scratch) {
  grad_tiles t = place_tiles(l, scratch);
  int64_t n_tiles = ceil_div(l->n_queries, GRAD_QUERIES), first_query = unit % n_tiles * GRAD_QUERIES;
  t.batch = unit / n_tiles / l->n_heads;
  t.head = unit / n_tiles % l->n_heads;
  t.kv_head = t.head / (l->n_heads / l->n_kv_heads);
  load_queries(l, &t, first_query);
  clear_queries(l, &t, first_query, first_query + t.n_queries);
  key_range seen = seen_by_all(l, first_query, t.n_queries);
  for (int64_t first = seen.begin / KEYS * KEYS; first < seen.end; first += KEYS) {
    load_keys(l, &t, first);
    find_scores(l, &t);
    add_to_queries(l, &t);
  }
}

/* With a key/value head a task, p is computed once.  Where that leaves threads idle, dk and dv are computed by tiles of keys,
 * then dq by tiles of queries: 7 products instead of 5, with the same sums. */
weft_status weft__cpu_attention_grad(weft__backend *backend, const weft__op_call *call) {
  attention_loop l = make_loop(backend, call->in + 3, call->attrs);
  for (int i = 0; i < 3; i++) {
    l.written[i] = call->in[i];
    l.read[i] = call->in[6 + i];
  }
  size_t n_bytes;
  weft_status status = open_scratch(&l, grad_floats(&l), &n_bytes);
  if (status) return status;
  int64_t n_kv_heads = l.n_batches * l.n_kv_heads, n_threads = weft__pool_n_threads(l.cpu->pool);
  if (n_threads == 1 || n_kv_heads >= 2 * n_threads) {
    run_units(&l, n_kv_heads, l.n_queries * l.n_keys, grad_of_head);
  } else {
    run_units(&l, n_kv_heads * ceil_div(l.n_keys, KEYS), l.n_queries * KEYS, grad_of_key_tile);
    run_units(&l, l.n_batches * l.n_heads * ceil_div(l.n_queries, GRAD_QUERIES), GRAD_QUERIES * l.n_keys,
              grad_of_query_tile);
  }
  weft__buffers_put(l.cpu->buffers, l.scratch, n_bytes);
  return WEFT_OK;
}
