/* replay.c - feeds every file of the folders on the command line to the fuzz target it is linked with, so that what the
 * fuzzer once found stays fixed without needing the fuzzer.  Fails when there is nothing to replay. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void fail(const char *path) {
  perror(path);
  exit(1);
}

/* The bytes go into a block of exactly their number, so that a sanitizer notices a read past the input. */
static void replay_file(const char *path, size_t n_bytes) {
  uint8_t *data = malloc(n_bytes > 0 ? n_bytes : 1);
  FILE *file = fopen(path, "rb");
  if (!data || !file || fread(data, 1, n_bytes, file) != n_bytes) fail(path);
  fclose(file);
  LLVMFuzzerTestOneInput(data, n_bytes);
  free(data);
}

static size_t replay_folder(const char *folder) {
  size_t n_inputs = 0;
  DIR *entries = opendir(folder);
  if (!entries) fail(folder);
  for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
    char path[PATH_MAX];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (stat(path, &info) != 0) fail(path);
    if (!S_ISREG(info.st_mode)) continue;
    replay_file(path, (size_t)info.st_size);
    n_inputs++;
  }
  closedir(entries);
  return n_inputs;
}

int main(int argc, char **argv) {
  size_t n_inputs = 0;
  for (int i = 1; i < argc; i++) n_inputs += replay_folder(argv[i]);
  printf("%zu inputs replayed\n", n_inputs);
  return n_inputs > 0 ? 0 : 1;
}
