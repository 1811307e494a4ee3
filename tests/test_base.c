/* test_base.c - statuses and errors, checked allocation, bytes, file mapping, random numbers. */
#include "base/base.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- statuses ---- */

static void statuses_have_names_and_texts(void **state) {
  (void)state;
  assert_string_equal(weft_status_name(WEFT_OK), "WEFT_OK");
  assert_string_equal(weft_status_text(WEFT_OK), "success");
  assert_string_equal(weft_status_name(WEFT_EFORMAT), "WEFT_EFORMAT");
  assert_string_equal(weft_status_name(WEFT_ECANCELED), "WEFT_ECANCELED");
  assert_string_equal(weft_status_text(WEFT_ECANCELED), "canceled");
  assert_string_equal(weft_status_name((weft_status)(WEFT_ECANCELED + 1)), "WEFT_?");
  assert_string_equal(weft_status_text((weft_status)-1), "unknown status");
}

static void version_is_three_numbers(void **state) {
  (void)state;
  int major, minor, patch, end = 0;
  assert_int_equal(sscanf(weft_version(), "%d.%d.%d%n", &major, &minor, &patch, &end), 3);
  assert_int_equal(end, strlen(weft_version()));
}

static void error_is_kept(void **state) {
  (void)state;
  assert_int_equal(weft__error(WEFT_EINVAL, "shape: %d is odd (use %s)", 7, "8"), WEFT_EINVAL);
  assert_string_equal(weft_last_error(), "shape: 7 is odd (use 8)");
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
}

static void error_may_quote_the_last_one(void **state) {
  (void)state;
  weft__error(WEFT_EIO, "inner: broken");
  weft__error(WEFT_EFORMAT, "outer: %s", weft_last_error());
  assert_string_equal(weft_last_error(), "outer: inner: broken");
}

/* "a" shifts the two-byte characters by one, so one of the two texts would be cut inside a character. */
static void long_error_is_cut_between_characters(void **state) {
  (void)state;
  char text[4001];
  for (int i = 0; i < 4000; i += 2) memcpy(text + i, "\xC3\xA9", 2);
  text[4000] = 0;
  for (int shift = 0; shift < 2; shift++) {
    weft__error(WEFT_EINVAL, "%s%s", shift ? "a" : "", text);
    const char *error = weft_last_error();
    size_t n = strlen(error);
    assert_in_range(n, 1000, 1023);
    assert_string_equal(error + n - 3, "...");
    assert_int_equal((n - 3 - (size_t)shift) % 2, 0);
    assert_memory_equal(error + shift, text, n - 3 - (size_t)shift);
  }
  text[1023] = 0;
  weft__error(WEFT_EINVAL, "%s", text);
  assert_string_equal(weft_last_error(), text);
}

static void error_is_one_line(void **state) {
  (void)state;
  weft__error(WEFT_EFORMAT, "key 'a\nb\033[31m\x7F': caf\xC3\xA9");
  assert_string_equal(weft_last_error(), "key 'a?b?[31m?': caf\xC3\xA9");
}

static void errno_becomes_a_status(void **state) {
  (void)state;
  assert_int_equal(weft__errno_error(ENOENT, "x.gguf"), WEFT_EIO);
  assert_string_equal(weft_last_error(), "x.gguf: No such file or directory");
  assert_int_equal(weft__errno_error(ENOMEM, "x.gguf"), WEFT_ENOMEM);
}

static void *read_error_of_new_thread(void *argument) {
  (void)argument;
  int is_empty = weft_last_error()[0] == 0 && weft_last_status() == WEFT_OK;
  weft__error(WEFT_EDEVICE, "the other thread's");
  return is_empty ? "empty" : NULL;
}

