/* test_dense_attention.c - the operators attention, attention_lse and attention_grad against their formulas in double, on every
 * CPU variant and every generation of the WebGPU library: head sizes and lengths around the kernels' tiles, masks, windows,
 * grouped heads, views.  The gradient's formula itself is compared with central differences. */
#include "support/gradient.h"
#include "support/tensors.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct shape {
  int64_t n_batches, n_queries, n_keys, n_heads, n_kv_heads, head_size;
  weft_mask mask;
  int window;
} shape;

static weft_attention_attrs attrs_of(const shape *s) {
  return (weft_attention_attrs){(int)s->n_heads, 1.5f / sqrtf((float)s->head_size), s->mask, s->window};
}

static size_t n_rows(const shape *s) { return (size_t)(s->n_batches * s->n_queries); }
static size_t n_queries(const shape *s) { return n_rows(s) * (size_t)(s->n_heads * s->head_size); }
static size_t n_keys(const shape *s) { return (size_t)(s->n_batches * s->n_keys * s->n_kv_heads * s->head_size); }

/* ---- one head of one query ---- */

/* Where it lies: elements of q, y and their gradients; of k, v and theirs, whose rows are `stride` apart; the keys that it
 * sees. */
typedef struct place {
  int64_t query, keys, stride, first, end;
} place;

static place place_of(const shape *s, int64_t row, int64_t head) {
  int64_t kv_width = s->n_kv_heads * s->head_size, query = row % s->n_queries;
  place p = {.stride = kv_width, .end = s->n_keys};
  p.query = (row * s->n_heads + head) * s->head_size;
  p.keys = row / s->n_queries * s->n_keys * kv_width + head / (s->n_heads / s->n_kv_heads) * s->head_size;
  if (s->mask == WEFT_MASK_CAUSAL) p.end = query + s->n_keys - s->n_queries + 1;
  if (s->window && p.end > s->window) p.first = p.end - s->window;
  return p;
}

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* Probabilities of the keys that it sees, at p [n_keys]; returns the log of the sum of the scores' exponentials. */
static double probabilities(const shape *s, const place *at, const double *q, const double *k, double *p) {
  double largest = -INFINITY, sum = 0, scale = (double)attrs_of(s).scale;
  for (int64_t i = at->first; i < at->end; i++) {
    p[i] = dot(q + at->query, k + at->keys + i * at->stride, s->head_size) * scale;
    largest = fmax(largest, p[i]);
  }
  for (int64_t i = at->first; i < at->end; i++) sum += p[i] = exp(p[i] - largest);
  for (int64_t i = at->first; i < at->end; i++) p[i] /= sum;
  return largest + log(sum);
}

/* ---- the formulas ---- */

/* in: q, k, v; y, and lse [rows,H] unless NULL */
static void attend(const shape *s, const double *const *in, double *y, double *lse) {
  double *p = test_doubles((size_t)s->n_keys);
  for (int64_t row = 0; row < (int64_t)n_rows(s); row++)
    for (int64_t h = 0; h < s->n_heads; h++) {
      place at = place_of(s, row, h);
      double log_sum = probabilities(s, &at, in[0], in[1], p);
      if (lse) lse[row * s->n_heads + h] = log_sum;
      for (int64_t d = 0; d < s->head_size; d++) {
        double sum = 0;
        for (int64_t i = at.first; i < at.end; i++) sum += p[i] * in[2][at.keys + i * at.stride + d];
        y[at.query + d] = sum;
      }
    }
  free(p);
}

static void attention_formula(const void *context, const double *const *in, double *y) { attend(context, in, y, NULL); }

