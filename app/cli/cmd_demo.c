/* cmd_demo.c - weft demo: short runs that show that a part of the library works on this machine. */
#include "cmd.h"
#include "device.h"
#include "options.h"
#include "output.h"
#include "product.h"

#include "weft/ops.h"

#include <stdio.h>
#include <string.h>

typedef struct demo_options {
  cli_common common;
} demo_options;

typedef struct demo {
  int number;
  const char *what;
  cli_exit (*run)(const cli_common *common);
} demo;

/* ---- demo 4: the GPU ---- */

/* What a result may be off by, as max|gpu-cpu| / max|cpu|: 24 times the rounding of an f32. */
static const double MAX_ERROR = 2.86e-6;

enum { N_CHECKS = 5, N_VALUES = 1000, TIMED_REPS = 9, WARM_UP_MS = 200 };

typedef struct check {
  const char *name;
  double error;
} check;

typedef struct gpu_demo {
  weft_device *gpu, *cpu;
  check checks[N_CHECKS];
  int n_checks;
  double cpu_ms, gpu_xfer_ms, resident_ms; /* of the product of 512x512 matrices */
} gpu_demo;

/* Written so that NaN fails. */
static bool is_passed(const check *c) { return c->error <= MAX_ERROR; }

static void add_check(gpu_demo *d, const char *name, const float *got, const float *want, int64_t n) {
  d->checks[d->n_checks++] = (check){name, cli_relative_error(got, want, n)};
}

static weft_status compare_product(gpu_demo *d, const char *name, const cli_product *p) {
  float *got = weft__alloc((size_t)p->n_c, sizeof *got), *want = weft__alloc((size_t)p->n_c, sizeof *want);
  weft_status status = got && want ? cli_product_run(p, d->gpu, got) : WEFT_ENOMEM;
  if (!status) status = cli_product_run(p, d->cpu, want);
  if (!status) add_check(d, name, got, want, p->n_c);
  weft_free(got);
  weft_free(want);
  return status;
}

static weft_status check_batch(gpu_demo *d) {
  cli_product p = {.batch = 8, .m = 32, .k = 24, .n = 40};
  weft_status status = cli_product_fill(&p);
  if (!status) status = compare_product(d, "8x(32x24) @ (24x40)", &p);
  cli_product_clear(&p);
  return status;
}

static weft_status time_square(gpu_demo *d, const cli_product *p) {
  const cli_timing timing = {WARM_UP_MS, TIMED_REPS};
  int n_together;
  weft_status status = cli_product_time_resident(p, d->cpu, &timing, &d->cpu_ms, &n_together);
  if (!status) status = cli_product_time_run(p, d->gpu, &timing, &d->gpu_xfer_ms);
  return status ? status : cli_product_time_resident(p, d->gpu, &timing, &d->resident_ms, &n_together);
}

static weft_status check_square(gpu_demo *d) {
  cli_product p = {.batch = 1, .m = 512, .k = 512, .n = 512};
  weft_status status = cli_product_fill(&p);
  if (!status) status = compare_product(d, "512x512 @ 512x512", &p);
  if (!status) status = time_square(d, &p);
  cli_product_clear(&p);
  return status;
}

/* The element-wise operators on x and y, in this order. */
static const char *const operator_names[] = {"scale", "add", "relu"};

static weft_status run_operators(weft_device *device, const float *x, const float *y,
                                 float out[WEFT_COUNT(operator_names)][N_VALUES]) {
  const int64_t shape[] = {N_VALUES};
  weft_scope *scope;
  weft_status status = weft_scope_open(&scope, device, NULL);
  if (status) return status;
  weft_tensor *a = weft_tensor_from(scope, WEFT_F32, 1, shape, x), *b = weft_tensor_from(scope, WEFT_F32, 1, shape, y);
  weft_tensor *results[] = {weft_scale(scope, a, &(weft_scale_attrs){-2.5f}), weft_add(scope, a, b),
                            weft_relu(scope, a)};
  for (size_t i = 0; i < WEFT_COUNT(operator_names) && !status; i++)
    status = results[i] ? weft_tensor_read(results[i], out[i], sizeof out[i]) : weft_last_status();
  weft_scope_close(scope);
  return status;
}

static weft_status check_operators(gpu_demo *d) {
  float x[N_VALUES], y[N_VALUES], got[WEFT_COUNT(operator_names)][N_VALUES], want[WEFT_COUNT(operator_names)][N_VALUES];
  cli_fill_uniform(x, N_VALUES, 0);
  cli_fill_uniform(y, N_VALUES, 1);
  weft_status status = run_operators(d->gpu, x, y, got);
  if (!status) status = run_operators(d->cpu, x, y, want);
  for (size_t i = 0; i < WEFT_COUNT(operator_names) && !status; i++)
    add_check(d, operator_names[i], got[i], want[i], N_VALUES);
  return status;
}

static void print_text(const gpu_demo *d) {
  cli_outf("gpu  %s\ncpu  %s\n\nresult on the GPU    max|gpu-cpu| / max|cpu|\n", weft_device_name(d->gpu),
           weft_device_name(d->cpu));
  for (int i = 0; i < d->n_checks; i++)
    cli_outf("%-20s %.2e  %s\n", d->checks[i].name, d->checks[i].error, is_passed(&d->checks[i]) ? "ok" : "WRONG");
  cli_outf("\n512x512 @ 512x512: %.4g ms on the CPU, %.4g ms on the GPU, %.4g ms there with its transfers\n", d->cpu_ms,
           d->resident_ms, d->gpu_xfer_ms);
}

