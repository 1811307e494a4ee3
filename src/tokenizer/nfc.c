/* nfc.c - normalisation form C over utf8proc's tables (Unicode annex 15).
 *
 * utf8proc has the whole as one call, but puts accents in order by exchanging neighbours, which a text of nothing but
 * accents makes quadratic.  Here they are counted by class, and the text is worked on in segments that start with an ASCII
 * character: nothing before it can join with it.
 *
 * The tokenizers that models were trained with normalise by the tables of Unicode 9.  What came later is left as it is, and
 * ends a segment. */
#include "tokenizer/nfc.h"

#include <stdlib.h> /* bsearch */
#include <string.h>
#include <utf8proc.h>

enum {
  MAX_EXPANSION = 4,     /* code points that one decomposes into canonically */
  FIRST_CHANGING = 0xCC, /* lead byte of U+0300 */
  N_CLASSES = 255
};

typedef utf8proc_int32_t code_point;

/* The segment in work. */
typedef struct segment {
  code_point *chars, *sorted; /* one block; `sorted` is room for a run of accents */
  size_t n, capacity;         /* of each of the two */
} segment;

/* First and last of the code points behind Unicode 9 (up to Unicode 15) that would move, join or come apart. */
static const code_point later[][2] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11935, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
};

static int compare(const void *key, const void *range) {
  code_point c = *(const code_point *)key;
  const code_point *ends = range;
  return c < ends[0] ? -1 : c > ends[1];
}

static code_point next_char(const char *text, size_t n, size_t *n_char) {
  code_point c;
  *n_char = (size_t)utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c);
  return c;
}

static bool is_later(code_point c) {
  return c >= later[0][0] && bsearch(&c, later, WEFT_COUNT(later), sizeof *later, compare);
}

static weft_status reserve(segment *s, size_t n) {
  if (s->chars && n <= s->capacity) return WEFT_OK;
  weft_free(s->chars);
  s->capacity = 0;
  s->chars = weft__alloc(n, 2 * sizeof *s->chars);
  if (!s->chars) return WEFT_ENOMEM;
  s->sorted = s->chars + n;
  s->capacity = n;
  return WEFT_OK;
}

static void decompose(segment *s, const char *text, size_t n) {
  int boundary = 0;
  s->n = 0;
  for (size_t i = 0, n_char; i < n; i += n_char) {
    code_point c = next_char(text + i, n - i, &n_char);
    s->n += (size_t)utf8proc_decompose_char(c, s->chars + s->n, MAX_EXPANSION, UTF8PROC_DECOMPOSE, &boundary);
  }
}

static int class_of(code_point c) { return utf8proc_get_property(c)->combining_class; }

/* Sorts n code points of classes other than 0 by class, those of one class in their order. */
static void sort_run(code_point *run, code_point *sorted, size_t n) {
  size_t start[N_CLASSES + 1] = {0};
  for (size_t i = 0; i < n; i++) start[class_of(run[i])]++;
  for (size_t class = 1, end = 0; class <= N_CLASSES; class ++) {
    size_t n_class = start[class];
    start[class] = end;
    end += n_class;
  }
  for (size_t i = 0; i < n; i++) sorted[start[class_of(run[i])]++] = run[i];
  memcpy(run, sorted, n * sizeof *run);
}

/* Puts each run of accents in order.  Most are of one. */
static void reorder(segment *s) {
  for (size_t i = 0, end; i < s->n; i = end) {
    for (end = i; end < s->n && class_of(s->chars[end]) != 0;) end++;
    if (end - i > 1) sort_run(s->chars + i, s->sorted, end - i);
    if (end == i) end++;
  }
}

static weft_status add_segment(weft__bytes *out, segment *s, const char *text, size_t n) {
  /* A code point has one byte at least. */
  size_t n_room;
  if (!weft__mul_size(n, MAX_EXPANSION, &n_room))
    return weft__error(WEFT_ELIMIT, "text: %zu bytes are too long to be normalised (split the text)", n);
  weft_status status = reserve(s, n_room);
  if (status) return status;
  decompose(s, text, n);
  reorder(s);
  utf8proc_ssize_t n_composed =
      utf8proc_normalize_utf32(s->chars, (utf8proc_ssize_t)s->n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  for (utf8proc_ssize_t i = 0; i < n_composed && !status; i++) {
    utf8proc_uint8_t bytes[4];
    status = weft__bytes_add(out, bytes, (size_t)utf8proc_encode_char(s->chars[i], bytes));
  }
  return status;
}

bool weft__nfc_may_change(const char *text, size_t n) {
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)text[i] >= FIRST_CHANGING) return true;
  return false;
}

/* Bytes of the segment that n > 0 bytes start with: up to the next ASCII or later character. */
static size_t segment_bytes(const char *text, size_t n) {
  size_t end, n_char;
  if (is_later(next_char(text, n, &end))) return end;
  while (end < n && (unsigned char)text[end] >= 0x80 && !is_later(next_char(text + end, n - end, &n_char)))
    end += n_char;
  return end;
}

weft_status weft__nfc(weft__bytes *out, const char *text, size_t n) {
  segment s = {0};
  out->n = 0;
  weft_status status = WEFT_OK;
  for (size_t i = 0, n_segment, n_char; i < n && !status; i += n_segment) {
    n_segment = segment_bytes(text + i, n - i);
    bool stays = !weft__nfc_may_change(text + i, n_segment) || is_later(next_char(text + i, n_segment, &n_char));
    status = stays ? weft__bytes_add(out, text + i, n_segment) : add_segment(out, &s, text + i, n_segment);
  }
  weft_free(s.chars);
  return status;
}
