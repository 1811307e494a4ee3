/* memory.c - device memory: buffers that serve again, and transfers.
 *
 * Invariants: a freed buffer may be handed out at once, though recorded work still uses it: the queue runs in order.  It
 * may be destroyed only when nothing recorded uses it, so what is not kept waits in `doomed` for the next submit.
 * Transfers are in words of four bytes; every buffer's capacity is a multiple of 16. */
#include "gpu/gpu.h"
#include "base/pool.h"

#include <string.h> /* memcpy */

enum {
  /* wgpu-native takes host memory from blocks of 64 MiB and gives an empty block back to the driver: were staging to fill
   * one, every small write would have to make a block of its own and destroy it, at 1 ms each. */
  STAGING_BYTES = 8 << 20,
  LEAST_STAGED_BYTES = 1 << 20, /* smaller writes go through the queue */
  PIECE_BYTES = 1 << 19,
  MAX_COPIERS = 8,
  SPIN_MS = 2,
};
static const uint64_t MAX_KEPT_BYTES = (uint64_t)4 << 30;

/* A free buffer in a list. */
typedef struct free_buffer {
  weft__gpu_buffer *buffer;
  uint64_t capacity;
  struct free_buffer *next;
} free_buffer;

struct weft__gpu_memory {
  free_buffer *kept[WEFT__SIZE_CLASSES + 1]; /* by size class */
  free_buffer *doomed;
  uint64_t live_bytes, kept_bytes;
  weft__pool *copiers;        /* threads that copy on the host */
  weft__gpu_buffer *readback; /* what is read comes through here */
  size_t readback_bytes;
  weft__gpu_buffer *upload[2]; /* mapped or about to be; NULL before the first use */
  int next_upload;
};

weft_status weft__gpu_memory_create(weft__gpu_memory **out) {
  weft__gpu_memory *m = weft__calloc(1, sizeof *m);
  if (!m) return WEFT_ENOMEM;
  int n = weft__processors();
  weft_status status = weft__pool_create(&m->copiers, n < MAX_COPIERS ? n : MAX_COPIERS);
  if (status)
    weft_free(m);
  else
    *out = m;
  return status;
}

static void destroy_list(weft__gpu *gpu, free_buffer **list) {
  while (*list) {
    free_buffer *next = (*list)->next;
    gpu->abi->buffer_destroy((*list)->buffer);
    weft_free(*list);
    *list = next;
  }
}

void weft__gpu_memory_sweep(weft__gpu *gpu) { destroy_list(gpu, &gpu->memory->doomed); }

/* Moves everything kept to the doomed. */
static void doom_kept(weft__gpu_memory *m) {
  for (int c = 0; c <= WEFT__SIZE_CLASSES; c++)
    while (m->kept[c]) {
      free_buffer *f = m->kept[c];
      m->kept[c] = f->next;
      f->next = m->doomed;
      m->doomed = f;
    }
  m->kept_bytes = 0;
}

void weft__gpu_memory_free(weft__gpu *gpu) {
  if (!gpu->memory) return;
  doom_kept(gpu->memory);
  weft__gpu_memory_sweep(gpu);
  gpu->abi->buffer_destroy(gpu->memory->readback);
  for (int i = 0; i < 2; i++) gpu->abi->buffer_destroy(gpu->memory->upload[i]);
  weft__pool_free(gpu->memory->copiers);
  weft_free(gpu->memory);
}

/* ---- buffers ---- */

static weft_status create_buffer(weft__gpu *gpu, uint64_t capacity, weft__buffer_usage usage, weft__gpu_buffer **out) {
  *out = gpu->abi->buffer_create(gpu->device, capacity, usage);
  weft_status status = gpu->abi->take_error(gpu->device);
  if (!status && *out) return WEFT_OK;
  if (*out) gpu->abi->buffer_destroy(*out);
  *out = NULL;
  return weft__error(
      WEFT_ENOMEM, "%s: no %llu MiB of device memory (%llu MiB are in use; use smaller tensors or free some)",
      gpu->info.name, (unsigned long long)(capacity >> 20), (unsigned long long)(gpu->memory->live_bytes >> 20));
}

/* Fills a buffer with NaN. */
static weft_status poison(weft__gpu *gpu, weft__gpu_buffer *buffer, uint64_t n_bytes) {
  enum { CHUNK = 1 << 16 };
  unsigned char *ones = weft__alloc(CHUNK, 1);
  if (!ones) return WEFT_ENOMEM;
  memset(ones, 0xff, CHUNK);
  weft_status status = weft__gpu_submit(gpu);
  for (uint64_t at = 0; at < n_bytes; at += CHUNK)
    gpu->abi->buffer_write(gpu->device, buffer, at, ones, n_bytes - at < CHUNK ? (size_t)(n_bytes - at) : CHUNK);
  weft_free(ones);
  return status;
}

