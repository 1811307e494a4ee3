/* file.c - regular files mapped read-only or read into memory, under UTF-8 paths on every system.
 *
 * Invariants: only a regular file is ever opened, because opening a pipe can block and opening a device can act on it;
 * a mapping outlives the descriptor that made it, so an open map holds no descriptor; advice never fails. */
#include "base/base.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

static weft_status folder_error(const char *path) {
  return weft__error(WEFT_EINVAL, "%s: is a folder (name a file in it)", path);
}

static weft_status kind_error(const char *path) {
  return weft__error(WEFT_EINVAL, "%s: is not a regular file (a pipe, socket or device cannot be mapped)", path);
}

static weft_status cut_error(const char *path, size_t n_read, size_t n_bytes) {
  return weft__error(WEFT_EIO, "%s: it ended after %zu of %zu bytes (somebody cut it meanwhile: fetch it again)", path,
                     n_read, n_bytes);
}

/* The addresses of a stretch of a mapping, rounded to pages. */
typedef struct page_range {
  uintptr_t start, end;
} page_range;

static size_t page_bytes(void);

/* Pages that hold any of the n bytes at `data`. */
static page_range pages_touched(const weft__file_map *map, const void *data, size_t n) {
  const unsigned char *start = data;
  assert(start >= map->data && n <= map->n_bytes - (size_t)(start - map->data));
  (void)map; /* unused without assertions */
  uintptr_t mask = page_bytes() - 1;
  return (page_range){(uintptr_t)start & ~mask, ((uintptr_t)start + n + mask) & ~mask};
}

/* Pages that hold nothing else: what shares a page with the neighbours must stay.  The file's end has no neighbour. */
static page_range pages_owned(const weft__file_map *map, const void *data, size_t n) {
  page_range pages = pages_touched(map, data, n);
  uintptr_t mask = page_bytes() - 1;
  uintptr_t start = (uintptr_t)data, end = start + n;
  if (start & mask) pages.start += mask + 1;
  if ((end & mask) && end != (uintptr_t)map->data + map->n_bytes) pages.end -= mask + 1;
  return pages;
}

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

/* "PATH: the system's reason". */
static weft_status system_error(const char *path) {
  DWORD code = GetLastError();
  WCHAR wide[256];
  char text[768];
  DWORD flags = FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS;
  DWORD n = FormatMessageW(flags, NULL, code, 0, wide, WEFT_COUNT(wide), NULL);
  while (n > 0 && (wide[n - 1] <= L' ' || wide[n - 1] == L'.')) n--;
  int n_bytes = n > 0 ? WideCharToMultiByte(CP_UTF8, 0, wide, (int)n, text, sizeof text, NULL, NULL) : 0;
  weft_status status = code == ERROR_NOT_ENOUGH_MEMORY ? WEFT_ENOMEM : WEFT_EIO;
  if (n_bytes <= 0) return weft__error(status, "%s: system error %lu", path, (unsigned long)code);
  return weft__error(status, "%s: %.*s", path, n_bytes, text);
}

/* The UTF-16 form of a path, freed by the caller. */
static weft_status wide_path(const char *path, WCHAR **out) {
  int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
  if (n <= 0) return weft__error(WEFT_EINVAL, "%s: the path is not UTF-8", path);
  WCHAR *wide = weft__alloc((size_t)n, sizeof *wide);
  if (!wide) return WEFT_ENOMEM;
  MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, n);
  *out = wide;
  return WEFT_OK;
}

static weft_status open_regular(const char *path, HANDLE *file) {
  WCHAR *wide = NULL;
  weft_status status = wide_path(path, &wide);
  if (status) return status;
  /* Opening a folder would fail as "access is denied", which explains nothing. */
  DWORD attributes = GetFileAttributesW(wide);
  if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY)) {
    free(wide);
    return folder_error(path);
  }
  *file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
  if (*file == INVALID_HANDLE_VALUE) status = system_error(path);
  free(wide);
  if (status) return status;
  if (GetFileType(*file) == FILE_TYPE_DISK) return WEFT_OK;
  CloseHandle(*file);
  return kind_error(path);
}

