/* op_reduce.c - sum, mean, max, min and argmax over any axes of any view.
 *
 * The operand is read in runs along its axis of the smallest stride.  If that axis is reduced, a run goes into one result;
 * if it is kept, neighbouring results take one element each of every run ("columns").  A reduction of few results is cut
 * into chunks whose totals are merged in order.  How it is cut depends on the shape and the strides alone, so the result
 * does not depend on the number of threads. */
#include "cpu/cpu.h"

#include <math.h> /* INFINITY */

enum {
  COLUMNS = 256,            /* results that one task works on at most */
  CHUNK_ELEMENTS = 1 << 16, /* of a chunk's reads, about */
  ENOUGH_TASKS = 64,        /* with so many groups of results nothing is cut into chunks */
};

/* What has been seen of the elements of some results; an operator uses its part of it. */
typedef struct totals {
  double sum[COLUMNS];
  float best[COLUMNS];
  int64_t place[COLUMNS]; /* of `best`, -1 if nothing has been seen */
} totals;

/* One way to reduce.  Elements are multiplied by `sign`: the smallest is the largest of the negated. */
typedef struct reducer {
  void (*start)(totals *t, int64_t n);
  void (*run)(totals *t, float sign, int64_t n, const float *x, int64_t place, int64_t place_step); /* into result 0 */
  void (*across)(totals *t, float sign, int64_t n, const float *x, int64_t place); /* element i into result i */
  void (*merge)(totals *t, const totals *later, int64_t n);
} reducer;

/* ---- sum ---- */

static void sum_start(totals *t, int64_t n) {
  for (int64_t i = 0; i < n; i++) t->sum[i] = 0;
}