/* in: q, k, v; gradients by them of sum(y * dy), which begin as zeros */
static void attend_grad(const shape *s, double *const *in, const double *dy, double *const *grads) {
  double *p = test_doubles((size_t)s->n_keys), *dp = test_doubles((size_t)s->n_keys), scale = (double)attrs_of(s).scale;
  for (int64_t row = 0; row < (int64_t)n_rows(s); row++)
    for (int64_t h = 0; h < s->n_heads; h++) {
      place at = place_of(s, row, h);
      probabilities(s, &at, in[0], in[1], p);
      double mean = 0;
      for (int64_t i = at.first; i < at.end; i++)
        mean += p[i] * (dp[i] = dot(dy + at.query, in[2] + at.keys + i * at.stride, s->head_size));
      for (int64_t i = at.first; i < at.end; i++)
        for (int64_t d = 0; d < s->head_size; d++) {
          int64_t key = at.keys + i * at.stride + d;
          double ds = p[i] * (dp[i] - mean) * scale;
          grads[0][at.query + d] += ds * in[1][key];
          grads[1][key] += ds * in[0][at.query + d];
          grads[2][key] += p[i] * dy[at.query + d];
        }
    }
  free(p);
  free(dp);
}

/* ---- attention ---- */

/* Values below 1; the error is that of scores of magnitude 10, an exponential and a sum of hundreds of terms. */
static const double TOLERANCE = 2e-5;

static void check_values(test_device *d, const shape *s, weft_tensor *q, weft_tensor *k, weft_tensor *v) {
  const weft_attention_attrs attrs = attrs_of(s);
  weft_tensor *y = weft_tensor_new(d->scope, WEFT_F32, q->rank, q->shape);
  weft_tensor *lse = weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(s->n_batches, s->n_queries, s->n_heads));
  double *in[] = {test_values(q), test_values(k), test_values(v)};
  double *want = test_doubles(n_queries(s)), *want_lse = test_doubles(n_rows(s) * (size_t)s->n_heads);
  attend(s, (const double *const *)in, want, want_lse);
  test_compare("attention", d, weft_attention(d->scope, q, k, v, &attrs), want, NULL, TOLERANCE, 0);
  test_compare("attention_lse", d, weft_attention_lse(d->scope, y, lse, q, k, v, &attrs), want, NULL, TOLERANCE, 0);
  test_compare("attention_lse: lse", d, lse, want_lse, NULL, TOLERANCE, 1e-6);
  free(want);
  free(want_lse);
  for (int i = 0; i < 3; i++) free(in[i]);
}

static void check_shape(test_device *d, const shape *s) {
  int64_t width = s->n_heads * s->head_size, kv_width = s->n_kv_heads * s->head_size;
  check_values(d, s, test_random(d, TEST_SHAPE(s->n_batches, s->n_queries, width), 3, 1),
               test_random(d, TEST_SHAPE(s->n_batches, s->n_keys, kv_width), 1, 2),
               test_random(d, TEST_SHAPE(s->n_batches, s->n_keys, kv_width), 1, 3));
}

static const shape SHAPES[] = {
    {1, 1, 1, 1, 1, 1, WEFT_MASK_NONE, 0},       {1, 1, 257, 2, 1, 7, WEFT_MASK_CAUSAL, 0},
    {2, 65, 65, 2, 2, 64, WEFT_MASK_CAUSAL, 0},  {1, 63, 130, 4, 2, 63, WEFT_MASK_CAUSAL, 0},
    {2, 7, 65, 3, 1, 65, WEFT_MASK_NONE, 0},     {1, 129, 64, 2, 1, 16, WEFT_MASK_NONE, 0},
    {1, 33, 33, 1, 1, 128, WEFT_MASK_NONE, 0},   {1, 70, 96, 2, 1, 80, WEFT_MASK_CAUSAL, 0},
    {1, 40, 72, 1, 1, 256, WEFT_MASK_CAUSAL, 0}, {3, 2, 2, 6, 3, 33, WEFT_MASK_CAUSAL, 0},
    {1, 200, 310, 2, 1, 8, WEFT_MASK_CAUSAL, 0}, {1, 200, 310, 2, 1, 8, WEFT_MASK_CAUSAL, 40},
    {2, 70, 70, 2, 2, 7, WEFT_MASK_CAUSAL, 1},   {1, 65, 130, 4, 2, 64, WEFT_MASK_CAUSAL, 65},
    {1, 9, 9, 1, 1, 65, WEFT_MASK_CAUSAL, 100},
};

/* A GPU makes kernels for each size of heads, which takes a while in software: all sizes run on one generation, with the
 * device's own limits; elsewhere two that need either way to bind tensors, and the largest where memory is scarce. */
