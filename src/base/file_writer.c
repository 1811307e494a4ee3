/* file_writer.c - files that are replaced as a whole.
 *
 * Invariant: the file under the given name is the old one or the complete new one, whatever fails or is interrupted.  What
 * is written goes to a temporary file beside it, which is synced and then renamed. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <io.h>
#include <windows.h>
#else
#include <unistd.h>
#endif

struct weft__file_writer {
  FILE *file;
  char *path, *temporary;
};

#if defined(_WIN32)

static WCHAR *to_wide(const char *path) {
  int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
  WCHAR *wide = n > 0 ? weft__alloc((size_t)n, sizeof *wide) : NULL;
  if (wide) MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, n);
  return wide;
}

/* A name that no other process uses; the file is made with it. */
static FILE *open_temporary(char *name) {
  snprintf(strrchr(name, '.'), 8, ".%06lx", (unsigned long)(GetCurrentProcessId() & 0xffffff));
  WCHAR *wide = to_wide(name);
  FILE *file = wide ? _wfopen(wide, L"wb") : NULL;
  free(wide);
  return file;
}

static int sync_file(FILE *file) { return _commit(_fileno(file)); }

static int replace_file(const char *from, const char *to) {
  WCHAR *wide_from = to_wide(from), *wide_to = to_wide(to);
  bool is_done =
      wide_from && wide_to && MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
  free(wide_from);
  free(wide_to);
  if (!is_done) errno = EACCES;
  return is_done ? 0 : -1;
}

static void remove_file(const char *path) {
  WCHAR *wide = to_wide(path);
  if (wide) DeleteFileW(wide);
  free(wide);
}

#else

/* Only the user may read it: what is replaced as a whole is mostly somebody's own text. */
static FILE *open_temporary(char *name) {
  int descriptor = mkstemp(name);
  FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
  if (!file && descriptor >= 0) {
    close(descriptor);
    unlink(name);
  }
  return file;
}

static int sync_file(FILE *file) { return fsync(fileno(file)); }
static int replace_file(const char *from, const char *to) { return rename(from, to); }
static void remove_file(const char *path) { unlink(path); }

#endif

/* Renaming over a device, a pipe or a folder would take it away. */
static weft_status check_target(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0 || (info.st_mode & S_IFMT) == S_IFREG) return WEFT_OK;
  return weft__error(WEFT_EINVAL, "%s: is not a regular file (name a file to write)", path);
}

static weft_status open_writer(weft__file_writer *w, const char *path) {
  weft__bytes temporary = {0};
  weft_status status = weft__bytes_printf(&temporary, "%s.XXXXXX", path);
  if (status) return status;
  w->path = weft__dup(path, strlen(path));
  w->temporary = weft__bytes_take(&temporary);
  if (!w->path || !w->temporary) return WEFT_ENOMEM;
  w->file = open_temporary(w->temporary);
  return w->file ? WEFT_OK : weft__errno_error(errno, path);
}

weft_status weft__file_writer_open(weft__file_writer **out, const char *path) {
  weft_status status = check_target(path);
  if (status) return status;
  weft__file_writer *w = weft__calloc(1, sizeof *w);
  if (!w) return WEFT_ENOMEM;
  status = open_writer(w, path);
  if (status) {
    weft__file_writer_discard(w);
    return status;
  }
  *out = w;
  return WEFT_OK;
}

weft_status weft__file_writer_add(weft__file_writer *w, const void *data, size_t n_bytes) {
  errno = 0;
  return fwrite(data, 1, n_bytes, w->file) == n_bytes ? WEFT_OK : weft__errno_error(errno ? errno : EIO, w->path);
}

void weft__file_writer_discard(weft__file_writer *w) {
  if (!w) return;
  if (w->file) {
    fclose(w->file);
    remove_file(w->temporary);
  }
  weft_free(w->path);
  weft_free(w->temporary);
  weft_free(w);
}

weft_status weft__file_writer_commit(weft__file_writer *w) {
  weft_status status = WEFT_OK;
  errno = 0;
  if (fflush(w->file) != 0 || sync_file(w->file) != 0) status = weft__errno_error(errno ? errno : EIO, w->path);
  if (!status) {
    int failed = fclose(w->file);
    w->file = NULL;
    if (failed || replace_file(w->temporary, w->path) != 0) {
      status = weft__errno_error(errno ? errno : EIO, w->path);
      remove_file(w->temporary);
    }
  }
  weft__file_writer_discard(w);
  return status;
}

weft_status weft__file_write(const char *path, const void *data, size_t n_bytes) {
  weft__file_writer *w;
  weft_status status = weft__file_writer_open(&w, path);
  if (status) return status;
  status = weft__file_writer_add(w, data, n_bytes);
  if (!status) return weft__file_writer_commit(w);
  weft__file_writer_discard(w);
  return status;
}
