/* gguf_writer.c - see gguf_writer.h.  A file is four byte buffers, a header and three sections, that are joined at the
 * end. */
#include "support/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program if something did not work. */
static void must(int is_done, const char *what) {
  if (is_done) return;
  fprintf(stderr, "gguf_writer: %s failed\n", what);
  abort();
}

void gguf_put(weft__bytes *section, const void *data, size_t n_bytes) {
  must(weft__bytes_add(section, data, n_bytes) == WEFT_OK, "allocation");
}

void gguf_put_u32(weft__bytes *section, uint32_t value) { gguf_put(section, &value, sizeof value); }

void gguf_put_u64(weft__bytes *section, uint64_t value) { gguf_put(section, &value, sizeof value); }

void gguf_put_string(weft__bytes *section, const char *text, size_t n_bytes) {
  gguf_put_u64(section, n_bytes);
  gguf_put(section, text, n_bytes);
}

/* Zeros up to the next multiple of the alignment; 0 is one of the wrong alignments that tests ask for. */
static void pad(weft__bytes *section, uint32_t alignment) {
  while (alignment > 0 && section->n % alignment != 0) gguf_put(section, "", 1);
}

void gguf_writer_init(gguf_writer *w) {
  *w = (gguf_writer){.magic = "GGUF", .version = 3, .alignment = 32, .max_bytes = SIZE_MAX};
}

/* A key and the type of its value, which the caller puts after them. */
static void begin_entry(gguf_writer *w, const char *key, weft_gguf_type type) {
  gguf_put_string(&w->entries, key, strlen(key));
  gguf_put_u32(&w->entries, type);
  w->n_entries++;
}

/* Spelled out rather than taken from the reader, whose own table this is a test of. */
static size_t type_bytes(weft_gguf_type type) {
  switch (type) {
  case WEFT_GGUF_U8:
  case WEFT_GGUF_I8:
  case WEFT_GGUF_BOOL:
    return 1;
  case WEFT_GGUF_U16:
  case WEFT_GGUF_I16:
    return 2;
  case WEFT_GGUF_U32:
  case WEFT_GGUF_I32:
  case WEFT_GGUF_F32:
    return 4;
  case WEFT_GGUF_U64:
  case WEFT_GGUF_I64:
  case WEFT_GGUF_F64:
    return 8;
  default:
    must(0, "a number's size");
    return 0;
  }
}

void gguf_writer_value(gguf_writer *w, const char *key, weft_gguf_type type, const void *value) {
  begin_entry(w, key, type);
  gguf_put(&w->entries, value, type_bytes(type));
}

void gguf_writer_u32(gguf_writer *w, const char *key, uint32_t value) {
  gguf_writer_value(w, key, WEFT_GGUF_U32, &value);
}

void gguf_writer_f32(gguf_writer *w, const char *key, float value) { gguf_writer_value(w, key, WEFT_GGUF_F32, &value); }

void gguf_writer_bool(gguf_writer *w, const char *key, int value) {
  unsigned char byte = (unsigned char)value;
  gguf_writer_value(w, key, WEFT_GGUF_BOOL, &byte);
}

void gguf_writer_string(gguf_writer *w, const char *key, const char *text) {
  begin_entry(w, key, WEFT_GGUF_STRING);
  gguf_put_string(&w->entries, text, strlen(text));
}

static void begin_array(gguf_writer *w, const char *key, weft_gguf_type element_type, size_t n) {
  begin_entry(w, key, WEFT_GGUF_ARRAY);
  gguf_put_u32(&w->entries, element_type);
  gguf_put_u64(&w->entries, n);
}

void gguf_writer_array(gguf_writer *w, const char *key, weft_gguf_type element_type, const void *elements, size_t n) {
  begin_array(w, key, element_type, n);
  gguf_put(&w->entries, elements, n * type_bytes(element_type));
}

void gguf_writer_strings(gguf_writer *w, const char *key, const char *const *strings, size_t n) {
  begin_array(w, key, WEFT_GGUF_STRING, n);
  for (size_t i = 0; i < n; i++) gguf_put_string(&w->entries, strings[i], strlen(strings[i]));
}

void gguf_writer_alignment(gguf_writer *w, uint32_t alignment) {
  gguf_writer_u32(w, "general.alignment", alignment);
  w->alignment = alignment;
}

void gguf_writer_tensor(gguf_writer *w, const char *name, uint32_t file_type, int rank, const int64_t *shape,
                        const void *data, size_t n_bytes) {
  uint64_t dims[8];
  must(rank >= 1 && rank <= (int)WEFT_COUNT(dims), "a tensor's rank");
  for (int i = 0; i < rank; i++) dims[i] = (uint64_t)shape[rank - 1 - i];
  pad(&w->data, w->alignment);
  gguf_writer_info(w, name, (uint32_t)rank, dims, (size_t)rank, file_type, w->data.n);
  gguf_put(&w->data, data, n_bytes);
}

void gguf_writer_info(gguf_writer *w, const char *name, uint32_t n_dims, const uint64_t *dims, size_t n_stored,
                      uint32_t file_type, uint64_t offset) {
  gguf_put_string(&w->infos, name, strlen(name));
  gguf_put_u32(&w->infos, n_dims);
  for (size_t i = 0; i < n_stored; i++) gguf_put_u64(&w->infos, dims[i]);
  gguf_put_u32(&w->infos, file_type);
  gguf_put_u64(&w->infos, offset);
  w->n_tensors++;
}

/* A file without data gets no padding, as the format does not ask for it. */
weft__bytes gguf_writer_finish(gguf_writer *w) {
  weft__bytes file = {0};
  gguf_put(&file, w->magic, sizeof w->magic);
  gguf_put_u32(&file, w->version);
  gguf_put_u64(&file, w->n_tensors);
  gguf_put_u64(&file, w->n_entries);
  gguf_put(&file, w->entries.data, w->entries.n);
  gguf_put(&file, w->infos.data, w->infos.n);
  if (w->data.n > 0) pad(&file, w->alignment);
  gguf_put(&file, w->data.data, w->data.n);
  if (file.n > w->max_bytes) file.n = w->max_bytes;
  weft__bytes_clear(&w->entries);
  weft__bytes_clear(&w->infos);
  weft__bytes_clear(&w->data);
  gguf_writer_init(w);
  return file;
}

void gguf_writer_save(gguf_writer *w, const char *path) {
  weft__bytes file = gguf_writer_finish(w);
  gguf_write_file(path, file.data, file.n);
  weft__bytes_clear(&file);
}

void gguf_write_file(const char *path, const void *data, size_t n_bytes) {
  /* Some file systems wait for the disk when a file's contents are replaced, and not when a file is new. */
  remove(path);
  FILE *file = fopen(path, "wb");
  must(file != NULL, path);
  int is_written = fwrite(data, 1, n_bytes, file) == n_bytes;
  must(fclose(file) == 0 && is_written, path);
}
