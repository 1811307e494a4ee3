/* gpu_env.c - the environment of tests that use a GPU.  See gpu_env.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/gpu_env.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const gpu_env_generations[] = {
#ifdef WEFT_WGPU_V29
    "v29",
#endif
#ifdef WEFT_WGPU_V22
    "v22",
#endif
    NULL,
};

/* Leaves the Vulkan loader no driver but Mesa's software one; none at all if that is not installed. */
static void hide_gpus(void) {
  glob_t found = {0};
  const char *driver = "none";
  if (glob("/usr/share/vulkan/icd.d/lvp_icd*.json", 0, NULL, &found) == 0) driver = found.gl_pathv[0];
  setenv("VK_DRIVER_FILES", driver, 1);
  setenv("VK_ICD_FILENAMES", driver, 1); /* its older name */
  globfree(&found);
}

void gpu_env_prepare(void) {
  const char *on_gpu = getenv("WEFT_TEST_GPU");
  if (!on_gpu || strcmp(on_gpu, "1") != 0) hide_gpus();
  /* A layer of Mesa's looks for a window system and complains that there is none. */
  setenv("NODEVICE_SELECT", "1", 1);
  unsetenv("WEFT_WGPU_LIB");
  unsetenv("WEFT_ADAPTER");
}

const char *gpu_env_library(const char *generation) {
  static char path[64];
  snprintf(path, sizeof path, "lib/weft/%s/libwgpu_native-release.so", generation);
  return access(path, R_OK) == 0 ? path : NULL;
}

void gpu_env_use(const char *generation) {
  unsetenv("WEFT_WGPU_LIB");
  if (!generation) return;
  const char *path = gpu_env_library(generation);
  if (!path) fail_msg("the WebGPU library %s is not under lib/weft: run `make setup`", generation);
  setenv("WEFT_WGPU_LIB", path, 1);
}
