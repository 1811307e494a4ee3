/* terminal.c - see terminal.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/terminal.h"

#include "support/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_S = 60 };

/* Runs tmux with these words; its output is the caller's. */
static char *run_tmux(const terminal *t, const char *const *words) {
  const char *argv[RUN_MAX_WORDS] = {"tmux", "-u", "-f", "/dev/null", "-S", t->socket};
  static const char *const environment[] = {"LC_ALL=C.UTF-8", "TMUX", NULL};
  for (int i = 0; words[i]; i++) argv[6 + i] = words[i];
  run_result r = run_program(argv, &(run_options){.environment = environment});
  if (r.status != 0) fail_msg("tmux %s: status %d: %s", words[0], r.status, r.err);
  free(r.err);
  return r.out;
}

#define TMUX(t, ...) free(run_tmux(t, (const char *const[]){__VA_ARGS__, NULL}))

static struct { int n_opened; } state;

static void name_socket(terminal *t, int number) {
  snprintf(t->socket, sizeof t->socket, "/tmp/weft-tmux-%ld-%d", (long)getpid(), number);
}

terminal terminal_open(int n_columns, int n_rows, const char *command) {
  terminal t;
  char columns[16], rows[16], shell[2048];
  name_socket(&t, state.n_opened++);
  snprintf(columns, sizeof columns, "%d", n_columns);
  snprintf(rows, sizeof rows, "%d", n_rows);
  /* The terminal stays when the command has ended, so that its last words can be read. */
  snprintf(shell, sizeof shell, "trap '' INT; (trap - INT; exec env %s); echo status $?; exec sleep 600", command);
  TMUX(&t, "new-session", "-d", "-x", columns, "-y", rows, shell);
  TMUX(&t, "set-option", "-g", "history-limit", "20000");
  return t;
}

void terminal_close(terminal *t) {
  TMUX(t, "kill-server");
  unlink(t->socket);
}

void terminal_close_all(void) {
  for (; state.n_opened > 0; state.n_opened--) {
    terminal t;
    name_socket(&t, state.n_opened - 1);
    if (access(t.socket, F_OK) == 0) terminal_close(&t);
  }
}

void terminal_type(const terminal *t, const char *text) { TMUX(t, "send-keys", "-l", "--", text); }

void terminal_key(const terminal *t, const char *key) { TMUX(t, "send-keys", key); }

/* As a terminal does it: in brackets, if the program has asked for them. */
void terminal_paste(const terminal *t, const char *text) {
  TMUX(t, "set-buffer", "--", text);
  TMUX(t, "paste-buffer", "-p");
}

void terminal_resize(const terminal *t, int n_columns, int n_rows) {
  char columns[16], rows[16];
  snprintf(columns, sizeof columns, "%d", n_columns);
  snprintf(rows, sizeof rows, "%d", n_rows);
  TMUX(t, "resize-window", "-x", columns, "-y", rows);
}

char *terminal_text(const terminal *t, int with_attributes) {
  const char *const plain[] = {"capture-pane", "-p", "-J", "-S", "-", NULL};
  const char *const colored[] = {"capture-pane", "-p", "-J", "-e", "-S", "-", NULL};
  return run_tmux(t, with_attributes ? colored : plain);
}

/* ---- waiting ---- */

static int count_text(const char *screen, const char *text) {
  int n = 0;
  for (; (screen = strstr(screen, text)); screen += strlen(text)) n++;
  return n;
}

/* Whether `line`, space at its end apart, is the last line of the screen that has any text. */
static int is_last_line(const char *screen, const char *line) {
  const char *end = screen + strlen(screen), *start;
  while (end > screen && strchr(" \n", end[-1])) end--;
  for (start = end; start > screen && start[-1] != '\n';) start--;
  return (size_t)(end - start) == strlen(line) && memcmp(start, line, strlen(line)) == 0;
}

/* n is 0: as the last line. */
static void expect(const terminal *t, const char *text, int n) {
  time_t deadline = time(NULL) + PATIENCE_S;
  for (;;) {
    char *screen = terminal_text(t, 0);
    int is_there = n ? count_text(screen, text) >= n : is_last_line(screen, text);
    if (!is_there && time(NULL) > deadline) fail_msg("\"%s\" did not come; the screen:\n%s", text, screen);
    free(screen);
    if (is_there) return;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
}

int terminal_count(const terminal *t, const char *text) {
  char *screen = terminal_text(t, 0);
  int n = count_text(screen, text);
  free(screen);
  return n;
}

void terminal_expect(const terminal *t, const char *text) { expect(t, text, 1); }
void terminal_expect_times(const terminal *t, const char *text, int n) { expect(t, text, n); }
void terminal_expect_last(const terminal *t, const char *line) { expect(t, line, 0); }
