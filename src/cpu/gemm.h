/* gemm.h - f32 matrix products over plain memory. */
#ifndef WEFT_GEMM_H
#define WEFT_GEMM_H

#include "cpu/cpu.h"

/* C [m,n] = A [m,k] B [k,n], row-major with rows ld apart; a transposed A is stored as [k,m], B as [n,k]. */
typedef struct weft__gemm {
  int64_t m, n, k;
  const float *a;
  int64_t lda;
  const float *b;
  int64_t ldb;
  float *c; /* overlaps neither a nor b */
  int64_t ldc;
  bool transpose_a, transpose_b;
} weft__gemm;

/* gemm.c: n products of one m, n, k, on this machine's processors. */
weft_status weft__gemm_run(weft__cpu *cpu, int64_t n_products, const weft__gemm *products);

#endif