static void error_belongs_to_its_thread(void **state) {
  (void)state;
  pthread_t thread;
  void *answer;
  weft__error(WEFT_EINVAL, "mine");
  assert_int_equal(pthread_create(&thread, NULL, read_error_of_new_thread, NULL), 0);
  assert_int_equal(pthread_join(thread, &answer), 0);
  assert_non_null(answer);
  assert_string_equal(weft_last_error(), "mine");
}

/* ---- allocation ---- */

static void size_arithmetic_is_checked(void **state) {
  (void)state;
  size_t size = 99;
  int64_t number = 99;
  assert_true(weft__mul_size(SIZE_MAX / 2, 2, &size));
  assert_true(size == SIZE_MAX - 1);
  assert_false(weft__mul_size(SIZE_MAX / 2 + 1, 2, &size));
  assert_true(weft__mul_size(SIZE_MAX, 0, &size) && size == 0);
  assert_true(weft__mul_size(0, SIZE_MAX, &size) && size == 0);
  assert_true(weft__add_size(SIZE_MAX - 1, 1, &size) && size == SIZE_MAX);
  assert_false(weft__add_size(SIZE_MAX, 1, &size));
  assert_true(size == SIZE_MAX);
  assert_true(weft__mul_i64(INT64_MAX / 3, 3, &number) && number == INT64_MAX / 3 * 3);
  assert_false(weft__mul_i64(INT64_MAX / 2 + 1, 2, &number));
  assert_false(weft__mul_i64(-1, 2, &number));
  assert_true(weft__mul_i64(INT64_MAX, 0, &number) && number == 0);
}

static void impossible_sizes_are_refused(void **state) {
  (void)state;
  int *block = weft__calloc(2, sizeof *block);
  assert_non_null(block);
  block[1] = 5;
  weft__error(WEFT_EINVAL, "before");
  assert_null(weft__alloc(SIZE_MAX / 2, 3));
  assert_int_equal(weft_last_status(), WEFT_ENOMEM);
  assert_null(weft__calloc(SIZE_MAX / 2, 3));
  assert_null(weft__realloc(block, SIZE_MAX / 2, 3));
  assert_null(weft__dup("", SIZE_MAX));
  assert_int_equal(block[1], 5);
  weft_free(block);
}

static void empty_blocks_are_blocks(void **state) {
  (void)state;
  void *blocks[] = {weft__alloc(0, 8), weft__calloc(8, 0), weft__dup(NULL, 0)};
  for (size_t i = 0; i < WEFT_COUNT(blocks); i++) {
    assert_non_null(blocks[i]);
    weft_free(blocks[i]);
  }
  void *aligned = weft__aligned_alloc(0);
  assert_non_null(aligned);
  weft__aligned_free(aligned);
  weft__aligned_free(NULL);
  weft_free(NULL);
}

static void blocks_hold_what_was_asked(void **state) {
  (void)state;
  unsigned char *zeros = weft__calloc(3, 100);
  assert_non_null(zeros);
  for (int i = 0; i < 300; i++) assert_int_equal(zeros[i], 0);
  zeros[299] = 7;
  unsigned char *longer = weft__realloc(zeros, 10, 100);
  assert_non_null(longer);
  assert_int_equal(longer[299], 7);
  weft_free(longer);
  char *copy = weft__dup("a\0b", 3);
  assert_non_null(copy);
  assert_memory_equal(copy, "a\0b", 4);
  weft_free(copy);
}

static void aligned_blocks_are_aligned(void **state) {
  (void)state;
  const size_t mebibyte = 1 << 20;
  const size_t sizes[] = {1, 63, 65, 4096, 4 * mebibyte - 1, 4 * mebibyte, 9 * mebibyte + 5};
  for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
    char *block = weft__aligned_alloc(sizes[i]);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 64, 0);
    if (sizes[i] >= 4 * mebibyte) assert_int_equal((uintptr_t)block % (2 * mebibyte), 0);
    memset(block, 1, sizes[i]);
    weft__aligned_free(block);
  }
}

