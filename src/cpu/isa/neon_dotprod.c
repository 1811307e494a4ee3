/* neon_dotprod.c - the kernels for arm64 with FEAT_DotProd: from Cortex-A75 (2017), Neoverse N1 and
 * Apple M1 on. */
#if defined(__aarch64__)
#define NEON_DOTPROD
#include "cpu/vec/vec_neon.h"
#include "cpu/kern/kernels.inc"

const weft__cpu_kernels weft__kernels_neon_dotprod = KERNEL_TABLE;
#else
typedef int weft__no_neon_dotprod; /* a translation unit must not be empty */
#endif
