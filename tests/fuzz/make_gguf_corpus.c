/* make_gguf_corpus.c - writes the fuzzer's seeds, one file for each of gguf_cases, into the folder that is named. */
#include "support/gguf_cases.h"

#include <limits.h>
#include <stdio.h>

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: make_gguf_corpus FOLDER\n");
    return 2;
  }
  for (size_t i = 0; i < gguf_n_cases; i++) {
    char path[PATH_MAX];
    gguf_writer w;
    gguf_writer_init(&w);
    gguf_cases[i].make(&w);
    snprintf(path, sizeof path, "%s/%s", argv[1], gguf_cases[i].name);
    gguf_writer_save(&w, path);
  }
  printf("%zu seeds in %s\n", gguf_n_cases, argv[1]);
  return 0;
}
