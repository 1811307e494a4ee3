/* gguf_walk.h - reads everything that an open GGUF file offers. */
#ifndef WEFT_TESTS_GGUF_WALK_H
#define WEFT_TESTS_GGUF_WALK_H

#include "weft/format.h"

/* Goes through every entry and tensor with every public function and touches the memory behind them, so that a
 * sanitizer sees a pointer that leads out of the mapping.  Ends the program if a promise of weft/format.h is broken.
 * Returns a sum of what it read, so that the reads cannot be optimised away. */
uint64_t gguf_walk(const weft_gguf *gguf);

#endif
