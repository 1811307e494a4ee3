/* folder.c - see folder.h. */
#include "support/folder.h"
#include "support/gguf_writer.h"
#include "support/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[32];

int folder_create(void **unused) {
  (void)unused;
  snprintf(folder, sizeof folder, "/tmp/weft-test-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

int folder_remove(void **unused) {
  (void)unused;
  run_result r = run_program((const char *const[]){"rm", "-r", folder, NULL}, NULL);
  int status = r.status;
  run_clear(&r);
  return status;
}

const char *folder_path(void) { return folder; }

const char *in_folder(const char *name) {
  static struct {
    char paths[8][160];
    int next;
  } ring;
  char *path = ring.paths[ring.next++ % 8];
  snprintf(path, sizeof ring.paths[0], "%s/%s", folder, name);
  return path;
}

const char *write_text(const char *name, const char *text) {
  const char *path = in_folder(name);
  gguf_write_file(path, text, strlen(text));
  return path;
}
