/* test_session_file.c - sessions in files: what comes back, what is refused, and what a failure leaves. */
#include "support/tiny_fixture.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <cmocka.h>

enum { HEADER_BYTES = 64 };

/* A folder of its own for each test, so that left-over files show. */
typedef struct folder {
  char path[64], file[80];
} folder;

static folder make_folder(void) {
  folder f = {.path = "/tmp/weft-session-XXXXXX"};
  assert_non_null(mkdtemp(f.path));
  snprintf(f.file, sizeof f.file, "%s/saved", f.path);
  return f;
}

static int count_files(const folder *f) {
  int n = 0;
  DIR *dir = opendir(f->path);
  assert_non_null(dir);
  for (struct dirent *entry; (entry = readdir(dir));) n += entry->d_name[0] != '.';
  closedir(dir);
  return n;
}

static void remove_folder(const folder *f) {
  unlink(f->file);
  assert_int_equal(count_files(f), 0);
  assert_int_equal(rmdir(f->path), 0);
}

static weft__bytes read_file(const char *path) {
  weft__bytes bytes = {0};
  weft__file_map map;
  assert_int_equal(weft__file_map_open(&map, path), WEFT_OK);
  assert_int_equal(weft__bytes_add(&bytes, map.data, map.n_bytes), WEFT_OK);
  weft__file_map_close(&map);
  return bytes;
}

static void must(weft_status status) {
  if (status) fail_msg("%s", weft_last_error());
}

/* Logits after appending the tokens, which the session is then cut back from; the caller's. */
static float *logits_after(weft_session *s, const int32_t *ids, size_t n, int n_vocab) {
  const float *logits;
  int length = weft_session_length(s);
  must(weft_session_append(s, ids, n, &logits));
  float *copy = test_alloc((size_t)n_vocab, sizeof *copy);
  memcpy(copy, logits, (size_t)n_vocab * sizeof *copy);
  must(weft_session_truncate(s, length));
  return copy;
}

/* ---- what comes back ---- */

static void append_ids(weft_session *s, const int32_t *ids, size_t n) {
  const float *logits;
  if (n > 0) must(weft_session_append(s, ids, n, &logits));
}

/* Lengths around the borders of blocks; the session that loads held something else before. */
static void check_round_trip(test_device *d) {
  static const int lengths[] = {0, 1, 31, 32, 33, 63, 64, 65, 100, 127};
  const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16};
  fixture f = fixture_load(d, NULL);
  folder dir = make_folder();
  int32_t ids[127];
  fixture_draw_ids(&f, ids, 127, 5);
  for (size_t i = 0; i < WEFT_COUNT(lengths) * WEFT_COUNT(dtypes); i++) {
    size_t n = (size_t)lengths[i / 2];
    const weft_session_options options = {.kv_dtype = dtypes[i % 2]};
    weft_session *from = fixture_open_session(&f, &options), *to = fixture_open_session(&f, &options);
    char *note = NULL;
    size_t n_note = 0;
    append_ids(from, ids, n);
    append_ids(to, ids + 40, 50);
    must(weft_session_save(from, dir.file, "a\0b", 3));
    must(weft_session_load(to, dir.file, &note, &n_note));
    assert_int_equal(n_note, 3);
    assert_memory_equal(note, "a\0b", 4);
    weft_free(note);
    assert_int_equal(weft_session_length(to), n);
    if (n > 0) assert_memory_equal(weft_session_tokens(to), ids, n * sizeof *ids);
    float *want = logits_after(from, ids, 1, f.n_vocab), *got = logits_after(to, ids, 1, f.n_vocab);
    assert_memory_equal(got, want, (size_t)f.n_vocab * sizeof *got);
    free(want);
    free(got);
    weft_session_free(from);
    weft_session_free(to);
  }
  remove_folder(&dir);
  fixture_unload(&f);
}

static void test_round_trip(void **state) {
  (void)state;
  test_each_device(2, check_round_trip);
}

