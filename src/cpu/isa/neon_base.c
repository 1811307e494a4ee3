/* neon_base.c - the kernels for every arm64 processor: multiplication and addition of NEON alone. */
#if defined(__aarch64__)
#include "cpu/vec/vec_neon.h"
#include "cpu/kern/kernels.inc"

const weft__cpu_kernels weft__kernels_neon_base = KERNEL_TABLE;
#else
typedef int weft__no_neon_base; /* a translation unit must not be empty */
#endif
