/* gguf.c - the GGUF reader: a model file's metadata entries and tensors.
 *
 * Owns the files' mappings, an array of entries and one of tensors for each file, and hash indexes over them; all of them
 * are built by weft_gguf_open and never change afterwards, so any number of threads may read one weft_gguf.
 *
 * A model may be split: part i of n is the file NAME-0000i-of-0000n.gguf, counted from 1, a whole GGUF file whose entries
 * split.no (from 0), split.count and split.tensors.count (of all parts) say which.  The entries that count are the first
 * part's; the tensors of all parts are one list.
 *
 * The file is an attacker: weft_gguf_open walks it once, front to back, and compares every length, count and product
 * with what is left of the file before it is used.  Only then does it hand out pointers, so nothing that comes out of
 * this file needs a check against the file's size again.
 *
 * Layout: "GGUF", u32 version, u64 n_tensors, u64 n_entries; the entries; the tensors' descriptions; padding to
 * general.alignment (32 if absent); the data, where each tensor starts at a multiple of the alignment. */
#include "weft/format.h"

#include "base/base.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The index allocates as the rest of weft does, so that running out of memory is a status here too: an element that
 * could not be added has hh.tbl NULL. */
#define HASH_NONFATAL_OOM 1
#define uthash_malloc(n_bytes) weft__alloc(1, n_bytes)
#define uthash_free(memory, n_bytes) weft_free(memory)
#define HASH_FUNCTION(key, n_bytes, hash) ((hash) = (unsigned)XXH3_64bits(key, n_bytes))
#include <uthash.h>
#include <xxhash.h>

/* Values and tensor data are used as they lie in the file. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF is read in place on little-endian machines only");

enum {
  MAX_NAME_BYTES = 65535, /* the format's limit for keys, taken for tensor names too */
  MAX_DIMS = 4,
  DEFAULT_ALIGNMENT = 32,
  MAX_ALIGNMENT = 65536,
  /* The least that one entry or description takes in the file.  It bounds their counts before anything is allocated:
   * a length, one byte of name, then type and a byte of value, or n_dims, one extent, type and offset. */
  MIN_ENTRY_BYTES = 8 + 1 + 4 + 1,
  MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
  MAX_QUOTED_BYTES = 64 /* of a name in a message */
};

/* Entries and tensors lie in one block each, in which uthash links those of one bucket: opening a file costs a
 * handful of allocations, however many names it has.  Names are not copied, they stay in the mapping.  A node is
 * what the indexes link: the first member of an item, so that a node found is the item found. */
typedef struct name_node {
  UT_hash_handle hh;
} name_node;

typedef struct entry_item {
  name_node node;
  weft_gguf_entry entry;
} entry_item;

typedef struct tensor_item {
  name_node node;
  weft_gguf_tensor tensor;
  uint64_t offset; /* of its data from the start of the data section */
} tensor_item;

/* Where the walk stands.  `subject` and what follows it only serve the messages. */
typedef struct reader {
  const char *path;
  const unsigned char *data;
  size_t n_bytes, position; /* position <= n_bytes */
  const char *subject;      /* "key" or "tensor", NULL in the header */
  uint64_t index;
  size_t start;          /* the subject's first byte */
  weft_gguf_string name; /* data is NULL until it has been read */
} reader;

/* One file. */
typedef struct part {
  char *path;
  weft__file_map map;
  reader reader; /* while opening: behind the entries, then behind all */
  uint32_t version, alignment;
  uint64_t n_tensors_told; /* by the header */
  size_t n_entries, n_tensors;
  entry_item *entries;    /* in the file's order */
  tensor_item *tensors;   /* in the file's order */
  name_node *entry_index; /* by key */
} part;

/* Maps a file, or reads it. */
typedef weft_status (*map_opener)(weft__file_map *map, const char *path);

struct weft_gguf {
  map_opener open_map;
  part *parts; /* one, unless the model is split */
  size_t n_parts, n_tensors;
  name_node *tensor_index; /* by name, of all parts */
};

/* What a file says of the split that it is part of; count is 1 where there is none. */
typedef struct split_info {
  int64_t no, count, n_tensors;
} split_info;

/* What a value can be read as. */
typedef enum value_kind { KIND_OTHER, KIND_UNSIGNED, KIND_SIGNED, KIND_FLOAT, KIND_BOOL } value_kind;

typedef struct value_type {
  const char *name;
  unsigned n_bytes; /* of one element, 0 where it varies */
  value_kind kind;
} value_type;

static const value_type value_types[WEFT_GGUF_TYPE_COUNT] = {
    [WEFT_GGUF_U8] = {"u8", 1, KIND_UNSIGNED},      [WEFT_GGUF_I8] = {"i8", 1, KIND_SIGNED},
    [WEFT_GGUF_U16] = {"u16", 2, KIND_UNSIGNED},    [WEFT_GGUF_I16] = {"i16", 2, KIND_SIGNED},
    [WEFT_GGUF_U32] = {"u32", 4, KIND_UNSIGNED},    [WEFT_GGUF_I32] = {"i32", 4, KIND_SIGNED},
    [WEFT_GGUF_F32] = {"f32", 4, KIND_FLOAT},       [WEFT_GGUF_BOOL] = {"bool", 1, KIND_BOOL},
    [WEFT_GGUF_STRING] = {"string", 0, KIND_OTHER}, [WEFT_GGUF_ARRAY] = {"array", 0, KIND_OTHER},
    [WEFT_GGUF_U64] = {"u64", 8, KIND_UNSIGNED},    [WEFT_GGUF_I64] = {"i64", 8, KIND_SIGNED},
    [WEFT_GGUF_F64] = {"f64", 8, KIND_FLOAT},
};

