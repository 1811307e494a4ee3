/* file_writer.c - files that are replaced as a whole.
 *
 * Invariant: the file under the given name is the old one or the complete new one, whatever fails or is interrupted.  What
 * is written goes to a temporary file beside it, which is synced and then renamed. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <io.h>
#include <windows.h>
#else
#include <unistd.h>
#endif

enum {
  MAX_NAMES = 1000, /* that are tried for a temporary file */
  SUFFIX_BYTES = sizeof ".xxxxxx",
};

struct weft__file_writer {
  FILE *file;
  char *path, *temporary;
};

/* ---- the system's calls; paths are UTF-8 ---- */

#if defined(_WIN32)

static WCHAR *to_wide(const char *path) {
  int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
  WCHAR *wide = n > 0 ? weft__alloc((size_t)n, sizeof *wide) : NULL;
  if (wide) MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, n);
  return wide;
}

static unsigned process_number(void) { return (unsigned)GetCurrentProcessId(); }

/* The type and permissions of what is there; false if nothing is. */
static bool get_mode(const char *path, unsigned *mode) {
  struct _stat64 info;
  WCHAR *wide = to_wide(path);
  bool is_there = wide && _wstat64(wide, &info) == 0;
  if (is_there) *mode = info.st_mode;
  weft_free(wide);
  return is_there;
}

/* A new file; EEXIST if there is one.  The folder says who may read it. */
static int create_file(const char *name, weft__file_access access) {
  (void)access;
  WCHAR *wide = to_wide(name);
  int descriptor = -1;
  errno = EINVAL;
  if (wide) descriptor = _wopen(wide, _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
  weft_free(wide);
  return descriptor;
}

static int set_mode(int descriptor, unsigned mode) {
  (void)descriptor;
  (void)mode;
  return 0;
}

static FILE *to_stream(int descriptor) { return _fdopen(descriptor, "wb"); }
static void close_descriptor(int descriptor) { _close(descriptor); }
static int sync_file(FILE *file) { return _commit(_fileno(file)); }

static int replace_file(const char *from, const char *to) {
  WCHAR *wide_from = to_wide(from), *wide_to = to_wide(to);
  bool is_done =
      wide_from && wide_to && MoveFileExW(wide_from, wide_to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
  weft_free(wide_from);
  weft_free(wide_to);
  if (!is_done) errno = EACCES;
  return is_done ? 0 : -1;
}

static void remove_file(const char *path) {
  WCHAR *wide = to_wide(path);
  if (wide) DeleteFileW(wide);
  weft_free(wide);
}

#else

static unsigned process_number(void) { return (unsigned)getpid(); }

static bool get_mode(const char *path, unsigned *mode) {
  struct stat info;
  if (stat(path, &info) != 0) return false;
  *mode = info.st_mode;
  return true;
}

static int create_file(const char *name, weft__file_access access) {
  return open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, access == WEFT__FILE_PRIVATE ? 0600 : 0666);
}

static int set_mode(int descriptor, unsigned mode) { return fchmod(descriptor, mode & 0777); }
static FILE *to_stream(int descriptor) { return fdopen(descriptor, "wb"); }
static void close_descriptor(int descriptor) { close(descriptor); }
static int sync_file(FILE *file) { return fsync(fileno(file)); }
static int replace_file(const char *from, const char *to) { return rename(from, to); }
static void remove_file(const char *path) { unlink(path); }

#endif

/* ---- writers ---- */

/* A file of a name that nothing else has, which is put into `name` over its last SUFFIX_BYTES; -1 with errno. */
static int create_temporary(char *name, weft__file_access access) {
  int descriptor = -1;
  errno = EEXIST;
  for (unsigned i = 0; i < MAX_NAMES && descriptor < 0 && errno == EEXIST; i++) {
    snprintf(strrchr(name, '.'), SUFFIX_BYTES, ".%06x", (process_number() + i) & 0xffffff);
    descriptor = create_file(name, access);
  }
  return descriptor;
}

/* `old_mode` is 0 unless the file's permissions are to be those. */
static weft_status open_temporary(weft__file_writer *w, weft__file_access access, unsigned old_mode) {
  int descriptor = create_temporary(w->temporary, access);
  if (descriptor < 0) return weft__errno_error(errno, w->path);
  if (!old_mode || set_mode(descriptor, old_mode) == 0) w->file = to_stream(descriptor);
  if (w->file) return WEFT_OK;
  weft_status status = weft__errno_error(errno, w->path);
  close_descriptor(descriptor);
  remove_file(w->temporary);
  return status;
}

static weft_status open_writer(weft__file_writer *w, const char *path, weft__file_access access) {
  weft__bytes temporary = {0};
  unsigned old_mode = 0;
  /* Renaming over a device, a pipe or a folder would take it away. */
  if (get_mode(path, &old_mode) && (old_mode & S_IFMT) != S_IFREG)
    return weft__error(WEFT_EINVAL, "%s: is not a regular file (name a file to write)", path);
  weft_status status = weft__bytes_printf(&temporary, "%s.xxxxxx", path);
  if (status) return status;
  w->path = weft__dup(path, strlen(path));
  w->temporary = weft__bytes_take(&temporary);
  if (!w->path || !w->temporary) return WEFT_ENOMEM;
  return open_temporary(w, access, access == WEFT__FILE_SHARED ? old_mode : 0);
}

weft_status weft__file_writer_open(weft__file_writer **out, const char *path, weft__file_access access) {
  weft__file_writer *w = weft__calloc(1, sizeof *w);
  if (!w) return WEFT_ENOMEM;
  weft_status status = open_writer(w, path, access);
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

weft_status weft__file_write(const char *path, weft__file_access access, const void *data, size_t n_bytes) {
  weft__file_writer *w;
  weft_status status = weft__file_writer_open(&w, path, access);
  if (status) return status;
  status = weft__file_writer_add(w, data, n_bytes);
  if (!status) return weft__file_writer_commit(w);
  weft__file_writer_discard(w);
  return status;
}
