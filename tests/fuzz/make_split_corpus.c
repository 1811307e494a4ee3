/* make_split_corpus.c - writes the fuzzer's seeds into the folder that is named: pairs of parts, right and wrong ones. */
#include "support/gguf_split.h"

#include <limits.h>
#include <stdio.h>

/* What is changed in the two parts. */
static void leave(gguf_split_part *parts) { (void)parts; }
static void swap(gguf_split_part *parts) { parts[0].no = 1, parts[1].no = 0; }
static void repeat_tensor(gguf_split_part *parts) { parts[0].tensors[0] = "a"; }
static void miscount(gguf_split_part *parts) { parts[0].n_tensors = parts[1].n_tensors = 3; }
static void disagree(gguf_split_part *parts) { parts[1].n_tensors = 3; }
static void cut_second(gguf_split_part *parts) { parts[1].max_bytes = 150; }
static void be_whole(gguf_split_part *parts) { parts[0].count = parts[1].count = 0; }

static const struct {
  const char *name;
  void (*change)(gguf_split_part *parts);
} seeds[] = {{"valid", leave},          {"swapped", swap},   {"repeated", repeat_tensor}, {"miscounted", miscount},
             {"disagreeing", disagree}, {"cut", cut_second}, {"whole", be_whole}};

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: make_split_corpus FOLDER\n");
    return 2;
  }
  for (size_t i = 0; i < WEFT_COUNT(seeds); i++) {
    char path[PATH_MAX];
    gguf_split_part parts[GGUF_SPLIT_PARTS];
    weft__bytes input = {0};
    gguf_split_init(parts);
    for (int no = 0; no < 2; no++) parts[no].count = 2, parts[no].n_tensors = 2;
    seeds[i].change(parts);
    weft__bytes first = gguf_split_make(&parts[0]), second = gguf_split_make(&parts[1]);
    gguf_put_u32(&input, (uint32_t)first.n);
    gguf_put(&input, first.data, first.n);
    gguf_put(&input, second.data, second.n);
    snprintf(path, sizeof path, "%s/%s", argv[1], seeds[i].name);
    gguf_write_file(path, input.data, input.n);
    weft__bytes_clear(&first);
    weft__bytes_clear(&second);
    weft__bytes_clear(&input);
  }
  printf("%zu seeds in %s\n", WEFT_COUNT(seeds), argv[1]);
  return 0;
}
