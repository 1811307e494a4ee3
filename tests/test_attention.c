/* test_attention.c - kv_append and paged_attention: every variant and dtype of the cache, head sizes and groups of all
 * kinds, several slots whose blocks lie scattered, against plain softmax attention in double. */
#include "support/tensors.h"

#include "base/rng.h"
#include "cpu/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { N_SLOTS = 3, BLOCKS_PER_SLOT = 4, N_BLOCKS = N_SLOTS * BLOCKS_PER_SLOT };

/* A cache on the device, and the same keys and values in plain memory. */
typedef struct cache {
  int64_t n_heads, n_kv_heads, head_size;
  int window; /* of the attention; 0: none */
  weft_dtype dtype;
  weft_tensor *keys, *values, *block_table;
  int length[N_SLOTS];
  double *k, *v; /* [slot][position][G*D], as the cache's dtype keeps them */
} cache;

static int64_t kv_width(const cache *c) { return c->n_kv_heads * c->head_size; }

static double *stored(const cache *c, double *base, int slot, int position) {
  return base + ((int64_t)slot * BLOCKS_PER_SLOT * WEFT_KV_BLOCK + position) * kv_width(c);
}

static cache make_cache(test_device *d, int64_t n_heads, int64_t n_kv_heads, int64_t head_size, weft_dtype dtype) {
  cache c = {.n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_size = head_size, .dtype = dtype};
  c.keys = weft_tensor_new(d->scope, dtype, 4, (int64_t[]){N_BLOCKS, n_kv_heads, head_size, WEFT_KV_BLOCK});
  c.values = weft_tensor_new(d->scope, dtype, 4, (int64_t[]){N_BLOCKS, n_kv_heads, WEFT_KV_BLOCK, head_size});
  int32_t table[N_BLOCKS];
  for (int i = 0; i < N_BLOCKS; i++) table[i] = (i * 7 + 3) % N_BLOCKS; /* a permutation: 7 and 12 share no factor */
  table[N_BLOCKS - 1] = -1;                                             /* slot 2 has one block less */
  c.block_table = weft_tensor_from(d->scope, WEFT_I32, 2, (int64_t[]){N_SLOTS, BLOCKS_PER_SLOT}, table);
  size_t n = (size_t)(N_BLOCKS * WEFT_KV_BLOCK * kv_width(&c));
  c.k = test_alloc(n, sizeof *c.k);
  c.v = test_alloc(n, sizeof *c.v);
  assert_non_null(c.keys);
  assert_non_null(c.values);
  assert_non_null(c.block_table);
  return c;
}

static void free_cache(cache *c) {
  free(c->k);
  free(c->v);
}

/* A batch: `n` tokens, token i in slot slots[i] at its next position. */
typedef struct batch {
  int64_t n;
  int32_t slots[300], positions[300];
  weft_tensor *slot_tensor, *position_tensor;
} batch;

static void place(test_device *d, cache *c, batch *b) {
  for (int64_t i = 0; i < b->n; i++) b->positions[i] = c->length[b->slots[i]]++;
  b->slot_tensor = weft_tensor_from(d->scope, WEFT_I32, 1, &b->n, b->slots);
  b->position_tensor = weft_tensor_from(d->scope, WEFT_I32, 1, &b->n, b->positions);
}

static double rounded(weft_dtype dtype, float x) {
  return (double)(dtype == WEFT_F16 ? weft__f16_to_f32(weft__f32_to_f16(x)) : x);
}

/* One head's row of a q8_0 cache: `block` is the head's block, element d lies at d * step + first.  What is stored must
 * be x to half a step of 1/127 of the largest of 32, but for the rounding of the scale to f16. */
static void decode_q8(const cache *c, const char *block, int64_t first, int64_t step, int in_block, const float *x,
                      double *out) {
  const int8_t *elements = (const int8_t *)block;
  const uint16_t *scales = (const uint16_t *)(block + c->head_size * WEFT_KV_BLOCK);
  for (int64_t b = 0; b < c->head_size; b += 32) {
    double largest = 0, scale = (double)weft__f16_to_f32(scales[b / 32 * WEFT_KV_BLOCK + in_block]);
    for (int64_t i = b; i < b + 32; i++) largest = fmax(largest, fabs((double)x[i]));
    assert_true(fabs(scale - largest / 127) <= largest / 127 * 0x1p-11);
    for (int64_t i = b; i < b + 32; i++) {
      out[i] = scale * elements[first + i * step];
      assert_true(fabs(out[i] - (double)x[i]) <= largest / 127 * 0.5 + largest * 0x1p-11);
    }
  }
}

