/* bytes_unicode.c - GPT-2's alphabet, computed: the bytes that do not print are three ranges, so no table is needed. */
#include "tokenizer/bytes_unicode.h"

enum {
  N_CONTROL = 0x21,                     /* bytes 0x00-0x20, spelled U+0100 to U+0120 */
  N_DELETE = 0xA1 - 0x7F,               /* bytes 0x7F-0xA0, spelled U+0121 to U+0142 */
  SOFT_HYPHEN = 0xAD,                   /* spelled U+0143 */
  N_SHIFTED = N_CONTROL + N_DELETE + 1, /* 68 */
};

static bool is_printable(unsigned c) {
  return (c >= N_CONTROL && c < 0x7F) || (c >= 0xA1 && c <= 0xFF && c != SOFT_HYPHEN);
}

static unsigned byte_to_code_point(unsigned char byte) {
  if (is_printable(byte)) return byte;
  if (byte < N_CONTROL) return 0x100u + byte;
  if (byte == SOFT_HYPHEN) return 0x100u + N_CONTROL + N_DELETE;
  return 0x100u + N_CONTROL + (byte - 0x7Fu);
}

/* -1 outside the alphabet. */
static int code_point_to_byte(unsigned c) {
  if (c <= 0xFF) return is_printable(c) ? (int)c : -1;
  c -= 0x100;
  if (c < N_CONTROL) return (int)c;
  if (c < N_CONTROL + N_DELETE) return (int)(c - N_CONTROL) + 0x7F;
  return c < N_SHIFTED ? SOFT_HYPHEN : -1;
}

bool weft__spelling_to_bytes(const char *spelling, size_t n, char *bytes, size_t *n_bytes) {
  size_t n_out = 0;
  for (size_t i = 0; i < n; i++) {
    unsigned c = (unsigned char)spelling[i];
    if (c >= 0x80) {
      /* The alphabet ends at U+0143, so two bytes of UTF-8 are the most there can be. */
      unsigned next = ++i < n ? (unsigned char)spelling[i] : 0;
      if (c < 0xC2 || c > 0xC5 || (next & 0xC0) != 0x80) return false;
      c = (c & 0x1F) << 6 | (next & 0x3F);
    }
    int byte = code_point_to_byte(c);
    if (byte < 0) return false;
    bytes[n_out++] = (char)byte;
  }
  *n_bytes = n_out;
  return true;
}

size_t weft__byte_to_spelling(unsigned char byte, char spelling[2]) {
  unsigned c = byte_to_code_point(byte);
  if (c < 0x80) {
    spelling[0] = (char)c;
    return 1;
  }
  spelling[0] = (char)(0xC0 | c >> 6);
  spelling[1] = (char)(0x80 | (c & 0x3F));
  return 2;
}
