/* weft.h - all of weft's public interface. */
#ifndef WEFT_H
#define WEFT_H

#include "weft/base.h"        /* statuses, errors, version */
#include "weft/tensor.h"      /* tensors, views, scopes */
#include "weft/device.h"      /* devices */
#include "weft/ops.h"         /* operators */
#include "weft/accelerator.h" /* who computes large products */
#include "weft/format.h"      /* GGUF files */
#include "weft/tokenizer.h"   /* text to ids and back */
#include "weft/llm.h"         /* models, sessions, sampling */

#endif
