/* family_qwen2.c - the qwen2 family (Yang et al. 2024), Qwen2 and Qwen2.5: rotary positions on halves, biases of queries,
 * keys and values, a SiLU gate. */
#include "llm/decoder.h"

static const weft__decoder_traits TRAITS = {WEFT_ROPE_HALVES, WEFT_GATE_SILU, WEFT__PART_QKV_BIAS};

static weft_status qwen2_load(weft_model *model, void **weights) {
  weft_status status = weft__load_hparams(model);
  return status ? status : weft__decoder_load(model, &TRAITS, weights);
}

static weft_tensor *qwen2_forward(const weft_model *model, weft_scope *scope, const weft__forward_inputs *in) {
  return weft__decoder_forward(model, &TRAITS, scope, in);
}

const weft__family weft__family_qwen2 = {"qwen2", qwen2_load, qwen2_forward};
