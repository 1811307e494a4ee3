/* test_cli.c - the weft program as its users meet it: words, streams, exit statuses.
 *
 * Every test starts the built program (WEFT_TEST_PROGRAM) and looks at what comes out.  Commands and options are not
 * listed here: the tests ask the program for its own table. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/folder.h"
#include "support/gguf_cases.h"
#include "support/weft_program.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- running ---- */

/* Tests that need the model fail without it: a suite that skips them would pass on a machine where nothing works. */
static const char *model(void) {
  const char *path = getenv("WEFT_TEST_MODEL");
  if (!path) path = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (access(path, R_OK) != 0) fail_msg("%s is not there (run `make setup`)", path);
  return path;
}

/* ---- looking at results ---- */

/* Two runs that succeed and say the same; ends both. */
static void assert_equal_runs(run_result a, run_result b) {
  assert_status(&a, 0);
  assert_status(&b, 0);
  assert_string_equal(a.out, b.out);
  assert_int_equal(a.n_out, b.n_out);
  run_clear(&a);
  run_clear(&b);
}

/* A run that succeeds and says exactly this; ends it. */
static void assert_output(run_result r, const char *text) {
  assert_status(&r, 0);
  assert_string_equal(r.out, text);
  run_clear(&r);
}

/* ---- wrong usage ---- */

/* No model is named m: each of these mistakes must be found before one is looked for. */
static void test_wrong_usage(void **state) {
  (void)state;
  static const struct {
    const char *words[8];
    const char *says;
  } cases[] = {
      {{"rnu"}, "rnu: no such command (the nearest is weft run;"},
      {{"tokenise", "m"}, "the nearest is weft tokenize;"},
      {{"bench"}, "the nearest is weft bench llm;"},
      {{"bench", "lm", "m"}, "bench lm: no such command (the nearest is weft bench llm;"},
      {{"help", "scroe"}, "the nearest is weft score;"},
      {{"help", "run", "x"}, "no such command"},
      {{"--json"}, "--json: a command comes first"},
      {{"run"}, "run: an argument is missing"},
      {{"run", "m", "a", "b"}, "'b' is one argument too many"},
      {{"version", "x"}, "'x' is one argument too many"},
      {{"run", "m", "-p"}, "--prompt: needs a value"},
      {{"run", "m", "--temprature", "1"}, "the nearest is --temperature;"},
      {{"run", "m", "--temp=1"}, "--temp: unknown option of weft run (the nearest is --temperature;"},
      {{"run", "m", "--promt", "x"}, "the nearest is --prompt;"},
      {{"info", "m", "--tensor"}, "the nearest is --tensors;"},
      {{"run", "m", "-x"}, "-x: unknown option"},
      {{"run", "m", "--json=yes", "x"}, "--json: takes no value"},
      {{"run", "m", "-hx"}, "-hx: unknown option"},
      {{"run", "m", "-n", "0", "x"}, "--max-tokens: '0' is not a whole number from 1 to"},
      {{"run", "m", "-nten", "x"}, "--max-tokens: 'ten' is not"},
      {{"run", "m", "-n", "1e3", "x"}, "--max-tokens: '1e3' is not"},
      {{"run", "m", "-n", " 3", "x"}, "--max-tokens: ' 3' is not"},
      {{"run", "m", "-n", "+3", "x"}, "--max-tokens: '+3' is not"},
      {{"run", "m", "-n", "", "x"}, "--max-tokens: '' is not"},
      {{"run", "m", "-n", "99999999999999999999", "x"}, "--max-tokens"},
      {{"run", "m", "--top-p", "1.0001", "x"}, "--top-p: '1.0001' is not a number from 0 to 1"},
      {{"run", "m", "--top-p", "nan", "x"}, "--top-p: 'nan'"},
      {{"run", "m", "--min-p", "-0.1", "x"}, "--min-p: '-0.1'"},
      {{"run", "m", "--temperature", "inf", "x"}, "--temperature: 'inf'"},
      {{"run", "m", "--temperature", "0x1", "x"}, "--temperature: '0x1'"},
      {{"run", "m", "--temperature", "1.5.2", "x"}, "--temperature: '1.5.2'"},
      {{"run", "m", "--seed", "-1", "x"}, "--seed: '-1'"},
      {{"run", "m", "--threads", "257", "x"}, "--threads: '257' is not a whole number from 1 to 256"},
      {{"run", "m", "--kv", "q4", "x"}, "--kv: 'q4' is not one of its values (give f32|f16|q8)"},
      {{"run", "m", "--kv", "", "x"}, "--kv: ''"},
      {{"run", "m", "--device", "gp", "x"}, "--device: 'gp'"},
      {{"run", "m", "--device", "N", "x"}, "--device: 'N'"},
      {{"run", "m", "--device", "-1", "x"}, "--device: '-1'"},
      {{"run", "m", "--stop", "", "x"}, "--stop: it is empty"},
      {{"run", "m", "--repeat-penalty", "-1", "x"}, "--repeat-penalty: '-1' is not a number from 0 to 100"},
      {{"run", "m", "--frequency-penalty", "2.01", "x"}, "--frequency-penalty: '2.01' is not a number from -2 to 2"},
      {{"run", "m", "--presence-penalty", "nan", "x"}, "--presence-penalty: 'nan'"},
      {{"run", "m", "--repeat-last", "-2", "x"}, "--repeat-last: '-2'"},
      {{"run", "m", "--logit-bias", "5", "x"}, "--logit-bias: '5' is not ID:V"},
      {{"run", "m", "--logit-bias", "5:", "x"}, "--logit-bias: '5:'"},
      {{"run", "m", "--logit-bias", ":5", "x"}, "--logit-bias: ':5'"},
      {{"run", "m", "--logit-bias", "5:1", "--logit-bias", "-5:1", "x"}, "--logit-bias: '-5:1'"},
      {{"run", "m", "--logit-bias", "5:101", "x"}, "--logit-bias: '5:101'"},
      {{"run", "m", "--logit-bias", "5:inf", "x"}, "--logit-bias: '5:inf'"},
      {{"run", "m", "--logit-bias", "99999999999999999999:1", "x"}, "--logit-bias: '99999999999999999999:1'"},
      {{"run", "m"}, "prompt: there is none"},
      {{"run", "m", "x", "-p", "y"}, "prompt: it is given more than once"},
      {{"run", "m", ""}, "prompt: it is empty"},
      {{"run", "m", "--prompt="}, "prompt: it is empty"},
      {{"run", "m", "--prompt-file", "/dev/null"}, "prompt: it is empty"},
      {{"run", "m", "--raw", "-s", "x", "y"}, "--system: --raw has no place for it"},
      {{"run", "m", "x", "--force-tokens", "1,x"}, "--force-tokens: 'x' is not a token id"},
      {{"run", "m", "x", "--force-tokens", "1,-2"}, "'-2' is not a token id"},
      {{"run", "m", "x", "--force-tokens", ","}, "--force-tokens: it is empty"},
      {{"run", "", "x"}, "MODEL: is empty"},
      {{"tokenize", "m"}, "tokenize: there is no text"},
      {{"tokenize", "m", "x", "--file", "y"}, "tokenize: there are two texts"},
      {{"detokenize", "m"}, "detokenize: there are no ids"},
      {{"detokenize", "m", "99999999999999999999"}, "is not a token id"},
      {{"detokenize", "m", "2147483648"}, "'2147483648' is not a token id"},
      {{"score", "m"}, "score: there is no text"},
      {{"logits", "m", "x", "--top", "0"}, "--top: '0'"},
      {{"bench", "llm", "m", "-p", "0", "-n", "0"}, "bench llm: there is nothing to measure"},
      {{"run", "m", "a\033[31m\nb", "c"}, "'c' is one argument too many"},
      {{"\033[31m\n\302\233"}, "\\x1B[31m\\n\\xC2"},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) assert_error(run_weft(NULL, cases[i].words), 2, cases[i].says);
  assert_error(run_weft(NULL, (const char *const[]){NULL}), 2, "no command");
}

