/* test_abi.c - the WebGPU library: its declarations, where it is found, what its verbs do, what is wrong and how it is said.
 *
 * Started as `test_abi --probe` it opens a library and prints which, or the error: the tests start copies of it in folders
 * made for them.  Started as `test_abi --fill` it takes memory until there is no more. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "support/gpu_env.h"
#include "support/headers.h"
#include "support/run.h"

#include "gpu/loader.h"
#include "weft/device.h"

#include <dirent.h>
#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- declarations ---- */

static void test_headers_agree(void **state) {
  const header_table *table = *state;
  if (table->n == 0)
    fail_msg("the headers of %s were not there when this was built: run `make setup`", table->generation);
  for (size_t i = 0; i < table->n; i++)
    if (table->rows[i].ours != table->rows[i].theirs)
      fail_msg("%s: %s is %llu here and %llu in the headers", table->generation, table->rows[i].what,
               table->rows[i].ours, table->rows[i].theirs);
}

/* ---- a library, a device and what runs on it ---- */

/* What the test that runs has open. */
static struct {
  const char *generation; /* that the library must be of */
  weft__gpu_library *library;
  const weft__abi *abi;
  weft__gpu_device *device;
  weft__adapter_info adapter; /* the first, which the device is opened on */
  char tree[32];              /* a folder: bin/program, and libraries where the tests put them */
} suite;

static int open_library(void **state) {
  suite.generation = *state;
  gpu_env_use(suite.generation);
  if (weft__gpu_library_open(&suite.library)) fail_msg("%s", weft_last_error());
  suite.abi = suite.library->abi;
  return 0;
}

static int close_library(void **state) {
  (void)state;
  weft__gpu_library_close(suite.library);
  suite.library = NULL;
  return 0;
}

static void need_adapter(void) {
  if (suite.abi->n_adapters(suite.library->instance) == 0)
    fail_msg("no GPU and no software driver for Vulkan: run `make setup`");
  assert_int_equal(suite.abi->adapter_info(suite.library->instance, 0, &suite.adapter), WEFT_OK);
}

static int open_device(void **state) {
  open_library(state);
  need_adapter();
  if (suite.abi->device_open(&suite.device, suite.library->instance, 0, suite.adapter.features, NULL))
    fail_msg("%s", weft_last_error());
  return 0;
}

static int close_device(void **state) {
  suite.abi->device_close(suite.device);
  suite.device = NULL;
  return close_library(state);
}

static void assert_no_error(void) {
  if (suite.abi->take_error(suite.device)) fail_msg("%s", weft_last_error());
}

/* An error with this status waits, and its one line says `what`. */
static void assert_error(weft_status status, const char *what) {
  assert_int_equal(suite.abi->take_error(suite.device), status);
  if (!strstr(weft_last_error(), what)) fail_msg("\"%s\" does not say \"%s\"", weft_last_error(), what);
  if (strchr(weft_last_error(), '?')) fail_msg("\"%s\" held a control character", weft_last_error());
  assert_int_equal(suite.abi->take_error(suite.device), WEFT_OK);
}

/* y[i] = factor * x[i] for i < n */
typedef struct scale_params {
  uint32_t n;
  float factor;
  uint32_t unused[2];
} scale_params;

static const char scale_wgsl[] = "struct Params { n: u32, factor: f32, unused0: u32, unused1: u32 }\n"
                                 "@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
                                 "@group(0) @binding(1) var<storage, read_write> y: array<f32>;\n"
                                 "@group(0) @binding(2) var<uniform> p: Params;\n"
                                 "@compute @workgroup_size(64)\n"
                                 "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
                                 "  if (id.x < p.n) { y[id.x] = p.factor * x[id.x]; }\n"
                                 "}\n";

enum { N = 1000, N_BYTES = N * sizeof(float), N_GROUPS = (N + 63) / 64, SLOT_BYTES = 256 };

/* Two vectors, the shader that scales one into the other, and two blocks of parameters: times 2, times 3. */
typedef struct scaler {
  weft__gpu_buffer *x, *y, *uniforms, *readback;
  weft__gpu_pipeline *pipeline;
  weft__gpu_bindings *forth, *back; /* y = factor * x, x = factor * y */
} scaler;

static weft__pipeline_desc scale_desc(bool is_trusted) {
  return (weft__pipeline_desc){.label = "scale",
                               .wgsl = scale_wgsl,
                               .n_storage = 2,
                               .read_only = 1,
                               .uniform_bytes = sizeof(scale_params),
                               .is_trusted = is_trusted};
}

static weft__gpu_bindings *bind(const scaler *s, weft__gpu_buffer *from, weft__gpu_buffer *to) {
  weft__gpu_range ranges[] = {{from, 0, N_BYTES}, {to, 0, N_BYTES}};
  return suite.abi->bindings_create(suite.device, s->pipeline, ranges, s->uniforms);
}

static void scaler_open(scaler *s, bool is_trusted) {
  weft__pipeline_desc desc = scale_desc(is_trusted);
  *s = (scaler){
      .x = suite.abi->buffer_create(suite.device, N_BYTES, WEFT__BUFFER_STORAGE),
      .y = suite.abi->buffer_create(suite.device, N_BYTES, WEFT__BUFFER_STORAGE),
      .uniforms = suite.abi->buffer_create(suite.device, (uint64_t)2 * SLOT_BYTES, WEFT__BUFFER_UNIFORM),
      .readback = suite.abi->buffer_create(suite.device, N_BYTES, WEFT__BUFFER_READBACK),
      .pipeline = suite.abi->pipeline_create(suite.device, &desc),
  };
  assert_no_error();
  s->forth = bind(s, s->x, s->y);
  s->back = bind(s, s->y, s->x);
  assert_no_error();
  scale_params twice = {.n = N, .factor = 2}, thrice = {.n = N, .factor = 3};
  suite.abi->buffer_write(suite.device, s->uniforms, 0, &twice, sizeof twice);
  suite.abi->buffer_write(suite.device, s->uniforms, SLOT_BYTES, &thrice, sizeof thrice);
}

