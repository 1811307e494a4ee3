/* sampler.h - what the generation loop needs of the sampler besides weft_sample. */
#ifndef WEFT_SAMPLER_H
#define WEFT_SAMPLER_H

#include "weft/llm.h"
#include "base/base.h"

/* EINVAL if an option is out of range: asked before a prompt is worked on for nothing. */
weft_status weft__sampler_check(const weft_sampler_options *options, int n_vocab);

#endif
