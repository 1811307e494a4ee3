/* test_model.c - models on small files made for the purpose: loading, the forward pass, the cache, appending to a session.
 *
 * The forward pass is compared with a reference in double precision.  Everything that depends on arithmetic runs on every
 * usable CPU variant, exact and fast, on buffers full of NaN; ways to cut one computation are compared to the last bit. */
#include "support/gguf_split.h"
#include "support/tiny_fixture.h"
#include "support/tiny_reference.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { MAX_TOKENS = 128, N_TOKENS = 70 /* more than two blocks of the cache */ };

/* ---- batches ---- */

/* Tokens for one forward pass, all of them wanting logits. */
typedef struct batch {
  int n;
  int32_t token[MAX_TOKENS * 2], position[MAX_TOKENS * 2], slot[MAX_TOKENS * 2];
  uint8_t want[MAX_TOKENS * 2];
} batch;

static void add_token(batch *b, int32_t token, int position, int slot) {
  b->token[b->n] = token;
  b->position[b->n] = position;
  b->slot[b->n] = slot;
  b->want[b->n++] = 1;
}

static weft_status forward(const fixture *f, weft_kv_cache *cache, const batch *b, float *logits) {
  const weft_batch view = {b->n, b->token, b->position, b->slot, b->want};
  return weft_forward(f->model, cache, &view, logits);
}

/* Appends n tokens to a slot, `chunk` a pass, and gives the logits after each [n,V]; freed with free. */
static float *run(const fixture *f, weft_kv_cache *cache, int slot, const int32_t *ids, int n, int chunk) {
  float *logits = test_alloc((size_t)(n * f->n_vocab), sizeof *logits);
  for (int start = 0; start < n; start += chunk) {
    batch b = {0};
    int length = weft_kv_cache_length(cache, slot);
    for (int i = start; i < n && i < start + chunk; i++) add_token(&b, ids[i], length + i - start, slot);
    if (forward(f, cache, &b, logits + start * f->n_vocab)) fail_msg("%s", weft_last_error());
  }
  return logits;
}

/* The same in a cache of its own. */
static float *run_alone(const fixture *f, weft_dtype kv, const int32_t *ids, int n, int chunk) {
  weft_kv_cache *cache = fixture_open_cache(f, 1, kv);
  float *logits = run(f, cache, 0, ids, n, chunk);
  weft_kv_cache_free(cache);
  return logits;
}

/* The largest difference in a row relative to the row's largest logit, over all rows. */
static double relative_error(const float *got, const float *want, int n_rows, int n_vocab) {
  double worst = 0;
  for (int r = 0; r < n_rows; r++) {
    double difference = 0, largest = 0;
    for (int v = r * n_vocab; v < (r + 1) * n_vocab; v++) {
      if (!isfinite(got[v])) return INFINITY;
      difference = fmax(difference, fabs((double)got[v] - (double)want[v]));
      largest = fmax(largest, fabs((double)want[v]));
    }
    worst = fmax(worst, difference / largest);
  }
  return worst;
}

static void assert_close(const test_device *d, const char *what, const float *got, const float *want, int n_rows,
                         int n_vocab, double limit) {
  double error = relative_error(got, want, n_rows, n_vocab);
  if (!(error <= limit))
    fail_msg("%s (%s, %s): relative error %.3g, allowed %.3g", what, d->variant,
             d->arithmetic == WEFT_EXACT ? "exact" : "fast", error, limit);
}

static void assert_same(const test_device *d, const char *what, const float *got, const float *want, int n_rows,
                        int n_vocab) {
  assert_close(d, what, got, want, n_rows, n_vocab, 0);
}

/* ---- the forward pass against the reference ---- */

static const tiny_options SHAPES[] = {
    {0},
    {.n_layers = 1, .n_heads = 3, .n_kv_heads = 1, .head_size = 32, .width = 32, .ffn_width = 64, .rope_dims = 20},
    {.n_heads = 3, .n_kv_heads = 3, .head_size = 10, .width = 40, .ffn_width = 36, .is_tied = 1},
    {.window = 33, .has_rope_factors = 1, .rope_stretch = 4, .has_bias = 1},
    {.family = TINY_QWEN2},
    {.family = TINY_QWEN2,
     .n_heads = 3,
     .n_kv_heads = 1,
     .head_size = 32,
     .width = 32,
     .ffn_width = 64,
     .rope_dims = 10,
     .is_tied = 1},
    {.family = TINY_GEMMA3, .n_layers = 7, .is_tied = 1},
    {.family = TINY_GEMMA3,
     .n_layers = 6,
     .n_kv_heads = 1,
     .head_size = 32,
     .window = 7,
     .has_rope_factors = 1,
     .rope_stretch = 8},
};

/* Exact: f32 sums in another order than the reference's, about 1e-6, times what the layers amplify.  f16 cache: 2^-11 of
 * each key and value; q8_0 cache: 1/254 of the largest in 32 of them.  Fast: activations of 8 bits, 1/254 of the largest
 * in 32 for each; more layers add up. */
static double tolerance(const test_device *d, const tiny_options *shape, weft_dtype weights, weft_dtype kv) {
  int is_quantised = weights == WEFT_Q8_0 || weights == WEFT_Q4_1;
  double growth = shape->n_layers > 2 ? 3 : 1;
  if (d->arithmetic == WEFT_FAST && is_quantised) return 0.05 * growth;
  return kv == WEFT_Q8_0 ? 0.02 * growth : kv == WEFT_F16 ? 2e-3 : 1e-5;
}

static void check_forward(const test_device *d, const tiny_options *shape, weft_dtype weights) {
  tiny_options options = *shape;
  options.weights = weights;
  fixture f = fixture_load(d, &options);
  int32_t ids[N_TOKENS];
  fixture_draw_ids(&f, ids, N_TOKENS, 1);
  float *want = tiny_reference(&f.tiny, ids, N_TOKENS);
  static const weft_dtype caches[] = {WEFT_F32, WEFT_F16, WEFT_Q8_0};
  for (size_t i = 0; i < WEFT_COUNT(caches); i++) {
    weft_dtype kv = caches[i];
    if (kv == WEFT_Q8_0 && shape->head_size != 32) continue; /* it wants heads of a multiple of 32 */
    float *got = run_alone(&f, kv, ids, N_TOKENS, N_TOKENS);
    char what[64];
    snprintf(what, sizeof what, "%s weights, %s cache", weft_dtype_name(weights), weft_dtype_name(kv));
    assert_close(d, what, got, want, N_TOKENS, f.n_vocab, tolerance(d, shape, weights, kv));
    free(got);
  }
  free(want);
  fixture_unload(&f);
}

static void check_forward_all(test_device *d) {
  static const weft_dtype types[] = {WEFT_F32, WEFT_F16, WEFT_Q8_0, WEFT_Q4_1};
  for (size_t s = 0; s < WEFT_COUNT(SHAPES); s++)
    for (size_t t = 0; t < WEFT_COUNT(types); t++)
      if (SHAPES[s].width % 32 == 0 || types[t] < WEFT_Q8_0) check_forward(d, &SHAPES[s], types[t]);
}

static void test_forward(void **state) {
  (void)state;
  test_each_device(2, check_forward_all);
}

/* ---- one computation, cut in different ways ---- */

static const struct {
  tiny_family family;
  weft_dtype weights, kv;
  int head_size;
} MODELS[] = {
    {TINY_LLAMA, WEFT_F32, WEFT_F32, 0},    {TINY_LLAMA, WEFT_Q8_0, WEFT_F16, 0}, {TINY_LLAMA, WEFT_Q4_1, WEFT_F32, 0},
    {TINY_LLAMA, WEFT_Q8_0, WEFT_Q8_0, 32}, {TINY_QWEN2, WEFT_Q8_0, WEFT_F16, 0}, {TINY_GEMMA3, WEFT_Q4_1, WEFT_F32, 0},
};