static void scaler_close(scaler *s) {
  suite.abi->bindings_destroy(s->forth);
  suite.abi->bindings_destroy(s->back);
  suite.abi->pipeline_destroy(s->pipeline);
  suite.abi->buffer_destroy(s->x);
  suite.abi->buffer_destroy(s->y);
  suite.abi->buffer_destroy(s->uniforms);
  suite.abi->buffer_destroy(s->readback);
}

static void write_ramp(weft__gpu_buffer *buffer) {
  float ramp[N];
  for (int i = 0; i < N; i++) ramp[i] = (float)i;
  suite.abi->buffer_write(suite.device, buffer, 0, ramp, N_BYTES);
}

static void run(const scaler *s, weft__gpu_bindings *bindings, uint32_t slot) {
  suite.abi->dispatch(suite.device, s->pipeline, bindings, slot * SLOT_BYTES, (uint32_t[3]){N_GROUPS, 1, 1});
}

/* Submits, and checks that the buffer holds factor * i. */
static void assert_ramp(const scaler *s, weft__gpu_buffer *buffer, float factor) {
  suite.abi->copy(suite.device, s->readback, 0, buffer, 0, N_BYTES);
  suite.abi->submit(suite.device);
  suite.abi->read_begin(suite.device, s->readback, N_BYTES);
  while (suite.abi->read_state(s->readback) == 0) suite.abi->poll(suite.device, false);
  assert_int_equal(suite.abi->read_state(s->readback), 1);
  const float *data = suite.abi->read_data(s->readback, N_BYTES);
  for (int i = 0; i < N; i++)
    if (data[i] != factor * (float)i) fail_msg("element %d is %g, not %g", i, data[i], factor * (float)i);
  suite.abi->read_end(s->readback);
  assert_no_error();
}

/* ---- adapters ---- */

static void test_adapter_is_described(void **state) {
  (void)state;
  need_adapter();
  assert_string_equal(suite.abi->generation, suite.generation);
  assert_string_equal(suite.library->version, suite.abi->accepted);
  assert_true(strlen(suite.adapter.name) > 0);
  assert_true(strlen(suite.adapter.driver) > 0);
  assert_true(suite.adapter.kind >= WEFT__ADAPTER_DISCRETE && suite.adapter.kind <= WEFT__ADAPTER_UNKNOWN);
  assert_true(strcmp(suite.adapter.backend, "Vulkan") == 0 || getenv("WEFT_TEST_GPU"));
  /* What WebGPU promises of any adapter. */
  assert_true(suite.adapter.limits.max_binding_bytes >= (uint64_t)128 << 20);
  assert_true(suite.adapter.limits.max_buffer_bytes >= (uint64_t)256 << 20);
  assert_true(suite.adapter.limits.max_storage_buffers >= 8);
  assert_true(suite.adapter.limits.max_groups_per_axis >= 65535);
  assert_true(suite.adapter.limits.max_invocations >= 256);
  assert_true(suite.adapter.limits.max_workgroup_bytes >= 16384);
  for (int i = 0; i < 3; i++) assert_true(suite.adapter.limits.max_workgroup_size[i] >= 64);
  assert_in_range(suite.adapter.limits.storage_alignment, 1, 256);
  assert_in_range(suite.adapter.limits.uniform_alignment, 1, 256);
}

static void test_software_drivers_come_last(void **state) {
  (void)state;
  bool is_software = false;
  for (int i = 0; i < suite.abi->n_adapters(suite.library->instance); i++) {
    assert_int_equal(suite.abi->adapter_info(suite.library->instance, i, &suite.adapter), WEFT_OK);
    assert_true(!is_software || suite.adapter.kind == WEFT__ADAPTER_CPU);
    is_software = suite.adapter.kind == WEFT__ADAPTER_CPU;
  }
}

/* ---- verbs ---- */

/* Dispatches that depend on each other, with different parameters, and a copy between them, in one submission. */
static void test_dispatch_and_copy(void **state) {
  (void)state;
  for (int is_trusted = 0; is_trusted < 2; is_trusted++) {
    scaler s;
    scaler_open(&s, is_trusted);
    write_ramp(s.x);
    run(&s, s.forth, 0);                                    /* y = 2x */
    run(&s, s.back, 1);                                     /* x = 3y = 6x */
    suite.abi->copy(suite.device, s.y, 0, s.x, 0, N_BYTES); /* y = x */
    run(&s, s.back, 0);                                     /* x = 2y = 12x */
    assert_ramp(&s, s.x, 12);
    assert_ramp(&s, s.y, 6);
    scaler_close(&s);
  }
}

