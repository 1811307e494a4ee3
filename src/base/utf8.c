/* utf8.c - where a UTF-8 character ends (Unicode 15, table 3-7: no overlong forms, no surrogates, nothing beyond
 * U+10FFFF). */
#include "base/base.h"

int weft__utf8_length(const char *text, size_t n) {
  const unsigned char *b = (const unsigned char *)text;
  if (b[0] < 0x80) return 1;
  if (b[0] < 0xC2 || b[0] > 0xF4) return -1;
  size_t length = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
  /* Only the second byte may have a narrower range than 80 to BF. */
  unsigned char low = b[0] == 0xE0 ? 0xA0 : b[0] == 0xF0 ? 0x90 : 0x80;
  unsigned char high = b[0] == 0xED ? 0x9F : b[0] == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < n && i < length; i++) {
    if (b[i] < low || b[i] > high) return -1;
    low = 0x80;
    high = 0xBF;
  }
  return n >= length ? (int)length : 0;
}
