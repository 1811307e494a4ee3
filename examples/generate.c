/* generate.c - answers a question with a language model, greedily, and prints the answer when it is complete.
 *
 *   cc -o generate generate.c $(pkg-config --cflags --libs weft) && ./generate model.gguf "Why is the sky blue?"
 *
 * The model is weights, tokenizer and chat template; the session is one conversation with it. */
#include <weft.h>

#include <stdio.h>

/* Fills *answer, which the caller clears whatever is returned. */
static weft_status ask(weft_session *session, weft_model *model, const char *question, weft_generation *answer) {
  const weft_chat_message message = {"user", question};
  const weft_generate_options options = {.max_tokens = 256}; /* a sampler of zeros is greedy */
  int32_t *ids = NULL;
  size_t n_ids = 0;
  weft_status status = weft_model_apply_chat(model, &message, 1, &ids, &n_ids);
  if (!status) status = weft_session_generate(session, ids, n_ids, &options, answer);
  weft_free(ids);
  return status;
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: generate MODEL QUESTION\n"), 2;
  weft_device *device = NULL;
  weft_model *model = NULL;
  weft_session *session = NULL;
  weft_generation answer = {0};
  const weft_device_options cpu = {.kind = WEFT_DEVICE_CPU, .arithmetic = WEFT_EXACT};

  weft_status status = weft_device_open(&device, &cpu);
  if (!status) status = weft_model_load(&model, device, argv[1], NULL);
  if (!status) status = weft_session_create(&session, model, NULL);
  if (!status) status = ask(session, model, argv[2], &answer);
  if (status)
    fprintf(stderr, "generate: %s\n", weft_last_error());
  else
    printf("%s\n", answer.text);

  weft_generation_clear(&answer);
  weft_session_free(session);
  weft_model_free(model);
  weft_device_close(device);
  return status != WEFT_OK;
}
