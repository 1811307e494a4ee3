/* test_sampler.c - from logits to a token: greedy and random choice, the cuts before it, and what is refused. */
#include "weft/llm.h"
#include "base/base.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { NO_TOKEN = -77, MAX_VOCAB = 512, LARGE_VOCAB = 262144 };

/* The token, or the test fails. */
static int32_t sample(const float *logits, int n_vocab, const weft_sampler_options *o, uint64_t position) {
  int32_t token = NO_TOKEN;
  if (weft_sample(logits, n_vocab, o, NULL, position, &token)) fail_msg("%s", weft_last_error());
  assert_in_range(token, 0, n_vocab - 1);
  return token;
}

static void refuse(weft_status expected, const float *logits, int n_vocab, const weft_sampler_options *o,
                   const char *why) {
  int32_t token = NO_TOKEN;
  assert_int_equal(weft_sample(logits, n_vocab, o, NULL, 0, &token), expected);
  if (!strstr(weft_last_error(), why)) fail_msg("\"%s\" does not say \"%s\"", weft_last_error(), why);
  assert_int_equal(token, NO_TOKEN);
}

/* Counts the tokens that `n_draws` positions give. */
static void count_draws(const float *logits, int n_vocab, const weft_sampler_options *o, int n_draws, int *counts) {
  memset(counts, 0, (size_t)n_vocab * sizeof *counts);
  for (int i = 0; i < n_draws; i++) counts[sample(logits, n_vocab, o, (uint64_t)i)]++;
}

/* Exactly the first n_kept tokens must occur. */
static void assert_support(const float *logits, int n_vocab, const weft_sampler_options *o, int n_kept) {
  int counts[MAX_VOCAB];
  count_draws(logits, n_vocab, o, 2000, counts);
  for (int i = 0; i < n_vocab; i++)
    if ((counts[i] > 0) != (i < n_kept))
      fail_msg("token %d was drawn %d times; %d tokens remain", i, counts[i], n_kept);
}

/* Probabilities 0.4 0.3 0.2 0.1. */
static const float FOUR[] = {-0.91629073f, -1.2039728f, -1.6094379f, -2.3025851f};

/* ---- greedy ---- */

static void test_greedy(void **state) {
  (void)state;
  const weft_sampler_options greedy = {0};
  assert_int_equal(sample((float[]){1, 3, 2}, 3, &greedy, 0), 1);
  assert_int_equal(sample((float[]){-5}, 1, &greedy, 0), 0);
  assert_int_equal(sample((float[]){-3e38f, -INFINITY, -2e38f}, 3, &greedy, 0), 2);
  /* Ties go to the lowest id, also between the two zeros. */
  assert_int_equal(sample((float[]){1, 7, 7, 7}, 4, &greedy, 0), 1);
  assert_int_equal(sample((float[]){-1, -0.0f, 0.0f}, 3, &greedy, 0), 1);
  assert_int_equal(sample((float[]){-INFINITY, 2, 2}, 3, &greedy, 0), 1);
}

