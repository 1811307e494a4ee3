/* loader.c - where a WebGPU library is looked for, and which are refused.
 *
 * Invariants: the generation is told from the loaded library, never from its name or place; a library is used only if
 * its version is one whose headers were tested; each place that was tried in vain has its part in the message. */
#include "gpu/loader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h> /* getenv */
#include <string.h>

static const char *const file_names[] = {
#if defined(_WIN32)
    "wgpu_native.dll",
    "wgpu_native-release.dll",
#elif defined(__APPLE__)
    "libwgpu_native.dylib",
    "libwgpu_native-release.dylib",
#else
    "libwgpu_native.so",
    "libwgpu_native-release.so",
#endif
};

/* A file that could be loaded and told its version. */
typedef struct candidate {
  void *handle; /* NULL: there is no file, or it was refused */
  uint32_t version;
  char path[1024];
} candidate;

/* "29.0.1.1" */
static void write_version(char text[16], uint32_t version) {
  snprintf(text, 16, "%u.%u.%u.%u", version >> 24, version >> 16 & 255, version >> 8 & 255, version & 255);
}

/* The versions that this build accepts: "29.0.1.1 or 22.1.0.5". */
static void write_accepted(char *text, size_t n_bytes) {
  size_t n = 0;
  for (int i = 0; weft__abis[i] && n < n_bytes; i++)
    n += (size_t)snprintf(text + n, n_bytes - n, "%s%s", i ? " or " : "", weft__abis[i]->accepted);
}

static bool is_accepted(uint32_t version) {
  for (int i = 0; weft__abis[i]; i++)
    if (weft__abis[i]->accepts(version)) return true;
  return false;
}

/* ---- one file ---- */

/* Sets c->version, or the error. */
static weft_status read_version(candidate *c) {
  uint32_t (*get_version)(void);
  void *symbol = weft__dynlib_symbol(c->handle, "wgpuGetVersion");
  if (!symbol) return weft__error(WEFT_ENODEVICE, "%s: is not wgpu-native (it has no wgpuGetVersion)", c->path);
  memcpy(&get_version, &symbol, sizeof symbol);
  c->version = get_version();
  if (is_accepted(c->version)) return WEFT_OK;
  char version[16], accepted[64];
  write_version(version, c->version);
  write_accepted(accepted, sizeof accepted);
  return weft__error(WEFT_ENODEVICE, "%s: is version %s, which was never tested with this program (%s was)", c->path,
                     version, accepted);
}

static void drop_candidate(candidate *c) {
  weft__dynlib_close(c->handle);
  c->handle = NULL;
}

/* Loads the file at c->path.  EIO: there is none. */
static weft_status load_candidate(candidate *c) {
  weft_status status = weft__dynlib_open(&c->handle, c->path);
  if (status) return status;
  status = read_version(c);
  if (status) drop_candidate(c);
  return status;
}

/* Makes the candidate the library; its handle is the library's then. */
static weft_status adopt(weft__gpu_library **out, const weft__abi *abi, candidate *c) {
  weft__gpu_library *library = weft__calloc(1, sizeof *library);
  if (!library) return WEFT_ENOMEM;
  weft_status status = abi->instance_open(&library->instance, c->handle);
  if (status) {
    weft_free(library);
    return weft__error(status, "%s: %s", c->path, weft_last_error());
  }
  library->abi = abi;
  write_version(library->version, c->version);
  snprintf(library->path, sizeof library->path, "%s", c->path);
  c->handle = NULL;
  *out = library;
  return WEFT_OK;
}

/* ---- one place ---- */

/* A story of what was tried in vain; out of memory it stays incomplete. */
static void add_part(weft__bytes *story, const char *text) {
  weft__bytes_printf(story, "%s%s", story->n ? "; " : "", text);
}