/* The element types of tensors, by their number in the file; numbers that are not in the list stay zero. */
typedef struct tensor_type {
  const char *name; /* NULL for a number that is not in use */
  int64_t block_len, block_bytes;
} tensor_type;

static const tensor_type tensor_types[] = {
#define WEFT_GGUF_TENSOR(number, name, block_len, block_bytes) [number] = {name, block_len, block_bytes},
#include "format/gguf_types.def"
#undef WEFT_GGUF_TENSOR
};

/* Those of them that weft computes with: the number in the file of each weft_dtype. */
static const uint32_t dtype_file_types[WEFT_DTYPE_COUNT] = {
#define WEFT_DTYPE(id, name, block_len, block_bytes, gguf_type, quantised) gguf_type,
#include "weft/dtype.def"
#undef WEFT_DTYPE
};

/* ---- messages ---- */

/* A quoted name, returned by value so that a message needs neither a buffer of the caller's nor an allocation.  A byte
 * takes up to four characters. */
typedef struct quoted {
  char text[4 * MAX_QUOTED_BYTES + sizeof "\"...\""];
} quoted;

/* A name from the file as one printable word: it may hold line feeds, terminal escapes or no text at all. */
static quoted quote(weft_gguf_string s) {
  quoted q;
  char *end = q.text;
  size_t n_shown = s.n_bytes < MAX_QUOTED_BYTES ? s.n_bytes : MAX_QUOTED_BYTES;
  *end++ = '"';
  for (size_t i = 0; i < n_shown; i++) {
    unsigned char c = (unsigned char)s.data[i];
    bool is_plain = c >= ' ' && c <= '~' && c != '"' && c != '\\';
    end += snprintf(end, 5, is_plain ? "%c" : "\\x%02x", c);
  }
  snprintf(end, 5, "%s\"", n_shown < s.n_bytes ? "..." : "");
  return q;
}

/* Sets the error "PATH: SUBJECT: WHY (ADVICE)", where the subject is named, or numbered and located if its name is
 * not known, and left out in the header.  What is malformed can only be fetched or made again; for the rest the
 * caller's WHY ends with advice of its own. */
static weft_status fail(const reader *r, weft_status status, const char *format, ...) WEFT_PRINTF(3, 4);
static weft_status fail(const reader *r, weft_status status, const char *format, ...) {
  char subject[sizeof(quoted) + 80] = "", why[512];
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  if (r->subject && r->name.data)
    snprintf(subject, sizeof subject, "%s %s: ", r->subject, quote(r->name).text);
  else if (r->subject)
    snprintf(subject, sizeof subject, "%s %" PRIu64 " at byte %zu: ", r->subject, r->index, r->start);
  const char *advice = status == WEFT_EFORMAT ? " (fetch or convert the file again)" : "";
  return weft__error(status, "%s: %s%s%s", r->path, subject, why, advice);
}

/* ---- reading, always forward and never past the end ---- */

/* Names what is read from here on. */
static void begin(reader *r, const char *subject, uint64_t index) {
  r->subject = subject;
  r->index = index;
  r->start = r->position;
  r->name = (weft_gguf_string){NULL, 0};
}

static size_t n_left(const reader *r) { return r->n_bytes - r->position; }

/* The next n bytes, or NULL with the error set if the file ends before. */
static const void *read_bytes(reader *r, const char *what, uint64_t n) {
  if (n > n_left(r)) {
    fail(r, WEFT_EFORMAT, "its %s takes %" PRIu64 " bytes from byte %zu, but the file ends at byte %zu", what, n,
         r->position, r->n_bytes);
    return NULL;
  }
  const void *bytes = r->data + r->position;
  r->position += (size_t)n;
  return bytes;
}

/* Nothing in a GGUF file is aligned before the data, so numbers are copied out. */
static weft_status read_u32(reader *r, const char *what, uint32_t *value) {
  const void *bytes = read_bytes(r, what, sizeof *value);
  if (!bytes) return WEFT_EFORMAT;
  memcpy(value, bytes, sizeof *value);
  return WEFT_OK;
}

static weft_status read_u64(reader *r, const char *what, uint64_t *value) {
  const void *bytes = read_bytes(r, what, sizeof *value);
  if (!bytes) return WEFT_EFORMAT;
  memcpy(value, bytes, sizeof *value);
  return WEFT_OK;
}

