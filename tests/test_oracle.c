/* test_oracle.c - real models against another program: SmolLM2-135M-Instruct, Gemma 3 270M and llama.cpp v0.5.0
 * (tests/golden/llama_cpp_v0.5.0.json, which says how it was made).
 *
 * The reference is llama.cpp's all-f32 run.  Its own fast run leaves it where the best two logits are closer than about
 * 0.6, so tokens are forced: whatever weft would have said, the reference's token is next, and the argmax is compared
 * where the reference is sure, by 0.1 for exact arithmetic and by 1.0 for fast.  WEFT_TEST_QUICK=1 runs the default CPU
 * variant only.
 *
 * Gemma's 262144 logits a token are too many for the scalar variant: there one prompt is forced, and the likelihood of
 * the text's first tokens is compared with what the default variant, which has been through all of it, makes of them. */
#include "weft.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_PROMPTS = 8, MAX_PROMPT = 64, N_GENERATED = 32, N_TOP = 10, NLL_CHUNK = 64, NLL_SHORT = 16 };

/* One prompt, and the reference's continuation. */
typedef struct sample {
  const char *name, *text;
  int32_t tokens[MAX_PROMPT + N_GENERATED]; /* n_prompt of the prompt, then the generated ones */
  int n_prompt;
  double margins[N_GENERATED]; /* best logit minus second best, a token each */
  int32_t top_ids[N_TOP];      /* after the prompt */
  double top_logits[N_TOP];
} sample;

/* What is known of one model. */
typedef struct oracle {
  const char *name;           /* in the reference */
  const char *path, *path_by; /* of the file; an environment variable that says otherwise, or NULL */
  int is_short_for_scalar;
  json_t *root;
  sample samples[MAX_PROMPTS];
  int n_samples;
  const char *nll_text;
  int32_t *nll_tokens; /* [n_nll] */
  int n_nll;
  double nll;          /* nats a token */
  double short_nll[2]; /* exact, fast: of the first NLL_SHORT predictions, by the first variant to make them */
} oracle;

static oracle smollm2 = {.name = "SmolLM2-135M-Instruct.Q4_1",
                         .path = "models/SmolLM2-135M-Instruct.Q4_1.gguf",
                         .path_by = "WEFT_TEST_MODEL"},
              gemma3 = {
                  .name = "gemma-3-270m-q4_k_m", .path = "models/gemma-3-270m.Q4_K_M.gguf", .is_short_for_scalar = 1};

/* ---- reading the reference ---- */

static json_t *get(const json_t *object, const char *key) {
  json_t *value = json_object_get(object, key);
  if (!value) fail_msg("the reference has no %s", key);
  return value;
}

/* Room for `limit` ids; returns how many there are. */
static int read_ids(const json_t *array, int32_t *ids, size_t limit) {
  assert_in_range(json_array_size(array), 1, limit);
  for (size_t i = 0; i < json_array_size(array); i++) ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
  return (int)json_array_size(array);
}

static void read_sample(const json_t *entry, sample *s) {
  const json_t *f32 = get(entry, "f32ref"), *margins = get(f32, "margins"), *top = get(f32, "top10");
  s->name = json_string_value(get(entry, "name"));
  s->text = json_string_value(get(entry, "prompt"));
  s->n_prompt = read_ids(get(entry, "prompt_ids"), s->tokens, MAX_PROMPT);
  assert_int_equal(read_ids(get(f32, "gen_ids"), s->tokens + s->n_prompt, N_GENERATED), N_GENERATED);
  assert_int_equal(json_array_size(margins), N_GENERATED);
  assert_int_equal(json_array_size(top), N_TOP);
  for (size_t i = 0; i < N_GENERATED; i++) s->margins[i] = json_number_value(json_array_get(margins, i));
  for (size_t i = 0; i < N_TOP; i++) {
    const json_t *pair = json_array_get(top, i);
    s->top_ids[i] = (int32_t)json_integer_value(json_array_get(pair, 0));
    s->top_logits[i] = json_number_value(json_array_get(pair, 1));
  }
}

