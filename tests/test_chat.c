/* test_chat.c - weft chat in a real terminal and in pipes, on small models whose replies are certain.
 *
 * Each test has a folder of its own for the history and for what is saved. */
#include "support/terminal.h"
#include "support/tiny_fixture.h"
#include "support/weft_program.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define ZEBRA "\xF0\x9F\xA6\x93" /* a character of four bytes and two columns */
#define HAO "\xE5\xA5\xBD"       /* of three bytes and two columns */
#define REPLY "Yes," HAO " " ZEBRA "!"
#define WAITING ">>>"

/* A model that answers everything with REPLY, one that goes on for ever, and a place for files. */
typedef struct place {
  char scripted[TINY_PATH_BYTES], endless[TINY_PATH_BYTES], folder[64];
} place;

static place at;

static void save_model(const tiny_options *options, char *path) {
  tiny_model tiny = tiny_model_make(options);
  tiny_model_save(&tiny, path);
  tiny_model_clear(&tiny);
}

/* The reply follows the line break that ends a ChatML prompt. */
static int set_up(void **state) {
  static const char spoken[] = "\n" REPLY;
  int32_t script[32];
  size_t n = 0;
  (void)state;
  for (const char *c = spoken; *c; c++) script[n++] = (unsigned char)*c;
  script[n++] = tiny_model_find("</s>");
  save_model(&(tiny_options){.script = script, .n_script = n, .n_ctx = 8192}, at.scripted);
  save_model(&(tiny_options){.n_ctx = 200000}, at.endless);
  snprintf(at.folder, sizeof at.folder, "/tmp/weft-chat-XXXXXX");
  return mkdtemp(at.folder) ? 0 : -1;
}

static int tear_down(void **state) {
  const char *const argv[] = {"rm", "-rf", at.folder, NULL};
  run_result r = run_program(argv, NULL);
  (void)state;
  run_clear(&r);
  unlink(at.scripted);
  unlink(at.endless);
  return 0;
}

/* A new folder for each test: a history that another test wrote would be part of it. */
static int new_home(void **state) {
  char command[256];
  snprintf(command, sizeof command, "rm -rf %s/home && mkdir -p %s/home", at.folder, at.folder);
  run_result r = run_program((const char *const[]){"sh", "-c", command, NULL}, NULL);
  int status = r.status;
  (void)state;
  run_clear(&r);
  return status;
}

static const char *program(void) {
  const char *path = getenv("WEFT_TEST_PROGRAM");
  return path ? path : "build/weft";
}

/* Starts a chat at the prompt. */
static terminal open_chat(const char *model, const char *options) {
  char command[1024];
  snprintf(command, sizeof command, "-u NO_COLOR HOME=%s/home XDG_STATE_HOME= %s chat %s --threads 1 %s", at.folder,
           program(), model, options);
  terminal t = terminal_open(70, 24, command);
  terminal_expect_last(&t, WAITING);
  return t;
}

static void say(const terminal *t, const char *text) {
  terminal_type(t, text);
  terminal_key(t, "Enter");
}

/* A file in the test's folder. */
static const char *file_at(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", at.folder, name);
  return path;
}

/* The messages of a conversation that was saved. */
static json_t *load_messages(const char *name) {
  json_error_t error;
  json_t *root = json_load_file(file_at(name), 0, &error);
  if (!root) fail_msg("%s: %s", name, error.text);
  json_t *messages = json_incref(get(root, "messages"));
  json_decref(root);
  return messages;
}

static void expect_message(const json_t *messages, size_t index, const char *role, const char *content) {
  const json_t *message = json_array_get(messages, index);
  assert_non_null(message);
  assert_string_equal(get_text(message, "role"), role);
  assert_string_equal(get_text(message, "content"), content);
}

/* Saves the conversation to a new file and reads it. */
static json_t *save_and_load(const terminal *t) {
  static int n_saved;
  char name[32], line[192];
  snprintf(name, sizeof name, "saved%d", n_saved++);
  snprintf(line, sizeof line, "/save %s", file_at(name));
  say(t, line);
  snprintf(line, sizeof line, "%s: ", name);
  terminal_expect(t, line);
  terminal_expect_last(t, WAITING);
  return load_messages(name);
}

/* ---- talking ---- */

static void test_turns(void **state) {
  (void)state;
  terminal t = open_chat(at.scripted, "-s 'Be brief.'");
  terminal_expect(&t, "Tiny: /help lists the commands");
  say(&t, "Hello?");
  terminal_expect(&t, REPLY);
  terminal_expect(&t, "[prompt ");
  terminal_expect_last(&t, WAITING);
  say(&t, "Really?");
  terminal_expect_times(&t, REPLY, 2);
  terminal_expect_last(&t, WAITING);
  json_t *messages = save_and_load(&t);
  assert_int_equal(json_array_size(messages), 5);
  expect_message(messages, 0, "system", "Be brief.");
  expect_message(messages, 1, "user", "Hello?");
  expect_message(messages, 2, "assistant", REPLY);
  expect_message(messages, 3, "user", "Really?");
  expect_message(messages, 4, "assistant", REPLY);
  json_decref(messages);
  say(&t, "/quit");
  terminal_expect(&t, "status 0");
  terminal_close(&t);
}