static bool is_run(const test_device *d, const shape *s) {
  bool is_other = !strcmp(d->variant, "gpu v22") || !strcmp(d->variant, "gpu checked");
  bool is_scarce = !strcmp(d->variant, "gpu lowest limits");
  if (!is_other && !is_scarce) return true;
  return s->head_size == 7 || s->head_size == 64 || (s->head_size == 256 && is_scarce);
}

static void check_shapes(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(SHAPES); i++)
    if (is_run(d, &SHAPES[i])) check_shape(d, &SHAPES[i]);
}

static void attention_is_the_formula(void **state) {
  (void)state;
  test_each_device(2, check_shapes);
}

/* Queries, keys and values side by side in one tensor, and batches that are not evenly spaced in the rows' stride. */
static void check_views(test_device *d) {
  const shape s = {2, 66, 66, 3, 3, 20, WEFT_MASK_CAUSAL, 0};
  weft_tensor *qkv = test_random(d, TEST_SHAPE(2, 66, 180), 1, 7);
  check_values(d, &s, weft_slice(d->scope, qkv, 2, 0, 60), weft_slice(d->scope, qkv, 2, 60, 60),
               weft_slice(d->scope, qkv, 2, 120, 60));
  const shape part = {2, 31, 31, 3, 3, 20, WEFT_MASK_CAUSAL, 0};
  weft_tensor *rows = weft_slice(d->scope, qkv, 1, 5, 31);
  check_values(d, &part, weft_slice(d->scope, rows, 2, 0, 60), weft_slice(d->scope, rows, 2, 60, 60),
               weft_slice(d->scope, rows, 2, 120, 60));
}

static void attention_reads_views(void **state) {
  (void)state;
  test_each_device(2, check_views);
}

/* Scores of magnitude 1000 must not overflow, and the largest one takes all. */
static void check_large_scores(test_device *d) {
  const shape s = {1, 65, 130, 1, 1, 16, WEFT_MASK_CAUSAL, 0};
  check_values(d, &s, test_random(d, TEST_SHAPE(1, 65, 16), 300, 1), test_random(d, TEST_SHAPE(1, 130, 16), 30, 2),
               test_random(d, TEST_SHAPE(1, 130, 16), 1e-3f, 3));
}

static void attention_of_large_scores(void **state) {
  (void)state;
  test_each_device(1, check_large_scores);
}

/* ---- the gradient ---- */

typedef struct operands {
  weft_tensor *q, *k, *v, *y, *lse, *dy;
  weft_attention_attrs attrs;
} operands;

/* Random ones, with what attention_lse makes of them. */
static operands make_operands(test_device *d, const shape *s, weft_tensor *q, weft_tensor *k, weft_tensor *v) {
  operands o = {.q = q, .k = k, .v = v, .attrs = attrs_of(s)};
  o.y = weft_tensor_new(d->scope, WEFT_F32, q->rank, q->shape);
  o.lse = weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(s->n_batches, s->n_queries, s->n_heads));
  o.dy = test_operand(d, TEST_COLUMNS, WEFT_F32, q->rank, q->shape, -1, 1, 4);
  assert_ptr_not_equal(weft_attention_lse(d->scope, o.y, o.lse, q, k, v, &o.attrs), NULL);
  return o;
}

/* Fails unless the tensors are the gradients: a sum's error is that of its terms, so it grows with the gradient. */
static void expect_gradients(test_device *d, const shape *s, const operands *o, weft_tensor *const *grads) {
  static const char *const NAMES[] = {"attention_grad: dq", "attention_grad: dk", "attention_grad: dv"};
  const size_t n[] = {n_queries(s), n_keys(s), n_keys(s)};
  double *in[] = {test_values(o->q), test_values(o->k), test_values(o->v)}, *dy = test_values(o->dy), *want[3];
  for (int i = 0; i < 3; i++) want[i] = test_doubles(n[i]);
  attend_grad(s, in, dy, want);
  for (int i = 0; i < 3; i++) {
    double largest = 1;
    for (size_t e = 0; e < n[i]; e++) largest = fmax(largest, fabs(want[i][e]));
    test_compare(NAMES[i], d, grads[i], want[i], NULL, TOLERANCE * largest, 0);
    free(in[i]);
    free(want[i]);
  }
  free(dy);
}

