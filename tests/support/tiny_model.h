/* tiny_model.h - small complete models of every family, right and wrong, as GGUF files.
 *
 * The vocabulary is byte_vocab's with the turn marks of all formats, so ids below 256 are bytes.  Weights are random by seed
 * and known in double precision as the file's format defines them, which is what a reference computes with.  A model can
 * be scripted instead: then the token that follows each token of the script is certain.  What cannot be written ends
 * the program. */
#ifndef WEFT_TESTS_TINY_MODEL_H
#define WEFT_TESTS_TINY_MODEL_H

#include "support/gguf_writer.h"

/* What is wrong with a model, in one place. */
typedef enum tiny_fault_kind {
  TINY_SOUND,
  TINY_NO_TENSOR, /* the tensor `name` is left out */
  TINY_MORE_ROWS, /* it has one row (element of a vector) more */
  TINY_TYPE,      /* it has element type `value`, as the format numbers them */
  TINY_NAN,       /* it is NaN: its element or block `value` */
  TINY_NO_KEY,    /* the metadata entry `name` is left out */
  TINY_KEY,       /* it is the integer `value` */
  TINY_KEY_TEXT,  /* it is the string `text` */
  TINY_KEY_FLOAT, /* it is the float whose bits are `value` */
} tiny_fault_kind;

typedef struct tiny_fault {
  tiny_fault_kind kind;
  const char *name; /* may be a metadata entry that a right model does not have */
  uint32_t value;
  const char *text;
} tiny_fault;

typedef enum tiny_family {
  TINY_LLAMA,  /* heads rotated by neighbouring pairs */
  TINY_QWEN2,  /* by halves; biases of q, k, v */
  TINY_GEMMA3, /* by halves; norms of q and k and after attention and MLP; gelu; windows; embeddings times sqrt(width) */
  TINY_FAMILIES
} tiny_family;

/* Zeros are defaults. */
typedef struct tiny_options {
  tiny_family family;
  int n_layers, n_heads, n_kv_heads, head_size, width, ffn_width; /* 2, 4, 2, 16, 64, 96 */
  int n_ctx;                                                      /* 128 */
  int rope_dims;                                                  /* head_size */
  int window;           /* positions that a layer sees: 0 = all; a file of gemma3 says 20 then */
  int rope_stretch;     /* factor of linear rope scaling; 0: none */
  int has_rope_factors; /* rope_freqs.weight */
  int has_bias;         /* of q, k, v: qwen2 always has them */
  weft_dtype weights;   /* of all matrices; vectors are F32 */
  int is_tied;          /* no output.weight */
  int adds_bos;         /* the model wants <s> first */
  uint32_t alignment;   /* of tensors in the file: 32 */
  uint64_t seed;
  const char *chat_template; /* TINY_CHATML; "" = none */
  const int32_t *script;     /* n_script distinct ids, each certain to follow the one before; no attention, no MLP */
  size_t n_script;
  tiny_fault fault;
} tiny_options;

/* With a default system message, as models ship it. */
#define TINY_SYSTEM "You are tiny."
#define TINY_CHATML                                                                                                    \
  "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"                               \
  "{{ '<|im_start|>system\\n" TINY_SYSTEM "<|im_end|>\\n' }}{% endif %}"                                               \
  "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"             \
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

/* One layer's weights, row by row. */
typedef struct tiny_layer {
  double *attn_norm, *ffn_norm;           /* [C] */
  double *q, *k, *v, *o;                  /* [H*D,C] [G*D,C] [G*D,C] [C,H*D] */
  double *q_bias, *k_bias, *v_bias;       /* [H*D] [G*D] [G*D], or NULL */
  double *q_norm, *k_norm;                /* [D], or NULL */
  double *attn_post_norm, *ffn_post_norm; /* [C], or NULL */
  double *gate, *up, *down;               /* [F,C] [F,C] [C,F] */
} tiny_layer;

typedef struct tiny_model {
  tiny_options options; /* defaults filled in */
  int n_vocab;
  double norm_eps, rope_base, window_rope_base; /* the last of layers with a window */
  double *rope_factors;                         /* [rope_dims/2], divisors of frequencies; or NULL */
  double *token_embd, *output_norm, *output;    /* [V,C] [C] [V,C]; tied: output is token_embd */
  tiny_layer *layers;
  weft__bytes file;
} tiny_model;

/* Makes the file in memory; cleared with tiny_model_clear. */
tiny_model tiny_model_make(const tiny_options *options);
void tiny_model_clear(tiny_model *model);

/* "llama": the architecture as files name it. */
const char *tiny_family_name(tiny_family family);
/* Whether layer `i` sees the last options.window positions alone: of six layers of gemma3 all but the last. */
int tiny_has_window(const tiny_model *model, int i);

/* The id of a token as the file spells it. */
int32_t tiny_model_find(const char *spelling);

/* Writes the file under a new name, which `path` (room for TINY_PATH_BYTES) receives; the caller removes it. */
enum { TINY_PATH_BYTES = 64 };
void tiny_model_save(const tiny_model *model, char *path);

#endif
