/* tiny_reference.c - the architectures of all families written from their definitions, apart from the library: full attention over all
 * earlier positions, no cache, no blocks, weights row by row, everything in double. */
#include "support/tiny_reference.h"

#include "support/tensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* y [n_rows] = weight [n_rows,n_cols] x [n_cols] */
static void apply(const double *weight, int n_rows, int n_cols, const double *x, double *y) {
  for (int r = 0; r < n_rows; r++) {
    y[r] = 0;
    for (int c = 0; c < n_cols; c++) y[r] += weight[r * n_cols + c] * x[c];
  }
}

static void normalise(const double *x, const double *gain, int n, double eps, double *y) {
  double mean_square = 0;
  for (int i = 0; i < n; i++) mean_square += x[i] * x[i] / n;
  for (int i = 0; i < n; i++) y[i] = x[i] / sqrt(mean_square + eps) * gain[i];
}

/* Turns pairs of the first rope_dims elements of each head: neighbours (llama) or elements half that number apart. */
static void rotate(const tiny_model *t, int has_window, double *x, int n_heads, int position) {
  const tiny_options *o = &t->options;
  int half = o->rope_dims / 2, is_llama = o->family == TINY_LLAMA;
  double base = has_window ? t->window_rope_base : t->rope_base;
  for (int h = 0; h < n_heads; h++)
    for (int i = 0; i < half; i++) {
      double *a = x + h * o->head_size + (is_llama ? 2 * i : i), *b = a + (is_llama ? 1 : half), left = *a, right = *b;
      double frequency = pow(base, -2.0 * i / o->rope_dims);
      if (!(has_window && o->family == TINY_GEMMA3)) { /* which has a rotation of its own there */
        if (o->rope_stretch) frequency /= o->rope_stretch;
        if (t->rope_factors) frequency /= t->rope_factors[i];
      }
      *a = left * cos(position * frequency) - right * sin(position * frequency);
      *b = left * sin(position * frequency) + right * cos(position * frequency);
    }
}

/* x [n] += bias [n], where there is one. */
static void shift(const double *bias, int n, double *x) {
  for (int i = 0; bias && i < n; i++) x[i] += bias[i];
}