static void *allocate(int kind, void *old) {
  switch (kind) {
  case 0:
    return weft__alloc(1, 8);
  case 1:
    return weft__calloc(1, 8);
  case 2:
    return weft__realloc(old, 1, 8);
  default:
    return weft__dup("12345678", 8);
  }
}

static void hook_fails_the_chosen_allocation_once(void **state) {
  (void)state;
  for (int failing = 1; failing <= 4; failing++) {
    weft__alloc_fail_at(failing);
    for (int i = 1; i <= 6; i++) {
      weft__error(WEFT_EINVAL, "before");
      void *block = allocate((i - 1) % 4, NULL);
      assert_int_equal(block == NULL, i == failing);
      assert_int_equal(weft_last_status(), i == failing ? WEFT_ENOMEM : WEFT_EINVAL);
      weft_free(block);
    }
  }
  weft__alloc_fail_at(1);
  assert_null(weft__aligned_alloc(100));
  weft__alloc_fail_at(1);
  weft__alloc_fail_at(0);
  void *block = weft__alloc(1, 1);
  assert_non_null(block);
  weft_free(block);
}

/* ---- bytes ---- */

static void bytes_grow(void **state) {
  (void)state;
  weft__bytes b = {0};
  for (int i = 0; i < 1000; i++) {
    assert_int_equal(weft__bytes_add(&b, "ab\0", 3), WEFT_OK);
    assert_int_equal(weft__bytes_printf(&b, "%d", i % 10), WEFT_OK);
  }
  assert_int_equal(b.n, 4000);
  assert_true(b.capacity > b.n);
  assert_int_equal(b.data[4000], 0);
  for (int i = 0; i < 1000; i++) {
    const char expected[] = {'a', 'b', 0, (char)('0' + i % 10)};
    assert_memory_equal(b.data + 4 * i, expected, 4);
  }
  weft__bytes_clear(&b);
  assert_null(b.data);
  assert_int_equal(b.n + b.capacity, 0);
  weft__bytes_clear(&b);
}

static void bytes_printf_fits_any_length(void **state) {
  (void)state;
  for (int n = 0; n < 200; n++) {
    weft__bytes b = {0};
    assert_int_equal(weft__bytes_printf(&b, "%*s", n, ""), WEFT_OK);
    assert_int_equal(b.n, n);
    assert_int_equal(strlen(b.data), n);
    weft__bytes_clear(&b);
  }
}

static void bytes_are_taken(void **state) {
  (void)state;
  weft__bytes b = {0};
  char *empty = weft__bytes_take(&b);
  assert_non_null(empty);
  assert_string_equal(empty, "");
  assert_int_equal(weft__bytes_add(&b, "text", 4), WEFT_OK);
  char *text = weft__bytes_take(&b);
  assert_string_equal(text, "text");
  assert_null(b.data);
  weft_free(empty);
  weft_free(text);
}

static void bytes_survive_a_failed_addition(void **state) {
  (void)state;
  weft__bytes b = {0};
  assert_int_equal(weft__bytes_add(&b, "text", 4), WEFT_OK);
  weft__alloc_fail_at(1);
  assert_int_equal(weft__bytes_printf(&b, "%200d", 1), WEFT_ENOMEM);
  assert_int_equal(weft__bytes_add(&b, "", SIZE_MAX - 2), WEFT_ENOMEM);
  assert_int_equal(b.n, 4);
  assert_string_equal(b.data, "text");
  weft__bytes_clear(&b);
}

/* ---- file mapping: each test works in a folder of its own ---- */

static char folder[] = "/tmp/weft_test_XXXXXX";
static char path[sizeof folder + 32];

