/* cmd_bench_gemm.c - weft bench gemm: how fast a device multiplies matrices, by shape and by kernel, and what bounds it.
 *
 * The peak is measured in the same run, not looked up: fused multiply-adds in registers, or, on a device that does not
 * offer that, one large product by the kernels that the library chooses, which a shape may beat. */
#include "bench.h"
#include "blas.h"
#include "cmd.h"
#include "device.h"
#include "output.h"
#include "product.h"

#include "weft/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench_options {
  cli_common common;
  int n_reps;
  const char *tiles;     /* "naive,8,auto"; NULL: auto alone */
  const char *peer_blas; /* library; NULL: none */
} bench_options;

enum { MAX_SHAPES = 32, MAX_TILES = 5, SHAPE_BYTES = 64 };
static const double MAX_ELEMENTS = 0x1p33;

typedef struct shape {
  int64_t batch, m, k, n;
} shape;

/* The kernels that --tile names.  A workgroup of the naive one is as large as tile 16's, but keeps nothing in workgroup
 * memory; tile 32's invocations make 4 outputs each.  The workgroups of auto depend on the shape. */
typedef struct tile {
  const char *name;
  int gemm_tile;         /* of weft_device_options */
  int n_invocations;     /* of a workgroup; 0: not known here */
  int n_workgroup_bytes; /* tiles of both operands */
} tile;

static const tile all_tiles[] = {
    {"auto", 0, 0, 0},
    {"naive", 1, 256, 0},
    {"8", 8, 8 * 8, 2 * 8 * 8 * 4},
    {"16", 16, 16 * 16, 2 * 16 * 16 * 4},
    {"32", 32, 32 * 32 / 4, 2 * 32 * 32 * 4},
};
_Static_assert(WEFT_COUNT(all_tiles) == MAX_TILES, "a column for each kernel");

/* A product with one kernel; the peer's figures are NAN without a peer. */
typedef struct row {
  shape shape;
  const tile *tile;
  cli_bench_time time;
  double peer_ms;
} row;

/* Everything that a run holds; zero at first. */
typedef struct bench {
  const bench_options *o;
  cli_bench devices[MAX_TILES]; /* one a kernel, n_tiles; the first also measures what others are compared with */
  const tile *tiles[MAX_TILES];
  int n_tiles;
  cli_bench reference; /* runs the kernels that the library chooses */
  shape shapes[MAX_SHAPES];
  int n_shapes;
  shape peak_shape;
  bool is_peak_product; /* the peak is the rate of the product of that shape */
  double smallest_ms;   /* an operator on one element */
  cli_blas blas;
  row rows[MAX_SHAPES * MAX_TILES];
  int n_rows;
} bench;

/* ---- shapes ---- */

static shape square(int64_t n) { return (shape){1, n, n, n}; }

/* "512", "100x784x128", "100x784@784x128" or "8x512x512@512x512". */
static bool parse_shape(const char *text, shape *s) {
  int64_t a[3], b[2];
  const char *at = strchr(text, '@');
  int n_a = cli_bench_parse_extents(text, at ? (size_t)(at - text) : strlen(text), a, 3);
  if (!at) {
    if (n_a == 1) return *s = square(a[0]), true;
    return *s = (shape){1, a[0], a[1], a[2]}, n_a == 3;
  }
  if (n_a < 2 || cli_bench_parse_extents(at + 1, strlen(at + 1), b, 2) != 2 || a[n_a - 1] != b[0]) return false;
  *s = (shape){n_a == 3 ? a[0] : 1, a[n_a - 2], b[0], b[1]};
  return true;
}

static bool fits(const shape *s) {
  double b = (double)s->batch, m = (double)s->m, k = (double)s->k, n = (double)s->n;
  return b * m * k <= MAX_ELEMENTS && k * n <= MAX_ELEMENTS && b * m * n <= MAX_ELEMENTS;
}

static cli_exit read_shapes(bench *b, const cli_args *args) {
  for (int i = 0; i < args->n; i++) {
    shape *s = &b->shapes[b->n_shapes++];
    if (parse_shape(args->values[i], s) && fits(s)) continue;
    cli_error("bench gemm: '%s' is no product (give N, MxK@KxN or BxMxK@KxN with equal K, at most 2^33 elements each)",
              args->values[i]);
    return CLI_USAGE;
  }
  return CLI_OK;
}

/* Software drivers would take minutes for the large ones. */
static void choose_shapes(bench *b) {
  static const int edges[] = {512, 1024, 2048, 4096};
  bool is_software = b->reference.is_software;
  b->peak_shape = square(is_software ? 512 : 2048);
  if (b->n_shapes > 0) return;
  int n = b->reference.is_cpu || is_software ? 3 : 4;
  for (int i = 0; i < n; i++) b->shapes[b->n_shapes++] = square(edges[i]);
}