/* ---- help ---- */

/* Splits a command's name into at most two words before `last`. */
static run_result run_named(const char *first, const char *name, const char *last) {
  char words[64], *second;
  const char *argv[6];
  int n = 0;
  snprintf(words, sizeof words, "%s", name);
  second = strchr(words, ' ');
  if (second) *second++ = 0;
  if (first) argv[n++] = first;
  argv[n++] = words;
  if (second) argv[n++] = second;
  if (last) argv[n++] = last;
  argv[n] = NULL;
  return run_weft(NULL, argv);
}

/* Its page has every option of the table, and --help is the same page. */
static void check_page(const json_t *command) {
  const char *name = get_text(command, "name");
  char option[64];
  run_result page = run_named("help", name, NULL);
  assert_status(&page, 0);
  for (size_t i = 0; i < json_array_size(get(command, "options")); i++) {
    const json_t *row = json_array_get(get(command, "options"), i);
    snprintf(option, sizeof option, "--%s", get_text(row, "name"));
    if (!strstr(page.out, option)) fail_msg("help %s lacks %s", name, option);
    if (!*get_text(row, "help")) fail_msg("%s of %s has no help", option, name);
  }
  if (!strstr(page.out, get_text(command, "arguments"))) fail_msg("help %s lacks its arguments", name);
  if (!strstr(page.out, "\nExamples:\n    ")) fail_msg("help %s lacks examples", name);
  assert_equal_runs(page, run_named(NULL, name, "--help"));
}

/* What the table says takes a value takes one, and what does not takes none. */
static void check_options(const json_t *command) {
  char word[64];
  for (size_t i = 0; i < json_array_size(get(command, "options")); i++) {
    const json_t *row = json_array_get(get(command, "options"), i);
    int takes_value = json_is_string(get(row, "value"));
    snprintf(word, sizeof word, "--%s%s", get_text(row, "name"), takes_value ? "" : "=x");
    assert_error(run_named(NULL, get_text(command, "name"), word), 2, takes_value ? "needs a value" : "takes no value");
  }
}

/* The table is walked as the program prints it, so a command added later is tested without a change here. */
static void test_help(void **state) {
  (void)state;
  json_t *root = take_json(WEFT(NULL, "help", "--json"), 0);
  json_t *commands = get(root, "commands");
  run_result overview = WEFT(NULL, "help");
  assert_true(json_array_size(commands) >= 9);
  for (size_t i = 0; i < json_array_size(commands); i++) {
    const json_t *command = json_array_get(commands, i);
    if (!strstr(overview.out, get_text(command, "name"))) fail_msg("help lacks %s", get_text(command, "name"));
    check_page(command);
    check_options(command);
  }
  json_decref(root);
  assert_equal_runs(overview, WEFT(NULL, "--help"));
  assert_equal_runs(WEFT(NULL, "-h"), WEFT(NULL, "help"));
}

/* Both forms list the same variables. */
static void test_help_environment(void **state) {
  (void)state;
  json_t *root = take_json(WEFT(NULL, "help", "environment", "--json"), 0);
  json_t *variables = get(root, "environment"), *value;
  const char *name;
  run_result text = WEFT(NULL, "help", "environment");
  assert_status(&text, 0);
  get(variables, "WEFT_MODELS");
  json_object_foreach(variables, name, value) assert_non_null(strstr(text.out, name));
  run_clear(&text);
  json_decref(root);
}

/* The program and the library that it was built with say the same. */
static void test_version(void **state) {
  (void)state;
  json_t *root = take_json(WEFT(NULL, "version", "--json"), 0);
  char first_line[64];
  assert_string_equal(get_text(root, "version"), weft_version());
  assert_true(json_array_size(get(root, "cpu_variants")) >= 1);
  assert_true(json_is_array(json_object_get(root, "gpu_generations")));
  assert_non_null(json_object_get(root, "gpu_library"));
  get_text(root, "compiler");
  snprintf(first_line, sizeof first_line, "weft %s\n", weft_version());
  run_result text = WEFT(NULL, "version");
  assert_memory_equal(text.out, first_line, strlen(first_line));
  assert_non_null(strstr(text.out, get_text(root, "cpu_variant")));
  assert_equal_runs(text, WEFT(NULL, "--version"));
  json_decref(root);
}

/* ---- environment and devices ---- */

/* A wrong variant is an error, not a fallback that would make a benchmark of one variant measure another. */
static void test_cpu_variable(void **state) {
  (void)state;
  const run_options nonsense = {.environment = (const char *const[]){"WEFT_CPU=nonsense", NULL}};
  const run_options scalar = {.environment = (const char *const[]){"WEFT_CPU=scalar", NULL}};
  assert_error(WEFT(&nonsense, "run", model(), "hi"), 1, "nonsense");
  run_result version = WEFT(&nonsense, "version");
  assert_error_message(&version, 1, "nonsense");
  run_clear(&version);
  json_t *root = take_json(WEFT(&scalar, "version", "--json"), 0);
  assert_string_equal(get_text(root, "cpu_variant"), "scalar");
  json_decref(root);
}

/* A number that cannot be meant is an error too. */
static void test_threads_variable(void **state) {
  (void)state;
  const run_options zero = {.environment = (const char *const[]){"WEFT_THREADS=0", NULL}};
  assert_error(WEFT(&zero, "logits", model(), "hi"), 1, "WEFT_THREADS");
}