/* A string is a u64 length and that many bytes, of any value and without a terminator; *s points into the mapping. */
static weft_status read_string(reader *r, const char *what, weft_gguf_string *s) {
  uint64_t n;
  if (read_u64(r, what, &n)) return WEFT_EFORMAT;
  const char *data = read_bytes(r, what, n);
  if (!data) return WEFT_EFORMAT;
  *s = (weft_gguf_string){data, (size_t)n};
  return WEFT_OK;
}

/* The name of the reader's subject, which is mentioned by it from here on. */
static weft_status read_name(reader *r) {
  weft_gguf_string name;
  weft_status status = read_string(r, "name", &name);
  if (status) return status;
  if (name.n_bytes == 0 || name.n_bytes > MAX_NAME_BYTES)
    return fail(r, WEFT_EFORMAT, "its name has %zu bytes, 1 to %d are allowed", name.n_bytes, MAX_NAME_BYTES);
  r->name = name;
  return WEFT_OK;
}

/* Adds the reader's subject to an index under its name.  A second one of the same name is refused: which of the two
 * counts would differ between programs, so that what one checks is not what another uses. */
static weft_status index_name(name_node **index, const reader *r, name_node *node) {
  name_node *other;
  unsigned hash;
  HASH_VALUE(r->name.data, r->name.n_bytes, hash);
  HASH_FIND_BYHASHVALUE(hh, *index, r->name.data, r->name.n_bytes, hash, other);
  if (other) return fail(r, WEFT_EFORMAT, "it occurs twice, again at byte %zu", r->start);
  HASH_ADD_KEYPTR_BYHASHVALUE(hh, *index, r->name.data, r->name.n_bytes, hash, node);
  return node->hh.tbl ? WEFT_OK : WEFT_ENOMEM;
}

/* Compares lengths as well as bytes: a name that holds a NUL is never found by its start. */
static name_node *find_name(const name_node *index, const char *name) {
  name_node *node;
  HASH_FIND(hh, index, name, strlen(name), node);
  return node;
}

/* ---- metadata ---- */

/* Any other byte would be true for one reader of it and not equal to 1 for the next. */
static weft_status check_bools(reader *r, const unsigned char *values, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (values[i] > 1) return fail(r, WEFT_EFORMAT, "bool %zu is %d, neither 0 nor 1", i, values[i]);
  return WEFT_OK;
}

/* Most of the time that opening a model takes is spent here, on the vocabulary and its merges: strings have to be
 * walked to find where they end, so this is one pass without a table. */
static weft_status skip_strings(reader *r, uint64_t n) {
  weft_status status = WEFT_OK;
  weft_gguf_string s;
  for (uint64_t i = 0; i < n && !status; i++) status = read_string(r, "string", &s);
  return status;
}

/* Steps over n elements and checks those that can be wrong.  The time is bounded by the file's size, as every element
 * takes at least a byte.  The count is compared by division, because n times the size may wrap. */
static weft_status skip_elements(reader *r, weft_gguf_type type, uint64_t n) {
  if (type == WEFT_GGUF_STRING) return skip_strings(r, n);
  unsigned n_bytes = value_types[type].n_bytes;
  if (n > n_left(r) / n_bytes)
    return fail(r, WEFT_EFORMAT, "its value, %" PRIu64 " of type %s, does not fit into the %zu bytes left of the file",
                n, value_types[type].name, n_left(r));
  const unsigned char *values = read_bytes(r, "value", n * n_bytes);
  if (!values) return WEFT_EFORMAT;
  return type == WEFT_GGUF_BOOL ? check_bools(r, values, (size_t)n) : WEFT_OK;
}

static weft_status read_value_type(reader *r, const char *what, weft_gguf_type *type) {
  uint32_t number;
  weft_status status = read_u32(r, what, &number);
  if (status) return status;
  if (number >= WEFT_GGUF_TYPE_COUNT)
    return fail(r, WEFT_EFORMAT, "its %s is %" PRIu32 ", 0 to %d exist", what, number, WEFT_GGUF_TYPE_COUNT - 1);
  *type = (weft_gguf_type)number;
  return WEFT_OK;
}

/* An entry is its key, the u32 type of its value, the value.  An array's value is the u32 type and the u64 number of
 * its elements, and the elements one after the other without padding. */
static weft_status read_entry(reader *r, weft_gguf_entry *entry) {
  weft_status status = read_name(r);
  entry->key = r->name;
  if (!status) status = read_value_type(r, "value type", &entry->type);
  if (status) return status;
  entry->element_type = entry->type;
  entry->n_elements = 1;
  if (entry->type == WEFT_GGUF_ARRAY) {
    status = read_value_type(r, "element type", &entry->element_type);
    if (!status) status = read_u64(r, "number of elements", &entry->n_elements);
    if (status) return status;
    if (entry->element_type == WEFT_GGUF_ARRAY) return fail(r, WEFT_EFORMAT, "it is an array of arrays");
  }
  entry->data = r->data + r->position;
  return skip_elements(r, entry->element_type, entry->n_elements);
}