static void test_ways_out(void **state) {
  static const struct { const char *key, *status; } ways[] = {{"C-d", "status 0"}, {"C-c", "status 130"}};
  (void)state;
  for (size_t i = 0; i < WEFT_COUNT(ways); i++) {
    terminal t = open_chat(at.scripted, "");
    say(&t, "Hello?");
    terminal_expect(&t, REPLY);
    terminal_expect_last(&t, WAITING);
    terminal_key(&t, ways[i].key);
    terminal_expect_last(&t, ways[i].status);
    terminal_close(&t);
  }
}

/* The first Ctrl-C stops the reply, and what was said of it stays; the next one, at the prompt, leaves. */
static void test_interrupted_reply(void **state) {
  (void)state;
  terminal t = open_chat(at.endless, "--ctx 150000 -n 140000 --ignore-eos --logit-bias 122:100");
  say(&t, "Go on.");
  terminal_expect(&t, "zzzzzzzzzz");
  terminal_key(&t, "C-c");
  terminal_expect_last(&t, WAITING);
  json_t *messages = save_and_load(&t);
  assert_int_equal(json_array_size(messages), 2);
  assert_memory_equal(get_text(json_array_get(messages, 1), "content"), "zzzzzzzzzz", 10);
  json_decref(messages);
  say(&t, "More.");
  terminal_expect_times(&t, "zzzzzzzzzz", 2);
  terminal_key(&t, "C-c");
  terminal_expect_last(&t, WAITING);
  terminal_key(&t, "C-c");
  terminal_expect(&t, "status 130");
  terminal_close(&t);
}

/* ---- editing ---- */

static void test_history(void **state) {
  (void)state;
  terminal t = open_chat(at.scripted, "");
  say(&t, "first apple");
  terminal_expect_times(&t, REPLY, 1);
  terminal_expect_last(&t, WAITING);
  say(&t, "second pear");
  terminal_expect_times(&t, REPLY, 2);
  terminal_expect_last(&t, WAITING);
  terminal_key(&t, "Up");
  terminal_expect_last(&t, WAITING " second pear");
  terminal_key(&t, "Up");
  terminal_expect_last(&t, WAITING " first apple");
  terminal_key(&t, "Down");
  terminal_expect_last(&t, WAITING " second pear");
  /* Edited in the middle, then sent. */
  terminal_key(&t, "Home");
  terminal_type(&t, "A ");
  terminal_key(&t, "End");
  terminal_type(&t, "s");
  terminal_expect_last(&t, WAITING " A second pears");
  terminal_key(&t, "C-w");
  terminal_type(&t, "fig");
  terminal_expect_last(&t, WAITING " A second fig");
  terminal_key(&t, "Enter");
  terminal_expect_times(&t, REPLY, 3);
  terminal_expect_last(&t, WAITING);
  terminal_key(&t, "C-d");
  terminal_expect(&t, "status 0");
  terminal_close(&t);
  /* The next run has it still. */
  t = open_chat(at.scripted, "");
  terminal_key(&t, "Up");
  terminal_expect_last(&t, WAITING " A second fig");
  terminal_key(&t, "C-u");
  terminal_expect_last(&t, WAITING);
  terminal_key(&t, "C-r");
  terminal_type(&t, "app");
  terminal_expect(&t, "bck:app");
  terminal_key(&t, "Enter");
  terminal_expect(&t, REPLY);
  json_t *messages = save_and_load(&t);
  expect_message(messages, 0, "user", "first apple");
  json_decref(messages);
  terminal_close(&t);
}

/* Characters of two columns: the cursor moves over them whole, and one key deletes one. */
static void test_wide_characters(void **state) {
  (void)state;
  terminal t = open_chat(at.scripted, "");
  terminal_type(&t, HAO ZEBRA HAO "x");
  terminal_expect_last(&t, WAITING " " HAO ZEBRA HAO "x");
  terminal_key(&t, "Left");
  terminal_key(&t, "Left");
  terminal_key(&t, "BSpace");
  terminal_type(&t, "y");
  terminal_expect_last(&t, WAITING " " HAO "y" HAO "x");
  terminal_key(&t, "End");
  terminal_type(&t, "e\xCC\x81"); /* an accent of its own */
  terminal_key(&t, "Enter");
  terminal_expect(&t, REPLY);
  json_t *messages = save_and_load(&t);
  expect_message(messages, 0, "user", HAO "y" HAO "xe\xCC\x81");
  json_decref(messages);
  terminal_close(&t);
}

