/* sampler.c - from logits to a token.
 *
 * The steps and their order are those of weft_sampler_options.  Ties go to the lowest id, so candidates are in a strict
 * order and every choice is certain given the random number, which is a function of (seed, position).
 *
 * Nothing is sorted: vocabularies have a quarter of a million tokens.  A cut needs to know which candidates are the
 * best ones, a draw which one stands at the drawn part of the weight; select_head finds both in linear time. */
#include "llm/sampler.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h> /* qsort */
#include <string.h> /* memcpy */

enum {
  DEFAULT_REPEAT_LAST = 64,
  LARGEST_HEAP = 2048, /* candidates; above it a heap is slower than select_head over all tokens */
};

typedef struct candidate {
  int32_t id;
  float logit;
  float weight; /* exp(logit - best), at the temperature of the step */
} candidate;

/* ---- what is asked for ---- */

static weft_status check_penalties(const weft_sampler_options *o) {
  if (!(o->repeat_penalty >= 0) || !isfinite(o->repeat_penalty))
    return weft__error(WEFT_EINVAL, "sampler: repeat_penalty %g (above 0; 1 is off)", (double)o->repeat_penalty);
  if (!isfinite(o->frequency_penalty) || !isfinite(o->presence_penalty))
    return weft__error(WEFT_EINVAL, "sampler: frequency_penalty %g, presence_penalty %g (finite numbers)",
                       (double)o->frequency_penalty, (double)o->presence_penalty);
  return WEFT_OK;
}

static weft_status check_bias(const weft_sampler_options *o, int n_vocab) {
  for (size_t i = 0; i < o->n_logit_bias; i++) {
    const weft_logit_bias *b = &o->logit_bias[i];
    if (b->token < 0 || b->token >= n_vocab)
      return weft__error(WEFT_EINVAL, "sampler: logit_bias of token %d, outside the vocabulary of %d", b->token,
                         n_vocab);
    if (isnan(b->bias) || b->bias == INFINITY)
      return weft__error(WEFT_EINVAL, "sampler: logit_bias %g of token %d (a finite number, or -inf)", (double)b->bias,
                         b->token);
  }
  return WEFT_OK;
}

weft_status weft__sampler_check(const weft_sampler_options *o, int n_vocab) {
  if (!(o->temperature >= 0) || !isfinite(o->temperature))
    return weft__error(WEFT_EINVAL, "sampler: temperature %g (0 or more)", (double)o->temperature);
  if (!(o->top_p >= 0 && o->top_p <= 1))
    return weft__error(WEFT_EINVAL, "sampler: top_p %g (0 to 1)", (double)o->top_p);
  if (!(o->min_p >= 0 && o->min_p <= 1))
    return weft__error(WEFT_EINVAL, "sampler: min_p %g (0 to 1)", (double)o->min_p);
  weft_status status = check_penalties(o);
  return status ? status : check_bias(o, n_vocab);
}

static bool has_penalty(const weft_sampler_options *o) {
  return (o->repeat_penalty != 0 && o->repeat_penalty != 1) || o->frequency_penalty != 0 || o->presence_penalty != 0;
}

/* ---- biases and penalties ---- */

static int compare_ids(const void *left, const void *right) {
  const int32_t *a = left, *b = right;
  return (*a > *b) - (*a < *b);
}

/* One token that occurs `count` times. */
static float penalise(float logit, size_t count, const weft_sampler_options *o) {
  if (o->repeat_penalty != 0) logit = logit > 0 ? logit / o->repeat_penalty : logit * o->repeat_penalty;
  return logit - (float)count * o->frequency_penalty - o->presence_penalty;
}

/* `tokens` [n] are those that the penalties look at.  Sorted, the occurrences of a token stand together. */
static weft_status apply_penalties(float *logits, int n_vocab, const weft_sampler_options *o, const int32_t *tokens,
                                   size_t n) {
  int32_t *sorted = weft__dup(tokens, n * sizeof *tokens);
  if (!sorted) return WEFT_ENOMEM;
  qsort(sorted, n, sizeof *sorted, compare_ids);
  weft_status status = WEFT_OK;
  if (sorted[0] < 0 || sorted[n - 1] >= n_vocab)
    status = weft__error(WEFT_EINVAL, "sampler: token %d is outside the vocabulary of %d",
                         sorted[0] < 0 ? sorted[0] : sorted[n - 1], n_vocab);
  for (size_t i = 0, count; i < n && !status; i += count) {
    for (count = 1; i + count < n && sorted[i + count] == sorted[i];) count++;
    logits[sorted[i]] = penalise(logits[sorted[i]], count, o);
  }
  weft_free(sorted);
  return status;
}

