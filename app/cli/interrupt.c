/* interrupt.c - the SIGINT handler.
 *
 * Invariant: the handler touches its two flags and calls _exit, nothing else, so it may interrupt anything.  It is
 * installed without SA_RESTART: a read or wait that it interrupts returns, and the caller asks cli_interrupt_seen. */
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
  sigemptyset(&action.sa_mask);
  /* A shell starts background jobs with SIGINT ignored, and means it. */
  if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
  sigaction(SIGINT, &action, NULL);
}

void cli_interrupt_defer(bool deferred) { state.deferred = deferred; }

void cli_interrupt_clear(void) { state.seen = 0; }

bool cli_interrupt_seen(void) { return state.seen != 0; }
