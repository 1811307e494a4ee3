/* interrupt.c - the SIGINT handler.
 *
 * Invariant: the handler touches its two flags and calls _exit, nothing else, so it may interrupt anything.  It is
 * installed with SA_RESTART, or a write to a slow terminal would fail half way; only while somebody waits for input does
 * it end the read. */
#include "interrupt.h"

#include "cli.h"

#include <signal.h>
#include <unistd.h>

static struct { volatile sig_atomic_t deferred, seen; } state;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  if (!state.deferred || state.seen) _exit(CLI_INTERRUPTED);
  state.seen = 1;
}

void cli_interrupt_install(void) {
  struct sigaction action = {0}, before;
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  /* A shell starts background jobs with SIGINT ignored, and means it. */
  if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
  sigaction(SIGINT, &action, NULL);
}

void cli_interrupt_defer(bool deferred) { state.deferred = deferred; }

void cli_interrupt_end_reads(bool ended) {
  struct sigaction action;
  if (sigaction(SIGINT, NULL, &action) != 0) return;
  action.sa_flags = ended ? action.sa_flags & ~SA_RESTART : action.sa_flags | SA_RESTART;
  sigaction(SIGINT, &action, NULL);
}

void cli_interrupt_clear(void) { state.seen = 0; }

bool cli_interrupt_seen(void) { return state.seen != 0; }
