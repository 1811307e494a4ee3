/* gguf_split.c - a small split model. */
#include "support/gguf_split.h"

#include <stdlib.h>

void gguf_split_init(gguf_split_part parts[GGUF_SPLIT_PARTS]) {
  for (uint16_t no = 0; no < GGUF_SPLIT_PARTS; no++)
    parts[no] =
        (gguf_split_part){.no = no, .count = GGUF_SPLIT_PARTS, .n_tensors = 3, .alignment = 32, .max_bytes = SIZE_MAX};
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