/* Wrong lists are refused before a model is looked for. */
static void test_affinity(void **state) {
  (void)state;
  assert_error(WEFT(NULL, "run", "m", "hi", "--affinity", "0-"), 1, "affinity: '0-' is not a list of processors");
  assert_error(WEFT(NULL, "run", "m", "hi", "--affinity", "1023"), 1, "affinity: ");
  assert_error(WEFT(NULL, "run", "m", "hi", "--affinity", ""), 1, "affinity: ''");
}

/* Status 3, whatever word asked for it, and before the model is looked for. */
static void test_no_gpu(void **state) {
  (void)state;
  static const char *const devices[] = {"gpu", "low", "high", "0", "17"};
  for (size_t i = 0; i < WEFT_COUNT(devices); i++)
    assert_error(WEFT(NULL, "run", "m", "hi", "--device", devices[i]), 3, "GPU");
  assert_error(WEFT(NULL, "bench", "llm", "m", "--device=gpu"), 3, "GPU");
}

/* ---- finding the model ---- */

/* A path that is not there says so in the system's words, and is never taken for a name. */
static void test_missing_model(void **state) {
  (void)state;
  assert_error(WEFT(NULL, "run", "/nonexistent/x.gguf", "hi"), 1, "/nonexistent/x.gguf: No such file or directory");
  assert_error(WEFT(NULL, "info", "./x\033.gguf"), 1, "No such file or directory");
  assert_error(WEFT(NULL, "info", folder_path()), 1, "folder");
  assert_error(WEFT(NULL, "info", "/dev/null"), 1, "/dev/null");
}

/* Also for root, whom the system would let read it. */
static void test_no_permission(void **state) {
  (void)state;
  const run_options o = {.permissions_apply = 1};
  const char *path = write_text("secret.gguf", "GGUF");
  assert_int_equal(chmod(path, 0), 0);
  assert_error(WEFT(&o, "info", path), 1, "Permission denied");
  assert_error(WEFT(&o, "run", path, "hi"), 1, "Permission denied");
  assert_error(WEFT(&o, "run", "m", "--prompt-file", path), 1, "Permission denied");
}

/* A file that info can read. */
static void save_valid(const char *name) {
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_make_full(&w);
  gguf_writer_save(&w, in_folder(name));
}

/* Exactly, but for case, by the beginning; more than one or none lists what is near. */
static void test_model_names(void **state) {
  (void)state;
  char variable[128];
  snprintf(variable, sizeof variable, "WEFT_MODELS=%s", in_folder("models"));
  const run_options o = {.environment = (const char *const[]){variable, NULL}};
  assert_int_equal(mkdir(in_folder("models"), 0700), 0);
  assert_error(WEFT(&o, "info", "alpha"), 1, "no model in");
  save_valid("models/alpha-1b.gguf");
  save_valid("models/alpha-7b.gguf");
  save_valid("models/alpha-7b-chat.gguf");
  save_valid("models/Beta.gguf");
  static const char *const found[] = {"alpha-1b", "alpha-1", "ALPHA-1B", "alpha-7b", "alpha-7b.gguf", "beta", "b"};
  for (size_t i = 0; i < WEFT_COUNT(found); i++) {
    run_result r = WEFT(&o, "info", found[i]);
    if (r.status) fail_msg("%s: %s", found[i], r.err);
    run_clear(&r);
  }
  assert_error(WEFT(&o, "info", "alpha"), 1, "more than one model");
  assert_error(WEFT(&o, "info", "alpha"), 1, "(choose: alpha-1b, alpha-7b, alpha-7b-chat)");
  assert_error(WEFT(&o, "info", "bata"), 1, "no such model");
  assert_error(WEFT(&o, "info", "bata"), 1, "(near: Beta, ");
  assert_error(WEFT(&o, "info", "models/Beta"), 1, "models/Beta: No such file or directory");
}

/* Without WEFT_MODELS, or with an empty one, the folders of the XDG rules. */
static void test_model_folder_from_xdg(void **state) {
  (void)state;
  char data[128], home[128];
  const char *made = in_folder("xdg");
  snprintf(data, sizeof data, "XDG_DATA_HOME=%s", made);
  snprintf(home, sizeof home, "HOME=%s", made);
  const run_options with_data = {.environment = (const char *const[]){"WEFT_MODELS", data, NULL}};
  const run_options with_home = {.environment = (const char *const[]){"WEFT_MODELS=", "XDG_DATA_HOME", home, NULL}};
  assert_error(WEFT(&with_home, "info", "x"), 1, "xdg/.local/share/weft/models");
  assert_int_equal(mkdir(made, 0700), 0);
  assert_int_equal(mkdir(in_folder("xdg/weft"), 0700), 0);
  assert_int_equal(mkdir(in_folder("xdg/weft/models"), 0700), 0);
  save_valid("xdg/weft/models/gamma.gguf");
  run_result r = WEFT(&with_data, "info", "gamma");
  assert_status(&r, 0);
  run_clear(&r);
}

/* ---- files that are no models ---- */

/* Every case of the reader's own tests, through the program: one line, status 1; what opens is shown without a control
 * character, whatever its names hold. */
static void test_malformed_files(void **state) {
  (void)state;
  const char *path = in_folder("case.gguf");
  for (size_t i = 0; i < gguf_n_cases; i++) {
    gguf_writer w;
    gguf_writer_init(&w);
    gguf_cases[i].make(&w);
    gguf_writer_save(&w, path);
    run_result r = WEFT(NULL, "info", path, "--tensors");
    if (gguf_cases[i].status) {
      assert_error(r, 1, gguf_cases[i].why);
      assert_error(WEFT(NULL, "run", path, "hi"), 1, path);
      continue;
    }
    assert_status(&r, 0);
    for (size_t c = 0; c < r.n_out; c++)
      if ((unsigned char)r.out[c] < ' ' && r.out[c] != '\n') fail_msg("%s: control character", gguf_cases[i].name);
    run_clear(&r);
    json_decref(take_json(WEFT(NULL, "info", path, "--tensors", "--json"), 0));
  }
}

/* The architecture is named, escaped. */
static void test_unknown_architecture(void **state) {
  (void)state;
  const char *path = in_folder("unknown.gguf");
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_writer_string(&w, "general.architecture", "non\033esuch");
  gguf_writer_save(&w, path);
  assert_error(WEFT(NULL, "run", path, "hi"), 1, "esuch");
  assert_error(WEFT(NULL, "tokenize", path, "hi"), 1, "tokenizer");
}