static weft_status read_entries(part *p, reader *r, uint64_t n) {
  if (n > n_left(r) / MIN_ENTRY_BYTES)
    return fail(r, WEFT_EFORMAT, "its number of keys is %" PRIu64 ", too many for the %zu bytes left of the file", n,
                n_left(r));
  p->entries = weft__calloc((size_t)n, sizeof *p->entries);
  if (!p->entries) return WEFT_ENOMEM;
  p->n_entries = (size_t)n;
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < p->n_entries && !status; i++) {
    begin(r, "key", i);
    status = read_entry(r, &p->entries[i].entry);
    if (!status) status = index_name(&p->entry_index, r, &p->entries[i].node);
  }
  return status;
}

static const weft_gguf_entry *find_entry(const part *p, const char *key) {
  const name_node *node = find_name(p->entry_index, key);
  return node ? &((const entry_item *)node)->entry : NULL;
}

/* ---- tensors ---- */

/* A u32 number of dimensions and that many u64 extents, innermost first; weft has the outermost first.  Files never
 * hold empty tensors, and an extent past INT64_MAX would be negative in every shape of ours. */
static weft_status read_shape(reader *r, weft_gguf_tensor *tensor) {
  uint32_t n_dims;
  weft_status status = read_u32(r, "number of dimensions", &n_dims);
  if (status) return status;
  if (n_dims < 1 || n_dims > MAX_DIMS)
    return fail(r, WEFT_EFORMAT, "it has %" PRIu32 " dimensions, 1 to %d are allowed", n_dims, MAX_DIMS);
  tensor->rank = (int)n_dims;
  for (int axis = tensor->rank - 1; axis >= 0; axis--) {
    uint64_t extent;
    status = read_u64(r, "shape", &extent);
    if (status) return status;
    if (extent < 1 || extent > INT64_MAX)
      return fail(r, WEFT_EFORMAT, "axis %d of its shape has %" PRIu64 " elements", axis, extent);
    tensor->shape[axis] = (int64_t)extent;
  }
  return WEFT_OK;
}

/* A type that weft cannot compute with is no error here: the file can still be listed, and whoever needs this tensor
 * says so.  Of an unknown number not even the size is known, so nothing can be checked and the file is refused. */
static weft_status read_tensor_type(reader *r, weft_gguf_tensor *tensor) {
  weft_status status = read_u32(r, "type", &tensor->file_type);
  if (status) return status;
  if (tensor->file_type >= WEFT_COUNT(tensor_types) || !tensor_types[tensor->file_type].name)
    return fail(r, WEFT_EUNSUPPORTED, "its type number %" PRIu32 " is unknown (convert it to a known type)",
                tensor->file_type);
  tensor->type_name = tensor_types[tensor->file_type].name;
  for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
    if (dtype_file_types[i] != tensor->file_type) continue;
    tensor->is_supported = 1;
    tensor->dtype = (weft_dtype)i;
  }
  return WEFT_OK;
}

/* n_bytes from shape and type.  A row is whole blocks, so the bytes of a row are exact; a product that wraps could come
 * out small enough to pass for data that is there. */
static weft_status measure_tensor(const reader *r, weft_gguf_tensor *tensor) {
  const tensor_type *type = &tensor_types[tensor->file_type];
  int64_t row_len = tensor->shape[tensor->rank - 1];
  if (row_len % type->block_len != 0)
    return fail(r, WEFT_EFORMAT,
                "its rows have %" PRId64 " elements, not a multiple of the %" PRId64 " in a block of %s", row_len,
                type->block_len, type->name);
  int64_t n = row_len / type->block_len;
  bool fits = weft__mul_i64(n, type->block_bytes, &n);
  for (int axis = 0; axis < tensor->rank - 1 && fits; axis++) fits = weft__mul_i64(n, tensor->shape[axis], &n);
  if (!fits) return fail(r, WEFT_EFORMAT, "the product of its shape is too large");
  tensor->n_bytes = (uint64_t)n;
  return WEFT_OK;
}

/* A description is a name, a shape, the u32 type and the u64 offset.  The offset can be checked only when all
 * descriptions are read, as the data starts after the last. */
static weft_status read_tensor(reader *r, tensor_item *item) {
  weft_status status = read_name(r);
  item->tensor.name = r->name;
  if (!status) status = read_shape(r, &item->tensor);
  if (!status) status = read_tensor_type(r, &item->tensor);
  if (!status) status = measure_tensor(r, &item->tensor);
  if (!status) status = read_u64(r, "offset", &item->offset);
  return status;
}

static weft_status read_tensors(weft_gguf *g, part *p, reader *r, uint64_t n) {
  r->subject = NULL;
  if (n > n_left(r) / MIN_TENSOR_BYTES)
    return fail(r, WEFT_EFORMAT, "its number of tensors is %" PRIu64 ", too many for the %zu bytes left of the file", n,
                n_left(r));
  p->tensors = weft__calloc((size_t)n, sizeof *p->tensors);
  if (!p->tensors) return WEFT_ENOMEM;
  p->n_tensors = (size_t)n;
  g->n_tensors += p->n_tensors;
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < p->n_tensors && !status; i++) {
    begin(r, "tensor", i);
    status = read_tensor(r, &p->tensors[i]);
    if (!status) status = index_name(&g->tensor_index, r, &p->tensors[i].node);
  }
  return status;
}