static const char *shape_text(const shape *s, char text[SHAPE_BYTES]) {
  char batch[24] = "";
  if (s->batch > 1) snprintf(batch, sizeof batch, "%lldx", (long long)s->batch);
  snprintf(text, SHAPE_BYTES, "%s%lldx%lld@%lldx%lld", batch, (long long)s->m, (long long)s->k, (long long)s->k,
           (long long)s->n);
  return text;
}

static double n_flops(const shape *s) { return 2.0 * (double)s->batch * (double)s->m * (double)s->k * (double)s->n; }

/* What must be read and written at least. */
static double n_bytes(const shape *s) {
  double m = (double)(s->batch * s->m), k = (double)s->k, n = (double)s->n;
  return 4 * (m * k + k * n + m * n);
}

/* ---- measuring ---- */

typedef struct operands {
  weft_tensor *a, *b;
} operands;

static weft_tensor *run_product(void *context, weft_scope *scope) {
  static const weft_matmul_attrs plain = {0};
  const operands *o = context;
  return weft_matmul(scope, o->a, o->b, &plain);
}

static weft_status upload(const cli_product *p, weft_scope *scope, operands *o) {
  const int64_t a[] = {p->batch, p->m, p->k}, b[] = {p->k, p->n};
  o->a = weft_tensor_from(scope, WEFT_F32, 3, a, p->a);
  o->b = weft_tensor_from(scope, WEFT_F32, 2, b, p->b);
  return o->a && o->b ? WEFT_OK : weft_last_status();
}

static weft_status time_ours(const cli_bench *device, const cli_product *p, cli_bench_time *time) {
  weft_scope *scope;
  operands o;
  weft_status status = weft_scope_open(&scope, device->device, NULL);
  if (status) return status;
  status = upload(p, scope, &o);
  if (!status) status = cli_bench_measure(device, run_product, &o, time);
  weft_scope_close(scope);
  return status;
}

/* What a comparison holds.  The peer's operands lie in memory of the kind that tensors have: on large pages if they are
 * large. */
typedef struct comparison {
  const cli_blas *blas;
  cli_product p; /* with the peer's copies of the operands */
  float *c;      /* the peer's result */
  weft_scope *scope;
  operands ours;
} comparison;

static weft_status run_ours(comparison *x) {
  weft_tensor *y = run_product(&x->ours, x->scope);
  weft_tensor_free(y);
  return y ? WEFT_OK : weft_last_status();
}

static weft_status run_peer(comparison *x) {
  cli_blas_run(x->blas, &x->p, x->c);
  return WEFT_OK;
}

/* Threads that have nothing to do still look for work, those of OpenBLAS for an eighth of a second; with as many as there
 * are processors, those of one side would slow the other.  Hence a rest before each turn, and products that wake the
 * threads and the clock before those that are timed.  *ms gets the mean of these. */
static weft_status take_turn(weft_status (*run)(comparison *), comparison *x, double *ms) {
  enum { REST_MS = 200, WARM_UP_MS = 20, TIMED_MS = 40 };
  const struct timespec pause = {.tv_nsec = REST_MS * 1000000L};
  nanosleep(&pause, NULL);
  weft_status status;
  double start_ms = weft__now_ms();
  do status = run(x);
  while (!status && weft__now_ms() - start_ms < WARM_UP_MS);
  int n = 0;
  for (start_ms = weft__now_ms(); !status && (n == 0 || weft__now_ms() - start_ms < TIMED_MS); n++) status = run(x);
  *ms = (weft__now_ms() - start_ms) / n;
  return status;
}

/* Ours and the peer's in turn, so that what else the machine does falls on both. */
static weft_status alternate(const bench *b, comparison *x, row *r) {
  double ours_ms[CLI_BENCH_MAX_REPS], peer_ms[CLI_BENCH_MAX_REPS];
  int n_reps = b->o->n_reps;
  for (int i = 0; i < n_reps; i++) {
    weft_status status = take_turn(run_ours, x, &ours_ms[i]);
    if (!status) status = take_turn(run_peer, x, &peer_ms[i]);
    if (status) return status;
  }
  r->time.median_ms = cli_bench_median(ours_ms, n_reps);
  r->time.min_ms = ours_ms[0];
  r->peer_ms = cli_bench_median(peer_ms, n_reps);
  return WEFT_OK;
}

