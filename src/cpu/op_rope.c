/* op_rope.c - rotary position embedding (Su et al. 2021): the table of angles, and the rotation. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h> /* memcpy */

typedef struct table_loop {
  const int32_t *positions;
  const float *factors; /* [R/2] */
  const weft_rope_table_attrs *attrs;
  float *y; /* [N,2,R/2] */
} table_loop;

/* Angles are computed in double: at position 8192 an f32 angle would be off by 5e-4. */
static void table_rows(void *context, int64_t first, int64_t end) {
  const table_loop *l = context;
  int64_t half = l->attrs->n_dims / 2;
  double magnitude = weft__rope_magnitude(l->attrs);
  for (int64_t n = first; n < end; n++)
    for (int64_t i = 0; i < half; i++) {
      double angle = (double)l->positions[n] * weft__rope_frequency(l->attrs, i) / (double)l->factors[i];
      l->y[n * 2 * half + i] = (float)(magnitude * cos(angle));
      l->y[n * 2 * half + half + i] = (float)(magnitude * sin(angle));
    }
}

weft_status weft__cpu_rope_table(weft__backend *backend, const weft__op_call *call) {
  table_loop l = {weft__cpu_data(call->in[0]), weft__cpu_data(call->in[1]), call->attrs, weft__cpu_data(call->out)};
  enum { COST = 64 }; /* of a power, a sine and a cosine, in elements of a cheap operator */
  weft__cpu_rows(weft__cpu_of(backend), call->in[0]->shape[0], COST * l.attrs->n_dims / 2, table_rows, &l);
  return WEFT_OK;
}

typedef struct rope_loop {
  const weft__cpu_kernels *kernels;
  const weft_tensor *a;
  const float *table;
  const weft_rope_attrs *attrs;
  int64_t n_rotated;
  float *y;
} rope_loop;

static void rope_rows(void *context, int64_t first, int64_t end) {
  const rope_loop *l = context;
  int64_t width = l->a->shape[1], head_size = l->attrs->head_size, half = l->n_rotated / 2;
  for (int64_t n = first; n < end; n++) {
    const float *a = (const float *)weft__cpu_data(l->a) + n * weft__row_stride(l->a);
    const float *angles = l->table + n * 2 * half;
    float *y = l->y + n * width;
    for (int64_t h = 0; h < width; h += head_size) {
      l->kernels->rope(l->n_rotated, l->attrs->pairing == WEFT_ROPE_INTERLEAVED, l->attrs->inverse, a + h, angles,
                       angles + half, y + h);
      memcpy(y + h + l->n_rotated, a + h + l->n_rotated, (size_t)(head_size - l->n_rotated) * sizeof *y);
    }
  }
}

weft_status weft__cpu_rope(weft__backend *backend, const weft__op_call *call) {
  weft__cpu *cpu = weft__cpu_of(backend);
  rope_loop l = {cpu->kernels,
                 call->in[0],
                 weft__cpu_data(call->in[1]),
                 call->attrs,
                 call->in[1]->shape[2] * 2,
                 weft__cpu_data(call->out)};
  weft__cpu_rows(cpu, l.a->shape[0], l.a->shape[1], rope_rows, &l);
  return WEFT_OK;
}