/* Temperature 0 decides alone, whatever else is asked for. */
static void test_greedy_wins(void **state) {
  (void)state;
  const weft_sampler_options cases[] = {
      {.temperature = 0, .top_p = 0.9f},
      {.temperature = 0, .top_p = 0, .top_k = 3, .min_p = 0.5f},
      {.temperature = 0, .top_p = 1, .top_k = -1},
      {.temperature = 0, .seed = 12345},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    for (uint64_t position = 0; position < 20; position++)
      assert_int_equal(sample((float[]){0, 0.1f, 0.2f, 0.2f}, 4, &cases[i], position), 2);
}

/* So small a temperature leaves no other choice, and must not divide anything into a NaN. */
static void test_tiny_temperature(void **state) {
  (void)state;
  const float temperatures[] = {1e-30f, 1e-38f, 1e-45f /* subnormal */};
  for (size_t i = 0; i < WEFT_COUNT(temperatures); i++) {
    const weft_sampler_options o = {.temperature = temperatures[i], .seed = 3};
    for (uint64_t position = 0; position < 50; position++) {
      assert_int_equal(sample((float[]){1, 1.0001f, 0.5f}, 3, &o, position), 1);
      assert_int_equal(sample((float[]){-3e38f, 3e38f, 0}, 3, &o, position), 1);
    }
  }
}

static void test_huge_temperature(void **state) {
  (void)state;
  const weft_sampler_options o = {.temperature = 3e38f};
  assert_support((float[]){100, -100, 0}, 3, &o, 3);
}

/* ---- cuts ---- */

static void test_top_k(void **state) {
  (void)state;
  for (int k = 1; k <= 4; k++) assert_support(FOUR, 4, &(weft_sampler_options){.temperature = 1, .top_k = k}, k);
  const int off[] = {0, -1, -2147483647 - 1, 5, 2147483647};
  for (size_t i = 0; i < WEFT_COUNT(off); i++)
    assert_support(FOUR, 4, &(weft_sampler_options){.temperature = 1, .top_k = off[i]}, 4);
}

/* top_k 0 is no 1 by accident: seeds disagree. */
static void test_top_k_off_varies(void **state) {
  (void)state;
  int n_first = 0;
  for (uint64_t seed = 1; seed <= 20; seed++)
    n_first += sample(FOUR, 4, &(weft_sampler_options){.temperature = 1, .seed = seed}, 0) == 0;
  assert_in_range(n_first, 1, 19);
}

static void test_top_p(void **state) {
  (void)state;
  const struct {
    float top_p;
    int n_kept;
  } cases[] = {{0, 4}, {1, 4}, {0.95f, 4}, {0.8f, 3}, {0.5f, 2}, {0.45f, 2}, {0.35f, 1}, {1e-30f, 1}};
  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    assert_support(FOUR, 4, &(weft_sampler_options){.temperature = 1, .top_p = cases[i].top_p}, cases[i].n_kept);
  /* The cut is made on the model's own probabilities: the temperature does not move it. */
  assert_support(FOUR, 4, &(weft_sampler_options){.temperature = 20, .top_p = 0.5f}, 2);
}

static void test_min_p(void **state) {
  (void)state;
  const struct {
    float min_p;
    int n_kept;
  } cases[] = {{0, 4}, {0.2f, 4}, {0.3f, 3}, {0.6f, 2}, {0.9f, 1}, {1, 1}};
  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    assert_support(FOUR, 4, &(weft_sampler_options){.temperature = 1, .min_p = cases[i].min_p}, cases[i].n_kept);
  assert_support((float[]){1, 1, 0}, 3, &(weft_sampler_options){.temperature = 1, .min_p = 1}, 2);
}

static void test_cuts_together(void **state) {
  (void)state;
  /* Of the best three, 4/9 + 3/9 reach 0.7, and 3/9 is less than 0.8 of 4/9. */
  assert_support(FOUR, 4, &(weft_sampler_options){.temperature = 1, .top_k = 3, .top_p = 0.7f}, 2);
  assert_support(FOUR, 4, &(weft_sampler_options){.temperature = 1, .top_k = 3, .top_p = 0.7f, .min_p = 0.8f}, 1);
}

/* ---- what is refused ---- */

static void test_bad_options(void **state) {
  (void)state;
  const struct {
    weft_sampler_options options;
    const char *why;
  } cases[] = {
      {{.temperature = -0.5f}, "temperature"},         {{.temperature = NAN}, "temperature"},
      {{.temperature = INFINITY}, "temperature"},      {{.temperature = 1, .top_p = 1.0001f}, "top_p"},
      {{.temperature = 1, .top_p = -0.1f}, "top_p"},   {{.temperature = 1, .top_p = NAN}, "top_p"},
      {{.temperature = 0, .top_p = 1.0001f}, "top_p"}, {{.temperature = 1, .min_p = 1.5f}, "min_p"},
      {{.temperature = 1, .min_p = -1}, "min_p"},      {{.temperature = 1, .min_p = NAN}, "min_p"},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) refuse(WEFT_EINVAL, FOUR, 4, &cases[i].options, cases[i].why);
}

static void test_bad_logits(void **state) {
  (void)state;
  const weft_sampler_options ways[] = {{0}, {.temperature = 1}, {.temperature = 1, .top_k = 2, .top_p = 0.5f}};
  for (size_t i = 0; i < WEFT_COUNT(ways); i++) {
    const weft_sampler_options *o = &ways[i];
    refuse(WEFT_ENUMERIC, (float[]){NAN, NAN, NAN}, 3, o, "logit");
    refuse(WEFT_ENUMERIC, (float[]){1, NAN, 2}, 3, o, "logit 1");
    refuse(WEFT_ENUMERIC, (float[]){1, 2, NAN}, 3, o, "logit 2");
    refuse(WEFT_ENUMERIC, (float[]){1, INFINITY, 2}, 3, o, "logit 1");
    refuse(WEFT_ENUMERIC, (float[]){-INFINITY, -INFINITY}, 2, o, "finite");
    refuse(WEFT_ENUMERIC, FOUR, 0, o, "finite");
  }
}

/* A token of probability 0 is never drawn. */
static void test_excluded_tokens(void **state) {
  (void)state;
  assert_support((float[]){0, 1, -INFINITY, -INFINITY}, 4, &(weft_sampler_options){.temperature = 100}, 2);
  assert_support((float[]){0, -INFINITY, -INFINITY}, 3, &(weft_sampler_options){.temperature = 100, .top_k = 3}, 1);
}

static void test_no_memory(void **state) {
  (void)state;
  int32_t token = NO_TOKEN;
  weft__alloc_fail_at(1);
  weft_status status = weft_sample(FOUR, 4, &(weft_sampler_options){.temperature = 1}, NULL, 0, &token);
  weft__alloc_fail_at(0);
  assert_int_equal(status, WEFT_ENOMEM);
  assert_int_equal(sample(FOUR, 4, &(weft_sampler_options){0}, 0), 0);
}

/* ---- random numbers ---- */

/* The draw is a function of seed and position: asking again, in another order, gives the same. */
static void test_repeatable(void **state) {
  (void)state;
  int32_t drawn[200];
  const weft_sampler_options o = {.temperature = 1, .seed = 0xfeedfacecafebeef};
  for (int i = 0; i < 200; i++) drawn[i] = sample(FOUR, 4, &o, (uint64_t)i);
  for (int i = 199; i >= 0; i--) assert_int_equal(sample(FOUR, 4, &o, (uint64_t)i), drawn[i]);
  weft_sampler_options other = o;
  other.seed++;
  int n_same = 0;
  for (int i = 0; i < 200; i++) n_same += sample(FOUR, 4, &other, (uint64_t)i) == drawn[i];
  assert_in_range(n_same, 20, 110); /* 0.3 of them by chance */
}

/* Pearson's statistic of counts against softmax(logits / temperature). */
static double chi_square(const float *logits, int n, double temperature, const int *counts) {
  double total = 0, n_draws = 0, statistic = 0;
  for (int i = 0; i < n; i++) {
    total += exp((double)logits[i] / temperature);
    n_draws += counts[i];
  }
  for (int i = 0; i < n; i++) {
    double expected = n_draws * exp((double)logits[i] / temperature) / total;
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return statistic;
}

/* 20000 draws of five tokens, over positions and over seeds; a right sampler exceeds 18.47 once in a thousand times, and
 * these seeds are fixed. */
static void test_distribution(void **state) {
  (void)state;
  const float logits[] = {0.5f, -1, 2, 0, 1.25f};
  const float temperatures[] = {0.5f, 1, 1.7f};
  int counts[5];
  for (size_t i = 0; i < WEFT_COUNT(temperatures); i++) {
    weft_sampler_options o = {.temperature = temperatures[i], .seed = 42 + i};
    count_draws(logits, 5, &o, 20000, counts);
    assert_true(chi_square(logits, 5, (double)o.temperature, counts) < 18.47);
    memset(counts, 0, sizeof counts);
    for (o.seed = 0; o.seed < 20000; o.seed++) counts[sample(logits, 5, &o, 7)]++;
    assert_true(chi_square(logits, 5, (double)o.temperature, counts) < 18.47);
  }
}

/* ---- against a sampler that sorts everything ---- */

typedef struct ranked {
  int32_t id;
  double logit;
} ranked;

static int by_logit_then_id(const void *left, const void *right) {
  const ranked *a = left, *b = right;
  if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
  return a->id - b->id;
}

/* How many of the n best tokens top_p and min_p leave. */
static int reference_cut(const ranked *all, int n, const weft_sampler_options *o) {
  double total = 0, sum = 0;
  int kept = n;
  for (int i = 0; i < n; i++) total += exp(all[i].logit - all[0].logit);
  if (o->top_p > 0 && o->top_p < 1)
    for (kept = 0; kept < n && sum < (double)o->top_p * total;) sum += exp(all[kept++].logit - all[0].logit);
  if (o->min_p > 0)
    while (exp(all[kept - 1].logit - all[0].logit) < (double)o->min_p) kept--;
  return kept;
}

static int32_t reference_sample(const float *logits, int n_vocab, const weft_sampler_options *o, uint64_t position) {
  ranked *all = malloc((size_t)n_vocab * sizeof *all);
  assert_non_null(all);
  for (int i = 0; i < n_vocab; i++) all[i] = (ranked){i, (double)logits[i]};
  qsort(all, (size_t)n_vocab, sizeof *all, by_logit_then_id);
  int n = reference_cut(all, o->top_k > 0 && o->top_k < n_vocab ? o->top_k : n_vocab, o);
  double total = 0, sum = 0, u = weft__rng_uniform(o->seed, position, 0);
  for (int i = 0; i < n; i++) total += exp((all[i].logit - all[0].logit) / (double)o->temperature);
  for (int i = 0; i < n; i++) {
    sum += exp((all[i].logit - all[0].logit) / (double)o->temperature);
    if (u * total < sum) n = i + 1;
  }
  int32_t token = all[n - 1].id;
  free(all);
  return token;
}

/* Logits on a coarse grid, so that ties stand across every cut. */
static void test_against_full_sort(void **state) {
  (void)state;
  float logits[MAX_VOCAB];
  for (uint64_t trial = 0; trial < 3000; trial++) {
    int n_vocab = 1 + (int)(weft__rng_uniform(trial, 0, 100) * (MAX_VOCAB - 1));
    for (int i = 0; i < n_vocab; i++) logits[i] = (float)floor(weft__rng_uniform(trial, (uint64_t)i, 101) * 24) / 4;
    weft_sampler_options o = {.temperature = 0.1f + (float)weft__rng_uniform(trial, 1, 100) * 3, .seed = trial};
    if (trial % 2) o.top_k = 1 + (int)(weft__rng_uniform(trial, 2, 100) * n_vocab);
    if (trial % 3) o.top_p = (float)weft__rng_uniform(trial, 3, 100);
    if (trial % 5 == 0) o.min_p = (float)weft__rng_uniform(trial, 4, 100);
    int32_t expected = reference_sample(logits, n_vocab, &o, trial * 31);
    int32_t token = sample(logits, n_vocab, &o, trial * 31);
    if (token != expected) fail_msg("trial %d: token %d, expected %d", (int)trial, token, expected);
  }
}

/* A vocabulary as large as they come, its logits flat (where much is left after each cut) and peaked. */
static void test_large_vocabulary(void **state) {
  (void)state;
  float *logits = malloc(LARGE_VOCAB * sizeof *logits);
  assert_non_null(logits);
  const weft_sampler_options cases[] = {
      {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f},
      {.temperature = 0.8f, .top_p = 0.95f},
      {.temperature = 1},
      {.temperature = 0.7f, .min_p = 0.01f},
      {.temperature = 1.2f, .top_k = 2048},
      {.temperature = 1.2f, .top_k = 2049, .top_p = 0.9f},
      {.temperature = 2, .top_k = 200000},
      {.temperature = 1, .top_k = LARGE_VOCAB - 1, .top_p = 0.999f},
  };
  for (int steepness = 1; steepness <= 16; steepness *= 16) {
    for (int i = 0; i < LARGE_VOCAB; i++)
      logits[i] = (float)(weft__rng_uniform(7, (uint64_t)i, 102) * steepness - steepness / 2.0);
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
      weft_sampler_options o = cases[i];
      o.seed = i;
      int32_t token = sample(logits, LARGE_VOCAB, &o, 5), expected = reference_sample(logits, LARGE_VOCAB, &o, 5);
      if (token != expected) fail_msg("case %zu: token %d, expected %d", i, token, expected);
    }
  }
  free(logits);
}

/* All logits equal, rising and falling: what makes a careless selection quadratic. */
static void test_ordered_logits(void **state) {
  (void)state;
  float *logits = malloc(LARGE_VOCAB * sizeof *logits);
  assert_non_null(logits);
  for (int way = -1; way <= 1; way++) {
    for (int i = 0; i < LARGE_VOCAB; i++) logits[i] = (float)way * (float)i * 1e-5f;
    const weft_sampler_options o = {.temperature = 1, .top_p = 0.9f, .seed = 3};
    assert_int_equal(sample(logits, LARGE_VOCAB, &o, 1), reference_sample(logits, LARGE_VOCAB, &o, 1));
  }
  free(logits);
}

/* ---- biases and penalties ---- */

/* The greedy choice among logits after the given tokens. */
static int32_t choose(const float *logits, int n_vocab, weft_sampler_options o, const int32_t *tokens,
                      size_t n_tokens) {
  int32_t token = NO_TOKEN;
  if (weft_sample(logits, n_vocab, &o, tokens, n_tokens, &token)) fail_msg("%s", weft_last_error());
  return token;
}

static void test_logit_bias(void **state) {
  (void)state;
  const float logits[] = {1, 5, 2, -3};
  const weft_logit_bias up[] = {{3, 9}}, ban[] = {{1, -INFINITY}}, twice[] = {{2, 2}, {0, 1}, {2, 1.5f}};
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.logit_bias = up, .n_logit_bias = 1}, NULL, 0), 3);
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.logit_bias = ban, .n_logit_bias = 1}, NULL, 0), 2);
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.logit_bias = twice, .n_logit_bias = 3}, NULL, 0), 2);
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.logit_bias = twice, .n_logit_bias = 2}, NULL, 0), 1);
  /* A banned token is never drawn, and of nothing but banned ones there is no choice. */
  const weft_logit_bias three[] = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}, {3, -INFINITY}};
  for (uint64_t seed = 0; seed < 50; seed++)
    assert_int_equal(
        choose(logits, 4,
               (weft_sampler_options){.temperature = 50, .seed = seed, .logit_bias = three, .n_logit_bias = 3}, NULL,
               0),
        3);
  refuse(WEFT_ENUMERIC, logits, 4, &(weft_sampler_options){.logit_bias = three, .n_logit_bias = 4}, "finite");
}

