/* cmd_info.c - weft info: what a model file holds.
 *
 * The report is built once as JSON; the text form prints that object, so both always say the same. */
#include "cmd.h"
#include "model.h"
#include "output.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct info_options {
  cli_common common;
  bool tensors;
} info_options;

enum {
  MAX_ELEMENTS = 8,       /* shown of an array */
  MAX_STRING_BYTES = 160, /* shown of a string as text */
};

static const char *const type_names[WEFT_GGUF_TYPE_COUNT] = {
    [WEFT_GGUF_U8] = "u8",         [WEFT_GGUF_I8] = "i8",   [WEFT_GGUF_U16] = "u16", [WEFT_GGUF_I16] = "i16",
    [WEFT_GGUF_U32] = "u32",       [WEFT_GGUF_I32] = "i32", [WEFT_GGUF_F32] = "f32", [WEFT_GGUF_BOOL] = "bool",
    [WEFT_GGUF_U64] = "u64",       [WEFT_GGUF_I64] = "i64", [WEFT_GGUF_F64] = "f64", [WEFT_GGUF_ARRAY] = "array",
    [WEFT_GGUF_STRING] = "string",
};

/* ---- metadata ---- */

/* The shortest decimal that reads back as this float: 1e-05, not 9.99999975e-06. */
static json_t *float_to_json(double value) {
  char text[32];
  if (!isfinite(value)) return json_null();
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtof(text, NULL) == (float)value) break;
  }
  return json_real(strtod(text, NULL));
}

/* Integers up to 2^53 are exact in the double that the reader gives; larger ones are shown as reals. */
static json_t *number_to_json(const weft_gguf_entry *entry, uint64_t index) {
  double value;
  if (weft_gguf_number(entry, index, &value)) return json_null();
  if (entry->element_type == WEFT_GGUF_BOOL) return json_boolean(value != 0);
  if (entry->element_type == WEFT_GGUF_F32) return float_to_json(value);
  if (entry->element_type == WEFT_GGUF_F64 || fabs(value) > 9007199254740992.0) return cli_json_number(value);
  return json_integer((json_int_t)value);
}

/* Appends the first n strings of the array. */
static weft_status add_strings(const weft_gguf *gguf, const weft_gguf_entry *entry, uint64_t n, json_t *list) {
  weft_gguf_string *strings;
  weft_status status = weft_gguf_strings(gguf, entry, &strings);
  if (status) return status;
  for (uint64_t i = 0; i < n; i++) cli_json_add(list, cli_json_text(strings[i].data, strings[i].n_bytes));
  weft_free(strings);
  return WEFT_OK;
}

/* An array's beginning. */
static weft_status array_to_json(const weft_gguf *gguf, const weft_gguf_entry *entry, json_t **value) {
  uint64_t n = entry->n_elements < MAX_ELEMENTS ? entry->n_elements : MAX_ELEMENTS;
  json_t *object = json_object(), *first = json_array();
  weft_status status = WEFT_OK;
  if (entry->element_type == WEFT_GGUF_STRING)
    status = add_strings(gguf, entry, n, first);
  else
    for (uint64_t i = 0; i < n; i++) cli_json_add(first, number_to_json(entry, i));
  cli_json_set(object, "element_type", json_string(type_names[entry->element_type]));
  cli_json_set(object, "n_elements", json_integer((json_int_t)entry->n_elements));
  cli_json_set(object, "first", first);
  *value = object;
  return status;
}

/* A single string stands behind its length, 8 bytes little-endian.  Looking it up by its key would miss keys that hold
 * a NUL byte. */
static json_t *string_to_json(const weft_gguf_entry *entry) {
  const unsigned char *data = entry->data;
  uint64_t n = 0;
  for (int i = 7; i >= 0; i--) n = n << 8 | data[i];
  return cli_json_text((const char *)data + 8, (size_t)n);
}

static weft_status entry_to_json(const weft_gguf *gguf, const weft_gguf_entry *entry, json_t *metadata) {
  json_t *value = NULL;
  weft_status status = WEFT_OK;
  if (entry->type == WEFT_GGUF_ARRAY)
    status = array_to_json(gguf, entry, &value);
  else if (entry->type == WEFT_GGUF_STRING)
    value = string_to_json(entry);
  else
    value = number_to_json(entry, 0);
  cli_json_set_text(metadata, entry->key.data, entry->key.n_bytes, value);
  return status;
}

/* In the order of the file. */
static weft_status metadata_to_json(const weft_gguf *gguf, json_t *metadata) {
  weft_status status = WEFT_OK;
  for (size_t i = 0; i < weft_gguf_n_entries(gguf) && !status; i++)
    status = entry_to_json(gguf, weft_gguf_entry_at(gguf, i), metadata);
  return status;
}

