/* gguf_walk.c - see gguf_walk.h. */
#include "support/gguf_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not assert: the promises are checked in every build. */
#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) broken_promise(__LINE__, #condition);                                                            \
  } while (0)

static void broken_promise(int line, const char *condition) {
  fprintf(stderr, "gguf_walk.c:%d: %s does not hold\n", line, condition);
  abort();
}

/* Reads each byte, and depends on their order. */
static uint64_t sum_bytes(const void *data, size_t n_bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < n_bytes; i++) sum = sum * 31 + ((const unsigned char *)data)[i];
  return sum;
}

/* A copy to search by; NULL if a NUL in the name makes it one that C strings cannot ask for. */
static char *searchable(weft_gguf_string name) {
  CHECK(name.n_bytes >= 1 && name.n_bytes <= 65535);
  if (memchr(name.data, 0, name.n_bytes)) return NULL;
  char *copy = calloc(name.n_bytes + 1, 1);
  CHECK(copy);
  return memcpy(copy, name.data, name.n_bytes);
}

/* Any entry may be asked for strings; only an array of them has some. */
static uint64_t walk_strings(const weft_gguf *gguf, const weft_gguf_entry *entry) {
  weft_gguf_string *strings;
  uint64_t sum = 0;
  weft_status status = weft_gguf_strings(gguf, entry, &strings);
  int is_array = entry->type == WEFT_GGUF_ARRAY && entry->element_type == WEFT_GGUF_STRING;
  CHECK(status == (is_array ? WEFT_OK : WEFT_EFORMAT));
  if (status) return 0;
  for (uint64_t i = 0; i < entry->n_elements; i++) sum += sum_bytes(strings[i].data, strings[i].n_bytes);
  weft_free(strings);
  return sum;
}

/* Each element, and one past the last. */
static uint64_t walk_numbers(const weft_gguf_entry *entry) {
  double value;
  uint64_t sum = 0;
  int is_number = entry->element_type != WEFT_GGUF_STRING;
  for (uint64_t i = 0; i < entry->n_elements; i++) {
    CHECK(weft_gguf_number(entry, i, &value) == (is_number ? WEFT_OK : WEFT_EFORMAT));
    if (is_number) sum += sum_bytes(&value, sizeof value);
  }
  CHECK(weft_gguf_number(entry, entry->n_elements, &value) == (is_number ? WEFT_EINVAL : WEFT_EFORMAT));
  return sum;
}

/* The typed look-ups: exactly one of the four fits a single value, none an array. */
static uint64_t walk_lookups(const weft_gguf *gguf, const weft_gguf_entry *entry, const char *key) {
  int64_t integer = 0;
  double real = 0;
  int boolean = 0, n_fitting = 0;
  weft_gguf_string text = {"", 0};
  n_fitting += weft_gguf_get_int(gguf, key, INT64_MIN, INT64_MAX, &integer) == WEFT_OK;
  n_fitting += weft_gguf_get_float(gguf, key, &real) == WEFT_OK;
  n_fitting += weft_gguf_get_bool(gguf, key, &boolean) == WEFT_OK;
  n_fitting += weft_gguf_get_string(gguf, key, &text) == WEFT_OK;
  int is_wide = entry->type == WEFT_GGUF_U64; /* may be past the range of int64_t */
  CHECK(n_fitting == (entry->type != WEFT_GGUF_ARRAY) || (is_wide && n_fitting == 0));
  CHECK(boolean == 0 || boolean == 1);
  return (uint64_t)integer + sum_bytes(&real, sizeof real) + sum_bytes(text.data, text.n_bytes);
}

static uint64_t walk_entry(const weft_gguf *gguf, const weft_gguf_entry *entry) {
  CHECK(entry->type < WEFT_GGUF_TYPE_COUNT && entry->element_type < WEFT_GGUF_TYPE_COUNT);
  CHECK(entry->element_type != WEFT_GGUF_ARRAY);
  uint64_t sum = walk_strings(gguf, entry) + walk_numbers(entry);
  char *key = searchable(entry->key);
  if (key) {
    CHECK(weft_gguf_find(gguf, key) == entry);
    sum += walk_lookups(gguf, entry, key);
  }
  free(key);
  return sum;
}

static uint64_t walk_tensor(const weft_gguf *gguf, const weft_gguf_tensor *tensor) {
  CHECK(tensor->rank >= 1 && tensor->rank <= 4);
  for (int axis = 0; axis < tensor->rank; axis++) CHECK(tensor->shape[axis] >= 1);
  CHECK(tensor->type_name && tensor->n_bytes >= 1 && tensor->n_bytes <= weft_gguf_file_bytes(gguf));
  CHECK(!tensor->is_supported || tensor->dtype < WEFT_DTYPE_COUNT);
  char *name = searchable(tensor->name);
  if (name) CHECK(weft_gguf_find_tensor(gguf, name) == tensor);
  free(name);
  /* A big tensor is touched at both ends: the mapping has no holes. */
  size_t n_bytes = (size_t)tensor->n_bytes, n_end = n_bytes < 4096 ? n_bytes : 4096;
  uint64_t sum = sum_bytes(tensor->data, n_end);
  sum += sum_bytes((const char *)tensor->data + n_bytes - n_end, n_end);
  weft_gguf_release(gguf, tensor);
  return sum + sum_bytes(tensor->data, 1);
}

uint64_t gguf_walk(const weft_gguf *gguf) {
  uint64_t sum = weft_gguf_version(gguf) + strlen(weft_gguf_path(gguf));
  size_t n_entries = weft_gguf_n_entries(gguf), n_tensors = weft_gguf_n_tensors(gguf);
  for (size_t i = 0; i < n_entries; i++) sum += walk_entry(gguf, weft_gguf_entry_at(gguf, i));
  for (size_t i = 0; i < n_tensors; i++) sum += walk_tensor(gguf, weft_gguf_tensor_at(gguf, i));
  CHECK(!weft_gguf_entry_at(gguf, n_entries) && !weft_gguf_tensor_at(gguf, n_tensors));
  CHECK(!weft_gguf_find(gguf, "") && !weft_gguf_find_tensor(gguf, ""));
  return sum;
}