static void test_upload_buffer(void **state) {
  (void)state;
  scaler s;
  scaler_open(&s, true);
  weft__gpu_buffer *upload = suite.abi->buffer_create(suite.device, N_BYTES, WEFT__BUFFER_UPLOAD);
  float *data = suite.abi->buffer_mapped(upload, N_BYTES);
  for (int i = 0; i < N; i++) data[i] = 5 * (float)i;
  suite.abi->buffer_unmap(upload);
  suite.abi->copy(suite.device, s.x, 0, upload, 0, N_BYTES);
  assert_ramp(&s, s.x, 5);
  /* Parts of buffers: the middle of one to the start of the other. */
  suite.abi->copy(suite.device, s.y, 0, upload, N_BYTES / 2, N_BYTES / 2);
  suite.abi->copy(suite.device, s.readback, 0, s.y, 0, 4);
  suite.abi->submit(suite.device);
  suite.abi->read_begin(suite.device, s.readback, 4);
  while (suite.abi->read_state(s.readback) == 0) suite.abi->poll(suite.device, true);
  const int half = N / 2;
  assert_true(*(const float *)suite.abi->read_data(s.readback, 4) == 5 * (float)half);
  suite.abi->read_end(s.readback);
  /* Mapped once more, when the device is done with it. */
  suite.abi->read_begin(suite.device, upload, N_BYTES);
  while (suite.abi->read_state(upload) == 0) suite.abi->poll(suite.device, false);
  data = suite.abi->buffer_mapped(upload, N_BYTES);
  for (int i = 0; i < N; i++) data[i] = 7 * (float)i;
  suite.abi->buffer_unmap(upload);
  suite.abi->copy(suite.device, s.x, 0, upload, 0, N_BYTES);
  assert_ramp(&s, s.x, 7);
  suite.abi->buffer_destroy(upload);
  scaler_close(&s);
  assert_no_error();
}

static void test_nothing_recorded(void **state) {
  (void)state;
  suite.abi->submit(suite.device);
  suite.abi->poll(suite.device, true);
  suite.abi->buffer_destroy(NULL);
  suite.abi->pipeline_destroy(NULL);
  suite.abi->bindings_destroy(NULL);
  assert_no_error();
}

/* What is freed while the device may still use it, and a device closed in the middle of a recording. */
static void test_destroyed_in_use(void **state) {
  (void)state;
  scaler s;
  scaler_open(&s, true);
  write_ramp(s.x);
  run(&s, s.forth, 0);
  suite.abi->copy(suite.device, s.readback, 0, s.y, 0, N_BYTES);
  suite.abi->submit(suite.device);
  suite.abi->read_begin(suite.device, s.readback, N_BYTES);
  scaler_close(&s);
  suite.abi->poll(suite.device, true);
  assert_no_error();
  scaler_open(&s, true);
  run(&s, s.forth, 0);
  scaler_close(&s);
}

static void test_time_stamps(void **state) {
  (void)state;
  if (!(suite.adapter.features & WEFT__GPU_TIMESTAMPS)) {
    /* Asked for all the same, it is an error that is said. */
    assert_int_not_equal(suite.abi->stamp_begin(suite.device, 1), WEFT_OK);
    assert_string_not_equal(weft_last_error(), "");
    return;
  }
  enum { N_STAMPED = 3 };
  uint64_t ns[2 * N_STAMPED];
  int n = 0;
  scaler s;
  scaler_open(&s, true);
  write_ramp(s.x);
  assert_int_equal(suite.abi->stamp_begin(suite.device, N_STAMPED), WEFT_OK);
  for (int i = 0; i < 2; i++) run(&s, s.forth, 0);
  suite.abi->copy(suite.device, s.readback, 0, s.y, 0, N_BYTES);
  for (int i = 0; i < 2; i++) run(&s, s.forth, 1); /* the second is one too many to be stamped */
  assert_int_equal(suite.abi->stamp_read(suite.device, ns, &n), WEFT_OK);
  assert_int_equal(n, N_STAMPED);
  assert_int_equal(ns[0], 0);
  for (int i = 1; i < 2 * N_STAMPED; i++) assert_true(ns[i] >= ns[i - 1]);
  assert_true(ns[2 * N_STAMPED - 1] > 0 && ns[2 * N_STAMPED - 1] < UINT64_C(60000000000));
  assert_ramp(&s, s.y, 3);
  /* Nothing stamped: nothing to read. */
  assert_int_equal(suite.abi->stamp_begin(suite.device, 1), WEFT_OK);
  assert_int_equal(suite.abi->stamp_read(suite.device, ns, &n), WEFT_OK);
  assert_int_equal(n, 0);
  scaler_close(&s);
}

/* ---- what goes wrong ---- */

/* A shader with these lines is refused, and the message says `what`. */
static void assert_refused(const char *wgsl, const char *what) {
  weft__pipeline_desc desc = scale_desc(true);
  desc.wgsl = wgsl;
  assert_null(suite.abi->pipeline_create(suite.device, &desc));
  assert_error(WEFT_EDEVICE, what);
}

static void test_shader_errors(void **state) {
  (void)state;
  assert_refused("@compute @workgroup_size(64)\nfn main() { let a = strange + 1; }", "strange");
  assert_refused("@compute @workgroup_size(64)\nfn main() { let a = strange + 1; }", "wgsl:2:21");
  assert_refused("@compute @workgroup_size(64)\nfn main( { }", "expected identifier");
  assert_refused("fn f() -> f32 { }\n@compute @workgroup_size(64)\nfn main() { let a = f(); }", "return");
  assert_refused("@compute @workgroup_size(64)\nfn other() { }", "main");
  assert_refused("@compute @workgroup_size(65535)\nfn main() { }", "orkgroup size");
  assert_refused("@group(0) @binding(7) var<storage, read> x: array<f32>;\n"
                 "@compute @workgroup_size(64)\nfn main() { let a = x[0]; }",
                 "binding: 7");
  assert_refused("", "main");
  /* The label tells which of our shaders it was, and the device is as good as before. */
  assert_refused("@compute @workgroup_size(64)\nfn main( { }", "scale");
  scaler s;
  scaler_open(&s, true);
  write_ramp(s.x);
  run(&s, s.forth, 0);
  assert_ramp(&s, s.y, 2);
  scaler_close(&s);
}