static void test_several_lines(void **state) {
  (void)state;
  terminal t = open_chat(at.scripted, "");
  say(&t, "one\\");
  terminal_expect_last(&t, "...");
  say(&t, "two");
  terminal_expect_times(&t, REPLY, 1);
  terminal_expect_last(&t, WAITING);
  say(&t, "\"\"\"three");
  terminal_expect_last(&t, "...");
  say(&t, "");
  say(&t, "/four\"\"\"");
  terminal_expect_times(&t, REPLY, 2);
  terminal_expect_last(&t, WAITING);
  say(&t, "//slash");
  terminal_expect_times(&t, REPLY, 3);
  terminal_expect_last(&t, WAITING);
  /* A pasted text is one message, and sent when the user says so. */
  terminal_paste(&t, "five\nsix\nseven " HAO);
  terminal_expect_last(&t, "seven " HAO);
  terminal_type(&t, "!");
  terminal_key(&t, "Enter");
  terminal_expect_times(&t, REPLY, 4);
  terminal_expect_last(&t, WAITING);
  json_t *messages = save_and_load(&t);
  assert_int_equal(json_array_size(messages), 8);
  expect_message(messages, 0, "user", "one\ntwo");
  expect_message(messages, 2, "user", "three\n\n/four");
  expect_message(messages, 4, "user", "/slash");
  expect_message(messages, 6, "user", "five\nsix\nseven " HAO "!");
  json_decref(messages);
  terminal_close(&t);
}

/* More than a terminal's own line holds (4096), and more than the screen shows. */
static void test_long_line(void **state) {
  char text[5001];
  (void)state;
  for (size_t i = 0; i < sizeof text - 1; i++) text[i] = (char)('a' + i % 26);
  text[sizeof text - 1] = 0;
  terminal t = open_chat(at.scripted, "--ctx 8192");
  terminal_paste(&t, text);
  terminal_type(&t, "END");
  terminal_expect(&t, "END");
  terminal_key(&t, "Enter");
  terminal_expect(&t, REPLY);
  json_t *messages = save_and_load(&t);
  const char *content = get_text(json_array_get(messages, 0), "content");
  assert_int_equal(strlen(content), sizeof text - 1 + 3);
  assert_memory_equal(content, text, sizeof text - 1);
  json_decref(messages);
  terminal_close(&t);
}

/* In the middle of a reply and in the middle of a line, which then goes on to be edited. */
static void test_resize(void **state) {
  static const char tens[] = "zzzzzzzzzz";
  (void)state;
  terminal t = open_chat(at.endless, "--ctx 150000 -n 140000 --ignore-eos --logit-bias 122:100");
  say(&t, "Go on.");
  terminal_expect(&t, tens);
  terminal_resize(&t, 40, 12);
  terminal_expect_times(&t, tens, terminal_count(&t, tens) + 100);
  terminal_key(&t, "C-c");
  terminal_expect_last(&t, WAITING);
  terminal_type(&t, "a line that is longer than forty columns are");
  terminal_expect_last(&t, WAITING " a line that is longer than forty columns are");
  terminal_resize(&t, 90, 30);
  terminal_type(&t, " wide");
  terminal_expect(&t, "are wide");
  terminal_key(&t, "Home");
  terminal_type(&t,
                "It is "); /* what libedit draws of it on a screen that grew is its own affair: the message counts */
  int n_before = terminal_count(&t, tens);
  terminal_key(&t, "Enter");
  terminal_expect_times(&t, tens, n_before + 20);
  terminal_key(&t, "C-c");
  terminal_expect_last(&t, WAITING);
  json_t *messages = save_and_load(&t);
  expect_message(messages, 2, "user", "It is a line that is longer than forty columns are wide");
  json_decref(messages);
  terminal_key(&t, "C-d");
  terminal_expect(&t, "status 0");
  terminal_close(&t);
}

/* ---- commands ---- */