/* The format demands a u32 here.  Another type is refused rather than converted, for a wrong guess would move the
 * data of every tensor. */
static weft_status find_alignment(const part *p, reader *r, uint32_t *alignment) {
  const weft_gguf_entry *entry = find_entry(p, "general.alignment");
  *alignment = DEFAULT_ALIGNMENT;
  if (!entry) return WEFT_OK;
  r->subject = "key";
  r->name = entry->key;
  if (entry->type != WEFT_GGUF_U32)
    return fail(r, WEFT_EFORMAT, "it has type %s, expected u32", value_types[entry->type].name);
  memcpy(alignment, entry->data, sizeof *alignment);
  bool is_power_of_two = *alignment != 0 && (*alignment & (*alignment - 1)) == 0;
  if (!is_power_of_two || *alignment > MAX_ALIGNMENT)
    return fail(r, WEFT_EFORMAT, "it is %" PRIu32 ", expected a power of two up to %d", *alignment, MAX_ALIGNMENT);
  return WEFT_OK;
}

/* Points every tensor at its data.  The size is compared with what is left after the offset, as their sum may wrap.
 * Data may overlap: files share one block between tied weights.  A file without tensors may end before the
 * padding. */
static weft_status place_tensors(part *p, reader *r) {
  uint32_t alignment = p->alignment;
  size_t padding = (alignment - r->position % alignment) % alignment;
  size_t n_data = n_left(r) > padding ? n_left(r) - padding : 0;
  r->subject = "tensor";
  for (size_t i = 0; i < p->n_tensors; i++) {
    tensor_item *item = &p->tensors[i];
    r->name = item->tensor.name;
    if (item->offset % alignment != 0)
      return fail(r, WEFT_EFORMAT, "its offset %" PRIu64 " is not a multiple of the alignment %" PRIu32, item->offset,
                  alignment);
    if (item->offset > n_data || item->tensor.n_bytes > n_data - item->offset)
      return fail(r, WEFT_EFORMAT,
                  "its %" PRIu64 " bytes at offset %" PRIu64 " do not fit into the %zu bytes of data in the file",
                  item->tensor.n_bytes, item->offset, n_data);
    item->tensor.data = r->data + r->position + padding + (size_t)item->offset;
  }
  return WEFT_OK;
}

/* ---- one file ---- */

/* Version 1 had 32-bit lengths, and was replaced within weeks; 2 and 3 differ in nothing but that 3 allows big-endian
 * files, which show by their version's bytes. */
static weft_status check_version(const reader *r, uint32_t version) {
  if (version == 2 || version == 3) return WEFT_OK;
  uint32_t swapped = version >> 24 | (version >> 8 & 0xff00) | (version << 8 & 0xff0000) | version << 24;
  if (swapped == 2 || swapped == 3)
    return fail(r, WEFT_EUNSUPPORTED, "a big-endian file of GGUF version %" PRIu32 " (get the little-endian file)",
                swapped);
  return fail(r, WEFT_EUNSUPPORTED, "GGUF version %" PRIu32 ", versions 2 and 3 are known (convert the file again)",
              version);
}

/* The magic is looked at before anything else: a file of another kind must not be called a damaged GGUF file. */
static weft_status read_header(reader *r, uint32_t *version, uint64_t *n_tensors, uint64_t *n_entries) {
  static const char magic[4] = "GGUF";
  weft_gguf_string start = {(const char *)r->data, r->n_bytes < sizeof magic ? r->n_bytes : sizeof magic};
  if (r->n_bytes == 0) return fail(r, WEFT_EFORMAT, "not a GGUF file: it is empty");
  if (start.n_bytes < sizeof magic || memcmp(start.data, magic, sizeof magic) != 0)
    return fail(r, WEFT_EFORMAT, "not a GGUF file: it starts with %s", quote(start).text);
  r->position = sizeof magic;
  weft_status status = read_u32(r, "version", version);
  if (!status) status = check_version(r, *version);
  if (!status) status = read_u64(r, "number of tensors", n_tensors);
  if (!status) status = read_u64(r, "number of keys", n_entries);
  return status;
}

/* Opens the file and reads what stands before the tensors. */
static weft_status open_part(const weft_gguf *g, part *p, const char *path) {
  uint64_t n_entries = 0;
  p->path = weft__dup(path, strlen(path));
  if (!p->path) return WEFT_ENOMEM;
  weft_status status = g->open_map(&p->map, path);
  if (status) return status;
  p->reader = (reader){.path = p->path, .data = p->map.data, .n_bytes = p->map.n_bytes};
  status = read_header(&p->reader, &p->version, &p->n_tensors_told, &n_entries);
  if (!status) status = read_entries(p, &p->reader, n_entries);
  return status ? status : find_alignment(p, &p->reader, &p->alignment);
}

/* Reads the rest: front to back, as each thing says where the next one starts. */
static weft_status finish_part(weft_gguf *g, part *p) {
  weft_status status = read_tensors(g, p, &p->reader, p->n_tensors_told);
  return status ? status : place_tensors(p, &p->reader);
}

