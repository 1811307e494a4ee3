/* nfc.h - Unicode's normalisation form C: accents that are characters of their own join the letter before them. */
#ifndef WEFT_NFC_H
#define WEFT_NFC_H

#include "base/base.h"

/* Whether n bytes of UTF-8 hold a character from U+0300 on; all text before that is in form C. */
bool weft__nfc_may_change(const char *text, size_t n);

/* Replaces what `out` holds by the form C of n bytes of UTF-8.  O(n), however many accents a letter has. */
weft_status weft__nfc(weft__bytes *out, const char *text, size_t n);

#endif
