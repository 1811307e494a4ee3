/* gpu_env.h - which GPU and which WebGPU library the tests run on.
 *
 * Tests run on Mesa's software driver, so that they mean the same everywhere; with WEFT_TEST_GPU=1 they run on the GPUs of
 * the machine.  The libraries are those that `make setup` puts under lib/weft/. */
#ifndef WEFT_TESTS_GPU_ENV_H
#define WEFT_TESTS_GPU_ENV_H

/* Sets the environment up; called once, first in main.  Programs that the tests start inherit it. */
void gpu_env_prepare(void);

/* The generations of the WebGPU library compiled in, NULL after the last. */
extern const char *const gpu_env_generations[];

/* Path of a generation's library; NULL if setup has not put it there. */
const char *gpu_env_library(const char *generation);

/* Makes the loader take the library of a generation, or, for NULL, look for one.  Fails the test if it is not there. */
void gpu_env_use(const char *generation);

#endif
