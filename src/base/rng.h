/* rng.h - counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011).  No state: the draw is a
 * function of (seed, counter, stream), so every device and every resume draws the same. */
#ifndef WEFT_RNG_H
#define WEFT_RNG_H

#include <stdint.h>

void weft__philox(uint64_t seed, uint64_t counter, uint64_t stream, uint32_t out[4]);
double weft__rng_uniform(uint64_t seed, uint64_t counter, uint64_t stream); /* in [0,1), 53 bits */

#endif
