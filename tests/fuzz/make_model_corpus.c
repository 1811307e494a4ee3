/* make_model_corpus.c - writes the fuzzer's seeds into the folder that is named: tiny models, one of each weight type, with
 * a chat template or not, and some with a fault. */
#include "support/tiny_model.h"

#include <limits.h>
#include <stdio.h>

#define SMALL .n_layers = 1, .n_heads = 2, .n_kv_heads = 1, .head_size = 16, .width = 32, .ffn_width = 32, .n_ctx = 96

static const struct {
  const char *name;
  tiny_options options;
} seeds[] = {
    {"q4_1", {SMALL, .weights = WEFT_Q4_1}},
    {"q4_1_tied", {SMALL, .weights = WEFT_Q4_1, .is_tied = 1, .adds_bos = 1}},
    {"q8_0", {SMALL, .weights = WEFT_Q8_0, .chat_template = ""}},
    {"f16_tied", {SMALL, .weights = WEFT_F16, .is_tied = 1, .alignment = 1}},
    {"nan", {SMALL, .weights = WEFT_Q4_1, .is_tied = 1, .fault = {TINY_NAN, "output_norm.weight", 0, NULL}}},
    {"rope_scaling",
     {SMALL, .weights = WEFT_Q4_1, .is_tied = 1, .fault = {TINY_KEY_TEXT, "llama.rope.scaling.type", 0, "linear"}}},
    {"qwen2", {SMALL, .family = TINY_QWEN2, .weights = WEFT_Q4_1, .is_tied = 1}},
    {"gemma3", {SMALL, .family = TINY_GEMMA3, .weights = WEFT_Q4_1, .is_tied = 1, .window = 7}},
    {"llama_extras",
     {SMALL, .weights = WEFT_Q4_1, .is_tied = 1, .window = 9, .has_rope_factors = 1, .rope_stretch = 4, .has_bias = 1}},
    {"missing_tensor",
     {SMALL, .weights = WEFT_Q4_1, .is_tied = 1, .fault = {TINY_NO_TENSOR, "blk.0.ffn_up.weight", 0, NULL}}},
};

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: make_model_corpus FOLDER\n");
    return 2;
  }
  for (size_t i = 0; i < WEFT_COUNT(seeds); i++) {
    char path[PATH_MAX];
    tiny_model model = tiny_model_make(&seeds[i].options);
    snprintf(path, sizeof path, "%s/%s", argv[1], seeds[i].name);
    gguf_write_file(path, model.file.data, model.file.n);
    tiny_model_clear(&model);
  }
  printf("%zu seeds in %s\n", WEFT_COUNT(seeds), argv[1]);
  return 0;
}
