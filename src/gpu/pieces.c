/* pieces.c - storage that is beyond the device's limit of one buffer: several buffers, its pieces.
 *
 * The handle of such a storage is its first piece, and `gpu->pieces.storages` knows the others; everything else is one
 * buffer, which costs a look at an empty list.  All pieces but the last hold piece_bytes, a multiple of the largest window,
 * so that most windows lie in one piece.  Ranges of operators are bytes of the storage; the dispatch binds the piece that
 * holds them.  A range that lies in two is copied to a buffer of its own, a patch, which is bound in its place; what a
 * kernel has written there is copied back behind the dispatch.
 * Invariants: a patch lives as long as one dispatch is being recorded.  Ranges of one dispatch that overlap are bound to one
 * piece or one patch, so what is copied back never undoes what the same dispatch wrote elsewhere. */
#include "gpu/gpu.h"

#include <assert.h>

struct weft__gpu_storage {
  size_t n_bytes;
  uint64_t each; /* bytes of every piece but the last, > 0 */
  struct weft__gpu_storage *next;
  int n_pieces;
  weft__gpu_buffer *pieces[];
};

/* The most that is a multiple of the window and that a buffer may be made for; 0: there is no such size. */
static uint64_t piece_bytes(const weft__gpu *gpu) {
  uint64_t window = (uint64_t)weft__gpu_window_elements(gpu) * 4, limit = gpu->info.limits.max_buffer_bytes;
  for (uint64_t n = limit / window * window; n > 0; n -= window) {
    size_t capacity;
    weft__size_class(n, &capacity);
    if (capacity <= limit) return n;
  }
  return 0;
}

static struct weft__gpu_storage *find(const weft__gpu *gpu, const void *handle) {
  struct weft__gpu_storage *s = gpu->pieces.storages;
  while (s && s->pieces[0] != handle) s = s->next;
  return s;
}

/* Bytes of piece i. */
static size_t bytes_of(const struct weft__gpu_storage *s, int i) {
  uint64_t rest = s->n_bytes - (uint64_t)i * s->each;
  return (size_t)(rest < s->each ? rest : s->each);
}

/* Frees pieces 0 .. n-1. */
static void free_pieces(weft__gpu *gpu, const struct weft__gpu_storage *s, int n) {
  for (int i = 0; i < n; i++) weft__gpu_free_buffer(gpu, s->pieces[i], bytes_of(s, i));
}

weft_status weft__gpu_pieces_alloc(weft__gpu *gpu, size_t n_bytes, void **handle) {
  uint64_t each = piece_bytes(gpu);
  if (each == 0)
    return weft__error(WEFT_ENOMEM, "%s: a buffer of %zu MiB is beyond the device's limit of %llu MiB", gpu->info.name,
                       n_bytes >> 20, (unsigned long long)(gpu->info.limits.max_buffer_bytes >> 20));
  int n = (int)((n_bytes + each - 1) / each);
  struct weft__gpu_storage *s = weft__calloc(1, sizeof *s + (size_t)n * sizeof s->pieces[0]);
  if (!s) return WEFT_ENOMEM;
  s->n_bytes = n_bytes;
  s->each = each;
  s->n_pieces = n;
  for (int i = 0; i < n; i++) {
    weft_status status = weft__gpu_alloc_buffer(gpu, bytes_of(s, i), &s->pieces[i]);
    if (!status) continue;
    free_pieces(gpu, s, i);
    weft_free(s);
    return status;
  }
  s->next = gpu->pieces.storages;
  gpu->pieces.storages = s;
  *handle = s->pieces[0];
  return WEFT_OK;
}

bool weft__gpu_pieces_free(weft__gpu *gpu, void *handle) {
  struct weft__gpu_storage *s = find(gpu, handle), **at = &gpu->pieces.storages;
  if (!s) return false;
  while (*at != s) at = &(*at)->next;
  *at = s->next;
  free_pieces(gpu, s, s->n_pieces);
  weft_free(s);
  return true;
}

bool weft__gpu_is_pieced(const weft__gpu *gpu, const void *handle) { return find(gpu, handle) != NULL; }

weft__gpu_range weft__gpu_part(const weft__gpu *gpu, const void *handle, uint64_t offset, uint64_t n_bytes) {
  const struct weft__gpu_storage *s = find(gpu, handle);
  if (!s) return (weft__gpu_range){(weft__gpu_buffer *)(uintptr_t)handle, offset, n_bytes};
  assert(s->each > 0);
  uint64_t within = offset % s->each, rest = s->each - within;
  return (weft__gpu_range){s->pieces[offset / s->each], within, n_bytes < rest ? n_bytes : rest};
}

