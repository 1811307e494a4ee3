/* gguf_cases.c - see gguf_cases.h.  Every wrong file is wrong in one place, so the reader's answer must be about it. */
#include "support/gguf_cases.h"

#include <string.h>

enum { F32 = 0, F16 = 1, Q4_1 = 3, Q8_0 = 8, Q4_K = 12, Q6_K = 14, I32 = 26 }; /* tensor types */

static const unsigned char zeros[4096];

/* ---- valid files ---- */

/* Values that no other type of the same width could hold, so that reading one as another shows. */
static void add_scalars(gguf_writer *w) {
  gguf_writer_value(w, "a.u8", WEFT_GGUF_U8, &(uint8_t){200});
  gguf_writer_value(w, "a.i8", WEFT_GGUF_I8, &(int8_t){-100});
  gguf_writer_value(w, "a.u16", WEFT_GGUF_U16, &(uint16_t){60000});
  gguf_writer_value(w, "a.i16", WEFT_GGUF_I16, &(int16_t){-30000});
  gguf_writer_value(w, "a.u32", WEFT_GGUF_U32, &(uint32_t){4000000000});
  gguf_writer_value(w, "a.i32", WEFT_GGUF_I32, &(int32_t){-2000000000});
  gguf_writer_value(w, "a.u64", WEFT_GGUF_U64, &(uint64_t){UINT64_MAX});
  gguf_writer_value(w, "a.i64", WEFT_GGUF_I64, &(int64_t){INT64_MIN});
  gguf_writer_value(w, "a.f32", WEFT_GGUF_F32, &(float){0.5f});
  gguf_writer_value(w, "a.f64", WEFT_GGUF_F64, &(double){-1e300});
  gguf_writer_bool(w, "a.false", 0);
  gguf_writer_bool(w, "a.true", 1);
  gguf_writer_string(w, "a.string", "Zebra \xf0\x9f\xa6\x93");
  gguf_writer_string(w, "a.empty", "");
}

static void add_arrays(gguf_writer *w) {
  gguf_writer_strings(w, "b.strings", (const char *const[]){"one", "", "three"}, 3);
  gguf_writer_strings(w, "b.no_strings", NULL, 0);
  gguf_writer_array(w, "b.i32", WEFT_GGUF_I32, (const int32_t[]){-1, 0, 7}, 3);
  gguf_writer_array(w, "b.u8", WEFT_GGUF_U8, (const uint8_t[]){255}, 1);
  gguf_writer_array(w, "b.f32", WEFT_GGUF_F32, (const float[]){0.25f, -2.0f}, 2);
  gguf_writer_array(w, "b.f64", WEFT_GGUF_F64, (const double[]){1e-300}, 1);
  gguf_writer_array(w, "b.bool", WEFT_GGUF_BOOL, (const uint8_t[]){1, 0, 1}, 3);
  gguf_writer_array(w, "b.u64", WEFT_GGUF_U64, NULL, 0);
}

void gguf_make_full(gguf_writer *w) {
  unsigned char data[288];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + 1);
  add_scalars(w);
  add_arrays(w);
  gguf_writer_tensor(w, "f32", F32, 1, (const int64_t[]){3}, data, 12);
  gguf_writer_tensor(w, "f16", F16, 2, (const int64_t[]){2, 5}, data, 20);
  gguf_writer_tensor(w, "q4_1", Q4_1, 2, (const int64_t[]){3, 64}, data, 120);
  gguf_writer_tensor(w, "q4_k", Q4_K, 3, (const int64_t[]){2, 1, 256}, data, 288);
  gguf_writer_tensor(w, "q8_0", Q8_0, 4, (const int64_t[]){1, 2, 1, 32}, data, 68);
}

/* No entries, no tensors, and no padding after the header: 24 bytes. */
static void make_nothing(gguf_writer *w) { (void)w; }

static void make_version_2(gguf_writer *w) {
  gguf_make_full(w);
  w->version = 2;
}