static weft_tensor *run_grad(test_device *d, const operands *o, weft_tensor *const *grads) {
  return weft_attention_grad(d->scope, grads[0], grads[1], grads[2], o->q, o->k, o->v, o->y, o->lse, o->dy, &o->attrs);
}

static operands random_operands(test_device *d, const shape *s) {
  int64_t width = s->n_heads * s->head_size, kv_width = s->n_kv_heads * s->head_size;
  return make_operands(d, s, test_random(d, TEST_SHAPE(s->n_batches, s->n_queries, width), 3, 1),
                       test_random(d, TEST_SHAPE(s->n_batches, s->n_keys, kv_width), 1, 2),
                       test_random(d, TEST_SHAPE(s->n_batches, s->n_keys, kv_width), 1, 3));
}

static void new_gradients(test_device *d, const operands *o, weft_tensor **grads) {
  const weft_tensor *const of[] = {o->q, o->k, o->v};
  for (int i = 0; i < 3; i++) grads[i] = weft_tensor_new(d->scope, WEFT_F32, of[i]->rank, of[i]->shape);
}

static void check_gradients(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(SHAPES); i++) {
    if (!is_run(d, &SHAPES[i])) continue;
    operands o = random_operands(d, &SHAPES[i]);
    weft_tensor *grads[3];
    new_gradients(d, &o, grads);
    if (!run_grad(d, &o, grads)) fail_msg("attention_grad (%s): %s", d->variant, weft_last_error());
    expect_gradients(d, &SHAPES[i], &o, grads);
  }
}

static void gradient_is_the_formula(void **state) {
  (void)state;
  test_each_device(2, check_gradients);
}

/* The formula that the operator is compared with. */
static void formula_is_the_slope(void **state) {
  (void)state;
  static const shape SMALL[] = {
      {1, 1, 1, 1, 1, 1, WEFT_MASK_NONE, 0},   {2, 3, 3, 2, 2, 4, WEFT_MASK_CAUSAL, 0},
      {1, 3, 7, 4, 2, 3, WEFT_MASK_CAUSAL, 0}, {1, 6, 7, 2, 1, 7, WEFT_MASK_CAUSAL, 3},
      {2, 5, 3, 3, 1, 2, WEFT_MASK_NONE, 0},
  };
  for (size_t c = 0; c < WEFT_COUNT(SMALL); c++) {
    const shape *s = &SMALL[c];
    const size_t n[] = {n_queries(s), n_keys(s), n_keys(s), n_queries(s)};
    double *in[4], *got[3];
    for (int i = 0; i < 4; i++) { /* the last is dy */
      float *values = test_alloc(n[i], sizeof *values);
      test_fill(values, n[i], 1.5f, 10 * c + (uint64_t)i);
      in[i] = test_doubles(n[i]);
      for (size_t e = 0; e < n[i]; e++) in[i][e] = (double)values[e];
      free(values);
      if (i < 3) got[i] = test_doubles(n[i]);
    }
    attend_grad(s, in, in[3], got);
    for (int i = 0; i < 3; i++) {
      double *want = test_gradient(attention_formula, s, in, i, n[i], in[3], n[3]);
      for (size_t e = 0; e < n[i]; e++)
        if (!(fabs(got[i][e] - want[e]) <= 1e-8))
          fail_msg("shape %zu, operand %d, element %zu: %g, not %g", c, i, e, got[i][e], want[e]);
      free(want);
      free(got[i]);
    }
    for (int i = 0; i < 4; i++) free(in[i]);
  }
}

