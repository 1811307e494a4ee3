/* peer.c - running another program's benchmark beside ours.
 *
 * The child gets an empty standard input, our standard error, and default signal dispositions (we ignore SIGPIPE, and a
 * child would inherit that).  It never outlives the call: an interrupt kills it. */
#include "peer.h"
#include "interrupt.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { WAIT_MS = 100 }; /* rare enough not to disturb what is measured */

/* Whatever goes wrong, the reader wants to know which program it was and what it should have done. */
static cli_exit peer_error(const cli_peer *peer, const char *why) {
  cli_error("%s: %s (--peer wants a program that works as weft help bench llm says)", peer->program, why);
  return CLI_FAILED;
}

/* Starts argv with its standard output on `output`; 0 or an errno. */
static int spawn(char **argv, int output, pid_t *child) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t defaults;
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  error = posix_spawnattr_init(&attributes);
  if (!error) {
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (!error) error = posix_spawnp(child, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/* Starts the peer; *output gets the end of a pipe to read. */
static cli_exit start(const cli_peer *peer, int *output, pid_t *child) {
  char threads[16], prefill[16], decode[16], depth[16];
  int pipe_ends[2];
  snprintf(threads, sizeof threads, "%d", peer->n_threads);
  snprintf(prefill, sizeof prefill, "%d", peer->n_prefill);
  snprintf(decode, sizeof decode, "%d", peer->n_decode);
  snprintf(depth, sizeof depth, "%d", peer->depth);
  const char *words[] = {peer->program, "-m",   peer->model, "-t",  threads, "-p", prefill,
                         "-n",          decode, "-d",        depth, "-r",    "1",  NULL};
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return peer_error(peer, strerror(errno));
  int error = spawn((char **)words, pipe_ends[1], child);
  close(pipe_ends[1]);
  *output = pipe_ends[0];
  if (!error) return CLI_OK;
  close(pipe_ends[0]);
  return peer_error(peer, strerror(error));
}

/* Reads until the child closes its output; CLI_INTERRUPTED after an interrupt.  One that comes just before the wait
 * does not end it, so no wait is long. */
static cli_exit read_output(int output, weft__bytes *text) {
  char chunk[4096];
  struct pollfd end = {.fd = output, .events = POLLIN};
  if (weft__bytes_add(text, "", 0)) return cli_fail();
  for (;;) {
    int n_ready = poll(&end, 1, WAIT_MS);
    if (cli_interrupt_seen()) return CLI_INTERRUPTED;
    if (n_ready <= 0) continue;
    ssize_t n = read(output, chunk, sizeof chunk);
    if (n == 0) return CLI_OK;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return weft__errno_error(errno, "peer"), cli_fail();
    if (weft__bytes_add(text, chunk, (size_t)n)) return cli_fail();
  }
}

/* The X of "median X t/s" in the line that begins with `keyword`; 0 if there is none. */
static double find_rate(const char *text, const char *keyword) {
  for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
    if (strncmp(line, keyword, strlen(keyword)) != 0) continue;
    const char *median = strstr(line, "median ");
    if (!median || median > line + strcspn(line, "\n")) continue;
    char *end;
    double rate = strtod(median + strlen("median "), &end);
    if (rate > 0 && strncmp(end, " t/s", 4) == 0) return rate;
  }
  return 0;
}

/* A case that was left out needs no line; one that was asked for does, or the ratio would be of nothing. */
static cli_exit read_rates(const cli_peer *peer, const char *text, double *prefill_per_s, double *decode_per_s) {
  *prefill_per_s = find_rate(text, "PREFILL");
  *decode_per_s = find_rate(text, "DECODE");
  if (peer->n_prefill > 0 && *prefill_per_s <= 0) return peer_error(peer, "printed no line PREFILL ... median X t/s");
  if (peer->n_decode > 0 && *decode_per_s <= 0) return peer_error(peer, "printed no line DECODE ... median X t/s");
  return CLI_OK;
}

/* Collects the child, so that none stays behind as a zombie; its status as waitpid gives it.  It may have closed its
 * output long before it ends, so an interrupt is looked for here too. */
static int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    if (cli_interrupt_seen()) kill(child, SIGKILL);
  return status;
}

/* Runs the peer with interrupts deferred, so that they can be passed on. */
static cli_exit run_deferred(const cli_peer *peer, weft__bytes *text) {
  pid_t child;
  int output;
  cli_exit code = start(peer, &output, &child);
  if (code) return code;
  code = read_output(output, text);
  close(output);
  if (code) kill(child, SIGKILL);
  int status = wait_for(child);
  if (code || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return code;
  if (cli_interrupt_seen()) return CLI_INTERRUPTED;
  return peer_error(peer, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed");
}

/* Interrupts end the program at once otherwise, and would leave the child running. */
cli_exit cli_peer_run(const cli_peer *peer, double *prefill_per_s, double *decode_per_s) {
  weft__bytes text = {0};
  cli_interrupt_defer(true);
  cli_exit code = run_deferred(peer, &text);
  cli_interrupt_defer(false);
  if (!code) code = read_rates(peer, text.data, prefill_per_s, decode_per_s);
  weft__bytes_clear(&text);
  return code;
}
