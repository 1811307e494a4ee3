/* op_copy.c - copies between views of any dtypes: contiguous, cast, concat, copy_rows_into, and what other operators gather
 * with.
 *
 * Axes are first sorted by the result's strides, and those that lie alike on both sides merged.  Then the kernel is chosen:
 * quads where both sides are contiguous along the innermost axis, tiles where they are along different ones, quads where a
 * contiguous tensor changes its dtype, single elements elsewhere.  Halves that keep their dtype and lie evenly
 * are copied as words.  What is wider than a binding is cut in two along its widest axis. */
#include "gpu/gpu.h"

enum { PER_GROUP = 256, TILE = 32, TILE_IN_QUADS = 64, LEAST_TILED = 16, CAST_UNIT = 8, CUT = 1024 };

/* Element (i, j, ...) goes from `from_first` + i * from[0] + ... to `to_first` + i * to[0] + ... */
typedef struct axes {
  int rank;
  int64_t shape[WEFT_MAX_RANK], from[WEFT_MAX_RANK], to[WEFT_MAX_RANK];
  int64_t from_first, to_first;
} axes;

/* ---- axes ---- */

/* The axes of more than one element, the widest steps of the result first. */
static axes sorted_axes(const weft_tensor *from, const weft_tensor *to) {
  axes m = {.rank = 0};
  for (int i = 0; i < to->rank; i++) {
    if (to->shape[i] == 1) continue;
    int at = m.rank++;
    for (; at > 0 && m.to[at - 1] < to->strides[i]; at--) {
      m.shape[at] = m.shape[at - 1];
      m.from[at] = m.from[at - 1];
      m.to[at] = m.to[at - 1];
    }
    m.shape[at] = to->shape[i];
    m.from[at] = from->strides[i];
    m.to[at] = to->strides[i];
  }
  return m;
}

/* Joins an axis to the one before it if it continues that on both sides. */
static axes merged_axes(const axes *sorted) {
  axes m = {.rank = 0};
  for (int i = 0; i < sorted->rank; i++) {
    int64_t extent = sorted->shape[i], from = sorted->from[i], to = sorted->to[i];
    int last = m.rank - 1;
    bool continues = last >= 0 && m.from[last] == extent * from && m.to[last] == extent * to;
    int at = continues ? last : m.rank++;
    m.shape[at] = continues ? m.shape[at] * extent : extent;
    m.from[at] = from;
    m.to[at] = to;
  }
  return m;
}

static int64_t n_elements(const axes *m) {
  int64_t n = 1;
  for (int i = 0; i < m->rank; i++) n *= m->shape[i];
  return n;
}

static int64_t span(const axes *m, const int64_t *strides) {
  int64_t last = 0;
  for (int i = 0; i < m->rank; i++) last += (m->shape[i] - 1) * strides[i];
  return last + 1;
}

/* Elements side by side in the result, from the innermost axis on. */
static int64_t run_of(const axes *m) {
  int64_t run = 1;
  for (int i = m->rank - 1; i >= 0 && m->to[i] == run; i--) run *= m->shape[i];
  return run;
}

/* Are the innermost axis, contiguous on both sides, all strides and both offsets multiples of n elements? */
static bool is_in_units(const axes *m, int64_t n, uint32_t a_offset, uint32_t y_offset) {
  int last = m->rank - 1;
  bool fits = last >= 0 && m->from[last] == 1 && m->to[last] == 1 && m->shape[last] % n == 0 && a_offset % n == 0 &&
              y_offset % n == 0;
  for (int i = 0; i < last && fits; i++) fits = m->from[i] % n == 0 && m->to[i] % n == 0;
  return fits;
}

/* Counts in units of n elements what is_in_units has found to be made of them. */
static void count_in_units(axes *m, int64_t n, weft__gpu_copy_params *p) {
  int last = m->rank - 1;
  for (int i = 0; i < last; i++) m->from[i] /= n, m->to[i] /= n;
  m->shape[last] /= n;
  p->a_offset /= (uint32_t)n;
  p->y_offset /= (uint32_t)n;
}

/* ---- kernels ---- */

static void set_axis(weft__gpu_copy_params *p, const axes *m, int axis) {
  p->shape[p->rank] = (uint32_t)m->shape[axis];
  p->a_strides[p->rank] = (uint32_t)m->from[axis];
  p->y_strides[p->rank++] = (uint32_t)m->to[axis];
}

/* The axis other than the innermost along which the source is contiguous, -1 if a tile would not pay. */
static int tile_axis(const axes *m) {
  int last = m->rank - 1;
  if (last < 1 || m->to[last] != 1 || m->shape[last] < LEAST_TILED) return -1;
  for (int i = 0; i < last; i++)
    if (m->from[i] == 1 && m->shape[i] >= LEAST_TILED) return i;
  return -1;
}

