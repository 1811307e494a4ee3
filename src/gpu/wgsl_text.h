/* wgsl_text.h - from a WGSL file to the text of one specialised shader.
 *
 * A shader file is valid WGSL with defaults (but for its parameter block, which params.def supplies).  Specialising it
 * replaces the values of constants at the top (`const BM = 64u;`) and writes out the loops that a line `// @unroll` marks:
 * WGSL has neither constants that size function arrays from outside nor a way to ask for unrolling, and an array that is
 * indexed by a loop variable may end up in memory instead of registers. */
#ifndef WEFT_WGSL_TEXT_H
#define WEFT_WGSL_TEXT_H

#include "base/base.h"

/* A constant's new value; booleans are 0 and 1.  Lists end with a NULL name. */
typedef struct weft__wgsl_const {
  const char *name;
  uint32_t value;
} weft__wgsl_const;

/* Appends the specialised text of one shader, made of `texts` (NULL ends them), to `out`.  Each text begins with its own
 * constants, which those behind it may use, too.  EINVAL: a constant that the texts lack, a loop that cannot be unrolled
 * (our bugs: the message names them). */
weft_status weft__wgsl_specialise(const char *const *texts, const weft__wgsl_const *constants, weft__bytes *out);

#endif