/* Runs `check` with models of several types of weights and of the cache, and of all families. */
static void with_models(test_device *d, void (*check)(test_device *d, const fixture *f, weft_dtype kv)) {
  for (size_t i = 0; i < WEFT_COUNT(MODELS); i++) {
    const tiny_options options = {
        .family = MODELS[i].family, .weights = MODELS[i].weights, .head_size = MODELS[i].head_size, .seed = i};
    fixture f = fixture_load(d, &options);
    check(d, &f, MODELS[i].kv);
    fixture_unload(&f);
  }
}

/* A token's result depends on that token and the cache alone, so the chunks do not matter, to the last bit. */
static void check_chunks(test_device *d, const fixture *f, weft_dtype kv) {
  static const int chunks[] = {1, 7, 32, 33, 64};
  int32_t ids[N_TOKENS];
  fixture_draw_ids(f, ids, N_TOKENS, 2);
  float *want = run_alone(f, kv, ids, N_TOKENS, N_TOKENS);
  for (size_t i = 0; i < WEFT_COUNT(chunks); i++) {
    float *got = run_alone(f, kv, ids, N_TOKENS, chunks[i]);
    assert_same(d, "prefill in chunks", got, want, N_TOKENS, f->n_vocab);
    free(got);
  }
  free(want);
}

static void each_chunk(test_device *d) { with_models(d, check_chunks); }

static void test_chunks(void **state) {
  (void)state;
  test_each_device(2, each_chunk);
}

/* What the length of slot s is, in tokens: all different, across block borders. */
static int slot_length(int s) { return 3 + 17 * s; }

/* Tokens of several slots in turn: slots that have enough drop out. */
static void check_slots_of(test_device *d, const fixture *f, weft_dtype kv, int n_slots) {
  weft_kv_cache *cache = fixture_open_cache(f, n_slots, kv);
  int32_t ids[5][MAX_TOKENS];
  float *alone[5], *row = test_alloc((size_t)(n_slots * f->n_vocab), sizeof *row);
  for (int s = 0; s < n_slots; s++) {
    fixture_draw_ids(f, ids[s], slot_length(s), 10 + (uint64_t)s);
    alone[s] = run_alone(f, kv, ids[s], slot_length(s), slot_length(s));
  }
  for (int position = 0; position < slot_length(n_slots - 1); position++) {
    batch b = {0};
    for (int s = n_slots - 1; s >= 0; s--)
      if (position < slot_length(s)) add_token(&b, ids[s][position], position, s);
    if (forward(f, cache, &b, row)) fail_msg("%s", weft_last_error());
    for (int i = 0; i < b.n; i++)
      assert_same(d, "slots together", row + i * f->n_vocab, alone[b.slot[i]] + position * f->n_vocab, 1, f->n_vocab);
  }
  for (int s = 0; s < n_slots; s++) free(alone[s]);
  free(row);
  weft_kv_cache_free(cache);
}

static void check_slots(test_device *d, const fixture *f, weft_dtype kv) {
  check_slots_of(d, f, kv, 2);
  check_slots_of(d, f, kv, 5);
}

static void each_slots(test_device *d) { with_models(d, check_slots); }

static void test_slots(void **state) {
  (void)state;
  test_each_device(2, each_slots);
}

/* Whole prompts of three slots in one pass, one of them in two pieces around another. */
static void check_mixed_batch(test_device *d, const fixture *f, weft_dtype kv) {
  weft_kv_cache *cache = fixture_open_cache(f, 3, kv);
  int32_t ids[3][40];
  batch b = {0};
  for (int s = 0; s < 3; s++) fixture_draw_ids(f, ids[s], 40, 20 + (uint64_t)s);
  for (int i = 0; i < 11; i++) add_token(&b, ids[2][i], i, 2);
  for (int i = 0; i < 40; i++) add_token(&b, ids[0][i], i, 0);
  for (int i = 11; i < 40; i++) add_token(&b, ids[2][i], i, 2);
  for (int i = 0; i < 5; i++) add_token(&b, ids[1][i], i, 1);
  for (int i = 0; i < b.n; i++) b.want[i] = b.position[i] == 4; /* a row of each slot, in the batch's order */
  float *got = test_alloc((size_t)(3 * f->n_vocab), sizeof *got);
  if (forward(f, cache, &b, got)) fail_msg("%s", weft_last_error());
  const int order[] = {2, 0, 1};
  for (int i = 0; i < 3; i++) {
    float *want = run_alone(f, kv, ids[order[i]], 5, 5);
    assert_same(d, "a mixed batch", got + i * f->n_vocab, want + 4 * f->n_vocab, 1, f->n_vocab);
    free(want);
  }
  free(got);
  weft_kv_cache_free(cache);
}

static void each_mixed_batch(test_device *d) { with_models(d, check_mixed_batch); }

static void test_mixed_batch(void **state) {
  (void)state;
  test_each_device(2, each_mixed_batch);
}

/* Prefill and then decode on devices of 1, 2, 3 and 8 threads. */
static void check_threads(test_device *d, weft_dtype weights, weft_dtype kv) {
  static const int n_threads[] = {1, 2, 3, 8};
  float *first = NULL;
  for (size_t i = 0; i < WEFT_COUNT(n_threads); i++) {
    test_device other = *d;
    const weft_device_options options = {.arithmetic = d->arithmetic, .n_threads = n_threads[i]};
    if (weft_device_open(&other.device, &options)) fail_msg("%s", weft_last_error());
    fixture f =
        fixture_load(&other, &(tiny_options){.weights = weights, .head_size = 32, .width = 128, .ffn_width = 352});
    int32_t ids[N_TOKENS];
    fixture_draw_ids(&f, ids, N_TOKENS, 3);
    float *got = run_alone(&f, kv, ids, N_TOKENS, N_TOKENS - 1);
    if (first) assert_same(d, "another number of threads", got, first, N_TOKENS, f.n_vocab);
    if (first)
      free(got);
    else
      first = got;
    fixture_unload(&f);
    weft_device_close(other.device);
  }
  free(first);
}

static void each_threads(test_device *d) {
  check_threads(d, WEFT_F32, WEFT_F16);
  check_threads(d, WEFT_Q8_0, WEFT_Q8_0);
  check_threads(d, WEFT_Q4_1, WEFT_F16);
}

static void test_threads(void **state) {
  (void)state;
  test_each_device(1, each_threads);
}

/* ---- the cache ---- */

/* Forgets to every length from a full prompt, and goes on otherwise. */
static void check_truncate(test_device *d, const fixture *f, weft_dtype kv) {
  static const int lengths[] = {0, 1, 31, 32, 33, 64, 69, 70};
  int32_t ids[N_TOKENS], other[N_TOKENS + 10];
  fixture_draw_ids(f, ids, N_TOKENS, 4);
  weft_kv_cache *cache = fixture_open_cache(f, 1, kv);
  for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
    int length = lengths[i];
    assert_int_equal(weft_kv_cache_truncate(cache, 0, 0), WEFT_OK);
    free(run(f, cache, 0, ids, N_TOKENS, N_TOKENS));
    assert_int_equal(weft_kv_cache_truncate(cache, 0, length), WEFT_OK);
    assert_int_equal(weft_kv_cache_length(cache, 0), length);
    fixture_draw_ids(f, other, N_TOKENS + 10, 5);
    memcpy(other, ids, (size_t)length * sizeof *ids);
    float *got = run(f, cache, 0, other + length, 10, 4);
    float *want = run_alone(f, kv, other, length + 10, N_TOKENS + 10);
    assert_same(d, "after truncation", got, want + length * f->n_vocab, 10, f->n_vocab);
    free(got);
    free(want);
  }
  weft_kv_cache_free(cache);
}

static void each_truncate(test_device *d) { with_models(d, check_truncate); }

