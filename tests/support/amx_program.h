/* amx_program.h - the variant amx on processors that lack the matrix unit: a program does what its instructions do.  All
 * else is the variant's own code. */
#ifndef WEFT_TEST_AMX_PROGRAM_H
#define WEFT_TEST_AMX_PROGRAM_H

#include "cpu/kernels.h"

/* NULL where AVX-512 is missing too. */
const weft__cpu_kernels *test_amx_program(void);

#endif
