/* headers.h - what weft declares of a WebGPU library, beside what the library's own headers declare. */
#ifndef WEFT_TESTS_HEADERS_H
#define WEFT_TESTS_HEADERS_H

#include <stddef.h>

typedef struct header_row {
  const char *what; /* "WGPULimits.maxBufferSize" */
  unsigned long long ours, theirs;
} header_row;

typedef struct header_table {
  const char *generation;
  const header_row *rows;
  size_t n; /* 0: the headers were not there when the tests were built */
} header_table;

extern const header_table headers_v29, headers_v22;

/* What the rows of a generation's .def file become. */
#define HEADER_VALUE(constant, value) {#constant, value, (unsigned long long)(constant)},
#define HEADER_SIZE(type, n_bytes) {"sizeof " #type, n_bytes, sizeof(type)},
#define HEADER_OFFSET(type, field, n_bytes) {#type "." #field, n_bytes, offsetof(type, field)},
/* A function is there if this compiles. */
#define HEADER_FUNCTION(result, name, parameters) {"wgpu" #name, sizeof(void (*)(void)), sizeof(&wgpu##name)},

#endif