/* ---- tensors ---- */

/* The reader has checked that the product fits. */
static int64_t n_elements(const weft_gguf_tensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor->shape[i];
  return n;
}

/* object[key] += amount, from 0 if there is none. */
static void add_to(json_t *object, const char *key, int64_t amount) {
  cli_json_set(object, key, json_integer(json_integer_value(json_object_get(object, key)) + (json_int_t)amount));
}

/* An object a type, in the order of first appearance. */
static json_t *types_to_json(const weft_gguf *gguf) {
  json_t *types = json_object();
  for (size_t i = 0; i < weft_gguf_n_tensors(gguf); i++) {
    const weft_gguf_tensor *tensor = weft_gguf_tensor_at(gguf, i);
    json_t *row = json_object_get(types, tensor->type_name);
    if (!row) {
      row = json_object();
      cli_json_set(types, tensor->type_name, row);
    }
    add_to(row, "n_tensors", 1);
    add_to(row, "n_params", n_elements(tensor));
    add_to(row, "n_bytes", (int64_t)tensor->n_bytes);
  }
  return types;
}

/* In the order of the file; shapes are outermost axis first, as everywhere in weft. */
static json_t *tensors_to_json(const weft_gguf *gguf) {
  json_t *list = json_array();
  for (size_t i = 0; i < weft_gguf_n_tensors(gguf); i++) {
    const weft_gguf_tensor *tensor = weft_gguf_tensor_at(gguf, i);
    json_t *row = json_object(), *shape = json_array();
    for (int axis = 0; axis < tensor->rank; axis++) cli_json_add(shape, json_integer(tensor->shape[axis]));
    cli_json_set(row, "name", cli_json_text(tensor->name.data, tensor->name.n_bytes));
    cli_json_set(row, "type", json_string(tensor->type_name));
    cli_json_set(row, "shape", shape);
    cli_json_set(row, "n_bytes", json_integer((json_int_t)tensor->n_bytes));
    cli_json_add(list, row);
  }
  return list;
}

/* Fills the root with all that is printed in either form. */
static weft_status report_to_json(const weft_gguf *gguf, bool with_tensors, json_t *root) {
  json_t *metadata = json_object();
  int64_t n_params = 0;
  uint64_t n_tensor_bytes = 0;
  for (size_t i = 0; i < weft_gguf_n_tensors(gguf); i++) {
    n_params += n_elements(weft_gguf_tensor_at(gguf, i));
    n_tensor_bytes += weft_gguf_tensor_at(gguf, i)->n_bytes;
  }
  cli_json_set(root, "path", cli_json_text(weft_gguf_path(gguf), strlen(weft_gguf_path(gguf))));
  cli_json_set(root, "format", json_string("gguf"));
  cli_json_set(root, "format_version", json_integer(weft_gguf_version(gguf)));
  cli_json_set(root, "file_bytes", json_integer((json_int_t)weft_gguf_file_bytes(gguf)));
  cli_json_set(root, "n_parts", json_integer((json_int_t)weft_gguf_n_parts(gguf)));
  cli_json_set(root, "n_params", json_integer(n_params));
  cli_json_set(root, "n_tensors", json_integer((json_int_t)weft_gguf_n_tensors(gguf)));
  cli_json_set(root, "tensor_bytes", json_integer((json_int_t)n_tensor_bytes));
  cli_json_set(root, "types", types_to_json(gguf));
  weft_status status = metadata_to_json(gguf, metadata);
  cli_json_set(root, "metadata", metadata);
  if (with_tensors) cli_json_set(root, "tensors", tensors_to_json(gguf));
  return status;
}

/* ---- text ---- */

/* One value on its line: strings are escaped, and long ones (a chat template) cut. */
static void print_scalar(const json_t *value) {
  if (json_is_string(value))
    cli_out_quoted(json_string_value(value), json_string_length(value), MAX_STRING_BYTES);
  else if (json_is_integer(value))
    cli_outf("%lld", (long long)json_integer_value(value));
  else if (json_is_real(value))
    cli_outf("%.9g", json_real_value(value));
  else
    cli_outf("%s", json_is_true(value) ? "true" : json_is_false(value) ? "false" : "not a number");
}

