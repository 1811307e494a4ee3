/* make_session_corpus.c - writes the fuzzer's seeds into the folder that is named: sessions of several lengths as they are
 * saved, one that the context is too small for, and some with a fault. */
#include "support/tiny_model.h"
#include "weft.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void require(int condition) {
  if (condition) return;
  fprintf(stderr, "make_session_corpus: %s\n", weft_last_error());
  exit(1);
}

/* The fuzz target's model. */
static weft_model *load_model(weft_device *device) {
  char path[TINY_PATH_BYTES];
  weft_model *model = NULL;
  tiny_model tiny =
      tiny_model_make(&(tiny_options){.n_layers = 1, .n_heads = 2, .n_kv_heads = 1, .width = 32, .ffn_width = 32});
  tiny_model_save(&tiny, path);
  require(weft_model_load(&model, device, path, NULL) == WEFT_OK);
  unlink(path);
  tiny_model_clear(&tiny);
  return model;
}

static void save(weft_model *model, const char *folder, const char *name, size_t n_tokens, const char *note) {
  char path[PATH_MAX];
  weft_session *session = NULL;
  const float *logits;
  int32_t ids[100];
  for (int i = 0; i < 100; i++) ids[i] = 97 + i % 26;
  require(weft_session_create(&session, model, &(weft_session_options){.kv_dtype = WEFT_F16}) == WEFT_OK);
  if (n_tokens > 0) require(weft_session_append(session, ids, n_tokens, &logits) == WEFT_OK);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  require(weft_session_save(session, path, note, strlen(note)) == WEFT_OK);
  weft_session_free(session);
}

/* A copy of `name` with its 4 bytes at `offset` replaced. */
static void spoil(const char *folder, const char *name, const char *fault, long offset, uint32_t value) {
  char path[PATH_MAX], data[65536];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  require(file != NULL);
  size_t n = fread(data, 1, sizeof data, file);
  fclose(file);
  memcpy(data + offset, &value, sizeof value);
  snprintf(path, sizeof path, "%s/%s", folder, fault);
  gguf_write_file(path, data, n);
}

int main(int argc, char **argv) {
  weft_device *device = NULL;
  if (argc != 2) {
    fprintf(stderr, "usage: make_session_corpus FOLDER\n");
    return 2;
  }
  require(weft_device_open(&device, &(weft_device_options){.n_threads = 1}) == WEFT_OK);
  weft_model *model = load_model(device);
  save(model, argv[1], "empty", 0, "");
  save(model, argv[1], "one", 1, "note");
  save(model, argv[1], "two_blocks", 33, "");
  save(model, argv[1], "too_long", 100, "{\"messages\": []}");
  spoil(argv[1], "one", "many_tokens", 48, UINT32_MAX);
  spoil(argv[1], "one", "long_note", 60, UINT32_MAX);
  spoil(argv[1], "one", "many_layers", 12, UINT32_MAX);
  spoil(argv[1], "one", "large_blocks", 36, UINT32_MAX);
  spoil(argv[1], "one", "negative_token", 64, UINT32_MAX);
  spoil(argv[1], "one", "next_version", 8, 2);
  spoil(argv[1], "two_blocks", "nan_key", 64 + 33 * 4, 0x7e007e00);
  weft_model_free(model);
  weft_device_close(device);
  printf("11 seeds in %s\n", argv[1]);
  return 0;
}
