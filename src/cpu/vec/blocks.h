/* blocks.h - block sizes of f32 matrix products, one row a variant; what they mean: weft__gemm_blocks in cpu/kernels.h.
 *
 * rows x vectors of sums, a vector's worth of rows of B and one broadcast element of A fill the registers (32 with
 * AVX-512, 16 with AVX2, and 32 of NEON's, of which a vector takes two).  rows*k floats of A stay in the first-level cache while B passes: 12 of 48 KiB.  k*columns
 * floats of B stay in the second-level cache while panels of A pass: 512 KiB of 1 to 2 MiB, 256 of 512 KiB.  What is
 * packed at a time, (m+n)*k floats, fits the third level.  The scalar variant sums all terms before it rounds, so its k
 * has no end and its other blocks are small. */
#ifndef WEFT_BLOCKS_H
#define WEFT_BLOCKS_H

/*                                  rows  vectors  k         columns  m     n */
#define SGEMM_BLOCKS_AVX512(X) X(12, 2, 256, 512, 4096, 4096)
#define SGEMM_BLOCKS_AVX2(X) X(6, 2, 256, 256, 4096, 4096)
#define SGEMM_BLOCKS_NEON(X) X(6, 2, 256, 256, 4096, 4096)
#define SGEMM_BLOCKS_SCALAR(X) X(4, 2, INT64_MAX, 64, 64, 256)

#endif
