/* options.c - the parser of command lines.
 *
 * Long options take their value as --name=value or --name value, short ones as -x value or -xvalue; options and other
 * arguments may stand in any order, and "--" ends the options.  A value is taken as it stands even if it begins with a
 * dash.  Names are never abbreviated, because a script that abbreviates breaks with the next option. */
#include "options.h"
#include "output.h"

#include "base/base.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ----
 *
 * A typing error is answered with the nearest name.  Words beyond MAX_NAME_BYTES are compared by their beginning: no
 * name is longer, and the tables below have a fixed size. */

enum { MAX_NAME_BYTES = 63 };

static int min_int(int a, int b) { return a < b ? a : b; }

/* Optimal string alignment: Levenshtein's distance with swaps of neighbours, over three rows of its table. */
static int edit_distance(const char *a, int n_a, const char *b, int n_b) {
  int rows[3][MAX_NAME_BYTES + 1];
  for (int j = 0; j <= n_b; j++) rows[0][j] = j;
  for (int i = 1; i <= n_a; i++) {
    int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= n_b; j++) {
      row[j] = min_int(min_int(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = min_int(row[j], above2[j - 2] + 1);
    }
  }
  return rows[n_a % 3][n_b];
}

int cli_distance(const char *word, const char *name) {
  size_t n_word = strlen(word), n_name = strlen(name);
  if (n_word >= 2 && strncmp(word, name, n_word) == 0) return 0;
  return edit_distance(word, (int)(n_word < MAX_NAME_BYTES ? n_word : MAX_NAME_BYTES), name,
                       (int)(n_name < MAX_NAME_BYTES ? n_name : MAX_NAME_BYTES));
}

/* The option of `name` (n bytes) or, if name is NULL, of `letter`; the command's own first. */
static const cli_option *find_option(const cli_command *command, const char *name, size_t n, char letter) {
  const cli_option *tables[] = {command->options, cli_common_options};
  for (size_t t = 0; t < WEFT_COUNT(tables); t++)
    for (const cli_option *o = tables[t]; o && o->name; o++) {
      if (name ? strlen(o->name) == n && memcmp(o->name, name, n) == 0 : o->letter == letter) return o;
    }
  return NULL;
}

/* Always some name, however far: the reader judges better than a threshold whether it was meant. */
static const char *nearest_option(const cli_command *command, const char *word) {
  const cli_option *tables[] = {command->options, cli_common_options};
  const char *best = "help";
  int best_distance = INT_MAX;
  for (size_t t = 0; t < WEFT_COUNT(tables); t++)
    for (const cli_option *o = tables[t]; o && o->name; o++) {
      int distance = cli_distance(word, o->name);
      if (distance < best_distance) best = o->name, best_distance = distance;
    }
  return best;
}

/* Names outside of a command line are mostly written with _. */
static bool is_name(const char *name, const char *word) {
  for (; *name && (*name == *word || (*name == '-' && *word == '_')); name++, word++) continue;
  return !*name && !*word;
}

const cli_option *cli_option_named(const cli_option *table, const char *name) {
  for (const cli_option *o = table; o->name; o++)
    if (is_name(o->name, name)) return o;
  return NULL;
}

const char *cli_option_nearest(const cli_option *table, const char *word) {
  const char *best = table->name;
  for (const cli_option *o = table; o->name; o++)
    if (cli_distance(word, o->name) < cli_distance(word, best)) best = o->name;
  return best;
}

/* Reports the word without its value, which may be long or secret. */
static cli_exit unknown_option(const cli_command *command, const char *argument) {
  char name[MAX_NAME_BYTES + 1];
  const char *start = argument + strspn(argument, "-");
  size_t n = strcspn(start, "=");
  if (n > MAX_NAME_BYTES) n = MAX_NAME_BYTES;
  memcpy(name, start, n);
  name[n] = 0;
  cli_error("%.*s: unknown option of weft %s (the nearest is --%s; weft help %s lists all, and -- ends the options)",
            (int)(start - argument + (ptrdiff_t)n), argument, command->name, nearest_option(command, name),
            command->name);
  return CLI_USAGE;
}

/* ---- values ----
 *
 * A number is all of its text or an error that names the range: "12abc" as 12 would hide a typing error, and a value
 * outside of the range cut to it would run something else than was asked for. */

bool cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *value) {
  const char *digits = text[0] == '-' ? text + 1 : text;
  if (!*digits || digits[strspn(digits, "0123456789")]) return false;
  errno = 0;
  long long parsed = strtoll(text, NULL, 10);
  if (errno || parsed < min || parsed > max) return false;
  *value = parsed;
  return true;
}

