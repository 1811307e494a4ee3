/* buffers.c - a pool of buffers: what a closed scope frees, the next operators get.
 *
 * Invariants: a buffer's capacity is the size class of what was asked for (so put needs no header); free buffers of one
 * capacity form a list through their first word.  Kept buffers are bounded: together with those in use they never exceed
 * by more than SPARE_BYTES what was once in use at the same time. */
#include "cpu/cpu.h"

#include <pthread.h>

static const size_t SPARE_BYTES = (size_t)64 << 20;

struct weft__buffers {
  pthread_mutex_t lock;
  void *first[WEFT__SIZE_CLASSES];
  size_t live_bytes, kept_bytes;
  size_t peak_live_bytes, peak_bytes; /* largest live_bytes; largest live_bytes + kept_bytes */
};

weft_status weft__buffers_create(weft__buffers **out) {
  weft__buffers *b = weft__calloc(1, sizeof *b);
  if (!b) return WEFT_ENOMEM;
  pthread_mutex_init(&b->lock, NULL);
  *out = b;
  return WEFT_OK;
}

void weft__buffers_free(weft__buffers *b) {
  if (!b) return;
  for (int c = 0; c < WEFT__SIZE_CLASSES; c++)
    while (b->first[c]) {
      void *next = *(void **)b->first[c];
      weft__aligned_free(b->first[c]);
      b->first[c] = next;
    }
  pthread_mutex_destroy(&b->lock);
  weft_free(b);
}

/* Capacity of the buffers of a class. */
static size_t class_capacity(int c) {
  size_t base = (size_t)64 << c / 4;
  return base + base / 4 * (size_t)(c % 4);
}

/* Takes the first buffer of a class from its list; NULL if it is empty. */
static void *take(weft__buffers *b, int c) {
  void *buffer = b->first[c];
  if (!buffer) return NULL;
  b->first[c] = *(void **)buffer;
  b->kept_bytes -= class_capacity(c);
  return buffer;
}

static bool is_over_bound(const weft__buffers *b) {
  size_t peak = b->live_bytes > b->peak_live_bytes ? b->live_bytes : b->peak_live_bytes;
  return b->live_bytes + b->kept_bytes > peak + SPARE_BYTES;
}

/* Gives kept buffers back to the system, large ones first, until the bound holds. */
static void shrink(weft__buffers *b) {
  for (int c = WEFT__SIZE_CLASSES - 1; c >= 0; c--)
    while (b->first[c] && is_over_bound(b)) weft__aligned_free(take(b, c));
}

void *weft__buffers_get(weft__buffers *b, size_t n_bytes) {
  size_t capacity;
  int c = weft__size_class(n_bytes, &capacity);
  pthread_mutex_lock(&b->lock);
  void *buffer = c < WEFT__SIZE_CLASSES ? take(b, c) : NULL;
  b->live_bytes += capacity;
  if (is_over_bound(b)) shrink(b);
  pthread_mutex_unlock(&b->lock);
  if (!buffer) buffer = weft__aligned_alloc(capacity);
  pthread_mutex_lock(&b->lock);
  if (!buffer) {
    b->live_bytes -= capacity;
  } else {
    if (b->live_bytes > b->peak_live_bytes) b->peak_live_bytes = b->live_bytes;
    if (b->live_bytes + b->kept_bytes > b->peak_bytes) b->peak_bytes = b->live_bytes + b->kept_bytes;
  }
  pthread_mutex_unlock(&b->lock);
  return buffer;
}

void weft__buffers_put(weft__buffers *b, void *buffer, size_t n_bytes) {
  if (!buffer) return;
  size_t capacity;
  int c = weft__size_class(n_bytes, &capacity);
  pthread_mutex_lock(&b->lock);
  b->live_bytes -= capacity;
  b->kept_bytes += capacity;
  bool keep = c < WEFT__SIZE_CLASSES && !is_over_bound(b);
  if (keep) {
    *(void **)buffer = b->first[c];
    b->first[c] = buffer;
  } else {
    b->kept_bytes -= capacity;
  }
  pthread_mutex_unlock(&b->lock);
  if (!keep) weft__aligned_free(buffer);
}

size_t weft__buffers_peak(weft__buffers *b) {
  pthread_mutex_lock(&b->lock);
  size_t peak = b->peak_bytes;
  pthread_mutex_unlock(&b->lock);
  return peak;
}
