/* affinity.c - lists of processors, and pinning threads to processors. */
#include "base/affinity.h"

/* Reads a number below WEFT__MAX_CPUS; returns what follows it, NULL if there is none. */
static const char *read_id(const char *at, int *id) {
  if (*at < '0' || *at > '9') return NULL;
  for (*id = 0; *at >= '0' && *at <= '9'; at++) {
    *id = *id * 10 + (*at - '0');
    if (*id >= WEFT__MAX_CPUS) return NULL;
  }
  return at;
}

/* Reads "8" or "0-3" into the list; returns what follows it, NULL if it is not that. */
static const char *read_range(const char *at, weft__cpu_list *list, bool is_listed[WEFT__MAX_CPUS]) {
  int first = 0, last;
  at = read_id(at, &first);
  last = first;
  if (at && *at == '-') at = read_id(at + 1, &last);
  if (!at || last < first) return NULL;
  for (int id = first; id <= last; id++) {
    if (is_listed[id]) return NULL;
    is_listed[id] = true;
    list->ids[list->n++] = id;
  }
  return at;
}

weft_status weft__cpu_list_parse(weft__cpu_list *list, const char *text) {
  bool is_listed[WEFT__MAX_CPUS] = {false};
  list->n = 0;
  const char *at = read_range(text, list, is_listed);
  while (at && *at == ',') at = read_range(at + 1, list, is_listed);
  if (at && !*at) return WEFT_OK;
  return weft__error(WEFT_EINVAL, "affinity: '%s' is not a list of processors (numbers and ranges, each once: 0-3,8)",
                     text);
}

#if defined(__linux__)

weft_status weft__affinity_save(weft__affinity *before, pthread_t thread) {
  before->thread = thread;
  int error = pthread_getaffinity_np(thread, sizeof before->set, &before->set);
  return error ? weft__errno_error(error, "affinity: the processors allowed are not known") : WEFT_OK;
}

/* The thread may have got fewer processors meanwhile: then it stays where it is. */
void weft__affinity_restore(const weft__affinity *before) {
  pthread_setaffinity_np(before->thread, sizeof before->set, &before->set);
}

weft_status weft__affinity_pin(pthread_t thread, int id) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(id, &set);
  if (pthread_setaffinity_np(thread, sizeof set, &set) == 0) return WEFT_OK;
  return weft__error(WEFT_EINVAL, "affinity: this process may use no processor %d (`taskset -cp $$` shows which)", id);
}

#else

weft_status weft__affinity_save(weft__affinity *before, pthread_t thread) {
  before->thread = thread;
  return weft__error(WEFT_EUNSUPPORTED, "affinity: threads can be pinned on Linux only (leave it to the system)");
}

void weft__affinity_restore(const weft__affinity *before) { (void)before; }

weft_status weft__affinity_pin(pthread_t thread, int id) {
  (void)thread, (void)id;
  return weft__error(WEFT_EUNSUPPORTED, "affinity: threads can be pinned on Linux only (leave it to the system)");
}

#endif