/* Changes the logits, which are the caller's own. */
static weft_status adjust(float *logits, int n_vocab, const weft_sampler_options *o, const int32_t *tokens, size_t n) {
  for (size_t i = 0; i < o->n_logit_bias; i++) logits[o->logit_bias[i].token] += o->logit_bias[i].bias;
  size_t last = o->repeat_last < 0 ? n : o->repeat_last ? (size_t)o->repeat_last : DEFAULT_REPEAT_LAST;
  if (last > n) last = n;
  return has_penalty(o) && tokens && last > 0 ? apply_penalties(logits, n_vocab, o, tokens + n - last, last) : WEFT_OK;
}

/* ---- the best candidates ---- */

/* Bits of a float as an integer of the same order: negative NaN, -infinity, numbers, infinity, NaN. */
static int32_t order_key(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits ^ (bits >> 31 & INT32_MAX);
}

static weft_status refuse_logits(const float *logits, int n_vocab) {
  for (int32_t i = 0; i < n_vocab; i++)
    if (isnan(logits[i]) || logits[i] == INFINITY)
      return weft__error(WEFT_ENUMERIC, "sampler: logit %d is %f", i, (double)logits[i]);
  return weft__error(WEFT_ENUMERIC, "sampler: no token has a finite logit");
}

/* The largest logit; -infinity excludes a token, a NaN or +infinity is an error.  The loop over integers is one that
 * compilers vectorise, and the second one stops at the first of equals, which the two zeros are. */
static weft_status greedy(const float *logits, int n_vocab, int32_t *token) {
  int32_t least = order_key(INFINITY), most = order_key(-INFINITY), best = 0;
  for (int32_t i = 0; i < n_vocab; i++) {
    int32_t key = order_key(logits[i]);
    least = key < least ? key : least;
    most = key > most ? key : most;
  }
  if (least < order_key(-INFINITY) || most >= order_key(INFINITY) || most == order_key(-INFINITY))
    return refuse_logits(logits, n_vocab);
  while (order_key(logits[best]) != most && !(most == 0 && logits[best] == 0)) best++;
  *token = best;
  return WEFT_OK;
}

static bool is_better(const candidate *a, const candidate *b) {
  return a->logit != b->logit ? a->logit > b->logit : a->id < b->id;
}

static void swap(candidate *a, candidate *b) {
  candidate old = *a;
  *a = *b;
  *b = old;
}

/* Restores the heap (worst candidate at the root) below `i`. */
static void sift_down(candidate *heap, int n, int i) {
  for (;;) {
    int worst = i;
    for (int child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++)
      if (is_better(&heap[worst], &heap[child])) worst = child;
    if (worst == i) return;
    swap(&heap[i], &heap[worst]);
    i = worst;
  }
}

/* The k best candidates in no order, in one pass; fewer if fewer are not excluded.  c has room for k. */
static int select_by_heap(const float *logits, int n_vocab, int k, candidate *c) {
  int n = 0;
  for (int32_t i = 0; i < n_vocab; i++) {
    candidate next = {i, logits[i], 0};
    if (logits[i] == -INFINITY) continue;
    if (n < k) {
      c[n++] = next;
      if (n == k)
        for (int j = n / 2 - 1; j >= 0; j--) sift_down(c, n, j);
    } else if (is_better(&next, &c[0])) {
      c[0] = next;
      sift_down(c, n, 0);
    }
  }
  return n;
}

/* All candidates that are not excluded, each of weight 1. */
static int select_all(const float *logits, int n_vocab, candidate *c) {
  int n = 0;
  for (int32_t i = 0; i < n_vocab; i++)
    if (logits[i] != -INFINITY) c[n++] = (candidate){i, logits[i], 1};
  return n;
}

/* Sets the weights; returns their sum, which is at least 1. */
static double weigh(candidate *c, int n, float best_logit, float temperature) {
  double sum = 0;
  for (int i = 0; i < n; i++)
    sum += (double)(c[i].weight = expf((float)(((double)c[i].logit - (double)best_logit) / (double)temperature)));
  return sum;
}

/* Moves what is better than c[pivot] in front of it and the rest behind it; returns its new place, and in *sum the weight
 * of what is now in front. */