static const char *in_folder(const char *name) {
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static int make_folder(void **state) {
  (void)state;
  memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  unlink(in_folder("file"));
  return rmdir(folder);
}

static void write_file(size_t n_bytes) {
  FILE *file = fopen(in_folder("file"), "wb");
  assert_non_null(file);
  for (size_t i = 0; i < n_bytes; i++) putc((int)(i * 31 % 251), file);
  assert_int_equal(fclose(file), 0);
}

/* The two ways to open a file, which differ only in what becomes of it when somebody changes it. */
typedef weft_status (*map_opener)(weft__file_map *map, const char *path);
static const map_opener openers[] = {weft__file_map_open, weft__file_map_read};

static void assert_refused(const char *name, weft_status status, const char *reason) {
  for (size_t i = 0; i < WEFT_COUNT(openers); i++) {
    weft__file_map map = {.n_bytes = 12345};
    assert_int_equal(openers[i](&map, name), status);
    assert_int_equal(map.n_bytes, 12345);
    assert_memory_equal(weft_last_error(), name, strlen(name));
    assert_non_null(strstr(weft_last_error(), reason));
  }
}

static void check_sizes(map_opener open) {
  static const size_t sizes[] = {1, 4095, 4096, 4097, 300000};
  for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
    weft__file_map map;
    write_file(sizes[i]);
    assert_int_equal(open(&map, path), WEFT_OK);
    assert_int_equal(map.n_bytes, sizes[i]);
    assert_int_equal(unlink(path), 0);
    for (size_t b = 0; b < sizes[i]; b++) assert_int_equal(map.data[b], b * 31 % 251);
    weft__file_map_close(&map);
    assert_null(map.data);
    weft__file_map_close(&map);
  }
}

static void file_is_mapped(void **state) {
  (void)state;
  for (size_t i = 0; i < WEFT_COUNT(openers); i++) check_sizes(openers[i]);
}

/* Cutting the file, which takes the pages of a mapping away, and writing to it leave a copy as it was. */
static void copy_is_our_own(void **state) {
  (void)state;
  enum { N = 50000 };
  weft__file_map map;
  write_file(N);
  assert_int_equal(weft__file_map_read(&map, path), WEFT_OK);
  assert_int_equal(truncate(path, 0), 0);
  weft__file_map_prefetch(&map, map.data, N);
  for (size_t b = 0; b < N; b++) assert_int_equal(map.data[b], b * 31 % 251);
  weft__file_map_release(&map, map.data + 1, N / 2);
  for (size_t b = 0; b < N; b++) assert_int_equal(map.data[b], b * 31 % 251);
  weft__file_map_close(&map);
}

/* Advice may be given for any stretch and changes no byte. */
static void advice_keeps_the_bytes(void **state) {
  (void)state;
  enum { N = 50000 };
  weft__file_map map;
  write_file(N);
  assert_int_equal(weft__file_map_open(&map, path), WEFT_OK);
  static const struct {
    size_t start, n;
  } stretches[] = {{0, N}, {0, 0}, {N, 0}, {1, 10}, {4095, 2}, {4096, 4096}, {5000, 30000}, {N - 1, 1}, {100, N - 100}};
  for (size_t i = 0; i < WEFT_COUNT(stretches); i++) {
    weft__file_map_prefetch(&map, map.data + stretches[i].start, stretches[i].n);
    weft__file_map_release(&map, map.data + stretches[i].start, stretches[i].n);
    for (size_t b = 0; b < N; b++) assert_int_equal(map.data[b], b * 31 % 251);
  }
  weft__file_map_close(&map);
}

static void empty_file_is_an_empty_map(void **state) {
  (void)state;
  write_file(0);
  for (size_t i = 0; i < WEFT_COUNT(openers); i++) {
    weft__file_map map = {.n_bytes = 1};
    assert_int_equal(openers[i](&map, path), WEFT_OK);
    assert_null(map.data);
    assert_int_equal(map.n_bytes, 0);
    weft__file_map_prefetch(&map, map.data, 0);
    weft__file_map_release(&map, map.data, 0);
    weft__file_map_close(&map);
  }
}

static void missing_file_is_named(void **state) {
  (void)state;
  assert_refused(in_folder("none"), WEFT_EIO, "No such file");
  assert_refused("", WEFT_EIO, "No such file");
}