weft_status weft__gpu_alloc_buffer(weft__gpu *gpu, size_t n_bytes, weft__gpu_buffer **buffer) {
  weft__backend *backend = &gpu->base;
  weft__gpu_memory *m = gpu->memory;
  size_t capacity;
  int c = weft__size_class(n_bytes, &capacity);
  free_buffer *f = m->kept[c];
  if (f && f->capacity == capacity) {
    m->kept[c] = f->next;
    m->kept_bytes -= capacity;
    *buffer = f->buffer;
    weft_free(f);
  } else {
    weft__gpu_buffer *created;
    weft_status status = create_buffer(gpu, capacity, WEFT__BUFFER_STORAGE, &created);
    if (status) {                     /* what is kept may be what is missing */
      status = weft__gpu_submit(gpu); /* faults are for who waits for results */
      gpu->abi->poll(gpu->device, true);
      gpu->n_in_flight = 0;
      doom_kept(m);
      weft__gpu_memory_sweep(gpu);
      if (!status) status = create_buffer(gpu, capacity, WEFT__BUFFER_STORAGE, &created);
      if (status) return status;
    }
    *buffer = created;
  }
  m->live_bytes += capacity;
  if (m->live_bytes + m->kept_bytes > backend->peak_bytes) backend->peak_bytes = m->live_bytes + m->kept_bytes;
  weft_status status = backend->poison ? poison(gpu, *buffer, capacity) : WEFT_OK;
  if (status) weft__gpu_free_buffer(gpu, *buffer, n_bytes);
  return status;
}

weft_status weft__gpu_alloc(weft__backend *backend, size_t n_bytes, void **buffer) {
  weft__gpu *gpu = weft__gpu_of(backend);
  size_t capacity;
  weft__size_class(n_bytes, &capacity);
  if (capacity > gpu->info.limits.max_buffer_bytes) return weft__gpu_pieces_alloc(gpu, n_bytes, buffer);
  weft__gpu_buffer *one;
  weft_status status = weft__gpu_alloc_buffer(gpu, n_bytes, &one);
  if (!status) *buffer = one;
  return status;
}

void weft__gpu_free(weft__backend *backend, void *buffer, size_t n_bytes) {
  weft__gpu *gpu = weft__gpu_of(backend);
  if (!weft__gpu_pieces_free(gpu, buffer)) weft__gpu_free_buffer(gpu, buffer, n_bytes);
}

void weft__gpu_free_buffer(weft__gpu *gpu, weft__gpu_buffer *buffer, size_t n_bytes) {
  weft__gpu_memory *m = gpu->memory;
  size_t capacity;
  int c = weft__size_class(n_bytes, &capacity);
  m->live_bytes -= capacity;
  free_buffer *f = weft__alloc(1, sizeof *f);
  if (!f) { /* no memory for a list entry: wait until it can be destroyed; errors are for who can be told */
    weft__gpu_submit(gpu);
    gpu->abi->poll(gpu->device, true);
    gpu->abi->buffer_destroy(buffer);
    return;
  }
  if (m->kept_bytes + capacity > MAX_KEPT_BYTES) doom_kept(m); /* what has not served lately makes room */
  *f = (free_buffer){buffer, capacity, m->kept[c]};
  m->kept[c] = f;
  m->kept_bytes += capacity;
}

/* ---- transfers ---- */

/* A copy between host buffers, cut into pieces for the threads. */
typedef struct host_copy {
  char *to;
  const char *from;
  size_t n_bytes;
} host_copy;

static void copy_piece(void *context, int task, int worker) {
  (void)worker;
  const host_copy *c = context;
  size_t at = (size_t)task * PIECE_BYTES;
  memcpy(c->to + at, c->from + at, c->n_bytes - at < PIECE_BYTES ? c->n_bytes - at : PIECE_BYTES);
}

/* One thread copies 5 GB/s on a machine whose bus carries 46. */
static void copy_on_host(weft__gpu_memory *m, void *to, const void *from, size_t n_bytes) {
  host_copy c = {to, from, n_bytes};
  weft__pool_run(m->copiers, (int)((n_bytes + PIECE_BYTES - 1) / PIECE_BYTES), copy_piece, &c);
}

/* Waits until a buffer whose mapping has begun is mapped. */
static weft_status wait_mapped(weft__gpu *gpu, weft__gpu_buffer *buffer) {
  const weft__abi *abi = gpu->abi;
  /* Looking again and again answers a short wait in a third of the time that sleeping takes. */
  for (double start = weft__now_ms(); abi->read_state(buffer) == 0;)
    abi->poll(gpu->device, weft__now_ms() - start > SPIN_MS);
  if (abi->read_state(buffer) > 0) return WEFT_OK;
  weft_status status = abi->take_error(gpu->device);
  return status ? status : weft__error(WEFT_EDEVICE, "%s: a transfer failed", gpu->info.name);
}

