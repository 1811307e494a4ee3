/* test_jsonl.c - weft run --jsonl: a prompt a line in, a result a line out; what is wrong with a line is told in its place
 * and stops nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/folder.h"
#include "support/weft_program.h"

#include "base/base.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *model(void) {
  const char *path = getenv("WEFT_TEST_MODEL");
  return path ? path : "models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

/* Runs the lines through standard input, greedily and shortly. */
#define JSONL(text, ...)                                                                                               \
  WEFT((&(run_options){.input = text, .n_input = strlen(text)}), "run", model(), "--jsonl", "--temperature", "0",      \
       "-n", "6", "--ctx", "512", __VA_ARGS__)

/* The objects of a run's lines, which all are JSON; ends the run. */
static json_t *read_lines(run_result r, int status) {
  json_t *list = json_array();
  assert_status(&r, status);
  for (char *line = r.out; *line; line = strchr(line, '\n') + 1) {
    json_t *object = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    if (!json_is_object(object)) fail_msg("not an object: %s", line);
    assert_int_equal(json_array_append_new(list, object), 0);
  }
  assert_string_equal(r.err, "");
  run_clear(&r);
  return list;
}

/* What `weft run` alone says to a prompt. */
static char *alone(const char *prompt, const char *option) {
  json_t *root = take_json(
      WEFT(NULL, "run", model(), "-p", prompt, "--temperature", "0", "-n", "6", "--ctx", "512", "--json", option), 0);
  char *text = strdup(get_text(root, "text"));
  json_decref(root);
  return text;
}

static void assert_text(const json_t *lines, size_t i, const char *prompt, const char *option) {
  char *expected = alone(prompt, option);
  assert_string_equal(get_text(json_array_get(lines, i), "text"), expected);
  free(expected);
}

/* In order, each as if it were run alone, whatever came before; blank lines are only counted. */
static void test_results(void **state) {
  (void)state;
  json_t *lines =
      read_lines(JSONL("\"What is the capital of France?\"\n\n"
                       "{\"prompt\": \"Name a color.\", \"id\": \"second\"}\n"
                       "{\"messages\": [{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]}\n"
                       "{\"prompt\": \"1 2 3 4\", \"raw\": true, \"max_tokens\": 3, \"id\": 4}",
                       "--quiet"),
                 0);
  assert_int_equal((int)json_array_size(lines), 4);
  static const int numbers[] = {1, 3, 4, 5};
  for (size_t i = 0; i < 4; i++) {
    const json_t *line = json_array_get(lines, i);
    assert_int_equal((int)get_number(line, "line"), numbers[i]);
    assert_true(json_array_size(get(line, "prompt_tokens")) > 0);
    assert_true(get_number(line, "prefill_ms") > 0);
    get_text(line, "finish_reason");
  }
  assert_text(lines, 0, "What is the capital of France?", "--quiet");
  assert_text(lines, 1, "Name a color.", "--quiet");
  assert_string_equal(get_text(json_array_get(lines, 1), "id"), "second");
  assert_string_equal(get_text(json_array_get(lines, 2), "text"), get_text(json_array_get(lines, 0), "text"));
  assert_int_equal((int)json_array_size(get(json_array_get(lines, 3), "tokens")), 3);
  assert_true(get_number(json_array_get(lines, 3), "id") == 4);
  json_decref(lines);
}

/* The command line's are those of lines that have none; a line's do not stay for the next. */
static void test_options(void **state) {
  (void)state;
  json_t *lines = read_lines(
      JSONL("\"Tell me a fable.\"\n"
            "{\"prompt\": \"Tell me a fable.\", \"temperature\": 2, \"top_k\": 0, \"seed\": 5}\n"
            "{\"prompt\": \"Tell me a fable.\", \"temperature\": 2.0, \"top_k\": null, \"top-k\": 0, \"seed\": 5}\n"
            "{\"prompt\": \"1 2 3 4 5 6 7\", \"raw\": true, \"stop\": [\"never\", \"9\"], \"max_tokens\": 9}\n"
            "{\"prompt\": \"Tell me a fable.\", \"system\": \"Be brief.\"}\n"
            "\"Tell me a fable.\"\n",
            "--exact"),
      0);
  const char *texts[6];
  for (size_t i = 0; i < 6; i++) texts[i] = get_text(json_array_get(lines, i), "text");
  assert_string_equal(texts[0], texts[5]);
  assert_string_equal(texts[1], texts[2]);
  assert_string_not_equal(texts[0], texts[1]);
  assert_string_equal(texts[3], " 8 ");
  assert_string_equal(get_text(json_array_get(lines, 3), "finish_reason"), "stop");
  assert_int_equal((int)get_number(json_array_get(lines, 1), "seed"), 5);
  assert_true(json_array_size(get(json_array_get(lines, 4), "prompt_tokens")) !=
              json_array_size(get(json_array_get(lines, 0), "prompt_tokens")));
  json_decref(lines);
}