static void read_oracle(oracle *o) {
  json_error_t error;
  o->root = json_load_file("tests/golden/llama_cpp_v0.5.0.json", 0, &error);
  if (!o->root) fail_msg("%s: %s", error.source, error.text);
  const json_t *model = get(get(o->root, "models"), o->name);
  const json_t *prompts = get(model, "prompts"), *nll = get(model, "nll");
  assert_in_range(json_array_size(prompts), 1, MAX_PROMPTS);
  for (size_t i = 0; i < json_array_size(prompts); i++)
    read_sample(json_array_get(prompts, i), &o->samples[o->n_samples++]);
  size_t n = json_array_size(get(nll, "token_ids"));
  o->nll_tokens = calloc(n, sizeof *o->nll_tokens);
  assert_non_null(o->nll_tokens);
  o->n_nll = read_ids(get(nll, "token_ids"), o->nll_tokens, n);
  o->nll_text = json_string_value(get(o->root, "nll_text"));
  o->nll = json_number_value(get(nll, "f32ref_mean_nll"));
}

static int read_oracles(void **state) {
  (void)state;
  read_oracle(&smollm2);
  read_oracle(&gemma3);
  return 0;
}

static void free_oracle(oracle *o) {
  free(o->nll_tokens);
  json_decref(o->root);
}

static int free_oracles(void **state) {
  (void)state;
  free_oracle(&smollm2);
  free_oracle(&gemma3);
  return 0;
}

/* ---- running the model ---- */

/* One variant in one arithmetic, with the cache that goes with it: f32 with exact, f16 with fast. */
typedef struct engine {
  oracle *oracle;
  char name[64]; /* "avx2 exact" */
  weft_arithmetic arithmetic;
  int is_short; /* goes through a part of the reference alone */
  weft_dtype kv;
  weft_device *device;
  weft_model *model;
  int n_vocab;
} engine;

static void open_engine(engine *e, oracle *o, const char *variant, weft_arithmetic arithmetic) {
  const char *path = o->path_by ? getenv(o->path_by) : NULL;
  if (!path) path = o->path;
  *e = (engine){.oracle = o, .arithmetic = arithmetic, .kv = arithmetic == WEFT_EXACT ? WEFT_F32 : WEFT_F16};
  e->is_short = o->is_short_for_scalar && strcmp(variant, "scalar") == 0;
  snprintf(e->name, sizeof e->name, "%s %s", variant, arithmetic == WEFT_EXACT ? "exact" : "fast");
  setenv("WEFT_CPU", variant, 1);
  if (weft_device_open(&e->device, &(weft_device_options){.kind = WEFT_DEVICE_CPU, .arithmetic = arithmetic}))
    fail_msg("%s", weft_last_error());
  if (weft_model_load(&e->model, e->device, path, NULL)) fail_msg("%s - run `make setup`", weft_last_error());
  e->n_vocab = weft_model_get_info(e->model)->n_vocab;
}

static void close_engine(engine *e) {
  weft_model_free(e->model);
  weft_device_close(e->device);
}

static weft_kv_cache *open_cache(const engine *e, int n_slots) {
  weft_kv_cache *cache = NULL;
  if (weft_kv_cache_create(&cache, e->model, &(weft_kv_options){.n_slots = n_slots, .n_ctx = 512, .dtype = e->kv}))
    fail_msg("%s", weft_last_error());
  return cache;
}