/* Whether tiles can be met in quads: along both axes of the tile, and in all other strides. */
static bool are_tiles_in_quads(const axes *m, int row_axis, const weft__gpu_copy_params *p) {
  int last = m->rank - 1;
  bool fits = m->shape[row_axis] % 4 == 0 && m->shape[last] % 4 == 0 && m->from[last] % 4 == 0 &&
              m->to[row_axis] % 4 == 0 && p->a_offset % 4 == 0 && p->y_offset % 4 == 0;
  for (int i = 0; i < last && fits; i++) fits = i == row_axis || (m->from[i] % 4 == 0 && m->to[i] % 4 == 0);
  return fits;
}

static weft_status copy_tiles(weft__gpu *gpu, axes *m, int row_axis, weft__gpu_copy_params *p,
                              const weft__gpu_range *ranges) {
  int last = m->rank - 1;
  bool in_quads = are_tiles_in_quads(m, row_axis, p);
  if (in_quads) {
    for (int i = 0; i < m->rank; i++) m->from[i] /= 4, m->to[i] /= 4; /* those of one element are not used */
    p->a_offset /= 4;
    p->y_offset /= 4;
  }
  p->n_rows = (uint32_t)m->shape[row_axis];
  p->n_columns = (uint32_t)m->shape[last];
  p->a_column = (uint32_t)m->from[last];
  p->y_row = (uint32_t)m->to[row_axis];
  uint32_t tile = in_quads ? TILE_IN_QUADS : TILE;
  uint64_t n_groups = (uint64_t)((p->n_rows + tile - 1) / tile) * ((p->n_columns + tile - 1) / tile);
  for (int i = 0; i < last; i++) {
    if (i == row_axis) continue;
    set_axis(p, m, i);
    n_groups *= (uint64_t)m->shape[i];
  }
  return weft__gpu_dispatch(gpu, in_quads ? WEFT__KERNEL_copy_tiles_quads : WEFT__KERNEL_copy_tiles, NULL, ranges, p,
                            n_groups);
}

static weft_status copy_quads(weft__gpu *gpu, const axes *m, weft__gpu_copy_params *p, const weft__gpu_range *ranges) {
  const weft__wgsl_const constants[] = {{"RANK", (uint32_t)m->rank}, {NULL, 0}};
  for (int i = 0; i < m->rank; i++) set_axis(p, m, i);
  p->n = (uint32_t)n_elements(m);
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_copy_quads, constants, ranges, p,
                            ((uint64_t)p->n + PER_GROUP - 1) / PER_GROUP);
}

/* The dtypes of a copy; equal ones leave the elements as they are. */
typedef struct dtypes {
  weft_dtype from, to;
} dtypes;

static weft_status copy_elements(weft__gpu *gpu, const axes *m, dtypes types, weft__gpu_copy_params *p,
                                 const weft__gpu_range *ranges) {
  const weft__wgsl_const constants[] = {{"A_DTYPE", types.from}, {"Y_DTYPE", types.to}, {NULL, 0}};
  for (int i = 0; i < m->rank; i++) set_axis(p, m, i);
  int64_t n = n_elements(m), run = run_of(m);
  if (weft__dtype_get(types.to)->block_bytes == 2) n = n / run * (run / 2 + 1);
  p->n = (uint32_t)n;
  p->run = (uint32_t)run;
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_copy, constants, ranges, p, ((uint64_t)n + PER_GROUP - 1) / PER_GROUP);
}

/* The first n elements of a contiguous copy into another dtype, a multiple of eight. */
static weft_status cast_quads(weft__gpu *gpu, int64_t n, dtypes types, weft__gpu_copy_params p,
                              const weft__gpu_range *ranges) {
  const weft__wgsl_const constants[] = {{"A_DTYPE", types.from}, {"Y_DTYPE", types.to}, {NULL, 0}};
  p.n = (uint32_t)(n * weft__dtype_get(types.to)->block_bytes / 16);
  return weft__gpu_dispatch(gpu, WEFT__KERNEL_cast, constants, ranges, &p, ((uint64_t)p.n + PER_GROUP - 1) / PER_GROUP);
}

/* ---- one window ---- */