static void test_truncate(void **state) {
  (void)state;
  test_each_device(2, each_truncate);
}

/* Appends `n` tokens drawn with `seed` to a slot that holds `prefix`, and compares with the whole run alone. */
static void continue_and_compare(test_device *d, const fixture *f, weft_kv_cache *cache, int slot, weft_dtype kv,
                                 const int32_t *prefix, int n_prefix, int n, uint64_t seed) {
  int32_t ids[MAX_TOKENS];
  fixture_draw_ids(f, ids + n_prefix, n, seed);
  memcpy(ids, prefix, (size_t)n_prefix * sizeof *ids);
  assert_int_equal(weft_kv_cache_length(cache, slot), n_prefix);
  float *got = run(f, cache, slot, ids + n_prefix, n, 3), *want = run_alone(f, kv, ids, n_prefix + n, MAX_TOKENS);
  assert_same(d, "after sharing", got, want + n_prefix * f->n_vocab, n, f->n_vocab);
  free(got);
  free(want);
}

/* Three slots share a prefix and go on differently, the owner first or last; then each is cut back into the shared part
 * and goes on again. */
static void check_share_of(test_device *d, const fixture *f, weft_dtype kv, int length, int owner_first) {
  int32_t ids[N_TOKENS];
  weft_kv_cache *cache = fixture_open_cache(f, 3, kv);
  fixture_draw_ids(f, ids, N_TOKENS, 6);
  free(run(f, cache, 0, ids, N_TOKENS, N_TOKENS));
  free(run(f, cache, 2, ids + 5, 40, 40)); /* what the slot held is forgotten */
  assert_int_equal(weft_kv_cache_share(cache, 0, 1, length), WEFT_OK);
  assert_int_equal(weft_kv_cache_share(cache, 1, 2, length), WEFT_OK);
  assert_int_equal(weft_kv_cache_length(cache, 0), N_TOKENS);
  if (owner_first) continue_and_compare(d, f, cache, 0, kv, ids, N_TOKENS, 6, 30);
  continue_and_compare(d, f, cache, 1, kv, ids, length, 9, 31);
  continue_and_compare(d, f, cache, 2, kv, ids, length, 40, 32);
  if (!owner_first) continue_and_compare(d, f, cache, 0, kv, ids, N_TOKENS, 6, 30);
  for (int s = 0; s < 3; s++) {
    int kept = length > s + 1 ? length - s - 1 : 0;
    assert_int_equal(weft_kv_cache_truncate(cache, s, kept), WEFT_OK);
    continue_and_compare(d, f, cache, s, kv, ids, kept, 5, 40 + (uint64_t)s);
  }
  weft_kv_cache_free(cache);
}

static void check_share(test_device *d, const fixture *f, weft_dtype kv) {
  static const int lengths[] = {0, 1, 32, 33, 50, 64, N_TOKENS};
  for (size_t i = 0; i < WEFT_COUNT(lengths); i++)
    for (int owner_first = 0; owner_first < 2; owner_first++) check_share_of(d, f, kv, lengths[i], owner_first);
}

static void each_share(test_device *d) {
  if (d->arithmetic == WEFT_EXACT) with_models(d, check_share);
}

static void test_share(void **state) {
  (void)state;
  test_each_device(2, each_share);
}

/* Slots share, write and forget at random; every block is needed in the end, so a block lost or counted twice shows. */
static void check_blocks(test_device *d) {
  enum { N_SLOTS = 4, N_CTX = 128 };
  fixture f = fixture_load(d, &(tiny_options){.n_layers = 1, .n_ctx = N_CTX});
  weft_kv_cache *cache = fixture_open_cache(&f, N_SLOTS, WEFT_F32);
  int32_t held[N_SLOTS][N_CTX] = {{0}}, ids[N_CTX];
  float choice[4];
  for (uint64_t step = 0; step < 300; step++) {
    test_fill(choice, 4, 0.4999f, step);
    int to = (int)((choice[0] + 0.5f) * N_SLOTS), from = (int)((choice[1] + 0.5f) * N_SLOTS);
    int length = weft_kv_cache_length(cache, to), room = N_CTX - length, n = (int)((choice[2] + 0.5f) * (float)room);
    if (choice[3] > 0.1f && from != to) {
      int shared = (int)((choice[2] + 0.5f) * (float)(weft_kv_cache_length(cache, from) + 1));
      assert_int_equal(weft_kv_cache_share(cache, from, to, shared), WEFT_OK);
      memcpy(held[to], held[from], sizeof held[to]);
    } else if (choice[3] > 0 && n > 0) {
      fixture_draw_ids(&f, held[to] + length, n, step);
      free(run(&f, cache, to, held[to] + length, n, n));
    } else {
      assert_int_equal(weft_kv_cache_truncate(cache, to, (int)((choice[2] + 0.5f) * (float)(length + 1))), WEFT_OK);
    }
  }
  for (int s = 0; s < N_SLOTS; s++) {
    int length = weft_kv_cache_length(cache, s), n = N_CTX - length;
    if (n == 0) continue;
    memcpy(ids, held[s], sizeof ids);
    fixture_draw_ids(&f, ids + length, n, 999);
    float *got = run(&f, cache, s, ids + length, n, n), *want = run_alone(&f, WEFT_F32, ids, N_CTX, N_CTX);
    assert_same(d, "after much sharing", got, want + length * f.n_vocab, n, f.n_vocab);
    free(got);
    free(want);
  }
  weft_kv_cache_free(cache);
  fixture_unload(&f);
}

static void test_blocks(void **state) {
  (void)state;
  on_default_device(check_blocks);
}

/* A batch that must be refused, leaving the cache (two slots of 20 and 0 positions) as it was. */
static void refuse_batch(const fixture *f, weft_kv_cache *cache, const batch *b, weft_status expected,
                         const char *why) {
  float *logits = test_alloc((size_t)(b->n * f->n_vocab), sizeof *logits);
  assert_int_equal(forward(f, cache, b, logits), expected);
  assert_message(why);
  assert_int_equal(weft_kv_cache_length(cache, 0), 20);
  assert_int_equal(weft_kv_cache_length(cache, 1), 0);
  free(logits);
}

static void check_bad_batches(test_device *d) {
  fixture f = fixture_load(d, NULL);
  weft_kv_cache *cache = fixture_open_cache(&f, 2, WEFT_F32);
  int32_t ids[MAX_TOKENS];
  fixture_draw_ids(&f, ids, MAX_TOKENS, 7);
  free(run(&f, cache, 0, ids, 20, 20));
  const struct {
    int32_t token;
    int position, slot;
    const char *why;
  } cases[] = {
      {-1, 20, 0, "token id -1"}, {f.n_vocab, 20, 0, "token id"}, {INT32_MAX, 20, 0, "token id"},
      {1, 21, 0, "position 21"},  {1, 19, 0, "position 19"},      {1, -1, 0, "position -1"},
      {1, 0, 0, "position 0"},    {1, 1, 1, "position 1"},        {1, 0, 2, "slot 2"},
      {1, 0, -1, "slot -1"},      {1, INT32_MAX, 0, "position"},  {1, 0, INT32_MIN, "slot"},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    batch b = {0};
    add_token(&b, cases[i].token, cases[i].position, cases[i].slot);
    refuse_batch(&f, cache, &b, WEFT_EINVAL, cases[i].why);
    batch late = {0}; /* the same after tokens that are right, in both slots */
    for (int k = 0; k < 40; k++) add_token(&late, ids[k], k, 1);
    add_token(&late, cases[i].token, cases[i].position, cases[i].slot);
    if (cases[i].slot != 1) refuse_batch(&f, cache, &late, WEFT_EINVAL, cases[i].why);
  }
  continue_and_compare(d, &f, cache, 0, WEFT_F32, ids, 20, 30, 8);
  weft_kv_cache_free(cache);
  fixture_unload(&f);
}

