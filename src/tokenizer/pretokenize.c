/* pretokenize.c - pre-tokenizers as rows of PCRE2 patterns.
 *
 * A row is what goes with a value of tokenizer.ggml.pre: which normalisation comes first, how the text is split, and two
 * things about what follows that files do not say.
 * A row's patterns work in sequence: each splits every piece of the one before it into matches and what lies between
 * them, so that a pattern sees nothing of the neighbouring pieces (a look-ahead finds the end of the text there).  To
 * add a pre-tokenizer, add its row.
 *
 * The patterns never see bytes that are not UTF-8. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretokenize.h"
#include "tokenizer/nfc.h"

#include <pcre2.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

/* Contents of character classes.  The reference pre-tokenizer's tables are Unicode 16, older versions of PCRE2 know less
 * (10.42: Unicode 14), so what was assigned since then is listed here.  \s is avoided because PCRE2 counts U+180E, which
 * is not white space any more. */
#define SPACE "\\p{Z}\\x{09}-\\x{0D}\\x{85}"
#define LETTER                                                                                                         \
  "\\p{L}\\x{1C89}\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D65}"           \
  "\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}"            \
  "\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}"            \
  "\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}"                     \
  "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}"                      \
  "\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define NUMBER                                                                                                         \
  "\\p{N}\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}"    \
  "\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}"
/* The reference's splitter of digits is a version ahead of its patterns: Unicode 17. */
#define NUMBER_17 NUMBER "\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}"

#define GPT2                                                                                                           \
  "'s|'t|'re|'ve|'m|'ll|'d| ?[" LETTER "]+| ?[" NUMBER "]+| ?[^" SPACE LETTER NUMBER "]+"                              \
  "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

/* Contractions in capitals, too; a word may take one other character before it; a line break ends what it follows.  `n`
 * says how many digits stay together. */
#define WORDS(n)                                                                                                       \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n" LETTER NUMBER "]?[" LETTER "]+|[" NUMBER "]" n "| ?[^" SPACE LETTER NUMBER   \
  "]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

enum { MAX_PATTERNS = 2 };

typedef struct pretokenizer_row {
  const char *name; /* value of tokenizer.ggml.pre */
  const char *patterns[MAX_PATTERNS];
  weft__pretokenizer_traits traits;
  bool is_nfc; /* the text is brought into normalisation form C first */
} pretokenizer_row;

static const pretokenizer_row rows[] = {
    {.name = "smollm", .patterns = {"[" NUMBER_17 "]", GPT2}}, /* digits one by one */
    {.name = "gpt-2", .patterns = {GPT2}},
    {.name = "gpt2", .patterns = {GPT2}},
    {.name = "default", .patterns = {GPT2}},
    {.name = "llama-bpe", .patterns = {WORDS("{1,3}")}, .traits = {.keeps_tokens = true, .wants_bos = true}},
    {.name = "llama3", .patterns = {WORDS("{1,3}")}, .traits = {.keeps_tokens = true, .wants_bos = true}},
    {.name = "llama-v3", .patterns = {WORDS("{1,3}")}, .traits = {.keeps_tokens = true, .wants_bos = true}},
    {.name = "falcon3", .patterns = {WORDS("{1,3}")}, .traits = {.keeps_tokens = true, .wants_bos = true}},
    {.name = "lfm2", .patterns = {WORDS("{1,3}")}, .traits = {.keeps_tokens = true, .wants_bos = true}},
    {.name = "smaug-bpe", .patterns = {WORDS("{1,3}")}},
    {.name = "dbrx", .patterns = {WORDS("{1,3}")}},
    {.name = "qwen2", .patterns = {WORDS("")}, .is_nfc = true},
    {.name = "deepseek-r1-qwen", .patterns = {WORDS("")}},
    {.name = "megrez", .patterns = {WORDS("")}},
};

struct weft__pretokenizer {
  pcre2_code *patterns[MAX_PATTERNS]; /* NULL behind the row's last */
  pcre2_general_context *memory;
  const pretokenizer_row *row;
};

/* ---- compiling ---- */

/* PCRE2 takes its memory as the rest of weft does, so that running out of it is a status here too. */
static void *pcre2_take(PCRE2_SIZE n_bytes, void *data) {
  (void)data;
  return weft__alloc(n_bytes, 1);
}

static void pcre2_give(void *memory, void *data) {
  (void)data;
  weft_free(memory);
}

/* Where memory ran out the allocator has set the error.  The patterns themselves are right, so what is left is a limit of
 * PCRE2's that a text ran into. */
static weft_status fail(const char *what, int code) {
  PCRE2_UCHAR why[128];
  if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED) return WEFT_ENOMEM;
  pcre2_get_error_message(code, why, sizeof why);
  return weft__error(WEFT_ELIMIT, "pre-tokenizer: %s: %s (split the text)", what, (const char *)why);
}

static weft_status compile(weft__pretokenizer *p, int level, const char *pattern) {
  int code;
  PCRE2_SIZE offset;
  pcre2_compile_context *context = pcre2_compile_context_create(p->memory);
  if (!context) return WEFT_ENOMEM;
  pcre2_code *compiled =
      pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &offset, context);
  pcre2_compile_context_free(context);
  if (!compiled) return fail("a pattern cannot be compiled", code);
  p->patterns[level] = compiled;
  /* Where the system forbids code made at run time this fails, and the pattern is interpreted. */
  (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  return WEFT_OK;
}

