/* accelerator.c - the accelerator in use: one for the process, called by one thread at a time. */
#include "tensor/accelerator.h"

#include <pthread.h>
#include <stdatomic.h>

static const int64_t DEFAULT_THRESHOLD = 400000000; /* below it, the transfers cost more than the product */

static struct {
  pthread_mutex_t lock; /* held while a product runs */
  weft_accelerator current;
  atomic_llong threshold; /* INT64_MAX: no accelerator */
  int64_t wanted_threshold, n_done, n_failed;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .threshold = INT64_MAX, .wanted_threshold = 400000000};

void weft_accelerator_use(const weft_accelerator *accelerator) {
  pthread_mutex_lock(&state.lock);
  state.current = accelerator ? *accelerator : (weft_accelerator){0};
  state.n_done = state.n_failed = 0;
  atomic_store(&state.threshold, state.current.matmul ? state.wanted_threshold : INT64_MAX);
  pthread_mutex_unlock(&state.lock);
}

void weft_accelerator_set_threshold(int64_t n_macs) {
  pthread_mutex_lock(&state.lock);
  state.wanted_threshold = n_macs > 0 ? n_macs : DEFAULT_THRESHOLD;
  if (state.current.matmul) atomic_store(&state.threshold, state.wanted_threshold);
  pthread_mutex_unlock(&state.lock);
}

void weft_accelerator_counts(int64_t *n_done, int64_t *n_failed) {
  pthread_mutex_lock(&state.lock);
  *n_done = state.n_done;
  *n_failed = state.n_failed;
  pthread_mutex_unlock(&state.lock);
}

bool weft__accelerator_wants(int64_t n_macs) { return n_macs >= atomic_load(&state.threshold); }

bool weft__accelerator_matmul(int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, bool transpose_a,
                              const float *b, int64_t ldb, bool transpose_b, float *c, int64_t ldc) {
  pthread_mutex_lock(&state.lock);
  bool is_done = state.current.matmul && state.current.matmul(state.current.context, m, n, k, a, lda, transpose_a, b,
                                                              ldb, transpose_b, c, ldc) == WEFT_OK;
  if (is_done)
    state.n_done++;
  else
    state.n_failed++;
  pthread_mutex_unlock(&state.lock);
  return is_done;
}