/* One entry of each kind comes out as it went in, a float in its shortest form. */
static void test_info(void **state) {
  (void)state;
  const char *path = in_folder("info.gguf");
  gguf_writer w;
  gguf_writer_init(&w);
  gguf_writer_string(&w, "general.name", "red \033[31m\xff\"");
  gguf_writer_f32(&w, "x.epsilon", 1e-5f);
  gguf_writer_u32(&w, "x.count", 4000000000u);
  gguf_writer_bool(&w, "x.flag", 1);
  gguf_writer_array(&w, "x.list", WEFT_GGUF_I32, (const int32_t[12]){-1, 2}, 12);
  gguf_writer_tensor(&w, "weight", 0, 2, (const int64_t[]){2, 3}, (const float[6]){0}, 24);
  gguf_writer_save(&w, path);
  json_t *root = take_json(WEFT(NULL, "info", path, "--json", "--tensors"), 0);
  json_t *metadata = get(root, "metadata"), *tensor = json_array_get(get(root, "tensors"), 0);
  assert_string_equal(get_text(metadata, "general.name"), "red \033[31m\xEF\xBF\xBD\"");
  assert_true(get_number(metadata, "x.epsilon") == 1e-5);
  assert_true(get_number(metadata, "x.count") == 4e9);
  assert_true(json_is_true(get(metadata, "x.flag")));
  assert_int_equal((int)get_number(get(metadata, "x.list"), "n_elements"), 12);
  assert_int_equal((int)json_integer_value(json_array_get(get(get(metadata, "x.list"), "first"), 0)), -1);
  assert_string_equal(get_text(tensor, "name"), "weight");
  assert_int_equal((int)json_integer_value(json_array_get(get(tensor, "shape"), 0)), 2);
  assert_int_equal((int)get_number(tensor, "n_bytes"), 24);
  assert_int_equal((int)get_number(root, "n_params"), 6);
  assert_int_equal((int)get_number(get(get(root, "types"), "F32"), "n_tensors"), 1);
  json_decref(root);
  run_result text = WEFT(NULL, "info", path);
  assert_status(&text, 0);
  assert_null(strchr(text.out, '\033'));
  assert_non_null(strstr(text.out, "\"red \\x1B[31m\xEF\xBF\xBD\\\"\""));
  assert_null(strstr(text.out, "weight"));
  run_clear(&text);
}

/* ---- standard output ---- */

/* Every kind of command, short output that fails in the last flush and long output that fails in the middle.  One that
 * did not notice would go on to a million tokens. */
static void check_broken_output(run_stdout out, int status, const char *says) {
  const run_options o = {.out = out};
  const char *const *commands[] = {
      (const char *const[]){"help", NULL},
      (const char *const[]){"run", "--help", NULL},
      (const char *const[]){"version", "--json", NULL},
      (const char *const[]){"info", model(), "--tensors", NULL},
      (const char *const[]){"tokenize", model(), "hi", NULL},
      (const char *const[]){"detokenize", model(), "1", NULL},
      (const char *const[]){"logits", model(), "hi", "--top", "10000", NULL},
      (const char *const[]){"run", model(), "hi", "-n", "1000000", "--ignore-eos", NULL},
      (const char *const[]){"run", model(), "hi", "-n", "2", "--json", NULL},
  };
  for (size_t i = 0; i < WEFT_COUNT(commands); i++) {
    run_result r = run_weft(&o, commands[i]);
    if (says)
      assert_error_message(&r, status, says);
    else {
      assert_status(&r, status);
      assert_string_equal(r.err, "");
    }
    run_clear(&r);
  }
}

static void test_closed_pipe(void **state) {
  (void)state;
  check_broken_output(RUN_CLOSED_PIPE, 141, NULL);
}

/* A result that was cut short must not look like success. */
static void test_full_disk(void **state) {
  (void)state;
  check_broken_output(RUN_FULL_DISK, 1, "standard output: No space left on device");
}

/* The descriptor must not be handed to a file that the program opens. */
static void test_no_stdout(void **state) {
  (void)state;
  check_broken_output(RUN_NO_STDOUT, 1, "standard output: Bad file descriptor");
}

/* As `weft run ... | head -c 1` does. */
static void test_pipe_closed_while_speaking(void **state) {
  (void)state;
  const run_options o = {.out = RUN_CLOSED_LATER};
  run_result r = WEFT(&o, "run", model(), "hi", "-n", "1000000", "--ignore-eos");
  assert_status(&r, 141);
  assert_string_equal(r.err, "");
  assert_true(r.n_out > 0);
  run_clear(&r);
}

/* A usage error stays one, whatever became of standard output. */
static void test_error_into_closed_pipe(void **state) {
  (void)state;
  const run_options o = {.out = RUN_CLOSED_PIPE};
  assert_error(WEFT(&o, "run"), 2, "an argument is missing");
}

/* ---- interrupts ---- */

#define ENDLESS "run", model(), "hi", "-n", "1000000", "--ignore-eos", "--ctx", "8192"

/* What was said is completed with a line break, or the JSON object printed.  A second signal ends the program even if
 * it comes while the first is being obeyed. */
static void test_interrupt(void **state) {
  (void)state;
  const run_options once = {.interrupts = 1}, twice = {.interrupts = 2};
  run_result r = WEFT(&once, ENDLESS);
  assert_status(&r, 130);
  assert_true(r.n_out > 1);
  assert_int_equal(r.out[r.n_out - 1], '\n');
  assert_string_equal(r.err, "");
  run_clear(&r);
  r = WEFT(&twice, ENDLESS);
  assert_status(&r, 130);
  run_clear(&r);
  /* --verbose speaks once the model is loaded. */
  json_t *root = take_json(WEFT(&once, ENDLESS, "--json", "--verbose"), 130);
  assert_string_equal(get_text(root, "finish_reason"), "canceled");
  json_decref(root);
}

/* While the model loads, and while standard input is waited for. */
static void test_early_interrupt(void **state) {
  (void)state;
  const run_options loading = {.interrupt_early = 1}, reading = {.interrupt_early = 1, .in = RUN_OPEN_STDIN};
  run_result r = WEFT(&loading, ENDLESS);
  assert_status(&r, 130);
  run_clear(&r);
  r = WEFT(&reading, "run", "m", "--prompt-file", "-");
  assert_status(&r, 130);
  assert_string_equal(r.err, "");
  run_clear(&r);
}

/* ---- standard input and prompts ---- */

/* An open pipe on standard input must not be waited for. */
static void test_inherited_stdin_is_not_read(void **state) {
  (void)state;
  const run_options o = {.in = RUN_OPEN_STDIN};
  run_result r = WEFT(&o, "run", model(), "-p", "hi", "-n", "1");
  assert_status(&r, 0);
  run_clear(&r);
  assert_error(WEFT(&o, "run", model()), 2, "prompt: there is none");
}

