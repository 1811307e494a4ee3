/* gguf_writer.h - builds GGUF files in memory for tests, right ones and wrong ones.
 *
 * The typed functions write what the format asks for.  A wrong file is made by changing a public field, by putting
 * bytes into a section directly, or by patching what gguf_writer_finish returns.  Running out of memory or disk ends
 * the program: a test has no use for carrying on. */
#ifndef WEFT_TESTS_GGUF_WRITER_H
#define WEFT_TESTS_GGUF_WRITER_H

#include "base/base.h"
#include "weft/format.h"

typedef struct gguf_writer {
  /* Written as they are: the counts follow the functions below and may be changed afterwards. */
  char magic[4];
  uint32_t version;
  uint64_t n_tensors, n_entries;
  uint32_t alignment;               /* of the data section and of each tensor in it */
  size_t max_bytes;                 /* the file is cut to this size */
  weft__bytes entries, infos, data; /* sections */
} gguf_writer;

/* An empty file of version 3 with the default alignment. */
void gguf_writer_init(gguf_writer *w);

/* One number or bool, read from *value in the type's own size. */
void gguf_writer_value(gguf_writer *w, const char *key, weft_gguf_type type, const void *value);
void gguf_writer_u32(gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_f32(gguf_writer *w, const char *key, float value);
void gguf_writer_bool(gguf_writer *w, const char *key, int value);
void gguf_writer_string(gguf_writer *w, const char *key, const char *text);
void gguf_writer_array(gguf_writer *w, const char *key, weft_gguf_type element_type, const void *elements, size_t n);
void gguf_writer_strings(gguf_writer *w, const char *key, const char *const *strings, size_t n);
/* Writes general.alignment and keeps to it. */
void gguf_writer_alignment(gguf_writer *w, uint32_t alignment);

/* A tensor whose data is copied to the next aligned place; `shape` is outermost axis first, `file_type` the number
 * that stands for the element type in the file. */
void gguf_writer_tensor(gguf_writer *w, const char *name, uint32_t file_type, int rank, const int64_t *shape,
                        const void *data, size_t n_bytes);
/* A description alone, of any number of dimensions: `dims` holds n_stored of them, innermost first. */
void gguf_writer_info(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *dims, size_t n_stored,
                      uint32_t file_type, uint64_t offset);

/* Bytes for the end of a section. */
void gguf_put(weft__bytes *section, const void *data, size_t n_bytes);
void gguf_put_u32(weft__bytes *section, uint32_t value);
void gguf_put_u64(weft__bytes *section, uint64_t value);
void gguf_put_string(weft__bytes *section, const char *text, size_t n_bytes); /* its length, then itself */

/* The finished file, which the caller clears; the writer is empty afterwards. */
weft__bytes gguf_writer_finish(gguf_writer *w);
/* Finishes into a file on disk. */
void gguf_writer_save(gguf_writer *w, const char *path);

/* Replaces a file's contents. */
void gguf_write_file(const char *path, const void *data, size_t n_bytes);

#endif