static void folder_is_refused(void **state) {
  (void)state;
  assert_refused(folder, WEFT_EINVAL, "is a folder");
}

static void device_is_refused(void **state) {
  (void)state;
  assert_refused("/dev/null", WEFT_EINVAL, "not a regular file");
}

static void pipe_is_refused(void **state) {
  (void)state;
  assert_int_equal(mkfifo(in_folder("file"), 0600), 0);
  assert_refused(path, WEFT_EINVAL, "not a regular file");
}

static void unreadable_file_is_refused(void **state) {
  (void)state;
  write_file(10);
  assert_int_equal(chmod(path, 0), 0);
  if (geteuid() != 0) assert_refused(path, WEFT_EIO, "Permission denied"); /* root may read all */
}

/* Many more maps than descriptors allowed: an open map must not hold one. */
static void maps_hold_no_descriptors(void **state) {
  (void)state;
  enum { N = 64 };
  struct rlimit before, few;
  weft__file_map maps[N];
  write_file(10);
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = 32;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int i = 0; i < N; i++) assert_int_equal(weft__file_map_open(&maps[i], path), WEFT_OK);
  for (int i = 0; i < N; i++) weft__file_map_close(&maps[i]);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- clock and random numbers ---- */

static void clock_never_goes_back(void **state) {
  (void)state;
  double before = weft__now_ms();
  for (int i = 0; i < 1000; i++) {
    double now = weft__now_ms();
    assert_true(now >= before);
    before = now;
  }
}

/* The generator's published known answers: counter and key all zeros, all ones, the digits of pi. */
static void philox_gives_the_known_answers(void **state) {
  (void)state;
  static const struct {
    uint64_t seed, counter, stream;
    uint32_t expected[4];
  } cases[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    uint32_t draw[4];
    weft__philox(cases[i].seed, cases[i].counter, cases[i].stream, draw);
    assert_memory_equal(draw, cases[i].expected, sizeof draw);
  }
}

/* 100,000 draws: the mean's deviation is 0.0009, a tenth's share has one of 0.00095; the bounds are five of each. */
static void uniform_is_uniform(void **state) {
  (void)state;
  enum { N = 100000 };
  int n_in_tenth[10] = {0};
  double sum = 0;
  for (uint64_t i = 0; i < N; i++) {
    double u = weft__rng_uniform(42, i, 7);
    assert_true(u >= 0 && u < 1);
    n_in_tenth[(int)(u * 10)]++;
    sum += u;
  }
  assert_true(sum / N > 0.4954 && sum / N < 0.5046);
  for (int i = 0; i < 10; i++) assert_in_range(n_in_tenth[i], N / 10 - 475, N / 10 + 475);
}

static void uniform_depends_on_every_argument(void **state) {
  (void)state;
  double u = weft__rng_uniform(1, 2, 3);
  assert_true(u == weft__rng_uniform(1, 2, 3));
  assert_true(u != weft__rng_uniform(2, 2, 3));
  assert_true(u != weft__rng_uniform(1, 3, 3));
  assert_true(u != weft__rng_uniform(1, 2, 4));
  assert_true(u != weft__rng_uniform(1 + (1ull << 32), 2, 3));
  assert_true(u != weft__rng_uniform(1, 2 + (1ull << 32), 3));
  assert_true(u != weft__rng_uniform(1, 2, 3 + (1ull << 32)));
}

/* ---- files that are replaced as a whole ---- */

static int mode_of(const char *name) {
  struct stat info;
  assert_int_equal(stat(in_folder(name), &info), 0);
  return info.st_mode & 0777;
}