/* Reads token i's key and value heads back from a q8_0 cache into the plain copy. */
static void store_q8(cache *c, const batch *b, int64_t i, const int32_t *table, const char *keys, const char *values,
                     const float *k, const float *v) {
  int in_block = b->positions[i] % WEFT_KV_BLOCK;
  int64_t block = table[b->slots[i] * BLOCKS_PER_SLOT + b->positions[i] / WEFT_KV_BLOCK];
  for (int64_t g = 0; g < c->n_kv_heads; g++) {
    int64_t offset = (block * c->n_kv_heads + g) * c->head_size * (WEFT_KV_BLOCK + 2), d = g * c->head_size;
    decode_q8(c, keys + offset, in_block, WEFT_KV_BLOCK, in_block, k + d,
              stored(c, c->k, b->slots[i], b->positions[i]) + d);
    decode_q8(c, values + offset, in_block * c->head_size, 1, in_block, v + d,
              stored(c, c->v, b->slots[i], b->positions[i]) + d);
  }
}

static char *read_bytes(const weft_tensor *t) {
  char *bytes = test_alloc(weft_tensor_bytes(t), 1);
  if (weft_tensor_read(t, bytes, weft_tensor_bytes(t))) fail_msg("%s", weft_last_error());
  return bytes;
}

/* Keeps what the cache now holds of the batch, `rows` [n,stride] with k and v side by side. */
static void keep(cache *c, const batch *b, const float *rows, int64_t stride) {
  int64_t width = kv_width(c);
  char *table = read_bytes(c->block_table), *keys = read_bytes(c->keys), *values = read_bytes(c->values);
  for (int64_t i = 0; i < b->n; i++) {
    const float *k = rows + i * stride, *v = k + width;
    if (c->dtype == WEFT_Q8_0) store_q8(c, b, i, (const int32_t *)table, keys, values, k, v);
    for (int64_t j = 0; j < width && c->dtype != WEFT_Q8_0; j++) {
      stored(c, c->k, b->slots[i], b->positions[i])[j] = rounded(c->dtype, k[j]);
      stored(c, c->v, b->slots[i], b->positions[i])[j] = rounded(c->dtype, v[j]);
    }
  }
  free(table);
  free(keys);
  free(values);
}

/* Appends random rows, which lie in a wider tensor as they do in a model. */
static void append(test_device *d, cache *c, batch *b, uint64_t seed) {
  int64_t width = kv_width(c);
  weft_tensor *wide = test_random(d, 2, (int64_t[]){b->n, 2 * width + 5}, 1, seed);
  weft_tensor *k = weft_slice(d->scope, wide, 1, 5, width), *v = weft_slice(d->scope, wide, 1, 5 + width, width);
  weft_tensor *y =
      weft_kv_append(d->scope, c->keys, c->values, k, v, c->block_table, b->position_tensor, b->slot_tensor);
  if (!y) fail_msg("kv_append (%s): %s", d->variant, weft_last_error());
  float *rows = test_read(wide);
  keep(c, b, rows + 5, 2 * width + 5);
  free(rows);
}

/* Attention of one head of one token in double. */
static void reference(const cache *c, const float *q, int slot, int last, int64_t kv_head, double scale, double *out) {
  double p[BLOCKS_PER_SLOT * WEFT_KV_BLOCK], largest = -INFINITY, sum = 0;
  int first = c->window && last >= c->window ? last - c->window + 1 : 0;
  for (int i = first; i <= last; i++) {
    const double *k = stored(c, c->k, slot, i) + kv_head * c->head_size;
    p[i] = 0;
    for (int64_t e = 0; e < c->head_size; e++) p[i] += (double)q[e] * k[e];
    p[i] *= scale;
    largest = fmax(largest, p[i]);
  }
  for (int i = first; i <= last; i++) sum += p[i] = exp(p[i] - largest);
  for (int64_t e = 0; e < c->head_size; e++) out[e] = 0;
  for (int i = first; i <= last; i++)
    for (int64_t e = 0; e < c->head_size; e++)
      out[e] += p[i] / sum * stored(c, c->v, slot, i)[kv_head * c->head_size + e];
}