static void test_commands(void **state) {
  char line[192];
  (void)state;
  terminal t = open_chat(at.scripted, "");
  say(&t, "/help");
  static const char *const names[] = {"/help", "/system", "/clear", "/save", "/load", "/regen", "/stats", "/quit"};
  for (size_t i = 0; i < WEFT_COUNT(names); i++) {
    snprintf(line, sizeof line, "  %s ", names[i]);
    terminal_expect(&t, line);
  }
  say(&t, "/stat");
  terminal_expect(&t, "weft: /stat: no such command (the nearest is /stats;");
  say(&t, "/sace x");
  terminal_expect(&t, "weft: /sace: no such command (the nearest is /save;");
  say(&t, "/regen");
  terminal_expect(&t, "weft: /regen: there is no reply yet");
  say(&t, "/save");
  terminal_expect(&t, "weft: /save: needs a file");
  say(&t, "/load /tmp/weft-no-such-chat");
  terminal_expect(&t, "weft: /tmp/weft-no-such-chat: No such file or directory");
  say(&t, "/system");
  terminal_expect(&t, "There is no system message");
  say(&t, "/system Be kind.");
  say(&t, "/system");
  terminal_expect_times(&t, "Be kind.", 2);
  say(&t, "Hello?");
  terminal_expect_times(&t, REPLY, 1);
  terminal_expect_last(&t, WAITING);
  say(&t, "/regen");
  terminal_expect_times(&t, REPLY, 2);
  terminal_expect_last(&t, WAITING);
  say(&t, "/stats");
  terminal_expect(&t, "4096 tokens, 2 messages, 0 of them left out");
  snprintf(line, sizeof line, "/save %s", file_at("kept"));
  say(&t, line);
  terminal_expect(&t, "kept: 2 messages saved");
  say(&t, "/clear");
  say(&t, "/stats");
  terminal_expect(&t, "context: 0 of 4096 tokens, 0 messages");
  snprintf(line, sizeof line, "/load %s", file_at("kept"));
  say(&t, line);
  terminal_expect(&t, "kept: 2 messages loaded");
  json_t *messages = save_and_load(&t);
  assert_int_equal(json_array_size(messages), 3);
  expect_message(messages, 0, "system", "Be kind.");
  expect_message(messages, 1, "user", "Hello?");
  expect_message(messages, 2, "assistant", REPLY);
  json_decref(messages);
  terminal_close(&t);
}

/* Files that /load does not take leave the conversation as it was. */
static void test_bad_conversations(void **state) {
  static const char *const cases[][2] = {
      {"", "is no JSON"},
      {"{\"messages\": [", "is no JSON"},
      {"{}", "has no \"messages\""},
      {"5", "has no \"messages\""},
      {"[5]", "message 1 has no role"},
      {"[{\"role\": \"user\"}]", "message 1 has no role or no content"},
      {"[{\"role\": \"user\", \"content\": 5}]", "message 1 has no role or no content"},
      {"[{\"role\": \"user\", \"content\": \"a\\u0000b\"}]", "message 1 holds a NUL"},
      {"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"system\", \"content\": \"b\"}]",
       "message 2 is a system"},
      {"[{\"role\": \"tool\", \"content\": \"a\"}]", "message 1 has a role that is neither"},
  };
  (void)state;
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char input[512];
    FILE *file = fopen(file_at("bad"), "w");
    assert_non_null(file);
    fputs(cases[i][0], file);
    fclose(file);
    int n = snprintf(input, sizeof input, "Hello?\n/load %s\n/stats\n", file_at("bad"));
    run_result r = WEFT((&(run_options){.input = input, .n_input = (size_t)n}), "chat", at.scripted);
    assert_status(&r, 1);
    if (!strstr(r.err, cases[i][1])) fail_msg("\"%s\" does not say \"%s\"", r.err, cases[i][1]);
    assert_non_null(strstr(r.err, "2 messages, 0 of them left out"));
    run_clear(&r);
  }
}

/* ---- looks ---- */

static void test_dim_line(void **state) {
  (void)state;
  terminal t = open_chat(at.scripted, "");
  say(&t, "Hello?");
  terminal_expect(&t, "[prompt");
  terminal_expect_last(&t, WAITING);
  char *screen = terminal_text(&t, 1);
  assert_non_null(strstr(screen, "\033[2m[prompt"));
  free(screen);
  terminal_close(&t);
}

static void test_no_color(void **state) {
  char command[1024];
  (void)state;
  snprintf(command, sizeof command, "NO_COLOR=1 HOME=%s/home %s chat %s", at.folder, program(), at.scripted);
  terminal t = terminal_open(70, 24, command);
  terminal_expect_last(&t, WAITING);
  say(&t, "Hello?");
  terminal_expect(&t, "[prompt");
  terminal_expect_last(&t, WAITING);
  char *screen = terminal_text(&t, 1);
  assert_null(strstr(screen, "\033[2m"));
  free(screen);
  terminal_close(&t);
  t = open_chat(at.scripted, "--quiet");
  say(&t, "Hello?");
  terminal_expect(&t, REPLY);
  terminal_expect_last(&t, WAITING);
  screen = terminal_text(&t, 0);
  assert_null(strstr(screen, "[prompt"));
  assert_null(strstr(screen, "/help"));
  free(screen);
  terminal_close(&t);
}

/* What a model writes is shown, not acted on. */
static void test_control_characters(void **state) {
  (void)state;
  terminal t = open_chat(at.endless, "-n 5 --ignore-eos --logit-bias 27:100");
  say(&t, "Hello?");
  terminal_expect(&t, "\\x1B\\x1B\\x1B\\x1B\\x1B");
  terminal_close(&t);
}