static void test_too_many_bindings(void **state) {
  (void)state;
  weft__pipeline_desc desc = scale_desc(true);
  desc.n_storage = (int)suite.adapter.limits.max_storage_buffers + 1;
  if (desc.n_storage > 31) return; /* the device has room for more than weft ever binds */
  assert_null(suite.abi->pipeline_create(suite.device, &desc));
  assert_error(WEFT_EDEVICE, "storage");
}

static void test_absurd_buffer(void **state) {
  (void)state;
  assert_null(suite.abi->buffer_create(suite.device, (uint64_t)1 << 60, WEFT__BUFFER_STORAGE));
  assert_error(WEFT_ENOMEM, "1152921504606846976 bytes");
  assert_null(suite.abi->buffer_create(suite.device, (uint64_t)1 << 60, WEFT__BUFFER_UPLOAD));
  assert_error(WEFT_ENOMEM, "bytes");
}

static void test_bad_bindings(void **state) {
  (void)state;
  scaler s;
  scaler_open(&s, true);
  weft__gpu_range too_long[] = {{s.x, 0, N_BYTES}, {s.y, 0, 2 * N_BYTES}};
  assert_null(suite.abi->bindings_create(suite.device, s.pipeline, too_long, s.uniforms));
  assert_error(WEFT_EDEVICE, "8000");
  weft__gpu_range misaligned[] = {{s.x, 0, N_BYTES}, {s.y, 2, 4}};
  assert_null(suite.abi->bindings_create(suite.device, s.pipeline, misaligned, s.uniforms));
  assert_error(WEFT_EDEVICE, "alignment");
  scaler_close(&s);
}

/* A device that is opened with less than the adapter has refuses more than that. */
static void test_lower_limits(void **state) {
  open_library(state);
  need_adapter();
  weft__gpu_limits limits = suite.adapter.limits;
  limits.max_invocations = 128;
  limits.max_storage_buffers = 4;
  if (suite.abi->device_open(&suite.device, suite.library->instance, 0, 0, &limits)) fail_msg("%s", weft_last_error());
  assert_refused("@compute @workgroup_size(129)\nfn main() { }", "orkgroup size");
  weft__pipeline_desc desc = scale_desc(true);
  desc.n_storage = 5;
  assert_null(suite.abi->pipeline_create(suite.device, &desc));
  assert_error(WEFT_EDEVICE, "storage");
  close_device(state);
}

/* Commands that are wrong run not at all, and the next ones do. */
static void test_bad_commands(void **state) {
  (void)state;
  scaler s;
  scaler_open(&s, true);
  write_ramp(s.x);
  suite.abi->dispatch(suite.device, s.pipeline, s.forth, 0,
                      (uint32_t[3]){suite.adapter.limits.max_groups_per_axis + 1, 1, 1});
  suite.abi->submit(suite.device);
  assert_error(WEFT_EDEVICE, "dispatch");
  suite.abi->dispatch(suite.device, s.pipeline, s.forth, 2, (uint32_t[3]){1, 1, 1});
  suite.abi->submit(suite.device);
  assert_error(WEFT_EDEVICE, "align");
  suite.abi->copy(suite.device, s.y, 0, s.x, 0, 2 * N_BYTES);
  suite.abi->submit(suite.device);
  assert_error(WEFT_EDEVICE, "opy");
  run(&s, s.forth, 1);
  assert_ramp(&s, s.y, 3);
  scaler_close(&s);
}

/* Only the first of several errors is kept: the others may follow from it. */
static void test_first_error_is_kept(void **state) {
  (void)state;
  weft__pipeline_desc desc = scale_desc(true);
  desc.wgsl = "@compute @workgroup_size(64)\nfn main() { let a = first + 1; }";
  assert_null(suite.abi->pipeline_create(suite.device, &desc));
  desc.wgsl = "@compute @workgroup_size(64)\nfn main() { let a = second + 1; }";
  assert_null(suite.abi->pipeline_create(suite.device, &desc));
  assert_error(WEFT_EDEVICE, "first");
}

static void test_out_of_host_memory(void **state) {
  (void)state;
  weft__pipeline_desc desc = scale_desc(true);
  weft__alloc_fail_at(1);
  assert_null(suite.abi->buffer_create(suite.device, 64, WEFT__BUFFER_STORAGE));
  assert_error(WEFT_ENOMEM, "memory");
  weft__alloc_fail_at(1);
  assert_null(suite.abi->pipeline_create(suite.device, &desc));
  assert_error(WEFT_ENOMEM, "memory");
  scaler s;
  scaler_open(&s, true);
  weft__alloc_fail_at(1);
  assert_null(bind(&s, s.x, s.y));
  assert_error(WEFT_ENOMEM, "memory");
  scaler_close(&s);
}

/* ---- memory runs out ---- */

enum { FILL_BYTES = 1 << 30, MAX_FILLED = 4096 };

/* The software driver takes the machine's memory: leaves this process 4 GiB more than it has. */
static void limit_memory(void) {
  long pages = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  if (!statm || fscanf(statm, "%ld", &pages) != 1) exit(1);
  fclose(statm);
  rlim_t n_bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)4 << 30);
  if (setrlimit(RLIMIT_AS, &(struct rlimit){n_bytes, n_bytes}) != 0) exit(1);
}

