/* line.c - lines of input.
 *
 * Editing and history are libedit's, where the build has it and both ends are a terminal; otherwise lines are read as they
 * come, and a terminal's own editing has to do.  libedit sets the terminal up for each line and back afterwards, on
 * signals too, so between two lines it is as the user left it. */
#include "line.h"
#include "interrupt.h"
#include "output.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef WEFT_LIBEDIT
#include <histedit.h>
#include <wchar.h>
#endif

enum { CHUNK_BYTES = 65536, HISTORY_ENTRIES = 1000 };

struct cli_line {
  char chunk[CHUNK_BYTES]; /* read but not handed out: next .. end */
  size_t next, end;
#ifdef WEFT_LIBEDIT
  EditLine *edit; /* NULL: plain lines */
  History *history;
  char *history_path; /* NULL: not kept */
  const char *prompt;
#endif
};

/* ---- plain lines ---- */

/* Whoever types into a pipe's other end still wants to see that it is their turn. */
static void show_prompt(const char *prompt) {
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return;
  fputs(prompt, stderr);
  fflush(stderr);
}

/* Refills the empty chunk. */
static cli_line_result fill(cli_line *l) {
  for (;;) {
    cli_interrupt_end_reads(true);
    /* One that came before would not end the read. */
    ssize_t n = cli_interrupt_seen() ? -1 : read(STDIN_FILENO, l->chunk, sizeof l->chunk);
    int error = errno;
    cli_interrupt_end_reads(false);
    l->next = 0;
    l->end = n > 0 ? (size_t)n : 0;
    if (n > 0) return CLI_LINE_READ;
    if (n == 0) return CLI_LINE_END;
    if (cli_interrupt_seen()) return CLI_LINE_INTERRUPTED;
    if (error == EINTR) continue;
    cli_error("standard input: %s (give one that can be read)", strerror(error));
    return CLI_LINE_FAILED;
  }
}

/* A last line without an end counts; a carriage return before the end belongs to it. */
static cli_line_result read_plain(cli_line *l, weft__bytes *text) {
  size_t n_before = text->n;
  for (;;) {
    if (l->next == l->end) {
      cli_line_result result = fill(l);
      if (result == CLI_LINE_END && text->n > n_before) return CLI_LINE_READ;
      if (result != CLI_LINE_READ) return result;
    }
    const char *start = l->chunk + l->next, *newline = memchr(start, '\n', l->end - l->next);
    size_t n = newline ? (size_t)(newline - start) : l->end - l->next;
    l->next += n + (newline != NULL);
    if (weft__bytes_add(text, start, n)) {
      cli_fail();
      return CLI_LINE_FAILED;
    }
    if (!newline) continue;
    if (text->n > n_before && text->data[text->n - 1] == '\r') text->data[--text->n] = 0;
    return CLI_LINE_READ;
  }
}

#ifdef WEFT_LIBEDIT

/* ---- the history's file ---- */

/* The XDG state folder's weft/chat_history, its folders made if they are missing; NULL if that cannot be. */
static char *find_history_path(void) {
  weft__bytes path = {0};
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  weft_status status = WEFT_OK;
  if (state && *state)
    status = weft__bytes_printf(&path, "%s/weft/chat_history", state);
  else if (home && *home)
    status = weft__bytes_printf(&path, "%s/.local/state/weft/chat_history", home);
  if (status || path.n == 0) {
    weft__bytes_clear(&path);
    return NULL;
  }
  /* Only the user may look into them, as XDG wants it. */
  for (char *slash = path.data + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    mkdir(path.data, 0700);
    *slash = '/';
  }
  return weft__bytes_take(&path);
}

/* Through a file beside it, so that a crash leaves the old history or the new one.  A history that cannot be kept is no
 * reason to disturb a conversation. */
static void save_history(cli_line *l) {
  HistEvent event;
  weft__bytes temporary = {0};
  if (!l->history_path) return;
  if (!weft__bytes_printf(&temporary, "%s.%ld", l->history_path, (long)getpid())) {
    if (history(l->history, &event, H_SAVE, temporary.data) < 0 || rename(temporary.data, l->history_path) != 0)
      remove(temporary.data);
  }
  weft__bytes_clear(&temporary);
}

/* ---- edited lines ---- */

static char *show_edit_prompt(EditLine *edit) {
  cli_line *l;
  el_get(edit, EL_CLIENTDATA, &l);
  return (char *)(uintptr_t)l->prompt;
}

/* What a terminal sends around a pasted text, once it has been asked to. */
static const char PASTE_ON[] = "\033[?2004h", PASTE_OFF[] = "\033[?2004l";
static const wchar_t PASTE_END[] = L"\033[201~";

/* Makes line breaks of what terminals paste for them. */
static void normalise_breaks(wchar_t *text) {
  wchar_t *to = text;
  for (const wchar_t *from = text; *from; from++) {
    if (*from == L'\r' && from[1] == L'\n') continue;
    *to++ = *from == L'\r' ? L'\n' : *from;
  }
  *to = 0;
}

/* Takes a pasted text as a whole, so that its line breaks end no line.  An interrupt or the end of input in the middle ends
 * the line. */
