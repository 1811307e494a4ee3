/* completions.c - completion of weft's command lines for bash, zsh and fish, from the tables that the parser reads.
 *
 * Each is a script that knows all commands, their options and what stands for a value: words to choose from, files, or
 * something that nobody can guess.  Only names of models are looked up when a line is completed, in the model folder. */
#include "output.h"
#include "pages.h"

#include <assert.h>
#include <string.h>

/* What completes a value or an argument. */
typedef enum source {
  FROM_NOTHING,
  FROM_WORDS, /* the option's choices */
  FROM_FILES,
  FROM_MODELS, /* names in the model folder, and files */
  FROM_COMMANDS,
} source;

static bool begins_with(const char *text, const char *beginning) {
  return strncmp(text, beginning, strlen(beginning)) == 0;
}

static source value_source(const cli_option *option) {
  if (option->kind == CLI_KIND_CHOICE) return FROM_WORDS;
  if (!option->value) return FROM_NOTHING;
  static const char *const files[] = {"FILE", "LIBRARY", "PROGRAM"};
  for (size_t i = 0; i < WEFT_COUNT(files); i++)
    if (begins_with(option->value, files[i])) return FROM_FILES;
  return begins_with(option->value, "MODEL") ? FROM_MODELS : FROM_NOTHING;
}

/* By the name of the first argument. */
static source argument_source(const cli_command *command) {
  const char *name = command->arguments + (command->arguments[0] == '[');
  if (begins_with(name, "MODEL") || begins_with(name, "FILE")) return FROM_MODELS;
  return begins_with(name, "COMMAND") ? FROM_COMMANDS : FROM_NOTHING;
}

/* ---- names ---- */

static int first_word_bytes(const cli_command *command) { return (int)strcspn(command->name, " "); }

static const char *second_word(const cli_command *command) {
  const char *space = strchr(command->name, ' ');
  return space ? space + 1 : NULL;
}

static bool same_first_word(const cli_command *a, const cli_command *b) {
  int n = first_word_bytes(a);
  return n == first_word_bytes(b) && memcmp(a->name, b->name, (size_t)n) == 0;
}

/* Whether no command before it has the same first word: of a group, its first. */
static bool is_first(const cli_command *const *command) {
  for (const cli_command *const *c = cli_commands; c != command; c++)
    if (same_first_word(*c, *command)) return false;
  return true;
}

/* The first words of all commands, with blanks between. */
static void print_first_words(void) {
  for (const cli_command *const *c = cli_commands; *c; c++)
    if (is_first(c)) cli_outf("%.*s ", first_word_bytes(*c), (*c)->name);
}

/* A word of one is described by its command, a group by its first. */
static const char *first_word_summary(const cli_command *command) {
  assert(command);
  for (const cli_command *const *c = cli_commands; *c; c++)
    if (!second_word(*c) && same_first_word(*c, command)) return (*c)->summary;
  return command->summary;
}

/* The words of a choice with blanks between, without the N that stands for any number. */
static void print_choices(const cli_option *option) {
  for (const char *word = option->value; *word;) {
    size_t n = strcspn(word, "|");
    if (!(n == 1 && *word == 'N')) cli_outf("%.*s ", (int)n, word);
    word += n + (word[n] == '|');
  }
}

/* Text inside single quotes, in the way of bash and zsh: a quote ends them, stands escaped, and begins them again.
 * Characters of `escape` get a backslash. */
static void print_quoted(const char *text, const char *escape) {
  for (; *text; text++) {
    if (strchr(escape, *text)) cli_out("\\", 1);
    if (*text == '\'')
      cli_outf("'\\''");
    else
      cli_out(text, 1);
  }
}

/* Shell code that both bash and zsh read: one name a line. */
static const char models_function[] =
    "_weft_models() {\n"
    "  local folder=${WEFT_MODELS:-${XDG_DATA_HOME:-$HOME/.local/share}/weft/models} file\n"
    "  for file in \"$folder\"/*.gguf; do\n"
    "    file=${file##*/}\n"
    "    file=${file%.gguf}\n"
    "    [ \"$file\" = '*' ] || printf '%s\\n' \"${file%-00001-of-[0-9]*}\"\n"
    "  done\n"
    "}\n\n";