/* A new file has the system's mode, a replaced one keeps its own; what is private is the user's, whatever was there. */
static void written_files_have_a_mode(void **state) {
  (void)state;
  mode_t old = umask(027);
  assert_int_equal(weft__file_write(in_folder("file"), WEFT__FILE_SHARED, "a", 1), WEFT_OK);
  assert_int_equal(mode_of("file"), 0640);
  assert_int_equal(chmod(in_folder("file"), 0604), 0);
  assert_int_equal(weft__file_write(in_folder("file"), WEFT__FILE_SHARED, "b", 1), WEFT_OK);
  assert_int_equal(mode_of("file"), 0604);
  assert_int_equal(weft__file_write(in_folder("file"), WEFT__FILE_PRIVATE, "c", 1), WEFT_OK);
  assert_int_equal(mode_of("file"), 0600);
  umask(old);
}

/* Two writers of one path at once: the last to commit is what stays, and nothing else (remove_folder looks). */
static void writers_share_a_path(void **state) {
  (void)state;
  weft__file_writer *first, *second, *third;
  weft__file_map map;
  assert_int_equal(weft__file_writer_open(&first, in_folder("file"), WEFT__FILE_PRIVATE), WEFT_OK);
  assert_int_equal(weft__file_writer_open(&second, in_folder("file"), WEFT__FILE_PRIVATE), WEFT_OK);
  assert_int_equal(weft__file_writer_open(&third, in_folder("file"), WEFT__FILE_SHARED), WEFT_OK);
  assert_int_equal(weft__file_writer_add(second, "second", 6), WEFT_OK);
  assert_int_equal(weft__file_writer_add(first, "1st", 3), WEFT_OK);
  assert_int_equal(weft__file_writer_commit(first), WEFT_OK);
  assert_int_equal(weft__file_writer_commit(second), WEFT_OK);
  weft__file_writer_discard(third);
  assert_int_equal(weft__file_map_open(&map, in_folder("file")), WEFT_OK);
  assert_int_equal(map.n_bytes, 6);
  assert_memory_equal(map.data, "second", 6);
  weft__file_map_close(&map);
}

#define FILE_TEST(function) cmocka_unit_test_setup_teardown(function, make_folder, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(statuses_have_names_and_texts),
      cmocka_unit_test(version_is_three_numbers),
      cmocka_unit_test(error_is_kept),
      cmocka_unit_test(error_may_quote_the_last_one),
      cmocka_unit_test(long_error_is_cut_between_characters),
      cmocka_unit_test(error_is_one_line),
      cmocka_unit_test(errno_becomes_a_status),
      cmocka_unit_test(error_belongs_to_its_thread),
      cmocka_unit_test(size_arithmetic_is_checked),
      cmocka_unit_test(impossible_sizes_are_refused),
      cmocka_unit_test(empty_blocks_are_blocks),
      cmocka_unit_test(blocks_hold_what_was_asked),
      cmocka_unit_test(aligned_blocks_are_aligned),
      cmocka_unit_test(hook_fails_the_chosen_allocation_once),
      cmocka_unit_test(bytes_grow),
      cmocka_unit_test(bytes_printf_fits_any_length),
      cmocka_unit_test(bytes_are_taken),
      cmocka_unit_test(bytes_survive_a_failed_addition),
      FILE_TEST(file_is_mapped),
      FILE_TEST(copy_is_our_own),
      FILE_TEST(advice_keeps_the_bytes),
      FILE_TEST(empty_file_is_an_empty_map),
      FILE_TEST(missing_file_is_named),
      FILE_TEST(folder_is_refused),
      FILE_TEST(device_is_refused),
      FILE_TEST(pipe_is_refused),
      FILE_TEST(unreadable_file_is_refused),
      FILE_TEST(maps_hold_no_descriptors),
      FILE_TEST(written_files_have_a_mode),
      FILE_TEST(writers_share_a_path),
      cmocka_unit_test(clock_never_goes_back),
      cmocka_unit_test(philox_gives_the_known_answers),
      cmocka_unit_test(uniform_is_uniform),
      cmocka_unit_test(uniform_depends_on_every_argument),
  };
  return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