/* Each is answered by what is wrong with it; the good line among them by its text; the status says that some failed. */
static void test_bad_lines(void **state) {
  (void)state;
  static const struct {
    const char *line, *says;
  } bad[] = {
      {"{\"prompt\": ", "it is not JSON"},
      {"\"a\" \"b\"", "it is not JSON"},
      {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "it is not JSON: duplicate"},
      {"[\"a\"]", "it is neither a text nor an object"},
      {"7", "it is neither a text nor an object"},
      {"{}", "neither prompt nor messages"},
      {"{\"prompt\": \"a\", \"messages\": []}", "both prompt and messages"},
      {"\"\"", "it is empty"},
      {"\"a\\u0000b\"", "it is not JSON"},
      {"{\"prompt\": 5}", "\"prompt\": is no text"},
      {"{\"messages\": []}", "\"messages\": is no list"},
      {"{\"messages\": [{\"role\": \"user\"}]}", "each needs role and content"},
      {"{\"messages\": [5]}", "each needs role and content"},
      {"{\"prompt\": \"a\", \"temprature\": 1}", "the nearest option is \"temperature\""},
      {"{\"prompt\": \"a\", \"temperature\": \"warm\"}", "--temperature: 'warm' is not a number"},
      {"{\"prompt\": \"a\", \"temperature\": -1}", "--temperature: '-1' is not a number"},
      {"{\"prompt\": \"a\", \"temperature\": [1]}", "\"temperature\": is neither a text nor a number"},
      {"{\"prompt\": \"a\", \"top_p\": 1.5}", "--top-p: '1.5'"},
      {"{\"prompt\": \"a\", \"max_tokens\": 2.5}", "--max-tokens: '2.5'"},
      {"{\"prompt\": \"a\", \"raw\": 1}", "\"raw\": is neither true nor false"},
      {"{\"prompt\": \"a\", \"stop\": 5}", "\"stop\": is neither a text nor a list"},
      {"{\"prompt\": \"a\", \"stop\": [\"\"]}", "--stop: it is empty"},
      {"{\"prompt\": \"a\", \"logit_bias\": [\"x\"]}", "--logit-bias: 'x'"},
      {"{\"prompt\": \"a\", \"session\": \"f\"}", "\"session\": is the same for all lines"},
      {"{\"prompt\": \"a\", \"ctx\": 64}", "\"ctx\": is the same for all lines"},
      {"{\"prompt\": \"a\", \"raw\": true, \"system\": \"b\"}", "\"system\": raw has no place for it"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"raw\": true}", "\"messages\": raw has no place"},
  };
  weft__bytes input = {0};
  for (size_t i = 0; i < WEFT_COUNT(bad); i++)
    assert_int_equal(weft__bytes_printf(&input, "%s\n", bad[i].line), WEFT_OK);
  assert_int_equal(weft__bytes_printf(&input, "\"hi\"\n\xff\n"), WEFT_OK);
  json_t *lines = read_lines(JSONL(input.data, "--quiet"), 1);
  assert_int_equal(json_array_size(lines), WEFT_COUNT(bad) + 2);
  for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
    const json_t *line = json_array_get(lines, i);
    if (!strstr(get_text(line, "error"), bad[i].says)) fail_msg("%s: %s", bad[i].line, get_text(line, "error"));
    assert_null(json_object_get(line, "text"));
  }
  get_text(json_array_get(lines, WEFT_COUNT(bad)), "text");
  assert_non_null(strstr(get_text(json_array_get(lines, WEFT_COUNT(bad) + 1), "error"), "not JSON"));
  json_decref(lines);
  weft__bytes_clear(&input);
}

