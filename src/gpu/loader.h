/* loader.h - finds a WebGPU library, tells its generation and lists its adapters. */
#ifndef WEFT_GPU_LOADER_H
#define WEFT_GPU_LOADER_H

#include "gpu/abi/abi.h"

typedef struct weft__gpu_library {
  const weft__abi *abi;
  weft__gpu_instance *instance; /* may have no adapters */
  char version[16];             /* "29.0.1.1" */
  char path[1024];              /* of the file; its bare name if the system found it */
} weft__gpu_library;

/* Opens the first library that fits: the one that WEFT_WGPU_LIB names and no other; without that variable beside the
 * program, in ../lib/weft/GENERATION/ from there, where the system looks.  ENODEVICE: a message that names every place
 * and what was wrong there. */
weft_status weft__gpu_library_open(weft__gpu_library **out);

/* Devices opened from it must be closed before.  The file stays loaded: threads of the library and of its drivers may
 * still be on their way out. */
void weft__gpu_library_close(weft__gpu_library *library);

#endif