/* Calls `check` with every variant that is to be tested. */
static void each_variant(oracle *o, weft_arithmetic arithmetic, void (*check)(const engine *e)) {
  const char *quick = getenv("WEFT_TEST_QUICK"), *set = getenv("WEFT_CPU"), *chosen = weft_cpu_variant_selected();
  char *before = set ? strdup(set) : NULL;
  int n_run = 0;
  for (int i = 0; weft_cpu_variant_name(i); i++) {
    const char *variant = weft_cpu_variant_name(i);
    if (!weft_cpu_variant_usable(i) || (quick && strcmp(quick, "1") == 0 && strcmp(variant, chosen) != 0)) continue;
    engine e;
    open_engine(&e, o, variant, arithmetic);
    check(&e);
    close_engine(&e);
    n_run++;
  }
  if (before)
    setenv("WEFT_CPU", before, 1);
  else
    unsetenv("WEFT_CPU");
  free(before);
  assert_true(n_run > 0);
}

/* ---- token ids ---- */

static void check_ids(const engine *e, const char *what, const char *text, const int32_t *want, int n_want) {
  int32_t *ids = NULL;
  size_t n = 0;
  if (weft_tokenizer_encode(weft_model_tokenizer(e->model), text, strlen(text), 0, NULL, 0, &ids, &n))
    fail_msg("%s", weft_last_error());
  if (n != (size_t)n_want || memcmp(ids, want, n * sizeof *ids) != 0) fail_msg("the ids of %s differ", what);
  weft_free(ids);
}

static void test_prompt_ids(void **state) {
  oracle *o = *state;
  engine e;
  open_engine(&e, o, weft_cpu_variant_selected(), WEFT_FAST);
  for (int i = 0; i < o->n_samples; i++)
    check_ids(&e, o->samples[i].name, o->samples[i].text, o->samples[i].tokens, o->samples[i].n_prompt);
  check_ids(&e, "the text", o->nll_text, o->nll_tokens, o->n_nll);
  close_engine(&e);
}

/* ---- forced tokens ---- */

/* All samples' tokens, a slot each. */
typedef struct forced_batch {
  int n;
  int32_t token[MAX_PROMPTS * (MAX_PROMPT + N_GENERATED)], position[MAX_PROMPTS * (MAX_PROMPT + N_GENERATED)];
  int32_t slot[MAX_PROMPTS * (MAX_PROMPT + N_GENERATED)];
  uint8_t want_logits[MAX_PROMPTS * (MAX_PROMPT + N_GENERATED)];
} forced_batch;

static void add_sample(forced_batch *b, const sample *s, int slot) {
  for (int i = 0; i < s->n_prompt + N_GENERATED - 1; i++, b->n++) {
    b->token[b->n] = s->tokens[i];
    b->position[b->n] = i;
    b->slot[b->n] = slot;
    b->want_logits[b->n] = i >= s->n_prompt - 1;
  }
}

static int n_samples(const engine *e) { return e->is_short ? 1 : e->oracle->n_samples; }

/* All samples in one pass: by causality that is what forcing them one by one would give.  Returns the logits before each
 * generated token [n_samples,N_GENERATED,V], freed with free. */
static float *force_tokens(const engine *e) {
  forced_batch b = {.n = 0};
  for (int s = 0; s < n_samples(e); s++) add_sample(&b, &e->oracle->samples[s], s);
  float *logits = malloc((size_t)n_samples(e) * N_GENERATED * (size_t)e->n_vocab * sizeof *logits);
  assert_non_null(logits);
  weft_kv_cache *cache = open_cache(e, n_samples(e));
  const weft_batch batch = {b.n, b.token, b.position, b.slot, b.want_logits};
  if (weft_forward(e->model, cache, &batch, logits)) fail_msg("%s: %s", e->name, weft_last_error());
  weft_kv_cache_free(cache);
  return logits;
}

