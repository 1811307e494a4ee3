/* op_index.c - operators by index: gather, scatter_add.
 *
 * Kernels check each index and note the first that is wrong (faults.c).  The result is written in as many windows as
 * bindings ask for; an operand beyond one binding is read in windows along the indexed axis, of which each element of the
 * result finds its own. */
#include "gpu/gpu.h"

enum { PER_GROUP = 256 };

/* ---- gather ---- */

typedef struct gather_loop {
  weft__gpu *gpu;
  const weft_tensor *a, *b, *y;
  int axis;
} gather_loop;

static weft_status too_large(const weft__gpu *gpu, const char *what) {
  return weft__error(WEFT_EUNSUPPORTED, "%s: %s: an operand larger than one binding (%lld elements)", gpu->info.name,
                     what, (long long)weft__gpu_window_elements(gpu));
}

static weft__gpu_gather_params gather_params(const gather_loop *l) {
  int rank = l->y->rank;
  weft__gpu_gather_params p = {.rank = (uint32_t)rank,
                               .axis = (uint32_t)l->axis,
                               .op = l->gpu->base.current_op,
                               .extent = (uint32_t)weft__min_i64(l->a->shape[l->axis], UINT32_MAX),
                               .a_axis_stride = (uint32_t)l->a->strides[l->axis]};
  int64_t place = 1;
  for (int i = rank - 1; i >= 0; i--) {
    p.shape[i] = (uint32_t)l->y->shape[i];
    p.a_strides[i] = i == l->axis ? 0 : (uint32_t)weft__broadcast_stride(l->a, rank, i);
    p.b_strides[i] = (uint32_t)weft__broadcast_stride(l->b, rank, i);
    p.b_places[i] = l->b->shape[i] == 1 ? 0 : (uint32_t)place;
    place *= l->b->shape[i];
  }
  return p;
}

/* Elements of y from `first` on, one window of them, out of `n_indices` of a's axis from `index_first` on. */
static weft_status gather_window(const gather_loop *l, int64_t first, int64_t index_first, int64_t n_indices) {
  weft__gpu_gather_params p = gather_params(l);
  int64_t n = weft__min_i64(weft_tensor_numel(l->y) - first, weft__gpu_window_elements(l->gpu));
  weft_tensor part = *l->a;
  part.shape[l->axis] = n_indices;
  p.n = (uint32_t)n;
  p.first = (uint32_t)first;
  p.index_first = (uint32_t)index_first;
  p.n_indices = (uint32_t)n_indices;
  const weft__gpu_range ranges[] = {
      weft__gpu_window(l->gpu, l->a, index_first * l->a->strides[l->axis], weft__gpu_span(&part), &p.a_offset),
      weft__gpu_window(l->gpu, l->b, 0, weft__gpu_span(l->b), &p.b_offset),
      weft__gpu_window(l->gpu, l->y, first, n, &p.y_offset),
  };
  bool is_half = l->y->dtype == WEFT_F16 || l->y->dtype == WEFT_BF16;
  int64_t n_words = is_half ? (n + 1) / 2 : n;
  if (is_half) p.y_offset /= 2; /* windows of a whole tensor begin with a word */
  const weft__wgsl_const constants[] = {{"DTYPE", l->y->dtype}, {NULL, 0}};
  return weft__gpu_dispatch(l->gpu, WEFT__KERNEL_gather, constants, ranges, &p,
                            (uint64_t)((n_words + PER_GROUP - 1) / PER_GROUP));
}

/* Indices of an axis whose elements, with those of the other axes, fit a window; 0 if not even one does. */
static int64_t indices_of_window(const weft__gpu *gpu, const weft_tensor *t, int axis) {
  weft_tensor one = *t;
  one.shape[axis] = 1;
  int64_t room = weft__gpu_window_elements(gpu) - weft__gpu_span(&one), stride = t->strides[axis];
  if (room < 0) return 0;
  return stride == 0 || t->shape[axis] <= 1 ? weft__max_i64(t->shape[axis], 1) : room / stride + 1;
}

weft_status weft__gpu_gather(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  const gather_loop l = {gpu, call->in[0], call->in[1], call->out, ((const weft_gather_attrs *)call->attrs)->axis};
  int64_t n = weft_tensor_numel(l.y), window = weft__gpu_window_elements(gpu), extent = l.a->shape[l.axis];
  int64_t n_indices = indices_of_window(gpu, l.a, l.axis);
  if (n > UINT32_MAX || weft__gpu_span(l.b) > window || n_indices == 0) return too_large(gpu, "gather");
  weft_status status = WEFT_OK;
  for (int64_t first = 0; first < n && !status; first += window)
    for (int64_t index = 0; (index == 0 || index < extent) && !status; index += n_indices)
      status = gather_window(&l, first, index, weft__min_i64(n_indices, extent - index));
  return status;
}
