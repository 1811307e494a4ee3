/* forward.c - one forward pass: batch in, logits out, cache extended; all or nothing. */
#include "llm/model.h"

#include <math.h> /* isfinite */

static weft_status check_arguments(const weft_model *model, const weft_kv_cache *cache, const weft_batch *batch) {
  if (!model || !cache || !batch || batch->n_tokens < 0)
    return weft__error(WEFT_EINVAL, "forward: no model, cache or batch given");
  if (batch->n_tokens > 0 && (!batch->token || !batch->position || !batch->slot || !batch->want_logits))
    return weft__error(WEFT_EINVAL, "forward: the batch lacks one of its arrays");
  return WEFT_OK;
}

/* The batch as tensors in `scope`. */
static weft_status make_inputs(const weft_kv_cache *cache, const weft_batch *batch, weft_scope *scope,
                               weft__forward_inputs *in) {
  int64_t n = batch->n_tokens, n_wanted = 0;
  int32_t *wanted = weft__alloc((size_t)n, 3 * sizeof *wanted); /* rows, their positions and slots */
  if (!wanted) return WEFT_ENOMEM;
  int32_t *positions = wanted + n, *slots = positions + n;
  for (int32_t i = 0; i < batch->n_tokens; i++)
    if (batch->want_logits[i]) {
      positions[n_wanted] = batch->position[i];
      slots[n_wanted] = batch->slot[i];
      wanted[n_wanted++] = i;
    }
  in->ids = weft_tensor_from(scope, WEFT_I32, 1, &n, batch->token);
  in->positions = weft_tensor_from(scope, WEFT_I32, 1, &n, batch->position);
  in->slots = weft_tensor_from(scope, WEFT_I32, 1, &n, batch->slot);
  in->wanted = weft_tensor_from(scope, WEFT_I32, 1, &n_wanted, wanted);
  in->wanted_positions = weft_tensor_from(scope, WEFT_I32, 1, &n_wanted, positions);
  in->wanted_slots = weft_tensor_from(scope, WEFT_I32, 1, &n_wanted, slots);
  weft_free(wanted);
  if (!in->ids || !in->positions || !in->slots || !in->wanted || !in->wanted_positions || !in->wanted_slots)
    return weft_last_status();
  return weft__kv_inputs(cache, scope, in);
}

/* One without branches first, of which the compiler makes vectors: no thread has anything to do meanwhile. */
static bool are_finite(const float *x, int64_t n) {
  int are_all = 1;
  for (int64_t i = 0; i < n; i++) are_all &= fabsf(x[i]) < INFINITY;
  return are_all;
}

static weft_status check_logits(const float *logits, int64_t n_rows, int64_t n_vocab) {
  if (are_finite(logits, n_rows * n_vocab)) return WEFT_OK;
  for (int64_t i = 0; i < n_rows * n_vocab; i++)
    if (!isfinite(logits[i]))
      return weft__error(WEFT_ENUMERIC,
                         "logits: the model gave %f for token %lld (its weights or this input are out of range)",
                         (double)logits[i], (long long)(i % n_vocab));
  return WEFT_OK;
}

static weft_status run(weft_model *model, weft_kv_cache *cache, const weft_batch *batch, weft_scope *scope,
                       float *logits) {
  weft__forward_inputs in;
  weft_status status = make_inputs(cache, batch, scope, &in);
  if (status) return status;
  weft_tensor *y = model->family->forward(model, scope, &in);
  if (!y) return weft_last_status();
  int64_t n_wanted = weft_tensor_shape(in.wanted)[0], n_vocab = model->info.n_vocab;
  if (n_wanted == 0) return WEFT_OK;
  if (!logits) return weft__error(WEFT_EINVAL, "forward: logits are wanted but there is no room for them");
  status = weft_tensor_read(y, logits, weft_tensor_bytes(y));
  return status ? status : check_logits(logits, n_wanted, n_vocab);
}

weft_status weft_forward(weft_model *model, weft_kv_cache *cache, const weft_batch *batch, float *logits) {
  weft_status status = check_arguments(model, cache, batch);
  if (status || batch->n_tokens == 0) return status;
  status = weft__kv_prepare(cache, batch);
  if (status) return status;
  weft_scope *scope;
  status = weft_scope_open(&scope, model->device, NULL);
  if (!status) {
    status = run(model, cache, batch, scope, logits);
    weft_scope_close(scope);
  }
  if (status)
    weft__kv_abandon(cache);
  else
    weft__kv_commit(cache, batch);
  return status;
}
