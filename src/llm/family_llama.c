/* family_llama.c - the llama family (Touvron et al. 2023): rotary positions on interleaved pairs, for which its GGUF
 * files have query and key rows permuted, and a SiLU gate.  Mistral and SmolLM are files of this family, too. */
#include "llm/decoder.h"

static const weft__decoder_traits TRAITS = {WEFT_ROPE_INTERLEAVED, WEFT_GATE_SILU, 0};

static weft_status llama_load(weft_model *model, void **weights) {
  weft_status status = weft__load_hparams(model);
  return status ? status : weft__decoder_load(model, &TRAITS, weights);
}

static weft_tensor *llama_forward(const weft_model *model, weft_scope *scope, const weft__forward_inputs *in) {
  return weft__decoder_forward(model, &TRAITS, scope, in);
}

const weft__family weft__family_llama = {"llama", llama_load, llama_forward};