static int find_row(const char *name, size_t n) {
  for (size_t i = 0; i < WEFT_COUNT(rows); i++)
    if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0) return (int)i;
  return -1;
}

static weft_status unknown_name(const char *name, size_t n) {
  char known[256] = "";
  for (size_t i = 0, end = 0; i < WEFT_COUNT(rows) && end < sizeof known; i++)
    end += (size_t)snprintf(known + end, sizeof known - end, "%s%s", i > 0 ? ", " : "", rows[i].name);
  return weft__error(WEFT_EUNSUPPORTED, "pre-tokenizer '%.*s': not known (weft knows %s)", n < 64 ? (int)n : 64, name,
                     known);
}

weft_status weft__pretokenizer_create(weft__pretokenizer **out, const char *name, size_t n) {
  int row = find_row(name, n);
  if (row < 0) return unknown_name(name, n);
  weft__pretokenizer *p = weft__calloc(1, sizeof *p);
  if (!p) return WEFT_ENOMEM;
  p->row = &rows[row];
  p->memory = pcre2_general_context_create(pcre2_take, pcre2_give, NULL);
  weft_status status = p->memory ? WEFT_OK : WEFT_ENOMEM;
  for (int i = 0; i < MAX_PATTERNS && p->row->patterns[i] && !status; i++) status = compile(p, i, p->row->patterns[i]);
  if (status)
    weft__pretokenizer_free(p);
  else
    *out = p;
  return status;
}

void weft__pretokenizer_free(weft__pretokenizer *pretokenizer) {
  if (!pretokenizer) return;
  for (int i = 0; i < MAX_PATTERNS; i++) pcre2_code_free(pretokenizer->patterns[i]);
  pcre2_general_context_free(pretokenizer->memory);
  weft_free(pretokenizer);
}

weft__pretokenizer_traits weft__pretokenizer_get_traits(const weft__pretokenizer *pretokenizer) {
  return pretokenizer->row->traits;
}

/* ---- UTF-8 ---- */

/* Bytes up to the first that starts no character, and bytes up to the first that does. */
static size_t valid_prefix(const char *text, size_t n) {
  size_t i = 0;
  for (int n_char; i < n && (n_char = weft__utf8_length(text + i, n - i)) > 0;) i += (size_t)n_char;
  return i;
}

static size_t invalid_prefix(const char *text, size_t n) {
  size_t i = 0;
  while (i < n && weft__utf8_length(text + i, n - i) <= 0) i++;
  return i;
}

/* ---- splitting ---- */

typedef struct splitter {
  const weft__pretokenizer *pretokenizer;
  pcre2_match_data *match; /* of the pattern that matched last, whichever it was */
  weft__piece_fn piece;
  void *context;
} splitter;

/* Applies pattern `level` and, to what it yields, those after it: the recursion is as deep as the row is long. */
static weft_status split(const splitter *s, int level, const char *text, size_t n) {
  if (level == MAX_PATTERNS || !s->pretokenizer->patterns[level]) return s->piece(s->context, text, n);
  weft_status status = WEFT_OK;
  for (size_t position = 0; position < n && !status;) {
    int code = pcre2_match(s->pretokenizer->patterns[level], (PCRE2_SPTR)text, n, position,
                           PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, s->match, NULL);
    if (code < 0 && code != PCRE2_ERROR_NOMATCH) return fail("the text cannot be split", code);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
    size_t start = code < 0 ? n : range[0], end = code < 0 ? n : range[1];
    if (start > position) status = split(s, level + 1, text + position, start - position);
    if (end > start && !status) status = split(s, level + 1, text + start, end - start);
    position = end;
  }
  return status;
}

/* Splits n bytes of UTF-8, after normalisation if the row wants it. */
static weft_status split_valid(const splitter *s, weft__bytes *normal, const char *text, size_t n) {
  if (!s->pretokenizer->row->is_nfc || !weft__nfc_may_change(text, n)) return split(s, 0, text, n);
  weft_status status = weft__nfc(normal, text, n);
  return status ? status : split(s, 0, normal->data, normal->n);
}

weft_status weft__pretokenize(const weft__pretokenizer *pretokenizer, const char *text, size_t n, weft__piece_fn piece,
                              void *context) {
  splitter s = {pretokenizer, pcre2_match_data_create(1, pretokenizer->memory), piece, context};
  if (!s.match) return WEFT_ENOMEM;
  weft__bytes normal = {0};
  weft_status status = WEFT_OK;
  while (n > 0 && !status) {
    size_t n_valid = valid_prefix(text, n);
    if (n_valid > 0) status = split_valid(&s, &normal, text, n_valid);
    size_t n_invalid = invalid_prefix(text + n_valid, n - n_valid);
    if (n_invalid > 0 && !status) status = piece(context, text + n_valid, n_invalid);
    text += n_valid + n_invalid;
    n -= n_valid + n_invalid;
  }
  weft__bytes_clear(&normal);
  pcre2_match_data_free(s.match);
  return status;
}
