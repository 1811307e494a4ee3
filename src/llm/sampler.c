/* sampler.c - from logits to a token.
 *
 * Order of the steps, as in other programs: top_k, top_p, min_p on the model's own probabilities, then the temperature,
 * then one draw.  Ties go to the lowest id.  The random number is a function of (seed, position). */
#include "weft/llm.h"
#include "base/base.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h> /* qsort */

typedef struct candidate {
  int32_t id;
  float logit;
  double p; /* probability at temperature 1 among the candidates */
} candidate;

static weft_status check_options(const weft_sampler_options *o) {
  if (!(o->temperature >= 0) || !isfinite(o->temperature))
    return weft__error(WEFT_EINVAL, "sampler: temperature %g (0 or more)", (double)o->temperature);
  if (!(o->top_p >= 0 && o->top_p <= 1))
    return weft__error(WEFT_EINVAL, "sampler: top_p %g (0 to 1)", (double)o->top_p);
  if (!(o->min_p >= 0 && o->min_p <= 1))
    return weft__error(WEFT_EINVAL, "sampler: min_p %g (0 to 1)", (double)o->min_p);
  return WEFT_OK;
}

/* The largest logit; -infinity excludes a token, a NaN or +infinity is an error. */
static weft_status greedy(const float *logits, int n_vocab, int32_t *token) {
  int32_t best = -1;
  for (int32_t i = 0; i < n_vocab; i++) {
    if (isnan(logits[i]) || logits[i] == INFINITY)
      return weft__error(WEFT_ENUMERIC, "sampler: logit %d is %f", i, (double)logits[i]);
    if (logits[i] > (best < 0 ? -INFINITY : logits[best])) best = i;
  }
  if (best < 0) return weft__error(WEFT_ENUMERIC, "sampler: no token has a finite logit");
  *token = best;
  return WEFT_OK;
}

/* Best first. */
static int compare(const void *left, const void *right) {
  const candidate *a = left, *b = right;
  if (a->logit != b->logit) return a->logit < b->logit ? 1 : -1;
  return a->id < b->id ? -1 : a->id > b->id;
}

/* Restores the heap (worst candidate at the root) below `i`. */
static void sift_down(candidate *heap, int n, int i) {
  for (;;) {
    int worst = i;
    for (int child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
      if (compare(&heap[child], &heap[worst]) > 0) worst = child;
    if (worst == i) return;
    candidate swap = heap[i];
    heap[i] = heap[worst];
    heap[worst] = swap;
    i = worst;
  }
}

/* The k best candidates, sorted; c has room for k. */
static int select_best(const float *logits, int n_vocab, int k, candidate *c) {
  int n = 0;
  for (int32_t i = 0; i < n_vocab; i++) {
    candidate next = {i, logits[i], 0};
    if (logits[i] == -INFINITY) continue;
    if (n < k) {
      c[n++] = next;
      if (n == k)
        for (int j = n / 2 - 1; j >= 0; j--) sift_down(c, n, j);
    } else if (compare(&next, &c[0]) < 0) {
      c[0] = next;
      sift_down(c, n, 0);
    }
  }
  qsort(c, (size_t)n, sizeof *c, compare);
  return n;
}

static double softmax(candidate *c, int n, double temperature) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += c[i].p = exp(((double)c[i].logit - (double)c[0].logit) / temperature);
  return sum;
}

/* Keeps the shortest head whose probability reaches top_p, then those of at least min_p times the best. */
static int cut(candidate *c, int n, const weft_sampler_options *o) {
  double total = softmax(c, n, 1), sum = 0;
  if (o->top_p > 0 && o->top_p < 1) {
    int kept = 0;
    while (kept < n && (kept == 0 || sum < (double)o->top_p * total)) sum += c[kept++].p;
    n = kept;
  }
  if (o->min_p > 0)
    while (n > 1 && c[n - 1].p < (double)o->min_p * c[0].p) n--;
  return n;
}

static int32_t draw(candidate *c, int n, const weft_sampler_options *o, uint64_t position) {
  double target = softmax(c, n, (double)o->temperature) * weft__rng_uniform(o->seed, position, 0);
  for (int i = 0; i < n - 1; i++) {
    target -= c[i].p;
    if (target < 0) return c[i].id;
  }
  return c[n - 1].id;
}

weft_status weft_sample(const float *logits, int n_vocab, const weft_sampler_options *options, uint64_t position,
                        int32_t *token) {
  weft_status status = check_options(options);
  if (!status) status = greedy(logits, n_vocab, token); /* checks the logits, too */
  if (status || options->temperature == 0) return status;
  int k = options->top_k > 0 && options->top_k < n_vocab ? options->top_k : n_vocab;
  candidate *c = weft__alloc((size_t)k, sizeof *c);
  if (!c) return WEFT_ENOMEM;
  int n = cut(c, select_best(logits, n_vocab, k, c), options);
  *token = draw(c, n, options, position);
  weft_free(c);
  return WEFT_OK;
}