/* Reads whole words, at most STAGING_BYTES; the fault words, if they are due, come behind them. */
static weft_status read_words(weft__gpu *gpu, weft__gpu_buffer *buffer, uint64_t offset, void *data, size_t n_bytes) {
  weft__gpu_memory *m = gpu->memory;
  const weft__abi *abi = gpu->abi;
  bool is_fault_due = gpu->faults.is_due;
  size_t n_mapped = n_bytes + (is_fault_due ? WEFT__FAULT_BYTES : 0);
  if (m->readback_bytes < n_mapped) {
    size_t capacity;
    weft__size_class(n_mapped, &capacity);
    abi->buffer_destroy(m->readback);
    m->readback = NULL;
    m->readback_bytes = 0;
    weft_status status = create_buffer(gpu, capacity, WEFT__BUFFER_READBACK, &m->readback);
    if (status) return status;
    m->readback_bytes = capacity;
  }
  abi->copy(gpu->device, m->readback, 0, buffer, offset, n_bytes);
  if (is_fault_due) abi->copy(gpu->device, m->readback, n_bytes, gpu->faults.buffer, 0, WEFT__FAULT_BYTES);
  gpu->has_copies = true;
  weft_status status = weft__gpu_submit(gpu);
  if (status) return status;
  abi->read_begin(gpu->device, m->readback, n_mapped);
  status = wait_mapped(gpu, m->readback);
  uint32_t faults[WEFT__FAULT_BYTES / 4];
  if (!status) {
    const char *mapped = abi->read_data(m->readback, n_mapped);
    copy_on_host(m, data, mapped, n_bytes);
    if (is_fault_due) memcpy(faults, mapped + n_bytes, sizeof faults);
  }
  abi->read_end(m->readback);
  gpu->n_in_flight = 0;
  if (!status) status = abi->take_error(gpu->device);
  return status || !is_fault_due ? status : weft__gpu_faults_tell(gpu, faults);
}

/* Writes at most STAGING_BYTES through one of two mapped buffers, which is mapped again once the device has read it. */
static weft_status write_staged(weft__gpu *gpu, weft__gpu_buffer *buffer, uint64_t offset, const void *data,
                                size_t n_bytes) {
  weft__gpu_memory *m = gpu->memory;
  const weft__abi *abi = gpu->abi;
  weft__gpu_buffer **staging = &m->upload[m->next_upload];
  m->next_upload ^= 1;
  weft_status status =
      *staging ? wait_mapped(gpu, *staging) : create_buffer(gpu, STAGING_BYTES, WEFT__BUFFER_UPLOAD, staging);
  if (status) return status;
  copy_on_host(m, abi->buffer_mapped(*staging, n_bytes), data, n_bytes);
  abi->buffer_unmap(*staging);
  abi->copy(gpu->device, buffer, offset, *staging, 0, n_bytes);
  gpu->has_copies = true;
  status = weft__gpu_submit(gpu);
  abi->read_begin(gpu->device, *staging, STAGING_BYTES);
  return status;
}

weft_status weft__gpu_read(weft__backend *backend, const void *buffer, size_t offset, void *data, size_t n_bytes) {
  weft__gpu *gpu = weft__gpu_of(backend);
  char *to = data;
  weft_status status = WEFT_OK;
  if (offset % 4 == 0 && n_bytes % 4 == 0) {
    for (size_t at = 0, n = 0; at < n_bytes && !status; at += n) {
      n = n_bytes - at < STAGING_BYTES ? n_bytes - at : STAGING_BYTES;
      weft__gpu_range part = weft__gpu_part(gpu, buffer, offset + at, n);
      n = (size_t)part.n_bytes;
      status = read_words(gpu, part.buffer, part.offset, to + at, n);
    }
    return status;
  }
  /* Elements of two bytes that share a word with others: read the words around them. */
  size_t first = offset / 4 * 4, span = (offset + n_bytes + 3) / 4 * 4 - first;
  char *words = weft__alloc(span, 1);
  if (!words) return WEFT_ENOMEM;
  status = weft__gpu_read(backend, buffer, first, words, span);
  if (!status) memcpy(data, words + (offset - first), n_bytes);
  weft_free(words);
  return status;
}