/* One entry and one tensor of 40 bytes: what the wrong files below start from. */
static void make_small(gguf_writer *w) {
  gguf_writer_string(w, "general.architecture", "llama");
  gguf_writer_tensor(w, "x", F32, 2, (const int64_t[]){2, 5}, zeros, 40);
}

/* Data without any padding: tensors start wherever the one before ends. */
static void make_alignment_1(gguf_writer *w) {
  gguf_writer_alignment(w, 1);
  gguf_writer_tensor(w, "x", F32, 1, (const int64_t[]){3}, zeros, 12);
  gguf_writer_tensor(w, "y", F16, 1, (const int64_t[]){3}, zeros, 6);
}

static void make_alignment_4096(gguf_writer *w) {
  gguf_writer_alignment(w, 4096);
  make_small(w);
}

static void make_overlap(gguf_writer *w) {
  make_small(w);
  gguf_writer_info(w, "y", 1, (const uint64_t[]){10}, 1, F32, 0);
  gguf_writer_info(w, "z", 1, (const uint64_t[]){2}, 1, I32, 32);
}

/* Types of known size that weft has no kernels for. */
static void make_unsupported_types(gguf_writer *w) {
  gguf_writer_tensor(w, "i8", 24, 1, (const int64_t[]){8}, zeros, 8);
  gguf_writer_tensor(w, "iq2_xxs", 16, 1, (const int64_t[]){256}, zeros, 66);
  gguf_writer_tensor(w, "nvfp4", 40, 2, (const int64_t[]){2, 64}, zeros, 72);
}

/* Two blocks, or elements, of each type that weft computes with. */
static void make_all_types(gguf_writer *w) {
#define WEFT_DTYPE(id, name, block_len, block_bytes, gguf_type, quantised)                                             \
  gguf_writer_tensor(w, name, gguf_type, 2, (const int64_t[]){2, block_len}, zeros, 2 * block_bytes);
#include "weft/dtype.def"
#undef WEFT_DTYPE
}

/* A NUL, a line feed and an escape are legal in names. */
static void make_odd_names(gguf_writer *w) {
  gguf_put_string(&w->entries, "a\0b", 3);
  gguf_put_u32(&w->entries, WEFT_GGUF_BOOL);
  gguf_put(&w->entries, "\1", 1);
  w->n_entries++;
  gguf_writer_u32(w, "\n\033[31m", 1);
  gguf_writer_tensor(w, "\xff\xfe \"\\", F32, 1, (const int64_t[]){1}, zeros, 4);
}

/* ---- header ---- */

static void make_empty(gguf_writer *w) { w->max_bytes = 0; }

static void make_short_magic(gguf_writer *w) { w->max_bytes = 3; }

static void make_wrong_magic(gguf_writer *w) {
  make_small(w);
  memcpy(w->magic, "GGM\n", sizeof w->magic);
}

static void make_version_0(gguf_writer *w) {
  make_small(w);
  w->version = 0;
}

static void make_version_1(gguf_writer *w) {
  make_small(w);
  w->version = 1;
}

static void make_version_4(gguf_writer *w) {
  make_small(w);
  w->version = 4;
}

/* What a reader of the other byte order takes for 3. */
static void make_big_endian(gguf_writer *w) {
  make_small(w);
  w->version = 0x03000000;
}

static void make_cut_version(gguf_writer *w) { w->max_bytes = 6; }

static void make_cut_counts(gguf_writer *w) { w->max_bytes = 20; }

/* Counts that no file could hold, and that must not reach an allocation. */
static void make_many_entries(gguf_writer *w) {
  make_small(w);
  w->n_entries = UINT64_C(1) << 60;
}

static void make_many_tensors(gguf_writer *w) {
  make_small(w);
  w->n_tensors = UINT64_MAX;
}

/* One more than there are: the data section is read as a description, whose name is empty. */
static void make_one_tensor_more(gguf_writer *w) {
  make_small(w);
  w->n_tensors++;
}

/* ---- entries ---- */

/* A length that wraps the position backwards when it is added. */
static void make_key_length_huge(gguf_writer *w) {
  w->n_entries = 1;
  gguf_put_u64(&w->entries, UINT64_C(0xFFFFFFFFFFFFFFF0));
  gguf_put(&w->entries, zeros, 64);
}

