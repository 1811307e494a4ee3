/* safetensors.c - named tensors in a safetensors file: reading one, and saving one.
 *
 * Layout: u64 length of the header, the header, the data.  The header is a JSON object: "name": {"dtype", "shape",
 * "data_offsets": [begin, end)} for each tensor, and perhaps "__metadata__": {"key": "text"}.  Offsets count from the
 * start of the data; the tensors cover it without a gap or an overlap.
 *
 * The file is an attacker: weft_safetensors_open checks every length, type, shape and offset before it hands anything out,
 * so whatever comes out of this file may be read.  Names and metadata are the parsed header's, which lives as long. */
#include "weft/format.h"

#include "tensor/tensor.h"

#include <jansson.h>
#include <stdlib.h> /* qsort, bsearch */
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "safetensors is read in place on little-endian machines only");

enum {
  MAX_HEADER_BYTES = 100000000, /* the format's limit */
  LENGTH_BYTES = 8,
  ALIGNMENT = 8, /* of the data in files written here */
};

static const char METADATA[] = "__metadata__";

struct weft_safetensors {
  char *path;
  weft__file_map map;
  json_t *header;
  const unsigned char *data;
  size_t n_data_bytes, n_tensors;
  weft_safetensors_tensor *tensors;        /* in the order of their data */
  const weft_safetensors_tensor **by_name; /* the same, sorted by name */
};

/* The types that files name; those that weft has, with their dtype. */
static const struct file_type {
  const char *name;
  size_t n_bytes;
  int is_supported;
  weft_dtype dtype;
} FILE_TYPES[] = {
    {"F32", 4, 1, WEFT_F32}, {"F16", 2, 1, WEFT_F16}, {"BF16", 2, 1, WEFT_BF16}, {"I32", 4, 1, WEFT_I32},
    {"F64", 8, 0, 0},        {"I64", 8, 0, 0},        {"U64", 8, 0, 0},          {"U32", 4, 0, 0},
    {"I16", 2, 0, 0},        {"U16", 2, 0, 0},        {"I8", 1, 0, 0},           {"U8", 1, 0, 0},
    {"BOOL", 1, 0, 0},       {"F8_E4M3", 1, 0, 0},    {"F8_E5M2", 1, 0, 0},
};

/* ---- reading ---- */

static const struct file_type *find_type(const char *name) {
  for (size_t i = 0; i < WEFT_COUNT(FILE_TYPES); i++)
    if (!strcmp(FILE_TYPES[i].name, name)) return &FILE_TYPES[i];
  return NULL;
}

/* Text from a file as a message may show it: the beginning, without anything that moves a terminal's cursor. */
typedef struct shown {
  char text[65];
} shown;

static shown show(const char *text) {
  shown s = {""};
  for (size_t i = 0; i + 1 < sizeof s.text && text[i]; i++)
    s.text[i] = (unsigned char)text[i] < ' ' || (unsigned char)text[i] >= 0x7f ? '?' : text[i];
  return s;
}

/* A tensor's entry is wrong: "PATH: tensor 'NAME' WHY". */
static weft_status tensor_error(const weft_safetensors *s, const char *name, const char *why) {
  return weft__error(WEFT_EFORMAT, "%s: tensor '%s' %s", s->path, show(name).text, why);
}

/* A count: an integer of JSON that is not negative. */
static bool get_count(const json_t *value, int64_t *count) {
  *count = json_is_integer(value) ? json_integer_value(value) : -1;
  return *count >= 0;
}

static weft_status read_shape(const weft_safetensors *s, const json_t *shape, weft_safetensors_tensor *t) {
  int64_t numel;
  if (!json_is_array(shape)) return tensor_error(s, t->name, "has no shape");
  if (json_array_size(shape) > WEFT_MAX_RANK) return tensor_error(s, t->name, "has more than 8 axes");
  t->rank = (int)json_array_size(shape);
  for (int i = 0; i < t->rank; i++)
    if (!get_count(json_array_get(shape, (size_t)i), &t->shape[i]))
      return tensor_error(s, t->name, "has an extent that is no count");
  if (!weft__shape_numel(t->rank, t->shape, &numel)) return tensor_error(s, t->name, "has a shape that overflows");
  return WEFT_OK;
}

