/* blas.h - a BLAS that is loaded while the program runs, as a peer of our matrix products on the CPU. */
#ifndef WEFT_CLI_BLAS_H
#define WEFT_CLI_BLAS_H

#include "product.h"

typedef struct cli_blas {
  void *library; /* NULL: not open */
  void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                const float *b, int ldb, float beta, float *c, int ldc);
  bool sets_threads; /* it has taken the number of threads */
} cli_blas;

/* Loads the library, whose integers have 32 bits, and tells it how many threads to use.  EUNSUPPORTED: it has no
 * cblas_sgemm. */
weft_status cli_blas_open(cli_blas *blas, const char *path, int n_threads);
void cli_blas_close(cli_blas *blas);

/* c = the product, a matrix after the other if it is a batch. */
void cli_blas_run(const cli_blas *blas, const cli_product *p, float *c);

#endif
