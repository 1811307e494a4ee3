/* op_copy.c - strided copies, of views to tensors and of tensors to views: contiguous copies, concat.
 *
 * Axes that lie alike on both sides are first merged.  Then the kernel is chosen: quads where both sides are contiguous
 * along the innermost axis, tiles where they are along different ones, single elements elsewhere.  What is wider than a
 * binding is halved along its widest axis. */
#include "gpu/gpu.h"

enum { PER_GROUP = 256, TILE = 32, LEAST_TILED = 16 };

/* Element (i, j, ...) goes from `from_first` + i * from[0] + ... to `to_first` + i * to[0] + ... */
typedef struct axes {
  int rank;
  int64_t shape[WEFT_MAX_RANK], from[WEFT_MAX_RANK], to[WEFT_MAX_RANK];
  int64_t from_first, to_first;
} axes;

/* The axes of `to`, less those of one element and those that continue the axis before them on both sides. */
static axes merged_axes(const weft_tensor *from, const weft_tensor *to) {
  axes m = {.rank = 0};
  for (int i = 0; i < to->rank; i++) {
    if (to->shape[i] == 1) continue;
    int last = m.rank - 1;
    if (last >= 0 && m.from[last] == to->shape[i] * from->strides[i] && m.to[last] == to->shape[i] * to->strides[i]) {
      m.shape[last] *= to->shape[i];
      m.from[last] = from->strides[i];
      m.to[last] = to->strides[i];
      continue;
    }
    m.shape[m.rank] = to->shape[i];
    m.from[m.rank] = from->strides[i];
    m.to[m.rank++] = to->strides[i];
  }
  return m;
}

static int64_t span(const axes *m, const int64_t *strides) {
  int64_t last = 0;
  for (int i = 0; i < m->rank; i++) last += (m->shape[i] - 1) * strides[i];
  return last + 1;
}

static void set_axis(weft__gpu_copy_params *p, const axes *m, int from_axis, int64_t unit) {
  p->shape[p->rank] = (uint32_t)m->shape[from_axis];
  p->a_strides[p->rank] = (uint32_t)(m->from[from_axis] / unit);
  p->y_strides[p->rank++] = (uint32_t)(m->to[from_axis] / unit);
}

/* The axis other than the innermost along which the source is contiguous, -1 if a tile would not pay. */
static int tile_axis(const axes *m) {
  int last = m->rank - 1;
  if (last < 1 || m->to[last] != 1 || m->shape[last] < LEAST_TILED) return -1;
  for (int i = 0; i < last; i++)
    if (m->from[i] == 1 && m->shape[i] >= LEAST_TILED) return i;
  return -1;
}

static bool is_in_quads(const axes *m, const weft__gpu_copy_params *p) {
  int last = m->rank - 1;
  bool fits = last >= 0 && m->from[last] == 1 && m->to[last] == 1 && m->shape[last] % 4 == 0 && p->a_offset % 4 == 0 &&
              p->y_offset % 4 == 0;
  for (int i = 0; i < last && fits; i++) fits = m->from[i] % 4 == 0 && m->to[i] % 4 == 0;
  return fits;
}

static weft_status copy_tiles(weft__gpu *gpu, const axes *m, int row_axis, weft__gpu_copy_params *p,
                              const weft__gpu_range *ranges) {
  int last = m->rank - 1;
  p->n_rows = (uint32_t)m->shape[row_axis];
  p->n_columns = (uint32_t)m->shape[last];
  p->a_column = (uint32_t)m->from[last];
  p->y_row = (uint32_t)m->to[row_axis];
  uint64_t n_groups = (uint64_t)((p->n_rows + TILE - 1) / TILE) * ((p->n_columns + TILE - 1) / TILE);
  for (int i = 0; i < last; i++) {
    if (i == row_axis) continue;
    set_axis(p, m, i, 1);
    n_groups *= (uint64_t)m->shape[i];
  }
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_copy_tiles, NULL, ranges, p, n_groups);
}

static weft_status copy_elements(weft__gpu *gpu, const axes *m, weft__gpu_copy_params *p,
                                 const weft__gpu_range *ranges) {
  bool in_quads = is_in_quads(m, p);
  int64_t n = 1;
  for (int i = 0; i < m->rank; i++) {
    bool is_run = in_quads && i == m->rank - 1; /* its own stride stays 1 */
    set_axis(p, m, i, in_quads && !is_run ? 4 : 1);
    if (is_run) p->shape[i] /= 4;
    n *= p->shape[i];
  }
  if (in_quads) p->a_offset /= 4, p->y_offset /= 4;
  p->n = (uint32_t)n;
  return weft__gpu_dispatch(gpu, in_quads ? WEFT__KERNEL_copy_quads : WEFT__KERNEL_copy, NULL, ranges, p,
                            (uint64_t)((n + PER_GROUP - 1) / PER_GROUP));
}

static weft_status copy_axes(weft__gpu *gpu, const weft_tensor *from, const weft_tensor *to, const axes *m) {
  int64_t from_span = span(m, m->from), to_span = span(m, m->to), window = weft__gpu_window_elements(gpu);
  if (from_span > window || to_span > window) {
    int widest = 0;
    for (int i = 1; i < m->rank; i++)
      if ((m->shape[i] - 1) * (m->from[i] + m->to[i]) > (m->shape[widest] - 1) * (m->from[widest] + m->to[widest]))
        widest = i;
    axes half = *m;
    half.shape[widest] /= 2;
    weft_status status = copy_axes(gpu, from, to, &half);
    if (status) return status;
    half.from_first += half.shape[widest] * m->from[widest];
    half.to_first += half.shape[widest] * m->to[widest];
    half.shape[widest] = m->shape[widest] - half.shape[widest];
    return copy_axes(gpu, from, to, &half);
  }
  weft__gpu_copy_params p = {.rank = 0};
  const weft__gpu_range ranges[] = {weft__gpu_window(gpu, from, m->from_first, from_span, &p.a_offset),
                                    weft__gpu_window(gpu, to, m->to_first, to_span, &p.y_offset)};
  int row_axis = tile_axis(m);
  return row_axis < 0 ? copy_elements(gpu, m, &p, ranges) : copy_tiles(gpu, m, row_axis, &p, ranges);
}

weft_status weft__gpu_copy_strided(weft__gpu *gpu, const weft_tensor *from, const weft_tensor *to) {
  if (weft_tensor_numel(to) == 0) return WEFT_OK;
  axes m = merged_axes(from, to);
  return copy_axes(gpu, from, to, &m);
}

weft_status weft__gpu_concat(weft__backend *backend, const weft__op_call *call) {
  weft__gpu *gpu = weft__gpu_of(backend);
  int axis = ((const weft_concat_attrs *)call->attrs)->axis;
  weft_tensor part = *call->out; /* the operand's share of the result */
  weft_status status = WEFT_OK;
  for (int i = 0; i < call->n_inputs && !status; i++) {
    part.shape[axis] = call->in[i]->shape[axis];
    status = weft__gpu_copy_strided(gpu, call->in[i], &part);
    part.offset += part.shape[axis] * part.strides[axis];
  }
  return status;
}