static void make_key_empty(gguf_writer *w) { gguf_writer_u32(w, "", 1); }

/* The name would break the line and colour the terminal if it went into the message as it is. */
static void make_key_twice(gguf_writer *w) {
  gguf_writer_u32(w, "a", 1);
  gguf_writer_u32(w, "b\n\033[31m", 2);
  gguf_writer_u32(w, "b\n\033[31m", 3);
}

static void begin_entry(gguf_writer *w, const char *key, uint32_t type) {
  w->n_entries++;
  gguf_put_string(&w->entries, key, strlen(key));
  gguf_put_u32(&w->entries, type);
}

static void make_value_type_13(gguf_writer *w) {
  begin_entry(w, "k", 13);
  gguf_put(&w->entries, zeros, 64);
}

static void make_value_type_huge(gguf_writer *w) {
  begin_entry(w, "k", UINT32_MAX);
  gguf_put(&w->entries, zeros, 64);
}

static void make_bool_2(gguf_writer *w) { gguf_writer_bool(w, "k", 2); }

static void make_bool_array_255(gguf_writer *w) {
  gguf_writer_array(w, "k", WEFT_GGUF_BOOL, (const uint8_t[]){1, 0, 255}, 3);
}

static void make_string_huge(gguf_writer *w) {
  begin_entry(w, "k", WEFT_GGUF_STRING);
  gguf_put_u64(&w->entries, UINT64_MAX);
  gguf_put(&w->entries, zeros, 64);
}

static void begin_array(gguf_writer *w, uint32_t element_type, uint64_t n) {
  begin_entry(w, "k", WEFT_GGUF_ARRAY);
  gguf_put_u32(&w->entries, element_type);
  gguf_put_u64(&w->entries, n);
}

static void make_array_of_arrays(gguf_writer *w) {
  begin_array(w, WEFT_GGUF_ARRAY, 1);
  gguf_put_u32(&w->entries, WEFT_GGUF_U8);
  gguf_put_u64(&w->entries, 0);
}

static void make_element_type_13(gguf_writer *w) {
  begin_array(w, 13, 1);
  gguf_put(&w->entries, zeros, 64);
}

/* n times 8 bytes is 2^64 + 8. */
static void make_array_wraps(gguf_writer *w) {
  begin_array(w, WEFT_GGUF_U64, (UINT64_C(1) << 61) + 1);
  gguf_put(&w->entries, zeros, 64);
}

static void make_array_too_long(gguf_writer *w) {
  begin_array(w, WEFT_GGUF_U16, 33);
  gguf_put(&w->entries, zeros, 64);
}

/* The walk over the strings must end with the file, however many there are said to be. */
static void make_strings_huge(gguf_writer *w) {
  begin_array(w, WEFT_GGUF_STRING, UINT64_MAX);
  gguf_put(&w->entries, zeros, 64);
}

static void make_strings_cut(gguf_writer *w) {
  begin_array(w, WEFT_GGUF_STRING, 2);
  gguf_put_string(&w->entries, "first", 5);
  gguf_put_u64(&w->entries, 100);
  gguf_put(&w->entries, zeros, 64);
}

/* ---- general.alignment ---- */

/* Each has the right number in the wrong type, or the wrong number in the right one. */
static void make_alignment_i32(gguf_writer *w) {
  gguf_writer_value(w, "general.alignment", WEFT_GGUF_I32, &(int32_t){32});
  make_small(w);
}

static void make_alignment_u64(gguf_writer *w) {
  gguf_writer_value(w, "general.alignment", WEFT_GGUF_U64, &(uint64_t){32});
  make_small(w);
}

static void make_alignment_string(gguf_writer *w) {
  gguf_writer_string(w, "general.alignment", "32");
  make_small(w);
}

static void make_alignment_0(gguf_writer *w) {
  gguf_writer_u32(w, "general.alignment", 0);
  make_small(w);
}

static void make_alignment_3(gguf_writer *w) {
  gguf_writer_u32(w, "general.alignment", 3);
  make_small(w);
}

