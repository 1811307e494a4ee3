/* gguf_split.c - a small split model. */
#include "support/gguf_split.h"

#include <stdio.h>
#include <stdlib.h>

void gguf_split_init(gguf_split_part parts[GGUF_SPLIT_PARTS]) {
  for (int no = 0; no < GGUF_SPLIT_PARTS; no++)
    parts[no] = (gguf_split_part){
        .no = (uint16_t)no, .count = GGUF_SPLIT_PARTS, .n_tensors = 3, .alignment = 32, .max_bytes = SIZE_MAX};
  parts[1].tensors[0] = "a";
  parts[1].tensors[1] = "b";
  parts[2].tensors[0] = "c";
  parts[2].alignment = 256;
}

weft__bytes gguf_split_make(const gguf_split_part *part) {
  gguf_writer w;
  gguf_writer_init(&w);
  if (part->no == 0) gguf_writer_string(&w, "general.name", "split");
  gguf_writer_alignment(&w, part->alignment);
  gguf_writer_value(&w, "split.no", WEFT_GGUF_U16, &part->no);
  gguf_writer_value(&w, "split.count", WEFT_GGUF_U16, &part->count);
  if (part->n_tensors >= 0) gguf_writer_value(&w, "split.tensors.count", WEFT_GGUF_I32, &part->n_tensors);
  for (int i = 0; i < 2 && part->tensors[i]; i++) {
    const float data[] = {part->no, (float)i, 0.5f};
    gguf_writer_tensor(&w, part->tensors[i], 0, 1, (const int64_t[]){3}, data, sizeof data);
  }
  w.max_bytes = part->max_bytes;
  return gguf_writer_finish(&w);
}

/* The entries as they stand in the file: behind its header, and before the description of the first tensor, which starts
 * with the length of its name. */
static void copy_entries(gguf_writer *w, const weft_gguf *gguf) {
  const char *first = weft_gguf_entry_at(gguf, 0)->key.data - 8, *end = weft_gguf_tensor_at(gguf, 0)->name.data - 8;
  gguf_put(&w->entries, first, (size_t)(end - first));
  w->n_entries += weft_gguf_n_entries(gguf);
}

static void copy_tensor(gguf_writer *w, const weft_gguf_tensor *tensor) {
  char name[128];
  snprintf(name, sizeof name, "%.*s", (int)tensor->name.n_bytes, tensor->name.data);
  gguf_writer_tensor(w, name, tensor->file_type, tensor->rank, tensor->shape, tensor->data, (size_t)tensor->n_bytes);
}

void gguf_split_file(const char *path, const char *stem) {
  weft_gguf *gguf = NULL;
  if (weft_gguf_open(&gguf, path)) {
    fprintf(stderr, "%s\n", weft_last_error());
    abort();
  }
  size_t n_tensors = weft_gguf_n_tensors(gguf);
  for (uint16_t no = 0; no < 2; no++) {
    char part_path[256];
    gguf_writer w;
    gguf_writer_init(&w);
    if (no == 0) copy_entries(&w, gguf);
    gguf_writer_value(&w, "split.no", WEFT_GGUF_U16, &no);
    gguf_writer_value(&w, "split.count", WEFT_GGUF_U16, &(uint16_t){2});
    gguf_writer_u32(&w, "split.tensors.count", (uint32_t)n_tensors);
    for (size_t i = no ? n_tensors / 2 : 0; i < (no ? n_tensors : n_tensors / 2); i++)
      copy_tensor(&w, weft_gguf_tensor_at(gguf, i));
    snprintf(part_path, sizeof part_path, "%s-%05d-of-%05d.gguf", stem, no + 1, 2);
    gguf_writer_save(&w, part_path);
  }
  weft_gguf_close(gguf);
}
