/* op_reduce.c - sum, mean, max, min and argmax over any axes of any view.
 *
 * The axes that are kept and those that are reduced are two lists, each merged and sorted by stride.  Where few results would
 * leave most of the device idle, or many elements go into one, the reduced elements are cut into chunks: each workgroup
 * writes its totals, and these are reduced in turn, as elements of a contiguous operand.  What is wider than a binding is
 * halved along its widest axis; halves of a reduced axis meet as two totals.  How the work is cut depends on shapes and
 * strides alone, so a sum has the same bits each time. */
#include "gpu/gpu.h"

#include <math.h> /* ldexpf */

enum {
  THREADS = 256,       /* of reduce.wgsl */
  WIDEST_BLOCK = 64,   /* results that lie side by side and share a workgroup */
  LANE_ELEMENTS = 16,  /* of a result that a lane takes at least, if there are as many */
  LEAST_CHUNK = 32,    /* elements of a lane, so that a chunk is worth its total */
  LONGEST_CHUNK = 512, /* likewise at most, 64 for each running sum: what bounds a sum's error */
  ENOUGH_GROUPS = 1024 /* that fill a device */
};
enum { SUM, MAX, MIN, ARGMAX }; /* OP of reduce.wgsl */

typedef struct axis {
  int64_t n, stride; /* of the operand */
  int64_t to;        /* elements of the result (kept), or places (reduced), from one index to the next */
} axis;

typedef struct axes {
  axis axis[WEFT_MAX_RANK]; /* the largest stride first */
  int n_axes;
  int64_t numel; /* of all of them */
} axes;

/* Elements of a tensor that are to be reduced, or totals of them. */
typedef struct part {
  const weft_tensor *a;
  int64_t first;    /* element of a */
  int64_t n_totals; /* a holds so many totals; 0: elements */
  axes kept, reduced;
  int64_t first_result, first_place;
} part;

/* Where results go; or, if n_totals is not 0, sets of totals: n_results apart, a part's first from element `first` on. */
typedef struct target {
  const weft_tensor *y;
  int64_t n_totals, n_results, first;
} target;

typedef struct reduction {
  weft__gpu *gpu;
  uint32_t op;
  float before, after; /* factors of a sum's terms and of the sum */
  bool squares;        /* the terms of the sum are squared */
} reduction;

/* ---- axes ---- */

/* Takes the axes of one kind, merging those that lie behind one another in the operand and in `to`, and sorts them. */
static void collect_axes(const weft_tensor *a, unsigned mask, axes *x) {
  int64_t to = 1;
  *x = (axes){.numel = 1};
  for (int i = a->rank - 1; i >= 0; i--) { /* from the innermost outwards */
    if (!(mask & 1u << i)) continue;
    axis next = {a->shape[i], a->strides[i], to}, *last = x->n_axes > 0 ? &x->axis[x->n_axes - 1] : NULL;
    to *= next.n;
    x->numel *= next.n;
    if (next.n == 1) continue;
    if (last && next.stride == last->stride * last->n && next.to == last->to * last->n)
      last->n *= next.n;
    else
      x->axis[x->n_axes++] = next;
  }
  for (int i = 1; i < x->n_axes; i++) /* few: by insertion */
    for (int k = i; k > 0 && x->axis[k].stride > x->axis[k - 1].stride; k--) {
      axis other = x->axis[k];
      x->axis[k] = x->axis[k - 1];
      x->axis[k - 1] = other;
    }
}

static int64_t reach(const axis *x, bool of_result) { return (x->n - 1) * (of_result ? x->to : x->stride); }

static int64_t span(const axes *x, bool of_result) {
  int64_t last = 0;
  for (int i = 0; i < x->n_axes; i++) last += reach(&x->axis[i], of_result);
  return last;
}

/* Words from the first to the last that a part reads, and that it writes. */
static int64_t read_span(const part *p) {
  return p->n_totals ? 2 * p->n_totals : span(&p->kept, false) + span(&p->reduced, false) + 1;
}
static int64_t written_span(const part *p, const target *to) {
  return to->n_totals ? 2 * to->n_totals : span(&p->kept, true) + 1;
}

static int64_t smallest_stride(const axes *x) { return x->n_axes ? x->axis[x->n_axes - 1].stride : INT64_MAX; }

static void set_axes(const axes *x, uint32_t *rank, uint32_t *shape, uint32_t *strides, uint32_t *to) {
  *rank = (uint32_t)x->n_axes;
  for (int i = 0; i < x->n_axes; i++) {
    shape[i] = (uint32_t)x->axis[i].n;
    strides[i] = (uint32_t)x->axis[i].stride;
    to[i] = (uint32_t)x->axis[i].to;
  }
}

/* ---- one dispatch ---- */

/* How a part is cut. */
typedef struct plan {
  bool is_across;
  uint32_t n_lanes;
  int64_t chunk, n_chunks;
} plan;

/* The largest power of two up to n, at least 1 and at most `most`. */
static uint32_t power_of_two(int64_t n, uint32_t most) {
  uint32_t power = 1;
  while (power < most && 2 * power <= n) power *= 2;
  return power;
}

