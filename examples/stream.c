/* stream.c - continues a text token by token, and shows each piece as soon as it is certain.
 *
 *   cc -o stream stream.c $(pkg-config --cflags --libs weft) && ./stream model.gguf "1 2 3 4" 16
 *
 * The callback gets whole UTF-8 characters, and ends the generation by returning anything but 0: here after a full stop,
 * so that the text ends with a sentence. */
#include <weft.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct progress {
  int n_pieces;
} progress;

static int on_text(void *context, const char *text, size_t n_bytes) {
  progress *p = context;
  p->n_pieces++;
  fwrite(text, 1, n_bytes, stdout);
  fflush(stdout);
  return memchr(text, '.', n_bytes) != NULL;
}

/* The text as it stands is the prompt: no chat template. */
static weft_status continue_text(weft_session *session, weft_model *model, const char *text, int max_tokens) {
  progress p = {0};
  weft_generation generation = {0};
  const weft_generate_options options = {.max_tokens = max_tokens, .on_text = on_text, .context = &p};
  int32_t *ids = NULL;
  size_t n_ids = 0;
  weft_status status = weft_tokenizer_encode(weft_model_tokenizer(model), text, strlen(text), 0, NULL, 0, &ids, &n_ids);
  if (!status) status = weft_session_generate(session, ids, n_ids, &options, &generation);
  printf("\n");
  if (!status) fprintf(stderr, "%zu tokens in %d pieces\n", generation.n_tokens, p.n_pieces);
  weft_generation_clear(&generation);
  weft_free(ids);
  return status;
}

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: stream MODEL TEXT MAX_TOKENS\n"), 2;
  weft_device *device = NULL;
  weft_model *model = NULL;
  weft_session *session = NULL;
  const weft_device_options cpu = {.kind = WEFT_DEVICE_CPU, .arithmetic = WEFT_EXACT};

  weft_status status = weft_device_open(&device, &cpu);
  if (!status) status = weft_model_load(&model, device, argv[1], NULL);
  if (!status) status = weft_session_create(&session, model, NULL);
  if (!status) status = continue_text(session, model, argv[2], (int)strtol(argv[3], NULL, 10));
  if (status) fprintf(stderr, "stream: %s\n", weft_last_error());

  weft_session_free(session);
  weft_model_free(model);
  weft_device_close(device);
  return status != WEFT_OK;
}
