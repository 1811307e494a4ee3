/* pool.h - a small thread pool for data-parallel loops.
 *
 * Invariants: one loop runs at a time on a pool; the caller works too, so a pool of one thread has no threads.  Tasks are
 * handed out in ascending order, each exactly once; which thread runs a task is unspecified, so a task's result may
 * depend on its index alone.  Idle workers spin briefly, then sleep. */
#ifndef WEFT_POOL_H
#define WEFT_POOL_H

#include "base/affinity.h"
#include "base/base.h"

typedef struct weft__pool weft__pool;

/* `worker` is 0 .. n_threads-1, the caller being 0: an index for per-thread scratch. */
typedef void (*weft__task)(void *context, int task, int worker);

weft_status weft__pool_create(weft__pool **out, int n_threads); /* 1 .. WEFT_MAX_THREADS */
void weft__pool_free(weft__pool *pool);                         /* a pinned caller may run where it could before */
int weft__pool_n_threads(const weft__pool *pool);

/* Pins worker i to processor i of the list, counted round; worker 0 is the calling thread, until the pool is freed by it.
 * Every processor of the list is tried.  Called once at most, before any loop.  EINVAL: there is no such processor for
 * this process; nothing is pinned then.  EUNSUPPORTED: not on this system. */
weft_status weft__pool_pin(weft__pool *pool, const weft__cpu_list *cpus);

/* Runs task 0 .. n_tasks-1 and returns when all have finished.  Not reentrant: a task must not run a loop.  Calls from
 * several threads wait for each other. */
void weft__pool_run(weft__pool *pool, int n_tasks, weft__task task, void *context);

/* Processors this process may use (affinity respected), at least 1. */
int weft__processors(void);

#define WEFT_MAX_THREADS 256

#endif