static float *copy_floats(const float *from, int64_t n) {
  float *to = weft__aligned_alloc((size_t)n * sizeof *to);
  if (to) memcpy(to, from, (size_t)n * sizeof *to);
  return to;
}

static weft_status time_both(const bench *b, const cli_product *p, row *r) {
  comparison x = {.blas = &b->blas, .p = *p};
  weft_status status = weft_scope_open(&x.scope, b->reference.device, NULL);
  if (status) return status;
  x.p.a = copy_floats(p->a, p->n_a);
  x.p.b = copy_floats(p->b, p->n_b);
  x.c = weft__aligned_alloc((size_t)p->n_c * sizeof *x.c);
  status = x.p.a && x.p.b && x.c ? upload(p, x.scope, &x.ours) : WEFT_ENOMEM;
  if (!status) status = alternate(b, &x, r);
  weft__aligned_free(x.p.a);
  weft__aligned_free(x.p.b);
  weft__aligned_free(x.c);
  weft_scope_close(x.scope);
  return status;
}

/* All kernels on the same operands, one after the other. */
static weft_status measure_shape(bench *b, const shape *s) {
  cli_product p = {.batch = s->batch, .m = s->m, .k = s->k, .n = s->n};
  weft_status status = cli_product_fill(&p);
  for (int i = 0; i < b->n_tiles && !status; i++) {
    row *r = &b->rows[b->n_rows];
    *r = (row){.shape = *s, .tile = b->tiles[i], .peer_ms = NAN};
    status = b->blas.library ? time_both(b, &p, r) : time_ours(&b->devices[i], &p, &r->time);
    if (!status) b->n_rows++;
  }
  cli_product_clear(&p);
  return status;
}

/* Where a device cannot measure its arithmetic alone, a large product stands for it. */
static weft_status measure_peak(bench *b) {
  cli_bench *reference = &b->reference;
  cli_bench_time time;
  double flops_per_s;
  weft_status status = weft_device_measure_flops(reference->device, &flops_per_s);
  b->is_peak_product = status == WEFT_EUNSUPPORTED;
  if (!status) reference->peak_gflops = 1e-9 * flops_per_s;
  if (!b->is_peak_product) return status;
  const shape *s = &b->peak_shape;
  cli_product p = {.batch = s->batch, .m = s->m, .k = s->k, .n = s->n};
  status = cli_product_fill(&p);
  if (!status) status = time_ours(reference, &p, &time);
  cli_product_clear(&p);
  if (!status) reference->peak_gflops = 1e-6 * n_flops(s) / time.median_ms;
  return status;
}

/* The peak comes last, when the threads have been running for a while. */
static weft_status measure_reference(bench *b) {
  cli_bench *reference = &b->reference;
  weft_status status = cli_bench_copy(reference, reference->copy_bytes, &reference->copy_gb_per_s);
  if (!status) status = cli_bench_smallest(reference, &b->smallest_ms);
  return status ? status : measure_peak(b);
}

/* ---- reading the figures ---- */

static double gflops(const row *r) { return 1e-6 * n_flops(&r->shape) / r->time.median_ms; }

/* Launch: the smallest operator would take more than a fifth of the time.  Else the slower of what the operations cost
 * at the peak and what the bytes cost at the speed of a copy. */
static const char *bound_by(const bench *b, const row *r) {
  enum { LAUNCHES = 5 };
  if (r->time.median_ms < LAUNCHES * b->smallest_ms) return "launch";
  double arithmetic_s = 1e-9 * n_flops(&r->shape) / b->reference.peak_gflops;
  return arithmetic_s >= 1e-9 * n_bytes(&r->shape) / b->reference.copy_gb_per_s ? "arithmetic" : "memory";
}

/* The part of a core's invocations that workgroups of this size can fill; registers are not counted.  NAN: not known. */
static double occupancy(const tile *t) {
  enum { CORE_BYTES = 48 << 10, CORE_INVOCATIONS = 2048 };
  if (t->n_invocations == 0) return NAN;
  int n_groups = CORE_INVOCATIONS / t->n_invocations;
  if (t->n_workgroup_bytes > 0 && CORE_BYTES / t->n_workgroup_bytes < n_groups)
    n_groups = CORE_BYTES / t->n_workgroup_bytes;
  return (double)(n_groups * t->n_invocations) / CORE_INVOCATIONS;
}

/* ---- printing ---- */

