/* alloc.c - memory whose size is a checked product.
 *
 * Invariants: every block of the library comes from here and can be made to fail by the test hook; a size of 0 gives a
 * block that may be freed like any other; plain blocks belong to free (weft_free), aligned ones to weft__aligned_free. */
#include "base/base.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include <malloc.h>
#else
#include <sys/mman.h>
#endif

enum {
  LINE_BYTES = 64,                /* a cache line, and the widest vector register */
  HUGE_PAGE_BYTES = 2 << 20,      /* of x86-64 and of arm64 with 4 KiB pages */
  MIN_HUGE_BLOCK_BYTES = 4 << 20, /* smaller blocks would lose too much to the alignment */
};

/* Allocations left until the one that fails; 0 or less while the hook is off. */
static struct { atomic_long n_until_failure; } hook;

void weft__alloc_fail_at(long n) { atomic_store(&hook.n_until_failure, n); }

/* Threads may count below zero together, which reads as off: only the one that takes 1 to 0 fails. */
static bool hook_fails(void) {
  if (atomic_load_explicit(&hook.n_until_failure, memory_order_relaxed) <= 0) return false;
  return atomic_fetch_sub_explicit(&hook.n_until_failure, 1, memory_order_relaxed) == 1;
}

bool weft__mul_size(size_t a, size_t b, size_t *product) {
  if (b != 0 && a > SIZE_MAX / b) return false;
  *product = a * b;
  return true;
}

bool weft__add_size(size_t a, size_t b, size_t *sum) {
  if (a > SIZE_MAX - b) return false;
  *sum = a + b;
  return true;
}

bool weft__mul_i64(int64_t a, int64_t b, int64_t *product) {
  if (a < 0 || b < 0 || (b != 0 && a > INT64_MAX / b)) return false;
  *product = a * b;
  return true;
}

static void *out_of_memory(size_t n_bytes) {
  weft__error(WEFT_ENOMEM, "memory: cannot allocate %zu bytes (free memory, or use a smaller model or context)",
              n_bytes);
  return NULL;
}

/* n * size, at least 1 because libc may answer a size of 0 with NULL; 0 with the error set on overflow. */
static size_t block_bytes(size_t n, size_t size) {
  size_t n_bytes;
  if (!weft__mul_size(n, size, &n_bytes)) {
    weft__error(WEFT_ENOMEM, "memory: %zu elements of %zu bytes exceed the address space (use a smaller size)", n,
                size);
    return 0;
  }
  return n_bytes > 0 ? n_bytes : 1;
}

void *weft__alloc(size_t n, size_t size) {
  size_t n_bytes = block_bytes(n, size);
  if (n_bytes == 0) return NULL;
  void *block = hook_fails() ? NULL : malloc(n_bytes);
  return block ? block : out_of_memory(n_bytes);
}

void *weft__calloc(size_t n, size_t size) {
  size_t n_bytes = block_bytes(n, size);
  if (n_bytes == 0) return NULL;
  void *block = hook_fails() ? NULL : calloc(n_bytes, 1);
  return block ? block : out_of_memory(n_bytes);
}

void *weft__realloc(void *p, size_t n, size_t size) {
  size_t n_bytes = block_bytes(n, size);
  if (n_bytes == 0) return NULL;
  void *block = hook_fails() ? NULL : realloc(p, n_bytes);
  return block ? block : out_of_memory(n_bytes);
}

void *weft__dup(const void *data, size_t n_bytes) {
  size_t n_block_bytes;
  if (!weft__add_size(n_bytes, 1, &n_block_bytes)) return out_of_memory(n_bytes);
  char *copy = weft__alloc(n_block_bytes, 1);
  if (!copy) return NULL;
  if (n_bytes > 0) memcpy(copy, data, n_bytes);
  copy[n_bytes] = 0;
  return copy;
}

static void *system_aligned_alloc(size_t alignment, size_t n_bytes) {
#if defined(_WIN32)
  return _aligned_malloc(n_bytes, alignment);
#else
  void *block;
  return posix_memalign(&block, alignment, n_bytes) == 0 ? block : NULL;
#endif
}

void *weft__aligned_alloc(size_t n_bytes) {
  size_t alignment = n_bytes >= MIN_HUGE_BLOCK_BYTES ? HUGE_PAGE_BYTES : LINE_BYTES;
  void *block = hook_fails() ? NULL : system_aligned_alloc(alignment, n_bytes > 0 ? n_bytes : 1);
  if (!block) return out_of_memory(n_bytes);
#if defined(MADV_HUGEPAGE)
  /* Only whole huge pages: one more would make memory resident that nobody asked for.  It is advice, so a refusal
   * costs speed alone. */
  if (alignment == HUGE_PAGE_BYTES) madvise(block, n_bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
#endif
  return block;
}

void weft__aligned_free(void *p) {
#if defined(_WIN32)
  _aligned_free(p);
#else
  free(p);
#endif
}

int weft__size_class(size_t n_bytes, size_t *capacity) {
  size_t base = 64;
  for (int c = 0; c < WEFT__SIZE_CLASSES; c += 4, base *= 2)
    for (int quarter = 0; quarter < 4; quarter++) {
      *capacity = base + base / 4 * (size_t)quarter;
      if (n_bytes <= *capacity) return c + quarter;
    }
  *capacity = n_bytes;
  return WEFT__SIZE_CLASSES;
}