/* Each by its formula, on the token that it makes lose or win. */
static void test_penalties(void **state) {
  (void)state;
  const float logits[] = {3, 2, 1.4f, -1};
  const int32_t one[] = {0}, three[] = {0, 0, 0}, worst[] = {3, 3};
  /* 3/1.4 > 2, 3/1.6 < 2. */
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.repeat_penalty = 1.4f}, one, 1), 0);
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.repeat_penalty = 1.6f}, one, 1), 1);
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.repeat_penalty = 1.6f}, NULL, 0), 0);
  /* However often the token stands there. */
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.repeat_penalty = 1.4f}, three, 3), 0);
  /* A negative logit is multiplied, or the penalty would be a reward: -1 stays behind -1.5. */
  const float low[] = {-1, -1.5f};
  assert_int_equal(choose(low, 2, (weft_sampler_options){.repeat_penalty = 1.4f}, one, 1), 0);
  assert_int_equal(choose(low, 2, (weft_sampler_options){.repeat_penalty = 1.6f}, one, 1), 1);
  /* Once for presence, three times for frequency. */
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.presence_penalty = 0.9f}, three, 3), 0);
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.presence_penalty = 1.1f}, three, 3), 1);
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.frequency_penalty = 0.3f}, three, 3), 0);
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.frequency_penalty = 0.4f}, three, 3), 1);
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.frequency_penalty = 0.4f}, one, 1), 0);
  /* Negative ones reward: -1 + 2*2.1 > 3. */
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.frequency_penalty = -2.1f}, worst, 2), 3);
  /* Off by 0 and by 1. */
  assert_int_equal(choose(logits, 4, (weft_sampler_options){.repeat_penalty = 1}, three, 3), 0);
}