static weft_status get_size(HANDLE file, const char *path, size_t *n_bytes) {
  LARGE_INTEGER size;
  if (!GetFileSizeEx(file, &size)) return system_error(path);
  if ((uint64_t)size.QuadPart > SIZE_MAX) return weft__error(WEFT_ELIMIT, "%s: exceeds the address space", path);
  *n_bytes = (size_t)size.QuadPart;
  return WEFT_OK;
}

static weft_status map_handle(weft__file_map *map, HANDLE file, size_t n_bytes, const char *path) {
  HANDLE section = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
  if (!section) return system_error(path);
  const void *data = MapViewOfFile(section, FILE_MAP_READ, 0, 0, 0);
  weft_status status = data ? WEFT_OK : system_error(path);
  CloseHandle(section);
  if (data) *map = (weft__file_map){data, n_bytes, false};
  return status;
}

/* At most 1 GiB a call, as the count of one has 32 bits. */
static weft_status read_all(unsigned char *data, HANDLE file, size_t n_bytes, const char *path) {
  for (size_t n = 0; n < n_bytes;) {
    DWORD n_read = 0, n_wanted = n_bytes - n < (1u << 30) ? (DWORD)(n_bytes - n) : 1u << 30;
    if (!ReadFile(file, data + n, n_wanted, &n_read, NULL)) return system_error(path);
    if (n_read == 0) return cut_error(path, n, n_bytes);
    n += n_read;
  }
  return WEFT_OK;
}

static weft_status copy_handle(weft__file_map *map, HANDLE file, size_t n_bytes, const char *path) {
  unsigned char *data = VirtualAlloc(NULL, n_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (!data) return system_error(path);
  weft_status status = read_all(data, file, n_bytes, path);
  if (status)
    VirtualFree(data, 0, MEM_RELEASE);
  else
    *map = (weft__file_map){data, n_bytes, true};
  return status;
}

static weft_status open_with(weft__file_map *map, const char *path,
                             weft_status (*take)(weft__file_map *, HANDLE, size_t, const char *)) {
  HANDLE file = INVALID_HANDLE_VALUE;
  size_t n_bytes = 0;
  weft_status status = open_regular(path, &file);
  if (status) return status;
  status = get_size(file, path, &n_bytes);
  if (!status && n_bytes == 0)
    *map = (weft__file_map){0};
  else if (!status)
    status = take(map, file, n_bytes, path);
  CloseHandle(file);
  return status;
}

weft_status weft__file_map_open(weft__file_map *map, const char *path) { return open_with(map, path, map_handle); }

weft_status weft__file_map_read(weft__file_map *map, const char *path) { return open_with(map, path, copy_handle); }

void weft__file_map_close(weft__file_map *map) {
  if (map->data && map->is_copy)
    VirtualFree((void *)(uintptr_t)map->data, 0, MEM_RELEASE);
  else if (map->data)
    UnmapViewOfFile(map->data);
  *map = (weft__file_map){0};
}

static size_t page_bytes(void) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}

void weft__file_map_prefetch(const weft__file_map *map, const void *data, size_t n) {
  if (n == 0) return;
  page_range pages = pages_touched(map, data, n);
  WIN32_MEMORY_RANGE_ENTRY entry = {(void *)pages.start, pages.end - pages.start};
  PrefetchVirtualMemory(GetCurrentProcess(), 1, &entry, 0);
}

/* Unlocking pages that are not locked "fails", and drops them from the working set: the system's way to say this. */
void weft__file_map_release(const weft__file_map *map, const void *data, size_t n) {
  if (n == 0) return;
  page_range pages = pages_owned(map, data, n);
  if (pages.start < pages.end) VirtualUnlock((void *)pages.start, pages.end - pages.start);
}