/* `test_abi --fill`: "REFUSED TEXT" for the buffer that finds no room, then "again" if one fits once the others are gone. */
static int fill_memory(void) {
  static weft__gpu_buffer *buffers[MAX_FILLED];
  int n = 0;
  if (weft__gpu_library_open(&suite.library)) return 1;
  suite.abi = suite.library->abi;
  if (suite.abi->adapter_info(suite.library->instance, 0, &suite.adapter)) return 1;
  if (suite.abi->device_open(&suite.device, suite.library->instance, 0, 0, NULL)) return 1;
  if (suite.adapter.kind == WEFT__ADAPTER_CPU) limit_memory();
  do buffers[n] = suite.abi->buffer_create(suite.device, FILL_BYTES, WEFT__BUFFER_STORAGE);
  while (buffers[n] && ++n < MAX_FILLED);
  printf("%d buffers, then %s %s\n", n, weft_status_name(suite.abi->take_error(suite.device)), weft_last_error());
  while (n > 0) suite.abi->buffer_destroy(buffers[--n]);
  suite.abi->poll(suite.device, true);
  weft__gpu_buffer *buffer = suite.abi->buffer_create(suite.device, FILL_BYTES, WEFT__BUFFER_STORAGE);
  printf("%s\n", buffer && !suite.abi->take_error(suite.device) && !suite.abi->is_lost(suite.device)
                     ? "again"
                     : weft_last_error());
  suite.abi->buffer_destroy(buffer);
  suite.abi->device_close(suite.device);
  weft__gpu_library_close(suite.library);
  fflush(stdout);
  _exit(0); /* the older library loses the handle of the refused buffer, and the sanitizer would count it */
}

static void test_memory_runs_out(void **state) {
  gpu_env_use(*state);
  run_result result = run_program((const char *const[]){"/proc/self/exe", "--fill", NULL}, NULL);
  if (result.status != 0) fail_msg("status %d, signal %d: %s", result.status, result.signal, result.err);
  if (!strstr(result.out, "then WEFT_ENOMEM gpu: ")) fail_msg("%s", result.out);
  if (!strstr(result.out, "\nagain\n")) fail_msg("%s", result.out);
  run_clear(&result);
}

/* ---- opening and closing ---- */

static int count_entries(const char *folder) {
  DIR *dir = opendir(folder);
  int n = 0;
  assert_non_null(dir);
  while (readdir(dir)) n++;
  closedir(dir);
  return n;
}

/* Memory is for the sanitizer to count; here it is descriptors and threads. */
static void test_open_and_close(void **state) {
  int n_files = 0, n_threads = 0;
  for (int i = 0; i < 20; i++) {
    open_device(state);
    scaler s;
    scaler_open(&s, true);
    write_ramp(s.x);
    run(&s, s.forth, 0);
    assert_ramp(&s, s.y, 2);
    scaler_close(&s);
    close_device(state);
    if (i == 1) n_files = count_entries("/proc/self/fd"), n_threads = count_entries("/proc/self/task");
  }
  assert_int_equal(count_entries("/proc/self/fd"), n_files);
  assert_int_equal(count_entries("/proc/self/task"), n_threads);
}

static void test_open_without_memory(void **state) {
  for (long n = 1; n < 100; n++) {
    gpu_env_use(*state);
    weft__alloc_fail_at(n);
    weft_status status = weft__gpu_library_open(&suite.library);
    if (!status) status = suite.library->abi->device_open(&suite.device, suite.library->instance, 0, 0, NULL);
    bool has_failed = status != WEFT_OK;
    weft__alloc_fail_at(0);
    if (has_failed) assert_string_not_equal(weft_last_error(), "");
    if (suite.device) suite.library->abi->device_close(suite.device);
    weft__gpu_library_close(suite.library);
    suite.device = NULL, suite.library = NULL;
    if (!has_failed) return;
  }
  fail_msg("opening still fails when nothing does");
}

#ifdef WEFT_WGPU_V29
/* A function of the library that weft does not use. */
static void (*foreign_function(const char *name))(void *) {
  void *file = dlopen(suite.library->path, RTLD_NOW);
  void (*function)(void *) = (void (*)(void *))dlsym(file, name);
  assert_non_null(function);
  dlclose(file); /* the loader keeps it loaded */
  return function;
}

/* A device that is gone: nothing ends the process, everything says so.  The library's own function that destroys a device is
 * as near to a loss as a test can come; the library's handle is the second word of ours. */
static void test_lost_device(void **state) {
  (void)state;
  scaler s;
  scaler_open(&s, true);
  void *handle = ((void **)suite.device)[1];
  foreign_function("wgpuDeviceDestroy")(handle);
  assert_false(suite.abi->is_lost(suite.device));
  assert_null(suite.abi->buffer_create(suite.device, 64, WEFT__BUFFER_STORAGE));
  assert_true(suite.abi->is_lost(suite.device));
  assert_int_equal(suite.abi->take_error(suite.device), WEFT_EDEVICE);
  assert_non_null(strstr(weft_last_error(), "lost"));
  run(&s, s.forth, 0);
  suite.abi->submit(suite.device);
  suite.abi->poll(suite.device, true);
  suite.abi->read_begin(suite.device, s.readback, N_BYTES);
  assert_int_equal(suite.abi->read_state(s.readback), -1);
  suite.abi->read_end(s.readback);
  for (int i = 0; i < 2; i++) assert_int_equal(suite.abi->take_error(suite.device), WEFT_EDEVICE);
  scaler_close(&s);
  suite.abi->device_close(suite.device);
  suite.device = NULL;
  /* A lost device is not released; this one only looks lost, and the sanitizer counts it. */
  foreign_function("wgpuDeviceRelease")(handle);
}
#endif

/* ---- where a library is found ---- */

static void tree_path(char path[256], const char *file) { snprintf(path, 256, "%s/%s", suite.tree, file); }

/* Runs a program that must succeed. */
static void run_tool(const char *const *argv) {
  run_result result = run_program(argv, NULL);
  if (result.status != 0) fail_msg("%s: status %d: %s", argv[0], result.status, result.err);
  run_clear(&result);
}

