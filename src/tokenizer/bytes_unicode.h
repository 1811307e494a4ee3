/* bytes_unicode.h - GPT-2's alphabet: one printable code point for each of the 256 bytes.
 *
 * Byte-level vocabularies spell their tokens and merges in it, so that " the" stands in the file as "Ġthe".  A byte that
 * prints in Latin-1 stands for itself; the 68 others, in ascending order, are the code points from U+0100 on.  Nothing
 * else of the tokenizer knows the alphabet: beyond the reading of a vocabulary there are only bytes. */
#ifndef WEFT_BYTES_UNICODE_H
#define WEFT_BYTES_UNICODE_H

#include "base/base.h"

/* Writes the bytes that n bytes of spelling stand for to `bytes` (room for n) and their number to *n_bytes.  False if the
 * spelling is not UTF-8 or leaves the alphabet. */
bool weft__spelling_to_bytes(const char *spelling, size_t n, char *bytes, size_t *n_bytes);

/* Writes the spelling of one byte (1 or 2 bytes of UTF-8) and returns its length. */
size_t weft__byte_to_spelling(unsigned char byte, char spelling[2]);

#endif