static void test_bad_batches(void **state) {
  (void)state;
  on_default_device(check_bad_batches);
}

/* Arguments that make no batch. */
static void check_bad_arguments(test_device *d) {
  fixture f = fixture_load(d, NULL);
  weft_kv_cache *cache = fixture_open_cache(&f, 1, WEFT_F32);
  const int32_t zero = 0;
  const uint8_t one = 1;
  const weft_batch right = {1, &zero, &zero, &zero, &one};
  float *logits = test_alloc((size_t)f.n_vocab, sizeof *logits);
  assert_int_equal(weft_forward(NULL, cache, &right, logits), WEFT_EINVAL);
  assert_int_equal(weft_forward(f.model, NULL, &right, logits), WEFT_EINVAL);
  assert_int_equal(weft_forward(f.model, cache, NULL, logits), WEFT_EINVAL);
  assert_int_equal(weft_forward(f.model, cache, &(weft_batch){-1, &zero, &zero, &zero, &one}, logits), WEFT_EINVAL);
  assert_int_equal(weft_forward(f.model, cache, &(weft_batch){1, &zero, NULL, &zero, &one}, logits), WEFT_EINVAL);
  assert_int_equal(weft_forward(f.model, cache, &right, NULL), WEFT_EINVAL); /* wanted, but no room */
  assert_int_equal(weft_kv_cache_length(cache, 0), 0);
  assert_int_equal(weft_forward(f.model, cache, &(weft_batch){0}, NULL), WEFT_OK); /* no tokens are no error */
  assert_int_equal(weft_forward(f.model, cache, &(weft_batch){1, &zero, &zero, &zero, (uint8_t[]){0}}, NULL), WEFT_OK);
  assert_int_equal(weft_kv_cache_length(cache, 0), 1);
  free(logits);
  weft_kv_cache_free(cache);
  fixture_unload(&f);
}

static void test_bad_arguments(void **state) {
  (void)state;
  on_default_device(check_bad_arguments);
}

/* A full slot takes nothing more, not even in part; forgetting makes room again. */
static void check_full_slot(test_device *d) {
  fixture f = fixture_load(d, NULL);
  weft_kv_cache *cache = NULL;
  assert_int_equal(weft_kv_cache_create(&cache, f.model, &(weft_kv_options){.n_slots = 2, .n_ctx = 40}), WEFT_OK);
  assert_int_equal(weft_kv_cache_n_ctx(cache), 40);
  int32_t ids[MAX_TOKENS];
  float *logits = test_alloc((size_t)(60 * f.n_vocab), sizeof *logits);
  fixture_draw_ids(&f, ids, MAX_TOKENS, 9);
  batch b = {0};
  for (int i = 0; i < 41; i++) add_token(&b, ids[i], i, 1);
  assert_int_equal(forward(&f, cache, &b, logits), WEFT_ELIMIT);
  assert_message("40");
  assert_int_equal(weft_kv_cache_length(cache, 1), 0);
  free(run(&f, cache, 1, ids, 40, 40));
  b = (batch){0};
  add_token(&b, ids[0], 0, 0);
  add_token(&b, ids[40], 40, 1);
  assert_int_equal(forward(&f, cache, &b, logits), WEFT_ELIMIT);
  assert_int_equal(weft_kv_cache_length(cache, 0), 0);
  assert_int_equal(weft_kv_cache_length(cache, 1), 40);
  assert_int_equal(weft_kv_cache_truncate(cache, 1, 35), WEFT_OK);
  continue_and_compare(d, &f, cache, 1, WEFT_F32, ids, 35, 5, 10);
  free(logits);
  weft_kv_cache_free(cache);
  fixture_unload(&f);
}

static void test_full_slot(void **state) {
  (void)state;
  on_default_device(check_full_slot);
}

static void check_cache_arguments(test_device *d) {
  fixture f = fixture_load(d, NULL);
  weft_kv_cache *cache = fixture_open_cache(&f, 2, WEFT_F32);
  int32_t ids[10];
  fixture_draw_ids(&f, ids, 10, 11);
  free(run(&f, cache, 0, ids, 10, 10));
  assert_int_equal(weft_kv_cache_truncate(cache, 0, 11), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_truncate(cache, 0, -1), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_truncate(cache, 2, 0), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_truncate(cache, -1, 0), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_share(cache, 0, 1, 11), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_share(cache, 0, 1, -1), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_share(cache, 0, 0, 5), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_share(cache, 0, 2, 5), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_share(cache, 2, 1, 0), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_length(cache, 0), 10);
  assert_int_equal(weft_kv_cache_length(cache, 1), 0);
  assert_int_equal(weft_kv_cache_length(cache, 7), 0);
  weft_kv_cache_free(cache);
  weft_kv_cache_free(NULL);
  fixture_unload(&f);
}

static void test_cache_arguments(void **state) {
  (void)state;
  on_default_device(check_cache_arguments);
}

static void check_cache_options(test_device *d) {
  fixture f = fixture_load(d, &(tiny_options){.n_ctx = 100}),
          endless = fixture_load(d, &(tiny_options){.n_ctx = INT_MAX});
  weft_kv_cache *cache = NULL;
  assert_int_equal(weft_kv_cache_create(&cache, f.model, &(weft_kv_options){.n_ctx = 101}), WEFT_ELIMIT);
  assert_message("101");
  assert_message("100");
  assert_int_equal(weft_kv_cache_create(&cache, f.model, &(weft_kv_options){.n_ctx = -1}), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_create(&cache, f.model, &(weft_kv_options){.n_slots = -1}), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_create(&cache, f.model, &(weft_kv_options){.n_slots = INT_MAX}), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_create(&cache, f.model, &(weft_kv_options){.dtype = WEFT_Q4_1}), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_create(&cache, f.model, &(weft_kv_options){.dtype = WEFT_Q8_0}), WEFT_EUNSUPPORTED);
  assert_non_null(strstr(weft_last_error(), "the model's have 16"));
  assert_int_equal(weft_kv_cache_create(&cache, f.model, &(weft_kv_options){.dtype = (weft_dtype)99}), WEFT_EINVAL);
  assert_int_equal(weft_kv_cache_create(&cache, endless.model, &(weft_kv_options){.n_ctx = INT_MAX, .n_slots = 65536}),
                   WEFT_EINVAL);
  assert_null(cache);
  assert_int_equal(weft_kv_cache_create(&cache, f.model, NULL), WEFT_OK);
  assert_int_equal(weft_kv_cache_n_ctx(cache), 100);
  weft_kv_cache_free(cache);
  assert_int_equal(weft_kv_cache_create(&cache, endless.model, NULL), WEFT_OK);
  assert_int_equal(weft_kv_cache_n_ctx(cache), 4096);
  weft_kv_cache_free(cache);
  fixture_unload(&f);
  fixture_unload(&endless);
}

static void test_cache_options(void **state) {
  (void)state;
  on_default_device(check_cache_options);
}

/* ---- values that are not finite ---- */

static void check_nan_weight(test_device *d, const char *name, weft_dtype weights) {
  fixture f = fixture_load(d, &(tiny_options){.weights = weights, .fault = {TINY_NAN, name, 3, NULL}});
  weft_kv_cache *cache = fixture_open_cache(&f, 1, WEFT_F16);
  batch b = {0};
  for (int i = 0; i < 5; i++) add_token(&b, i + 1, i, 0);
  float *logits = test_alloc((size_t)(5 * f.n_vocab), sizeof *logits);
  weft_status status = forward(&f, cache, &b, logits);
  if (status != WEFT_ENUMERIC)
    fail_msg("a NaN in %s, %s (%s, %s): status %s", name, weft_dtype_name(weights), d->variant,
             d->arithmetic == WEFT_EXACT ? "exact" : "fast", weft_status_name(status));
  assert_message("logit");
  assert_int_equal(weft_kv_cache_length(cache, 0), 0);
  free(logits);
  weft_kv_cache_free(cache);
  fixture_unload(&f);
}