static int create_tree(void **state) {
  (void)state;
  static const char *const folders[] = {"bin", "lib", "lib/weft", "lib/weft/v29", "lib/weft/v22", "elsewhere"};
  char path[256];
  gpu_env_use(NULL);
  snprintf(suite.tree, sizeof suite.tree, "/tmp/weft-test-abi-XXXXXX");
  if (!mkdtemp(suite.tree)) return -1;
  for (size_t i = 0; i < WEFT_COUNT(folders); i++) {
    tree_path(path, folders[i]);
    if (mkdir(path, 0777) != 0) return -1;
  }
  tree_path(path, "bin/program");
  char program[4096] = {0};
  if (readlink("/proc/self/exe", program, sizeof program - 1) <= 0) return -1;
  run_tool((const char *const[]){"cp", program, path, NULL});
  return 0;
}

static int remove_tree(void **state) {
  (void)state;
  run_tool((const char *const[]){"rm", "-rf", suite.tree, NULL});
  return 0;
}

/* Puts a generation's library into the tree under this name. */
static void put_library(const char *file, const char *of_generation) {
  char path[256], from[4096];
  const char *source = gpu_env_library(of_generation);
  if (!source || !realpath(source, from)) fail_msg("no WebGPU library %s: run `make setup`", of_generation);
  tree_path(path, file);
  assert_int_equal(symlink(from, path), 0);
}