/* The bytes between the offsets are those of the shape, and lie in the file. */
static weft_status read_span(const weft_safetensors *s, const json_t *offsets, size_t element_bytes,
                             weft_safetensors_tensor *t) {
  int64_t begin, end, numel;
  size_t n_bytes;
  if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !get_count(json_array_get(offsets, 0), &begin) ||
      !get_count(json_array_get(offsets, 1), &end))
    return tensor_error(s, t->name, "has no data_offsets of two counts");
  if (begin > end || (uint64_t)end > s->n_data_bytes)
    return tensor_error(s, t->name, "has data_offsets outside the file's data");
  weft__shape_numel(t->rank, t->shape, &numel);
  if ((uint64_t)numel > SIZE_MAX || !weft__mul_size((size_t)numel, element_bytes, &n_bytes) ||
      n_bytes != (size_t)(end - begin))
    return tensor_error(s, t->name, "has a shape that its data_offsets do not fit");
  t->data = s->data + begin;
  t->n_bytes = n_bytes;
  return WEFT_OK;
}

static weft_status read_tensor(const weft_safetensors *s, const char *name, const json_t *entry,
                               weft_safetensors_tensor *t) {
  const char *type_name = json_string_value(json_object_get(entry, "dtype"));
  t->name = name;
  if (!type_name) return tensor_error(s, name, "has no dtype");
  const struct file_type *type = find_type(type_name);
  if (!type) return tensor_error(s, name, "has a dtype that the format does not know");
  t->type_name = type->name;
  t->is_supported = type->is_supported;
  t->dtype = type->dtype;
  weft_status status = read_shape(s, json_object_get(entry, "shape"), t);
  return status ? status : read_span(s, json_object_get(entry, "data_offsets"), type->n_bytes, t);
}

/* "__metadata__" holds strings alone. */
static weft_status check_metadata(const weft_safetensors *s, json_t *metadata) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata)) return weft__error(WEFT_EFORMAT, "%s: its metadata is no object", s->path);
  json_object_foreach(metadata, key, value) {
    if (!json_is_string(value))
      return weft__error(WEFT_EFORMAT, "%s: its metadata '%s' is no string", s->path, show(key).text);
  }
  return WEFT_OK;
}

static int by_place(const void *a, const void *b) {
  const weft_safetensors_tensor *x = a, *y = b;
  const unsigned char *x_data = x->data, *y_data = y->data;
  if (x_data != y_data) return x_data < y_data ? -1 : 1;
  return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes); /* empty ones first */
}

static int by_name(const void *a, const void *b) {
  const weft_safetensors_tensor *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

/* Sorts the tensors, and checks that they cover the data. */
static weft_status order_tensors(weft_safetensors *s) {
  const unsigned char *end = s->data;
  if (s->n_tensors > 0) qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_place);
  for (size_t i = 0; i < s->n_tensors; i++) {
    const weft_safetensors_tensor *t = &s->tensors[i];
    if ((const unsigned char *)t->data != end)
      return tensor_error(s, t->name, "does not begin where the one before ends");
    end += t->n_bytes;
    s->by_name[i] = t;
  }
  if (end != s->data + s->n_data_bytes)
    return weft__error(WEFT_EFORMAT, "%s: its tensors end before its data does", s->path);
  if (s->n_tensors > 0) qsort(s->by_name, s->n_tensors, sizeof *s->by_name, by_name);
  return WEFT_OK;
}

static weft_status read_tensors(weft_safetensors *s) {
  const char *name;
  json_t *entry;
  size_t n = json_object_size(s->header);
  weft_status status = WEFT_OK;
  s->tensors = weft__calloc(n, sizeof *s->tensors);
  s->by_name = weft__calloc(n, sizeof *s->by_name);
  if (!s->tensors || !s->by_name) return WEFT_ENOMEM;
  json_object_foreach(s->header, name, entry) {
    if (!strcmp(name, METADATA))
      status = check_metadata(s, entry);
    else
      status = read_tensor(s, name, entry, &s->tensors[s->n_tensors++]);
    if (status) return status;
  }
  return order_tensors(s);
}