/* What a session has forgotten is in no file: it saves as it did before it went further and came back. */
static void check_same_bytes(test_device *d) {
  const weft_dtype dtypes[] = {WEFT_F32, WEFT_F16, WEFT_Q8_0};
  const tiny_options shape = {.head_size = 32};
  fixture f = fixture_load(d, &shape);
  folder dir = make_folder();
  int32_t ids[63];
  fixture_draw_ids(&f, ids, 63, 8);
  for (size_t i = 0; i < WEFT_COUNT(dtypes); i++) {
    weft_session *s = fixture_open_session(&f, &(weft_session_options){.kv_dtype = dtypes[i]});
    append_ids(s, ids, 41);
    must(weft_session_save(s, dir.file, NULL, 0));
    weft__bytes before = read_file(dir.file);
    append_ids(s, ids + 41, 22);
    must(weft_session_truncate(s, 41));
    must(weft_session_save(s, dir.file, NULL, 0));
    weft__bytes after = read_file(dir.file);
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.data, before.data, before.n);
    /* And what it keeps is whole. */
    weft_session *to = fixture_open_session(&f, &(weft_session_options){.kv_dtype = dtypes[i]});
    must(weft_session_load(to, dir.file, NULL, NULL));
    float *want = logits_after(s, ids, 1, f.n_vocab), *got = logits_after(to, ids, 1, f.n_vocab);
    assert_memory_equal(got, want, (size_t)f.n_vocab * sizeof *got);
    free(want);
    free(got);
    weft__bytes_clear(&before);
    weft__bytes_clear(&after);
    weft_session_free(s);
    weft_session_free(to);
  }
  remove_folder(&dir);
  fixture_unload(&f);
}

static void test_same_bytes(void **state) {
  (void)state;
  test_each_device(2, check_same_bytes);
}

/* A context smaller than the file keeps the beginning. */
static void check_smaller_context(test_device *d) {
  fixture f = fixture_load(d, NULL);
  folder dir = make_folder();
  int32_t ids[100];
  fixture_draw_ids(&f, ids, 100, 6);
  weft_session *from = fixture_open_session(&f, NULL);
  append_ids(from, ids, 100);
  must(weft_session_save(from, dir.file, NULL, 0));
  must(weft_session_truncate(from, 39));
  weft_session *to = fixture_open_session(&f, &(weft_session_options){.n_ctx = 40});
  must(weft_session_load(to, dir.file, NULL, NULL));
  assert_int_equal(weft_session_length(to), 40);
  must(weft_session_truncate(to, 39));
  float *want = logits_after(from, ids, 1, f.n_vocab), *got = logits_after(to, ids, 1, f.n_vocab);
  assert_memory_equal(got, want, (size_t)f.n_vocab * sizeof *got);
  free(want);
  free(got);
  weft_session_free(from);
  weft_session_free(to);
  remove_folder(&dir);
  fixture_unload(&f);
}

static void test_smaller_context(void **state) {
  (void)state;
  on_default_device(check_smaller_context);
}

/* What a session keeps for a prompt: never all of it, because its last token must be computed for its logits. */
static void check_reuse(test_device *d) {
  static const struct {
    int n_same, n_prompt, n_kept;
  } cases[] = {{50, 50, 49}, {50, 51, 50}, {50, 80, 50}, {0, 10, 0}, {20, 50, 20}, {20, 20, 19}, {1, 1, 0}, {0, 0, 0}};
  fixture f = fixture_load(d, NULL);
  int32_t ids[50], prompt[80];
  fixture_draw_ids(&f, ids, 50, 7);
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    weft_session *s = fixture_open_session(&f, NULL), *fresh = fixture_open_session(&f, NULL);
    append_ids(s, ids, 50);
    for (int j = 0; j < 80; j++) prompt[j] = j < cases[i].n_same ? ids[j] : (ids[j % 50] + 1) % f.n_vocab;
    size_t n_prompt = (size_t)cases[i].n_prompt, n_kept = weft_session_reuse(s, prompt, n_prompt);
    assert_int_equal(n_kept, cases[i].n_kept);
    assert_int_equal(weft_session_length(s), cases[i].n_kept);
    if (n_prompt > 0) {
      float *got = logits_after(s, prompt + n_kept, n_prompt - n_kept, f.n_vocab);
      float *want = logits_after(fresh, prompt, n_prompt, f.n_vocab);
      assert_memory_equal(got, want, (size_t)f.n_vocab * sizeof *got);
      free(want);
      free(got);
    }
    weft_session_free(s);
    weft_session_free(fresh);
  }
  fixture_unload(&f);
}

static void test_reuse(void **state) {
  (void)state;
  on_default_device(check_reuse);
}

/* ---- what is refused ---- */

/* A saved session, small enough to be cut and flipped everywhere, and one that must not change. */
typedef struct victim {
  fixture f;
  folder dir;
  weft_session *session;
  int32_t ids[33];
  weft__bytes file;
} victim;

static const tiny_options SMALL = {.n_layers = 1, .n_heads = 2, .n_kv_heads = 1, .width = 32, .ffn_width = 32};