static unsigned char take_paste(EditLine *edit, wint_t key) {
  weft__bytes text = {0};
  const size_t n_end = WEFT_COUNT(PASTE_END) - 1;
  wchar_t c;
  bool is_whole = false;
  (void)key;
  while (el_wgetc(edit, &c) == 1) {
    if (weft__bytes_add(&text, &c, sizeof c)) break;
    size_t n = text.n / sizeof c;
    wchar_t *all = (wchar_t *)(void *)text.data;
    if (n < n_end || wmemcmp(all + n - n_end, PASTE_END, n_end) != 0) continue;
    all[n - n_end] = 0;
    normalise_breaks(all);
    el_winsertstr(edit, all);
    is_whole = true;
    break;
  }
  weft__bytes_clear(&text);
  return is_whole ? CC_REFRESH : CC_EOF;
}

/* Keys that users of other line editors expect besides libedit's own. */
static void bind_keys(EditLine *edit) {
  static const char *const keys[][2] = {
      {"^R", "em-inc-search-prev"},      {"^W", "ed-delete-prev-word"},     {"\\e[1;5C", "em-next-word"},
      {"\\e[1;5D", "ed-prev-word"},      {"\\e[3~", "ed-delete-next-char"}, {"\\e[H", "ed-move-to-beg"},
      {"\\e[F", "ed-move-to-end"},       {"\\e[1~", "ed-move-to-beg"},      {"\\e[4~", "ed-move-to-end"},
      {"\\e[200~", "weft-insert-paste"},
  };
  el_wset(edit, EL_ADDFN, L"weft-insert-paste", L"insert a pasted text", take_paste);
  for (size_t i = 0; i < WEFT_COUNT(keys); i++) el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
}

/* Characters are read as the locale says, and without one as UTF-8, which is what terminals send today. */
static void prepare_locale(void) {
  setlocale(LC_CTYPE, "");
  if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

/* Leaves plain lines if libedit refuses the terminal. */
static void open_edited(cli_line *l) {
  HistEvent event;
  prepare_locale();
  l->history = history_init();
  l->edit = l->history ? el_init("weft", stdin, stdout, stderr) : NULL;
  if (!l->edit) return;
  history(l->history, &event, H_SETSIZE, HISTORY_ENTRIES);
  history(l->history, &event, H_SETUNIQUE, 1);
  l->history_path = find_history_path();
  if (l->history_path) history(l->history, &event, H_LOAD, l->history_path);
  el_set(l->edit, EL_CLIENTDATA, l);
  el_set(l->edit, EL_PROMPT, show_edit_prompt);
  el_set(l->edit, EL_HIST, history, l->history);
  el_set(l->edit, EL_EDITOR, "emacs");
  el_set(l->edit, EL_SIGNAL, 1);
  bind_keys(l->edit);
  el_source(l->edit, NULL); /* the user's own ~/.editrc */
}

static cli_line_result read_edited(cli_line *l, const char *prompt, weft__bytes *text) {
  int n = 0;
  l->prompt = prompt;
  fputs(PASTE_ON, stdout);
  fflush(stdout);
  const char *typed = el_gets(l->edit, &n);
  fputs(PASTE_OFF, stdout);
  /* Ctrl-D and Ctrl-C leave the cursor behind the prompt. */
  if (!typed) fputc('\n', stdout);
  fflush(stdout);
  if (cli_interrupt_seen()) return CLI_LINE_INTERRUPTED;
  if (!typed) return CLI_LINE_END;
  if (n > 0 && typed[n - 1] == '\n') n--;
  if (!weft__bytes_add(text, typed, (size_t)n)) return CLI_LINE_READ;
  cli_fail();
  return CLI_LINE_FAILED;
}

static bool is_edited_line(const cli_line *l) { return l->edit != NULL; }

static void close_edited(cli_line *l) {
  if (l->edit) el_end(l->edit);
  if (l->history) history_end(l->history);
  weft_free(l->history_path);
}

void cli_line_remember(cli_line *l, const char *text) {
  HistEvent event;
  if (!l->edit || !*text) return;
  history(l->history, &event, H_ENTER, text);
  save_history(l);
}

#else

static void open_edited(cli_line *l) { (void)l; }
static void close_edited(cli_line *l) { (void)l; }
static bool is_edited_line(const cli_line *l) {
  (void)l;
  return false;
}
static cli_line_result read_edited(cli_line *l, const char *prompt, weft__bytes *text) {
  (void)prompt;
  return read_plain(l, text);
}
void cli_line_remember(cli_line *l, const char *text) {
  (void)l;
  (void)text;
}

#endif

/* ---- either ---- */

cli_exit cli_line_open(cli_line **out, bool is_edited) {
  cli_line *l = weft__calloc(1, sizeof *l);
  if (!l) return cli_fail();
  if (is_edited) open_edited(l);
  *out = l;
  return CLI_OK;
}

void cli_line_close(cli_line *l) {
  if (!l) return;
  close_edited(l);
  weft_free(l);
}

cli_line_result cli_line_read(cli_line *l, const char *prompt, weft__bytes *text) {
  if (weft__bytes_add(text, "", 0)) { /* an empty line is text, too */
    cli_fail();
    return CLI_LINE_FAILED;
  }
  if (is_edited_line(l)) return read_edited(l, prompt, text);
  show_prompt(prompt);
  return read_plain(l, text);
}