static void sum_run(totals *t, float sign, int64_t n, const float *x, int64_t place, int64_t place_step) {
  enum { LANES = 8 };
  double lanes[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lanes[k] += (double)x[i + k];
  for (; i < n; i++) lanes[0] += (double)x[i];
  for (int k = 0; k < LANES; k++) t->sum[0] += lanes[k];
  (void)sign, (void)place, (void)place_step;
}

static void sum_across(totals *t, float sign, int64_t n, const float *x, int64_t place) {
  for (int64_t i = 0; i < n; i++) t->sum[i] += (double)x[i];
  (void)sign, (void)place;
}

static void sum_merge(totals *t, const totals *later, int64_t n) {
  for (int64_t i = 0; i < n; i++) t->sum[i] += later->sum[i];
}

/* Of squares. */
static void squares_run(totals *t, float sign, int64_t n, const float *x, int64_t place, int64_t place_step) {
  enum { LANES = 8 };
  double lanes[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lanes[k] += (double)x[i + k] * (double)x[i + k];
  for (; i < n; i++) lanes[0] += (double)x[i] * (double)x[i];
  for (int k = 0; k < LANES; k++) t->sum[0] += lanes[k];
  (void)sign, (void)place, (void)place_step;
}

static void squares_across(totals *t, float sign, int64_t n, const float *x, int64_t place) {
  for (int64_t i = 0; i < n; i++) t->sum[i] += (double)x[i] * (double)x[i];
  (void)sign, (void)place;
}

/* ---- max, min ---- */

/* The larger of the two, NaN if either is. */
static inline float larger(float a, float b) { return b > a || b != b ? b : a; }

static void max_start(totals *t, int64_t n) {
  for (int64_t i = 0; i < n; i++) t->best[i] = -INFINITY;
}

static void max_run(totals *t, float sign, int64_t n, const float *x, int64_t place, int64_t place_step) {
  enum { LANES = 8 };
  float lanes[LANES];
  for (int k = 0; k < LANES; k++) lanes[k] = t->best[0];
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int k = 0; k < LANES; k++) lanes[k] = larger(lanes[k], sign * x[i + k]);
  for (; i < n; i++) lanes[0] = larger(lanes[0], sign * x[i]);
  for (int k = 0; k < LANES; k++) t->best[0] = larger(t->best[0], lanes[k]);
  (void)place, (void)place_step;
}

static void max_across(totals *t, float sign, int64_t n, const float *x, int64_t place) {
  for (int64_t i = 0; i < n; i++) t->best[i] = larger(t->best[i], sign * x[i]);
  (void)place;
}

static void max_merge(totals *t, const totals *later, int64_t n) {
  for (int64_t i = 0; i < n; i++) t->best[i] = larger(t->best[i], later->best[i]);
}

/* ---- argmax ---- */

static void argmax_start(totals *t, int64_t n) {
  for (int64_t i = 0; i < n; i++) t->place[i] = -1;
}

/* Offers result i an element. */
static inline void offer(totals *t, int64_t i, float x, int64_t place) {
  if (place < 0 || (t->place[i] >= 0 && !weft__ranks_before(x, place, t->best[i], t->place[i]))) return;
  t->best[i] = x;
  t->place[i] = place;
}

static void argmax_run(totals *t, float sign, int64_t n, const float *x, int64_t place, int64_t place_step) {
  for (int64_t i = 0; i < n; i++) offer(t, 0, x[i], place + i * place_step);
  (void)sign;
}

static void argmax_across(totals *t, float sign, int64_t n, const float *x, int64_t place) {
  for (int64_t i = 0; i < n; i++) offer(t, i, x[i], place);
  (void)sign;
}

static void argmax_merge(totals *t, const totals *later, int64_t n) {
  for (int64_t i = 0; i < n; i++) offer(t, i, later->best[i], later->place[i]);
}

static const reducer SUM = {sum_start, sum_run, sum_across, sum_merge},
                     SUM_SQUARES = {sum_start, squares_run, squares_across, sum_merge},
                     MAX = {max_start, max_run, max_across, max_merge},
                     ARGMAX = {argmax_start, argmax_run, argmax_across, argmax_merge};

/* ---- the loop ---- */

typedef struct axis {
  int64_t n, stride; /* of the operand */
  int64_t to;        /* elements of the result (kept), or places (reduced), from one index to the next */
} axis;

typedef struct axes {
  axis axis[WEFT_MAX_RANK]; /* outermost first */
  int n_axes;
  int64_t numel; /* of all of them */
} axes;

typedef struct reduction {
  weft__cpu *cpu;
  weft_op op;
  const reducer *reducer;
  float sign;
  const weft_tensor *a, *out;
  axes kept, reduced; /* without the inner axis */
  axis inner;         /* of the smallest stride */
  bool is_inner_kept; /* its elements are columns */
  int64_t n_reduced;  /* elements of one result */
  int64_t n_groups;   /* tasks by results: (kept, columns) */
  int64_t n_blocks;   /* pieces of the inner axis: of columns, or of a run */
  int64_t n_items;    /* runs of one result */
  int64_t chunk_items, n_chunks;
  totals *partial; /* [n_groups][n_chunks], or NULL with one chunk */
} reduction;

/* Takes the axes of one kind, merging those that lie behind one another in the operand and in `to`. */
static void collect_axes(const weft_tensor *a, unsigned mask, axes *x) {
  int64_t to = 1;
  x->numel = 1;
  for (int i = a->rank - 1; i >= 0; i--) { /* from the innermost outwards, put at the front below */
    if (!(mask & 1u << i)) continue;
    int64_t n = a->shape[i], place = to;
    to *= n;
    x->numel *= n;
    if (n == 1) continue;
    axis *last = x->n_axes > 0 ? &x->axis[x->n_axes - 1] : NULL;
    if (last && a->strides[i] == last->stride * last->n)
      last->n *= n;
    else
      x->axis[x->n_axes++] = (axis){n, a->strides[i], place};
  }
  for (int i = 0; i < x->n_axes / 2; i++) {
    axis other = x->axis[i];
    x->axis[i] = x->axis[x->n_axes - 1 - i];
    x->axis[x->n_axes - 1 - i] = other;
  }
}

/* The place of the axis of the smallest stride, -1 without any. */
static int nearest_axis(const axes *x) {
  int best = -1;
  for (int i = 0; i < x->n_axes; i++)
    if (best < 0 || x->axis[i].stride <= x->axis[best].stride) best = i;
  return best;
}

static axis take_axis(axes *x, int place) {
  axis taken = x->axis[place];
  x->n_axes--;
  for (int i = place; i < x->n_axes; i++) x->axis[i] = x->axis[i + 1];
  x->numel /= taken.n;
  return taken;
}

static void take_inner(reduction *r) {
  int kept = nearest_axis(&r->kept), reduced = nearest_axis(&r->reduced);
  r->inner = (axis){1, 1, 0};
  r->is_inner_kept = kept >= 0 && (reduced < 0 || r->kept.axis[kept].stride < r->reduced.axis[reduced].stride);
  if (r->is_inner_kept)
    r->inner = take_axis(&r->kept, kept);
  else if (reduced >= 0)
    r->inner = take_axis(&r->reduced, reduced);
}

/* Moves *index (of the operand) and *to to element `number` of the axes' row-major order. */
static void walk(const axes *x, int64_t number, int64_t *index, int64_t *to) {
  for (int i = x->n_axes - 1; i >= 0; i--) {
    *index += number % x->axis[i].n * x->axis[i].stride;
    *to += number % x->axis[i].n * x->axis[i].to;
    number /= x->axis[i].n;
  }
}

/* Where a group of results begins, and how many they are. */
static void locate_group(const reduction *r, int64_t group, int64_t *index, int64_t *to, int64_t *n) {
  *index = *to = 0;
  *n = 1;
  if (r->is_inner_kept) {
    int64_t column = group % r->n_blocks * COLUMNS;
    group /= r->n_blocks;
    *n = weft__min_i64(r->inner.n - column, COLUMNS);
    *index = column * r->inner.stride;
    *to = column * r->inner.to;
  }
  walk(&r->kept, group, index, to);
}

/* Adds items first .. end-1 to the totals of a group of n results that begins at `start`. */
static void add_items(const reduction *r, int64_t start, int64_t n, int64_t first, int64_t end, totals *t) {
  float scratch[WEFT__PIECE];
  for (int64_t item = first; item < end; item++) {
    int64_t index = start, place = 0;
    if (r->is_inner_kept) {
      walk(&r->reduced, item, &index, &place);
      r->reducer->across(t, r->sign, n, weft__real_run(r->a, index, r->inner.stride, n, scratch), place);
      continue;
    }
    int64_t from = item % r->n_blocks * WEFT__PIECE, n_run = weft__min_i64(r->inner.n - from, WEFT__PIECE);
    index += from * r->inner.stride;
    place += from * r->inner.to;
    walk(&r->reduced, item / r->n_blocks, &index, &place);
    r->reducer->run(t, r->sign, n_run, weft__real_run(r->a, index, r->inner.stride, n_run, scratch), place,
                    r->inner.to);
  }
}

static void write_results(const reduction *r, const totals *t, int64_t to, int64_t n) {
  float *y = weft__cpu_data(r->out);
  for (int64_t i = 0; i < n; i++, to += r->is_inner_kept ? r->inner.to : 0) {
    if (r->op == WEFT_OP_ID_argmax)
      ((int32_t *)weft__cpu_data(r->out))[to] = (int32_t)t->place[i];
    else if (r->op == WEFT_OP_ID_sum)
      y[to] = (float)t->sum[i];
    else if (r->op == WEFT_OP_ID_mean)
      y[to] = (float)(t->sum[i] / (double)r->n_reduced);
    else
      y[to] = r->sign * t->best[i];
  }
}

/* Units first .. end-1, of one chunk and one group each. */
static void reduce_units(void *context, int64_t first, int64_t end) {
  const reduction *r = context;
  for (int64_t unit = first; unit < end; unit++) {
    int64_t index, to, n, from = unit % r->n_chunks * r->chunk_items;
    totals own, *t = r->partial ? &r->partial[unit] : &own;
    locate_group(r, unit / r->n_chunks, &index, &to, &n);
    r->reducer->start(t, n);
    add_items(r, index, n, from, weft__min_i64(from + r->chunk_items, r->n_items), t);
    if (!r->partial) write_results(r, t, to, n);
  }
}

static void merge_chunks(const reduction *r) {
  for (int64_t group = 0; group < r->n_groups; group++) {
    int64_t index, to, n;
    totals *all = &r->partial[group * r->n_chunks];
    locate_group(r, group, &index, &to, &n);
    for (int64_t chunk = 1; chunk < r->n_chunks; chunk++) r->reducer->merge(all, &all[chunk], n);
    write_results(r, all, to, n);
  }
}

/* Cuts the work; see the top of the file. */
static void plan(reduction *r) {
  int64_t piece = r->is_inner_kept ? COLUMNS : WEFT__PIECE, width = weft__min_i64(r->inner.n, piece);
  r->n_blocks = (r->inner.n + piece - 1) / piece;
  r->n_groups = r->kept.numel * (r->is_inner_kept ? r->n_blocks : 1);
  r->n_items = r->reduced.numel * (r->is_inner_kept ? 1 : r->n_blocks);
  if (r->n_reduced == 0) r->n_items = 0;
  r->chunk_items = r->n_groups < ENOUGH_TASKS ? CHUNK_ELEMENTS / (width > 0 ? width : 1) : r->n_items;
  if (r->chunk_items < 1) r->chunk_items = 1;
  r->n_chunks = r->n_items > r->chunk_items ? (r->n_items + r->chunk_items - 1) / r->chunk_items : 1;
}

static weft_status run_reduction(weft__backend *backend, const weft__op_call *call, const reducer *way, float sign) {
  reduction r = {.cpu = weft__cpu_of(backend), .op = call->op, .reducer = way, .sign = sign};
  r.a = call->in[0];
  r.out = call->out;
  if (weft_tensor_numel(r.out) == 0) return WEFT_OK;
  unsigned mask = weft__reduced_axes(call);
  collect_axes(r.a, ~mask, &r.kept);
  collect_axes(r.a, mask, &r.reduced);
  r.n_reduced = r.reduced.numel;
  if (r.n_reduced > 0)
    take_inner(&r);
  else
    r.inner = (axis){1, 1, 0};
  plan(&r);
  size_t n_bytes = 0;
  if (r.n_chunks > 1) {
    if (!weft__mul_size((size_t)r.n_groups * (size_t)r.n_chunks, sizeof *r.partial, &n_bytes))
      return weft__error(WEFT_ELIMIT, "reduction: its totals exceed the address space");
    r.partial = weft__buffers_get(r.cpu->buffers, n_bytes);
    if (!r.partial) return WEFT_ENOMEM;
  }
  weft__cpu_rows(r.cpu, r.n_groups * r.n_chunks, r.chunk_items * weft__min_i64(r.inner.n, WEFT__PIECE), reduce_units,
                 &r);
  if (r.partial) {
    merge_chunks(&r);
    weft__buffers_put(r.cpu->buffers, r.partial, n_bytes);
  }
  return WEFT_OK;
}

weft_status weft__cpu_sum(weft__backend *backend, const weft__op_call *call) {
  return run_reduction(backend, call, &SUM, 1);
}

weft_status weft__cpu_sum_squares(weft__backend *backend, const weft__op_call *call) {
  weft__op_call all = *call;
  all.op = WEFT_OP_ID_sum;
  all.attrs = &(const weft_reduce_attrs){0};
  return run_reduction(backend, &all, &SUM_SQUARES, 1);
}

weft_status weft__cpu_mean(weft__backend *backend, const weft__op_call *call) {
  return run_reduction(backend, call, &SUM, 1);
}

weft_status weft__cpu_max(weft__backend *backend, const weft__op_call *call) {
  return run_reduction(backend, call, &MAX, 1);
}

weft_status weft__cpu_min(weft__backend *backend, const weft__op_call *call) {
  return run_reduction(backend, call, &MAX, -1);
}

weft_status weft__cpu_argmax(weft__backend *backend, const weft__op_call *call) {
  return run_reduction(backend, call, &ARGMAX, 1);
}
