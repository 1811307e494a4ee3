/* run.c - see run.h.  The child is reached through three pipes, which one loop feeds and drains, so neither side can
 * wait for the other for ever; `deadline` ends what waits all the same. */
#include "support/run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A started program and our ends of its pipes; -1 where there is none (any more). */
typedef struct child {
  pid_t pid;
  int in, out, err;
  size_t n_written;
  int interrupts; /* still to be sent */
} child;

static void check(int ok, const char *what) {
  if (ok) return;
  perror(what);
  abort();
}

/* ---- starting ---- */

typedef struct pipe_pair {
  int read_end, write_end;
} pipe_pair;

static pipe_pair make_pipe(void) {
  int ends[2];
  check(pipe2(ends, O_CLOEXEC) == 0, "pipe");
  return (pipe_pair){ends[0], ends[1]};
}

static void close_end(int *end) {
  if (*end >= 0) close(*end);
  *end = -1;
}

static void set_environment(const char *const *environment) {
  for (; environment && *environment; environment++) {
    char *name = strdup(*environment);
    char *equals = name ? strchr(name, '=') : NULL;
    if (equals) *equals = 0;
    check(name && (equals ? setenv(name, equals + 1, 1) : unsetenv(name)) == 0, "environment");
    free(name);
  }
}

/* In the child: root reads what nobody may read by a right of its own, which the program is not to get. */
static void give_up_override(void) {
  if (prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) != 0) _exit(126);
  if (prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH, 0, 0, 0) != 0) _exit(126);
}

/* In the child: puts the descriptors in place and becomes the program; 127 if that fails, as in a shell. */
static void become(const char *const *argv, const run_options *o, int in, int out, int err) {
  dup2(in, STDIN_FILENO);
  dup2(err, STDERR_FILENO);
  if (o->out == RUN_FULL_DISK) out = open("/dev/full", O_WRONLY);
  if (o->out == RUN_NO_STDOUT)
    close(STDOUT_FILENO);
  else
    dup2(out, STDOUT_FILENO);
  /* Whoever runs the tests may ignore these; the program is to meet them as a user's shell leaves them. */
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  set_environment(o->environment);
  if (o->permissions_apply && geteuid() == 0) give_up_override();
  execvp(argv[0], (char *const *)argv);
  _exit(127);
}

static time_t seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

static void pause_1_ms(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

/* The signals that a process handles, as the system's mask of them; 0 if it has ended. */
static unsigned long long handled_signals(pid_t pid) {
  char path[64], line[256];
  unsigned long long mask = 0;
  snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, "SigCgt:", 7) == 0) mask = strtoull(line + 7, NULL, 16);
  fclose(file);
  return mask;
}

static void wait_for_handler(pid_t pid) {
  time_t deadline = seconds_now() + RUN_LIMIT_S;
  while (!(handled_signals(pid) >> (SIGINT - 1) & 1) && seconds_now() <= deadline) pause_1_ms();
}

static child start(const char *const *argv, const run_options *o) {
  pipe_pair in = make_pipe(), out = make_pipe(), err = make_pipe();
  child c = {.in = in.write_end, .out = out.read_end, .err = err.read_end, .interrupts = o->interrupts};
  /* Before the program starts, or its first writes could still succeed. */
  if (o->out == RUN_CLOSED_PIPE) close_end(&c.out);
  c.pid = fork();
  check(c.pid >= 0, "fork");
  if (c.pid == 0) become(argv, o, in.read_end, out.write_end, err.write_end);
  close(in.read_end);
  close(out.write_end);
  close(err.write_end);
  if (o->interrupt_early) {
    wait_for_handler(c.pid);
    kill(c.pid, SIGINT);
  }
  return c;
}

/* ---- feeding and draining ---- */

/* Captured bytes. */
typedef struct capture {
  char *data;
  size_t n;
} capture;

static void write_input(child *c, const run_options *o) {
  if (c->n_written < o->n_input) {
    ssize_t n = write(c->in, o->input + c->n_written, o->n_input - c->n_written);
    if (n > 0) c->n_written += (size_t)n;
    if (n < 0 && errno != EINTR) c->n_written = o->n_input; /* the program does not want it */
  }
  if (c->n_written >= o->n_input && o->in == RUN_EMPTY_STDIN) close_end(&c->in);
}

/* Appends what there is to read; closes the end at end of file. */
static void read_output(int *end, capture *captured) {
  char chunk[4096];
  ssize_t n = read(*end, chunk, sizeof chunk);
  if (n < 0 && errno == EINTR) return;
  if (n <= 0) {
    close_end(end);
    return;
  }
  captured->data = realloc(captured->data, captured->n + (size_t)n + 1);
  check(captured->data != NULL, "realloc");
  memcpy(captured->data + captured->n, chunk, (size_t)n);
  captured->n += (size_t)n;
}

/* What a test wants to happen once the program has begun to speak. */
static void act_on_first_output(child *c, const run_options *o, const capture *out, const capture *err) {
  if (out->n == 0 && err->n == 0) return;
  for (; c->interrupts > 0; c->interrupts--) {
    kill(c->pid, SIGINT);
    /* Signals of one kind do not queue: the next one must come after this one was taken. */
    pause_1_ms();
  }
  if (o->out == RUN_CLOSED_LATER && out->n > 0) close_end(&c->out);
}

static void exchange(child *c, const run_options *o, capture *out, capture *err) {
  time_t deadline = seconds_now() + RUN_LIMIT_S;
  while (c->out >= 0 || c->err >= 0) {
    int wants_in = c->in >= 0 && (o->in == RUN_EMPTY_STDIN || c->n_written < o->n_input);
    struct pollfd ends[3] = {{c->out, POLLIN, 0}, {c->err, POLLIN, 0}, {wants_in ? c->in : -1, POLLOUT, 0}};
    int n = poll(ends, 3, 1000);
    check(n >= 0 || errno == EINTR, "poll");
    if (n > 0 && ends[0].revents) read_output(&c->out, out);
    if (n > 0 && ends[1].revents) read_output(&c->err, err);
    if (n > 0 && ends[2].revents) write_input(c, o);
    act_on_first_output(c, o, out, err);
    if (seconds_now() > deadline) kill(c->pid, SIGKILL);
  }
}

/* ---- the run ---- */

/* Waits for the program; its output has ended, but it may still be busy. */
static void finish(child *c, run_result *result) {
  int status = 0;
  time_t deadline = seconds_now() + RUN_LIMIT_S;
  for (;;) {
    pid_t ended = waitpid(c->pid, &status, WNOHANG);
    check(ended >= 0 || errno == EINTR, "waitpid");
    if (ended == c->pid) break;
    if (seconds_now() > deadline) kill(c->pid, SIGKILL);
    pause_1_ms();
  }
  close_end(&c->in);
  result->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static char *terminate_text(capture *captured) {
  if (!captured->data) captured->data = malloc(1);
  check(captured->data != NULL, "malloc");
  captured->data[captured->n] = 0;
  return captured->data;
}

run_result run_program(const char *const *argv, const run_options *options) {
  run_options o = options ? *options : (run_options){0};
  capture out = {0}, err = {0};
  run_result result = {0};
  signal(SIGPIPE, SIG_IGN); /* of our write into a program that has gone */
  child c = start(argv, &o);
  exchange(&c, &o, &out, &err);
  finish(&c, &result);
  result.out = terminate_text(&out);
  result.err = terminate_text(&err);
  result.n_out = out.n;
  result.n_err = err.n;
  return result;
}

void run_clear(run_result *result) {
  free(result->out);
  free(result->err);
  *result = (run_result){0};
}
