/* help.c - help pages, printed from the tables that the parser reads. */
#include "output.h"

#include <string.h>

enum { WIDTH = 100, OPTION_INDENT = 4, HELP_INDENT = 8 };

/* Prints n bytes of text as a paragraph: broken at spaces, each line indented. */
static void print_paragraph(const char *text, size_t n, int indent) {
  int column = 0;
  while (n > 0) {
    size_t n_word = 0;
    while (n_word < n && text[n_word] != ' ') n_word++;
    if (column > 0 && column + 1 + (int)n_word > WIDTH) {
      cli_out("\n", 1);
      column = 0;
    }
    if (column == 0) cli_outf("%*s", indent, "");
    cli_outf("%s%.*s", column ? " " : "", (int)n_word, text);
    column += column ? 1 + (int)n_word : indent + (int)n_word;
    text += n_word;
    n -= n_word;
    if (n > 0) text++, n--;
  }
  cli_out("\n", 1);
}

/* Prints each line of `text` as a paragraph. */
static void print_lines(const char *text, int indent) {
  while (*text) {
    size_t n = strcspn(text, "\n");
    print_paragraph(text, n, indent);
    text += n;
    if (*text) text++;
  }
}

/* The name on a line of its own, then the text: long names and long texts need no columns that fit them all. */
static void print_option(const cli_option *option) {
  cli_outf("%*s", OPTION_INDENT, "");
  if (option->letter) cli_outf("-%c, ", option->letter);
  cli_outf("--%s%s%s\n", option->name, option->value ? " " : "", option->value ? option->value : "");
  print_paragraph(option->help, strlen(option->help), HELP_INDENT);
}

/* Common options that do nothing for the command are accepted by it but not shown. */
void cli_help_command(const cli_command *command) {
  cli_outf("weft %s: %s\n\nUsage: weft %s [options] %s\n", command->name, command->summary, command->name,
           command->arguments);
  if (command->details) {
    cli_out("\n", 1);
    print_lines(command->details, 0);
  }
  cli_outf("\nOptions:\n");
  for (const cli_option *o = command->options; o && o->name; o++) print_option(o);
  for (const cli_option *o = cli_common_options; o->name; o++)
    if ((o->needs & ~command->uses) == 0) print_option(o);
  cli_outf("\nExamples:\n");
  for (const char *line = command->examples; *line; line += strcspn(line, "\n"), line += *line == '\n')
    cli_outf("%*s%.*s\n", OPTION_INDENT, "", (int)strcspn(line, "\n"), line);
}

/* The exit statuses are listed here because scripts are written against them. */
void cli_help_overview(void) {
  cli_outf("weft runs language models on this machine.\n\nUsage: weft COMMAND [options]\n\nCommands:\n");
  for (const cli_command *const *c = cli_commands; *c; c++) cli_outf("    %-12s %s\n", (*c)->name, (*c)->summary);
  cli_outf("\nweft help COMMAND (or weft COMMAND --help) has the options and examples of a command,\n"
           "weft help environment the environment variables.\n\n"
           "MODEL is a .gguf file, or the name of one in the model folder without the suffix; the beginning of a name\n"
           "is enough where it fits only one. Results go to standard output, everything else to standard error.\n\n"
           "Exit status: 0 done, 1 failed, 2 wrong usage, 3 the device asked for is not there, 130 interrupted,\n"
           "141 standard output was closed.\n");
}