static void print_head(const bench *b) {
  const cli_bench *reference = &b->reference;
  char peak_of[32] = "multiply-adds in registers";
  if (b->is_peak_product) snprintf(peak_of, sizeof peak_of, "the %d^3 product", (int)b->peak_shape.m);
  cli_outf("%s\npeak %.1f GFLOP/s (measured: %s), copy %.1f GB/s, smallest operator %.4f ms, median of %d\n",
           weft_device_name(reference->device), reference->peak_gflops, peak_of, reference->copy_gb_per_s,
           b->smallest_ms, b->o->n_reps);
  if (b->blas.library && !b->blas.sets_threads) cli_outf("the peer chooses its number of threads itself\n");
  cli_outf("\n%-26s", "shape");
  if (b->o->tiles) cli_outf(" %-6s", "tile");
  cli_outf(" %12s %12s %10s %8s  %-10s", "median ms", "min ms", "GFLOP/s", "of peak", "bound by");
  if (b->o->tiles) cli_outf(" %s", "occupancy (estimate)");
  if (b->blas.library) cli_outf(" %12s %8s", "peer GFLOP/s", "ratio");
  cli_out("\n", 1);
}

static void print_row(const bench *b, const row *r) {
  char text[SHAPE_BYTES];
  cli_outf("%-26s", shape_text(&r->shape, text));
  if (b->o->tiles) cli_outf(" %-6s", r->tile->name);
  cli_outf(" %12.4f %12.4f %10.1f %8.3f  %-10s", r->time.median_ms, r->time.min_ms, gflops(r),
           gflops(r) / b->reference.peak_gflops, bound_by(b, r));
  if (b->o->tiles && r->tile->n_invocations) cli_outf(" %19.0f%%", 100 * occupancy(r->tile));
  if (b->o->tiles && !r->tile->n_invocations) cli_outf(" %20s", "-");
  if (b->blas.library)
    cli_outf(" %12.1f %8.3f", 1e-6 * n_flops(&r->shape) / r->peer_ms, r->peer_ms / r->time.median_ms);
  cli_out("\n", 1);
}

static json_t *row_to_json(const bench *b, const row *r) {
  char text[SHAPE_BYTES];
  json_t *object = cli_bench_row_json(shape_text(&r->shape, text), r->time);
  cli_json_set(object, "tile", json_string(r->tile->name));
  cli_json_set(object, "gflops", cli_json_number(gflops(r)));
  cli_json_set(object, "fraction_of_peak", cli_json_number(gflops(r) / b->reference.peak_gflops));
  cli_json_set(object, "bound_by", json_string(bound_by(b, r)));
  cli_json_set(object, "occupancy_estimate", cli_json_number(occupancy(r->tile)));
  cli_json_set(object, "peer_gflops", cli_json_number(1e-6 * n_flops(&r->shape) / r->peer_ms));
  cli_json_set(object, "ratio", cli_json_number(r->peer_ms / r->time.median_ms));
  return object;
}

static cli_exit print_all(const bench *b) {
  if (b->o->common.json) {
    json_t *cases = json_array();
    for (int i = 0; i < b->n_rows; i++) cli_json_add(cases, row_to_json(b, &b->rows[i]));
    return cli_bench_print_json(&b->reference, cases);
  }
  print_head(b);
  for (int i = 0; i < b->n_rows; i++) print_row(b, &b->rows[i]);
  return CLI_OK;
}

/* ---- the command ---- */

static const tile *find_tile(const char *name, size_t n) {
  for (size_t i = 0; i < WEFT_COUNT(all_tiles); i++)
    if (strlen(all_tiles[i].name) == n && memcmp(all_tiles[i].name, name, n) == 0) return &all_tiles[i];
  return NULL;
}

static cli_exit read_tiles(bench *b) {
  for (const char *name = b->o->tiles ? b->o->tiles : "auto"; name; name = strchr(name, ','), name += name != NULL) {
    size_t n = strcspn(name, ",");
    const tile *t = find_tile(name, n);
    if (!t || b->n_tiles == MAX_TILES) {
      cli_error("--tile: '%.*s' %s (give some of naive, 8, 16, 32 and auto, with commas between)", (int)n, name,
                t ? "is one too many" : "is no kernel");
      return CLI_USAGE;
    }
    b->tiles[b->n_tiles++] = t;
  }
  return CLI_OK;
}

/* The library's own choice runs on the reference device; the others get a device each. */
static cli_exit open_devices(bench *b) {
  const cli_common *common = &b->o->common;
  cli_exit code = cli_bench_open(&b->reference, common, 0, b->o->n_reps);
  if (code) return code;
  if (b->o->tiles && b->reference.is_cpu) {
    cli_error("--tile: it chooses a GPU's kernel and the device is a CPU (give --device gpu, or leave --tile out)");
    return CLI_USAGE;
  }
  if (b->o->peer_blas && !b->reference.is_cpu) {
    cli_error("--peer-blas: it computes on the CPU and the device is a GPU (give --device cpu)");
    return CLI_USAGE;
  }
  for (int i = 0; i < b->n_tiles && !code; i++)
    if (b->tiles[i]->gemm_tile)
      code = cli_bench_open(&b->devices[i], common, b->tiles[i]->gemm_tile, b->o->n_reps);
    else
      b->devices[i] = b->reference;
  return code;
}

