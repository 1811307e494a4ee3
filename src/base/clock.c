/* clock.c - monotonic time. */
#include "base/base.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

double weft__now_ms(void) {
  LARGE_INTEGER ticks, ticks_per_s;
  QueryPerformanceCounter(&ticks);
  QueryPerformanceFrequency(&ticks_per_s);
  return 1e3 * (double)ticks.QuadPart / (double)ticks_per_s.QuadPart;
}

#else
#include <time.h>

double weft__now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

#endif
