/* interrupt.h - Ctrl-C.
 *
 * Most commands have nothing to save: SIGINT ends them at once with status 130, during a load or a read too.  While
 * interrupts are deferred, the first one only sets a flag for the command to act on, and a second ends the program. */
#ifndef WEFT_CLI_INTERRUPT_H
#define WEFT_CLI_INTERRUPT_H

#include <stdbool.h>

void cli_interrupt_install(void);
void cli_interrupt_defer(bool deferred);
void cli_interrupt_end_reads(bool ended); /* whether one makes a read that waits return with EINTR */
void cli_interrupt_clear(void);           /* what was seen has been acted on */
bool cli_interrupt_seen(void);            /* one came while they were deferred */

#endif
