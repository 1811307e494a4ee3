/* tiny_fixture.c - see tiny_fixture.h. */
#include "support/tiny_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

weft_status fixture_load_file(const tiny_model *tiny, weft_device *device, weft_model **model) {
  char path[TINY_PATH_BYTES];
  tiny_model_save(tiny, path);
  weft_status status = weft_model_load(model, device, path, NULL);
  unlink(path); /* what is mapped stays */
  return status;
}

fixture fixture_load(const test_device *d, const tiny_options *options) {
  fixture f = {.tiny = tiny_model_make(options)};
  if (fixture_load_file(&f.tiny, d->device, &f.model)) fail_msg("%s", weft_last_error());
  f.n_vocab = f.tiny.n_vocab;
  assert_int_equal(weft_model_get_info(f.model)->n_vocab, f.n_vocab);
  return f;
}

void fixture_unload(fixture *f) {
  weft_model_free(f->model);
  tiny_model_clear(&f->tiny);
}

weft_kv_cache *fixture_open_cache(const fixture *f, int n_slots, weft_dtype dtype) {
  weft_kv_cache *cache = NULL;
  const weft_kv_options options = {.n_slots = n_slots, .dtype = dtype};
  if (weft_kv_cache_create(&cache, f->model, &options)) fail_msg("%s", weft_last_error());
  return cache;
}

weft_session *fixture_open_session(const fixture *f, const weft_session_options *options) {
  weft_session *session = NULL;
  if (weft_session_create(&session, f->model, options)) fail_msg("%s", weft_last_error());
  return session;
}

void fixture_draw_ids(const fixture *f, int32_t *ids, int n, uint64_t seed) {
  float *x = test_alloc((size_t)n, sizeof *x);
  test_fill(x, (size_t)n, 0.5f, seed);
  for (int i = 0; i < n; i++) ids[i] = (int32_t)((x[i] + 0.5f) * (float)(f->n_vocab - 1));
  free(x);
}

void on_default_device(void (*test)(test_device *d)) {
  test_device d = {.variant = weft_cpu_variant_selected(), .arithmetic = WEFT_EXACT};
  const weft_device_options options = {.arithmetic = WEFT_EXACT, .n_threads = 1};
  if (weft_device_open(&d.device, &options)) fail_msg("%s", weft_last_error());
  d.device->backend->poison = true;
  test(&d);
  weft_device_close(d.device);
}

void assert_message(const char *part) {
  if (!strstr(weft_last_error(), part)) fail_msg("\"%s\" does not say \"%s\"", weft_last_error(), part);
}
