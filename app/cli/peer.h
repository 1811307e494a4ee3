/* peer.h - running another program's benchmark beside ours. */
#ifndef WEFT_CLI_PEER_H
#define WEFT_CLI_PEER_H

#include "cli.h"

/* One run of a benchmark program that takes -m MODEL -t THREADS -p P -n N -d DEPTH -r 1 and prints lines that begin
 * with PREFILL and DECODE and hold "median X t/s".  A program that is asked for 0 tokens need not print the line. */
typedef struct cli_peer {
  const char *program, *model;
  int n_threads, n_prefill, n_decode, depth;
} cli_peer;

/* The rates get tokens per second, 0 for a part of 0 tokens.  CLI_FAILED: it could not be run, failed, or printed
 * something else; the error was reported. */
cli_exit cli_peer_run(const cli_peer *peer, double *prefill_per_s, double *decode_per_s);

#endif