/* Elements as they are; in words if two halves always make one. */
static weft_status copy_stored(weft__gpu *gpu, axes *m, weft_dtype dtype, weft__gpu_copy_params *p,
                               const weft__gpu_range *ranges) {
  if (weft__dtype_get(dtype)->block_bytes == 2) {
    if (!is_in_units(m, 2, p->a_offset, p->y_offset)) return copy_elements(gpu, m, (dtypes){dtype, dtype}, p, ranges);
    count_in_units(m, 2, p);
  }
  if (is_in_units(m, 4, p->a_offset, p->y_offset)) {
    count_in_units(m, 4, p);
    return copy_quads(gpu, m, p, ranges);
  }
  int row_axis = tile_axis(m);
  if (row_axis >= 0) return copy_tiles(gpu, m, row_axis, p, ranges);
  return copy_elements(gpu, m, (dtypes){WEFT_I32, WEFT_I32}, p, ranges);
}

static weft_status copy_window(weft__gpu *gpu, const weft_tensor *from, const weft_tensor *to, axes *m) {
  weft__gpu_copy_params p = {.rank = 0};
  const dtypes types = {from->dtype, to->dtype};
  const weft__gpu_range ranges[] = {weft__gpu_window(gpu, from, m->from_first, span(m, m->from), &p.a_offset),
                                    weft__gpu_window(gpu, to, m->to_first, span(m, m->to), &p.y_offset)};
  if (types.from == types.to) return copy_stored(gpu, m, types.to, &p, ranges);
  bool is_flat = m->rank == 1 && m->from[0] == 1 && m->to[0] == 1 && m->shape[0] >= CAST_UNIT &&
                 p.a_offset % CAST_UNIT == 0 && p.y_offset % CAST_UNIT == 0;
  if (!is_flat) return copy_elements(gpu, m, types, &p, ranges);
  int64_t n = m->shape[0] / CAST_UNIT * CAST_UNIT;
  weft_status status = cast_quads(gpu, n, types, p, ranges);
  if (status || n == m->shape[0]) return status;
  m->shape[0] -= n; /* the rest is no whole quad */
  p.a_offset += (uint32_t)n;
  p.y_offset += (uint32_t)n;
  return copy_elements(gpu, m, types, &p, ranges);
}

static weft_status copy_axes(weft__gpu *gpu, const weft_tensor *from, const weft_tensor *to, axes m) {
  int64_t window = weft__gpu_window_elements(gpu);
  if (span(&m, m.from) <= window && span(&m, m.to) <= window) return copy_window(gpu, from, to, &m);
  int widest = 0;
  for (int i = 1; i < m.rank; i++)
    if ((m.shape[i] - 1) * (m.from[i] + m.to[i]) > (m.shape[widest] - 1) * (m.from[widest] + m.to[widest])) widest = i;
  int64_t extent = m.shape[widest], first = extent / 2;
  if (first > CUT) first = first / CUT * CUT; /* so that both parts lie evenly */
  m.shape[widest] = first;
  weft_status status = copy_axes(gpu, from, to, m);
  if (status) return status;
  m.from_first += first * m.from[widest];
  m.to_first += first * m.to[widest];
  m.shape[widest] = extent - first;
  return copy_axes(gpu, from, to, m);
}

weft_status weft__gpu_copy_strided(weft__gpu *gpu, const weft_tensor *from, const weft_tensor *to) {
  if (weft_tensor_numel(to) == 0) return WEFT_OK;
  axes m = sorted_axes(from, to);
  return copy_axes(gpu, from, to, merged_axes(&m));
}

/* ---- the operators ---- */

weft_status weft__gpu_contiguous(weft__backend *backend, const weft__op_call *call) {
  return weft__gpu_copy_strided(weft__gpu_of(backend), call->in[0], call->out);
}

weft_status weft__gpu_cast(weft__backend *backend, const weft__op_call *call) {
  if (weft__dtype_get(call->in[0]->dtype)->is_quantised)
    return weft__gpu_dequantize(weft__gpu_of(backend), call->in[0], call->out);
  return weft__gpu_copy_strided(weft__gpu_of(backend), call->in[0], call->out);
}

weft_status weft__gpu_concat(weft__backend *backend, const weft__op_call *call) {
  int axis = ((const weft_concat_attrs *)call->attrs)->axis;
  weft_tensor part = *call->out; /* the operand's share of the result */
  weft_status status = WEFT_OK;
  for (int i = 0; i < call->n_inputs && !status; i++) {
    part.shape[axis] = call->in[i]->shape[axis];
    status = weft__gpu_copy_strided(weft__gpu_of(backend), call->in[i], &part);
    part.offset += part.shape[axis] * part.strides[axis];
  }
  return status;
}

weft_status weft__gpu_copy_rows_into(weft__backend *backend, const weft__op_call *call) {
  weft_tensor rows = *call->out;
  rows.shape[0] = call->in[1]->shape[0];
  rows.offset += ((const weft_copy_rows_into_attrs *)call->attrs)->first * rows.strides[0];
  return weft__gpu_copy_strided(weft__gpu_of(backend), call->in[1], &rows);
}
