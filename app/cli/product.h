/* product.h - matrix products with seeded operands: their results and what they cost on a device. */
#ifndef WEFT_CLI_PRODUCT_H
#define WEFT_CLI_PRODUCT_H

#include "weft/device.h"

#include <stdbool.h>

typedef struct cli_product {
  int64_t batch, m, k, n;
  bool is_b_batched;     /* b has a matrix a batch element; false: one for all */
  float *a, *b;          /* [batch,m,k] and [k,n] or [batch,k,n]; uniform in [-1,1), the same in every run */
  int64_t n_a, n_b, n_c; /* elements; the product has n_c, [batch,m,n] */
} cli_product;

/* Fills in the operands of a product whose sizes are set; freed by cli_product_clear, also after a failure. */
weft_status cli_product_fill(cli_product *p);
void cli_product_clear(cli_product *p);

/* Uploads the operands, multiplies, downloads the product to `c` and frees everything on the device. */
weft_status cli_product_run(const cli_product *p, weft_device *device, float *c);

/* How long to warm up before measuring and how often to measure.  At least one run warms up. */
typedef struct cli_timing {
  double warm_up_ms;
  int n_reps; /* the median of them is the result */
} cli_timing;

/* Median time of cli_product_run. */
weft_status cli_product_time_run(const cli_product *p, weft_device *device, const cli_timing *timing, double *ms);

/* Median time of a product whose operands are on the device and whose result stays there.  On a GPU several products are
 * recorded and submitted together, *n_together of them, and the time is that of one. */
weft_status cli_product_time_resident(const cli_product *p, weft_device *device, const cli_timing *timing, double *ms,
                                      int *n_together);

/* n uniform numbers in [-1,1): those of `stream`. */
void cli_fill_uniform(float *data, int64_t n, uint64_t stream);

/* max|x - want| / max|want|, the error that all comparisons of devices are given in; NaN if there is one in either. */
double cli_relative_error(const float *x, const float *want, int64_t n);

#endif
