/* avx2.c - the kernels for AVX2, FMA and F16C: x86-64 from Haswell (2013) and Zen (2017) on. */
#if defined(__x86_64__) || defined(_M_X64)
#include "cpu/vec/vec_avx2.h"
#include "cpu/kern/kernels.inc"

const weft__cpu_kernels weft__kernels_avx2 = KERNEL_TABLE;
#else
typedef int weft__no_avx2; /* a translation unit must not be empty */
#endif