/* Only the last tokens count: token 0 stands `distance` tokens back. */
static void test_repeat_last(void **state) {
  (void)state;
  static const struct {
    int repeat_last, distance, is_seen;
  } cases[] = {{0, 64, 1}, {0, 65, 0}, {1, 1, 1}, {1, 2, 0}, {100, 100, 1}, {100, 101, 0}, {-1, 200, 1}, {500, 200, 1}};
  const float logits[] = {3, 2, 1};
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    int32_t tokens[200];
    for (int j = 0; j < 200; j++) tokens[j] = j == 200 - cases[i].distance ? 0 : 2;
    const weft_sampler_options o = {.repeat_penalty = 5, .repeat_last = cases[i].repeat_last};
    assert_int_equal(choose(logits, 3, o, tokens, 200), cases[i].is_seen);
  }
}

/* Everything at once against the formulas in double precision, then the sampler without any of it. */
static void test_adjusted_against_formulas(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 500; trial++) {
    float logits[65], want[65];
    int32_t tokens[90];
    const weft_logit_bias bias[] = {{3, 1.5f}, {64, -2}, {3, 0.25f}};
    for (int i = 0; i < 65; i++) want[i] = logits[i] = (float)(weft__rng_uniform(trial, (uint64_t)i, 103) * 8 - 4);
    for (int i = 0; i < 90; i++) tokens[i] = (int32_t)(weft__rng_uniform(trial, (uint64_t)i, 104) * 65);
    weft_sampler_options o = {.temperature = 0.9f, .top_k = 20, .seed = trial};
    weft_sampler_options full = o;
    full.repeat_penalty = 1.3f;
    full.frequency_penalty = 0.25f;
    full.presence_penalty = -0.5f;
    full.repeat_last = 50;
    full.logit_bias = bias;
    full.n_logit_bias = 3;
    want[3] += 1.75f;
    want[64] -= 2;
    for (int id = 0; id < 65; id++) {
      int count = 0;
      for (int i = 40; i < 90; i++) count += tokens[i] == id;
      if (count) want[id] = (want[id] > 0 ? want[id] / 1.3f : want[id] * 1.3f) - (float)count * 0.25f + 0.5f;
    }
    assert_int_equal(choose(logits, 65, full, tokens, 90), choose(want, 65, o, NULL, 90));
  }
}