/* Nor is what a model is called. */
static void test_control_characters_in_name(void **state) {
  char path[TINY_PATH_BYTES];
  (void)state;
  save_model(&(tiny_options){.fault = {TINY_KEY_TEXT, "general.name", 0, "\033[31mRed"}}, path);
  terminal t = open_chat(path, "");
  terminal_expect(&t, "\\x1B[31mRed: /help lists");
  terminal_close(&t);
  unlink(path);
}

/* ---- a long evening ---- */

/* Many turns with everything in between, in a context that is soon full. */
static void test_long_conversation(void **state) {
  (void)state;
  terminal t = open_chat(at.scripted, "--ctx 256");
  for (int i = 1; i <= 40; i++) {
    char line[64];
    if (i % 7 == 0) {
      terminal_key(&t, "Up");
      terminal_key(&t, "Enter");
    } else if (i % 11 == 0) {
      say(&t, "/regen");
    } else {
      snprintf(line, sizeof line, "question %d " HAO, i);
      say(&t, line);
    }
    terminal_expect_times(&t, REPLY, i);
    terminal_expect_last(&t, WAITING);
    if (i % 10 == 0) terminal_resize(&t, 60 + i, 20 + i % 3);
    if (i % 12 == 0) {
      say(&t, "/stats");
      terminal_expect_last(&t, WAITING);
    }
  }
  terminal_expect(&t, "The context of 256 tokens is full");
  json_t *messages = save_and_load(&t);
  assert_int_equal(json_array_size(messages), 2 * 37); /* three replies were made anew */
  json_decref(messages);
  say(&t, "/clear");
  say(&t, "anew");
  terminal_expect_times(&t, REPLY, 41);
  terminal_expect_last(&t, WAITING);
  terminal_key(&t, "C-d");
  terminal_expect(&t, "status 0");
  terminal_close(&t);
}

/* run has the same line on a terminal, and shows what a terminal would act on. */
static void test_run_in_terminal(void **state) {
  char command[512];
  (void)state;
  snprintf(command, sizeof command, "%s run %s Hello?", program(), at.scripted);
  terminal t = terminal_open(70, 24, command);
  terminal_expect(&t, "status 0");
  terminal_expect(&t, REPLY "\n[prompt ");
  terminal_close(&t);
  snprintf(command, sizeof command, "%s run %s Hello? -n 3 --ignore-eos --logit-bias 27:100", program(), at.endless);
  t = terminal_open(70, 24, command);
  terminal_expect(&t, "\\x1B\\x1B\\x1B\n[prompt ");
  terminal_close(&t);
}

/* The sample model, whose answer a user knows. */
static void test_sample_model(void **state) {
  const char *model = getenv("WEFT_TEST_MODEL");
  (void)state;
  terminal t = open_chat(model ? model : "models/SmolLM2-135M-Instruct.Q4_1.gguf", "--temperature 0 --exact -n 40");
  say(&t, "What is the capital of France?");
  terminal_expect(&t, "Paris");
  terminal_expect(&t, "[prompt");
  terminal_expect_last(&t, WAITING);
  terminal_key(&t, "C-d");
  terminal_expect(&t, "status 0");
  terminal_close(&t);
}

/* ---- pipes ---- */

static run_result pipe_chat(const char *model, const char *input, const char *const *options) {
  const char *words[RUN_MAX_WORDS] = {"chat", model};
  for (int i = 0; options && options[i]; i++) words[2 + i] = options[i];
  return run_weft(&(run_options){.input = input, .n_input = strlen(input)}, words);
}

static void test_filter(void **state) {
  (void)state;
  run_result r = pipe_chat(at.scripted, "one\ntwo\r\n\n  \nthree\\\nand more\nlast", NULL);
  assert_status(&r, 0);
  assert_string_equal(r.out, REPLY "\n" REPLY "\n" REPLY "\n" REPLY "\n");
  assert_string_equal(r.err, "");
  run_clear(&r);
}

static void test_end_of_input(void **state) {
  (void)state;
  run_result r = pipe_chat(at.scripted, "", NULL);
  assert_status(&r, 0);
  assert_string_equal(r.out, "");
  assert_string_equal(r.err, "");
  run_clear(&r);
}

/* A model that writes escapes, carriage returns and halves of characters, and all that the program says itself. */
static void test_no_escapes(void **state) {
  char input[2048] = "/help\n/stats\n/regen\n";
  (void)state;
  for (int i = 0; i < 20; i++) snprintf(input + strlen(input), sizeof input - strlen(input), "line %d\n", i);
  const char *const options[] = {
      "--ignore-eos", "-n", "200", "--temperature", "5", "--top-k", "0", "--top-p", "0", "--min-p", "0",
      "--seed",       "4",  NULL};
  run_result r = pipe_chat(at.endless, input, options);
  assert_status(&r, 1); /* /regen had nothing to make anew */
  assert_true(r.n_out > 20 * 100);
  for (size_t i = 0; i < r.n_out; i++)
    if (((unsigned char)r.out[i] < ' ' && !strchr("\n\t", r.out[i])) || !r.out[i]) fail_msg("byte %d", r.out[i]);
  assert_null(memchr(r.err, 27, r.n_err));
  run_clear(&r);
}