static void each_nan_weight(test_device *d) {
  static const char *const names[] = {
      "output.weight",         "output_norm.weight",  "blk.0.attn_norm.weight", "blk.1.ffn_norm.weight",
      "blk.0.attn_q.weight",   "blk.1.attn_k.weight", "blk.0.attn_v.weight",    "blk.1.attn_output.weight",
      "blk.0.ffn_gate.weight", "blk.1.ffn_up.weight", "blk.0.ffn_down.weight",
  };
  static const weft_dtype types[] = {WEFT_F32, WEFT_F16, WEFT_Q8_0, WEFT_Q4_1};
  for (size_t i = 0; i < WEFT_COUNT(names); i++)
    for (size_t t = 0; t < WEFT_COUNT(types); t++) check_nan_weight(d, names[i], types[t]);
}

static void test_nan_weight(void **state) {
  (void)state;
  test_each_device(1, each_nan_weight);
}

/* One token whose embedding is NaN spoils the pass that it is in, and nothing else. */
static void check_nan_token(test_device *d, weft_dtype weights) {
  enum { BAD = 5 };
  /* Element or block number of the token's row: rows have 64 elements, two blocks. */
  uint32_t place = weights == WEFT_Q8_0 || weights == WEFT_Q4_1 ? BAD * 2 : BAD * 64;
  fixture f =
      fixture_load(d, &(tiny_options){.weights = weights, .fault = {TINY_NAN, "token_embd.weight", place, NULL}});
  weft_kv_cache *cache = fixture_open_cache(&f, 2, WEFT_F16);
  int32_t ids[20] = {1, 2, 3, 4, 6, 7};
  float *logits = test_alloc((size_t)(20 * f.n_vocab), sizeof *logits);
  free(run(&f, cache, 0, ids, 6, 6));
  batch b = {0};
  for (int i = 0; i < 10; i++) add_token(&b, i, i, 1); /* BAD is one of them */
  add_token(&b, 8, 6, 0);
  assert_int_equal(forward(&f, cache, &b, logits), WEFT_ENUMERIC);
  assert_int_equal(weft_kv_cache_length(cache, 0), 6);
  assert_int_equal(weft_kv_cache_length(cache, 1), 0);
  continue_and_compare(d, &f, cache, 0, WEFT_F16, ids, 6, 3, 12);
  free(logits);
  weft_kv_cache_free(cache);
  fixture_unload(&f);
}

static void each_nan_token(test_device *d) {
  check_nan_token(d, WEFT_F32);
  check_nan_token(d, WEFT_F16);
  check_nan_token(d, WEFT_Q8_0);
  check_nan_token(d, WEFT_Q4_1);
}

static void test_nan_token(void **state) {
  (void)state;
  test_each_device(1, each_nan_token);
}

/* ---- model files ---- */

static void check_info(test_device *d) {
  fixture f = fixture_load(d, &(tiny_options){.weights = WEFT_Q4_1, .n_layers = 3, .n_ctx = 77});
  const weft_model_info *info = weft_model_get_info(f.model);
  assert_string_equal(info->architecture, "llama");
  assert_string_equal(info->name, "Tiny");
  assert_string_equal(info->weight_types, "q4_1, f32");
  assert_int_equal(info->file_bytes, f.tiny.file.n);
  assert_int_equal(info->n_layers, 3);
  assert_int_equal(info->n_heads, 4);
  assert_int_equal(info->n_kv_heads, 2);
  assert_int_equal(info->head_size, 16);
  assert_int_equal(info->width, 64);
  assert_int_equal(info->ffn_width, 96);
  assert_int_equal(info->n_ctx_train, 77);
  assert_true(info->temperature == -1);
  int64_t per_layer = 2 * 64 + 64 * 64 * 2 + 32 * 64 * 2 + 3 * 64 * 96;
  assert_int_equal(info->n_params, 2 * 64 * f.n_vocab + 64 + 3 * per_layer);
  assert_ptr_equal(weft_model_device(f.model), d->device);
  assert_int_equal(weft_tokenizer_n_vocab(weft_model_tokenizer(f.model)), f.n_vocab);
  fixture_unload(&f);
  weft_model_free(NULL);
}

/* What a model recommends, as bits: 0, 0.25, 100. */
static void check_temperature(test_device *d) {
  static const uint32_t bits[] = {0, 0x3e800000, 0x42c80000};
  static const float values[] = {0, 0.25f, 100};
  for (size_t i = 0; i < WEFT_COUNT(bits); i++) {
    fixture f = fixture_load(d, &(tiny_options){.fault = {TINY_KEY_FLOAT, "general.sampling.temp", bits[i], NULL}});
    assert_true(weft_model_get_info(f.model)->temperature == values[i]);
    fixture_unload(&f);
  }
}

static void test_temperature(void **state) {
  (void)state;
  on_default_device(check_temperature);
}

static void test_info(void **state) {
  (void)state;
  on_default_device(check_info);
}

/* What the status and the message must be when one thing is wrong with a model. */
typedef struct bad_model {
  tiny_fault fault;
  weft_status status;
  const char *why;
} bad_model;

