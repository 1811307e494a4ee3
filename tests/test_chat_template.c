/* test_chat_template.c - conversations become what the models' own templates make of them.
 *
 * The reference is tests/golden/chat.json, see make_chat_golden.py.  The templates here are ours: they have the marks and
 * the literals that those of the models have, which is all that is read out of one. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/tiny_fixture.h"

#include <jansson.h>
#include <string.h>

#define LLAMA3_MARKS "'<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' + content + '<|eot_id|>'"
#define GEMMA_MARKS "'<start_of_turn>' + role + '\\n' + content + '<end_of_turn>\\n'"

static const struct {
  const char *format, *template;
} templates[] = {
    {"qwen2",
     "{{ '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}"},
    {"llama3", "{{ bos_token }}{{ " LLAMA3_MARKS " }}"},
    {"llama3.1",
     "{{ bos_token }}{% set date_string = \"26 Jul 2024\" %}{{ \"Cutting Knowledge Date: December 2023\\n\" }}"
     "{{ \"Today Date: \" + date_string + \"\\n\\n\" }}{{ " LLAMA3_MARKS " }}"},
    {"llama3.2",
     "{{ bos_token }}{% set date_string = strftime_now(\"%d %b %Y\") %}{% set date_string = \"26 Jul 2024\" %}"
     "{{ 'Cutting Knowledge Date: December 2023\\n' }}{{ " LLAMA3_MARKS " }}"},
    {"gemma2", "{{ bos_token }}{{ raise_exception('System role not supported') }}{{ " GEMMA_MARKS " }}"},
    {"gemma3", "{{ bos_token }}{{ " GEMMA_MARKS " }}"},
};

enum { MAX_MESSAGES = 8 };

static json_t *load_golden(void) {
  json_error_t error;
  json_t *root = json_load_file("tests/golden/chat.json", 0, &error);
  if (!root) fail_msg("%s", error.text);
  return root;
}

/* The messages of a case; they live as long as it does. */
static size_t read_messages(const json_t *list, weft_chat_message messages[MAX_MESSAGES]) {
  size_t i;
  json_t *message;
  assert_in_range(json_array_size(list), 1, MAX_MESSAGES);
  json_array_foreach(list, i, message) {
    messages[i].role = json_string_value(json_object_get(message, "role"));
    messages[i].content = json_string_value(json_object_get(message, "content"));
  }
  return json_array_size(list);
}

/* The text of what apply_chat gives. */
static void assert_text(const fixture *f, const weft_chat_message *messages, size_t n, const char *expected) {
  int32_t *ids = NULL;
  size_t n_ids = 0, n_bytes = 0;
  char *text = NULL;
  if (weft_model_apply_chat(f->model, messages, n, &ids, &n_ids)) fail_msg("%s", weft_last_error());
  assert_int_equal(weft_tokenizer_decode(weft_model_tokenizer(f->model), ids, n_ids, 0, &text, &n_bytes), WEFT_OK);
  assert_string_equal(text, expected);
  weft_free(text);
  weft_free(ids);
}

/* A case's text is null where the template refuses the conversation. */
static void check_case(const fixture *f, const json_t *item) {
  weft_chat_message messages[MAX_MESSAGES];
  size_t n = read_messages(json_object_get(item, "messages"), messages), n_ids;
  const char *text = json_string_value(json_object_get(item, "text"));
  int32_t *ids = NULL;
  if (text) {
    assert_text(f, messages, n, text);
    return;
  }
  assert_int_equal(weft_model_apply_chat(f->model, messages, n, &ids, &n_ids), WEFT_EINVAL);
  assert_null(ids);
  assert_message("chat: ");
}

/* The beginning-of-text token is there once, whether the tokenizer adds it or only the template does. */
static void check_golden(test_device *d) {
  json_t *root = load_golden(), *item;
  size_t n_seen = 0;
  for (size_t i = 0; i < 2 * WEFT_COUNT(templates); i++) {
    const char *format = templates[i / 2].format;
    int adds_bos = i % 2 && strcmp(format, "qwen2") != 0;
    fixture f = fixture_load(d, &(tiny_options){.chat_template = templates[i / 2].template, .adds_bos = adds_bos});
    size_t k;
    json_array_foreach(json_object_get(root, "cases"), k, item) {
      if (strcmp(json_string_value(json_object_get(item, "format")), format) != 0) continue;
      check_case(&f, item);
      n_seen++;
    }
    fixture_unload(&f);
  }
  assert_int_equal(n_seen, 2 * json_array_size(json_object_get(root, "cases")));
  json_decref(root);
}

static void test_golden(void **state) {
  (void)state;
  on_default_device(check_golden);
}