static void close_part(part *p) {
  HASH_CLEAR(hh, p->entry_index);
  weft_free(p->entries);
  weft_free(p->tensors);
  weft__file_map_close(&p->map);
  weft_free(p->path);
  *p = (part){0};
}

/* ---- split models ---- */

enum { MAX_PARTS = 65535 };

static weft_status get_int(const part *p, const char *key, int64_t min, int64_t max, int64_t *value);

/* Tools that join a model again leave a count of 0 and whatever the other entries were. */
static weft_status read_split(const part *p, split_info *split) {
  *split = (split_info){.no = -1, .count = 1, .n_tensors = -1};
  weft_status status = get_int(p, "split.count", 0, MAX_PARTS, &split->count);
  if (status) return status;
  if (split->count <= 1) {
    split->count = 1;
    return WEFT_OK;
  }
  status = get_int(p, "split.no", 0, split->count - 1, &split->no);
  if (!status) status = get_int(p, "split.tensors.count", 0, INT64_MAX, &split->n_tensors);
  if (!status && (split->no < 0 || split->n_tensors < 0))
    status = weft__error(WEFT_EFORMAT,
                         "%s: it has split.count, but not split.no and split.tensors.count (fetch or "
                         "convert the file again)",
                         p->path);
  return status;
}

/* The other parts are found by name, so the name must be the one that the entries tell.  *stem gets what stands before the
 * numbers, the caller's to free. */
static weft_status read_stem(const char *path, const split_info *split, char **stem) {
  char suffix[32];
  int n_suffix = snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", (int)split->no + 1, (int)split->count);
  size_t n = strlen(path);
  if (n < (size_t)n_suffix || strcmp(path + n - n_suffix, suffix) != 0)
    return weft__error(WEFT_EFORMAT,
                       "%s: it is part %d of %d of a split model, but its name does not end in %s (give it the name "
                       "that it had)",
                       path, (int)split->no + 1, (int)split->count, suffix);
  *stem = weft__dup(path, n - (size_t)n_suffix);
  return *stem ? WEFT_OK : WEFT_ENOMEM;
}

/* Whether part `no` is what it must be, given what the first one told. */
static weft_status check_part(const part *p, int64_t no, const split_info *expected) {
  split_info split;
  weft_status status = read_split(p, &split);
  if (status) return status;
  if (split.count != expected->count || split.no != no || split.n_tensors != expected->n_tensors)
    return weft__error(WEFT_EFORMAT,
                       "%s: it says that it is part %d of %d with %" PRId64
                       " tensors in all, but it stands for part %d "
                       "of %d with %" PRId64 " (fetch all parts again)",
                       p->path, (int)split.no + 1, (int)split.count, split.n_tensors, (int)no + 1, (int)expected->count,
                       expected->n_tensors);
  return WEFT_OK;
}

/* Opens part `no` unless it is open, and adds its tensors. */
static weft_status read_part(weft_gguf *g, const char *stem, int64_t no, const split_info *split) {
  part *p = &g->parts[no];
  weft__bytes path = {0};
  weft_status status = weft__bytes_printf(&path, "%s-%05d-of-%05d.gguf", stem, (int)no + 1, (int)split->count);
  if (!status && !p->path) status = open_part(g, p, path.data);
  weft__bytes_clear(&path);
  if (status == WEFT_EIO)
    return weft__error(status, "%s (it is part %d of %d of a split model: put all of them into one folder)",
                       weft_last_error(), (int)no + 1, (int)split->count);
  if (!status) status = check_part(p, no, split);
  return status ? status : finish_part(g, p);
}

/* Makes room for all parts of the split that parts[0] belongs to, and moves that one to its place. */
static weft_status make_room(weft_gguf *g, const split_info *split) {
  part *parts = weft__calloc((size_t)split->count, sizeof *parts);
  if (!parts) return WEFT_ENOMEM;
  parts[split->no] = g->parts[0];
  weft_free(g->parts);
  g->parts = parts;
  g->n_parts = (size_t)split->count;
  return WEFT_OK;
}

static weft_status open_split(weft_gguf *g, const split_info *split) {
  char *stem = NULL;
  weft_status status = read_stem(g->parts[0].path, split, &stem);
  if (!status) status = make_room(g, split);
  for (int64_t no = 0; no < split->count && !status; no++) status = read_part(g, stem, no, split);
  weft_free(stem);
  if (!status && g->n_tensors != (uint64_t)split->n_tensors)
    status = weft__error(WEFT_EFORMAT,
                         "%s: split.tensors.count is %" PRId64 ", but the %d parts hold %zu tensors (fetch all parts "
                         "again)",
                         weft_gguf_path(g), split->n_tensors, (int)split->count, g->n_tensors);
  return status;
}

/* ---- the whole ---- */

static weft_status open_model(weft_gguf *g, const char *path) {
  split_info split;
  g->parts = weft__calloc(1, sizeof *g->parts);
  if (!g->parts) return WEFT_ENOMEM;
  g->n_parts = 1;
  weft_status status = open_part(g, &g->parts[0], path);
  if (!status) status = read_split(&g->parts[0], &split);
  if (status) return status;
  return split.count > 1 ? open_split(g, &split) : finish_part(g, &g->parts[0]);
}