/* Adopts the best of the candidates that works; what is wrong with the others goes into `story`. */
static bool adopt_best(weft__gpu_library **out, candidate *candidates, int n, weft__bytes *story) {
  for (int a = 0; weft__abis[a]; a++)
    for (int i = 0; i < n; i++) {
      if (!candidates[i].handle || !weft__abis[a]->accepts(candidates[i].version)) continue;
      if (adopt(out, weft__abis[a], &candidates[i]) == WEFT_OK) return true;
      add_part(story, weft_last_error());
    }
  return false;
}

/* Tries the file names in a folder, or, for NULL, where the system looks.  In vain: adds to `story`. */
static bool try_place(weft__gpu_library **out, const char *folder, weft__bytes *story) {
  candidate candidates[WEFT_COUNT(file_names)] = {{0}};
  int n = (int)WEFT_COUNT(file_names), n_absent = 0;
  for (int i = 0; i < n; i++) {
    snprintf(candidates[i].path, sizeof candidates[i].path, "%s%s%s", folder ? folder : "", folder ? "/" : "",
             file_names[i]);
    weft_status status = load_candidate(&candidates[i]);
    if (status == WEFT_EIO)
      n_absent++;
    else if (status)
      add_part(story, weft_last_error());
  }
  if (n_absent == n) {
    add_part(story, folder ? folder : "the system's search path");
    weft__bytes_printf(story, ": nothing");
  }
  bool is_found = adopt_best(out, candidates, n, story);
  for (int i = 0; i < n; i++) drop_candidate(&candidates[i]);
  return is_found;
}

/* ---- all places ---- */

static weft_status open_named(weft__gpu_library **out, const char *path) {
  candidate c = {0};
  weft__bytes story = {0};
  snprintf(c.path, sizeof c.path, "%s", path);
  if (load_candidate(&c) == WEFT_OK && adopt_best(out, &c, 1, &story)) return WEFT_OK;
  drop_candidate(&c);
  weft__bytes_clear(&story);
  return weft__error(WEFT_ENODEVICE, "WEFT_WGPU_LIB: %s (no other place is tried; unset it, or name another file)",
                     weft_last_error());
}

static bool try_all(weft__gpu_library **out, weft__bytes *story) {
  char program[800], folder[1000];
  if (weft__program_folder(program, sizeof program) == WEFT_OK) {
    if (try_place(out, program, story)) return true;
    for (int a = 0; weft__abis[a]; a++) {
      snprintf(folder, sizeof folder, "%s/../lib/weft/%s", program, weft__abis[a]->generation);
      if (try_place(out, folder, story)) return true;
    }
  }
  return try_place(out, NULL, story);
}

weft_status weft__gpu_library_open(weft__gpu_library **out) {
  const char *named = getenv("WEFT_WGPU_LIB");
  if (named && *named) return open_named(out, named);
  weft__bytes story = {0};
  weft_status status = WEFT_OK;
  if (!try_all(out, &story)) {
    char accepted[64];
    write_accepted(accepted, sizeof accepted);
    status =
        weft__error(WEFT_ENODEVICE, "WebGPU library: %s (install wgpu-native %s, or name its file in WEFT_WGPU_LIB)",
                    story.data ? story.data : "none", accepted);
  }
  weft__bytes_clear(&story);
  return status;
}

/* The first instance that showed an adapter stays open.  Drivers are unloaded with the last instance and loaded again with
 * the next, and NVIDIA's, which leaves thread-local storage behind each time, refuses after 30 times. */
static struct {
  pthread_mutex_t lock;
  weft__gpu_instance *kept;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

void weft__gpu_library_close(weft__gpu_library *library) {
  if (!library) return;
  pthread_mutex_lock(&state.lock);
  bool keep = !state.kept && library->abi->n_adapters(library->instance) > 0;
  if (keep) state.kept = library->instance;
  pthread_mutex_unlock(&state.lock);
  if (!keep) library->abi->instance_close(library->instance);
  weft_free(library);
}
