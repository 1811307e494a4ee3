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

/* ---- products by one thread of operands that it has packed, for operators that multiply small tiles ---- */

/* Packs A [m,k]: element (i,p) is x[p * ld + i] if it lies along, else x[i * ld + p].  `packed` has room for k times m
 * rounded up to blocks.rows. */
void weft__gemm_pack_left(const weft__gemm_kernels *kernels, int64_t m, int64_t k, const float *x, int64_t ld,
                          bool is_along, float *packed);
/* The same of B [k,n]: element (p,j) is x[p * ld + j] or x[j * ld + p]; n is rounded up to blocks.columns. */
void weft__gemm_pack_right(const weft__gemm_kernels *kernels, int64_t k, int64_t n, const float *x, int64_t ld,
                           bool is_along, float *packed);
/* C = or += A B.  Whole tiles are written: C has room for m and n rounded up, and means nothing there. */
void weft__gemm_tiles(const weft__gemm_kernels *kernels, int64_t m, int64_t n, int64_t k, const float *left,
                      const float *right, bool accumulate, float *c, int64_t ldc);

#endif