#else

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static weft_status check_regular(const struct stat *info, const char *path) {
  if (S_ISDIR(info->st_mode)) return folder_error(path);
  return S_ISREG(info->st_mode) ? WEFT_OK : kind_error(path);
}

static weft_status get_size(int descriptor, const char *path, size_t *n_bytes) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return weft__errno_error(errno, path);
  weft_status status = check_regular(&info, path);
  if (status) return status;
  if ((uint64_t)info.st_size > SIZE_MAX) return weft__error(WEFT_ELIMIT, "%s: exceeds the address space", path);
  *n_bytes = (size_t)info.st_size;
  return WEFT_OK;
}

static weft_status map_descriptor(weft__file_map *map, int descriptor, size_t n_bytes, const char *path) {
  void *data = mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data == MAP_FAILED) return weft__errno_error(errno, path);
  *map = (weft__file_map){data, n_bytes, false};
  return WEFT_OK;
}

static weft_status read_all(unsigned char *data, int descriptor, size_t n_bytes, const char *path) {
  for (size_t n = 0; n < n_bytes;) {
    ssize_t n_read = read(descriptor, data + n, n_bytes - n);
    if (n_read < 0 && errno == EINTR) continue;
    if (n_read < 0) return weft__errno_error(errno, path);
    if (n_read == 0) return cut_error(path, n, n_bytes);
    n += (size_t)n_read;
  }
  return WEFT_OK;
}

/* In pages of its own, so that closing and releasing are those of a mapping. */
static weft_status copy_descriptor(weft__file_map *map, int descriptor, size_t n_bytes, const char *path) {
  void *data = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return weft__errno_error(errno, path);
  weft_status status = read_all(data, descriptor, n_bytes, path);
  if (!status && mprotect(data, n_bytes, PROT_READ) != 0) status = weft__errno_error(errno, path);
  if (status)
    munmap(data, n_bytes);
  else
    *map = (weft__file_map){data, n_bytes, true};
  return status;
}

/* An empty file can neither be mapped nor needs to be. */
static weft_status open_with(weft__file_map *map, const char *path,
                             weft_status (*take)(weft__file_map *, int, size_t, const char *)) {
  struct stat info;
  size_t n_bytes = 0;
  if (stat(path, &info) != 0) return weft__errno_error(errno, path);
  weft_status status = check_regular(&info, path);
  if (status) return status;
  /* Non-blocking, in case the path has become a pipe since; the kind is checked again on the descriptor. */
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return weft__errno_error(errno, path);
  status = get_size(descriptor, path, &n_bytes);
  if (!status && n_bytes == 0)
    *map = (weft__file_map){0};
  else if (!status)
    status = take(map, descriptor, n_bytes, path);
  close(descriptor);
  return status;
}

weft_status weft__file_map_open(weft__file_map *map, const char *path) { return open_with(map, path, map_descriptor); }

weft_status weft__file_map_read(weft__file_map *map, const char *path) { return open_with(map, path, copy_descriptor); }

void weft__file_map_close(weft__file_map *map) {
  if (map->data) munmap((void *)map->data, map->n_bytes);
  *map = (weft__file_map){0};
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void weft__file_map_prefetch(const weft__file_map *map, const void *data, size_t n) {
  if (n == 0) return;
  page_range pages = pages_touched(map, data, n);
  madvise((void *)pages.start, pages.end - pages.start, MADV_WILLNEED);
}

/* madvise and not posix_madvise, whose "don't need" is ignored by glibc.  Read-only pages of a file lose nothing;
 * those of a copy would. */
void weft__file_map_release(const weft__file_map *map, const void *data, size_t n) {
  if (n == 0 || map->is_copy) return;
  page_range pages = pages_owned(map, data, n);
  if (pages.start < pages.end) madvise((void *)pages.start, pages.end - pages.start, MADV_DONTNEED);
}

#endif
