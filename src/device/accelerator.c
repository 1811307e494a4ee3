/* accelerator.c - a device as an accelerator: upload, multiply, download, free. */
#include "weft/accelerator.h"
#include "weft/ops.h"
#include "tensor/backend.h" /* weft_device */

#include <string.h> /* memcpy */

/* Rows of `width` elements, ld apart, as a tensor [rows,width]. */
static weft_tensor *upload(weft_scope *scope, const float *data, int64_t rows, int64_t width, int64_t ld) {
  const int64_t shape[] = {rows, width};
  if (ld == width) return weft_tensor_from(scope, WEFT_F32, 2, shape, data);
  float *dense = weft__alloc((size_t)(rows * width), sizeof *dense);
  if (!dense) return NULL;
  for (int64_t i = 0; i < rows; i++) memcpy(dense + i * width, data + i * ld, (size_t)width * sizeof *dense);
  weft_tensor *t = weft_tensor_from(scope, WEFT_F32, 2, shape, dense);
  weft_free(dense);
  return t;
}

static weft_status download(const weft_tensor *t, float *data, int64_t rows, int64_t width, int64_t ld) {
  if (ld == width) return weft_tensor_read(t, data, weft_tensor_bytes(t));
  float *dense = weft__alloc((size_t)(rows * width), sizeof *dense);
  if (!dense) return WEFT_ENOMEM;
  weft_status status = weft_tensor_read(t, dense, weft_tensor_bytes(t));
  for (int64_t i = 0; i < rows && !status; i++) memcpy(data + i * ld, dense + i * width, (size_t)width * sizeof *dense);
  weft_free(dense);
  return status;
}

static weft_status device_matmul(void *context, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                                 int transpose_a, const float *b, int64_t ldb, int transpose_b, float *c, int64_t ldc) {
  weft_scope *scope;
  weft_status status = weft_scope_open(&scope, context, NULL);
  if (status) return status;
  const weft_matmul_attrs attrs = {.transpose_a = transpose_a, .transpose_b = transpose_b};
  weft_tensor *left = transpose_a ? upload(scope, a, k, m, lda) : upload(scope, a, m, k, lda);
  weft_tensor *right = transpose_b ? upload(scope, b, n, k, ldb) : upload(scope, b, k, n, ldb);
  weft_tensor *y = left && right ? weft_matmul(scope, left, right, &attrs) : NULL;
  status = y ? download(y, c, m, n, ldc) : weft_last_status();
  weft_scope_close(scope);
  return status;
}

weft_status weft_accelerator_from_device(weft_device *device, weft_accelerator *out) {
  if (!device) return weft__error(WEFT_EINVAL, "accelerator: no device (open one with weft_device_open)");
  if (!device->host) /* its products would be offered to the accelerator again */
    return weft__error(WEFT_EINVAL, "accelerator: the device is the CPU itself (open a GPU)");
  *out = (weft_accelerator){device, device_matmul};
  return WEFT_OK;
}