static void make_alignment_131072(gguf_writer *w) {
  gguf_writer_u32(w, "general.alignment", 131072);
  make_small(w);
}

static void make_alignment_2_31(gguf_writer *w) {
  gguf_writer_u32(w, "general.alignment", UINT32_C(1) << 31);
  make_small(w);
}

/* ---- tensors ---- */

static void make_tensor_name_empty(gguf_writer *w) {
  gguf_writer_tensor(w, "", F32, 1, (const int64_t[]){1}, zeros, 4);
}

static void make_tensor_name_huge(gguf_writer *w) {
  w->n_tensors = 1;
  gguf_put_u64(&w->infos, INT64_MAX);
  gguf_put(&w->infos, zeros, 64);
}

static void make_tensor_twice(gguf_writer *w) {
  make_small(w);
  gguf_writer_tensor(w, "y", F32, 1, (const int64_t[]){1}, zeros, 4);
  gguf_writer_tensor(w, "x", F16, 1, (const int64_t[]){1}, zeros, 2);
}

/* A description with as many extents of 1 as the file has room for, in a file of at least 4 KiB. */
static void add_n_dims(gguf_writer *w, uint32_t n_dims) {
  static const uint64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  gguf_writer_info(w, "x", n_dims, ones, n_dims < WEFT_COUNT(ones) ? n_dims : WEFT_COUNT(ones), F32, 0);
  gguf_put(&w->data, zeros, sizeof zeros);
}

static void make_dims_0(gguf_writer *w) { add_n_dims(w, 0); }

static void make_dims_5(gguf_writer *w) { add_n_dims(w, 5); }

static void make_dims_9(gguf_writer *w) { add_n_dims(w, 9); }

static void make_dims_1000000(gguf_writer *w) { add_n_dims(w, 1000000); }

static void add_shape(gguf_writer *w, uint32_t type, uint64_t inner, uint64_t outer) {
  gguf_writer_info(w, "x", 2, (const uint64_t[]){inner, outer}, 2, type, 0);
  gguf_put(&w->data, zeros, 64);
}

static void make_extent_0(gguf_writer *w) { add_shape(w, F32, 4, 0); }

static void make_extent_negative(gguf_writer *w) { add_shape(w, F32, UINT64_MAX, 1); }

/* The row's 16 bytes times 2^62 + 1 is 16 modulo 2^64. */
static void make_shape_wraps(gguf_writer *w) { add_shape(w, F32, 4, (UINT64_C(1) << 62) + 1); }

/* The elements can be counted, their bytes not. */
static void make_bytes_wrap(gguf_writer *w) { add_shape(w, F32, UINT64_C(1) << 62, 1); }

/* Three extents whose product is 2^64 + 2^43, which wraps to a size that looks harmless. */
static void make_shape_wraps_small(gguf_writer *w) {
  gguf_writer_info(w, "x", 3, (const uint64_t[]){1, (UINT64_C(1) << 21) + 1, UINT64_C(1) << 43}, 3, F32, 0);
  gguf_put(&w->data, zeros, 64);
}

static void make_half_block(gguf_writer *w) { add_shape(w, Q4_1, 48, 1); }

/* A row of four blocks of 32 is none of a k-quant's 256. */
static void make_half_super_block(gguf_writer *w) { add_shape(w, Q4_K, 128, 1); }

static void make_super_block_missing(gguf_writer *w) {
  gguf_writer_tensor(w, "x", Q6_K, 2, (const int64_t[]){2, 256}, zeros, 210);
}

static void make_type_9999(gguf_writer *w) { add_shape(w, 9999, 4, 1); }

/* A number that was withdrawn before the format existed: its size is not known either. */
static void make_type_4(gguf_writer *w) { add_shape(w, 4, 32, 1); }

static void make_offset_odd(gguf_writer *w) {
  gguf_writer_info(w, "x", 1, (const uint64_t[]){1}, 1, F32, 8);
  gguf_put(&w->data, zeros, 64);
}

static void make_offset_past_end(gguf_writer *w) {
  gguf_writer_info(w, "x", 1, (const uint64_t[]){1}, 1, F32, 96);
  gguf_put(&w->data, zeros, 64);
}