/* ---- bash ---- */

/* The patterns of a case by the source of the value; the options without a source end with what has no completion. */
static void print_bash_values(const cli_command *command) {
  cli_option_walk walk = {.command = command};
  for (const cli_option *o; (o = cli_option_next(&walk));) {
    static const char *const sources[] = {"nothing", "words", "files", "models", "commands"};
    if (o->kind == CLI_KIND_FLAG) continue;
    cli_outf("    --%s", o->name);
    if (o->letter) cli_outf(" | -%c", o->letter);
    cli_outf(") source=%s", sources[value_source(o)]);
    if (value_source(o) == FROM_WORDS) {
      cli_outf(" choices='");
      print_choices(o);
      cli_out("'", 1);
    }
    cli_outf(" ;;\n");
  }
}

static void print_bash_command(const cli_command *command) {
  cli_outf(second_word(command) ? "  '%s')\n    options='" : "  '%s '*)\n    options='", command->name);
  cli_option_walk walk = {.command = command};
  for (const cli_option *o; (o = cli_option_next(&walk));) {
    cli_outf("--%s ", o->name);
    if (o->letter) cli_outf("-%c ", o->letter);
  }
  cli_outf("'\n");
  if (argument_source(command) == FROM_MODELS) cli_outf("    source=models\n");
  if (argument_source(command) == FROM_COMMANDS) cli_outf("    source=commands\n");
  cli_outf("    case $option in\n");
  print_bash_values(command);
  cli_outf("    esac\n    ;;\n");
}

/* Second words are offered beside what the first word alone takes. */
static void print_bash_groups(void) {
  cli_outf("  ((COMP_CWORD != 2)) || case $first in\n");
  for (const cli_command *const *c = cli_commands; *c; c++)
    if (second_word(*c))
      cli_outf("  %.*s) [[ %s != \"$cur\"* ]] || COMPREPLY+=(%s) ;;&\n", first_word_bytes(*c), (*c)->name,
               second_word(*c), second_word(*c));
  cli_outf("  esac\n");
}

/* The names of models that begin with $1.  compgen -W would expand them: a file may be called as a command to run. */
static const char bash_models_function[] = "_weft_models_from() {\n"
                                           "  local name\n"
                                           "  while IFS= read -r name; do\n"
                                           "    [[ $name != \"$1\"* ]] || printf '%s\\n' \"$name\"\n"
                                           "  done < <(_weft_models)\n"
                                           "}\n\n";

/* bash splits words at '=', which therefore may be a word before the value, or the last one typed. */
void cli_help_bash(void) {
  cli_outf("# Completion of weft for bash, written by `weft help --format bash`.\n\n");
  cli_outf("%s%s", models_function, bash_models_function);
  cli_outf("_weft() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} option='' found\n"
           "  local first=${COMP_WORDS[1]} second=${COMP_WORDS[2]-} options='' source='' choices='' commands='");
  print_first_words();
  cli_outf("'\n"
           "  COMPREPLY=()\n"
           "  if ((COMP_CWORD == 1)); then\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$commands --help --version\" -- \"$cur\")\n"
           "    return\n"
           "  fi\n"
           "  if [[ $cur == = ]]; then\n"
           "    option=$previous cur=''\n"
           "  elif [[ $previous == = ]]; then\n"
           "    option=${COMP_WORDS[COMP_CWORD - 2]}\n"
           "  elif [[ $previous == -* ]]; then\n"
           "    option=$previous\n"
           "  fi\n");
  print_bash_groups();
  cli_outf("  case \"$first $second\" in\n");
  for (const cli_command *const *c = cli_commands; *c; c++)
    if (second_word(*c)) print_bash_command(*c);
  for (const cli_command *const *c = cli_commands; *c; c++)
    if (!second_word(*c)) print_bash_command(*c);
  cli_outf("  esac\n"
           "  if [[ $cur == -* && $source != words ]]; then source=options; fi\n"
           "  case $source in\n"
           "  options) mapfile -t found < <(compgen -W \"$options\" -- \"$cur\") ;;\n"
           "  words) mapfile -t found < <(compgen -W \"$choices\" -- \"$cur\") ;;\n"
           "  commands) mapfile -t found < <(compgen -W \"$commands environment\" -- \"$cur\") ;;\n"
           "  files) mapfile -t found < <(compgen -f -- \"$cur\") ;;\n"
           "  models) mapfile -t found < <(_weft_models_from \"$cur\"; compgen -f -- \"$cur\") ;;\n"
           "  *) found=() ;;\n"
           "  esac\n"
           "  case $source in files | models) compopt -o filenames 2>/dev/null ;; esac\n"
           "  COMPREPLY+=(\"${found[@]}\")\n"
           "} && complete -F _weft weft\n");
}

