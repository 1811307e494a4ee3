/* family_gemma3.c - the gemma3 family, text part (Gemma Team 2025): embeddings scaled by sqrt(C), RMS norms before and
 * after attention and MLP and of each head of q and k, a gate of gelu by tanh, rotary positions on halves.  Of six layers
 * five see a window only, with a rotation of their own whose waves are neither as long nor stretched.
 *
 * The family's norms multiply by 1 + gain; its GGUF files hold the sum, so that they are norms like any other. */
#include "llm/decoder.h"

#include <limits.h> /* INT_MAX */
#include <math.h>   /* sqrt */

static const weft__decoder_traits TRAITS = {WEFT_ROPE_HALVES, WEFT_GATE_GELU_TANH,
                                            WEFT__PART_QK_NORMS | WEFT__PART_POST_NORMS};

/* What a file may leave out has the reference implementation's default; a missing base of the rotation is an error,
 * since the reference's 10000 is right for no model of the family. */
static weft_status load_hparams(weft_model *model) {
  weft__hparams *h = &model->hparams;
  weft_status status = weft__load_hparams(model);
  if (!status) status = weft__load_float(model, "rope.freq_base", 1, &h->rope_base);
  h->window_period = 6;
  h->window_rope_base = 10000;
  if (!status) status = weft__load_int(model, "attention.sliding_window_pattern", 0, 1, INT_MAX, &h->window_period);
  if (!status) status = weft__load_float(model, "rope.freq_base_swa", 0, &h->window_rope_base);
  if (!status && !(h->window_rope_base >= 1 && h->window_rope_base < 1e12))
    return weft__error(WEFT_EFORMAT, "%s: rope.freq_base_swa %g is out of range", weft_gguf_path(model->gguf),
                       h->window_rope_base);
  h->embedding_scale = sqrt((double)h->width);
  /* The 27B model, known by its depth, scales scores by the width that a head would have if heads shared C. */
  enum { LAYERS_OF_27B = 62 };
  if (h->n_layers == LAYERS_OF_27B) h->attention_scale = 1 / sqrt((double)h->width / (double)h->n_heads);
  return status;
}

static weft_status gemma3_load(weft_model *model, void **weights) {
  weft_status status = load_hparams(model);
  return status ? status : weft__decoder_load(model, &TRAITS, weights);
}

static weft_tensor *gemma3_forward(const weft_model *model, weft_scope *scope, const weft__forward_inputs *in) {
  return weft__decoder_forward(model, &TRAITS, scope, in);
}

const weft__family weft__family_gemma3 = {"gemma3", gemma3_load, gemma3_forward};