/* Decimal notation alone: strtod would also take "inf", "nan", hexadecimal and leading space. */
bool cli_parse_real(const char *text, double min, double max, float *value) {
  if (!*text || text[strspn(text, "0123456789+-.eE")]) return false;
  char *end;
  double parsed = strtod(text, &end);
  if (end == text || *end || !(parsed >= min && parsed <= max)) return false;
  *value = (float)parsed;
  return true;
}

/* The index of `word` among "a|b|N", or -1; a number counts on from the index of N, the last. */
static int find_choice(const char *choices, const char *word) {
  int64_t number;
  size_t n_word = strlen(word);
  int index = 0;
  for (const char *c = choices;; c++, index++) {
    size_t n = strcspn(c, "|");
    if (n == 1 && *c == 'N' && cli_parse_int(word, 0, INT_MAX - index, &number)) return index + (int)number;
    if (n == n_word && memcmp(c, word, n) == 0 && !(n == 1 && *c == 'N')) return index;
    c += n;
    if (!*c) return -1;
  }
}

static cli_exit bad_number(const cli_option *option, const char *text, const char *kind) {
  cli_error("--%s: '%s' is not a %s from %lld to %lld (give one in this range)", option->name, text, kind,
            (long long)option->min, (long long)option->max);
  return CLI_USAGE;
}

/* `field` is an int or an int64_t, as the kind says. */
static cli_exit set_int(const cli_option *option, const char *text, void *field) {
  int64_t number;
  if (!cli_parse_int(text, option->min, option->max, &number)) return bad_number(option, text, "whole number");
  if (option->kind == CLI_KIND_INT64)
    *(int64_t *)field = number;
  else
    *(int *)field = (int)number;
  return CLI_OK;
}

static cli_exit set_real(const cli_option *option, const char *text, void *field) {
  if (cli_parse_real(text, (double)option->min, (double)option->max, field)) return CLI_OK;
  return bad_number(option, text, "number");
}

/* The field gets the index, so that a command compares with its own enum and never with text. */
static cli_exit set_choice(const cli_option *option, const char *text, void *field) {
  int index = find_choice(option->value, text);
  if (index < 0) {
    cli_error("--%s: '%s' is not one of its values (give %s)", option->name, text, option->value);
    return CLI_USAGE;
  }
  *(int *)field = index;
  return CLI_OK;
}

/* On failure the list stays as it was, and cli_options_clear still frees it. */
static cli_exit add_to_list(const char *text, cli_list *list) {
  const char **items = weft__realloc(list->items, list->n + 1, sizeof *items);
  if (!items) return cli_fail();
  list->items = items;
  list->items[list->n++] = text;
  return CLI_OK;
}

/* Stores the option's value; `text` is NULL for a flag. */
cli_exit cli_option_set(const cli_option *option, const char *text, void *options) {
  void *field = (char *)options + option->offset;
  switch (option->kind) {
  case CLI_KIND_FLAG:
    *(bool *)field = true;
    return CLI_OK;
  case CLI_KIND_TEXT:
    *(const char **)field = text;
    return CLI_OK;
  case CLI_KIND_INT:
  case CLI_KIND_INT64:
    return set_int(option, text, field);
  case CLI_KIND_REAL:
    return set_real(option, text, field);
  case CLI_KIND_CHOICE:
    return set_choice(option, text, field);
  case CLI_KIND_LIST:
    return add_to_list(text, field);
  }
  return CLI_OK;
}

/* Brackets too, so that a list can be pasted from JSON. */
static bool is_id_separator(char c) { return c && strchr(", \t\r\n[]", c); }

