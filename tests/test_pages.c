/* test_pages.c - the man page and the completions of shells, as the programs that read them see them.
 *
 * The table that the program prints as JSON is walked, so a command or an option that is added later is tested too. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/folder.h"
#include "support/weft_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *table; /* what weft help --json prints */

/* Runs a script of `shell` with $T the temporary folder, which is also the model folder. */
static run_result run_shell(const char *shell, const char *script) {
  char t[64], models[64];
  snprintf(t, sizeof t, "T=%s", folder_path());
  snprintf(models, sizeof models, "WEFT_MODELS=%s/models", folder_path());
  run_result r = run_program((const char *const[]){shell, "-c", script, NULL},
                             &(run_options){.environment = (const char *const[]){t, models, NULL}});
  assert_status(&r, 0);
  assert_string_equal(r.err, "");
  return r;
}

static void save_format(const char *format) {
  char path[64];
  run_result r = WEFT(NULL, "help", "--format", format);
  assert_status(&r, 0);
  snprintf(path, sizeof path, "%s/%s", folder_path(), format);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(r.out, 1, r.n_out, file), r.n_out);
  assert_int_equal(fclose(file), 0);
  run_clear(&r);
}

static int create_folder(void **state) {
  if (folder_create(state)) return -1;
  static const char *const formats[] = {"man", "bash", "zsh", "fish"};
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) save_format(formats[i]);
  run_result r = run_shell("bash", "mkdir $T/models && touch $T/models/{small.gguf,big-00001-of-00002.gguf}");
  run_clear(&r);
  table = take_json(WEFT(NULL, "help", "--json"), 0);
  return 0;
}

static int remove_folder(void **state) {
  json_decref(table);
  return folder_remove(state);
}

/* Whether a line of the text begins with `word`, which ends there or before a blank, tab or one of "=+[". */
static int has_line(const char *text, const char *word) {
  size_t n = strlen(word);
  for (const char *line = text; line; line = strchr(line, '\n'), line += line != NULL)
    if (strncmp(line, word, n) == 0 && (!line[n] || strchr(" \n\t=+[", line[n]))) return 1;
  return 0;
}

/* Calls `check` with every command and what `script`, a format with one %s for the command's name, prints for it. */
static void for_each_command(const char *shell, const char *script,
                             void (*check)(const char *name, const json_t *option, const char *said)) {
  const json_t *commands = get(table, "commands");
  char text[1024];
  assert_true(json_array_size(commands) >= 15);
  for (size_t c = 0; c < json_array_size(commands); c++) {
    const json_t *command = json_array_get(commands, c), *options = get(command, "options");
    snprintf(text, sizeof text, script, get_text(command, "name"), get_text(command, "name"));
    run_result r = run_shell(shell, text);
    for (size_t o = 0; o < json_array_size(options); o++)
      check(get_text(command, "name"), json_array_get(options, o), r.out);
    run_clear(&r);
  }
}

static void check_long_name(const char *name, const json_t *option, const char *said) {
  char word[64];
  snprintf(word, sizeof word, "--%s", get_text(option, "name"));
  if (!has_line(said, word)) fail_msg("%s: %s is not offered, but: %s", name, word, said);
}

/* ---- the man page ---- */

/* Neither macros nor requests that roff does not know, and every character is one that it has. */
static void test_man_page_is_clean(void **state) {
  (void)state;
  run_result r =
      run_shell("bash", "groff -man -ww -Tutf8 -z $T/man 2>&1; LC_ALL=C.UTF-8 groff -man -ww -Tascii -z $T/man 2>&1");
  assert_string_equal(r.out, "");
  run_clear(&r);
}

/* The rendered section of a command begins with its line and ends with the next one. */
static void check_in_page(const char *name, const json_t *option, const char *said) {
  char word[64];
  snprintf(word, sizeof word, "--%s", get_text(option, "name"));
  if (!strstr(said, word)) fail_msg("man page: %s lacks %s", name, word);
  if (json_is_string(get(option, "value")) && !strstr(said, get_text(option, "value")))
    fail_msg("man page: the value of %s %s is not shown", name, word);
}

static void test_man_page_has_all(void **state) {
  (void)state;
  for_each_command("bash",
                   "groff -man -Tascii -P-cbou -rLL=300n $T/man | awk '/^   weft /{on=0} "
                   "/^   weft %s \\[options\\]/{on=1} /^[A-Z]/{on=0} on'",
                   check_in_page);
  run_result r = run_shell("bash", "groff -man -Tascii -P-cbou -rLL=300n $T/man");
  json_t *root = take_json(WEFT(NULL, "help", "environment", "--json"), 0), *value;
  const char *name;
  json_object_foreach(get(root, "environment"), name, value) assert_non_null(strstr(r.out, name));
  assert_non_null(strstr(r.out, "weft - run language models"));
  assert_non_null(strstr(r.out, "EXIT STATUS"));
  json_decref(root);
  run_clear(&r);
}

/* ---- completions ---- */

