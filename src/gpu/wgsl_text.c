/* wgsl_text.c - constants and unrolled loops in WGSL text.  The text is our own, so the grammar is as narrow as our use:
 * a constant is one line `const NAME = EXPRESSION;` of unsigned integers or a boolean; a marked loop is
 * `for (var NAME = START; NAME < BOUND; NAME++) {` on one line, its body closed by the matching brace. */
#include "gpu/wgsl_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h> /* strtoul */
#include <string.h>

enum { MAX_CONSTANTS = 48, NAME_BYTES = 32, MAX_UNROLLED = 256 };

typedef struct constant {
  char name[NAME_BYTES];
  uint32_t value;
} constant;

typedef struct specialiser {
  constant constants[MAX_CONSTANTS];
  int n_constants;
  weft__bytes *out;
} specialiser;

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* ---- expressions of constants ---- */

typedef struct parser {
  const specialiser *s;
  const char *at;
  bool is_wrong;
} parser;

static void skip_spaces(parser *p) {
  while (*p->at == ' ') p->at++;
}

static uint32_t parse_sum(parser *p);

static uint32_t parse_atom(parser *p) {
  skip_spaces(p);
  if (*p->at == '(') {
    p->at++;
    uint32_t value = parse_sum(p);
    skip_spaces(p);
    if (*p->at++ != ')') p->is_wrong = true;
    return value;
  }
  const char *start = p->at;
  while (is_name(*p->at)) p->at++;
  size_t n = (size_t)(p->at - start);
  if (isdigit((unsigned char)*start)) return (uint32_t)strtoul(start, NULL, 10);
  for (int i = 0; i < p->s->n_constants; i++)
    if (strlen(p->s->constants[i].name) == n && !memcmp(p->s->constants[i].name, start, n))
      return p->s->constants[i].value;
  if (n == 4 && !memcmp(start, "true", 4)) return 1;
  if (!(n == 5 && !memcmp(start, "false", 5))) p->is_wrong = true;
  return 0;
}

static uint32_t parse_product(parser *p) {
  uint32_t value = parse_atom(p);
  for (skip_spaces(p); *p->at == '*' || *p->at == '/'; skip_spaces(p)) {
    bool is_product = *p->at++ == '*';
    uint32_t right = parse_atom(p);
    if (!is_product && right == 0) p->is_wrong = true, right = 1;
    value = is_product ? value * right : value / right;
  }
  return value;
}

static uint32_t parse_sum(parser *p) {
  uint32_t value = parse_product(p);
  for (skip_spaces(p); *p->at == '+' || *p->at == '-'; skip_spaces(p)) {
    bool is_sum = *p->at++ == '+';
    uint32_t right = parse_product(p);
    value = is_sum ? value + right : value - right;
  }
  return value;
}

/* The value of the expression at `text`, which must end at `end`. */
static bool evaluate(const specialiser *s, const char *text, char end, uint32_t *value, const char **after) {
  parser p = {s, text, false};
  *value = parse_sum(&p);
  skip_spaces(&p);
  *after = p.at;
  return !p.is_wrong && *p.at == end;
}

/* ---- constants ---- */

/* A line of the top level: takes a constant's value from the caller's list or from its expression, and writes it. */
static weft_status add_constant(specialiser *s, const char *line, const char *end, const weft__wgsl_const *given) {
  const char *name = line + strlen("const "), *after = name;
  while (is_name(*after)) after++;
  size_t n = (size_t)(after - name);
  const char *value = after + strlen(" = ");
  if (s->n_constants == MAX_CONSTANTS || n >= NAME_BYTES || memcmp(after, " = ", 3))
    return weft__error(WEFT_EINVAL, "wgsl: cannot read the constant \"%.*s\"", (int)(end - line), line);
  constant *c = &s->constants[s->n_constants];
  memcpy(c->name, name, n);
  c->name[n] = 0;
  bool is_bool = !strncmp(value, "true;", 5) || !strncmp(value, "false;", 6);
  if (!evaluate(s, value, ';', &c->value, &after))
    return weft__error(WEFT_EINVAL, "wgsl: cannot read the constant \"%.*s\"", (int)(end - line), line);
  for (; given && given->name; given++)
    if (!strcmp(given->name, c->name)) c->value = given->value;
  s->n_constants++;
  if (is_bool) return weft__bytes_printf(s->out, "const %s = %s;\n", c->name, c->value ? "true" : "false");
  return weft__bytes_printf(s->out, "const %s = %uu;\n", c->name, c->value);
}

/* ---- loops ---- */

