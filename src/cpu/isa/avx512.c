/* avx512.c - the kernels for AVX-512 F/BW/VL/DQ with VNNI: x86-64 from Ice Lake (2019) and Zen 4 (2022) on.  Older
 * AVX-512 processors, which lack VNNI, run the AVX2 kernels. */
#if defined(__x86_64__) || defined(_M_X64)
#include "cpu/vec/vec_avx512.h"
#include "cpu/kern/kernels.inc"

const weft__cpu_kernels weft__kernels_avx512 = KERNEL_TABLE;
#else
typedef int weft__no_avx512; /* a translation unit must not be empty */
#endif