static int argmax(const float *logits, int n) {
  int best = 0;
  for (int i = 1; i < n; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* Compares one sample's argmax where the reference is sure by more than `margin`; returns how often that was. */
static int check_argmax(const engine *e, const sample *o, const float *logits, double margin) {
  int n_checked = 0;
  for (int i = 0; i < N_GENERATED; i++) {
    if (o->margins[i] <= margin) continue;
    int got = argmax(logits + (size_t)i * (size_t)e->n_vocab, e->n_vocab), want = o->tokens[o->n_prompt + i];
    if (got != want)
      fail_msg("%s, prompt %s, token %d: %d, expected %d (by a margin of %g)", e->name, o->name, i, got, want,
               o->margins[i]);
    n_checked++;
  }
  return n_checked;
}

/* The largest difference to the reference's ten best logits after the prompt. */
static double top_difference(const sample *o, const float *logits) {
  double worst = 0;
  for (int i = 0; i < N_TOP; i++) {
    double difference = fabs((double)logits[o->top_ids[i]] - o->top_logits[i]);
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

/* `limit`: of the difference in the ten best logits; infinite for none. */
static void check_forced(const engine *e, double margin, double limit) {
  float *logits = force_tokens(e);
  int n_checked = 0;
  double worst = 0;
  for (int s = 0; s < n_samples(e); s++) {
    const float *rows = logits + (size_t)s * N_GENERATED * (size_t)e->n_vocab;
    double difference = top_difference(&e->oracle->samples[s], rows);
    if (!(difference <= limit))
      fail_msg("%s, prompt %s: a logit differs by %g, allowed %g", e->name, e->oracle->samples[s].name, difference,
               limit);
    worst = fmax(worst, difference);
    n_checked += check_argmax(e, &e->oracle->samples[s], rows, margin);
  }
  print_message("  %s: %d forced tokens right, top-10 logits within %.2g\n", e->name, n_checked, worst);
  assert_true(n_checked > n_samples(e) * N_GENERATED / 3); /* the margins leave enough to check */
  free(logits);
}

static void check_forced_exact(const engine *e) { check_forced(e, 0.1, 1e-2); }

static void test_forced_exact(void **state) { each_variant(*state, WEFT_EXACT, check_forced_exact); }

static void check_forced_fast(const engine *e) { check_forced(e, 1.0, INFINITY); }

static void test_forced_fast(void **state) { each_variant(*state, WEFT_FAST, check_forced_fast); }

/* ---- likelihood of a text ---- */

/* -log softmax(logits)[id] */
static double negative_log_likelihood(const float *logits, int n_vocab, int32_t id) {
  double largest = (double)logits[argmax(logits, n_vocab)], sum = 0;
  for (int i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - largest);
  return largest + log(sum) - (double)logits[id];
}

/* Mean over the text's tokens but the first, a chunk of the text a pass; kv is the cache's dtype.  *short_nll: over
 * NLL_SHORT tokens, which are all of them where the engine is short. */
static double mean_nll(const engine *e, weft_dtype kv, double *short_nll) {
  engine with_kv = *e;
  with_kv.kv = kv;
  weft_kv_cache *cache = open_cache(&with_kv, 1);
  float *logits = malloc((size_t)NLL_CHUNK * (size_t)e->n_vocab * sizeof *logits);
  int32_t position[NLL_CHUNK], slot[NLL_CHUNK] = {0};
  uint8_t want_logits[NLL_CHUNK];
  double sum = 0;
  assert_non_null(logits);
  memset(want_logits, 1, sizeof want_logits);
  int n_predictions = e->is_short ? NLL_SHORT : e->oracle->n_nll - 1;
  for (int start = 0; start < n_predictions; start += NLL_CHUNK) {
    int n = n_predictions - start < NLL_CHUNK ? n_predictions - start : NLL_CHUNK;
    for (int i = 0; i < n; i++) position[i] = start + i;
    const weft_batch batch = {n, e->oracle->nll_tokens + start, position, slot, want_logits};
    if (weft_forward(e->model, cache, &batch, logits)) fail_msg("%s: %s", e->name, weft_last_error());
    for (int i = 0; i < n; i++) {
      sum += negative_log_likelihood(logits + (size_t)i * (size_t)e->n_vocab, e->n_vocab,
                                     e->oracle->nll_tokens[start + i + 1]);
      if (start + i + 1 == NLL_SHORT) *short_nll = sum / NLL_SHORT;
    }
  }
  free(logits);
  weft_kv_cache_free(cache);
  return sum / n_predictions;
}

static void check_nll(const engine *e, double allowed) {
  double short_nll, nll = mean_nll(e, e->kv, &short_nll);
  double *known = &e->oracle->short_nll[e->arithmetic == WEFT_FAST], want = e->is_short ? *known : e->oracle->nll;
  double error = nll / want - 1;
  if (!*known) *known = short_nll;
  print_message("  %s: NLL %.6f, %+.4f %%\n", e->name, nll, error * 100);
  if (!(fabs(error) <= allowed))
    fail_msg("%s: mean NLL %.6f, expected %.6f within %g %%", e->name, nll, want, allowed * 100);
}

static void check_nll_exact(const engine *e) { check_nll(e, 0.001); }

static void test_nll_exact(void **state) { each_variant(*state, WEFT_EXACT, check_nll_exact); }

static void check_nll_fast(const engine *e) { check_nll(e, 0.01); }

static void test_nll_fast(void **state) { each_variant(*state, WEFT_FAST, check_nll_fast); }

/* A cache of 8 bits costs less than a hundredth of the likelihood, beside one of f32. */
static void test_nll_q8_cache(void **state) {
  engine e;
  open_engine(&e, *state, weft_cpu_variant_selected(), WEFT_FAST);
  double short_nll, f32 = mean_nll(&e, WEFT_F32, &short_nll), q8 = mean_nll(&e, WEFT_Q8_0, &short_nll);
  double error = q8 / f32 - 1;
  print_message("  %s: NLL %.6f with a q8_0 cache, %+.4f %%\n", e.name, q8, error * 100);
  if (!(fabs(error) <= 0.01)) fail_msg("%s: mean NLL %.6f with a q8_0 cache, %.6f with f32", e.name, q8, f32);
  close_engine(&e);
}

/* ---- a question ---- */

static void test_question(void **state) {
  engine e;
  weft_session *session = NULL;
  weft_generation answer;
  int32_t *ids = NULL;
  size_t n_ids = 0;
  open_engine(&e, *state, weft_cpu_variant_selected(), WEFT_EXACT);
  const weft_chat_message question = {"user", "What is the capital of France?"};
  if (weft_model_apply_chat(e.model, &question, 1, &ids, &n_ids)) fail_msg("%s", weft_last_error());
  if (weft_session_create(&session, e.model, &(weft_session_options){.n_ctx = 256})) fail_msg("%s", weft_last_error());
  const weft_generate_options options = {.max_tokens = 64};
  if (weft_session_generate(session, ids, n_ids, &options, &answer)) fail_msg("%s", weft_last_error());
  print_message("  %s\n", answer.text);
  if (!strstr(answer.text, "Paris")) fail_msg("the answer is \"%s\"", answer.text);
  assert_int_equal(answer.finish_reason, WEFT_FINISH_STOP);
  weft_generation_clear(&answer);
  weft_session_free(session);
  weft_free(ids);
  close_engine(&e);
}

#define ALL_OF(model)                                                                                                  \
  cmocka_unit_test_prestate(test_prompt_ids, &model), cmocka_unit_test_prestate(test_forced_exact, &model),            \
      cmocka_unit_test_prestate(test_nll_exact, &model), cmocka_unit_test_prestate(test_forced_fast, &model),          \
      cmocka_unit_test_prestate(test_nll_fast, &model)

int main(void) {
  const struct CMUnitTest tests[] = {
      ALL_OF(smollm2),
      cmocka_unit_test_prestate(test_nll_q8_cache, &smollm2),
      cmocka_unit_test_prestate(test_question, &smollm2),
      ALL_OF(gemma3),
  };
  return cmocka_run_group_tests(tests, read_oracles, free_oracles);
}
