/* rng.c - Philox4x32-10: ten rounds of two 32x32 -> 64 bit products mix a 128-bit counter under a 64-bit key.
 * Invariant: the draws equal the published generator's on every device, so nothing here may be "improved". */
#include "base/rng.h"

enum { N_ROUNDS = 10 };

static const uint32_t multiplier[2] = {0xD2511F53, 0xCD9E8D57};
/* Added to the key between rounds: the fractions of the golden ratio and of the square root of 3. */
static const uint32_t key_step[2] = {0x9E3779B9, 0xBB67AE85};

void weft__philox(uint64_t seed, uint64_t counter, uint64_t stream, uint32_t out[4]) {
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  uint32_t x[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
  for (int round = 0; round < N_ROUNDS; round++) {
    uint64_t p0 = (uint64_t)multiplier[0] * x[0];
    uint64_t p1 = (uint64_t)multiplier[1] * x[2];
    x[0] = (uint32_t)(p1 >> 32) ^ x[1] ^ key[0];
    x[1] = (uint32_t)p1;
    x[2] = (uint32_t)(p0 >> 32) ^ x[3] ^ key[1];
    x[3] = (uint32_t)p0;
    key[0] += key_step[0];
    key[1] += key_step[1];
  }
  for (int i = 0; i < 4; i++) out[i] = x[i];
}

double weft__rng_uniform(uint64_t seed, uint64_t counter, uint64_t stream) {
  uint32_t draw[4];
  weft__philox(seed, counter, stream, draw);
  uint64_t bits = (uint64_t)draw[1] << 32 | draw[0];
  return (double)(bits >> 11) * 0x1p-53;
}
