/* session.h - inside of a session. */
#ifndef WEFT_SESSION_H
#define WEFT_SESSION_H

#include "llm/model.h"

struct weft_session {
  weft_model *model;
  weft_kv_cache *cache;
  int n_prefill;
  int32_t *tokens; /* [n_ctx]: the first length are those that the cache holds */
  float *logits;   /* [V] after the last token */
  /* One chunk of a batch, [n_prefill] each. */
  int32_t *positions, *slots;
  uint8_t *want_logits;
};

#endif