/* The ids that a prompt became; ends the run. */
static json_t *prompt_tokens(run_result r) {
  json_t *root = take_json(r, 0);
  json_t *tokens = json_incref(get(root, "prompt_tokens"));
  json_decref(root);
  return tokens;
}

/* Two ways to give a prompt that come to the same; ends both runs. */
static void assert_same_prompt(run_result a, run_result b) {
  json_t *x = prompt_tokens(a), *y = prompt_tokens(b);
  assert_true(json_array_size(x) > 0);
  assert_true(json_equal(x, y));
  json_decref(x);
  json_decref(y);
}

static void test_prompt_sources(void **state) {
  (void)state;
  const run_options line = {.input = "Why?\n", .n_input = 5};
  const char *file = write_text("prompt.txt", "Why?\r\n");
#define SHORT "-n", "1", "--json"
  assert_same_prompt(WEFT(NULL, "run", model(), "Why?", SHORT), WEFT(NULL, "run", model(), "-pWhy?", SHORT));
  assert_same_prompt(WEFT(NULL, "run", model(), "Why?", SHORT), WEFT(NULL, "run", SHORT, model(), "--prompt=Why?"));
  assert_same_prompt(WEFT(NULL, "run", model(), "Why?", SHORT),
                     WEFT(&line, "run", model(), "--prompt-file", "-", SHORT));
  assert_same_prompt(WEFT(NULL, "run", model(), "Why?", SHORT),
                     WEFT(NULL, "run", model(), "--prompt-file", file, SHORT));
  /* Raw text is taken to the byte. */
  assert_same_prompt(WEFT(NULL, "run", model(), "Why?\n", "--raw", SHORT),
                     WEFT(&line, "run", model(), "--prompt-file", "-", "--raw", SHORT));
  assert_same_prompt(WEFT(NULL, "run", SHORT, model(), "--raw", "--", "-n"),
                     WEFT(NULL, "run", SHORT, model(), "--raw", "-p", "-n"));
  assert_error(WEFT(NULL, "run", model(), "--prompt-file", "/nonexistent/p"), 1, "/nonexistent/p: No such file");
  assert_error(WEFT(NULL, "run", model(), "--prompt-file", "/"), 1, "Is a directory");
}

/* A chat message ends at a NUL byte, so it is refused there; as raw text it is a byte like any other. */
static void test_prompt_with_nul(void **state) {
  (void)state;
  const run_options o = {.input = "a\0b", .n_input = 3};
  assert_error(WEFT(&o, "run", model(), "--prompt-file", "-"), 1, "NUL byte");
  json_t *tokens = prompt_tokens(WEFT(&o, "run", model(), "--prompt-file", "-", "--raw", SHORT));
  assert_int_equal((int)json_array_size(tokens), 3);
  json_decref(tokens);
}

/* It reaches the model. */
static void test_system_message(void **state) {
  (void)state;
  json_t *with = prompt_tokens(WEFT(NULL, "run", model(), "Why?", "-s", "Answer in one word, please.", SHORT));
  json_t *without = prompt_tokens(WEFT(NULL, "run", model(), "Why?", SHORT));
  assert_false(json_equal(with, without));
  json_decref(with);
  json_decref(without);
}

/* Both numbers, so that the reader knows how much to cut or to raise. */
static void test_long_prompt(void **state) {
  (void)state;
  char text[300 * 5 + 1] = "";
  for (int i = 0; i < 300; i++) memcpy(text + i * 5, " word", 6);
  run_result r = WEFT(NULL, "run", model(), "--raw", text, "--ctx", "128");
  assert_error_message(&r, 1, "300");
  assert_error_message(&r, 1, "128");
  run_clear(&r);
  assert_error(WEFT(NULL, "logits", model(), "--raw", text, "--ctx", "128"), 1, "300");
}

/* ---- generating ---- */

/* Exact arithmetic, because on the fast path this model's first word is a near tie.  End tokens are not part of the
 * text. */
static void test_answer(void **state) {
  (void)state;
  run_result r = WEFT(NULL, "run", model(), "What is the capital of France?", "--temperature", "0", "--exact");
  assert_status(&r, 0);
  assert_string_equal(r.err, "");
  if (!strstr(r.out, "Paris")) fail_msg("no Paris in \"%s\"", r.out);
  assert_int_equal(r.out[r.n_out - 1], '\n');
  assert_null(strstr(r.out, "<|im_end|>"));
  run_clear(&r);
}

/* The text depends on prompt, options and seed, and not on threads; temperature 0 and a vanishing one are greedy. */
static void test_repeatable(void **state) {
  (void)state;
#define FABLE "run", model(), "Tell me a fable.", "-n", "16"
  assert_equal_runs(WEFT(NULL, FABLE, "--temperature", "0"), WEFT(NULL, FABLE, "--temperature=0", "--seed", "3"));
  assert_equal_runs(WEFT(NULL, FABLE, "--seed", "7"), WEFT(NULL, FABLE, "--seed", "7", "-t", "1"));
  assert_equal_runs(WEFT(NULL, FABLE, "--temperature", "1e-30"), WEFT(NULL, FABLE, "--top-k", "1", "--seed", "1"));
  run_result a = WEFT(NULL, FABLE, "--seed", "7", "--temperature", "2", "--top-k", "0");
  run_result b = WEFT(NULL, FABLE, "--seed", "8", "--temperature", "2", "--top-k", "0");
  assert_string_not_equal(a.out, b.out);
  run_clear(&a);
  run_clear(&b);
}

/* Read or mapped, the file says the same. */
static void test_no_mmap(void **state) {
  (void)state;
  assert_equal_runs(WEFT(NULL, FABLE, "--seed", "7", "--no-mmap"), WEFT(NULL, FABLE, "--seed", "7"));
}

/* Keys that scripts rely on, and the same text as without --json. */
static void test_run_json(void **state) {
  (void)state;
  char streamed[4096];
  json_t *root = take_json(WEFT(NULL, FABLE, "--seed", "11", "--json"), 0);
  static const char *const numbers[] = {
      "load_ms", "prefill_ms", "decode_ms", "prefill_tokens_per_s", "decode_tokens_per_s", "peak_bytes"};
  for (size_t i = 0; i < WEFT_COUNT(numbers); i++) assert_true(get_number(root, numbers[i]) > 0);
  assert_string_equal(get_text(root, "model"), model());
  assert_memory_equal(get_text(root, "device"), "cpu (", 5);
  assert_int_equal((int)get_number(root, "seed"), 11);
  assert_true(json_array_size(get(root, "prompt_tokens")) > 3);
  assert_true(json_array_size(get(root, "tokens")) <= 16);
  get_text(root, "finish_reason");
  assert_null(json_object_get(root, "forced"));
  /* The same run as text says the same, and nothing else on either stream. */
  run_result text = WEFT(NULL, FABLE, "--seed", "11");
  snprintf(streamed, sizeof streamed, "%s\n", get_text(root, "text"));
  assert_string_equal(text.out, streamed);
  assert_string_equal(text.err, "");
  run_clear(&text);
  json_decref(root);
}