/* ---- patches ---- */

static void copy_patch(weft__gpu *gpu, const weft__gpu_patch *p, bool is_back) {
  for (uint64_t at = 0; at < p->n_bytes;) {
    weft__gpu_range part = weft__gpu_part(gpu, p->handle, p->offset + at, p->n_bytes - at);
    if (is_back)
      gpu->abi->copy(gpu->device, part.buffer, part.offset, p->buffer, at, part.n_bytes);
    else
      gpu->abi->copy(gpu->device, p->buffer, at, part.buffer, part.offset, part.n_bytes);
    at += part.n_bytes;
  }
  gpu->has_copies = true;
}

/* The range, and all that overlap it or one that does. */
static weft__gpu_range with_overlaps(const weft__gpu_range *ranges, int n, weft__gpu_range range) {
  for (int i = 0; i < n; i++) {
    const weft__gpu_range *r = &ranges[i];
    uint64_t start = range.offset, end = start + range.n_bytes;
    if (r->buffer != range.buffer || r->offset >= end || r->offset + r->n_bytes <= start) continue;
    if (r->offset < start) start = r->offset;
    if (r->offset + r->n_bytes > end) end = r->offset + r->n_bytes;
    if (end - start == range.n_bytes) continue;
    range.offset = start;
    range.n_bytes = end - start;
    i = -1; /* more may overlap now */
  }
  return range;
}

/* The patch of a range that does not lie in one piece: made, unless another binding has asked for it. */
static weft_status get_patch(weft__gpu *gpu, weft__gpu_patches *patches, const weft__gpu_range *range,
                             weft__gpu_patch **out) {
  weft__gpu_patch *p = patches->at, *end = p + patches->n;
  while (p < end && (p->handle != range->buffer || p->offset != range->offset)) p++;
  *out = p;
  if (p < end) return WEFT_OK;
  size_t capacity;
  weft__size_class((size_t)range->n_bytes, &capacity);
  if (capacity > gpu->info.limits.max_buffer_bytes)
    return weft__error(WEFT_EUNSUPPORTED,
                       "%s: operands that are parts of one tensor take %llu MiB together, beyond a "
                       "buffer's %llu MiB (use a tensor for each)",
                       gpu->info.name, (unsigned long long)(range->n_bytes >> 20),
                       (unsigned long long)(gpu->info.limits.max_buffer_bytes >> 20));
  *p = (weft__gpu_patch){.handle = range->buffer, .offset = range->offset, .n_bytes = range->n_bytes};
  weft_status status = weft__gpu_alloc_buffer(gpu, (size_t)p->n_bytes, &p->buffer);
  if (status) return status;
  patches->n++;
  copy_patch(gpu, p, false);
  return WEFT_OK;
}

weft_status weft__gpu_bind(weft__gpu *gpu, const weft__gpu_range *ranges, int n, uint32_t written,
                           weft__gpu_range *bound, weft__gpu_patches *patches) {
  patches->n = 0;
  for (int i = 0; i < n; i++) {
    bound[i] = ranges[i];
    if (!find(gpu, ranges[i].buffer)) continue;
    weft__gpu_range range = with_overlaps(ranges, n, ranges[i]);
    weft__gpu_range part = weft__gpu_part(gpu, range.buffer, range.offset, range.n_bytes);
    bound[i].offset -= range.offset;
    if (part.n_bytes == range.n_bytes) {
      bound[i].buffer = part.buffer;
      bound[i].offset += part.offset;
      continue;
    }
    weft__gpu_patch *patch;
    weft_status status = get_patch(gpu, patches, &range, &patch);
    if (status) {
      weft__gpu_unbind(gpu, patches, false);
      return status;
    }
    bound[i].buffer = patch->buffer;
    patch->is_written = patch->is_written || (written >> i & 1);
  }
  return WEFT_OK;
}

void weft__gpu_unbind(weft__gpu *gpu, weft__gpu_patches *patches, bool is_recorded) {
  for (weft__gpu_patch *p = patches->at; p < patches->at + patches->n; p++) {
    if (is_recorded && p->is_written) copy_patch(gpu, p, true);
    weft__gpu_free_buffer(gpu, p->buffer, (size_t)p->n_bytes);
  }
  patches->n = 0;
}