/* Finds the header's end and parses it. */
static weft_status read_header(weft_safetensors *s) {
  const unsigned char *file = s->map.data;
  uint64_t n_header;
  json_error_t error;
  if (s->map.n_bytes < LENGTH_BYTES)
    return weft__error(WEFT_EFORMAT, "%s: no safetensors file: %zu bytes, the header's length has 8", s->path,
                       s->map.n_bytes);
  memcpy(&n_header, file, LENGTH_BYTES);
  if (n_header > s->map.n_bytes - LENGTH_BYTES || n_header > MAX_HEADER_BYTES)
    return weft__error(WEFT_EFORMAT, "%s: no safetensors file, or cut off: a header of %llu bytes in a file of %zu",
                       s->path, (unsigned long long)n_header, s->map.n_bytes);
  s->data = file + LENGTH_BYTES + n_header;
  s->n_data_bytes = s->map.n_bytes - LENGTH_BYTES - (size_t)n_header;
  s->header = json_loadb((const char *)file + LENGTH_BYTES, (size_t)n_header, JSON_REJECT_DUPLICATES, &error);
  if (!s->header)
    return weft__error(WEFT_EFORMAT, "%s: its header is no JSON: %s (byte %d)", s->path, show(error.text).text,
                       error.position);
  if (!json_is_object(s->header)) return weft__error(WEFT_EFORMAT, "%s: its header is no JSON object", s->path);
  return read_tensors(s);
}

weft_status weft_safetensors_open(weft_safetensors **out, const char *path) {
  weft_safetensors *s = weft__calloc(1, sizeof *s);
  if (!s) return WEFT_ENOMEM;
  s->path = weft__dup(path, strlen(path));
  weft_status status = s->path ? weft__file_map_open(&s->map, path) : WEFT_ENOMEM;
  if (!status) status = read_header(s);
  if (status) {
    weft_safetensors_close(s);
    return status;
  }
  *out = s;
  return WEFT_OK;
}

void weft_safetensors_close(weft_safetensors *s) {
  if (!s) return;
  json_decref(s->header);
  weft__file_map_close(&s->map);
  weft_free(s->tensors);
  weft_free(s->by_name);
  weft_free(s->path);
  weft_free(s);
}

size_t weft_safetensors_n_tensors(const weft_safetensors *s) { return s->n_tensors; }

const weft_safetensors_tensor *weft_safetensors_tensor_at(const weft_safetensors *s, size_t index) {
  return index < s->n_tensors ? &s->tensors[index] : NULL;
}

const weft_safetensors_tensor *weft_safetensors_find(const weft_safetensors *s, const char *name) {
  const weft_safetensors_tensor key = {.name = name}, *wanted = &key;
  if (s->n_tensors == 0) return NULL;
  const weft_safetensors_tensor *const *found = bsearch(&wanted, s->by_name, s->n_tensors, sizeof *s->by_name, by_name);
  return found ? *found : NULL;
}

const char *weft_safetensors_metadata(const weft_safetensors *s, const char *key) {
  return json_string_value(json_object_get(json_object_get(s->header, METADATA), key));
}

weft_tensor *weft_safetensors_load(weft_scope *scope, const weft_safetensors *s, const char *name) {
  const weft_safetensors_tensor *t = weft_safetensors_find(s, name);
  if (!t) {
    weft__error(WEFT_EINVAL, "%s: has no tensor '%s'", s->path, show(name).text);
    return NULL;
  }
  if (!t->is_supported) {
    weft__error(WEFT_EUNSUPPORTED, "%s: tensor '%s' is %s (weft has F32, F16, BF16 and I32)", s->path, show(name).text,
                t->type_name);
    return NULL;
  }
  return weft_tensor_from(scope, t->dtype, t->rank, t->shape, t->data);
}

/* ---- saving ---- */

static const char *file_type_name(weft_dtype dtype) {
  for (size_t i = 0; i < WEFT_COUNT(FILE_TYPES); i++)
    if (FILE_TYPES[i].is_supported && FILE_TYPES[i].dtype == dtype) return FILE_TYPES[i].name;
  return NULL;
}