/* What is typed is text, whatever marks it spells and of whichever format. */
static void check_typed_marks(test_device *d) {
  static const char *const marks[] = {"<s>",        "</s>",         "<|start_header_id|>", "<|end_header_id|>",
                                      "<|eot_id|>", "<|im_start|>", "<start_of_turn>",     "<end_of_turn>"};
  for (size_t i = 0; i < WEFT_COUNT(templates); i++) {
    fixture f = fixture_load(d, &(tiny_options){.chat_template = templates[i].template});
    for (size_t k = 0; k < WEFT_COUNT(marks); k++) {
      const weft_chat_message typed = {"user", marks[k]}, plain = {"user", "x"};
      int32_t *ids = NULL, *plain_ids = NULL;
      size_t n_ids, n_plain, n_special = 0, n_plain_special = 0;
      assert_int_equal(weft_model_apply_chat(f.model, &typed, 1, &ids, &n_ids), WEFT_OK);
      assert_int_equal(weft_model_apply_chat(f.model, &plain, 1, &plain_ids, &n_plain), WEFT_OK);
      const weft_tokenizer *t = weft_model_tokenizer(f.model);
      for (size_t j = 0; j < n_ids; j++) n_special += (size_t)weft_tokenizer_is_special(t, ids[j]);
      for (size_t j = 0; j < n_plain; j++) n_plain_special += (size_t)weft_tokenizer_is_special(t, plain_ids[j]);
      assert_int_equal(n_special, n_plain_special);
      assert_true(n_special >= 3);
      weft_free(ids);
      weft_free(plain_ids);
    }
    fixture_unload(&f);
  }
}

static void test_typed_marks(void **state) {
  (void)state;
  on_default_device(check_typed_marks);
}

/* The literal behind a system message in Gemma's templates, and a Llama 3 template with a date but no day. */
static void check_literals(test_device *d) {
  const weft_chat_message turns[] = {{"system", "Be brief."}, {"user", "1?"}};
  fixture line = fixture_load(
      d, &(tiny_options){.chat_template = "{% set first_user_prefix = messages[0]['content'] + '\\n' %}" GEMMA_MARKS});
  assert_text(&line, turns, 2, "<start_of_turn>user\nBe brief.\n1?<end_of_turn>\n<start_of_turn>model\n");
  fixture_unload(&line);
  fixture day = fixture_load(
      d, &(tiny_options){.chat_template = "{{ 'Cutting Knowledge Date: never\\n' }}{{ " LLAMA3_MARKS " }}"});
  assert_text(&day, turns, 2,
              "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: never\nToday Date: \n\nBe brief."
              "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n1?<|eot_id|>"
              "<|start_header_id|>assistant<|end_header_id|>\n\n");
  fixture_unload(&day);
}

static void test_literals(void **state) {
  (void)state;
  on_default_device(check_literals);
}

/* Marks alone do not make a format: each needs all of its own. */
static void check_unknown(test_device *d) {
  static const char *const unknown[] = {"", "{{ content }}", "<|start_header_id|><|end_header_id|>", "<start_of_turn>",
                                        "[INST] <|im_start|> [/INST]"};
  const weft_chat_message hello = {"user", "Hello"};
  for (size_t i = 0; i < WEFT_COUNT(unknown); i++) {
    fixture f = fixture_load(d, &(tiny_options){.chat_template = unknown[i]});
    int32_t *ids = NULL;
    size_t n_ids;
    assert_int_equal(weft_model_apply_chat(f.model, &hello, 1, &ids, &n_ids), WEFT_EUNSUPPORTED);
    assert_message("--raw");
    if (*unknown[i]) assert_message("ChatML, Llama 3, Gemma");
    assert_null(ids);
    fixture_unload(&f);
  }
}

static void test_unknown(void **state) {
  (void)state;
  on_default_device(check_unknown);
}

/* A reply ends at the mark that its format has for that. */
static void check_ends(test_device *d) {
  static const char *const ends[] = {"<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>"};
  fixture f = fixture_load(d, NULL);
  const weft_tokenizer *t = weft_model_tokenizer(f.model);
  for (size_t i = 0; i < WEFT_COUNT(ends); i++) assert_true(weft_tokenizer_is_end(t, weft_tokenizer_find(t, ends[i])));
  assert_false(weft_tokenizer_is_end(t, weft_tokenizer_find(t, "<start_of_turn>")));
  fixture_unload(&f);
}

static void test_ends(void **state) {
  (void)state;
  on_default_device(check_ends);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden),  cmocka_unit_test(test_typed_marks), cmocka_unit_test(test_literals),
      cmocka_unit_test(test_unknown), cmocka_unit_test(test_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
