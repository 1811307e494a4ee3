/* bench.h - timing operators on a device, and the table and JSON object that weft bench gemm, matvec, ops and attention print.
 *
 * Starting a GPU and waiting for it costs more than many an operator does.  Its times are therefore those of 2N operators
 * less those of N, divided by N; operators are recorded while the device runs those before. */
#ifndef WEFT_CLI_BENCH_H
#define WEFT_CLI_BENCH_H

#include "cli.h"

#include "weft/device.h"

#include <jansson.h>

enum { CLI_BENCH_MAX_REPS = 1000 };

/* A device that is measured.  The speeds that others are compared with are NAN until they have been measured. */
typedef struct cli_bench {
  const cli_common *common;
  weft_device *device;
  bool is_cpu, is_software;
  int n_reps;
  double warm_up_ms;
  int64_t copy_bytes;   /* of the tensor that is scaled to measure a copy */
  double copy_gb_per_s; /* of that scale, read and written bytes together */
  double peak_gflops;
} cli_bench;

typedef struct cli_bench_time {
  double median_ms, min_ms; /* of one operator */
} cli_bench_time;

/* Runs the operator that is measured and returns its result, which is freed at once; NULL: it failed. */
typedef weft_tensor *(*cli_bench_operator)(void *context, weft_scope *scope);

/* For the help of commands that measure operators. */
#define CLI_BENCH_GPU_TIMES                                                                                            \
  "On a GPU the time of an operator is that of 2N in a row less that of N, divided by N (at most 200), which leaves "  \
  "out starting and waiting. WEFT_GPU_TRACE=1 in the environment adds a table of device times by operator on "         \
  "standard error.\n"

/* Opens the device of the common options; gemm_tile as in weft_device_options.  An error was reported. */
cli_exit cli_bench_open(cli_bench *bench, const cli_common *common, int gemm_tile, int n_reps);
/* Prints on standard error what WEFT_GPU_TRACE=1 has recorded, and closes the device. */
void cli_bench_close(cli_bench *bench);

weft_status cli_bench_measure(const cli_bench *bench, cli_bench_operator run, void *context, cli_bench_time *time);

/* GB/s of a scale of a tensor of `n_bytes`, which counts as the copy; and the time of an operator on one element. */
weft_status cli_bench_copy(const cli_bench *bench, int64_t n_bytes, double *gb_per_s);
weft_status cli_bench_smallest(const cli_bench *bench, double *ms);

/* A rows x columns (columns 0: a vector of rows) tensor of uniform numbers: those of `stream`.  NULL on failure. */
weft_tensor *cli_bench_uniform(weft_scope *scope, int64_t rows, int64_t columns, uint64_t stream);

/* A tensor's extents. */
typedef struct cli_bench_shape {
  int64_t rows, columns;
} cli_bench_shape;

enum { CLI_BENCH_MAX_SHAPES = 16 };

/* Reads ROWSxCOLUMNS arguments into shapes[CLI_BENCH_MAX_SHAPES]; `fallback` if there is none.  An error was reported. */
cli_exit cli_bench_read_shapes(const char *command, const cli_args *args, cli_bench_shape fallback,
                               cli_bench_shape *shapes, int *n);

/* Prints the device and the speed of a copy on it. */
void cli_bench_print_head(const cli_bench *bench);

/* Sorts the values; the mean of the middle two if their number is even. */
double cli_bench_median(double *values, int n);

/* Reads "4x5" as whole numbers of at least 1 into values[0..max-1] and returns how many; 0: the text is wrong. */
int cli_bench_parse_extents(const char *text, size_t n_bytes, int64_t *values, int max);

/* The parts of the JSON objects that all benchmarks share: a row with its name and times; and the whole. */
json_t *cli_bench_row_json(const char *name, cli_bench_time time);
cli_exit cli_bench_print_json(const cli_bench *bench, json_t *cases);

#endif