static void test_finish_reasons(void **state) {
  (void)state;
  json_t *root = take_json(WEFT(NULL, FABLE, "--json"), 0);
  assert_string_equal(get_text(root, "finish_reason"), "length");
  assert_int_equal((int)json_array_size(get(root, "tokens")), 16);
  json_decref(root);
  root = take_json(WEFT(NULL, "run", model(), "hi", "--raw", "--ctx", "4", "--json", "--ignore-eos"), 0);
  assert_string_equal(get_text(root, "finish_reason"), "length");
  json_decref(root);
}

/* The seed that a run drew repeats it. */
static void test_drawn_seed(void **state) {
  (void)state;
  char seed[32];
  json_t *root = take_json(WEFT(NULL, FABLE, "--json"), 0);
  snprintf(seed, sizeof seed, "%lld", (long long)json_integer_value(get(root, "seed")));
  json_t *again = take_json(WEFT(NULL, FABLE, "--json", "--seed", seed), 0);
  assert_string_equal(get_text(root, "text"), get_text(again, "text"));
  json_decref(root);
  json_decref(again);
  run_result r = WEFT(NULL, FABLE, "--verbose");
  assert_non_null(strstr(r.err, "seed: "));
  assert_non_null(strstr(r.err, "device: cpu"));
  run_clear(&r);
}

static void test_stop(void **state) {
  (void)state;
  char expected[256];
#define COUNT "run", model(), "--raw", "-p", "1 2 3 4 5 6 7", "--temperature", "0", "--exact", "-n", "24"
  run_result whole = WEFT(NULL, COUNT);
  assert_status(&whole, 0);
  const char *cut = strstr(whole.out, "10 11");
  if (!cut) fail_msg("it does not count: \"%s\"", whole.out);
  int n_kept = cut ? (int)(cut - whole.out) : 0;
  /* The stop string spans tokens, and none of it may show; of several the first to come counts. */
  snprintf(expected, sizeof expected, "%.*s\n", n_kept, whole.out);
  assert_output(WEFT(NULL, COUNT, "--stop", "never", "--stop", "10 11", "--stop=12"), expected);
  json_t *root = take_json(WEFT(NULL, COUNT, "--stop", "10 11", "--json"), 0);
  assert_string_equal(get_text(root, "finish_reason"), "stop");
  expected[n_kept] = 0;
  assert_string_equal(get_text(root, "text"), expected);
  json_decref(root);
  run_clear(&whole);
}

/* The first token that comes without: banned it does not come, and a large bias brings any other one. */
static void test_logit_bias(void **state) {
  (void)state;
  char bias[64];
  json_t *root = take_json(WEFT(NULL, COUNT, "--json"), 0), *tokens = get(root, "tokens");
  long long first = json_integer_value(json_array_get(tokens, 0)), other = first == 33 ? 34 : 33;
  snprintf(bias, sizeof bias, "%lld:-inf", first);
  json_t *banned = take_json(WEFT(NULL, COUNT, "--json", "--logit-bias", bias), 0);
  for (size_t i = 0; i < json_array_size(get(banned, "tokens")); i++)
    assert_int_not_equal(json_integer_value(json_array_get(get(banned, "tokens"), i)), first);
  snprintf(bias, sizeof bias, "%lld:100", other);
  json_t *forced = take_json(WEFT(NULL, COUNT, "--json", "--logit-bias", "7:1", "--logit-bias", bias), 0);
  assert_int_equal(json_integer_value(json_array_get(get(forced, "tokens"), 0)), other);
  json_decref(root);
  json_decref(banned);
  json_decref(forced);
  assert_error(WEFT(NULL, COUNT, "--logit-bias", "99999999:1"), 1, "token 99999999, outside the vocabulary");
}

/* How often the most frequent token of a greedy reply stands in it. */
static int most_repeats(json_t *root) {
  json_t *tokens = get(root, "tokens");
  int most = 0;
  for (size_t i = 0; i < json_array_size(tokens); i++) {
    int n = 0;
    for (size_t j = 0; j < json_array_size(tokens); j++)
      n += json_equal(json_array_get(tokens, i), json_array_get(tokens, j));
    if (n > most) most = n;
  }
  json_decref(root);
  return most;
}

/* Each penalty makes a counting model, whose every second token is a space, repeat itself less; without a window none does
 * anything. */
static void test_penalties(void **state) {
  (void)state;
  int plain = most_repeats(take_json(WEFT(NULL, COUNT, "--json"), 0));
  assert_true(plain > 5);
  static const char *const penalties[][2] = {
      {"--repeat-penalty", "3"}, {"--frequency-penalty", "2"}, {"--presence-penalty", "2"}};
  for (size_t i = 0; i < 2; i++)
    assert_true(most_repeats(take_json(WEFT(NULL, COUNT, "--json", penalties[i][0], penalties[i][1]), 0)) < plain);
  for (size_t i = 0; i < WEFT_COUNT(penalties); i++)
    assert_int_equal(
        most_repeats(take_json(WEFT(NULL, COUNT, "--json", penalties[i][0], penalties[i][1], "--repeat-last", "0"), 0)),
        plain);
}

/* Teacher forcing: what the model would have said at each step of a given text. */
static void test_forced_tokens(void **state) {
  (void)state;
  char ids[256] = "";
  json_t *free_run = take_json(WEFT(NULL, COUNT, "--json"), 0), *tokens = get(free_run, "tokens");
  for (size_t i = 0; i < json_array_size(tokens); i++)
    snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s%lld", i ? "," : "",
             (long long)json_integer_value(json_array_get(tokens, i)));
  /* Forced along the greedy path, every argmax is the next forced token. */
  json_t *root = take_json(WEFT(NULL, COUNT, "--json", "--force-tokens", ids), 0), *forced = get(root, "forced");
  assert_int_equal(json_array_size(forced), json_array_size(tokens));
  for (size_t i = 0; i < json_array_size(forced); i++) {
    const json_t *step = json_array_get(forced, i);
    assert_true(json_equal(get(step, "argmax"), json_array_get(tokens, i)));
    assert_true(get_number(step, "margin") >= 0);
  }
  assert_string_equal(get_text(root, "text"), get_text(free_run, "text"));
  json_decref(root);
  json_decref(free_run);
  run_result text = WEFT(NULL, COUNT, "--force-tokens", "33 33");
  assert_status(&text, 0);
  assert_memory_equal(text.out, "33\targmax ", 10);
  run_clear(&text);
  assert_error(WEFT(NULL, COUNT, "--force-tokens", "99999999"), 1, "99999999");
}

