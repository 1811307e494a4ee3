/* dynlib.c - libraries loaded while the program runs, and the folder that the program stands in.
 *
 * Invariants: a path that names a folder part is opened only if it is a regular file, because opening a pipe can block;
 * symbols of a loaded library stay its own, so that two libraries with the same names do not meet. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
static const char separators[] = "/\\:";
#else
static const char separators[] = "/";
#endif

/* A bare name is left to the system's search path. */
static bool has_folder(const char *path) { return strpbrk(path, separators) != NULL; }

/* Cuts a file's path after its folder; false if it has none. */
static bool cut_to_folder(char *path) {
  char *end = NULL;
  for (char *c = path; (c = strpbrk(c, separators)) != NULL; c++) end = c;
  if (!end) return false;
  end[end == path ? 1 : 0] = '\0';
  return true;
}

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

/* The UTF-16 form of a text, freed by the caller; NULL with the error set. */
static WCHAR *wide_text(const char *text) {
  int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
  if (n <= 0) {
    weft__error(WEFT_EINVAL, "%s: the path is not UTF-8", text);
    return NULL;
  }
  WCHAR *wide = weft__alloc((size_t)n, sizeof *wide);
  if (wide) MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, wide, n);
  return wide;
}

static bool is_regular(const WCHAR *path) {
  DWORD attributes = GetFileAttributesW(path);
  return attributes != INVALID_FILE_ATTRIBUTES && !(attributes & FILE_ATTRIBUTE_DIRECTORY);
}

static weft_status load_error(const char *path, DWORD code) {
  if (code == ERROR_MOD_NOT_FOUND && !has_folder(path)) return weft__error(WEFT_EIO, "%s: no such library", path);
  return weft__error(WEFT_EUNSUPPORTED, "%s: system error %lu", path, (unsigned long)code);
}

weft_status weft__dynlib_open(void **out, const char *path) {
  WCHAR *wide = wide_text(path);
  if (!wide) return weft_last_status();
  HMODULE module = NULL;
  weft_status status = WEFT_OK;
  if (has_folder(path) && !is_regular(wide)) {
    status = weft__error(WEFT_EIO, "%s: no such file", path);
  } else {
    /* Beside a library named with its folder stand the libraries that it needs. */
    DWORD flags = has_folder(path) ? LOAD_WITH_ALTERED_SEARCH_PATH : 0;
    module = LoadLibraryExW(wide, NULL, flags);
    if (!module) status = load_error(path, GetLastError());
  }
  free(wide);
  if (status) return status;
  *out = (void *)module;
  return WEFT_OK;
}

void *weft__dynlib_symbol(void *library, const char *name) {
  FARPROC function = GetProcAddress((HMODULE)library, name);
  void *symbol;
  memcpy(&symbol, &function, sizeof symbol);
  return symbol;
}

void weft__dynlib_close(void *library) {
  if (library) FreeLibrary((HMODULE)library);
}

weft_status weft__program_folder(char *folder, size_t n_bytes) {
  WCHAR wide[1024];
  DWORD n = GetModuleFileNameW(NULL, wide, WEFT_COUNT(wide));
  int length =
      n > 0 && n < WEFT_COUNT(wide) ? WideCharToMultiByte(CP_UTF8, 0, wide, -1, folder, (int)n_bytes, NULL, NULL) : 0;
  if (length <= 0 || !cut_to_folder(folder)) return weft__error(WEFT_EIO, "program: its own path is not known");
  return WEFT_OK;
}

#else

#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

/* A name that is found nowhere and a file that cannot be loaded look alike, but for the text. */
static weft_status load_error(const char *path) {
  const char *reason = dlerror();
  if (!reason) reason = path;
  bool is_absent = !has_folder(path) && (strstr(reason, "No such file") || strstr(reason, "no such file"));
  return weft__error(is_absent ? WEFT_EIO : WEFT_EUNSUPPORTED, "%s", reason);
}

weft_status weft__dynlib_open(void **out, const char *path) {
  struct stat info;
  if (has_folder(path)) {
    if (stat(path, &info) != 0) return weft__errno_error(errno, path);
    if (!S_ISREG(info.st_mode)) return weft__error(WEFT_EINVAL, "%s: is not a regular file", path);
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return load_error(path);
  *out = library;
  return WEFT_OK;
}

void *weft__dynlib_symbol(void *library, const char *name) { return dlsym(library, name); }

void weft__dynlib_close(void *library) {
  if (library) dlclose(library);
}

#if defined(__APPLE__)
static bool program_path(char *path, size_t n_bytes) {
  uint32_t n = (uint32_t)n_bytes;
  return _NSGetExecutablePath(path, &n) == 0;
}
#else
static bool program_path(char *path, size_t n_bytes) {
  ssize_t n = readlink("/proc/self/exe", path, n_bytes);
  if (n <= 0 || (size_t)n >= n_bytes) return false;
  path[n] = '\0';
  return true;
}
#endif

weft_status weft__program_folder(char *folder, size_t n_bytes) {
  if (!program_path(folder, n_bytes) || !cut_to_folder(folder))
    return weft__error(WEFT_EIO, "program: its own path is not known");
  return WEFT_OK;
}

#endif