/* One that does not fit leaves the session as it was for the next. */
static void test_long_line(void **state) {
  (void)state;
  weft__bytes input = {0};
  weft__bytes_printf(&input, "\"");
  for (int i = 0; i < 600; i++) weft__bytes_printf(&input, " word");
  weft__bytes_printf(&input, "\"\n\"Name a color.\"\n");
  json_t *lines = read_lines(JSONL(input.data, "--quiet"), 1);
  assert_non_null(strstr(get_text(json_array_get(lines, 0), "error"), "512"));
  assert_text(lines, 1, "Name a color.", "--quiet");
  json_decref(lines);
  weft__bytes_clear(&input);
}

/* From a file; an empty one has no results; what cannot be read is an error of the whole. */
static void test_files(void **state) {
  (void)state;
  const char *file = write_text("prompts.jsonl", "\"hi\"\n\"ho\"\n");
  json_t *lines = read_lines(WEFT(NULL, "run", model(), "--jsonl", "--prompt-file", file, "-n", "1"), 0);
  assert_int_equal((int)json_array_size(lines), 2);
  json_decref(lines);
  lines = read_lines(WEFT(NULL, "run", model(), "--jsonl"), 0);
  assert_int_equal((int)json_array_size(lines), 0);
  json_decref(lines);
  assert_error(WEFT(NULL, "run", model(), "--jsonl", "--prompt-file", "/nonexistent/p"), 1,
               "/nonexistent/p: No such file");
  assert_error(WEFT(NULL, "run", model(), "--jsonl", "--prompt-file", folder_path()), 1, "Is a directory");
}

static void test_wrong_usage(void **state) {
  (void)state;
  assert_error(WEFT(NULL, "run", "m", "--jsonl", "hi"), 2, "--jsonl: the prompts come from");
  assert_error(WEFT(NULL, "run", "m", "--jsonl", "-p", "hi"), 2, "--jsonl: the prompts come from");
  assert_error(WEFT(NULL, "run", "m", "--jsonl", "--force-tokens", "1"), 2, "--jsonl: ");
  assert_error(WEFT(NULL, "run", "m", "--jsonl", "--session", "f"), 2, "--jsonl: ");
  assert_error(WEFT(NULL, "run", "m", "--jsonl", "--raw", "-s", "x"), 2, "--system: --raw has no place for it");
}

/* A reader that leaves ends the run quietly. */
static void test_closed_pipe(void **state) {
  (void)state;
  const char *text = "\"hi\"\n\"ho\"\n\"hu\"\n";
  run_result r = WEFT((&(run_options){.input = text, .n_input = strlen(text), .out = RUN_CLOSED_PIPE}), "run", model(),
                      "--jsonl", "-n", "4");
  assert_status(&r, 141);
  assert_string_equal(r.err, "");
  run_clear(&r);
}

/* The line that is being answered is completed: the second, unless the interrupt that follows the first result comes before
 * it is read. */
static void test_interrupt(void **state) {
  (void)state;
  const char *text = "{\"prompt\": \"Hi\", \"max_tokens\": 1}\n"
                     "{\"prompt\": \"A long story.\", \"ignore_eos\": true, \"max_tokens\": 1000000}\n\"ho\"\n";
  json_t *lines = read_lines(WEFT((&(run_options){.input = text, .n_input = strlen(text), .interrupts = 1}), "run",
                                  model(), "--jsonl", "--ctx", "8192"),
                             130);
  assert_in_range(json_array_size(lines), 1, 2);
  if (json_array_size(lines) == 2) assert_string_equal(get_text(json_array_get(lines, 1), "finish_reason"), "canceled");
  json_decref(lines);
}

/* One that comes while a line is waited for ends the wait.  --verbose speaks once the model is loaded. */
static void test_interrupted_wait(void **state) {
  (void)state;
  run_result r = WEFT((&(run_options){.in = RUN_OPEN_STDIN, .interrupts = 1}), "run", model(), "--jsonl", "--verbose");
  assert_status(&r, 130);
  assert_string_equal(r.out, "");
  run_clear(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_results),     cmocka_unit_test(test_options),   cmocka_unit_test(test_bad_lines),
      cmocka_unit_test(test_long_line),   cmocka_unit_test(test_files),     cmocka_unit_test(test_wrong_usage),
      cmocka_unit_test(test_closed_pipe), cmocka_unit_test(test_interrupt), cmocka_unit_test(test_interrupted_wait),
  };
  return cmocka_run_group_tests(tests, folder_create, folder_remove);
}