static int64_t n_blocks(const part *p, const plan *cut) {
  int64_t block = THREADS / cut->n_lanes;
  return (p->kept.numel + block - 1) / block;
}

static plan plan_of(const part *p) {
  plan cut = {.is_across = smallest_stride(&p->kept) < smallest_stride(&p->reduced)};
  int64_t n = p->reduced.numel;
  uint32_t most = cut.is_across ? THREADS / power_of_two(2 * p->kept.numel - 1, WIDEST_BLOCK) : THREADS;
  cut.n_lanes = power_of_two(n / LANE_ELEMENTS, most);
  int64_t wanted = weft__min_i64(ENOUGH_GROUPS / n_blocks(p, &cut), n / (LEAST_CHUNK * cut.n_lanes)),
          longest = (int64_t)LONGEST_CHUNK * cut.n_lanes;
  cut.n_chunks = weft__max_i64(1, weft__max_i64(wanted, (n + longest - 1) / longest));
  cut.chunk = weft__max_i64(1, (n + cut.n_chunks - 1) / cut.n_chunks);
  cut.n_chunks = weft__max_i64(1, (n + cut.chunk - 1) / cut.chunk);
  return cut;
}

/* Reduces a part that fits the bindings; of more than one chunk, to totals. */
static weft_status dispatch(const reduction *r, const part *p, const plan *cut, const target *to) {
  bool is_last = to->n_totals == 0;
  weft__gpu_reduce_params params = {.n_results = (uint32_t)p->kept.numel,
                                    .n_reduced = (uint32_t)p->reduced.numel,
                                    .chunk = (uint32_t)cut->chunk,
                                    .n_chunks = (uint32_t)cut->n_chunks,
                                    .a_places = (uint32_t)p->n_totals,
                                    .y_places = (uint32_t)to->n_totals,
                                    .y_chunk = (uint32_t)to->n_results,
                                    .first_place = (uint32_t)p->first_place,
                                    .before = r->before,
                                    .after = r->after};
  set_axes(&p->kept, &params.kept_rank, params.kept_shape, params.kept_strides, params.kept_to);
  set_axes(&p->reduced, &params.reduced_rank, params.reduced_shape, params.reduced_strides, params.reduced_to);
  const weft__gpu_range ranges[] = {
      weft__gpu_window(r->gpu, p->a, p->first, read_span(p), &params.a_offset),
      weft__gpu_window(r->gpu, to->y, is_last ? p->first_result : 0, written_span(p, to), &params.y_offset)};
  if (!is_last) params.y_offset += (uint32_t)(to->first + p->first_result);
  const weft__wgsl_const constants[] = {{"OP", r->op},
                                        {"DTYPE", p->a->dtype},
                                        {"LANES", cut->n_lanes},
                                        {"ACROSS", cut->is_across},
                                        {"SQUARES", r->squares},
                                        {"IS_LATER", p->n_totals > 0},
                                        {"IS_PARTIAL", !is_last},
                                        {"IS_LINE", p->reduced.n_axes <= 1},
                                        {NULL, 0}};
  return weft__gpu_dispatch(r->gpu, WEFT__KERNEL_reduce, constants, ranges, &params,
                            (uint64_t)n_blocks(p, cut) * (uint64_t)cut->n_chunks);
}

/* ---- totals ---- */

static weft_status reduce(const reduction *r, const part *p, const target *to);

/* `n_sets` totals of each of a part's results, in a buffer of their own. */
typedef struct totals {
  weft_tensor t;
  weft__storage storage;
  int64_t n_sets;
  part inner; /* the part, its results numbered as they lie in a set */
} totals;

static weft_status totals_open(const reduction *r, const part *p, int64_t n_sets, totals *x) {
  *x = (totals){.n_sets = n_sets, .inner = *p};
  int64_t n_words = 2 * n_sets * p->kept.numel, to = 1;
  x->storage = (weft__storage){.backend = &r->gpu->base, .n_bytes = (size_t)n_words * sizeof(uint32_t)};
  x->t = (weft_tensor){.dtype = WEFT_F32, .rank = 1, .shape = {n_words}, .strides = {1}, .storage = &x->storage};
  x->inner.first_result = 0;
  for (int i = p->kept.n_axes - 1; i >= 0; i--) {
    x->inner.kept.axis[i].to = to;
    to *= p->kept.axis[i].n;
  }
  return weft__gpu_alloc(&r->gpu->base, x->storage.n_bytes, &x->storage.buffer);
}

static target set_of(const totals *x, int64_t set) {
  int64_t n = x->inner.kept.numel;
  return (target){&x->t, x->n_sets * n, n, set * n};
}

