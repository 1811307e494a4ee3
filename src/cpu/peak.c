/* peak.c - the arithmetic peak of the variant in use, measured: every thread adds and multiplies in registers. */
#include "cpu/cpu.h"

enum {
  TASKS_PER_THREAD = 8, /* so that a thread that begins late costs little */
  LEAST_MS = 10,        /* of a measurement: longer than threads take to wake up */
  N_MEASUREMENTS = 5,
  FIRST_STEPS = 1 << 12,
};

typedef struct peak_loop {
  const weft__cpu_kernels *kernels;
  int64_t n_steps;                                    /* of each task */
  float results[WEFT_MAX_THREADS * TASKS_PER_THREAD]; /* kept, so that the work is not optimised away */
} peak_loop;

static void peak_task(void *context, int task, int worker) {
  (void)worker;
  peak_loop *l = context;
  l->results[task] = l->kernels->fma_chains(l->n_steps);
}

/* Operations a second of n_tasks tasks; *ms gets how long they took. */
static double run_loop(weft__cpu *cpu, int n_tasks, peak_loop *l, double *ms) {
  double start_ms = weft__now_ms();
  weft__pool_run(cpu->pool, n_tasks, peak_task, l);
  *ms = weft__now_ms() - start_ms;
  return (double)n_tasks * (double)l->n_steps * cpu->kernels->fma_flops / (*ms / 1e3);
}

/* The best of several: what disturbs a measurement makes it lower. */
weft_status weft__cpu_measure_flops(weft__backend *backend, double *flops_per_s) {
  weft__cpu *cpu = weft__cpu_of(backend);
  peak_loop l = {.kernels = cpu->kernels, .n_steps = FIRST_STEPS};
  int n_tasks = weft__pool_n_threads(cpu->pool) * TASKS_PER_THREAD;
  double ms, best = run_loop(cpu, n_tasks, &l, &ms);
  while (ms < LEAST_MS) {
    l.n_steps *= 2;
    best = run_loop(cpu, n_tasks, &l, &ms);
  }
  for (int i = 1; i < N_MEASUREMENTS; i++) {
    double rate = run_loop(cpu, n_tasks, &l, &ms);
    if (rate > best) best = rate;
  }
  *flops_per_s = best;
  return WEFT_OK;
}