/* Operands and gradients side by side in one tensor each. */
static void check_packed(test_device *d) {
  const shape s = {2, 130, 130, 6, 2, 12, WEFT_MASK_CAUSAL, 0};
  const int64_t starts[] = {0, 72, 96}, widths[] = {72, 24, 24};
  weft_tensor *qkv = test_random(d, TEST_SHAPE(2, 130, 120), 1, 7), *packed, *parts[3], *grads[3];
  packed = weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(2, 130, 120));
  for (int i = 0; i < 3; i++) {
    parts[i] = weft_slice(d->scope, qkv, 2, starts[i], widths[i]);
    grads[i] = weft_slice(d->scope, packed, 2, starts[i], widths[i]);
  }
  operands o = make_operands(d, &s, parts[0], parts[1], parts[2]);
  weft_tensor *y = run_grad(d, &o, grads);
  if (!y) fail_msg("attention_grad (%s): %s", d->variant, weft_last_error());
  assert_ptr_equal(y->storage, packed->storage);
  expect_gradients(d, &s, &o, grads);
}

static void gradients_are_parts_of_one_tensor(void **state) {
  (void)state;
  test_each_device(2, check_packed);
}

/* Two batches so far apart that no binding of the lowest limits, 128 MiB, holds both. */
static void check_far_batches(test_device *d) {
  if (strcmp(d->variant, "gpu lowest limits") != 0) return;
  const shape s = {2, 5, 5, 1, 1, 2, WEFT_MASK_CAUSAL, 0};
  const int64_t apart = (int64_t)17 << 20; /* rows of 8 bytes: 136 MiB */
  weft_tensor *all = weft_tensor_new(d->scope, WEFT_F32, TEST_SHAPE(2 * apart, 2));
  for (int i = 0; i < 2; i++) {
    const weft_copy_rows_into_attrs first = {i * apart};
    assert_non_null(weft_copy_rows_into(d->scope, all, test_random(d, TEST_SHAPE(5, 2), 2, 20 + (uint64_t)i), &first));
  }
  weft_tensor *rows = weft_slice(d->scope, weft_reshape(d->scope, all, TEST_SHAPE(2, apart, 2)), 1, 0, 5);
  check_values(d, &s, rows, rows, rows);
  operands o = make_operands(d, &s, rows, rows, rows);
  weft_tensor *grads[3];
  new_gradients(d, &o, grads);
  assert_non_null(run_grad(d, &o, grads));
  expect_gradients(d, &s, &o, grads);
}

static void batches_lie_far_apart(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_far_batches);
}

/* No queries: nothing depends on the keys. */
static void check_no_queries(test_device *d) {
  const shape s = {1, 0, 5, 2, 1, 6, WEFT_MASK_CAUSAL, 0};
  operands o = random_operands(d, &s);
  weft_tensor *grads[3];
  new_gradients(d, &o, grads);
  assert_non_null(run_grad(d, &o, grads));
  expect_gradients(d, &s, &o, grads);
}

static void gradient_of_no_queries_is_zero(void **state) {
  (void)state;
  test_each_device(2, check_no_queries);
}

/* Operands that share memory with what is written. */
static void check_shared_storage(test_device *d) {
  const shape s = {1, 5, 5, 1, 1, 6, WEFT_MASK_NONE, 0};
  operands o = random_operands(d, &s);
  weft_tensor *grads[3];
  new_gradients(d, &o, grads);
  weft_tensor *own = grads[1];
  grads[1] = o.v;
  assert_null(run_grad(d, &o, grads));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  grads[1] = grads[2];
  assert_null(run_grad(d, &o, grads));
  weft_tensor *packed = test_random(d, TEST_SHAPE(1, 5, 12), 1, 1), *first = grads[0];
  grads[0] = weft_slice(d->scope, packed, 2, 0, 6);
  grads[1] = weft_slice(d->scope, packed, 2, 5, 6); /* a column of both */
  assert_null(run_grad(d, &o, grads));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  grads[1] = weft_slice(d->scope, packed, 2, 6, 6);
  assert_non_null(run_grad(d, &o, grads));
  grads[0] = first;
  grads[1] = own;
  assert_non_null(run_grad(d, &o, grads));
  assert_null(weft_attention_lse(d->scope, o.q, o.lse, o.q, o.k, o.v, &o.attrs));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
}

static void shared_storage_is_refused(void **state) {
  (void)state;
  test_each_device(1, check_shared_storage);
}

