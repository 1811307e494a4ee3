/* tiny_fixture.h - small models loaded for a test, and the caches and sessions on them.  What cannot be made fails the
 * running test. */
#ifndef WEFT_TESTS_TINY_FIXTURE_H
#define WEFT_TESTS_TINY_FIXTURE_H

#include "support/tensors.h"
#include "support/tiny_model.h"

/* A model in memory, and loaded. */
typedef struct fixture {
  tiny_model tiny;
  weft_model *model;
  int n_vocab;
} fixture;

fixture fixture_load(const test_device *d, const tiny_options *options);
void fixture_unload(fixture *f);

/* Loads through a file that is gone again afterwards. */
weft_status fixture_load_file(const tiny_model *tiny, weft_device *device, weft_model **model);

weft_kv_cache *fixture_open_cache(const fixture *f, int n_slots, weft_dtype dtype);
weft_session *fixture_open_session(const fixture *f, const weft_session_options *options);

/* n seeded ids of the vocabulary. */
void fixture_draw_ids(const fixture *f, int32_t *ids, int n, uint64_t seed);

/* Runs a test where arithmetic does not matter: on the default variant alone, exact, one thread. */
void on_default_device(void (*test)(test_device *d));

/* The last error must contain `part`. */
void assert_message(const char *part);

#endif
