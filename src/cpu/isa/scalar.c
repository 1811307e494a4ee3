/* scalar.c - the kernels in portable C, in double: the reference, and the path of processors without another. */
#include "cpu/vec/vec_scalar.h"
#include "cpu/kern/kernels.inc"

const weft__cpu_kernels weft__kernels_scalar = KERNEL_TABLE;