static void test_json_lines(void **state) {
  (void)state;
  run_result r = pipe_chat(at.scripted, "one\ntwo\n", (const char *const[]){"--json", NULL});
  assert_status(&r, 0);
  char *second = strchr(r.out, '\n');
  assert_non_null(second);
  json_error_t error;
  json_t *reply = json_loads(second + 1, 0, &error);
  assert_non_null(reply);
  assert_string_equal(get_text(reply, "text"), REPLY);
  assert_string_equal(get_text(reply, "finish_reason"), "stop");
  /* What was said before is in the cache, all but the marks at the end of the reply. */
  double n_prompt = get_number(reply, "n_prompt_tokens"), n_reused = get_number(reply, "n_reused_tokens");
  assert_true(n_reused > n_prompt / 2);
  assert_true(n_prompt - n_reused <= (double)(strlen("two") + 40));
  json_decref(reply);
  run_clear(&r);
}

static void test_closed_pipes(void **state) {
  (void)state;
  const run_stdout ways[] = {RUN_CLOSED_PIPE, RUN_CLOSED_LATER};
  for (size_t i = 0; i < WEFT_COUNT(ways); i++) {
    const run_options o = {.input = "one\ntwo\n", .n_input = 8, .out = ways[i]};
    run_result r =
        WEFT(&o, "chat", at.endless, "--ignore-eos", "--ctx", "150000", "-n", "140000", "--logit-bias", "122:100");
    assert_status(&r, 141);
    assert_string_equal(r.err, "");
    run_clear(&r);
  }
}

static void test_interrupted_pipe(void **state) {
  (void)state;
  const run_options o = {.in = RUN_OPEN_STDIN, .input = "one\ntwo\n", .n_input = 8, .interrupts = 1};
  run_result r =
      WEFT(&o, "chat", at.endless, "--ignore-eos", "--ctx", "150000", "-n", "140000", "--logit-bias", "122:100");
  assert_status(&r, 130);
  assert_int_equal(r.out[0], 'z');
  assert_int_equal(r.out[r.n_out - 1], '\n');
  run_clear(&r);
}

/* A message that does not fit fails alone. */
static void test_message_too_long(void **state) {
  char input[1024];
  (void)state;
  snprintf(input, sizeof input, "%0300d\nshort\n", 7);
  run_result r = pipe_chat(at.scripted, input, (const char *const[]){"--ctx", "200", NULL});
  assert_status(&r, 1);
  assert_string_equal(r.out, REPLY "\n");
  assert_non_null(strstr(r.err, "do not fit into 200 positions"));
  run_clear(&r);
}

/* A reply that cannot be made anew stays, with its question. */
static void test_failed_regen(void **state) {
  char text[1024], input[400];
  const char *path = file_at("long");
  (void)state;
  snprintf(text, sizeof text,
           "{\"messages\": [{\"role\": \"user\", \"content\": \"%0300d\"}, "
           "{\"role\": \"assistant\", \"content\": \"Old.\"}]}",
           7);
  assert_int_equal(weft__file_write(path, WEFT__FILE_PRIVATE, text, strlen(text)), WEFT_OK);
  snprintf(input, sizeof input, "/load %s\n/regen\n/save %s.after\n", path, path);
  run_result r = pipe_chat(at.scripted, input, (const char *const[]){"--ctx", "200", NULL});
  assert_status(&r, 1);
  assert_non_null(strstr(r.err, "do not fit into 200 positions"));
  run_clear(&r);
  json_t *messages = load_messages("long.after");
  assert_int_equal(json_array_size(messages), 2);
  expect_message(messages, 1, "assistant", "Old.");
  json_decref(messages);
}

static void test_nul_in_message(void **state) {
  (void)state;
  const run_options o = {.input = "a\0b\nshort\n", .n_input = 10};
  run_result r = WEFT(&o, "chat", at.scripted);
  assert_status(&r, 1);
  assert_string_equal(r.out, REPLY "\n");
  assert_non_null(strstr(r.err, "it holds a NUL byte"));
  run_clear(&r);
}

static void test_bad_usage(void **state) {
  (void)state;
  assert_error(WEFT(NULL, "chat"), 2, "chat: an argument is missing");
  assert_error(WEFT(NULL, "chat", "m", "x"), 2, "'x' is one argument too many");
  assert_error(WEFT(NULL, "chat", "m", "--top-p", "1.0001"), 2, "--top-p");
  assert_error(WEFT(NULL, "chat", "/tmp/weft-no-such.gguf"), 1, "/tmp/weft-no-such.gguf: No such file or directory");
}

