/* fallback.c - an operator that a backend lacks, run by the CPU: operands come to the host, the result goes back.
 *
 * It is counted, and WEFT_STRICT=1 makes it an error, so that silent slowness cannot hide. */
#include "tensor/tensor.h"

#include <stdlib.h> /* getenv */
#include <string.h> /* strcmp */

/* A host tensor of the shape and dtype of `t`, contiguous; undefined contents. */
static weft_status mirror_open(weft__backend *host, const weft_tensor *t, weft_tensor *mirror, weft__storage *storage) {
  *mirror = *t;
  weft__shape_strides(t->rank, t->shape, mirror->strides);
  mirror->offset = 0;
  mirror->storage = storage;
  *storage = (weft__storage){.backend = host, .n_bytes = weft_tensor_bytes(t)};
  return host->class->alloc(host, storage->n_bytes, &storage->buffer);
}

static void mirror_close(weft__storage *storage) {
  if (storage->buffer) storage->backend->class->free(storage->backend, storage->buffer, storage->n_bytes);
}

/* Puts the elements of axis `axis` of `t` from element `index` on, at *data in row-major order, into its span: elements that
 * begin with the tensor's first. */
static void scatter_axis(const weft_tensor *t, size_t size, int axis, int64_t index, const char **data, char *span) {
  if (axis == t->rank) {
    memcpy(span + (size_t)index * size, *data, size);
    *data += size;
    return;
  }
  for (int64_t i = 0; i < t->shape[axis]; i++)
    scatter_axis(t, size, axis + 1, index + i * t->strides[axis], data, span);
}

/* Writes a mirror's elements to the tensor.  What lies between those of a view stays as it is on the device by now: another
 * operand may have been written there. */
static weft_status write_back(weft_tensor *t, const weft__storage *mirror) {
  if (weft__is_contiguous(t)) return weft_tensor_write(t, mirror->buffer, mirror->n_bytes);
  if (weft_tensor_numel(t) == 0) return WEFT_OK;
  weft__backend *backend = t->storage->backend;
  size_t size = (size_t)weft__dtype_get(t->dtype)->block_bytes;
  size_t offset = (size_t)t->offset * size, n_bytes = (size_t)weft__tensor_span(t) * size;
  char *span = weft__alloc(n_bytes, 1);
  if (!span) return WEFT_ENOMEM;
  weft_status status = backend->class->read(backend, t->storage->buffer, offset, span, n_bytes);
  const char *data = mirror->buffer;
  if (!status) {
    scatter_axis(t, size, 0, 0, &data, span);
    status = backend->class->write(backend, t->storage->buffer, offset, span, n_bytes);
  }
  weft_free(span);
  return status;
}

static bool is_strict(void) {
  const char *text = getenv("WEFT_STRICT");
  return text && *text && strcmp(text, "0");
}

weft_status weft__op_fallback(weft__backend *backend, const weft__op_row *row, const weft__op_call *call) {
  weft__backend *host = backend->fallback;
  if (is_strict())
    return weft__error(WEFT_EUNSUPPORTED, "%s: not available on %s, and WEFT_STRICT forbids the CPU", row->name,
                       backend->name);
  backend->n_fallbacks++;
  weft_tensor tensors[WEFT__OP_MAX_INPUTS + 1];
  weft__storage storages[WEFT__OP_MAX_INPUTS + 1] = {{.buffer = NULL}};
  weft__op_call mirrored = *call;
  weft_status status = WEFT_OK;
  for (int i = 0; i < call->n_inputs && !status; i++) {
    status = mirror_open(host, call->in[i], &tensors[i], &storages[i]);
    if (!status) status = weft_tensor_read(call->in[i], storages[i].buffer, storages[i].n_bytes);
    mirrored.in[i] = &tensors[i];
  }
  mirrored.out = &tensors[call->n_inputs];
  if (row->is_in_place)
    tensors[call->n_inputs] = tensors[0];
  else if (!status)
    status = mirror_open(host, call->out, mirrored.out, &storages[call->n_inputs]);
  if (!status) status = host->class->ops[call->op](host, &mirrored);
  if (!status && !row->is_in_place)
    status = weft_tensor_write(call->out, storages[call->n_inputs].buffer, storages[call->n_inputs].n_bytes);
  for (int i = 0; i < call->n_inputs && row->is_in_place && !status; i++) /* it may have written to any of them */
    status = write_back(call->in[i], &storages[i]);
  for (int i = 0; i <= call->n_inputs; i++) mirror_close(&storages[i]);
  return status;
}