/* Offset plus size is 0 modulo 2^64. */
static void make_offset_wraps(gguf_writer *w) {
  gguf_writer_info(w, "x", 1, (const uint64_t[]){8}, 1, F32, UINT64_MAX - 31);
  gguf_put(&w->data, zeros, 64);
}

static void make_no_data(gguf_writer *w) { gguf_writer_info(w, "x", 1, (const uint64_t[]){8}, 1, F32, 0); }

/* The size of make_small's file. */
static size_t small_bytes(void) {
  gguf_writer w;
  gguf_writer_init(&w);
  make_small(&w);
  weft__bytes file = gguf_writer_finish(&w);
  size_t n_bytes = file.n;
  weft__bytes_clear(&file);
  return n_bytes;
}

static void make_cut_by_1(gguf_writer *w) {
  make_small(w);
  w->max_bytes = small_bytes() - 1;
}

static void make_cut_by_half(gguf_writer *w) {
  make_small(w);
  w->max_bytes = small_bytes() / 2;
}

/* Inside the last field of the tensor's description. */
static void make_cut_offset(gguf_writer *w) {
  make_small(w);
  w->max_bytes = 24 + w->entries.n + w->infos.n - 1;
}

/* ---- split models: the parts are found by name, so here every part is alone ---- */

static void add_split(gguf_writer *w, uint16_t no, uint16_t count, int32_t n_tensors) {
  gguf_writer_value(w, "split.no", WEFT_GGUF_U16, &no);
  gguf_writer_value(w, "split.count", WEFT_GGUF_U16, &count);
  gguf_writer_value(w, "split.tensors.count", WEFT_GGUF_I32, &n_tensors);
  make_small(w);
}

/* What tools leave in a model that they have joined. */
static void make_joined(gguf_writer *w) { add_split(w, 3, 0, 9); }
static void make_split_of_1(gguf_writer *w) { add_split(w, 0, 1, 1); }
static void make_renamed_part(gguf_writer *w) { add_split(w, 1, 3, 1); }
static void make_part_past_count(gguf_writer *w) { add_split(w, 3, 3, 1); }
static void make_negative_split(gguf_writer *w) { add_split(w, 0, 3, -1); }
static void make_split_count_only(gguf_writer *w) {
  gguf_writer_u32(w, "split.count", 2);
  make_small(w);
}
static void make_split_count_text(gguf_writer *w) {
  gguf_writer_string(w, "split.count", "2");
  make_small(w);
}
static void make_split_too_many(gguf_writer *w) {
  gguf_writer_u32(w, "split.count", 65536);
  make_small(w);
}