/* Everything that the three operators make of the same operands, on n threads. */
static float *results_of(int n_threads, const shape *s, size_t *n_bytes) {
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .n_threads = n_threads};
  test_device d = {.variant = "cpu"};
  assert_int_equal(weft_device_open(&d.device, &options), WEFT_OK);
  assert_int_equal(weft_scope_open(&d.scope, d.device, NULL), WEFT_OK);
  operands o = random_operands(&d, s);
  weft_tensor *all[5] = {[3] = o.y, [4] = o.lse};
  new_gradients(&d, &o, all);
  assert_non_null(run_grad(&d, &o, all));
  *n_bytes = 0;
  for (int i = 0; i < 5; i++) *n_bytes += weft_tensor_bytes(all[i]);
  char *data = test_alloc(*n_bytes, 1), *to = data;
  for (int i = 0; i < 5; i++) {
    assert_int_equal(weft_tensor_read(all[i], to, weft_tensor_bytes(all[i])), WEFT_OK);
    to += weft_tensor_bytes(all[i]);
  }
  weft_scope_close(d.scope);
  weft_device_close(d.device);
  return (float *)data;
}

/* Four key/value heads: one or two threads take one at a time, more take tiles. */
static void results_do_not_depend_on_the_threads(void **state) {
  (void)state;
  const shape s = {2, 250, 290, 4, 2, 20, WEFT_MASK_CAUSAL, 150};
  size_t n_bytes, n_bytes_again;
  float *want = results_of(1, &s, &n_bytes);
  for (int n_threads = 2; n_threads <= 5; n_threads++) {
    float *got = results_of(n_threads, &s, &n_bytes_again);
    assert_int_equal(n_bytes, n_bytes_again);
    assert_memory_equal(got, want, n_bytes);
    free(got);
  }
  free(want);
}

/* ---- refusals ---- */

static void expect_refusal(test_device *d, weft_tensor *q, weft_tensor *k, weft_tensor *v, int n_heads,
                           weft_mask mask) {
  const weft_attention_attrs attrs = {n_heads, 1, mask, 0};
  assert_null(weft_attention(d->scope, q, k, v, &attrs));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
}

static void check_refusals(test_device *d) {
  weft_tensor *q = test_random(d, TEST_SHAPE(1, 5, 12), 1, 1), *k = test_random(d, TEST_SHAPE(1, 4, 6), 1, 2);
  weft_tensor *none = test_random(d, TEST_SHAPE(1, 0, 6), 1, 3), *two = test_random(d, TEST_SHAPE(2, 4, 6), 1, 4);
  expect_refusal(d, q, k, k, 2, WEFT_MASK_CAUSAL); /* fewer keys than queries */
  expect_refusal(d, q, none, none, 2, WEFT_MASK_NONE);
  expect_refusal(d, q, two, two, 2, WEFT_MASK_NONE);
  expect_refusal(d, q, k, two, 2, WEFT_MASK_NONE);
  expect_refusal(d, q, k, k, 5, WEFT_MASK_NONE); /* 5 does not divide 12 */
  expect_refusal(d, q, k, k, 0, WEFT_MASK_NONE);
  expect_refusal(d, q, k, k, 3, WEFT_MASK_NONE); /* heads of 4 do not divide 6 */
  weft_tensor *empty = weft_attention(d->scope, test_random(d, TEST_SHAPE(1, 0, 12), 1, 1), k, k,
                                      &(weft_attention_attrs){2, 1, WEFT_MASK_CAUSAL, 0});
  assert_non_null(empty);
  assert_int_equal(weft_tensor_numel(empty), 0);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  test_each_device(1, check_refusals);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_is_the_formula),     cmocka_unit_test(attention_reads_views),
      cmocka_unit_test(attention_of_large_scores),    cmocka_unit_test(formula_is_the_slope),
      cmocka_unit_test(gradient_is_the_formula),      cmocka_unit_test(gradients_are_parts_of_one_tensor),
      cmocka_unit_test(batches_lie_far_apart),        cmocka_unit_test(gradient_of_no_queries_is_zero),
      cmocka_unit_test(shared_storage_is_refused),    cmocka_unit_test(results_do_not_depend_on_the_threads),
      cmocka_unit_test(what_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests_name("dense_attention", tests, NULL, NULL);
}