/* A model that recommends temperature 0 repeats itself, unless it is told otherwise. */
static void test_recommended_temperature(void **state) {
  char path[TINY_PATH_BYTES], first[256];
  (void)state;
  save_model(&(tiny_options){.fault = {TINY_KEY_FLOAT, "general.sampling.temp", 0, NULL}}, path);
#define DRAW "run", path, "x", "-n", "20", "--ignore-eos", "--min-p", "0", "--seed"
  for (int i = 0; i < 4; i++) {
    const char *seed = i % 2 ? "1" : "2";
    json_t *root =
        take_json(i < 2 ? WEFT(NULL, DRAW, seed, "--json") : WEFT(NULL, DRAW, seed, "--json", "--temperature", "3"), 0);
    if (i % 2 == 0) snprintf(first, sizeof first, "%s", get_text(root, "text"));
    if (i == 1) assert_string_equal(get_text(root, "text"), first);
    if (i == 3) assert_string_not_equal(get_text(root, "text"), first);
    json_decref(root);
  }
  unlink(path);
}

/* A file that nobody may read is named with the reason. */
static void test_no_template(void **state) {
  (void)state;
  assert_error(WEFT(NULL, "chat", "models/gemma-3-270m.Q4_K_M.gguf"), 1, "no chat template that weft knows");
}

static void test_no_permission(void **state) {
  char path[TINY_PATH_BYTES];
  (void)state;
  save_model(NULL, path);
  char command[128];
  snprintf(command, sizeof command, "chmod 0 %s", path);
  run_result made = run_program((const char *const[]){"sh", "-c", command, NULL}, NULL);
  run_clear(&made);
  run_result r = WEFT((&(run_options){.permissions_apply = 1}), "chat", path);
  assert_error(r, 1, "Permission denied");
  unlink(path);
}

/* ---- session files ---- */

/* A conversation goes on where it ended, with its cache; another model is refused, and the file stays. */
static void test_session(void **state) {
  char path[128];
  (void)state;
  snprintf(path, sizeof path, "%s", file_at("session"));
  const char *const options[] = {"--session", path, "--json", NULL};
  run_result r = pipe_chat(at.scripted, "one\n", options);
  assert_status(&r, 0);
  run_clear(&r);
  r = pipe_chat(at.scripted, "/stats\ntwo\n", options);
  assert_status(&r, 0);
  assert_non_null(strstr(r.err, "2 messages, 0 of them left out"));
  json_t *reply = take_json(r, 0);
  assert_true(get_number(reply, "n_reused_tokens") > get_number(reply, "n_prompt_tokens") / 2);
  json_decref(reply);
  assert_error(pipe_chat(at.endless, "three\n", options), 1, "was saved with another model");
  r = pipe_chat(at.scripted, "/stats\n", options);
  assert_status(&r, 0);
  assert_non_null(strstr(r.err, "4 messages"));
  run_clear(&r);
}

/* run uses the cache of a conversation, and does not take the conversation away. */
static void test_run_in_session(void **state) {
  char path[128];
  (void)state;
  snprintf(path, sizeof path, "%s", file_at("shared"));
  const char *const options[] = {"--session", path, NULL};
  run_result r = pipe_chat(at.scripted, "one\n", options);
  assert_status(&r, 0);
  run_clear(&r);
  r = WEFT(NULL, "run", at.scripted, "another prompt", "-n", "2", "--session", path);
  assert_status(&r, 0);
  run_clear(&r);
  r = pipe_chat(at.scripted, "/stats\n", options);
  assert_status(&r, 0);
  assert_non_null(strstr(r.err, "2 messages"));
  run_clear(&r);
}

/* run computes a prompt once, and the reply is the same. */
static void test_prompt_cache(void **state) {
  char path[128];
  json_t *runs[3];
  (void)state;
  snprintf(path, sizeof path, "%s", file_at("cache"));
  for (int i = 0; i < 3; i++)
    runs[i] = take_json(WEFT(NULL, "run", at.endless, i == 2 ? "A long prompt?" : "A long prompt!", "-n", "9", "--seed",
                             "3", "--session", path, "--json"),
                        0);
  double n_prompt = get_number(runs[1], "n_reused_tokens") + 1;
  assert_int_equal(get_number(runs[0], "n_reused_tokens"), 0);
  assert_int_equal(n_prompt, json_array_size(get(runs[0], "prompt_tokens")));
  assert_true(json_equal(get(runs[0], "tokens"), get(runs[1], "tokens")));
  /* Up to the character that differs. */
  assert_in_range((int)get_number(runs[2], "n_reused_tokens"), 30, (int)n_prompt - 10);
  for (int i = 0; i < 3; i++) json_decref(runs[i]);
  assert_error(WEFT(NULL, "run", at.endless, "x", "--exact", "--session", path), 1, "was saved without --exact");
  FILE *file = fopen(path, "ab");
  assert_non_null(file);
  fputc('x', file);
  fclose(file);
  assert_error(WEFT(NULL, "run", at.endless, "x", "--session", path), 1, "is cut or damaged");
  assert_error(WEFT(NULL, "run", at.endless, "x", "--session", "/dev/null"), 1, "/dev/null");
  /* That it cannot be written is known before anything is computed. */
  assert_error(WEFT(NULL, "run", at.endless, "x", "--session", "/nonexistent/s"), 1, "/nonexistent/: No such file");
  assert_error(WEFT(NULL, "run", at.endless, "x", "--session", ""), 2, "--session: it is empty");
}