static weft_status check_saved(const json_t *header, const weft_named_tensor *t) {
  if (!t->name || !t->tensor) return weft__error(WEFT_EINVAL, "save: a tensor or its name is NULL");
  if (!strcmp(t->name, METADATA)) return weft__error(WEFT_EINVAL, "save: '%s' is no tensor's name", METADATA);
  if (json_object_get(header, t->name))
    return weft__error(WEFT_EINVAL, "save: two tensors are called '%s'", show(t->name).text);
  if (!file_type_name(t->tensor->dtype) || t->tensor->storage->layout != WEFT__LAYOUT_PLAIN)
    return weft__error(WEFT_EUNSUPPORTED, "save: tensor '%s' is %s (cast it to f32 first)", show(t->name).text,
                       weft_dtype_name(t->tensor->dtype));
  return WEFT_OK;
}

/* NULL without memory. */
static json_t *shape_to_json(const weft_tensor *t) {
  json_t *shape = json_array();
  for (int i = 0; i < t->rank; i++)
    if (json_array_append_new(shape, json_integer(t->shape[i]))) {
      json_decref(shape);
      return NULL;
    }
  return shape;
}

/* Adds a tensor's entry to the header; its data begin at *offset, which moves to their end. */
static weft_status add_entry(json_t *header, const weft_named_tensor *t, size_t *offset) {
  weft_status status = check_saved(header, t);
  if (status) return status;
  size_t begin = *offset;
  if (!weft__add_size(begin, weft_tensor_bytes(t->tensor), offset) || *offset > INT64_MAX)
    return weft__error(WEFT_ELIMIT, "save: the tensors exceed the address space");
  json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", file_type_name(t->tensor->dtype), "shape",
                            shape_to_json(t->tensor), "data_offsets", (json_int_t)begin, (json_int_t)*offset);
  if (!entry) return weft__error(WEFT_ENOMEM, "save: out of memory");
  if (json_object_set_new(header, t->name, entry))
    return weft__error(WEFT_EINVAL, "save: a tensor's name is not UTF-8");
  return WEFT_OK;
}

/* The header's length, then its text, with spaces up to the alignment. */
static weft_status write_header(weft__file_writer *w, const json_t *header) {
  static const char spaces[ALIGNMENT] = "        ";
  char *text = json_dumps(header, JSON_COMPACT);
  if (!text) return weft__error(WEFT_ENOMEM, "save: out of memory");
  size_t n_text = strlen(text), n_spaces = (ALIGNMENT - n_text % ALIGNMENT) % ALIGNMENT;
  uint64_t n_header = n_text + n_spaces;
  weft_status status = WEFT_OK;
  if (n_header > MAX_HEADER_BYTES)
    status = weft__error(WEFT_ELIMIT, "save: a header of %llu bytes, the format allows 100 million",
                         (unsigned long long)n_header);
  if (!status) status = weft__file_writer_add(w, &n_header, sizeof n_header);
  if (!status) status = weft__file_writer_add(w, text, n_text);
  if (!status) status = weft__file_writer_add(w, spaces, n_spaces);
  free(text);
  return status;
}

static weft_status write_tensor(weft__file_writer *w, const weft_tensor *t) {
  size_t n_bytes = weft_tensor_bytes(t);
  if (n_bytes == 0) return WEFT_OK;
  void *data = weft__alloc(n_bytes, 1);
  if (!data) return WEFT_ENOMEM;
  weft_status status = weft_tensor_read(t, data, n_bytes);
  if (!status) status = weft__file_writer_add(w, data, n_bytes);
  weft_free(data);
  return status;
}

static weft_status write_all(weft__file_writer *w, const json_t *header, size_t n, const weft_named_tensor *tensors) {
  weft_status status = write_header(w, header);
  for (size_t i = 0; i < n && !status; i++) status = write_tensor(w, tensors[i].tensor);
  return status;
}

weft_status weft_safetensors_save(const char *path, size_t n, const weft_named_tensor *tensors) {
  json_t *header = json_object();
  weft__file_writer *writer = NULL;
  size_t offset = 0;
  weft_status status = header ? WEFT_OK : weft__error(WEFT_ENOMEM, "save: out of memory");
  for (size_t i = 0; i < n && !status; i++) status = add_entry(header, &tensors[i], &offset);
  if (!status) status = weft__file_writer_open(&writer, path, WEFT__FILE_SHARED);
  if (!status) {
    status = write_all(writer, header, n, tensors);
    if (status)
      weft__file_writer_discard(writer);
    else
      status = weft__file_writer_commit(writer);
  }
  json_decref(header);
  return status;
}
