/* system.c - what the program asks of the operating system: descriptors, seeds, memory figures, whole files. */
#include "system.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void cli_system_prepare(void) {
  /* A descriptor closed by whoever started us would be handed to the next file opened, and results written there.
   * Opened for reading, the stand-in refuses writes, so lost output is still reported. */
  for (int descriptor = 0; descriptor <= 2; descriptor++)
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", descriptor == 2 ? O_WRONLY : O_RDONLY) < 0) return;
  signal(SIGPIPE, SIG_IGN);
  setenv("NODEVICE_SELECT", "1",
         0); /* keeps a Vulkan layer of Mesa's from complaining that there is no window system */
  setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
}

/* Does not wait: early in a system's start there may be no randomness yet, and the clock is good enough for a seed. */
int64_t cli_draw_seed(void) {
  uint32_t seed;
  if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed;
  struct timespec now = {0};
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint32_t)(now.tv_nsec ^ now.tv_sec ^ (long)getpid() << 16);
}

/* Linux's own figure comes first: the portable one counts what the process that started us had before exec. */
static int64_t peak_from_proc(void) {
  char line[256];
  long long kib = 0;
  FILE *file = fopen("/proc/self/status", "r");
  if (!file) return 0;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, "VmHWM:", 6) == 0) kib = strtoll(line + 6, NULL, 10);
  fclose(file);
  return (int64_t)kib * 1024;
}

int64_t cli_peak_bytes(void) {
  struct rusage usage;
  int64_t peak = peak_from_proc();
  if (peak == 0 && getrusage(RUSAGE_SELF, &usage) == 0) peak = (int64_t)usage.ru_maxrss * 1024;
  return peak;
}

/* `what` names the source in messages.  Reads to the end of file, however the bytes come in. */
static cli_exit read_all(int descriptor, const char *what, weft__bytes *text) {
  char chunk[65536];
  for (;;) {
    ssize_t n = read(descriptor, chunk, sizeof chunk);
    if (n == 0) return CLI_OK;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      cli_error("%s: %s (give a file that can be read)", what, strerror(errno));
      return CLI_FAILED;
    }
    if (weft__bytes_add(text, chunk, (size_t)n)) return cli_fail();
  }
}

/* Adding nothing first makes the text valid, if empty, for an empty file. */
cli_exit cli_read_file(const char *path, weft__bytes *text) {
  if (weft__bytes_add(text, "", 0)) return cli_fail();
  if (strcmp(path, "-") == 0) return read_all(STDIN_FILENO, "standard input", text);
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    cli_error("%s: %s (give a file that can be read, or - for standard input)", path, strerror(errno));
    return CLI_FAILED;
  }
  cli_exit code = read_all(descriptor, path, text);
  close(descriptor);
  return code;
}
