/* terminal.h - a program in a real terminal, which tmux is: keys go in, and what a user would see comes out.
 *
 * Everything waits for the screen to say something, never for a time; what does not come within a minute fails the
 * running test and shows the screen. */
#ifndef WEFT_TESTS_TERMINAL_H
#define WEFT_TESTS_TERMINAL_H

typedef struct terminal {
  char socket[64]; /* of a tmux server of its own */
} terminal;

/* Runs a shell command in a terminal of this size; when it ends, the screen says "status N". */
terminal terminal_open(int n_columns, int n_rows, const char *command);
void terminal_close(terminal *t);
/* Ends those that a failed test has left. */
void terminal_close_all(void);

void terminal_type(const terminal *t, const char *text);
void terminal_key(const terminal *t, const char *key); /* as tmux names them: "Enter", "C-c", "Up" */
void terminal_paste(const terminal *t, const char *text);
void terminal_resize(const terminal *t, int n_columns, int n_rows);

/* The screen and what has scrolled off it, wrapped lines joined; `with_attributes`: with their escapes.  The caller's
 * (free). */
char *terminal_text(const terminal *t, int with_attributes);

/* How often the text is there. */
int terminal_count(const terminal *t, const char *text);

/* Waits until the text is there; until it is there n times; until it is the last line that is not empty. */
void terminal_expect(const terminal *t, const char *text);
void terminal_expect_times(const terminal *t, const char *text, int n);
void terminal_expect_last(const terminal *t, const char *line);

#endif