static weft_tensor *attend(test_device *d, const cache *c, const batch *b, weft_tensor *q, float scale) {
  const weft_paged_attention_attrs attrs = {(int)c->n_heads, scale, c->window};
  return weft_paged_attention(d->scope, q, c->keys, c->values, c->block_table, b->position_tensor, b->slot_tensor,
                              &attrs);
}

static void check_batch(test_device *d, const cache *c, const batch *b, uint64_t seed) {
  int64_t width = c->n_heads * c->head_size, group = c->n_heads / c->n_kv_heads;
  float scale = 1.5f / sqrtf((float)c->head_size);
  weft_tensor *q = test_random(d, 2, (int64_t[]){b->n, width}, 3, seed);
  float *rows = test_read(q);
  double *want = test_alloc((size_t)(b->n * width), sizeof *want);
  for (int64_t i = 0; i < b->n; i++)
    for (int64_t h = 0; h < c->n_heads; h++)
      reference(c, rows + i * width + h * c->head_size, b->slots[i], b->positions[i], h / group, (double)scale,
                want + i * width + h * c->head_size);
  /* Values below 1; the error is that of scores of magnitude 10, an exponential and a sum of 100 terms. */
  test_compare("paged_attention", d, attend(d, c, b, q, scale), want, NULL, 1e-5, 0);
  free(want);
  free(rows);
}

/* At once, or, for what is wrong in operands' contents, by a GPU's next sync. */
static void refuse(test_device *d, weft_tensor *y, const char *part) {
  bool is_told_later = y && test_is_gpu(d);
  if (!is_told_later) assert_null(y);
  assert_int_equal(is_told_later ? weft_device_sync(d->device) : weft_last_status(), WEFT_EINVAL);
  if (!strstr(weft_last_error(), part)) fail_msg("\"%s\" lacks \"%s\"", weft_last_error(), part);
}

static weft_tensor *attend_at(test_device *d, const cache *c, int32_t slot, int32_t position) {
  batch b = {.n = 1, .slots = {slot}, .positions = {position}};
  b.slot_tensor = weft_tensor_from(d->scope, WEFT_I32, 1, &b.n, b.slots);
  b.position_tensor = weft_tensor_from(d->scope, WEFT_I32, 1, &b.n, b.positions);
  return attend(d, c, &b, test_random(d, 2, (int64_t[]){1, c->n_heads * c->head_size}, 1, 1), 1);
}

/* ---- results ---- */

/* A prefill, tokens of all slots mixed, and single tokens. */
static void check_shape(test_device *d, int64_t n_heads, int64_t n_kv_heads, int64_t head_size, weft_dtype dtype,
                        int window) {
  cache c = make_cache(d, n_heads, n_kv_heads, head_size, dtype);
  c.window = window;
  batch b = {.n = 65};
  for (int64_t i = 0; i < b.n; i++) b.slots[i] = 1;
  place(d, &c, &b);
  append(d, &c, &b, 1);
  check_batch(d, &c, &b, 2);
  for (int64_t i = 0; i < b.n; i++) b.slots[i] = i % 5 < 3 ? 0 : i % 5 == 3 ? 1 : 2;
  place(d, &c, &b);
  append(d, &c, &b, 3);
  check_batch(d, &c, &b, 4);
  for (int i = 0; i < 3; i++) {
    b = (batch){.n = 1, .slots = {i % N_SLOTS}};
    place(d, &c, &b);
    append(d, &c, &b, 5);
    check_batch(d, &c, &b, 6);
  }
  free_cache(&c);
}

static const weft_dtype DTYPES[] = {WEFT_F32, WEFT_F16, WEFT_Q8_0};

static void check_shapes(test_device *d) {
  static const struct {
    int64_t n_heads, n_kv_heads, head_size;
  } SHAPES[] = {{1, 1, 1},  {2, 1, 7},   {9, 3, 64}, {4, 4, 16},  {6, 2, 63},  {5, 1, 65},
                {2, 2, 80}, {8, 2, 128}, {3, 1, 96}, {2, 1, 256}, {1, 1, 288}, {40, 2, 32}};
  /* A GPU compiles a kernel for every shape and dtype: of the dtypes it takes turns, of the shapes some. */
  size_t step = !test_is_gpu(d) || !strncmp(d->variant, "gpu v29", 7) ? 1 : 5;
  for (size_t i = 0; i < WEFT_COUNT(SHAPES); i += step)
    for (size_t t = test_is_gpu(d) ? i % 3 : 0; t < WEFT_COUNT(DTYPES); t += test_is_gpu(d) ? 3 : 1)
      if (DTYPES[t] != WEFT_Q8_0 || SHAPES[i].head_size % 32 == 0)
        check_shape(d, SHAPES[i].n_heads, SHAPES[i].n_kv_heads, SHAPES[i].head_size, DTYPES[t], 0);
}

