/* cpu.c - the CPU backend: memory, weights, and the table of operators.  A buffer is an address in host memory. */
#include "cpu/cpu.h"

#include <stdio.h>  /* snprintf */
#include <string.h> /* memcpy */

static weft_status cpu_alloc(weft__backend *backend, size_t n_bytes, void **buffer) {
  void *memory = weft__buffers_get(weft__cpu_of(backend)->buffers, n_bytes);
  if (!memory) return WEFT_ENOMEM;
  if (backend->poison) memset(memory, 0xff, n_bytes);
  backend->peak_bytes = weft__buffers_peak(weft__cpu_of(backend)->buffers);
  *buffer = memory;
  return WEFT_OK;
}

static void cpu_free(weft__backend *backend, void *buffer, size_t n_bytes) {
  weft__buffers_put(weft__cpu_of(backend)->buffers, buffer, n_bytes);
}

static weft_status cpu_write(weft__backend *backend, void *buffer, size_t offset, const void *data, size_t n_bytes) {
  (void)backend;
  memcpy((char *)buffer + offset, data, n_bytes);
  return WEFT_OK;
}

static weft_status cpu_read(weft__backend *backend, const void *buffer, size_t offset, void *data, size_t n_bytes) {
  (void)backend;
  memcpy(data, (const char *)buffer + offset, n_bytes);
  return WEFT_OK;
}

static weft_status cpu_copy(weft__backend *backend, void *to, size_t to_offset, const void *from, size_t from_offset,
                            size_t n_bytes) {
  (void)backend;
  memcpy((char *)to + to_offset, (const char *)from + from_offset, n_bytes);
  return WEFT_OK;
}

static weft_status cpu_load_weight(weft__backend *backend, weft_dtype dtype, int64_t n_rows, int64_t n_cols,
                                   const void *data, weft__weight_use use, const weft__weight_reader *reader,
                                   weft__storage *storage) {
  if (use == WEFT__WEIGHT_PLAIN) {
    size_t row_bytes = 0;
    weft__row_bytes(dtype, n_cols, &row_bytes);
    storage->n_bytes = (size_t)n_rows * row_bytes;
    enum { ALIGNMENT = 4 }; /* of the widest element; a file may place tensors anywhere */
    if ((uintptr_t)data % ALIGNMENT) {
      weft_status status = cpu_alloc(backend, storage->n_bytes, &storage->buffer);
      return status ? status : cpu_write(backend, storage->buffer, 0, data, storage->n_bytes);
    }
    storage->buffer = (void *)(uintptr_t)data; /* read only: no operator writes to a weight */
    storage->is_borrowed = true;
    return WEFT_OK;
  }
  size_t n_bytes, n_panels = (size_t)((n_rows + WEFT__PANEL - 1) / WEFT__PANEL);
  if (!weft__mul_size(n_panels, weft__panel_bytes(dtype, n_cols), &n_bytes))
    return weft__error(WEFT_EINVAL, "weight: its size overflows");
  weft_status status = cpu_alloc(backend, n_bytes, &storage->buffer);
  if (status) return status;
  storage->n_bytes = n_bytes;
  storage->layout = WEFT__LAYOUT_PACKED;
  weft__pack_weight(weft__cpu_of(backend), dtype, n_rows, n_cols, data, reader, storage->buffer);
  return WEFT_OK;
}

static void cpu_destroy(weft__backend *backend) {
  weft__cpu *cpu = weft__cpu_of(backend);
  weft__pool_free(cpu->pool);
  weft__buffers_free(cpu->buffers);
  weft_free(cpu);
}

static const weft__backend_class CPU_CLASS = {
    .destroy = cpu_destroy,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .write = cpu_write,
    .read = cpu_read,
    .copy = cpu_copy,
    .load_weight = cpu_load_weight,
    .read_packed = weft__cpu_read_packed,
    .measure_flops = weft__cpu_measure_flops,
    .ops =
        {
#define WEFT_OP(name, n_inputs, attributes, formula, gradient, cost) [WEFT_OP_ID_##name] = weft__cpu_##name,
#define WEFT_LOWERED(name, n_inputs, attributes, formula, gradient, cost)
#include "weft/ops.def"
#undef WEFT_OP
        },
};

weft_status weft__cpu_create(weft__backend **out, bool is_exact, int n_threads, const weft__cpu_list *cpus) {
  const weft__cpu_kernels *kernels = weft__cpu_select();
  if (!kernels) return weft_last_status();
  weft__cpu *cpu = weft__calloc(1, sizeof *cpu);
  if (!cpu) return WEFT_ENOMEM;
  cpu->base.class = &CPU_CLASS;
  cpu->kernels = kernels;
  cpu->is_exact = is_exact;
  weft_status status = weft__buffers_create(&cpu->buffers);
  if (!status) status = weft__pool_create(&cpu->pool, n_threads);
  if (!status && cpus) status = weft__pool_pin(cpu->pool, cpus);
  if (status) {
    cpu_destroy(&cpu->base);
    return status;
  }
  snprintf(cpu->base.name, sizeof cpu->base.name, "cpu (%s%s, %d thread%s)", kernels->name, is_exact ? ", exact" : "",
           n_threads, n_threads == 1 ? "" : "s");
  *out = &cpu->base;
  return WEFT_OK;
}

/* ---- row-wise parallelism ---- */

enum { ROW_TASK_ELEMENTS = 16384 }; /* below this a task costs less than handing it out */

typedef struct row_loop {
  weft__row_range task;
  void *context;
  int64_t n_rows, rows_per_task;
} row_loop;

static void row_task(void *context, int task, int worker) {
  (void)worker;
  const row_loop *loop = context;
  int64_t first = task * loop->rows_per_task, end = first + loop->rows_per_task;
  loop->task(loop->context, first, end < loop->n_rows ? end : loop->n_rows);
}

void weft__cpu_rows(weft__cpu *cpu, int64_t n_rows, int64_t cost, weft__row_range task, void *context) {
  if (n_rows == 0) return;
  row_loop loop = {task, context, n_rows, 1};
  if (cost < ROW_TASK_ELEMENTS) loop.rows_per_task = ROW_TASK_ELEMENTS / (cost > 0 ? cost : 1);
  while ((n_rows + loop.rows_per_task - 1) / loop.rows_per_task > 1 << 20) loop.rows_per_task *= 2;
  weft__pool_run(cpu->pool, (int)((n_rows + loop.rows_per_task - 1) / loop.rows_per_task), row_task, &loop);
}