static const bad_model BAD_MODELS[] = {
    {{TINY_NO_TENSOR, "token_embd.weight", 0, NULL}, WEFT_EFORMAT, "token_embd.weight is missing"},
    {{TINY_NO_TENSOR, "output_norm.weight", 0, NULL}, WEFT_EFORMAT, "output_norm.weight is missing"},
    {{TINY_NO_TENSOR, "blk.1.attn_v.weight", 0, NULL}, WEFT_EFORMAT, "blk.1.attn_v.weight is missing"},
    {{TINY_NO_TENSOR, "blk.0.ffn_norm.weight", 0, NULL}, WEFT_EFORMAT, "blk.0.ffn_norm.weight is missing"},
    {{TINY_MORE_ROWS, "blk.0.attn_q.weight", 0, NULL}, WEFT_EFORMAT, "blk.0.attn_q.weight has shape [65,64]"},
    {{TINY_MORE_ROWS, "blk.1.ffn_down.weight", 0, NULL}, WEFT_EFORMAT, "blk.1.ffn_down.weight"},
    {{TINY_MORE_ROWS, "token_embd.weight", 0, NULL}, WEFT_EFORMAT, "token_embd.weight"},
    {{TINY_MORE_ROWS, "output.weight", 0, NULL}, WEFT_EFORMAT, "output.weight"},
    {{TINY_MORE_ROWS, "blk.0.attn_norm.weight", 0, NULL}, WEFT_EFORMAT, "blk.0.attn_norm.weight has shape [65]"},
    {{TINY_TYPE, "blk.0.attn_k.weight", 24, NULL}, WEFT_EUNSUPPORTED, "blk.0.attn_k.weight has type I8"},
    {{TINY_TYPE, "output.weight", 25, NULL}, WEFT_EUNSUPPORTED, "output.weight has type I16"},
    {{TINY_TYPE, "blk.1.ffn_up.weight", 26, NULL}, WEFT_EUNSUPPORTED, "blk.1.ffn_up.weight has type I32"},
    {{TINY_TYPE, "output_norm.weight", 1, NULL}, WEFT_EUNSUPPORTED, "output_norm.weight has type F16"},
    {{TINY_NO_KEY, "general.architecture", 0, NULL}, WEFT_EFORMAT, "general.architecture"},
    {{TINY_KEY, "general.architecture", 7, NULL}, WEFT_EFORMAT, "general.architecture"},
    {{TINY_KEY_TEXT, "general.architecture", 0, "mamba"}, WEFT_EUNSUPPORTED, "mamba"},
    {{TINY_KEY_TEXT, "general.architecture", 0, "llama2"}, WEFT_EUNSUPPORTED, "llama2"},
    {{TINY_NO_KEY, "llama.block_count", 0, NULL}, WEFT_EFORMAT, "llama.block_count"},
    {{TINY_KEY, "general.sampling.temp", 1, NULL}, WEFT_EFORMAT, "general.sampling.temp"},
    {{TINY_KEY_FLOAT, "general.sampling.temp", 0xbf800000, NULL}, WEFT_EFORMAT, "general.sampling.temp is -1"},
    {{TINY_KEY_FLOAT, "general.sampling.temp", 0x7fc00000, NULL}, WEFT_EFORMAT, "general.sampling.temp is nan"},
    {{TINY_KEY, "llama.block_count", 0, NULL}, WEFT_EFORMAT, "llama.block_count"},
    {{TINY_KEY, "llama.block_count", 3, NULL}, WEFT_EFORMAT, "blk.2."},
    {{TINY_KEY, "llama.block_count", UINT32_MAX, NULL}, WEFT_EFORMAT, "llama.block_count"},
    {{TINY_KEY_TEXT, "llama.block_count", 0, "two"}, WEFT_EFORMAT, "llama.block_count"},
    {{TINY_NO_KEY, "llama.embedding_length", 0, NULL}, WEFT_EFORMAT, "llama.embedding_length"},
    {{TINY_KEY, "llama.embedding_length", 32, NULL}, WEFT_EFORMAT, "has shape"},
    {{TINY_NO_KEY, "llama.feed_forward_length", 0, NULL}, WEFT_EFORMAT, "llama.feed_forward_length"},
    {{TINY_NO_KEY, "llama.context_length", 0, NULL}, WEFT_EFORMAT, "llama.context_length"},
    {{TINY_NO_KEY, "llama.attention.head_count", 0, NULL}, WEFT_EFORMAT, "llama.attention.head_count"},
    {{TINY_KEY, "llama.attention.head_count", 0, NULL}, WEFT_EFORMAT, "llama.attention.head_count"},
    {{TINY_KEY, "llama.attention.head_count_kv", 3, NULL}, WEFT_EFORMAT, "4 heads are no multiple of 3"},
    {{TINY_KEY, "llama.attention.head_count_kv", 8, NULL}, WEFT_EFORMAT, "llama.attention.head_count_kv"},
    {{TINY_KEY, "llama.attention.head_count_kv", 0, NULL}, WEFT_EFORMAT, "llama.attention.head_count_kv"},
    {{TINY_KEY, "llama.attention.key_length", 0, NULL}, WEFT_EFORMAT, "llama.attention.key_length"},
    {{TINY_KEY, "llama.rope.dimension_count", 15, NULL}, WEFT_EFORMAT, "rope.dimension_count"},
    {{TINY_KEY, "llama.rope.dimension_count", 18, NULL}, WEFT_EFORMAT, "rope.dimension_count"},
    {{TINY_KEY, "llama.rope.freq_base", 0, NULL}, WEFT_EFORMAT, "llama.rope.freq_base"},
    {{TINY_NO_KEY, "llama.attention.layer_norm_rms_epsilon", 0, NULL}, WEFT_EFORMAT, "layer_norm_rms_epsilon"},
    {{TINY_KEY_TEXT, "llama.rope.scaling.type", 0, "yarn"}, WEFT_EUNSUPPORTED, "yarn"},
    {{TINY_NO_KEY, "tokenizer.ggml.model", 0, NULL}, WEFT_EFORMAT, "tokenizer.ggml.model"},
    {{TINY_KEY_TEXT, "tokenizer.ggml.model", 0, "bert"}, WEFT_EUNSUPPORTED, "bert"},
    {{TINY_KEY, "tokenizer.ggml.eos_token_id", 9999, NULL}, WEFT_EFORMAT, "tokenizer.ggml.eos_token_id"},
};

/* The same for what only some models have. */
typedef struct bad_variety {
  tiny_options options;
  weft_status status;
  const char *why;
} bad_variety;

#define FAULT(kind, name, value, text) .fault = {kind, name, value, text}
#define QWEN2(...)                                                                                                     \
  { .family = TINY_QWEN2, FAULT(__VA_ARGS__) }
#define GEMMA3(...)                                                                                                    \
  { .family = TINY_GEMMA3, FAULT(__VA_ARGS__) }
static const bad_variety BAD_VARIETIES[] = {
    {QWEN2(TINY_NO_TENSOR, "blk.1.attn_q.bias", 0, NULL), WEFT_EFORMAT, "blk.1.attn_q.bias is missing"},
    {QWEN2(TINY_NO_TENSOR, "blk.0.attn_v.bias", 0, NULL), WEFT_EFORMAT, "blk.0.attn_v.bias is missing"},
    {QWEN2(TINY_MORE_ROWS, "blk.0.attn_k.bias", 0, NULL), WEFT_EFORMAT, "blk.0.attn_k.bias has shape [33]"},
    {QWEN2(TINY_TYPE, "blk.0.attn_k.bias", 1, NULL), WEFT_EUNSUPPORTED, "blk.0.attn_k.bias has type F16"},
    {QWEN2(TINY_NO_KEY, "qwen2.block_count", 0, NULL), WEFT_EFORMAT, "qwen2.block_count"},
    {GEMMA3(TINY_NO_TENSOR, "blk.0.attn_q_norm.weight", 0, NULL), WEFT_EFORMAT, "blk.0.attn_q_norm.weight is missing"},
    {GEMMA3(TINY_NO_TENSOR, "blk.1.attn_k_norm.weight", 0, NULL), WEFT_EFORMAT, "blk.1.attn_k_norm.weight is missing"},
    {GEMMA3(TINY_NO_TENSOR, "blk.0.post_attention_norm.weight", 0, NULL), WEFT_EFORMAT, "post_attention_norm"},
    {GEMMA3(TINY_NO_TENSOR, "blk.0.post_ffw_norm.weight", 0, NULL), WEFT_EFORMAT, "post_ffw_norm.weight is missing"},
    {GEMMA3(TINY_MORE_ROWS, "blk.0.attn_k_norm.weight", 0, NULL), WEFT_EFORMAT, "has shape [17], expected [16]"},
    {GEMMA3(TINY_MORE_ROWS, "blk.1.post_ffw_norm.weight", 0, NULL), WEFT_EFORMAT, "has shape [65], expected [64]"},
    {GEMMA3(TINY_NO_KEY, "gemma3.rope.freq_base", 0, NULL), WEFT_EFORMAT, "gemma3.rope.freq_base is missing"},
    {GEMMA3(TINY_KEY, "gemma3.rope.freq_base_swa", 1, NULL), WEFT_EFORMAT, "gemma3.rope.freq_base_swa"},
    {GEMMA3(TINY_KEY_TEXT, "gemma3.attention.sliding_window", 0, "all"), WEFT_EFORMAT, "sliding_window"},
    {GEMMA3(TINY_KEY, "gemma3.attention.sliding_window", UINT32_MAX, NULL), WEFT_EFORMAT, "sliding_window"},
    {GEMMA3(TINY_KEY, "gemma3.attention.sliding_window_pattern", 0, NULL), WEFT_EFORMAT, "sliding_window_pattern"},
    {GEMMA3(TINY_KEY, "gemma3.final_logit_softcapping", 30, NULL), WEFT_EUNSUPPORTED, "final_logit_softcapping is 30"},
    {{FAULT(TINY_KEY, "llama.expert_count", 8, NULL)}, WEFT_EUNSUPPORTED, "llama.expert_count is 8"},
    {{FAULT(TINY_KEY, "llama.attention.value_length", 8, NULL)}, WEFT_EFORMAT, "llama.attention.value_length"},
    {{FAULT(TINY_KEY, "llama.logit_scale", 2, NULL)}, WEFT_EUNSUPPORTED, "llama.logit_scale is 2"},
    {{FAULT(TINY_KEY_TEXT, "llama.rope.scaling.type", 0, "longrope")}, WEFT_EUNSUPPORTED, "longrope"},
    {{FAULT(TINY_KEY, "llama.block_count", 1, NULL)}, WEFT_EUNSUPPORTED, "the tensor blk.1."},
    {{.has_bias = 1, FAULT(TINY_NO_TENSOR, "blk.0.attn_q.bias", 0, NULL)},
     WEFT_EUNSUPPORTED,
     "blk.0.attn_k.bias has no"},
    {{.has_bias = 1, FAULT(TINY_NO_TENSOR, "blk.0.attn_k.bias", 0, NULL)},
     WEFT_EFORMAT,
     "blk.0.attn_k.bias is missing"},
    {{.has_rope_factors = 1, FAULT(TINY_MORE_ROWS, "rope_freqs.weight", 0, NULL)},
     WEFT_EFORMAT,
     "shape [9], expected [8]"},
    {{.has_rope_factors = 1, FAULT(TINY_NAN, "rope_freqs.weight", 3, NULL)},
     WEFT_EFORMAT,
     "rope_freqs.weight holds nan"},
    {{.rope_stretch = 4, FAULT(TINY_KEY, "llama.rope.scaling.factor", 4, NULL)}, WEFT_EFORMAT, "rope.scaling.factor"},
};