static weft_status open_with(weft_gguf **out, const char *path, map_opener open_map) {
  if (!out || !path) return weft__error(WEFT_EINVAL, "weft_gguf_open: out or path is NULL (pass both)");
  weft_gguf *g = weft__calloc(1, sizeof *g);
  if (!g) return WEFT_ENOMEM;
  g->open_map = open_map;
  weft_status status = open_model(g, path);
  if (!status)
    *out = g;
  else
    weft_gguf_close(g);
  return status;
}

weft_status weft_gguf_open(weft_gguf **out, const char *path) { return open_with(out, path, weft__file_map_open); }

weft_status weft_gguf_read(weft_gguf **out, const char *path) { return open_with(out, path, weft__file_map_read); }

/* The index goes before the tensors that it links. */
void weft_gguf_close(weft_gguf *gguf) {
  if (!gguf) return;
  HASH_CLEAR(hh, gguf->tensor_index);
  for (size_t i = 0; i < gguf->n_parts; i++) close_part(&gguf->parts[i]);
  weft_free(gguf->parts);
  weft_free(gguf);
}

/* ---- access ---- */

const char *weft_gguf_path(const weft_gguf *gguf) { return gguf->parts[0].path; }
uint32_t weft_gguf_version(const weft_gguf *gguf) { return gguf->parts[0].version; }
size_t weft_gguf_n_parts(const weft_gguf *gguf) { return gguf->n_parts; }
size_t weft_gguf_n_entries(const weft_gguf *gguf) { return gguf->parts[0].n_entries; }
size_t weft_gguf_n_tensors(const weft_gguf *gguf) { return gguf->n_tensors; }

uint64_t weft_gguf_file_bytes(const weft_gguf *gguf) {
  uint64_t n_bytes = 0;
  for (size_t i = 0; i < gguf->n_parts; i++) n_bytes += gguf->parts[i].map.n_bytes;
  return n_bytes;
}

const weft_gguf_entry *weft_gguf_entry_at(const weft_gguf *gguf, size_t index) {
  return index < gguf->parts[0].n_entries ? &gguf->parts[0].entries[index].entry : NULL;
}

const weft_gguf_tensor *weft_gguf_tensor_at(const weft_gguf *gguf, size_t index) {
  for (size_t i = 0; i < gguf->n_parts; i++) {
    const part *p = &gguf->parts[i];
    if (index < p->n_tensors) return &p->tensors[index].tensor;
    index -= p->n_tensors;
  }
  return NULL;
}

const weft_gguf_entry *weft_gguf_find(const weft_gguf *gguf, const char *key) {
  return find_entry(&gguf->parts[0], key);
}

const weft_gguf_tensor *weft_gguf_find_tensor(const weft_gguf *gguf, const char *name) {
  const name_node *node = find_name(gguf->tensor_index, name);
  return node ? &((const tensor_item *)node)->tensor : NULL;
}

/* The part whose mapping holds the data of a tensor. */
static const part *part_of(const weft_gguf *gguf, const weft_gguf_tensor *tensor) {
  uintptr_t data = (uintptr_t)tensor->data;
  const part *p = gguf->parts;
  while (data - (uintptr_t)p->map.data >= p->map.n_bytes) p++;
  return p;
}

void weft_gguf_release_part(const weft_gguf *gguf, const weft_gguf_tensor *tensor, const void *data, size_t n_bytes) {
  weft__file_map_release(&part_of(gguf, tensor)->map, data, n_bytes);
}

void weft_gguf_release(const weft_gguf *gguf, const weft_gguf_tensor *tensor) {
  weft_gguf_release_part(gguf, tensor, tensor->data, (size_t)tensor->n_bytes);
}

/* ---- values ---- */

/* Sets the error of a look-up: the file is sound, but was not written for the model family that asks. */
static weft_status wrong_kind(const char *path, const weft_gguf_entry *entry, const char *expected) {
  const char *array = entry->type == WEFT_GGUF_ARRAY ? "array of " : "";
  return weft__error(WEFT_EFORMAT, "%s: key %s: it has type %s%s, expected %s (convert the file again)", path,
                     quote(entry->key).text, array, value_types[entry->element_type].name, expected);
}

/* The kind of a single value: an array's is KIND_OTHER, so the look-ups refuse it. */
static value_kind scalar_kind(const weft_gguf_entry *entry) { return value_types[entry->type].kind; }

/* Loads take the value's size, 1 to 8 bytes, and rely on the little-endian order asserted above. */
static uint64_t load_unsigned(const void *data, unsigned n_bytes) {
  uint64_t value = 0;
  memcpy(&value, data, n_bytes);
  return value;
}

/* Shifts the sign bit to the top and back down, which fills with it. */
static int64_t load_signed(const void *data, unsigned n_bytes) {
  unsigned n_unused_bits = 64 - 8 * n_bytes;
  return (int64_t)(load_unsigned(data, n_bytes) << n_unused_bits) >> n_unused_bits;
}