static cli_exit print_json(const gpu_demo *d) {
  json_t *root = json_object(), *checks = json_array();
  for (int i = 0; i < d->n_checks; i++) {
    json_t *object = json_object();
    cli_json_set(object, "name", json_string(d->checks[i].name));
    cli_json_set(object, "max_error", cli_json_number(d->checks[i].error));
    cli_json_set(object, "passed", json_boolean(is_passed(&d->checks[i])));
    cli_json_add(checks, object);
  }
  cli_json_set(root, "gpu", cli_json_text(weft_device_name(d->gpu), strlen(weft_device_name(d->gpu))));
  cli_json_set(root, "cpu", json_string(weft_device_name(d->cpu)));
  cli_json_set(root, "checks", checks);
  cli_json_set(root, "cpu_ms", cli_json_number(d->cpu_ms));
  cli_json_set(root, "resident_ms", cli_json_number(d->resident_ms));
  cli_json_set(root, "gpu_xfer_ms", cli_json_number(d->gpu_xfer_ms));
  return cli_json_print(root);
}

/* Every check is reported, then the first that failed ends the demo. */
static cli_exit report(const gpu_demo *d, const cli_common *common) {
  cli_exit code = CLI_OK;
  if (common->json)
    code = print_json(d);
  else
    print_text(d);
  for (int i = 0; i < d->n_checks && code == CLI_OK; i++) {
    if (is_passed(&d->checks[i])) continue;
    cli_error("demo 4: %s: the GPU's result is off by %.2e, more than %.2e (try another driver, or --device cpu)",
              d->checks[i].name, d->checks[i].error, MAX_ERROR);
    code = CLI_FAILED;
  }
  return code;
}

/* That there is no GPU is an answer, and why stands in the last error. */
static cli_exit say_no_gpu(const cli_common *common) {
  const char *why = common->device == CLI_DEVICE_CPU ? "--device cpu was given" : weft_last_error();
  if (!common->json) {
    cli_outf("There is no GPU to show: %s\n", why);
    return CLI_OK;
  }
  json_t *root = json_object();
  cli_json_set(root, "gpu", json_null());
  cli_json_set(root, "why", cli_json_text(why, strlen(why)));
  return cli_json_print(root);
}

static cli_exit run_gpu(const cli_common *common) {
  gpu_demo d = {.n_checks = 0};
  cli_exit code = cli_device_open(&d.gpu, common);
  if (code) return code;
  if (cli_device_is_cpu(d.gpu))
    code = say_no_gpu(common);
  else if (weft_device_open(&d.cpu, &(weft_device_options){.kind = WEFT_DEVICE_CPU,
                                                           .n_threads = common->n_threads,
                                                           .affinity = common->affinity}) ||
           check_batch(&d) || check_square(&d) || check_operators(&d))
    code = cli_fail();
  else
    code = report(&d, common);
  cli_out_flush();
  weft_device_close(d.cpu);
  weft_device_close(d.gpu);
  return code;
}

/* ---- the command ---- */

static const demo demos[] = {
    {4, "the GPU: products and operators compared with the CPU's, and their times", run_gpu},
};

static cli_exit list_demos(const cli_common *common) {
  if (!common->json) {
    for (size_t i = 0; i < WEFT_COUNT(demos); i++) cli_outf("%d  %s\n", demos[i].number, demos[i].what);
    return CLI_OK;
  }
  json_t *root = json_object(), *list = json_array();
  for (size_t i = 0; i < WEFT_COUNT(demos); i++) {
    json_t *object = json_object();
    cli_json_set(object, "number", json_integer(demos[i].number));
    cli_json_set(object, "what", json_string(demos[i].what));
    cli_json_add(list, object);
  }
  cli_json_set(root, "demos", list);
  return cli_json_print(root);
}

static cli_exit run_demo(void *options, const cli_args *args) {
  const demo_options *o = options;
  int64_t number;
  if (args->n == 0) return list_demos(&o->common);
  for (size_t i = 0; i < WEFT_COUNT(demos); i++)
    if (cli_parse_int(args->values[0], 0, 99, &number) && number == demos[i].number) return demos[i].run(&o->common);
  cli_error("demo: there is none called '%s' (weft demo lists them)", args->values[0]);
  return CLI_USAGE;
}

static const demo_options defaults = {.common = CLI_COMMON_DEFAULTS};

const cli_command cli_cmd_demo = {
    .name = "demo",
    .arguments = "[N]",
    .summary = "show that the GPU computes what the CPU does",
    .details =
        "Without a number the demos are listed.\n"
        "Demo 4 multiplies matrices and runs operators on the GPU and on the CPU. It fails if a result differs by more "
        "than 2.86e-6 of the largest. Without a GPU it says so. With --json the object has gpu (null without one, "
        "and why), cpu, checks (name, max_error, passed), cpu_ms, resident_ms and gpu_xfer_ms.",
    .examples = "weft demo\nweft demo 4\nweft demo 4 --device gpu",
    .max_args = 1,
    .uses = CLI_USES_DEVICE,
    .defaults = &defaults,
    .n_options_bytes = sizeof defaults,
    .run = run_demo,
};
