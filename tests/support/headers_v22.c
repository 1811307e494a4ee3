/* headers_v22.c - the rows of v22.def compared with the headers of wgpu-native 22. */
#include "support/headers.h"

#if __has_include("v22/include/wgpu.h")
#include "v22/include/wgpu.h"
#include "gpu/abi/wgpu.h"

static const header_row rows[] = {
#define VALUE HEADER_VALUE
#define SIZE HEADER_SIZE
#define OFFSET HEADER_OFFSET
#include "gpu/abi/v22.def"
    WGPU_FUNCTIONS(HEADER_FUNCTION)};

const header_table headers_v22 = {"v22", rows, sizeof rows / sizeof *rows};
#else
const header_table headers_v22 = {"v22", NULL, 0};
#endif