/* ---- zsh ---- */

/* :MESSAGE:ACTION */
static void print_zsh_value(const cli_option *option) {
  cli_out(":", 1);
  print_quoted(option->kind == CLI_KIND_CHOICE ? option->name : option->value, ":\\");
  switch (value_source(option)) {
  case FROM_WORDS:
    cli_outf(":(");
    print_choices(option);
    cli_outf(")");
    break;
  case FROM_FILES:
    cli_outf(":_files");
    break;
  case FROM_MODELS:
    cli_outf(":_weft_model");
    break;
  default:
    cli_outf(": ");
  }
}

/* A specification of _arguments: both forms of an option exclude each other unless it may be repeated. */
static void print_zsh_option(const cli_option *option) {
  bool is_list = option->kind == CLI_KIND_LIST, is_flag = option->kind == CLI_KIND_FLAG;
  cli_outf(" \\\n      ");
  if (option->letter && is_list)
    cli_outf("'*'{-%c+,--%s=}'", option->letter, option->name);
  else if (option->letter)
    cli_outf(is_flag ? "'(-%c --%s)'{-%c,--%s}'" : "'(-%c --%s)'{-%c+,--%s=}'", option->letter, option->name,
             option->letter, option->name);
  else
    cli_outf("'%s--%s%s", is_list ? "*" : "", option->name, is_flag ? "" : "=");
  cli_out("[", 1);
  print_quoted(option->help, "[]\\");
  cli_out("]", 1);
  if (!is_flag) print_zsh_value(option);
  cli_out("'", 1);
}

/* _arguments takes the words behind the command's name. */
static void print_zsh_command(const cli_command *command) {
  int n = second_word(command) ? 2 : 1;
  cli_outf(n == 2 ? "  '%s')\n" : "  '%s '*)\n", command->name);
  cli_outf("    shift %d words\n    ((CURRENT -= %d))\n    _arguments", n, n);
  cli_option_walk walk = {.command = command};
  for (const cli_option *o; (o = cli_option_next(&walk));) print_zsh_option(o);
  if (argument_source(command) == FROM_MODELS) cli_outf(" \\\n      '*:model:_weft_model'");
  if (argument_source(command) == FROM_COMMANDS) {
    cli_outf(" \\\n      '*:topic:(");
    print_first_words();
    cli_outf("environment)'");
  }
  cli_outf("\n    ;;\n");
}

static void print_zsh_description(const char *name, int n, const char *summary) {
  cli_outf("    '%.*s:", n, name);
  print_quoted(summary, "\\");
  cli_outf("'\n");
}

void cli_help_zsh(void) {
  cli_outf("#compdef weft\n# Completion of weft for zsh, written by `weft help --format zsh`.\n\n");
  cli_outf("%s", models_function);
  cli_outf("_weft_model() {\n"
           "  local -a names\n"
           "  setopt local_options no_nomatch\n"
           "  names=(\"${(@f)$(_weft_models)}\")\n"
           "  compadd -a names\n"
           "  _files -g '*.gguf'\n"
           "}\n\n"
           "_weft() {\n  local -a commands\n  commands=(\n");
  for (const cli_command *const *c = cli_commands; *c; c++)
    if (is_first(c)) print_zsh_description((*c)->name, first_word_bytes(*c), first_word_summary(*c));
  cli_outf("  )\n  if ((CURRENT == 2)); then\n    _describe command commands\n    return\n  fi\n");
  for (const cli_command *const *c = cli_commands; *c; c++) {
    if (!second_word(*c)) continue;
    cli_outf("  if ((CURRENT == 3)) && [[ $words[2] == %.*s ]]; then\n    commands=(\n", first_word_bytes(*c),
             (*c)->name);
    print_zsh_description(second_word(*c), (int)strlen(second_word(*c)), (*c)->summary);
    cli_outf("    )\n    _describe command commands\n  fi\n");
  }
  cli_outf("  case \"$words[2] ${words[3]-}\" in\n");
  for (const cli_command *const *c = cli_commands; *c; c++)
    if (second_word(*c)) print_zsh_command(*c);
  for (const cli_command *const *c = cli_commands; *c; c++)
    if (!second_word(*c)) print_zsh_command(*c);
  cli_outf("  esac\n}\n\n_weft \"$@\"\n");
}