static void test_shapes(void **state) {
  (void)state;
  test_each_device(2, check_shapes);
}

/* Windows that begin within a block, at its border, within the token's own block, and before all positions. */
static void check_windows(test_device *d) {
  static const int WINDOWS[] = {1, 2, 31, 32, 33, 50, 64, 127, 1000};
  for (size_t i = 0; i < WEFT_COUNT(WINDOWS); i += test_is_gpu(d) ? 3 : 1) {
    check_shape(d, 4, 1, 40, WEFT_F32, WINDOWS[i]);
    check_shape(d, 3, 3, 17, WEFT_F16, WINDOWS[i]);
    check_shape(d, 2, 1, 32, WEFT_Q8_0, WINDOWS[i]);
  }
}

static void test_windows(void **state) {
  (void)state;
  test_each_device(2, check_windows);
}

/* Blocks before the window may be gone. */
static void check_missing_blocks(test_device *d) {
  cache c = make_cache(d, 2, 1, 16, WEFT_F32);
  batch b = {.n = 70};
  c.window = 5;
  place(d, &c, &b);
  append(d, &c, &b, 21);
  int32_t table[N_BLOCKS];
  assert_int_equal(weft_tensor_read(c.block_table, table, sizeof table), WEFT_OK);
  table[0] = -1;
  assert_int_equal(weft_tensor_write(c.block_table, table, sizeof table), WEFT_OK);
  batch late = {.n = 3, .slots = {0}, .positions = {36, 37, 69}};
  late.slot_tensor = weft_tensor_from(d->scope, WEFT_I32, 1, &late.n, late.slots);
  late.position_tensor = weft_tensor_from(d->scope, WEFT_I32, 1, &late.n, late.positions);
  check_batch(d, &c, &late, 22);
  refuse(d, attend_at(d, &c, 0, 35), "slot 0 has no block for position 0");
  free_cache(&c);
}

static void test_missing_blocks(void **state) {
  (void)state;
  test_each_device(1, check_missing_blocks);
}

/* With more threads than key/value heads the rows of one token are cut: 20 of them, in 4 tasks at 100 positions. */
static void check_many_threads(test_device *d) {
  if (test_is_gpu(d)) return; /* which has no such threads */
  check_shape(d, 40, 2, 64, WEFT_F16, 0);
  check_shape(d, 40, 2, 64, WEFT_Q8_0, 0);
}

static void test_many_threads(void **state) {
  (void)state;
  test_each_device(16, check_many_threads);
}

/* A token's result is the same bits alone and within any batch. */
static void check_invariance_of(test_device *d, int64_t head_size, weft_dtype dtype, int window) {
  cache c = make_cache(d, 6, 2, head_size, dtype);
  c.window = window;
  batch b = {.n = 90};
  for (int64_t i = 0; i < b.n; i++) b.slots[i] = i < 60 ? 0 : 1;
  place(d, &c, &b);
  append(d, &c, &b, 8);
  weft_tensor *q = test_random(d, 2, (int64_t[]){b.n, 6 * head_size}, 3, 9), *all = attend(d, &c, &b, q, 0.2f);
  assert_non_null(all);
  float *whole = test_read(all);
  for (int64_t i = 0; i < b.n; i++) {
    batch one = {.n = 1, .slots = {b.slots[i]}, .positions = {b.positions[i]}};
    one.slot_tensor = weft_tensor_from(d->scope, WEFT_I32, 1, &one.n, one.slots);
    one.position_tensor = weft_tensor_from(d->scope, WEFT_I32, 1, &one.n, one.positions);
    weft_tensor *y = attend(d, &c, &one, weft_slice(d->scope, q, 0, i, 1), 0.2f);
    assert_non_null(y);
    float *alone = test_read(y);
    assert_memory_equal(alone, whole + i * 6 * head_size, (size_t)(6 * head_size) * sizeof *alone);
    free(alone);
  }
  free(whole);
  free_cache(&c);
}

