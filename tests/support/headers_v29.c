/* headers_v29.c - the rows of v29.def compared with the headers of wgpu-native 29. */
#include "support/headers.h"

#if __has_include("v29/include/wgpu.h")
#include "v29/include/wgpu.h"
#include "gpu/abi/wgpu.h"

static const header_row rows[] = {
#define VALUE HEADER_VALUE
#define SIZE HEADER_SIZE
#define OFFSET HEADER_OFFSET
#include "gpu/abi/v29.def"
    WGPU_FUNCTIONS(HEADER_FUNCTION)};

const header_table headers_v29 = {"v29", rows, sizeof rows / sizeof *rows};
#else
const header_table headers_v29 = {"v29", NULL, 0};
#endif