/* ---- fish ---- */

/* Inside single quotes only a quote and a backslash are special, and a backslash before them takes that away. */
static void print_fish_text(const char *text) {
  cli_out("'", 1);
  for (; *text; text++) {
    if (*text == '\'' || *text == '\\') cli_out("\\", 1);
    cli_out(text, 1);
  }
  cli_out("'", 1);
}

static void print_fish_option(const cli_command *command, const cli_option *option) {
  source from = value_source(option);
  cli_outf("complete -c weft -n '__weft_is %s' -l %s", command->name, option->name);
  if (option->letter) cli_outf(" -s %c", option->letter);
  if (option->kind != CLI_KIND_FLAG) cli_outf(from == FROM_FILES || from == FROM_MODELS ? " -r -F" : " -x");
  if (from == FROM_WORDS) {
    cli_outf(" -a '");
    print_choices(option);
    cli_out("'", 1);
  }
  if (from == FROM_MODELS) cli_outf(" -a '(__weft_models)'");
  cli_outf(" -d ");
  print_fish_text(option->help);
  cli_out("\n", 1);
}

static void print_fish_command(const cli_command *command) {
  cli_option_walk walk = {.command = command};
  for (const cli_option *o; (o = cli_option_next(&walk));) print_fish_option(command, o);
  if (argument_source(command) == FROM_MODELS)
    cli_outf("complete -c weft -n '__weft_is %s' -F -a '(__weft_models)'\n", command->name);
  if (argument_source(command) == FROM_COMMANDS) {
    cli_outf("complete -c weft -n '__weft_is %s' -a '", command->name);
    print_first_words();
    cli_outf("environment'\n");
  }
}

static void print_fish_names(void) {
  for (const cli_command *const *c = cli_commands; *c; c++) {
    if (is_first(c)) {
      cli_outf("complete -c weft -n '__weft_typed 1' -a %.*s -d ", first_word_bytes(*c), (*c)->name);
      print_fish_text(first_word_summary(*c));
      cli_out("\n", 1);
    }
    if (!second_word(*c)) continue;
    cli_outf("complete -c weft -n '__weft_typed 2; and __weft_is %.*s' -a %s -d ", first_word_bytes(*c), (*c)->name,
             second_word(*c));
    print_fish_text((*c)->summary);
    cli_out("\n", 1);
  }
}

void cli_help_fish(void) {
  cli_outf("# Completion of weft for fish, written by `weft help --format fish`.\n\n"
           "function __weft_typed\n"
           "    test (count (commandline -opc)) -eq $argv[1]\n"
           "end\n\n"
           "function __weft_is\n"
           "    set -l typed (commandline -opc)\n"
           "    set -l last (math 1 + (count $argv))\n"
           "    test (count $typed) -ge $last; and test \"$typed[2..$last]\" = \"$argv\"\n"
           "end\n\n"
           "function __weft_models\n"
           "    set -l folder ~/.local/share/weft/models\n"
           "    test -n \"$XDG_DATA_HOME\"; and set folder $XDG_DATA_HOME/weft/models\n"
           "    test -n \"$WEFT_MODELS\"; and set folder $WEFT_MODELS\n"
           "    for file in $folder/*.gguf\n"
           "        string replace -r -- '(-00001-of-\\d+)?\\.gguf$' '' (basename $file)\n"
           "    end\n"
           "end\n\n"
           "complete -c weft -f\n");
  print_fish_names();
  for (const cli_command *const *c = cli_commands; *c; c++) print_fish_command(*c);
}