/* The norm of each head, where there is one. */
static void normalise_heads(const double *gain, int n_heads, int head_size, double eps, double *x) {
  for (int h = 0; gain && h < n_heads; h++) normalise(x + h * head_size, gain, head_size, eps, x + h * head_size);
}

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), or x / (1 + exp(-x)) */
static double activate(const tiny_model *t, double x) {
  if (t->options.family != TINY_GEMMA3) return x / (1 + exp(-x));
  return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* One head of one query over n positions; keys and values advance by `stride`. */
static void attend(const double *q, const double *keys, const double *values, int n, int stride, int head_size,
                   double *y) {
  double p[TINY_REFERENCE_MAX_TOKENS], largest = -INFINITY, sum = 0;
  for (int s = 0; s < n; s++) {
    p[s] = 0;
    for (int d = 0; d < head_size; d++) p[s] += q[d] * keys[s * stride + d] / sqrt(head_size);
    largest = fmax(largest, p[s]);
  }
  for (int s = 0; s < n; s++) sum += p[s] = exp(p[s] - largest);
  for (int d = 0; d < head_size; d++) {
    y[d] = 0;
    for (int s = 0; s < n; s++) y[d] += p[s] / sum * values[s * stride + d];
  }
}

/* Room for one layer's work: [n,H*D], [n,G*D] twice, and rows. */
typedef struct reference_work {
  double *q, *keys, *values, *normed, *heads, *gate, *up, *change;
} reference_work;

/* x [C] += change [C], after the norm that gemma3 has there */
static void add_change(const tiny_model *t, const double *gain, double *change, double *x) {
  int width = t->options.width;
  if (gain) normalise(change, gain, width, t->norm_eps, change);
  for (int c = 0; c < width; c++) x[c] += change[c];
}

/* x [n,C] += the attention of layer `index` */
static void reference_attention(const tiny_model *t, int index, double *x, int n, reference_work *w) {
  const tiny_options *o = &t->options;
  const tiny_layer *l = &t->layers[index];
  int n_q = o->n_heads * o->head_size, n_kv = o->n_kv_heads * o->head_size, has_window = tiny_has_window(t, index);
  for (int i = 0; i < n; i++) {
    normalise(x + i * o->width, l->attn_norm, o->width, t->norm_eps, w->normed);
    apply(l->q, n_q, o->width, w->normed, w->q + i * n_q);
    apply(l->k, n_kv, o->width, w->normed, w->keys + i * n_kv);
    apply(l->v, n_kv, o->width, w->normed, w->values + i * n_kv);
    shift(l->q_bias, n_q, w->q + i * n_q);
    shift(l->k_bias, n_kv, w->keys + i * n_kv);
    shift(l->v_bias, n_kv, w->values + i * n_kv);
    normalise_heads(l->q_norm, o->n_heads, o->head_size, t->norm_eps, w->q + i * n_q);
    normalise_heads(l->k_norm, o->n_kv_heads, o->head_size, t->norm_eps, w->keys + i * n_kv);
    rotate(t, has_window, w->q + i * n_q, o->n_heads, i);
    rotate(t, has_window, w->keys + i * n_kv, o->n_kv_heads, i);
  }
  for (int i = 0; i < n; i++) {
    int first = has_window && i >= o->window ? i - o->window + 1 : 0;
    for (int h = 0; h < o->n_heads; h++) {
      int shared = first * n_kv + h * o->n_kv_heads / o->n_heads * o->head_size;
      attend(w->q + i * n_q + h * o->head_size, w->keys + shared, w->values + shared, i + 1 - first, n_kv, o->head_size,
             w->heads + h * o->head_size);
    }
    apply(l->o, o->width, n_q, w->heads, w->change);
    add_change(t, l->attn_post_norm, w->change, x + i * o->width);
  }
}

/* x [n,C] += down(activate(gate x) * up x) of layer `l` */
static void reference_mlp(const tiny_model *t, const tiny_layer *l, double *x, int n, reference_work *w) {
  const tiny_options *o = &t->options;
  for (int i = 0; i < n; i++) {
    normalise(x + i * o->width, l->ffn_norm, o->width, t->norm_eps, w->normed);
    apply(l->gate, o->ffn_width, o->width, w->normed, w->gate);
    apply(l->up, o->ffn_width, o->width, w->normed, w->up);
    for (int f = 0; f < o->ffn_width; f++) w->gate[f] = activate(t, w->gate[f]) * w->up[f];
    apply(l->down, o->width, o->ffn_width, w->gate, w->change);
    add_change(t, l->ffn_post_norm, w->change, x + i * o->width);
  }
}

float *tiny_reference(const tiny_model *t, const int32_t *ids, int n) {
  const tiny_options *o = &t->options;
  size_t rows = (size_t)n, n_q = (size_t)(o->n_heads * o->head_size), n_kv = (size_t)(o->n_kv_heads * o->head_size);
  size_t width = (size_t)o->width, ffn = (size_t)o->ffn_width, n_vocab = (size_t)t->n_vocab;
  reference_work w = {
      .q = test_alloc(rows * n_q, sizeof(double)),
      .keys = test_alloc(rows * n_kv, sizeof(double)),
      .values = test_alloc(rows * n_kv, sizeof(double)),
      .normed = test_alloc(width, sizeof(double)),
      .heads = test_alloc(n_q, sizeof(double)),
      .gate = test_alloc(ffn, sizeof(double)),
      .up = test_alloc(ffn, sizeof(double)),
      .change = test_alloc(width, sizeof(double)),
  };
  double *x = test_alloc(rows * width, sizeof *x), *row = test_alloc(n_vocab, sizeof *row);
  float *logits = test_alloc(rows * n_vocab, sizeof *logits);
  assert_in_range(n, 1, TINY_REFERENCE_MAX_TOKENS);
  for (size_t i = 0; i < rows; i++) memcpy(x + i * width, t->token_embd + (size_t)ids[i] * width, width * sizeof *x);
  for (size_t i = 0; o->family == TINY_GEMMA3 && i < rows * width; i++) x[i] *= sqrt((double)o->width);
  for (int l = 0; l < o->n_layers; l++) {
    reference_attention(t, l, x, n, &w);
    reference_mlp(t, &t->layers[l], x, n, &w);
  }
  for (size_t i = 0; i < rows; i++) {
    normalise(x + i * width, t->output_norm, o->width, t->norm_eps, w.normed);
    apply(t->output, t->n_vocab, o->width, w.normed, row);
    for (size_t v = 0; v < n_vocab; v++) logits[i * n_vocab + v] = (float)row[v];
  }
  double *all[] = {w.q, w.keys, w.values, w.normed, w.heads, w.gate, w.up, w.change, x, row};
  for (size_t i = 0; i < WEFT_COUNT(all); i++) free(all[i]);
  return logits;
}