/* ---- memory ---- */

/* The most memory that /stats has told, in MB, the n-th time. */
static double told_memory(const char *err, int n) {
  const char *line = err;
  for (int i = 0; i < n; i++) {
    line = strstr(line, "memory: ");
    assert_non_null(line);
    line += strlen("memory: ");
  }
  return strtod(line, NULL);
}

/* 10000 tokens over 100 replies: after the first twenty the process does not grow.  A sanitizer, if there is one, keeps freed
 * memory to itself unless told otherwise. */
static void test_flat_process(void **state) {
  weft__bytes input = {0};
  char sanitizer[512];
  const char *given = getenv("ASAN_OPTIONS");
  (void)state;
  snprintf(sanitizer, sizeof sanitizer, "ASAN_OPTIONS=%s:quarantine_size_mb=0:thread_local_quarantine_size_kb=0",
           given ? given : "");
  for (int i = 1; i <= 100; i++) {
    assert_int_equal(weft__bytes_printf(&input, "question number %d\n", i), WEFT_OK);
    if (i % 10 == 0) assert_int_equal(weft__bytes_printf(&input, i % 30 ? "/stats\n" : "/stats\n/clear\n"), WEFT_OK);
  }
  const char *const environment[] = {sanitizer, NULL};
  const run_options o = {.input = input.data, .n_input = input.n, .environment = environment};
  run_result r = WEFT(&o, "chat", at.endless, "--ignore-eos", "-n", "100", "--ctx", "1000", "--seed", "1");
  assert_status(&r, 0);
  double early = told_memory(r.err, 2), late = told_memory(r.err, 10);
  run_clear(&r);
  weft__bytes_clear(&input);
  if (late - early > 1) fail_msg("%.1f MB after 20 replies, %.1f MB after 100", early, late);
}

/* Ten sessions of 1000 tokens on one model: each leaves the heap as it found it.  What the allocator keeps for itself counts
 * as used and varies by some hundred bytes; a byte lost with each token would be 32 of them. */
static void check_flat_heap(test_device *d) {
  fixture f = fixture_load(d, &(tiny_options){.n_ctx = 1100});
  size_t n_live[10];
  for (int i = 0; i < 10; i++) {
    weft_session *s = fixture_open_session(&f, NULL);
    weft_generation out;
    const weft_generate_options o = {.max_tokens = 1000,
                                     .ignore_end = 1,
                                     .sampler = {.temperature = 1, .seed = (uint64_t)i, .repeat_penalty = 1.1f}};
    assert_int_equal(weft_session_generate(s, (const int32_t[]){1, 2, 3}, 3, &o, &out), WEFT_OK);
    assert_int_equal(out.n_tokens, 1000);
    weft_generation_clear(&out);
    weft_session_free(s);
    n_live[i] = mallinfo2().uordblks;
  }
  for (int i = 3; i < 10; i++) assert_true(n_live[i] < n_live[2] + 4096);
  fixture_unload(&f);
}

static void test_flat_heap(void **state) {
  (void)state;
  on_default_device(check_flat_heap);
}

static int close_terminals(void **state) {
  (void)state;
  terminal_close_all();
  return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, new_home, close_terminals)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_turns),
      TEST(test_ways_out),
      TEST(test_interrupted_reply),
      TEST(test_history),
      TEST(test_wide_characters),
      TEST(test_several_lines),
      TEST(test_long_line),
      TEST(test_resize),
      TEST(test_commands),
      TEST(test_bad_conversations),
      TEST(test_dim_line),
      TEST(test_no_color),
      TEST(test_control_characters),
      TEST(test_control_characters_in_name),
      TEST(test_long_conversation),
      TEST(test_sample_model),
      TEST(test_run_in_terminal),
      TEST(test_filter),
      TEST(test_end_of_input),
      TEST(test_no_escapes),
      TEST(test_json_lines),
      TEST(test_closed_pipes),
      TEST(test_interrupted_pipe),
      TEST(test_message_too_long),
      TEST(test_failed_regen),
      TEST(test_nul_in_message),
      TEST(test_bad_usage),
      TEST(test_no_template),
      TEST(test_no_permission),
      TEST(test_recommended_temperature),
      TEST(test_session),
      TEST(test_run_in_session),
      TEST(test_prompt_cache),
      TEST(test_flat_process),
      TEST(test_flat_heap),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