static cli_exit open_peer(bench *b) {
  if (!b->o->peer_blas) return CLI_OK;
  return cli_blas_open(&b->blas, b->o->peer_blas, cli_device_n_threads(b->reference.device)) ? cli_fail() : CLI_OK;
}

static void close_bench(bench *b) {
  cli_blas_close(&b->blas);
  for (int i = 0; i < b->n_tiles; i++)
    if (b->devices[i].device != b->reference.device) cli_bench_close(&b->devices[i]);
  cli_bench_close(&b->reference);
}

static cli_exit measure_and_print(bench *b) {
  choose_shapes(b);
  weft_status status = measure_reference(b);
  for (int i = 0; i < b->n_shapes && !status; i++) status = measure_shape(b, &b->shapes[i]);
  return status ? cli_fail() : print_all(b);
}

static cli_exit run_bench_gemm(void *options, const cli_args *args) {
  bench b = {.o = options};
  cli_exit code = read_shapes(&b, args);
  if (!code) code = read_tiles(&b);
  if (!code) code = open_devices(&b);
  if (!code) code = open_peer(&b);
  if (!code) code = measure_and_print(&b);
  close_bench(&b);
  return code;
}

static const cli_option bench_gemm_table[] = {
    CLI_INT(bench_options, n_reps, "reps", 'r', "R", 1, CLI_BENCH_MAX_REPS,
            "measurements of each case, after a warm-up (default 5)"),
    CLI_TEXT(bench_options, tiles, "tile", 0, "TILE,...",
             "GPU only: one row for each of these kernels: naive, square tiles of 8, 16 or 32 in workgroup memory, and "
             "auto, which is what the library chooses"),
    CLI_TEXT(bench_options, peer_blas, "peer-blas", 0, "LIBRARY",
             "CPU only: load this BLAS, run its cblas_sgemm in turn with ours, with as many threads, and compare"),
    CLI_END,
};

static const bench_options defaults = {.common = CLI_COMMON_DEFAULTS, .n_reps = 5};

const cli_command cli_cmd_bench_gemm = {
    .name = "bench gemm",
    .arguments = "[SHAPE...]",
    .summary = "measure f32 matrix products, by shape and by kernel",
    .details =
        "A shape is 512 (a square product), 100x784@784x128 (or 100x784x128) or, a batch with one right operand, "
        "8x512x512@512x512. Without one: 512, 1024, 2048, and on a hardware GPU 4096.\n"
        "The peak is measured in the same run: fused multiply-adds in registers; or, if the device does not offer "
        "that, "
        "the rate of the 2048^3 product (512^3 on a software driver), of which a fraction may be above 1. The copy is "
        "a scale of 256 MiB (64 on a CPU), read and written bytes together. A "
        "product is bound "
        "by launch if it takes less than 5 times as long as an operator on one element; else by arithmetic or memory, "
        "whichever takes longer: its operations at the peak, or its operands and result at the speed of the copy.\n"
        "The occupancy is an estimate: what part of 2048 invocations a core the workgroups can fill if a core has 48 "
        "KiB of workgroup memory. Registers are not counted. For auto, whose workgroups depend on the shape, there is "
        "none.\n"
        "On a GPU the time of a product is that of 2N in a row less that of N, divided by N (at most 200), "
        "which leaves out submitting and waiting. WEFT_GPU_TRACE=1 in the environment adds a table of device times by "
        "operator on standard error.\n"
        "With --json the object has device, n_reps, peak_gflops, copy_gb_per_s and cases, a list of name, tile, "
        "median_ms, min_ms, gflops, fraction_of_peak, bound_by, occupancy_estimate, peer_gflops and ratio (ours to "
        "the peer's); what does not apply is null.",
    .examples = "weft bench gemm\n"
                "weft bench gemm 512 100x784@784x128 8x512x512@512x512 --device gpu --json\n"
                "weft bench gemm 1024 --device gpu --tile naive,8,16,32,auto\n"
                "weft bench gemm --device cpu -t 2 --peer-blas libopenblas.so.0",
    .max_args = MAX_SHAPES,
    .uses = CLI_USES_DEVICE,
    .options = bench_gemm_table,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_bench_gemm,
};