/* Reduces the totals of part p to where it was to go, and frees them. */
static weft_status totals_close(const reduction *r, const part *p, totals *x, weft_status status, const target *to) {
  int64_t n = p->kept.numel;
  part later = {.a = &x->t, .n_totals = x->n_sets * n, .kept = p->kept, .first_result = p->first_result};
  for (int i = 0; i < later.kept.n_axes; i++) later.kept.axis[i].stride = x->inner.kept.axis[i].to;
  later.reduced = (axes){.axis = {{x->n_sets, n, 0}}, .n_axes = 1, .numel = x->n_sets};
  if (!status) status = reduce(r, &later, to);
  weft__gpu_free(&r->gpu->base, x->storage.buffer, x->storage.n_bytes);
  return status;
}

static weft_status reduce_chunks(const reduction *r, const part *p, const plan *cut, const target *to) {
  totals x;
  weft_status status = totals_open(r, p, cut->n_chunks, &x);
  if (status) return status;
  target first = set_of(&x, 0);
  return totals_close(r, p, &x, dispatch(r, &x.inner, cut, &first), to);
}

/* ---- parts ---- */

/* Whether two totals of each result can be kept. */
static bool are_totals_few(const reduction *r, const part *p) {
  return p->kept.numel <= weft__gpu_window_elements(r->gpu) / 4;
}

/* The index of the axis along which halving shortens a part the most, among the kept or the reduced ones. */
static int widest_axis(const reduction *r, const part *p, bool *is_kept) {
  int widest = -1;
  int64_t most = -1;
  for (int kind = 0; kind < (are_totals_few(r, p) ? 2 : 1); kind++) {
    const axes *x = kind == 0 ? &p->kept : &p->reduced;
    for (int i = 0; i < x->n_axes; i++)
      if (reach(&x->axis[i], false) > most) {
        most = reach(&x->axis[i], false);
        widest = i;
        *is_kept = kind == 0;
      }
  }
  return widest;
}

/* Half 0 or 1 of a part, along one of its axes. */
static part half_of(const part *p, bool is_kept, int64_t i, int half) {
  part h = *p;
  axes *x = is_kept ? &h.kept : &h.reduced;
  int64_t n = x->axis[i].n, lower = n / 2;
  if (half) h.first += lower * x->axis[i].stride;
  if (half) *(is_kept ? &h.first_result : &h.first_place) += lower * x->axis[i].to;
  x->axis[i].n = half ? n - lower : lower;
  x->numel = x->numel / n * x->axis[i].n;
  return h;
}

static weft_status reduce_halves(const reduction *r, const part *p, const target *to) {
  bool is_kept = true;
  int i = widest_axis(r, p, &is_kept);
  totals x;
  weft_status status = is_kept ? WEFT_OK : totals_open(r, p, 2, &x);
  for (int h = 0; h < 2 && !status && is_kept; h++) {
    part half = half_of(p, true, i, h);
    status = reduce(r, &half, to);
  }
  if (status || is_kept) return status;
  for (int h = 0; h < 2 && !status; h++) {
    part half = half_of(&x.inner, false, i, h);
    target set = set_of(&x, h);
    status = reduce(r, &half, &set);
  }
  return totals_close(r, p, &x, status, to);
}

static weft_status reduce(const reduction *r, const part *p, const target *to) {
  int64_t window = weft__gpu_window_elements(r->gpu);
  if (read_span(p) > window || written_span(p, to) > window) return reduce_halves(r, p, to);
  plan cut = plan_of(p);
  return cut.n_chunks > 1 ? reduce_chunks(r, p, &cut, to) : dispatch(r, p, &cut, to);
}

static weft_status run(weft__backend *backend, const weft__op_call *call, uint32_t op) {
  const weft_tensor *a = call->in[0];
  if (weft_tensor_numel(call->out) == 0) return WEFT_OK;
  reduction r = {weft__gpu_of(backend), op, 1, 1, call->op == WEFT_OP_ID_sum_squares};
  part whole = {.a = a};
  unsigned mask = weft__reduced_axes(call);
  collect_axes(a, ~mask, &whole.kept);
  collect_axes(a, mask, &whole.reduced);
  if (call->op == WEFT_OP_ID_mean) { /* terms divided by a power of two, so that their sum is finite */
    int power = 0;
    frexp((double)whole.reduced.numel, &power);
    r.before = ldexpf(1, -power);
    r.after = (float)(ldexp(1, power) / (double)whole.reduced.numel);
  }
  return reduce(&r, &whole, &(target){.y = call->out});
}

weft_status weft__gpu_sum(weft__backend *backend, const weft__op_call *call) { return run(backend, call, SUM); }
weft_status weft__gpu_mean(weft__backend *backend, const weft__op_call *call) { return run(backend, call, SUM); }
weft_status weft__gpu_max(weft__backend *backend, const weft__op_call *call) { return run(backend, call, MAX); }
weft_status weft__gpu_min(weft__backend *backend, const weft__op_call *call) { return run(backend, call, MIN); }

weft_status weft__gpu_sum_squares(weft__backend *backend, const weft__op_call *call) {
  weft__op_call all = *call;
  all.attrs = &(const weft_reduce_attrs){0};
  return run(backend, &all, SUM);
}
weft_status weft__gpu_argmax(weft__backend *backend, const weft__op_call *call) { return run(backend, call, ARGMAX); }