/* A refusal names the file and the culprit, and there is no model. */
static void check_bad_model(test_device *d, const tiny_options *options, weft_status expected, const char *why) {
  tiny_model tiny = tiny_model_make(options);
  weft_model *model = NULL;
  weft_status status = fixture_load_file(&tiny, d->device, &model);
  if (status != expected)
    fail_msg("fault in %s: status %s \"%s\"", options->fault.name, weft_status_name(status), weft_last_error());
  assert_message(why);
  assert_message("/weft-tiny-");
  assert_null(model);
  tiny_model_clear(&tiny);
}

static void check_bad_models(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(BAD_MODELS); i++)
    check_bad_model(d, &(tiny_options){.fault = BAD_MODELS[i].fault}, BAD_MODELS[i].status, BAD_MODELS[i].why);
  for (size_t i = 0; i < WEFT_COUNT(BAD_VARIETIES); i++)
    check_bad_model(d, &BAD_VARIETIES[i].options, BAD_VARIETIES[i].status, BAD_VARIETIES[i].why);
}

static void test_bad_models(void **state) {
  (void)state;
  on_default_device(check_bad_models);
}

/* What a file may leave out, or say that changes nothing. */
static void check_optional_parts(test_device *d) {
  static const tiny_fault faults[] = {
      {TINY_NO_KEY, "general.name", 0, NULL},
      {TINY_NO_KEY, "llama.attention.key_length", 0, NULL},
      {TINY_NO_KEY, "llama.rope.dimension_count", 0, NULL},
      {TINY_NO_KEY, "tokenizer.chat_template", 0, NULL},
      {TINY_KEY_TEXT, "llama.rope.scaling.type", 0, "none"},
      {TINY_KEY_TEXT, "llama.rope.scaling.type", 0, "linear"},
  };
  int32_t ids[10];
  fixture whole = fixture_load(d, NULL);
  fixture_draw_ids(&whole, ids, 10, 13);
  float *want = run_alone(&whole, WEFT_F32, ids, 10, 10);
  for (size_t i = 0; i < WEFT_COUNT(faults); i++) {
    fixture f = fixture_load(d, &(tiny_options){.fault = faults[i]});
    float *got = run_alone(&f, WEFT_F32, ids, 10, 10);
    assert_same(d, faults[i].name, got, want, 10, f.n_vocab);
    free(got);
    fixture_unload(&f);
  }
  free(want);
  fixture_unload(&whole);
}

static void test_optional_parts(void **state) {
  (void)state;
  on_default_device(check_optional_parts);
}

/* Without head_count_kv every head has keys and values of its own; without output.weight the embedding serves. */
static void check_defaults(test_device *d) {
  int32_t ids[20];
  const tiny_options options[] = {
      {.n_kv_heads = 4, .fault = {TINY_NO_KEY, "llama.attention.head_count_kv", 0, NULL}},
      {.is_tied = 1},
      {.is_tied = 1, .weights = WEFT_Q8_0},
  };
  for (size_t i = 0; i < WEFT_COUNT(options); i++) {
    fixture f = fixture_load(d, &options[i]);
    fixture_draw_ids(&f, ids, 20, 14);
    float *got = run_alone(&f, WEFT_F32, ids, 20, 20), *want = tiny_reference(&f.tiny, ids, 20);
    assert_close(d, "a default", got, want, 20, f.n_vocab, 1e-5);
    free(got);
    free(want);
    fixture_unload(&f);
  }
}

static void test_defaults(void **state) {
  (void)state;
  on_default_device(check_defaults);
}

/* Tensors may lie anywhere in a file that asks for no alignment: here 0 to 3 bytes beside a multiple of 4. */
static void check_misaligned(test_device *d) {
  static const char *const names[] = {"", "x", "xx", "xxx"};
  for (size_t i = 0; i < WEFT_COUNT(names); i++) {
    fixture f = fixture_load(d, &(tiny_options){.alignment = 1, .fault = {TINY_KEY_TEXT, "general.name", 0, names[i]}});
    int32_t ids[20];
    fixture_draw_ids(&f, ids, 20, 14);
    float *got = run_alone(&f, WEFT_F32, ids, 20, 20), *want = tiny_reference(&f.tiny, ids, 20);
    assert_close(d, "a file without alignment", got, want, 20, f.n_vocab, 1e-5);
    free(got);
    free(want);
    fixture_unload(&f);
  }
}

static void test_misaligned(void **state) {
  (void)state;
  test_each_device(1, check_misaligned);
}

/* What a load told: how often, the last fraction, and whether each was larger than the one before or all. */
typedef struct progress {
  int n, is_monotone;
  double last;
} progress;

static void note_progress(void *context, double fraction) {
  progress *p = context;
  p->is_monotone &= fraction > p->last || fraction == 1;
  p->last = fraction;
  p->n++;
}

/* Every weight is told of, and the last makes it all, also where one is read twice. */
static void check_progress(test_device *d) {
  for (int is_tied = 0; is_tied < 2; is_tied++) {
    tiny_model tiny = tiny_model_make(&(tiny_options){.is_tied = is_tied});
    char path[TINY_PATH_BYTES];
    weft_model *model = NULL;
    progress p = {.is_monotone = 1};
    tiny_model_save(&tiny, path);
    assert_int_equal(
        weft_model_load(&model, d->device, path, &(weft_model_options){.on_progress = note_progress, .context = &p}),
        WEFT_OK);
    assert_int_equal(p.n, 3 + 2 * 9);
    assert_true(p.is_monotone);
    assert_true(p.last == 1);
    weft_model_free(model);
    unlink(path);
    tiny_model_clear(&tiny);
  }
}

static void test_progress(void **state) {
  (void)state;
  on_default_device(check_progress);
}

static void check_bad_paths(test_device *d) {
  weft_model *model = NULL;
  assert_int_equal(weft_model_load(&model, d->device, "/tmp/weft-tiny-no-such-file", NULL), WEFT_EIO);
  assert_message("/tmp/weft-tiny-no-such-file: No such file");
  assert_int_equal(weft_model_load(&model, d->device, "/tmp", NULL), WEFT_EINVAL);
  assert_int_equal(weft_model_load(&model, d->device, NULL, NULL), WEFT_EINVAL);
  assert_int_equal(weft_model_load(&model, NULL, "/tmp/weft-tiny-no-such-file", NULL), WEFT_EINVAL);
  assert_null(model);
}

static void test_bad_paths(void **state) {
  (void)state;
  on_default_device(check_bad_paths);
}