/* An array shows its length, its type and its first elements. */
static void print_value(const json_t *value) {
  const json_t *first = json_object_get(value, "first");
  if (!first) {
    print_scalar(value);
    return;
  }
  json_int_t n = json_integer_value(json_object_get(value, "n_elements"));
  cli_outf("%lld x %s:", (long long)n, json_string_value(json_object_get(value, "element_type")));
  for (size_t i = 0; i < json_array_size(first); i++) {
    cli_out(" ", 1);
    print_scalar(json_array_get(first, i));
  }
  if (n > (json_int_t)json_array_size(first)) cli_outf(" ...");
}

static void print_tensor(const json_t *row) {
  const json_t *shape = json_object_get(row, "shape"), *name = json_object_get(row, "name");
  cli_outf("  ");
  cli_out_quoted(json_string_value(name), json_string_length(name), 0);
  cli_outf(" %s [", json_string_value(json_object_get(row, "type")));
  for (size_t i = 0; i < json_array_size(shape); i++)
    cli_outf("%s%lld", i ? "," : "", (long long)json_integer_value(json_array_get(shape, i)));
  cli_outf("] %lld bytes\n", (long long)json_integer_value(json_object_get(row, "n_bytes")));
}

/* Decimal megabytes, and millions of anything else. */
static double megabytes(const json_t *object, const char *key) {
  return (double)json_integer_value(json_object_get(object, key)) / 1e6;
}

/* Facts first, then the metadata, which may be long. */
static void print_text(json_t *root) {
  const char *key;
  json_t *value;
  const json_t *path = json_object_get(root, "path"), *tensors = json_object_get(root, "tensors");
  cli_outf("file        ");
  cli_out_quoted(json_string_value(path), json_string_length(path), 0);
  cli_outf("\nformat      GGUF version %lld\n", (long long)json_integer_value(json_object_get(root, "format_version")));
  cli_outf("size        %.1f MB, of which tensors %.1f MB\n", megabytes(root, "file_bytes"),
           megabytes(root, "tensor_bytes"));
  json_int_t n_parts = json_integer_value(json_object_get(root, "n_parts"));
  if (n_parts > 1) cli_outf("parts       %lld\n", (long long)n_parts);
  cli_outf("parameters  %.1f M\n", megabytes(root, "n_params"));
  cli_outf("tensors     %lld\n", (long long)json_integer_value(json_object_get(root, "n_tensors")));
  json_object_foreach(json_object_get(root, "types"), key, value)
      cli_outf("  %-8s  %5lld tensors  %9.1f M parameters  %9.1f MB\n", key,
               (long long)json_integer_value(json_object_get(value, "n_tensors")), megabytes(value, "n_params"),
               megabytes(value, "n_bytes"));
  cli_outf("metadata\n");
  json_object_foreach(json_object_get(root, "metadata"), key, value) {
    cli_outf("  ");
    cli_out_quoted(key, strlen(key), 0);
    cli_outf(" = ");
    print_value(value);
    cli_out("\n", 1);
  }
  if (tensors) cli_outf("tensors, outermost axis first\n");
  for (size_t i = 0; i < json_array_size(tensors); i++) print_tensor(json_array_get(tensors, i));
}

/* ---- the command ---- */

static cli_exit print_report(const info_options *o, const weft_gguf *gguf) {
  json_t *root = json_object();
  if (report_to_json(gguf, o->tensors, root)) {
    json_decref(root);
    return cli_fail();
  }
  if (o->common.json) return cli_json_print(root);
  print_text(root);
  json_decref(root);
  return CLI_OK;
}

/* No device is opened and no weight read: headers alone answer, whatever the size of the file. */
static cli_exit run_info(void *options, const cli_args *args) {
  weft_gguf *gguf = NULL;
  char *path = NULL;
  cli_exit code = cli_model_path(args->values[0], &path);
  if (!code) code = weft_gguf_open(&gguf, path) ? cli_fail() : print_report(options, gguf);
  weft_gguf_close(gguf);
  weft_free(path);
  return code;
}

static const cli_option info_table[] = {
    CLI_FLAG(info_options, tensors, "tensors", 0, "list every tensor"),
    CLI_END,
};

static const info_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_info = {
    .name = "info",
    .arguments = "FILE",
    .summary = "show what a model file holds",
    .details =
        "FILE is a GGUF file or a name in the model folder. Of long arrays the beginning is shown. With --json the "
        "object has path, format, format_version, file_bytes, n_parts, n_params, n_tensors, tensor_bytes, types (an "
        "object "
        "of n_tensors, n_params and n_bytes for each element type), metadata (arrays as element_type, n_elements "
        "and first), and with --tensors tensors (name, type, shape, n_bytes).",
    .examples = "weft info model.gguf\nweft info model.gguf --tensors\nweft info model.gguf --json",
    .min_args = 1,
    .max_args = 1,
    .options = info_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_info,
};