weft_status weft__gpu_write(weft__backend *backend, void *buffer, size_t offset, const void *data, size_t n_bytes) {
  weft__gpu *gpu = weft__gpu_of(backend);
  if (offset % 4 || n_bytes % 4) {
    size_t first = offset / 4 * 4, span = (offset + n_bytes + 3) / 4 * 4 - first;
    char *words = weft__alloc(span, 1);
    if (!words) return WEFT_ENOMEM;
    /* A fault that another operator has noted is not for who writes: it stays due. */
    bool is_fault_due = gpu->faults.is_due;
    gpu->faults.is_due = false;
    weft_status status = weft__gpu_read(backend, buffer, first, words, span);
    gpu->faults.is_due = is_fault_due;
    if (!status) memcpy(words + (offset - first), data, n_bytes);
    if (!status) status = weft__gpu_write(backend, buffer, first, words, span);
    weft_free(words);
    return status;
  }
  /* A write by the queue comes before whatever is submitted next: recorded work that reads the buffer's former contents
   * must go first. */
  weft_status status = weft__gpu_submit(gpu);
  for (size_t at = 0, n = 0; at < n_bytes && !status; at += n) {
    n = n_bytes - at < STAGING_BYTES ? n_bytes - at : STAGING_BYTES;
    weft__gpu_range part = weft__gpu_part(gpu, buffer, offset + at, n);
    n = (size_t)part.n_bytes;
    if (n >= LEAST_STAGED_BYTES) {
      status = write_staged(gpu, part.buffer, part.offset, (const char *)data + at, n);
    } else {
      gpu->abi->buffer_write(gpu->device, part.buffer, part.offset, (const char *)data + at, n);
      status = gpu->abi->take_error(gpu->device);
    }
  }
  return status;
}

weft_status weft__gpu_copy(weft__backend *backend, void *to, size_t to_offset, const void *from, size_t from_offset,
                           size_t n_bytes) {
  weft__gpu *gpu = weft__gpu_of(backend);
  for (size_t at = 0; at < n_bytes;) {
    weft__gpu_range source = weft__gpu_part(gpu, from, from_offset + at, n_bytes - at);
    weft__gpu_range target = weft__gpu_part(gpu, to, to_offset + at, source.n_bytes);
    gpu->abi->copy(gpu->device, target.buffer, target.offset, source.buffer, source.offset, target.n_bytes);
    at += (size_t)target.n_bytes;
  }
  gpu->has_copies = true;
  return WEFT_OK;
}

/* ---- windows ---- */

int64_t weft__gpu_window_elements(const weft__gpu *gpu) {
  /* Drivers have been seen to read wrongly near the end of bindings of 2 GiB; halves cost nothing. */
  enum { MAX_WINDOW_BYTES = 1 << 30 };
  uint64_t n_bytes =
      gpu->info.limits.max_binding_bytes < MAX_WINDOW_BYTES ? gpu->info.limits.max_binding_bytes : MAX_WINDOW_BYTES;
  uint64_t n = (n_bytes - gpu->info.limits.storage_alignment) / 4;
  return (int64_t)(n / 1024 * 1024);
}

weft_status weft__gpu_too_large(const weft__gpu *gpu, const char *what) {
  return weft__error(WEFT_EUNSUPPORTED, "%s: %s: an operand larger than one binding (%lld elements)", gpu->info.name,
                     what, (long long)weft__gpu_window_elements(gpu));
}

/* n elements of `size` bytes from element `first` of a storage on. */
static weft__gpu_range elements(const weft__gpu *gpu, const weft__storage *storage, uint64_t first, int64_t n,
                                uint64_t size, uint32_t *offset) {
  uint64_t start = first * size, alignment = gpu->info.limits.storage_alignment,
           aligned = start / alignment * alignment;
  size_t capacity;
  weft__size_class(storage->n_bytes, &capacity);
  if (weft__gpu_is_pieced(gpu, storage->buffer)) capacity = (storage->n_bytes + 15) / 16 * 16;
  uint64_t n_bytes = (start - aligned + (uint64_t)(n > 0 ? n : 1) * size + 15) / 16 * 16; /* no binding is empty */
  if (aligned + n_bytes > capacity) n_bytes = capacity - aligned;
  *offset = (uint32_t)((start - aligned) / size);
  return (weft__gpu_range){storage->buffer, aligned, n_bytes};
}

weft__gpu_range weft__gpu_words(const weft__gpu *gpu, const weft__storage *storage, uint64_t first, int64_t n,
                                uint32_t *offset) {
  return elements(gpu, storage, first, n, 4, offset);
}

weft__gpu_range weft__gpu_window(const weft__gpu *gpu, const weft_tensor *t, int64_t first, int64_t n,
                                 uint32_t *offset) {
  uint64_t size = (uint64_t)weft__dtype_get(t->dtype)->block_bytes;
  return elements(gpu, t->storage, (uint64_t)(t->offset + first), n, size, offset);
}