/* Adds text with the name replaced by a value. */
static weft_status add_replaced(weft__bytes *out, const char *text, const char *end, const char *name, uint32_t value) {
  size_t n = strlen(name);
  weft_status status = WEFT_OK;
  while (text < end && !status) {
    const char *start = text;
    if (!is_name(*text)) {
      while (text < end && !is_name(*text)) text++;
      status = weft__bytes_add(out, start, (size_t)(text - start));
      continue;
    }
    while (text < end && is_name(*text)) text++;
    if ((size_t)(text - start) == n && !memcmp(start, name, n))
      status = weft__bytes_printf(out, "%uu", value);
    else
      status = weft__bytes_add(out, start, (size_t)(text - start));
  }
  return status;
}

static const char *line_end(const char *text) {
  const char *end = strchr(text, '\n');
  return end ? end + 1 : text + strlen(text);
}

/* The brace that closes the one before `text`. */
static const char *closing_brace(const char *text) {
  int depth = 1;
  for (; *text; text++) {
    if (!strncmp(text, "//", 2)) text = line_end(text) - 1; /* comments may hold anything */
    if (*text == '{') depth++;
    if (*text == '}' && --depth == 0) return text;
  }
  return NULL;
}

static weft_status add_text(specialiser *s, const char *text, const char *end);

/* A marked loop at `text`: its body once a value, each in braces of its own.  *after is behind it. */
static weft_status unroll(specialiser *s, const char *text, const char **after) {
  char name[NAME_BYTES];
  int n = 0;
  const char *rest = text + strspn(text, " ");
  uint32_t start = 0, bound = 0;
  bool is_read = sscanf(rest, "for (var %31[A-Za-z0-9_] = %n", name, &n) == 1 && n > 0 &&
                 evaluate(s, rest + n, ';', &start, &rest);
  rest += 2;
  is_read = is_read && !strncmp(rest, name, strlen(name)) && !strncmp(rest + strlen(name), " < ", 3) &&
            evaluate(s, rest + strlen(name) + 3, ';', &bound, &rest);
  const char *body = is_read ? strchr(rest, '{') : NULL, *end = body ? closing_brace(body + 1) : NULL;
  if (!end || bound > MAX_UNROLLED)
    return weft__error(WEFT_EINVAL, "wgsl: cannot unroll the loop \"%.*s\"", (int)(line_end(text) - text), text);
  weft__bytes copy = {0};
  weft_status status = WEFT_OK;
  for (uint32_t i = start; i < bound && !status; i++) {
    copy.n = 0;
    status = add_replaced(&copy, body, end + 1, name, i);
    if (!status) status = add_text(s, copy.data, copy.data + copy.n); /* loops inside it */
  }
  weft__bytes_clear(&copy);
  *after = line_end(end);
  return status ? status : weft__bytes_add(s->out, "\n", 1);
}

static weft_status add_text(specialiser *s, const char *text, const char *end) {
  weft_status status = WEFT_OK;
  while (text < end && !status) {
    const char *next = line_end(text), *mark = text + strspn(text, " ");
    if (!strncmp(mark, "// @unroll", 10)) {
      status = unroll(s, next, &next);
    } else {
      if (next > end) next = end;
      status = weft__bytes_add(s->out, text, (size_t)(next - text));
    }
    text = next;
  }
  return status;
}

static weft_status check_given(const specialiser *s, const weft__wgsl_const *given) {
  for (; given && given->name; given++) {
    bool is_known = false;
    for (int i = 0; i < s->n_constants; i++) is_known |= !strcmp(s->constants[i].name, given->name);
    if (!is_known) return weft__error(WEFT_EINVAL, "wgsl: the shader has no constant %s", given->name);
  }
  return WEFT_OK;
}

/* One text: its head of comments and constants, up to the first declaration of anything else, and the rest. */
static weft_status specialise(specialiser *s, const char *text, const weft__wgsl_const *given) {
  weft_status status = WEFT_OK;
  while (*text && !status && (!strncmp(text, "//", 2) || *text == '\n' || !strncmp(text, "const ", 6))) {
    const char *end = line_end(text);
    if (!strncmp(text, "const ", 6)) status = add_constant(s, text, end, given);
    text = end;
  }
  return status ? status : add_text(s, text, text + strlen(text));
}

weft_status weft__wgsl_specialise(const char *const *texts, const weft__wgsl_const *constants, weft__bytes *out) {
  specialiser s = {.out = out};
  weft_status status = WEFT_OK;
  for (; *texts && !status; texts++) status = specialise(&s, *texts, constants);
  return status ? status : check_given(&s, constants);
}
