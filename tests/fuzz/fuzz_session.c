/* fuzz_session.c - a fuzz target: any bytes are either refused as a session file or make a session that goes on.
 *
 * Which model a file belongs to and its checksum are set right here: a fuzzer would not get past them by chance, and
 * somebody who wants to harm can compute both. */
#include "support/tiny_model.h"
#include "weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { MODEL_OFFSET = 24, MODEL_BYTES = 8, HEADER_BYTES = 64, CHECKSUM_BYTES = 8 };

/* Opened by the first input, kept for all. */
static struct {
  weft_device *device;
  weft_model *model;
  uint8_t fingerprint[MODEL_BYTES];
} fuzz;

static void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "%s: %s\n", what, weft_last_error());
  abort();
}

static weft_session *open_session(void) {
  weft_session *session = NULL;
  const weft_session_options options = {.n_ctx = 64, .kv_dtype = WEFT_F16};
  require(weft_session_create(&session, fuzz.model, &options) == WEFT_OK, "session");
  return session;
}

static void write_file(const char *path, const uint8_t *data, size_t n_bytes) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, n_bytes, file) != n_bytes || fclose(file) != 0) {
    perror(path);
    abort();
  }
}

/* The model's own fingerprint is in any file that is saved. */
static void read_fingerprint(const char *path) {
  uint8_t header[HEADER_BYTES];
  weft_session *session = open_session();
  require(weft_session_save(session, path, NULL, 0) == WEFT_OK, "save");
  FILE *file = fopen(path, "rb");
  require(file && fread(header, sizeof header, 1, file) == 1, "header");
  fclose(file);
  memcpy(fuzz.fingerprint, header + MODEL_OFFSET, sizeof fuzz.fingerprint);
  weft_session_free(session);
}

static void prepare(const char *path) {
  char model_path[TINY_PATH_BYTES];
  const tiny_options small = {.n_layers = 1, .n_heads = 2, .n_kv_heads = 1, .width = 32, .ffn_width = 32};
  tiny_model tiny = tiny_model_make(&small);
  tiny_model_save(&tiny, model_path);
  require(weft_device_open(&fuzz.device, &(weft_device_options){.n_threads = 1}) == WEFT_OK, "device");
  require(weft_model_load(&fuzz.model, fuzz.device, model_path, NULL) == WEFT_OK, "model");
  unlink(model_path);
  tiny_model_clear(&tiny);
  read_fingerprint(path);
}

/* The copy is the caller's. */
static uint8_t *make_plausible(const uint8_t *data, size_t n_bytes) {
  uint8_t *copy = malloc(n_bytes + 1);
  require(copy != NULL, "malloc");
  memcpy(copy, data, n_bytes);
  if (n_bytes < HEADER_BYTES + CHECKSUM_BYTES) return copy;
  memcpy(copy + MODEL_OFFSET, fuzz.fingerprint, sizeof fuzz.fingerprint);
  uint64_t checksum = XXH3_64bits(copy, n_bytes - CHECKSUM_BYTES);
  memcpy(copy + n_bytes - CHECKSUM_BYTES, &checksum, sizeof checksum);
  return copy;
}

/* The cache may hold anything, NaN too, so a failure is one with a message. */
static void go_on(weft_session *session) {
  const int32_t token = 'a';
  const float *logits;
  require(weft_session_length(session) <= weft_session_n_ctx(session), "too long");
  if (weft_session_append(session, &token, 1, &logits) != WEFT_OK) require(weft_last_error()[0] != 0, "no message");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  char path[64], *note = NULL;
  size_t n_note = 0;
  snprintf(path, sizeof path, "/tmp/weft-fuzz-session-%ld", (long)getpid());
  if (!fuzz.model) prepare(path);
  uint8_t *plausible = make_plausible(data, n_bytes);
  write_file(path, plausible, n_bytes);
  weft_session *session = open_session();
  if (weft_session_load(session, path, &note, &n_note) == WEFT_OK) {
    require(note && note[n_note] == 0, "note");
    go_on(session);
  } else {
    require(weft_last_error()[0] && !strpbrk(weft_last_error(), "\r\n\033"), "bad message");
    require(weft_session_length(session) == 0 && !note, "changed");
  }
  weft_free(note);
  weft_session_free(session);
  free(plausible);
  unlink(path);
  return 0;
}
