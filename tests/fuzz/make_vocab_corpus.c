/* make_vocab_corpus.c - writes the fuzzer's seeds into the folder that is named: files with the small vocabularies, of
 * each pre-tokenizer and of SentencePiece, and some with a fault. */
#include "support/spm_vocab.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

static void save(const char *folder, const char *name, gguf_writer *w) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  gguf_writer_save(w, path);
}

static void save_bytes(const char *folder, const char *name, const char *pre, int type) {
  byte_vocab vocab;
  gguf_writer w;
  byte_vocab_init(&vocab);
  gguf_writer_init(&w);
  vocab.pre = pre;
  vocab.types['b'] = type;
  gguf_writer_string(&w, "general.description", "a b\xCC\x81 abbc <s>12345");
  byte_vocab_write(&vocab, &w);
  save(folder, name, &w);
}

static void save_pieces(const char *folder, const char *name, int adds_space, float score, int type) {
  static spm_vocab vocab;
  gguf_writer w;
  spm_vocab_init(&vocab);
  gguf_writer_init(&w);
  vocab.adds_space = adds_space;
  vocab.scores[262] = score;
  vocab.types[70] = type;
  gguf_writer_string(&w, "general.description", "ab C\xE6\x97\xA5\n\n<s>  abc\xE2\x96\x81x");
  spm_vocab_write(&vocab, &w);
  save(folder, name, &w);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: make_vocab_corpus FOLDER\n");
    return 2;
  }
  save_bytes(argv[1], "smollm", "smollm", TOKEN_NORMAL);
  save_bytes(argv[1], "llama-bpe", "llama-bpe", TOKEN_NORMAL);
  save_bytes(argv[1], "qwen2", "qwen2", TOKEN_NORMAL);
  save_bytes(argv[1], "byte_of_control", "gpt2", TOKEN_CONTROL);
  save_bytes(argv[1], "unknown_pre", "no-such-pattern", TOKEN_NORMAL);
  save_pieces(argv[1], "spm", -1, -1, TOKEN_BYTE);
  save_pieces(argv[1], "spm_without_space", 0, -1, TOKEN_BYTE);
  save_pieces(argv[1], "spm_unknown", 0, -3e38f, TOKEN_NORMAL);
  save_pieces(argv[1], "spm_not_finite", 0, INFINITY, TOKEN_BYTE);
  printf("9 seeds in %s\n", argv[1]);
  return 0;
}