const gguf_case gguf_cases[] = {
    {"valid_full", gguf_make_full, WEFT_OK, NULL},
    {"valid_nothing", make_nothing, WEFT_OK, NULL},
    {"valid_version_2", make_version_2, WEFT_OK, NULL},
    {"valid_small", make_small, WEFT_OK, NULL},
    {"valid_alignment_1", make_alignment_1, WEFT_OK, NULL},
    {"valid_alignment_4096", make_alignment_4096, WEFT_OK, NULL},
    {"valid_overlap", make_overlap, WEFT_OK, NULL},
    {"valid_unsupported_types", make_unsupported_types, WEFT_OK, NULL},
    {"valid_all_types", make_all_types, WEFT_OK, NULL},
    {"valid_odd_names", make_odd_names, WEFT_OK, NULL},
    {"valid_joined", make_joined, WEFT_OK, NULL},
    {"valid_split_of_1", make_split_of_1, WEFT_OK, NULL},

    {"split_renamed", make_renamed_part, WEFT_EFORMAT, "does not end in -00002-of-00003.gguf"},
    {"split_past_count", make_part_past_count, WEFT_EFORMAT, "\"split.no\": it is 3, expected 0 to 2"},
    {"split_negative", make_negative_split, WEFT_EFORMAT, "\"split.tensors.count\": it is -1"},
    {"split_count_only", make_split_count_only, WEFT_EFORMAT, "but not split.no"},
    {"split_count_text", make_split_count_text, WEFT_EFORMAT, "\"split.count\": it has type string"},
    {"split_too_many", make_split_too_many, WEFT_EFORMAT, "\"split.count\": it is 65536"},

    {"empty", make_empty, WEFT_EFORMAT, "it is empty"},
    {"short_magic", make_short_magic, WEFT_EFORMAT, "not a GGUF file: it starts with \"GGU\""},
    {"wrong_magic", make_wrong_magic, WEFT_EFORMAT, "not a GGUF file: it starts with \"GGM\\x0a\""},
    {"version_0", make_version_0, WEFT_EUNSUPPORTED, "GGUF version 0, versions 2 and 3"},
    {"version_1", make_version_1, WEFT_EUNSUPPORTED, "GGUF version 1, versions 2 and 3"},
    {"version_4", make_version_4, WEFT_EUNSUPPORTED, "GGUF version 4, versions 2 and 3"},
    {"big_endian", make_big_endian, WEFT_EUNSUPPORTED, "big-endian file of GGUF version 3"},
    {"cut_version", make_cut_version, WEFT_EFORMAT, "version takes 4 bytes from byte 4, but the file ends at byte 6"},
    {"cut_counts", make_cut_counts, WEFT_EFORMAT, "number of keys takes 8 bytes from byte 16"},
    {"many_entries", make_many_entries, WEFT_EFORMAT, "its number of keys is 1152921504606846976, too many"},
    {"many_tensors", make_many_tensors, WEFT_EFORMAT, "its number of tensors is 18446744073709551615, too many"},
    {"one_tensor_more", make_one_tensor_more, WEFT_EFORMAT, "tensor 1 at byte 110: its name has 0 bytes"},

    {"key_length_huge", make_key_length_huge, WEFT_EFORMAT,
     "key 0 at byte 24: its name takes 18446744073709551600 bytes"},
    {"key_empty", make_key_empty, WEFT_EFORMAT, "key 0 at byte 24: its name has 0 bytes, 1 to 65535 are allowed"},
    {"key_twice", make_key_twice, WEFT_EFORMAT, "key \"b\\x0a\\x1b[31m\": it occurs twice, again at byte 64"},
    {"value_type_13", make_value_type_13, WEFT_EFORMAT, "key \"k\": its value type is 13"},
    {"value_type_huge", make_value_type_huge, WEFT_EFORMAT, "key \"k\": its value type is 4294967295"},
    {"bool_2", make_bool_2, WEFT_EFORMAT, "key \"k\": bool 0 is 2"},
    {"bool_array_255", make_bool_array_255, WEFT_EFORMAT, "key \"k\": bool 2 is 255"},
    {"string_huge", make_string_huge, WEFT_EFORMAT, "key \"k\": its string takes 18446744073709551615 bytes"},
    {"array_of_arrays", make_array_of_arrays, WEFT_EFORMAT, "key \"k\": it is an array of arrays"},
    {"element_type_13", make_element_type_13, WEFT_EFORMAT, "key \"k\": its element type is 13"},
    {"array_wraps", make_array_wraps, WEFT_EFORMAT, "key \"k\": its value, 2305843009213693953 of type u64, does not"},
    {"array_too_long", make_array_too_long, WEFT_EFORMAT,
     "key \"k\": its value, 33 of type u16, does not fit into the 64"},
    {"strings_huge", make_strings_huge, WEFT_EFORMAT, "key \"k\": its string takes 8 bytes"},
    {"strings_cut", make_strings_cut, WEFT_EFORMAT, "key \"k\": its string takes 100 bytes"},

    {"alignment_i32", make_alignment_i32, WEFT_EFORMAT, "key \"general.alignment\": it has type i32, expected u32"},
    {"alignment_u64", make_alignment_u64, WEFT_EFORMAT, "key \"general.alignment\": it has type u64, expected u32"},
    {"alignment_string", make_alignment_string, WEFT_EFORMAT, "key \"general.alignment\": it has type string"},
    {"alignment_0", make_alignment_0, WEFT_EFORMAT, "key \"general.alignment\": it is 0, expected a power of two"},
    {"alignment_3", make_alignment_3, WEFT_EFORMAT, "key \"general.alignment\": it is 3, expected a power of two"},
    {"alignment_131072", make_alignment_131072, WEFT_EFORMAT, "key \"general.alignment\": it is 131072"},
    {"alignment_2_31", make_alignment_2_31, WEFT_EFORMAT, "key \"general.alignment\": it is 2147483648"},

    {"tensor_name_empty", make_tensor_name_empty, WEFT_EFORMAT, "tensor 0 at byte 24: its name has 0 bytes"},
    {"tensor_name_huge", make_tensor_name_huge, WEFT_EFORMAT,
     "tensor 0 at byte 24: its name takes 9223372036854775807"},
    {"tensor_twice", make_tensor_twice, WEFT_EFORMAT, "tensor \"x\": it occurs twice, again at byte 143"},
    {"dims_0", make_dims_0, WEFT_EFORMAT, "tensor \"x\": it has 0 dimensions, 1 to 4"},
    {"dims_5", make_dims_5, WEFT_EFORMAT, "tensor \"x\": it has 5 dimensions, 1 to 4"},
    {"dims_9", make_dims_9, WEFT_EFORMAT, "tensor \"x\": it has 9 dimensions, 1 to 4"},
    {"dims_1000000", make_dims_1000000, WEFT_EFORMAT, "tensor \"x\": it has 1000000 dimensions, 1 to 4"},
    {"extent_0", make_extent_0, WEFT_EFORMAT, "tensor \"x\": axis 0 of its shape has 0 elements"},
    {"extent_negative", make_extent_negative, WEFT_EFORMAT,
     "tensor \"x\": axis 1 of its shape has 18446744073709551615"},
    {"shape_wraps", make_shape_wraps, WEFT_EFORMAT, "tensor \"x\": the product of its shape is too large"},
    {"bytes_wrap", make_bytes_wrap, WEFT_EFORMAT, "tensor \"x\": the product of its shape is too large"},
    {"shape_wraps_small", make_shape_wraps_small, WEFT_EFORMAT, "tensor \"x\": the product of its shape is too large"},
    {"half_super_block", make_half_super_block, WEFT_EFORMAT,
     "tensor \"x\": its rows have 128 elements, not a multiple of the 256"},
    {"super_block_missing", make_super_block_missing, WEFT_EFORMAT,
     "tensor \"x\": its 420 bytes at offset 0 do not fit"},
    {"half_block", make_half_block, WEFT_EFORMAT, "tensor \"x\": its rows have 48 elements, not a multiple of the 32"},
    {"type_9999", make_type_9999, WEFT_EUNSUPPORTED, "tensor \"x\": its type number 9999 is unknown"},
    {"type_4", make_type_4, WEFT_EUNSUPPORTED, "tensor \"x\": its type number 4 is unknown"},
    {"offset_odd", make_offset_odd, WEFT_EFORMAT, "tensor \"x\": its offset 8 is not a multiple of the alignment 32"},
    {"offset_past_end", make_offset_past_end, WEFT_EFORMAT,
     "tensor \"x\": its 4 bytes at offset 96 do not fit into the 64"},
    {"offset_wraps", make_offset_wraps, WEFT_EFORMAT,
     "tensor \"x\": its 32 bytes at offset 18446744073709551584 do not"},
    {"no_data", make_no_data, WEFT_EFORMAT, "tensor \"x\": its 32 bytes at offset 0 do not fit into the 0 bytes"},
    {"cut_by_1", make_cut_by_1, WEFT_EFORMAT, "tensor \"x\": its 40 bytes at offset 0 do not fit into the 39 bytes"},
    {"cut_offset", make_cut_offset, WEFT_EFORMAT, "tensor \"x\": its offset takes 8 bytes from byte 102, but"},
    {"cut_by_half", make_cut_by_half, WEFT_EFORMAT, "its number of tensors is 1, too many for the 15"},
};

const size_t gguf_n_cases = WEFT_COUNT(gguf_cases);
