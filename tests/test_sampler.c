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

enum { NO_TOKEN = -77, MAX_VOCAB = 512 };

/* The token, or the test fails. */
static int32_t sample(const float *logits, int n_vocab, const weft_sampler_options *o, uint64_t position) {
  int32_t token = NO_TOKEN;
  if (weft_sample(logits, n_vocab, o, position, &token)) fail_msg("%s", weft_last_error());
  assert_in_range(token, 0, n_vocab - 1);
  return token;
}

static void refuse(weft_status expected, const float *logits, int n_vocab, const weft_sampler_options *o,
                   const char *why) {
  int32_t token = NO_TOKEN;
  assert_int_equal(weft_sample(logits, n_vocab, o, 0, &token), expected);
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
  weft_status status = weft_sample(FOUR, 4, &(weft_sampler_options){.temperature = 1}, 0, &token);
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
  ranked all[MAX_VOCAB];
  for (int i = 0; i < n_vocab; i++) all[i] = (ranked){i, (double)logits[i]};
  qsort(all, (size_t)n_vocab, sizeof *all, by_logit_then_id);
  int n = reference_cut(all, o->top_k > 0 && o->top_k < n_vocab ? o->top_k : n_vocab, o);
  double total = 0, sum = 0, u = weft__rng_uniform(o->seed, position, 0);
  for (int i = 0; i < n; i++) total += exp((all[i].logit - all[0].logit) / (double)o->temperature);
  for (int i = 0; i < n; i++) {
    sum += exp((all[i].logit - all[0].logit) / (double)o->temperature);
    if (u * total < sum) return all[i].id;
  }
  return all[n - 1].id;
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
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
