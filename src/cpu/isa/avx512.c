/* avx512.c - the kernels for AVX-512 F/BW/VL/DQ with VNNI: x86-64 from Ice Lake (2019) and Zen 4 (2022) on.  Older
 * AVX-512 processors, which lack VNNI, run the AVX2 kernels.  The variant amx is these kernels and the matrix unit. */
#if defined(__x86_64__) || defined(_M_X64)
#include "cpu/vec/vec_avx512.h"
#include "cpu/kern/kernels.inc"
#include "cpu/kern/wide.inc"

const weft__cpu_kernels weft__kernels_avx512 = KERNEL_TABLE;

/* Up to 8 rows fit one tile without the unit, at the speed of memory. */
static const weft__wide_kernels WIDE = {9, pack_wide, UNPACK, weft__amx_begin, weft__amx_add, weft__amx_end};

#undef VEC_NAME
#undef WIDE_KERNELS
#define VEC_NAME "amx"
#define WIDE_KERNELS &WIDE
const weft__cpu_kernels weft__kernels_amx = KERNEL_TABLE;
#else
typedef int weft__no_avx512; /* a translation unit must not be empty */
#endif
