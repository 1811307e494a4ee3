/* help.c - help pages, printed from the tables that the parser reads. */
#include "output.h"
#include "pages.h"

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

static void print_paragraphs(const char *text, int indent) {
  const char *start;
  size_t n;
  while (cli_next_paragraph(&text, &start, &n)) print_paragraph(start, n, indent);
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
  cli_outf("weft %s: %s\n\nUsage: weft %s [options]%s%s\n", command->name, command->summary, command->name,
           command->arguments[0] ? " " : "", command->arguments);
  if (command->details) {
    cli_out("\n", 1);
    print_paragraphs(command->details, 0);
  }
  cli_outf("\nOptions:\n");
  cli_option_walk walk = {.command = command};
  for (const cli_option *o; (o = cli_option_next(&walk));) print_option(o);
  cli_outf("\nExamples:\n");
  const char *examples = command->examples, *line;
  for (size_t n; cli_next_paragraph(&examples, &line, &n);) cli_outf("%*s%.*s\n", OPTION_INDENT, "", (int)n, line);
}

/* The exit statuses are listed here because scripts are written against them. */
void cli_help_overview(void) {
  cli_outf("%s\n\nUsage: weft COMMAND [options]\n\nCommands:\n", cli_about);
  for (const cli_command *const *c = cli_commands; *c; c++) cli_outf("    %-12s %s\n", (*c)->name, (*c)->summary);
  cli_outf("\nweft help COMMAND (or weft COMMAND --help) has the options and examples of a command,\n"
           "weft help environment the environment variables.\n\n");
  print_paragraphs(cli_conventions, 0);
  cli_outf("\nExit status:\n");
  for (const cli_exit_meaning *e = cli_exit_meanings; e->meaning; e++) cli_outf("    %3d  %s\n", e->status, e->meaning);
}