static int partition(candidate *c, int low, int high, int pivot, double *sum) {
  int place = low;
  *sum = 0;
  swap(&c[pivot], &c[high - 1]);
  for (int i = low; i < high - 1; i++) {
    if (!is_better(&c[i], &c[high - 1])) continue;
    *sum += (double)c[i].weight;
    swap(&c[i], &c[place++]);
  }
  swap(&c[place], &c[high - 1]);
  return place;
}

/* Moves to the front all candidates but some whose weights together are less than `rest`; returns how many. */
static int drop_tail(candidate *c, int n, double rest) {
  int n_kept = 0;
  double least = rest / n;
  for (int i = 0; i < n; i++)
    if ((double)c[i].weight >= least) swap(&c[i], &c[n_kept++]);
  return n_kept;
}

/* Moves the fewest best candidates whose weights reach `target` out of `total` to the front and returns how many; the
 * worst of them is the last.  A quickselect by weight: the pivots are drawn, so no input makes it slow.  Most of a large
 * vocabulary has next to no weight and is dropped at once. */
static int select_head(candidate *c, int n, double target, double total) {
  int low = 0, high = drop_tail(c, n, total - target); /* the head ends in [low, high] */
  double before = 0;                                   /* weight of c[0 .. low-1] */
  for (uint64_t round = 0; high - low > 1; round++) {
    double sum;
    int place = low + (int)(weft__rng_uniform((uint64_t)n, round, 1) * (high - low));
    place = partition(c, low, high, place, &sum);
    if (place > low && before + sum >= target) {
      high = place;
    } else {
      before += sum + (double)c[place].weight;
      low = place + 1;
      if (before >= target) return low;
    }
  }
  return high;
}

/* ---- cuts and the draw ---- */

/* Keeps the shortest head whose probability reaches top_p, then those of at least min_p times the best. */
static int cut(candidate *c, int n, float best_logit, const weft_sampler_options *o) {
  bool has_top_p = o->top_p > 0 && o->top_p < 1;
  if (!has_top_p && o->min_p == 0) return n;
  double total = weigh(c, n, best_logit, 1);
  if (has_top_p) n = select_head(c, n, (double)o->top_p * total, total);
  int n_kept = 0;
  for (int i = 0; i < n; i++)
    if (c[i].weight >= o->min_p) c[n_kept++] = c[i];
  return n_kept;
}

static int32_t draw(candidate *c, int n, float best_logit, const weft_sampler_options *o, uint64_t position) {
  double total = weigh(c, n, best_logit, o->temperature);
  return c[select_head(c, n, total * weft__rng_uniform(o->seed, position, 0), total) - 1].id;
}

/* `logits` are adjusted and have been looked at by greedy. */
static weft_status sample(const float *logits, int n_vocab, const weft_sampler_options *o, uint64_t position,
                          int32_t best, int32_t *token) {
  int k = o->top_k > 0 && o->top_k < n_vocab ? o->top_k : n_vocab;
  bool has_heap = k < n_vocab && k <= LARGEST_HEAP;
  candidate *c = weft__alloc((size_t)(has_heap ? k : n_vocab), sizeof *c);
  if (!c) return WEFT_ENOMEM;
  int n = has_heap ? select_by_heap(logits, n_vocab, k, c) : select_all(logits, n_vocab, c);
  if (k < n) n = select_head(c, n, k, n);
  n = cut(c, n, logits[best], o);
  *token = draw(c, n, logits[best], o, position);
  weft_free(c);
  return WEFT_OK;
}

weft_status weft_sample(const float *logits, int n_vocab, const weft_sampler_options *options, const int32_t *tokens,
                        size_t n_tokens, int32_t *token) {
  float *adjusted = NULL;
  int32_t best;
  weft_status status = weft__sampler_check(options, n_vocab);
  if (!status && n_vocab > 0 && (options->n_logit_bias > 0 || has_penalty(options))) {
    adjusted = weft__dup(logits, (size_t)n_vocab * sizeof *logits);
    status = adjusted ? adjust(adjusted, n_vocab, options, tokens, n_tokens) : WEFT_ENOMEM;
    logits = adjusted;
  }
  if (!status) status = greedy(logits, n_vocab, &best);
  if (!status && options->temperature > 0)
    status = sample(logits, n_vocab, options, n_tokens, best, token);
  else if (!status)
    *token = best;
  weft_free(adjusted);
  return status;
}