static void test_bad_penalties(void **state) {
  (void)state;
  const weft_logit_bias outside[] = {{0, 1}, {4, 1}}, negative[] = {{-1, 1}}, nan[] = {{0, NAN}},
                        inf[] = {{0, INFINITY}};
  const struct {
    weft_sampler_options options;
    const char *why;
  } cases[] = {
      {{.repeat_penalty = -1}, "repeat_penalty"},
      {{.repeat_penalty = NAN}, "repeat_penalty"},
      {{.repeat_penalty = INFINITY}, "repeat_penalty"},
      {{.frequency_penalty = NAN}, "frequency_penalty"},
      {{.presence_penalty = INFINITY}, "presence_penalty"},
      {{.logit_bias = outside, .n_logit_bias = 2}, "token 4"},
      {{.logit_bias = negative, .n_logit_bias = 1}, "token -1"},
      {{.logit_bias = nan, .n_logit_bias = 1}, "logit_bias"},
      {{.logit_bias = inf, .n_logit_bias = 1}, "logit_bias"},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) refuse(WEFT_EINVAL, FOUR, 4, &cases[i].options, cases[i].why);
  int32_t token = NO_TOKEN;
  const weft_sampler_options o = {.repeat_penalty = 2};
  assert_int_equal(weft_sample(FOUR, 4, &o, (int32_t[]){1, 4}, 2, &token), WEFT_EINVAL);
  assert_int_equal(weft_sample(FOUR, 4, &o, (int32_t[]){-1, 2}, 2, &token), WEFT_EINVAL);
  assert_int_equal(token, NO_TOKEN);
  refuse(WEFT_ENUMERIC, FOUR, 0, &o, "finite");
}

