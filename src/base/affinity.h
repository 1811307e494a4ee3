/* affinity.h - lists of processors, and pinning threads to processors.  Linux only; elsewhere pinning is refused. */
#ifndef WEFT_AFFINITY_H
#define WEFT_AFFINITY_H

#include "base/base.h"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

enum { WEFT__MAX_CPUS = 1024 };

typedef struct weft__cpu_list {
  int n; /* 1 .. WEFT__MAX_CPUS */
  int ids[WEFT__MAX_CPUS];
} weft__cpu_list;

/* Reads "0-3,8": numbers and ranges, in the order given, each number once at most.  EINVAL: it is anything else. */
weft_status weft__cpu_list_parse(weft__cpu_list *list, const char *text);

/* Where a thread was allowed to run before. */
typedef struct weft__affinity {
  pthread_t thread;
#if defined(__linux__)
  cpu_set_t set;
#endif
} weft__affinity;

weft_status weft__affinity_save(weft__affinity *before, pthread_t thread);
void weft__affinity_restore(const weft__affinity *before);
/* EINVAL: this process may not use processor `id`, or there is none. */
weft_status weft__affinity_pin(pthread_t thread, int id);

#endif
