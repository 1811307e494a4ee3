/* fuzz_model.c - a fuzz target: any bytes are either refused as a model or answer a prompt, with a status for whatever
 * goes wrong.
 *
 * A model that loads is run only if it is small: the time for an input is for trying others. */
#include "weft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static struct { weft_device *device; /* opened by the first input, kept for all */ } fuzz;

static void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "%s: %s\n", what, weft_last_error());
  abort();
}

/* A failure has a message, of one line. */
static void require_message(void) {
  require(weft_last_error()[0] && !strpbrk(weft_last_error(), "\r\n\033"), "bad message");
}

/* The loader maps a file, so every input becomes one, under a name of its own because fuzzers run side by side. */
static void save(char *path, const uint8_t *data, size_t n_bytes) {
  int descriptor = mkstemp(path);
  if (descriptor < 0 || write(descriptor, data, n_bytes) != (ssize_t)n_bytes || close(descriptor) != 0) {
    perror(path);
    abort();
  }
}

static int is_small(const weft_model_info *info) {
  return info->n_layers <= 4 && info->n_heads <= 64 && info->head_size <= 256 && info->width <= 256 &&
         info->ffn_width <= 512 && info->n_vocab <= 1024;
}

/* A greeting through the chat template, or a few bytes where there is none. */
static void make_prompt(const weft_model *model, int32_t **ids, size_t *n_ids) {
  const weft_chat_message greeting = {"user", "caf\xC3\xA9 abca"};
  if (weft_model_apply_chat(model, &greeting, 1, ids, n_ids) == WEFT_OK) return;
  require_message();
  require(weft_tokenizer_encode(weft_model_tokenizer(model), "aabb", 4, 0, NULL, 0, ids, n_ids) == WEFT_OK, "encode");
}

static void generate(weft_session *session, const int32_t *ids, size_t n_ids) {
  const char *const stop[] = {"abab"};
  const weft_generate_options options = {
      .max_tokens = 4, .sampler = {.temperature = 1, .top_k = 5}, .stop = stop, .n_stop = 1};
  weft_generation out;
  int length = weft_session_length(session);
  if (weft_session_generate(session, ids, n_ids, &options, &out) != WEFT_OK) require_message();
  require(out.n_tokens <= 4, "too many tokens");
  weft_generation_clear(&out);
  require(weft_session_truncate(session, length) == WEFT_OK, "truncate");
}

static void use(weft_model *model) {
  weft_session *session = NULL;
  int32_t *ids = NULL;
  size_t n_ids = 0;
  if (!is_small(weft_model_get_info(model))) return;
  int n_ctx = weft_model_get_info(model)->n_ctx_train;
  weft_session_options options = {.n_ctx = n_ctx < 96 ? n_ctx : 96, .kv_dtype = WEFT_F16, .n_prefill = 16};
  require(weft_session_create(&session, model, &options) == WEFT_OK, "session");
  make_prompt(model, &ids, &n_ids);
  generate(session, ids, n_ids);
  weft_free(ids);
  weft_session_free(session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  char path[] = "/tmp/weft-fuzz-XXXXXX";
  weft_model *model = NULL;
  const weft_device_options options = {.kind = WEFT_DEVICE_CPU, .n_threads = 1};
  if (!fuzz.device) require(weft_device_open(&fuzz.device, &options) == WEFT_OK, "device");
  save(path, data, n_bytes);
  weft_status status = weft_model_load(&model, fuzz.device, path, NULL);
  if (status == WEFT_OK)
    use(model);
  else
    require_message();
  weft_model_free(model);
  unlink(path);
  return 0;
}