#define BASH                                                                                                           \
  "source $T/bash\n"                                                                                                   \
  "ask() { COMP_WORDS=(weft \"$@\"); COMP_CWORD=$#; _weft; printf '%%s\\n' \"${COMPREPLY[@]}\"; }\n"

static void test_bash_options(void **state) {
  (void)state;
  for_each_command("bash", BASH "ask %s --", check_long_name);
}

/* The script prints exactly `text`. */
static void assert_said(const char *shell, const char *script, const char *text) {
  run_result r = run_shell(shell, script);
  assert_string_equal(r.out, text);
  run_clear(&r);
}

#define ASK                                                                                                            \
  "source $T/bash\n"                                                                                                   \
  "ask() { COMP_WORDS=(weft \"$@\"); COMP_CWORD=$#; _weft; echo \"${COMPREPLY[@]}\"; }\n"

/* Commands, second words, choices in each way to write them, names of models; nothing where nobody can guess. */
static void test_bash_words(void **state) {
  (void)state;
  assert_said("bash", ASK "ask to", "tokenize\n");
  assert_said("bash", ASK "ask bench ll; ask help deto; ask help env", "llm\ndetokenize\nenvironment\n");
  assert_said("bash", ASK "ask run m --device h; ask run m --device = h; ask run --device =",
              "high\nhigh\nauto cpu gpu low high\n");
  assert_said("bash", ASK "cd $T/models; ask run small; ask info bi; ask run -t 2 sm",
              "small small.gguf\nbig big-00001-of-00002.gguf\nsmall small.gguf\n");
  assert_said("bash", ASK "cd $T/models; ask run m --prompt-file sm; ask run m --prompt ''; ask run m -n ''",
              "small.gguf\n\n\n");
}

/* Names of files are data: none is run, and none is split at its spaces. */
static void test_bash_odd_names(void **state) {
  (void)state;
  assert_said("bash",
              ASK "mkdir $T/odd; cd $T/odd; export WEFT_MODELS=$T/odd\n"
                  "touch 'two words.gguf' '$(touch ran).gguf' '`touch ran`.gguf'\n"
                  "ask run tw; ask run '$('; test ! -e ran",
              "two words two words.gguf\n$(touch ran) $(touch ran).gguf\n");
}

#define ZSH                                                                                                            \
  "_arguments() { print -rl -- $@ }; _describe() { print -rl -- $commands }; compdef() { }; _files() { }\n"            \
  "ask() { words=(weft $@); CURRENT=$(( $# + 1 )); source $T/zsh }\n"

/* Without its surroundings zsh's _arguments only shows what it would get. */
static void check_zsh(const char *name, const json_t *option, const char *said) {
  char word[64];
  snprintf(word, sizeof word, "--%s", get_text(option, "name"));
  const char *at = strstr(said, word);
  while (at && strchr("abcdefghijklmnopqrstuvwxyz-", at[strlen(word)])) at = strstr(at + 1, word);
  if (!at) fail_msg("%s: %s is not offered, but: %s", name, word, said);
}

static void test_zsh_options(void **state) {
  (void)state;
  for_each_command("zsh", ZSH "ask %s --", check_zsh);
}

static void test_zsh_words(void **state) {
  (void)state;
  assert_said(
      "zsh", ZSH "ask to | grep ^tokenize; ask bench '' | grep ^llm",
      "tokenize:turn text into token ids\nllm:measure the speed of a model, beside another program's if wanted\n");
}

static void test_fish_options(void **state) {
  (void)state;
  for_each_command("fish", "source $T/fish; complete -C 'weft %s --'", check_long_name);
}

static void test_fish_words(void **state) {
  (void)state;
#define FISH(line) "source $T/fish; complete -C '" line "' | cut -f 1"
  assert_said("fish", FISH("weft toke"), "tokenize\n");
  assert_said("fish", FISH("weft bench ll"), "llm\n");
  assert_said("fish", FISH("weft run m --device h"), "high\n");
  assert_said("fish", FISH("weft run m --device=h"), "--device=high\n");
  assert_said("fish", FISH("weft run sma"), "small\n");
  assert_said("fish", FISH("weft help env"), "environment\n");
}

/* ---- wrong usage ---- */

static void test_wrong_format(void **state) {
  (void)state;
  assert_error(WEFT(NULL, "help", "--format", "html"), 2, "--format: 'html' is not one of its values");
  assert_error(WEFT(NULL, "help", "run", "--format", "man"), 2,
               "--format: the man page and the completions are of all");
  assert_error(WEFT(NULL, "help", "--json", "--format", "man"), 2, "(leave out '--json')");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_man_page_is_clean), cmocka_unit_test(test_man_page_has_all),
      cmocka_unit_test(test_bash_options),      cmocka_unit_test(test_bash_words),
      cmocka_unit_test(test_zsh_options),       cmocka_unit_test(test_zsh_words),
      cmocka_unit_test(test_fish_options),      cmocka_unit_test(test_fish_words),
      cmocka_unit_test(test_wrong_format),      cmocka_unit_test(test_bash_odd_names),
  };
  return cmocka_run_group_tests(tests, create_folder, remove_folder);
}
