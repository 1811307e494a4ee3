/* weft/accelerator.h - handing large matrix products of the CPU path to something faster.
 *
 * Every product of `matmul` that the CPU backend would compute, from anywhere in the library, is offered to the accelerator
 * in use if it has at least the threshold's multiply-accumulates; everything else stays on the host, products with packed
 * weights (matmul_nt) among it.  If the accelerator
 * fails, the CPU computes the product: results never change, only time. */
#ifndef WEFT_ACCELERATOR_H
#define WEFT_ACCELERATOR_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_accelerator {
  void *context;
  /* c = a @ b, row-major f32 in host memory: a [m,k] (transpose_a: stored [k,m]), b [k,n] (transpose_b: stored [n,k]),
   * c [m,n], rows lda, ldb, ldc elements apart.  Called by one thread at a time.  Anything but WEFT_OK: c may hold
   * anything, and the CPU computes the product. */
  weft_status (*matmul)(void *context, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, int transpose_a,
                        const float *b, int64_t ldb, int transpose_b, float *c, int64_t ldc);
} weft_accelerator;

/* Uses a copy of `accelerator` from now on, in the whole process; NULL: none.  Returns when no product runs on the former
 * one any more. */
WEFT_API void weft_accelerator_use(const weft_accelerator *accelerator);

/* Multiply-accumulates (batch * m * n * k) from which products are offered; 0 restores the default of 4e8. */
WEFT_API void weft_accelerator_set_threshold(int64_t n_macs);

/* How many products the accelerator has computed, and in how many it failed, since weft_accelerator_use. */
WEFT_API void weft_accelerator_counts(int64_t *n_done, int64_t *n_failed);

/* An accelerator that uploads to `device`, multiplies there and downloads; `device` must outlive its use. */
WEFT_API weft_status weft_accelerator_from_device(weft_device *device, weft_accelerator *out);

#ifdef __cplusplus
}
#endif
#endif
