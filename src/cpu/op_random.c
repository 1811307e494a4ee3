/* op_random.c - fill_uniform, fill_normal and dropout: random numbers by element, so that every device and any number of threads
 * draws the same (weft/ops.h has the formulas). */
#include "cpu/cpu.h"
#include "cpu/half.h"
#include "base/rng.h"

#include <math.h>

enum { WORDS = 4 /* of a Philox block */ };

typedef struct fill_loop {
  weft__cpu *cpu;
  weft_tensor out;
  uint64_t seed, stream;
  bool is_normal;
  float low, high, mean, deviation;
} fill_loop;

/* 24 bits: multiples of 2^-24 from 0 on, as many as f32 holds below 1. */
static float uniform_of(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/* The interval leaves `high` out, which the sum's rounding may reach. */
static void uniform_block(const fill_loop *l, const uint32_t words[WORDS], float *y) {
  float range = l->high - l->low, last = nextafterf(l->high, l->low);
  for (int i = 0; i < WORDS; i++) {
    float drawn = l->low + uniform_of(words[i]) * range;
    y[i] = range > 0 ? fminf(drawn, last) : fmaxf(drawn, last);
  }
}

static void normal_block(const fill_loop *l, const uint32_t words[WORDS], float *y) {
  const double two_pi = 6.28318530717958647693;
  for (int i = 0; i < WORDS; i += 2) {
    double radius = sqrt(-2 * log((double)(uniform_of(words[i]) + 0x1p-24f))); /* of (0,1] */
    double angle = two_pi * (double)uniform_of(words[i + 1]);
    y[i] = (float)((double)l->mean + radius * cos(angle) * (double)l->deviation);
    y[i + 1] = (float)((double)l->mean + radius * sin(angle) * (double)l->deviation);
  }
}

/* Pieces first .. end-1 of the row-major order; WEFT__PIECE is a multiple of WORDS. */
static void fill_pieces(void *context, int64_t first, int64_t end) {
  const fill_loop *l = context;
  for (int64_t piece = first; piece < end; piece++) {
    float values[WEFT__PIECE];
    int64_t start = piece * WEFT__PIECE, n = weft_tensor_numel(&l->out) - start;
    if (n > WEFT__PIECE) n = WEFT__PIECE;
    for (int64_t i = 0; i < n; i += WORDS) {
      uint32_t words[WORDS];
      weft__philox(l->seed, (uint64_t)((start + i) / WORDS), l->stream, words);
      (l->is_normal ? normal_block : uniform_block)(l, words, values + i);
    }
    weft__write_real(l->cpu, n, values, &l->out, start);
  }
}

static weft_status run_fill(fill_loop *l) {
  int64_t n = weft_tensor_numel(&l->out);
  weft__cpu_rows(l->cpu, (n + WEFT__PIECE - 1) / WEFT__PIECE, 8 * WEFT__PIECE /* a draw costs about as much */,
                 fill_pieces, l);
  return WEFT_OK;
}

weft_status weft__cpu_fill_uniform(weft__backend *backend, const weft__op_call *call) {
  const weft_fill_uniform_attrs *attrs = call->attrs;
  fill_loop l = {.cpu = weft__cpu_of(backend),
                 .out = *call->out,
                 .seed = attrs->seed,
                 .stream = attrs->stream,
                 .low = attrs->low,
                 .high = attrs->high};
  return run_fill(&l);
}

weft_status weft__cpu_fill_normal(weft__backend *backend, const weft__op_call *call) {
  const weft_fill_normal_attrs *attrs = call->attrs;
  fill_loop l = {.cpu = weft__cpu_of(backend),
                 .out = *call->out,
                 .seed = attrs->seed,
                 .stream = attrs->stream,
                 .is_normal = true,
                 .mean = attrs->mean,
                 .deviation = attrs->deviation};
  return run_fill(&l);
}

/* ---- dropout ---- */

typedef struct dropout_loop {
  const weft_dropout_attrs *attrs;
  float *y; /* a, and then the result */
  int64_t n;
} dropout_loop;

static void drop_pieces(void *context, int64_t first, int64_t end) {
  const dropout_loop *l = context;
  const float rate = l->attrs->p, keep = 1 - rate;
  int64_t last = end * WEFT__PIECE < l->n ? end * WEFT__PIECE : l->n;
  for (int64_t i = first * WEFT__PIECE; i < last; i += WORDS) {
    uint32_t words[WORDS];
    weft__philox(l->attrs->seed, (uint64_t)(i / WORDS), l->attrs->stream, words);
    for (int64_t k = i; k < i + WORDS && k < last; k++) l->y[k] = uniform_of(words[k - i]) >= rate ? l->y[k] / keep : 0;
  }
}

weft_status weft__cpu_dropout(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  dropout_loop l = {.attrs = call->attrs, .y = weft__cpu_data(call->out), .n = weft_tensor_numel(call->out)};
  weft__copy(cpu, call->in[0], call->out);
  weft__cpu_rows(cpu, (l.n + WEFT__PIECE - 1) / WEFT__PIECE, 8 * WEFT__PIECE, drop_pieces, &l);
  return WEFT_OK;
}