/* ---- the other commands ---- */

/* Text to ids to text, through a pipe as a script would. */
static void check_round_trip(const char *text) {
  char ids[4096] = "", *end = ids;
  json_t *root = take_json(WEFT(NULL, "tokenize", model(), "--json", "--", text), 0), *tokens = get(root, "tokens");
  assert_int_equal(json_array_size(tokens), json_array_size(get(root, "pieces")));
  for (size_t i = 0; i < json_array_size(tokens); i++)
    end += snprintf(end, (size_t)(ids + sizeof ids - end), "%lld\n",
                    (long long)json_integer_value(json_array_get(tokens, i)));
  const run_options o = {.input = ids, .n_input = strlen(ids)};
  json_t *back = take_json(WEFT(&o, "detokenize", model(), "--file", "-", "--json"), 0);
  assert_string_equal(get_text(back, "text"), text);
  assert_true(json_equal(get(back, "tokens"), tokens));
  json_decref(root);
  json_decref(back);
}

/* Spaces, line breaks, special tokens, emoji, quotes, and what looks like an option. */
static void test_tokenize_round_trip(void **state) {
  (void)state;
  check_round_trip("Hello world");
  check_round_trip("");
  check_round_trip("  leading, trailing and   many spaces  \n\n\t x\r\n");
  check_round_trip("<|im_start|>user\nq<|im_end|>");
  check_round_trip("Zebra \xf0\x9f\xa6\x93 na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac 1234567890 \"quotes\" \\ don't");
  check_round_trip("--json");
}

/* The forms for people, to the byte. */
static void test_tokenize_text(void **state) {
  (void)state;
  assert_output(WEFT(NULL, "tokenize", model(), "The capital\n<|im_end|>"),
                "504\t\"The\"\n3575\t\" capital\"\n198\t\"\\n\"\n2\t\"<|im_end|>\"\n");
  assert_output(WEFT(NULL, "detokenize", model(), "[504, 3575]"), "The capital\n");
  assert_output(WEFT(NULL, "detokenize", model(), "504", "2", "3575", "--no-special"), "The capital\n");
  json_t *root = take_json(WEFT(NULL, "tokenize", model(), "<|im_end|>", "--no-special", "--json"), 0);
  assert_true(json_array_size(get(root, "tokens")) > 1);
  json_decref(root);
  assert_error(WEFT(NULL, "detokenize", model(), "49152"), 1, "49152");
}

/* log sum exp over a full list of logits, minus the logit of `id`. */
static double nll_from_top(const json_t *top, json_int_t id) {
  double sum = 0, largest = get_number(json_array_get(top, 0), "logit"), chosen = NAN;
  for (size_t i = 0; i < json_array_size(top); i++) {
    double logit = get_number(json_array_get(top, i), "logit");
    sum += exp(logit - largest);
    if (json_integer_value(get(json_array_get(top, i), "id")) == id) chosen = logit;
  }
  return largest + log(sum) - chosen;
}

/* The first ids are those of the reference run of this model (tests/golden). */
static void test_logits(void **state) {
  (void)state;
  json_t *root = take_json(WEFT(NULL, "logits", model(), "--raw", "-p", "The capital of France is", "--json"), 0);
  const json_t *top = get(root, "top"), *best = json_array_get(top, 0);
  assert_int_equal((int)json_array_size(top), 10);
  assert_int_equal((int)json_array_size(get(root, "tokens")), 5);
  assert_string_equal(get_text(best, "piece"), " Paris");
  assert_int_equal((int)get_number(best, "id"), 7042);
  for (size_t i = 1; i < 10; i++)
    assert_true(get_number(json_array_get(top, i - 1), "logit") >= get_number(json_array_get(top, i), "logit"));
  json_decref(root);
  run_result text = WEFT(NULL, "logits", model(), "--raw", "The capital of France is", "--top", "1");
  assert_memory_equal(text.out, "7042\t", 5);
  assert_non_null(strstr(text.out, "\t\" Paris\"\n"));
  run_clear(&text);
}

/* The mean of a file's text, in exact arithmetic. */
static double score(const char *file, const char *ctx) {
  json_t *root = take_json(WEFT(NULL, "score", model(), "--text-file", file, "--ctx", ctx, "--exact", "--json"), 0);
  double nll = get_number(root, "nll_mean");
  assert_true(fabs(get_number(root, "perplexity") / exp(nll) - 1) < 1e-6);
  json_decref(root);
  return nll;
}

/* The score of two tokens is what the logits after the first say of the second. */
static void test_score(void **state) {
  (void)state;
  json_t *root = take_json(WEFT(NULL, "logits", model(), "--raw", "The", "--top", "1000000", "--exact", "--json"), 0);
  double expected = nll_from_top(get(root, "top"), 3575);
  json_decref(root);
  double pair = score(write_text("pair.txt", "The capital"), "64");
  if (!(fabs(pair - expected) < 1e-4 * expected)) fail_msg("%g, from the logits %g", pair, expected);
  /* Windows of one token see nothing but the token before. */
  double second_pair = score(write_text("pair.txt", " capital of"), "64");
  double windows = score(write_text("three.txt", "The capital of"), "1");
  if (!(fabs(windows - (pair + second_pair) / 2) < 1e-4 * windows))
    fail_msg("%g from %g, %g", windows, pair, second_pair);
  assert_error(WEFT(NULL, "score", model(), "--text-file", write_text("one.txt", "The")), 1, "it has 1 tokens");
}

/* A part of the text, and the form for people. */
static void test_score_limits(void **state) {
  (void)state;
  const char *file = write_text("long.txt", "The capital of France is Paris.");
  json_t *root = take_json(WEFT(NULL, "score", model(), "--text-file", file, "-n", "3", "--json"), 0);
  assert_int_equal((int)get_number(root, "n_tokens"), 3);
  json_decref(root);
  run_result text = WEFT(NULL, "score", model(), "--text-file", file);
  assert_non_null(strstr(text.out, "perplexity  "));
  run_clear(&text);
}

/* ---- benchmarks ---- */

/* A program that prints `lines` and ends with `status`, and leaves its arguments in a file. */
static const char *write_peer(const char *name, const char *lines, int status) {
  char script[512];
  snprintf(script, sizeof script, "#!/bin/sh\necho \"$@\" >>%s\nprintf '%s'\nexit %d\n", in_folder("peer_args"), lines,
           status);
  const char *path = write_text(name, script);
  assert_int_equal(chmod(path, 0755), 0);
  return path;
}

#define BENCH "bench", "llm", model(), "-p", "8", "-n", "2", "-d", "3", "-r", "2", "-t", "1"