static victim open_victim(test_device *d) {
  victim v = {.f = fixture_load(d, &SMALL), .dir = make_folder()};
  fixture_draw_ids(&v.f, v.ids, 33, 8);
  v.session = fixture_open_session(&v.f, &(weft_session_options){.kv_dtype = WEFT_F16});
  append_ids(v.session, v.ids, 33);
  must(weft_session_save(v.session, v.dir.file, "note", 4));
  v.file = read_file(v.dir.file);
  must(weft_session_truncate(v.session, 0));
  append_ids(v.session, v.ids + 5, 7);
  return v;
}

static void close_victim(victim *v) {
  weft_session_free(v->session);
  weft__bytes_clear(&v->file);
  remove_folder(&v->dir);
  fixture_unload(&v->f);
}

/* Writes in place: thousands of files need no sync. */
static void put_file(const victim *v, const void *data, size_t n) {
  FILE *file = fopen(v->dir.file, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, n, file), n);
  assert_int_equal(fclose(file), 0);
}

static weft_status load_bytes(const victim *v, const void *data, size_t n) {
  put_file(v, data, n);
  return weft_session_load(v->session, v->dir.file, NULL, NULL);
}

static void assert_unchanged(const victim *v) {
  assert_int_equal(weft_session_length(v->session), 7);
  assert_memory_equal(weft_session_tokens(v->session), v->ids + 5, 7 * sizeof *v->ids);
}

/* A file that ends anywhere, and one that goes on. */
static void check_cut(test_device *d) {
  victim v = open_victim(d);
  for (size_t n = v.file.n; n-- > 0;) {
    assert_int_equal(truncate(v.dir.file, (off_t)n), 0);
    weft_status status = weft_session_load(v.session, v.dir.file, NULL, NULL);
    if (status != WEFT_EFORMAT) fail_msg("cut to %zu bytes: %s", n, weft_status_name(status));
    assert_message(n < HEADER_BYTES ? "is no session file" : "is cut or damaged");
  }
  assert_unchanged(&v);
  must(weft__bytes_add(&v.file, "", 1));
  assert_int_equal(load_bytes(&v, v.file.data, v.file.n), WEFT_EFORMAT);
  assert_unchanged(&v);
  close_victim(&v);
}

static void test_cut(void **state) {
  (void)state;
  on_default_device(check_cut);
}

/* Every byte flipped, each in one bit: no such file is taken. */
static void check_flipped(test_device *d) {
  victim v = open_victim(d);
  for (size_t i = 0; i < v.file.n; i++) {
    v.file.data[i] ^= (char)(1 << i % 8);
    weft_status status = load_bytes(&v, v.file.data, v.file.n);
    if (!status) fail_msg("byte %zu flipped was taken", i);
    v.file.data[i] ^= (char)(1 << i % 8);
  }
  assert_unchanged(&v);
  must(load_bytes(&v, v.file.data, v.file.n));
  assert_int_equal(weft_session_length(v.session), 33);
  close_victim(&v);
}

static void test_flipped(void **state) {
  (void)state;
  on_default_device(check_flipped);
}

/* A header whose bytes are made up by somebody who can compute checksums. */
static void check_forged_header(test_device *d) {
  victim v = open_victim(d);
  size_t n_summed = v.file.n - 8;
  for (size_t i = 0; i < HEADER_BYTES * 4; i++) {
    static const unsigned char masks[] = {0x01, 0x80, 0xFF, 0x20};
    v.file.data[i / 4] ^= (char)masks[i % 4];
    uint64_t sum = XXH3_64bits(v.file.data, n_summed);
    memcpy(v.file.data + n_summed, &sum, sizeof sum);
    if (!load_bytes(&v, v.file.data, v.file.n)) fail_msg("header byte %zu was taken", i / 4);
    v.file.data[i / 4] ^= (char)masks[i % 4];
  }
  assert_unchanged(&v);
  /* Ids that the model does not have. */
  for (int i = 0; i < 2; i++) {
    const int32_t id = i ? v.f.n_vocab : -1;
    memcpy(v.file.data + HEADER_BYTES + 4 * 32, &id, sizeof id);
    uint64_t sum = XXH3_64bits(v.file.data, n_summed);
    memcpy(v.file.data + n_summed, &sum, sizeof sum);
    assert_int_equal(load_bytes(&v, v.file.data, v.file.n), WEFT_EFORMAT);
    assert_message("outside the vocabulary");
  }
  assert_unchanged(&v);
  close_victim(&v);
}

static void test_forged_header(void **state) {
  (void)state;
  on_default_device(check_forged_header);
}