static void check_batch_invariance(test_device *d) {
  check_invariance_of(d, 48, WEFT_F16, 0);
  check_invariance_of(d, 96, WEFT_Q8_0, 0);
  check_invariance_of(d, 48, WEFT_F16, 20);
}

static void test_batch_invariance(void **state) {
  (void)state;
  test_each_device(2, check_batch_invariance);
}

/* Scores of +-1e4 neither overflow nor give NaN: the largest wins. */
static void check_large_scores(test_device *d) {
  cache c = make_cache(d, 1, 1, 8, WEFT_F32);
  batch b = {.n = 70};
  place(d, &c, &b);
  append(d, &c, &b, 11);
  check_batch(d, &c, &b, 12);
  weft_tensor *q = test_random(d, 2, (int64_t[]){b.n, 8}, 1e4f, 13), *y = attend(d, &c, &b, q, 1);
  assert_non_null(y);
  float *got = test_read(y);
  for (int64_t i = 0; i < b.n * 8; i++) assert_true(fabsf(got[i]) <= 1.0001f);
  free(got);
  free_cache(&c);
}

static void test_large_scores(void **state) {
  (void)state;
  test_each_device(1, check_large_scores);
}

/* A q8_0 cache holds zeros, subnormal and large numbers: a block of zeros has no scale to divide by. */
static void check_extreme_q8(test_device *d) {
  cache c = make_cache(d, 1, 1, 32, WEFT_Q8_0);
  static const float SIZES[] = {0, 1e-40f, 1e-6f, 1e4f};
  batch b = {.n = WEFT_COUNT(SIZES)};
  place(d, &c, &b);
  float rows[WEFT_COUNT(SIZES)][32];
  for (int64_t i = 0; i < b.n; i++)
    for (int j = 0; j < 32; j++) rows[i][j] = SIZES[i] * (float)(j - 16) / 16;
  weft_tensor *k = weft_tensor_from(d->scope, WEFT_F32, 2, (int64_t[]){b.n, 32}, rows);
  weft_tensor *zero = test_random(d, 2, (int64_t[]){b.n, 32}, 0, 1);
  assert_non_null(weft_kv_append(d->scope, c.keys, c.values, zero, k, c.block_table, b.position_tensor, b.slot_tensor));
  weft_tensor *y = attend(d, &c, &b, zero, 1);
  assert_non_null(y);
  float *got = test_read(y);
  double sum = 0;
  for (int64_t i = 0; i < b.n; i++) { /* equal scores: token i's result is the mean of the values so far;
                                           * a scale is f16, in steps of 2^-24 at the least */
    sum += (double)SIZES[i];
    for (int j = 0; j < 32; j++)
      assert_true(fabs((double)got[i * 32 + j] - sum * (j - 16) / 16 / (double)(i + 1)) <=
                  127 * 0x1p-25 + (double)SIZES[i] / 254 * 1.1);
  }
  free(got);
  free_cache(&c);
}

static void test_extreme_q8(void **state) {
  (void)state;
  test_each_device(1, check_extreme_q8);
}

/* ---- refusals ---- */

static void check_refusals(test_device *d) {
  cache c = make_cache(d, 4, 2, 16, WEFT_F32);
  refuse(d, attend_at(d, &c, -1, 0), "slot -1");
  refuse(d, attend_at(d, &c, N_SLOTS, 0), "outside the block table");
  refuse(d, attend_at(d, &c, 0, -1), "position -1");
  refuse(d, attend_at(d, &c, 0, BLOCKS_PER_SLOT * WEFT_KV_BLOCK), "outside the block table");
  refuse(d, attend_at(d, &c, 2, (BLOCKS_PER_SLOT - 1) * WEFT_KV_BLOCK), "slot 2 has no block for position 96");
  c.n_heads = 3;
  refuse(d, attend_at(d, &c, 0, 0), "paged_attention: wants");
  free_cache(&c);
}

static void test_refusals(void **state) {
  (void)state;
  test_each_device(1, check_refusals);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shapes),           cmocka_unit_test(test_windows),
      cmocka_unit_test(test_missing_blocks),   cmocka_unit_test(test_many_threads),
      cmocka_unit_test(test_batch_invariance), cmocka_unit_test(test_large_scores),
      cmocka_unit_test(test_extreme_q8),       cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