/* The figures fit together; what they are is not a test's business. */
static void test_bench(void **state) {
  (void)state;
  json_t *root = take_json(WEFT(NULL, BENCH, "--json"), 0), *cases = get(root, "cases");
  static const char *const names[] = {"prefill 8", "decode 2 at depth 3"};
  assert_int_equal((int)json_array_size(cases), 2);
  for (size_t i = 0; i < 2; i++) {
    const json_t *row = json_array_get(cases, i);
    assert_string_equal(get_text(row, "name"), names[i]);
    assert_true(get_number(row, "min_ms") > 0);
    assert_true(get_number(row, "median_ms") >= get_number(row, "min_ms"));
    double rate = (i ? 2 : 8) / get_number(row, "median_ms") * 1e3;
    assert_true(fabs(get_number(row, "tokens_per_s") / rate - 1) < 1e-6);
    assert_true(json_is_null(get(row, "ratio")));
  }
  assert_true(get_number(root, "load_ms") > 0);
  assert_true(get_number(root, "first_token_ms") > get_number(root, "load_ms"));
  assert_true(get_number(root, "peak_bytes") > 0);
  json_decref(root);
  run_result text = WEFT(NULL, "bench", "llm", model(), "-p", "4", "-n", "0", "-r", "1");
  assert_status(&text, 0);
  assert_non_null(strstr(text.out, "prefill 4"));
  assert_null(strstr(text.out, "decode"));
  run_clear(&text);
}

/* The peer's figures are read from among its other lines, and the ratio is ours to theirs. */
static void test_bench_peer(void **state) {
  (void)state;
  char expected[512];
  const char *peer =
      write_peer("peer", "x\\nPREFILL 8: runs 1; median 250.5 t/s\\nDECODE 2: median 40.00 t/s (1)\\n", 0);
  json_t *root = take_json(WEFT(NULL, BENCH, "--json", "--peer", peer), 0), *cases = get(root, "cases");
  for (size_t i = 0; i < 2; i++) {
    const json_t *row = json_array_get(cases, i);
    assert_true(get_number(row, "peer_tokens_per_s") == (i ? 40 : 250.5));
    double ratio = get_number(row, "tokens_per_s") / get_number(row, "peer_tokens_per_s");
    assert_true(fabs(get_number(row, "ratio") / ratio - 1) < 1e-6);
  }
  json_decref(root);
  /* Once a repetition, with our shapes and threads. */
  snprintf(expected, sizeof expected, "-m %s -t 1 -p 8 -n 2 -d 3 -r 1\n", model());
  run_result args = run_program((const char *const[]){"cat", in_folder("peer_args"), NULL}, NULL);
  assert_int_equal(args.n_out, 2 * strlen(expected));
  assert_memory_equal(args.out, expected, strlen(expected));
  assert_string_equal(args.out + strlen(expected), expected);
  run_clear(&args);
}

/* A peer that does not do what it should is an error, never a ratio. */
static void test_bad_peer(void **state) {
  (void)state;
  assert_error(WEFT(NULL, BENCH, "--peer", "/nonexistent/peer"), 1, "/nonexistent/peer: No such file or directory");
  assert_error(WEFT(NULL, BENCH, "--peer", write_peer("silent", "", 0)), 1, "printed no line PREFILL");
  assert_error(WEFT(NULL, BENCH, "--peer", write_peer("half", "PREFILL median 1 t/s\\n", 0)), 1, "no line DECODE");
  assert_error(WEFT(NULL, BENCH, "--peer", write_peer("failing", "", 3)), 1, "failing: failed");
}

/* An interrupt does not leave the peer running behind. */
static void test_interrupted_peer(void **state) {
  (void)state;
  char script[256], pid[32] = "";
  const run_options o = {.interrupts = 1};
  const char *pid_path = in_folder("peer_pid");
  snprintf(script, sizeof script, "#!/bin/sh\necho $$ >%s\necho started >&2\nexec sleep 1000 2>&-\n", pid_path);
  const char *peer = write_text("sleeping", script);
  assert_int_equal(chmod(peer, 0755), 0);
  run_result r = WEFT(&o, BENCH, "--peer", peer);
  assert_status(&r, 130);
  assert_string_equal(r.err, "started\n");
  run_clear(&r);
  run_result written = run_program((const char *const[]){"cat", pid_path, NULL}, NULL);
  snprintf(pid, sizeof pid, "%s", written.out);
  run_clear(&written);
  assert_int_not_equal(kill((pid_t)strtol(pid, NULL, 10), 0), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wrong_usage),
      cmocka_unit_test(test_help),
      cmocka_unit_test(test_help_environment),
      cmocka_unit_test(test_version),
      cmocka_unit_test(test_cpu_variable),
      cmocka_unit_test(test_threads_variable),
      cmocka_unit_test(test_affinity),
      cmocka_unit_test(test_no_gpu),
      cmocka_unit_test(test_missing_model),
      cmocka_unit_test(test_no_permission),
      cmocka_unit_test(test_model_names),
      cmocka_unit_test(test_model_folder_from_xdg),
      cmocka_unit_test(test_malformed_files),
      cmocka_unit_test(test_unknown_architecture),
      cmocka_unit_test(test_info),
      cmocka_unit_test(test_closed_pipe),
      cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_no_stdout),
      cmocka_unit_test(test_pipe_closed_while_speaking),
      cmocka_unit_test(test_error_into_closed_pipe),
      cmocka_unit_test(test_interrupt),
      cmocka_unit_test(test_early_interrupt),
      cmocka_unit_test(test_inherited_stdin_is_not_read),
      cmocka_unit_test(test_prompt_sources),
      cmocka_unit_test(test_prompt_with_nul),
      cmocka_unit_test(test_system_message),
      cmocka_unit_test(test_long_prompt),
      cmocka_unit_test(test_answer),
      cmocka_unit_test(test_repeatable),
      cmocka_unit_test(test_no_mmap),
      cmocka_unit_test(test_run_json),
      cmocka_unit_test(test_finish_reasons),
      cmocka_unit_test(test_drawn_seed),
      cmocka_unit_test(test_stop),
      cmocka_unit_test(test_logit_bias),
      cmocka_unit_test(test_penalties),
      cmocka_unit_test(test_forced_tokens),
      cmocka_unit_test(test_tokenize_round_trip),
      cmocka_unit_test(test_tokenize_text),
      cmocka_unit_test(test_logits),
      cmocka_unit_test(test_score),
      cmocka_unit_test(test_score_limits),
      cmocka_unit_test(test_bench),
      cmocka_unit_test(test_bench_peer),
      cmocka_unit_test(test_bad_peer),
      cmocka_unit_test(test_interrupted_peer),
  };
  return cmocka_run_group_tests(tests, folder_create, folder_remove);
}
