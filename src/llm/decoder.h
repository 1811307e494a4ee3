/* decoder.h - what the pre-norm decoder families share: their weights, how they are loaded, and the forward pass in
 * operators.  A family says by traits and hyperparameters in what it differs.
 *
 * A layer is x += attention(norm(x)), then x += mlp(norm(x)), where attention is grouped-query with rotary positions and
 * the MLP is gated: down(gate(g x) * u x). */
#ifndef WEFT_DECODER_H
#define WEFT_DECODER_H

#include "llm/model.h"

/* Weights beyond those that all families have. */
enum {
  WEFT__PART_QKV_BIAS = 1,   /* attn_{q,k,v}.bias; also taken from a file that has them, if the family does not ask */
  WEFT__PART_QK_NORMS = 2,   /* attn_{q,k}_norm: RMS norm of each head before it is rotated */
  WEFT__PART_POST_NORMS = 4, /* post_attention_norm, post_ffw_norm: RMS norm of what a layer's halves add */
};

typedef struct weft__decoder_traits {
  weft_rope_pairing pairing;
  weft_gate gate;
  unsigned parts;
} weft__decoder_traits;

/* Loads the weights into `*weights`, the model's own; model->hparams must be filled in.  A tensor of the file that this
 * does not use is an error: the model means something that would be left out. */
weft_status weft__decoder_load(weft_model *model, const weft__decoder_traits *traits, void **weights);

/* The family's forward pass, as in weft__family. */
weft_tensor *weft__decoder_forward(const weft_model *model, const weft__decoder_traits *traits, weft_scope *scope,
                                   const weft__forward_inputs *in);

#endif
