/* neon_i8mm.c - the kernels for arm64 with FEAT_I8MM: from Cortex-X2 (2021), Neoverse V1 and
 * Apple M2 on. */
#if defined(__aarch64__)
#define NEON_DOTPROD
#define NEON_I8MM
#include "cpu/vec/vec_neon.h"
#include "cpu/kern/kernels.inc"

const weft__cpu_kernels weft__kernels_neon_i8mm = KERNEL_TABLE;
#else
typedef int weft__no_neon_i8mm; /* a translation unit must not be empty */
#endif