/* Makes a library with this text. */
static void make_library(const char *file, const char *text) {
  char source[256], path[256];
  tree_path(source, "fake.c");
  tree_path(path, file);
  FILE *f = fopen(source, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
  run_tool((const char *const[]){"cc", "-shared", "-fPIC", "-o", path, source, NULL});
}

/* What a copy of this program in the tree finds; `variable` is "NAME=VALUE" or NULL. */
static run_result probe(const char *variable) {
  char path[256];
  tree_path(path, "bin/program");
  const char *const environment[] = {variable ? variable : "WEFT_WGPU_LIB", NULL};
  run_options options = {.environment = environment};
  run_result result = run_program((const char *const[]){path, "--probe", NULL}, &options);
  assert_int_equal(result.signal, 0);
  return result;
}

/* The copy finds the library of this generation at a path that ends like this. */
static void assert_found(const char *variable, const char *of_generation, const char *path_end) {
  run_result result = probe(variable);
  char end[256];
  int n = snprintf(end, sizeof end, "%s\n", path_end);
  if (result.status != 0) fail_msg("%s", result.out);
  if (strncmp(result.out, of_generation, 3) != 0 || strcmp(result.out + result.n_out - n, end) != 0)
    fail_msg("found %s, not %s %s", result.out, of_generation, path_end);
  run_clear(&result);
}

/* The copy finds none, and the one line of its message says each of these. */
static void assert_none(const char *variable, const char *const *parts) {
  run_result result = probe(variable);
  assert_int_equal(result.status, WEFT_ENODEVICE);
  for (; *parts; parts++)
    if (!strstr(result.out, *parts)) fail_msg("\"%s\" does not say \"%s\"", result.out, *parts);
  run_clear(&result);
}

static void assert_none_named(const char *file, const char *why) {
  char variable[300];
  snprintf(variable, sizeof variable, "WEFT_WGPU_LIB=%s%s%s", *file == '/' ? "" : suite.tree, *file == '/' ? "" : "/",
           file);
  assert_none(variable, (const char *const[]){"WEFT_WGPU_LIB", strrchr(file, '/') + 1, why, NULL});
}

/* ---- the same for every generation compiled in ---- */

static void test_found_where_named(void **state) {
  char variable[300];
  put_library("elsewhere/any.name", *state);
  snprintf(variable, sizeof variable, "WEFT_WGPU_LIB=%s/elsewhere/any.name", suite.tree);
  assert_found(variable, *state, "/elsewhere/any.name");
}

static void test_found_beside_the_program(void **state) {
  put_library("bin/libwgpu_native.so", *state);
  assert_found(NULL, *state, "/bin/libwgpu_native.so");
}

static void test_found_under_lib(void **state) {
  char file[64], end[128];
  snprintf(file, sizeof file, "lib/weft/%s/libwgpu_native-release.so", (const char *)*state);
  snprintf(end, sizeof end, "/bin/../%s", file);
  put_library(file, *state);
  assert_found(NULL, *state, end);
}

static void test_found_by_the_system(void **state) {
  char variable[300];
  put_library("elsewhere/libwgpu_native.so", *state);
  snprintf(variable, sizeof variable, "LD_LIBRARY_PATH=%s/elsewhere", suite.tree);
  assert_found(variable, *state, "libwgpu_native.so");
}

/* A library that does not fit is passed over, except where it was named. */
static void test_passed_over(void **state) {
  char file[64];
  make_library("bin/libwgpu_native.so", "unsigned wgpuGetVersion(void) { return 0x18000001; }\n");
  snprintf(file, sizeof file, "lib/weft/%s/libwgpu_native.so", (const char *)*state);
  put_library(file, *state);
  assert_found(NULL, *state, file);
  assert_none_named("bin/libwgpu_native.so", "24.0.0.1");
}

#if defined(WEFT_WGPU_V29) && defined(WEFT_WGPU_V22)
static void test_newer_first_within_a_place(void **state) {
  (void)state;
  put_library("bin/libwgpu_native.so", "v22");
  put_library("bin/libwgpu_native-release.so", "v29");
  assert_found(NULL, "v29", "/bin/libwgpu_native-release.so");
}

static void test_nearer_place_first(void **state) {
  (void)state;
  put_library("bin/libwgpu_native.so", "v22");
  put_library("lib/weft/v29/libwgpu_native.so", "v29");
  assert_found(NULL, "v22", "/bin/libwgpu_native.so");
}
#endif

/* ---- what is no library that fits ---- */

static void test_nothing_anywhere(void **state) {
  (void)state;
  assert_none(NULL, (const char *const[]){"WebGPU library: ", "/bin: nothing", "search path: nothing",
                                          weft__abis[0]->accepted, "WEFT_WGPU_LIB", "/../lib/weft/", NULL});
}

static void test_each_place_has_its_reason(void **state) {
  (void)state;
  char library_path[64];
  snprintf(library_path, sizeof library_path, "lib/weft/%s/libwgpu_native.so", weft__abis[0]->generation);
  make_library("bin/libwgpu_native.so", "unsigned wgpuGetVersion(void) { return 0x18000001; }\n");
  make_library(library_path, "int unrelated;\n");
  assert_none(NULL, (const char *const[]){"/bin/libwgpu_native.so: is version 24.0.0.1", weft__abis[0]->accepted,
                                          library_path, "wgpuGetVersion", "search path: nothing", NULL});
}

static void test_named_in_vain(void **state) {
  (void)state;
  char path[256];
  put_library("bin/libwgpu_native.so", weft__abis[0]->generation); /* would fit, but another one is named */
  assert_none_named("elsewhere/absent.so", "No such file");
  assert_none_named("elsewhere/", "regular file");
  tree_path(path, "elsewhere/text.so");
  run_tool((const char *const[]){"cp", "/proc/self/status", path, NULL});
  assert_none_named("elsewhere/text.so", "ELF");
  make_library("elsewhere/unrelated.so", "int unrelated;\n");
  assert_none_named("elsewhere/unrelated.so", "is not wgpu-native");
  make_library("elsewhere/future.so", "unsigned wgpuGetVersion(void) { return 0x1E000000; }\n");
  assert_none_named("elsewhere/future.so", "30.0.0.0");
}

static void test_library_of_the_system(void **state) {
  (void)state;
  assert_none("WEFT_WGPU_LIB=libm.so.6",
              (const char *const[]){"WEFT_WGPU_LIB", "libm.so.6", "is not wgpu-native", NULL});
}

static void test_missing_function(void **state) {
  char text[128];
  bool is_v29 = strcmp(*state, "v29") == 0;
  snprintf(text, sizeof text, "unsigned wgpuGetVersion(void) { return %s; }\n", is_v29 ? "0x1D000101" : "0x16010005");
  make_library("elsewhere/empty.so", text);
  assert_none_named("elsewhere/empty.so", "has no function wgpuCreateInstance");
}

static void test_empty_variable_is_unset(void **state) {
  (void)state;
  put_library("bin/libwgpu_native.so", weft__abis[0]->generation);
  assert_found("WEFT_WGPU_LIB=", weft__abis[0]->generation, "/bin/libwgpu_native.so");
}

/* ---- drivers ---- */

/* No driver is no error of the library: it has no adapters. */
static void test_no_driver(void **state) {
  char variable[300];
  snprintf(variable, sizeof variable, "VK_DRIVER_FILES=%s/none.json", suite.tree);
  put_library("bin/libwgpu_native.so", *state);
  const char *const environment[] = {variable, "VK_ICD_FILENAMES", "WEFT_WGPU_LIB", NULL};
  run_options options = {.environment = environment};
  char path[256];
  tree_path(path, "bin/program");
  run_result result = run_program((const char *const[]){path, "--probe", NULL}, &options);
  assert_int_equal(result.status, 0);
  assert_non_null(strstr(result.out, " 0 adapters "));
  run_clear(&result);
}

/* The drivers keep compiled shaders in a folder; whether they can is all the same. */
static void test_cache_not_writable(void **state) {
  char path[256];
  put_library("bin/libwgpu_native.so", *state);
  const char *const environment[] = {"HOME=/proc/none", "XDG_CACHE_HOME=/proc/none", "MESA_SHADER_CACHE_DIR=/proc/none",
                                     "WEFT_WGPU_LIB", NULL};
  run_options options = {.environment = environment};
  tree_path(path, "bin/program");
  run_result result = run_program((const char *const[]){path, "--probe", NULL}, &options);
  if (result.status != 0 || strstr(result.out, " 0 adapters ")) fail_msg("status %d: %s", result.status, result.out);
  run_clear(&result);
}

/* ---- the list of devices ---- */

static void test_adapters_list(void **state) {
  weft_adapter *rows;
  int n;
  open_library(state);
  need_adapter();
  if (weft_adapters_list(&rows, &n)) fail_msg("%s", weft_last_error());
  assert_int_equal(n, suite.abi->n_adapters(suite.library->instance));
  assert_string_equal(rows[0].name, suite.adapter.name);
  assert_string_equal(rows[0].generation, suite.generation);
  assert_string_equal(rows[0].library, gpu_env_library(suite.generation));
  assert_true(rows[0].memory_bytes > 0);
  assert_true(rows[0].max_buffer_bytes == suite.adapter.limits.max_buffer_bytes);
  assert_int_equal(strstr(rows[0].features, "f16") != NULL, (suite.adapter.features & WEFT__GPU_F16) != 0);
  weft_free(rows);
  close_library(state);
}

/* Runs `weft devices --json`, which succeeds whatever there is, and parses the line of its output with this number. */
static json_t *list_devices(const char *variable, int line, char **err) {
  const char *program = getenv("WEFT_TEST_PROGRAM");
  const char *const environment[] = {variable, NULL};
  run_options options = {.environment = environment};
  run_result result =
      run_program((const char *const[]){program ? program : "build/weft", "devices", "--json", NULL}, &options);
  if (result.status != 0) fail_msg("status %d: %s", result.status, result.err);
  const char *text = result.out;
  for (int i = 0; i < line && text; i++) text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
  json_t *row = text && *text ? json_loads(text, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
  if (err) *err = result.err, result.err = NULL;
  run_clear(&result);
  return row;
}

static void test_devices_command(void **state) {
  char variable[300];
  snprintf(variable, sizeof variable, "WEFT_WGPU_LIB=%s", gpu_env_library(*state));
  json_t *cpu = list_devices(variable, 0, NULL), *gpu = list_devices(variable, 1, NULL);
  assert_string_equal(json_string_value(json_object_get(cpu, "device")), "cpu");
  assert_string_equal(json_string_value(json_object_get(cpu, "variant")), weft_cpu_variant_selected());
  assert_true(json_integer_value(json_object_get(cpu, "n_threads")) > 0);
  assert_true(json_is_integer(json_object_get(gpu, "device")));
  assert_string_equal(json_string_value(json_object_get(gpu, "generation")), *state);
  assert_true(json_integer_value(json_object_get(gpu, "max_binding_bytes")) > 0);
  assert_true(json_is_array(json_object_get(gpu, "features")));
  json_decref(cpu);
  json_decref(gpu);
}

static void test_devices_without_gpu(void **state) {
  char *err;
  (void)state;
  json_t *cpu = list_devices("WEFT_WGPU_LIB=/none.so", 0, &err);
  assert_string_equal(json_string_value(json_object_get(cpu, "device")), "cpu");
  assert_null(list_devices("WEFT_WGPU_LIB=/none.so", 1, NULL));
  if (!strstr(err, "WEFT_WGPU_LIB: /none.so")) fail_msg("\"%s\" does not give the reason", err);
  json_decref(cpu);
  free(err);
}

/* `test_abi --probe`: "v29 29.0.1.1 1 adapters PATH", or the error and its status. */
static int print_probe(void) {
  weft__gpu_library *found;
  weft_status status = weft__gpu_library_open(&found);
  if (status) {
    printf("%s\n", weft_last_error());
    return (int)status;
  }
  int n = found->abi->n_adapters(found->instance);
  weft__gpu_device *opened = NULL;
  if (n > 0 && found->abi->device_open(&opened, found->instance, 0, 0, NULL)) status = weft_last_status();
  printf("%s %s %d adapters %s\n", found->abi->generation, found->version, n, found->path);
  if (opened) found->abi->device_close(opened);
  weft__gpu_library_close(found);
  return (int)status;
}

/* ---- the list ---- */

#define WITH(test, setup, teardown, state)                                                                             \
  { #test " " state, test, setup, teardown, (void *)(state) }
#define ON_DEVICE(test, name) WITH(test, open_device, close_device, name)
#define IN_TREE(test, name) WITH(test, create_tree, remove_tree, name)
#define EACH_GENERATION(name)                                                                                          \
  WITH(test_lower_limits, NULL, NULL, name), WITH(test_adapter_is_described, open_library, close_library, name),       \
      WITH(test_software_drivers_come_last, open_library, close_library, name),                                        \
      ON_DEVICE(test_dispatch_and_copy, name), ON_DEVICE(test_upload_buffer, name),                                    \
      ON_DEVICE(test_nothing_recorded, name), ON_DEVICE(test_destroyed_in_use, name),                                  \
      ON_DEVICE(test_time_stamps, name), ON_DEVICE(test_shader_errors, name), ON_DEVICE(test_too_many_bindings, name), \
      ON_DEVICE(test_absurd_buffer, name), ON_DEVICE(test_bad_bindings, name), ON_DEVICE(test_bad_commands, name),     \
      ON_DEVICE(test_first_error_is_kept, name), ON_DEVICE(test_out_of_host_memory, name),                             \
      WITH(test_memory_runs_out, NULL, NULL, name), WITH(test_open_and_close, NULL, NULL, name),                       \
      WITH(test_open_without_memory, NULL, NULL, name), WITH(test_adapters_list, NULL, NULL, name),                    \
      WITH(test_devices_command, NULL, NULL, name), IN_TREE(test_found_where_named, name),                             \
      IN_TREE(test_found_beside_the_program, name), IN_TREE(test_found_under_lib, name),                               \
      IN_TREE(test_found_by_the_system, name), IN_TREE(test_passed_over, name), IN_TREE(test_missing_function, name),  \
      IN_TREE(test_no_driver, name), IN_TREE(test_cache_not_writable, name)

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--probe") == 0) return print_probe();
  if (argc == 2 && strcmp(argv[1], "--fill") == 0) return fill_memory();
  const struct CMUnitTest tests[] = {
#ifdef WEFT_WGPU_V29
    {"test_headers_agree v29", test_headers_agree, NULL, NULL, (void *)&headers_v29},
    EACH_GENERATION("v29"),
    WITH(test_lost_device, open_device, close_library, "v29"),
#endif
#ifdef WEFT_WGPU_V22
    {"test_headers_agree v22", test_headers_agree, NULL, NULL, (void *)&headers_v22},
    EACH_GENERATION("v22"),
#endif
#if defined(WEFT_WGPU_V29) && defined(WEFT_WGPU_V22)
    IN_TREE(test_newer_first_within_a_place, ""),
    IN_TREE(test_nearer_place_first, ""),
#endif
    IN_TREE(test_nothing_anywhere, ""),
    IN_TREE(test_each_place_has_its_reason, ""),
    IN_TREE(test_named_in_vain, ""),
    IN_TREE(test_library_of_the_system, ""),
    IN_TREE(test_empty_variable_is_unset, ""),
    WITH(test_devices_without_gpu, NULL, NULL, ""),
  };
  gpu_env_prepare();
  return cmocka_run_group_tests_name("abi", tests, NULL, NULL);
}