static double load_float(const void *data, unsigned n_bytes) {
  float narrow;
  double wide;
  if (n_bytes == sizeof narrow) {
    memcpy(&narrow, data, sizeof narrow);
    return narrow;
  }
  memcpy(&wide, data, sizeof wide);
  return wide;
}

static weft_status get_int(const part *p, const char *key, int64_t min, int64_t max, int64_t *value) {
  const weft_gguf_entry *entry = find_entry(p, key);
  if (!entry) return WEFT_OK;
  unsigned n_bytes = value_types[entry->type].n_bytes;
  bool is_unsigned = scalar_kind(entry) == KIND_UNSIGNED;
  if (!is_unsigned && scalar_kind(entry) != KIND_SIGNED) return wrong_kind(p->path, entry, "an integer");
  /* A u64 past INT64_MAX wraps to a negative number here, which tells it from the others. */
  int64_t n = is_unsigned ? (int64_t)load_unsigned(entry->data, n_bytes) : load_signed(entry->data, n_bytes);
  bool is_past_int64 = is_unsigned && n < 0;
  if (is_past_int64 || n < min || n > max) {
    char text[24];
    snprintf(text, sizeof text, is_unsigned ? "%" PRIu64 : "%" PRId64, n);
    return weft__error(WEFT_EFORMAT,
                       "%s: key %s: it is %s, expected %" PRId64 " to %" PRId64 " (convert the file again)", p->path,
                       quote(entry->key).text, text, min, max);
  }
  *value = n;
  return WEFT_OK;
}

weft_status weft_gguf_get_int(const weft_gguf *gguf, const char *key, int64_t min, int64_t max, int64_t *value) {
  return get_int(&gguf->parts[0], key, min, max, value);
}

weft_status weft_gguf_get_float(const weft_gguf *gguf, const char *key, double *value) {
  const weft_gguf_entry *entry = weft_gguf_find(gguf, key);
  if (!entry) return WEFT_OK;
  if (scalar_kind(entry) != KIND_FLOAT) return wrong_kind(weft_gguf_path(gguf), entry, "f32 or f64");
  *value = load_float(entry->data, value_types[entry->type].n_bytes);
  return WEFT_OK;
}

weft_status weft_gguf_get_bool(const weft_gguf *gguf, const char *key, int *value) {
  const weft_gguf_entry *entry = weft_gguf_find(gguf, key);
  if (!entry) return WEFT_OK;
  if (scalar_kind(entry) != KIND_BOOL) return wrong_kind(weft_gguf_path(gguf), entry, "bool");
  *value = (int)load_unsigned(entry->data, 1);
  return WEFT_OK;
}

/* The string at `data` and where the next one starts; its length was checked when the file was opened. */
static weft_gguf_string load_string(const void *data, const void **next) {
  uint64_t n_bytes = load_unsigned(data, sizeof n_bytes);
  const char *text = (const char *)data + sizeof n_bytes;
  *next = text + n_bytes;
  return (weft_gguf_string){text, (size_t)n_bytes};
}

weft_status weft_gguf_get_string(const weft_gguf *gguf, const char *key, weft_gguf_string *value) {
  const void *next;
  const weft_gguf_entry *entry = weft_gguf_find(gguf, key);
  if (!entry) return WEFT_OK;
  if (entry->type != WEFT_GGUF_STRING) return wrong_kind(weft_gguf_path(gguf), entry, "string");
  *value = load_string(entry->data, &next);
  return WEFT_OK;
}

/* The lengths were added up when the file was opened, so this walk cannot leave the mapping. */
weft_status weft_gguf_strings(const weft_gguf *gguf, const weft_gguf_entry *entry, weft_gguf_string **out) {
  if (entry->type != WEFT_GGUF_ARRAY || entry->element_type != WEFT_GGUF_STRING)
    return wrong_kind(weft_gguf_path(gguf), entry, "array of string");
  size_t n = (size_t)entry->n_elements;
  weft_gguf_string *strings = weft__alloc(n, sizeof *strings);
  if (!strings) return WEFT_ENOMEM;
  const void *next = entry->data;
  for (size_t i = 0; i < n; i++) strings[i] = load_string(next, &next);
  *out = strings;
  return WEFT_OK;
}

weft_status weft_gguf_number(const weft_gguf_entry *entry, uint64_t index, double *value) {
  const value_type *type = &value_types[entry->element_type];
  if (type->kind == KIND_OTHER)
    return weft__error(WEFT_EFORMAT, "key %s: it holds %ss, expected numbers (convert the file again)",
                       quote(entry->key).text, type->name);
  if (index >= entry->n_elements)
    return weft__error(WEFT_EINVAL, "key %s: element %" PRIu64 " of %" PRIu64 " (pass a smaller index)",
                       quote(entry->key).text, index, entry->n_elements);
  const char *data = (const char *)entry->data + index * type->n_bytes;
  if (type->kind == KIND_FLOAT)
    *value = load_float(data, type->n_bytes);
  else if (type->kind == KIND_SIGNED)
    *value = (double)load_signed(data, type->n_bytes);
  else
    *value = (double)load_unsigned(data, type->n_bytes);
  return WEFT_OK;
}
