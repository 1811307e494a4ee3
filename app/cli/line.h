/* line.h - lines of input: edited by the user on a terminal, plain from anywhere else. */
#ifndef WEFT_CLI_LINE_H
#define WEFT_CLI_LINE_H

#include "cli.h"

#include "base/base.h"

typedef struct cli_line cli_line;

typedef enum cli_line_result {
  CLI_LINE_READ,
  CLI_LINE_END,         /* end of input */
  CLI_LINE_INTERRUPTED, /* cli_interrupt_seen */
  CLI_LINE_FAILED,      /* an error was reported */
} cli_line_result;

/* `is_edited`: both ends are a terminal that a user may edit lines on, with a history that is kept from one run to the
 * next.  Reports its own error. */
cli_exit cli_line_open(cli_line **out, bool is_edited);
void cli_line_close(cli_line *line);

/* Appends the next line, without its end, to `text`.  The prompt shows on a terminal only.  A text that was pasted may
 * hold line breaks. */
cli_line_result cli_line_read(cli_line *line, const char *prompt, weft__bytes *text);

/* Makes the text the newest entry of the history. */
void cli_line_remember(cli_line *line, const char *text);

#endif