/* Models that differ in nothing but their weights, and caches of another type. */
static void check_other_owner(test_device *d) {
  victim v = open_victim(d);
  tiny_options other_weights = SMALL;
  other_weights.seed = 77;
  fixture other = fixture_load(d, &other_weights);
  weft_session *s = fixture_open_session(&other, &(weft_session_options){.kv_dtype = WEFT_F16});
  assert_int_equal(weft_session_load(s, v.dir.file, NULL, NULL), WEFT_EINVAL);
  assert_message("another model");
  assert_int_equal(weft_session_length(s), 0);
  weft_session_free(s);
  fixture_unload(&other);
  s = fixture_open_session(&v.f, NULL);
  assert_int_equal(weft_session_load(s, v.dir.file, NULL, NULL), WEFT_EINVAL);
  assert_message("f16 cache, this one is f32");
  weft_session_free(s);
  close_victim(&v);
}

static void test_other_owner(void **state) {
  (void)state;
  on_default_device(check_other_owner);
}

static void check_bad_paths(test_device *d) {
  victim v = open_victim(d);
  char path[128];
  snprintf(path, sizeof path, "%s/none", v.dir.path);
  assert_int_equal(weft_session_load(v.session, path, NULL, NULL), WEFT_EIO);
  assert_message("none: No such file");
  assert_int_equal(weft_session_load(v.session, v.dir.path, NULL, NULL), WEFT_EINVAL);
  assert_int_equal(weft_session_load(v.session, "/dev/null", NULL, NULL), WEFT_EINVAL);
  assert_unchanged(&v);
  snprintf(path, sizeof path, "%s/none/saved", v.dir.path);
  assert_int_equal(weft_session_save(v.session, path, NULL, 0), WEFT_EIO);
  assert_message("No such file or directory");
  assert_int_equal(weft_session_save(v.session, v.dir.path, NULL, 0), WEFT_EINVAL);
  assert_int_equal(weft_session_save(v.session, "/dev/null", NULL, 0), WEFT_EINVAL);
  assert_message("/dev/null: is not a regular file");
  struct stat info;
  assert_int_equal(stat("/dev/null", &info), 0);
  assert_true(S_ISCHR(info.st_mode));
  close_victim(&v);
}

static void test_bad_paths(void **state) {
  (void)state;
  on_default_device(check_bad_paths);
}

/* A disk that is full in the middle: the old file stays, and nothing lies beside it. */
static void check_full_disk(test_device *d) {
  victim v = open_victim(d);
  struct rlimit before, limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  signal(SIGXFSZ, SIG_IGN);
  for (rlim_t n = 0; n < v.file.n; n += 997) {
    limit.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    weft_status status = weft_session_save(v.session, v.dir.file, "other", 5);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    if (status == WEFT_OK) break; /* seven tokens need less room */
    assert_int_equal(status, WEFT_EIO);
    assert_message("File too large");
    weft__bytes now = read_file(v.dir.file);
    assert_int_equal(now.n, v.file.n);
    assert_memory_equal(now.data, v.file.data, now.n);
    weft__bytes_clear(&now);
    assert_int_equal(count_files(&v.dir), 1);
  }
  signal(SIGXFSZ, SIG_DFL);
  close_victim(&v);
}

static void test_full_disk(void **state) {
  (void)state;
  on_default_device(check_full_disk);
}

/* Each allocation fails once, in saving and in loading. */
static void check_no_memory(test_device *d) {
  victim v = open_victim(d);
  weft_status status = WEFT_ENOMEM;
  long n = 1;
  for (; status == WEFT_ENOMEM; n++) {
    weft__alloc_fail_at(n);
    status = weft_session_save(v.session, v.dir.file, "x", 1);
    weft__alloc_fail_at(0);
    assert_int_equal(count_files(&v.dir), 1);
  }
  must(status);
  assert_true(n > 3);
  status = WEFT_ENOMEM;
  for (n = 1; status == WEFT_ENOMEM; n++) {
    char *note = NULL;
    weft__alloc_fail_at(n);
    status = weft_session_load(v.session, v.dir.file, &note, NULL);
    weft__alloc_fail_at(0);
    if (status) assert_null(note);
    assert_unchanged(&v);
    weft_free(note);
  }
  must(status);
  assert_true(n > 2);
  close_victim(&v);
}

static void test_no_memory(void **state) {
  (void)state;
  on_default_device(check_no_memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_smaller_context), cmocka_unit_test(test_reuse),
      cmocka_unit_test(test_cut),         cmocka_unit_test(test_flipped),         cmocka_unit_test(test_forged_header),
      cmocka_unit_test(test_other_owner), cmocka_unit_test(test_bad_paths),       cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_same_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
