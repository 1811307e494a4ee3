/* abi.c - the list of the generations compiled in. */
#include "gpu/abi/abi.h"

const weft__abi *const weft__abis[] = {
#define GENERATION(name) &weft__abi_##name,
#include "gpu/abi/generations.def"
    NULL,
};