/* A model cut short anywhere is refused. */
static void check_truncated_files(test_device *d) {
  tiny_model tiny = tiny_model_make(&(tiny_options){.n_layers = 1, .width = 32, .ffn_width = 32});
  size_t whole = tiny.file.n;
  const size_t lengths[] = {0, 3, 4, 24, 100, whole / 4, whole / 2, whole - 1};
  for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
    weft_model *model = NULL;
    tiny.file.n = lengths[i];
    assert_int_equal(fixture_load_file(&tiny, d->device, &model), WEFT_EFORMAT);
    assert_null(model);
  }
  tiny_model_clear(&tiny);
}

static void test_truncated_files(void **state) {
  (void)state;
  on_default_device(check_truncated_files);
}

/* ---- sessions ---- */

/* Chunks of any size, in one call or several, leave the logits of one pass over all. */
static void check_append(test_device *d, const fixture *f, weft_dtype kv) {
  static const int chunks[] = {1, 7, 64, 0};
  int32_t ids[N_TOKENS];
  fixture_draw_ids(f, ids, N_TOKENS, 15);
  float *want = run_alone(f, kv, ids, N_TOKENS, N_TOKENS);
  for (size_t i = 0; i < WEFT_COUNT(chunks); i++) {
    weft_session *s = fixture_open_session(f, &(weft_session_options){.n_prefill = chunks[i], .kv_dtype = kv});
    const float *logits = NULL;
    assert_int_equal(weft_session_append(s, ids, 33, &logits), WEFT_OK);
    assert_same(d, "a session's logits", logits, want + 32 * f->n_vocab, 1, f->n_vocab);
    assert_int_equal(weft_session_append(s, ids + 33, N_TOKENS - 33, &logits), WEFT_OK);
    assert_same(d, "a session's logits", logits, want + (N_TOKENS - 1) * f->n_vocab, 1, f->n_vocab);
    assert_int_equal(weft_session_length(s), N_TOKENS);
    assert_int_equal(weft_session_truncate(s, 40), WEFT_OK);
    assert_int_equal(weft_session_append(s, ids + 40, 10, &logits), WEFT_OK);
    assert_same(d, "a session's logits", logits, want + 49 * f->n_vocab, 1, f->n_vocab);
    weft_session_free(s);
  }
  free(want);
}

static void each_append(test_device *d) { with_models(d, check_append); }

static void test_append(void **state) {
  (void)state;
  test_each_device(2, each_append);
}

static void check_bad_append(test_device *d) {
  fixture f = fixture_load(d, NULL);
  weft_session *s = fixture_open_session(&f, &(weft_session_options){.n_ctx = 30, .n_prefill = 4});
  int32_t ids[MAX_TOKENS];
  const float *logits = NULL;
  fixture_draw_ids(&f, ids, MAX_TOKENS, 16);
  assert_int_equal(weft_session_append(s, ids, 10, &logits), WEFT_OK);
  logits = NULL;
  assert_int_equal(weft_session_append(s, ids, 0, &logits), WEFT_EINVAL);
  assert_int_equal(weft_session_append(s, ids + 10, 21, &logits), WEFT_ELIMIT);
  assert_message("21");
  assert_message("30");
  assert_int_equal(weft_session_append(s, ids, SIZE_MAX, &logits), WEFT_ELIMIT);
  ids[19] = f.n_vocab; /* in the third chunk: the first two are taken back */
  assert_int_equal(weft_session_append(s, ids + 10, 12, &logits), WEFT_EINVAL);
  assert_int_equal(weft_session_length(s), 10);
  assert_null(logits);
  assert_int_equal(weft_session_truncate(s, 11), WEFT_EINVAL);
  assert_int_equal(weft_session_truncate(s, -1), WEFT_EINVAL);
  assert_int_equal(weft_session_append(s, ids + 10, 5, &logits), WEFT_OK);
  float *want = run_alone(&f, WEFT_F32, ids, 15, 15);
  assert_same(d, "after refusals", logits, want + 14 * f.n_vocab, 1, f.n_vocab);
  free(want);
  weft_session_free(s);
  weft_session_free(NULL);
  fixture_unload(&f);
}

static void test_bad_append(void **state) {
  (void)state;
  on_default_device(check_bad_append);
}

static void check_session_options(test_device *d) {
  fixture f = fixture_load(d, &(tiny_options){.n_ctx = 90});
  weft_session *s = NULL;
  assert_int_equal(weft_session_create(&s, f.model, &(weft_session_options){.n_ctx = 91}), WEFT_ELIMIT);
  assert_message("91");
  assert_message("90");
  assert_int_equal(weft_session_create(&s, f.model, &(weft_session_options){.n_ctx = -5}), WEFT_EINVAL);
  assert_int_equal(weft_session_create(&s, f.model, &(weft_session_options){.n_prefill = -1}), WEFT_EINVAL);
  assert_int_equal(weft_session_create(&s, f.model, &(weft_session_options){.kv_dtype = WEFT_I32}), WEFT_EINVAL);
  assert_null(s);
  assert_int_equal(weft_session_create(&s, f.model, NULL), WEFT_OK);
  assert_int_equal(weft_session_n_ctx(s), 90);
  assert_int_equal(weft_session_length(s), 0);
  weft_session_free(s);
  fixture_unload(&f);
}

static void test_session_options(void **state) {
  (void)state;
  on_default_device(check_session_options);
}

/* A model in two files, whichever of them is named, is the model in one. */
static void check_split(test_device *d) {
  fixture f = fixture_load(d, NULL);
  int32_t ids[12];
  char path[TINY_PATH_BYTES], part_paths[2][TINY_PATH_BYTES + 32];
  fixture_draw_ids(&f, ids, 12, 5);
  float *want = run_alone(&f, WEFT_F32, ids, 12, 12);
  tiny_model_save(&f.tiny, path);
  gguf_split_file(path, path);
  for (int no = 0; no < 2; no++)
    snprintf(part_paths[no], sizeof part_paths[no], "%s-%05d-of-%05d.gguf", path, no + 1, 2);
  for (int no = 0; no < 2; no++) {
    fixture split = {.n_vocab = f.n_vocab};
    if (weft_model_load(&split.model, d->device, part_paths[no], NULL)) fail_msg("%s", weft_last_error());
    assert_int_equal(weft_model_get_info(split.model)->n_params, weft_model_get_info(f.model)->n_params);
    float *got = run_alone(&split, WEFT_F32, ids, 12, 12);
    assert_memory_equal(got, want, (size_t)(12 * f.n_vocab) * sizeof *got);
    free(got);
    weft_model_free(split.model);
  }
  for (int no = 0; no < 2; no++) unlink(part_paths[no]);
  unlink(path);
  free(want);
  fixture_unload(&f);
}

static void test_split(void **state) {
  (void)state;
  on_default_device(check_split);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_forward),         cmocka_unit_test(test_chunks),
      cmocka_unit_test(test_slots),           cmocka_unit_test(test_mixed_batch),
      cmocka_unit_test(test_threads),         cmocka_unit_test(test_truncate),
      cmocka_unit_test(test_share),           cmocka_unit_test(test_blocks),
      cmocka_unit_test(test_bad_batches),     cmocka_unit_test(test_bad_arguments),
      cmocka_unit_test(test_full_slot),       cmocka_unit_test(test_cache_arguments),
      cmocka_unit_test(test_cache_options),   cmocka_unit_test(test_nan_weight),
      cmocka_unit_test(test_nan_token),       cmocka_unit_test(test_info),
      cmocka_unit_test(test_temperature),     cmocka_unit_test(test_bad_models),
      cmocka_unit_test(test_optional_parts),  cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_misaligned),      cmocka_unit_test(test_bad_paths),
      cmocka_unit_test(test_truncated_files), cmocka_unit_test(test_append),
      cmocka_unit_test(test_bad_append),      cmocka_unit_test(test_session_options),
      cmocka_unit_test(test_progress),        cmocka_unit_test(test_split),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