/* Each of the allocations fails. */
static void test_no_memory_for_penalties(void **state) {
  (void)state;
  const weft_sampler_options o = {.temperature = 1, .repeat_penalty = 2};
  for (int i = 1; i <= 3; i++) {
    int32_t token = NO_TOKEN;
    weft__alloc_fail_at(i);
    weft_status status = weft_sample(FOUR, 4, &o, (int32_t[]){1, 2}, 2, &token);
    weft__alloc_fail_at(0);
    assert_int_equal(status, WEFT_ENOMEM);
    assert_int_equal(token, NO_TOKEN);
  }
  assert_in_range(choose(FOUR, 4, o, (int32_t[]){1, 2}, 2), 0, 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_greedy),
      cmocka_unit_test(test_greedy_wins),
      cmocka_unit_test(test_tiny_temperature),
      cmocka_unit_test(test_huge_temperature),
      cmocka_unit_test(test_top_k),
      cmocka_unit_test(test_top_k_off_varies),
      cmocka_unit_test(test_top_p),
      cmocka_unit_test(test_min_p),
      cmocka_unit_test(test_cuts_together),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_bad_logits),
      cmocka_unit_test(test_excluded_tokens),
      cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_repeatable),
      cmocka_unit_test(test_distribution),
      cmocka_unit_test(test_against_full_sort),
      cmocka_unit_test(test_large_vocabulary),
      cmocka_unit_test(test_ordered_logits),
      cmocka_unit_test(test_logit_bias),
      cmocka_unit_test(test_penalties),
      cmocka_unit_test(test_repeat_last),
      cmocka_unit_test(test_adjusted_against_formulas),
      cmocka_unit_test(test_bad_penalties),
      cmocka_unit_test(test_no_memory_for_penalties),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