cli_exit cli_parse_ids(const char *what, const char *text, int32_t **ids, size_t *n_ids) {
  /* Two bytes of text make at most one id and its separator. */
  int32_t *list = weft__alloc(strlen(text) / 2 + 1, sizeof *list);
  if (!list) return cli_fail();
  size_t n = 0;
  while (*text) {
    char word[16];
    int64_t id;
    size_t n_word = 0;
    while (is_id_separator(*text)) text++;
    while (text[n_word] && !is_id_separator(text[n_word])) n_word++;
    if (n_word == 0) break;
    snprintf(word, sizeof word, "%.*s", (int)min_int((int)n_word, sizeof word - 1), text);
    if (n_word >= sizeof word || !cli_parse_int(word, 0, INT32_MAX, &id)) {
      cli_error("%s: '%s' is not a token id (give whole numbers from 0, separated by commas or spaces)", what, word);
      weft_free(list);
      return CLI_USAGE;
    }
    list[n++] = (int32_t)id;
    text += n_word;
  }
  *ids = list;
  *n_ids = n;
  return CLI_OK;
}

/* ---- the command line ---- */

/* Where reading stands.  `options` is the command's structure, which cli_option_set writes to by offset. */
typedef struct parser {
  const cli_command *command;
  int argc, next; /* next word to read */
  char **argv;
  void *options;
} parser;

/* Sets `option` from `attached` (what stands in the same word) or else the next word. */
static cli_exit read_value(parser *p, const cli_option *option, const char *attached) {
  if (option->kind == CLI_KIND_FLAG) {
    if (!attached) return cli_option_set(option, NULL, p->options);
    cli_error("--%s: takes no value (leave out '%s')", option->name, attached);
    return CLI_USAGE;
  }
  if (!attached && p->next >= p->argc) {
    cli_error("--%s: needs a value (give %s)", option->name, option->value);
    return CLI_USAGE;
  }
  return cli_option_set(option, attached ? attached : p->argv[p->next++], p->options);
}

/* Reads one word that begins with a dash, and its value.  A long word is split at '='; a short one has its value right
 * behind the letter.  Letters are not grouped: -nh would be a wrong number, not two options. */
static cli_exit read_option(parser *p, const char *word) {
  if (word[1] == '-') {
    size_t n = strcspn(word + 2, "=");
    const cli_option *option = find_option(p->command, word + 2, n, 0);
    if (!option) return unknown_option(p->command, word);
    return read_value(p, option, word[2 + n] ? word + 2 + n + 1 : NULL);
  }
  const cli_option *option = find_option(p->command, NULL, 0, word[1]);
  if (!option || (option->kind == CLI_KIND_FLAG && word[2])) return unknown_option(p->command, word);
  return read_value(p, option, word[2] ? word + 2 : NULL);
}

/* Too many arguments are mostly a text without quotes, so that message says how to write one. */
static cli_exit check_args(const cli_command *command, const cli_args *args) {
  if (args->n >= command->min_args && args->n <= command->max_args) return CLI_OK;
  if (args->n < command->min_args)
    cli_error("%s: an argument is missing (usage: weft %s [options] %s)", command->name, command->name,
              command->arguments);
  else if (command->max_args == 0)
    cli_error("%s: '%s' is one argument too many (usage: weft %s [options])", command->name, args->values[0],
              command->name);
  else
    cli_error("%s: '%s' is one argument too many (usage: weft %s [options] %s; quote a text with spaces)",
              command->name, args->values[command->max_args], command->name, command->arguments);
  return CLI_USAGE;
}

cli_exit cli_options_parse(const cli_command *command, int argc, char **argv, void *options, cli_args *args) {
  parser p = {command, argc, 0, argv, options};
  bool options_ended = false;
  args->n = 0;
  while (p.next < argc) {
    char *word = argv[p.next++];
    if (options_ended || word[0] != '-' || !word[1])
      args->values[args->n++] = word;
    else if (strcmp(word, "--") == 0)
      options_ended = true;
    else {
      cli_exit code = read_option(&p, word);
      if (code) return code;
      if (((cli_common *)options)->help) return CLI_OK;
    }
  }
  return check_args(command, args);
}

void cli_options_clear(const cli_command *command, void *options) {
  for (const cli_option *o = command->options; o && o->name; o++)
    if (o->kind == CLI_KIND_LIST) weft_free(((cli_list *)((char *)options + o->offset))->items);
}
