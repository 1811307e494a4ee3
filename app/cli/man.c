/* man.c - the man page weft(1), in the macros of man(7): the same tables as help, laid out by whoever reads it. */
#include "output.h"
#include "pages.h"

#include <string.h>

/* What roff acts on, or shows as another character than the one meant, as its escape; NULL: the character itself. */
static const char *escaped(char c) {
  switch (c) {
  case '\\':
    return "\\e";
  case '-':
    return "\\-";
  case '\'':
    return "\\(aq";
  case '"':
    return "\\(dq";
  case '`':
    return "\\(ga";
  case '^':
    return "\\(ha";
  case '~':
    return "\\(ti";
  default:
    return NULL;
  }
}

/* A dot at the beginning of a line would be a request. */
static void print_text(const char *text, size_t n) {
  if (n > 0 && text[0] == '.') cli_outf("\\&");
  for (size_t i = 0; i < n; i++) {
    const char *escape = escaped(text[i]);
    if (escape)
      cli_outf("%s", escape);
    else
      cli_out(&text[i], 1);
  }
}

static void print_string(const char *text) { print_text(text, strlen(text)); }

static void print_paragraphs(const char *text) {
  const char *start;
  size_t n;
  while (cli_next_paragraph(&text, &start, &n)) {
    cli_outf(".PP\n");
    print_text(start, n);
    cli_out("\n", 1);
  }
}

/* A term in bold, and what it means. */
static void print_term(const char *term, const char *meaning) {
  cli_outf(".TP\n\\fB");
  print_string(term);
  cli_outf("\\fR\n");
  print_string(meaning);
  cli_out("\n", 1);
}

static void print_option(const cli_option *option) {
  cli_outf(".TP\n");
  if (option->letter) cli_outf("\\fB\\-%c\\fR, ", option->letter);
  cli_outf("\\fB\\-\\-");
  print_string(option->name);
  cli_outf("\\fR");
  if (option->value) {
    cli_outf(" \\fI");
    print_string(option->value);
    cli_outf("\\fR");
  }
  cli_out("\n", 1);
  print_string(option->help);
  cli_out("\n", 1);
}

/* Lines as they stand. */
static void print_examples(const char *examples) {
  const char *line;
  size_t n;
  cli_outf(".PP\nExamples:\n.PP\n.RS 4\n.nf\n");
  while (cli_next_paragraph(&examples, &line, &n)) {
    print_text(line, n);
    cli_out("\n", 1);
  }
  cli_outf(".fi\n.RE\n");
}

static void print_command(const cli_command *command) {
  cli_outf(".SS \"weft ");
  print_string(command->name);
  cli_outf(" [options] ");
  print_string(command->arguments);
  cli_outf("\"\n");
  print_string(command->summary);
  cli_outf(".\n");
  print_paragraphs(command->details);
  cli_option_walk walk = {.command = command};
  for (const cli_option *o; (o = cli_option_next(&walk));) print_option(o);
  print_examples(command->examples);
}

void cli_help_man(void) {
  cli_outf(".TH WEFT 1 \"\" \"weft %s\" \"User Commands\"\n.SH NAME\nweft \\- run language models and tensor code\n"
           ".SH SYNOPSIS\n\\fBweft\\fR \\fICOMMAND\\fR [options] [arguments]\n.SH DESCRIPTION\n",
           weft_version());
  print_string(cli_about);
  cli_out("\n", 1);
  print_paragraphs(cli_conventions);
  cli_outf(".SH COMMANDS\n");
  for (const cli_command *const *c = cli_commands; *c; c++) print_command(*c);
  cli_outf(".SH ENVIRONMENT\n");
  for (const cli_variable *v = cli_variables; v->name; v++) print_term(v->name, v->meaning);
  cli_outf(".SH EXIT STATUS\n");
  for (const cli_exit_meaning *e = cli_exit_meanings; e->meaning; e++) {
    cli_outf(".TP\n\\fB%d\\fR\n", e->status);
    print_string(e->meaning);
    cli_out("\n", 1);
  }
}
