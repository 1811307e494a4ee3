/* matmul.c - multiplies two matrices on the best device there is and prints the product.
 *
 *   cc -o matmul matmul.c $(pkg-config --cflags --libs weft) && ./matmul
 *
 * What may fail is checked at the end of a chain: a tensor function that is given NULL returns NULL, and the message of
 * the first failure stays. */
#include <weft.h>

#include <stdio.h>

static void print_matrix(const float *values, int rows, int columns) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) printf("%g%c", values[i * columns + j], j + 1 < columns ? ' ' : '\n');
}

/* c [2,2] = a [2,3] b [3,2]; the scope owns all three and frees them. */
static weft_status multiply(weft_scope *scope, float c[4]) {
  const float a[] = {1, 2, 3, 4, 5, 6};
  const float b[] = {7, 8, 9, 10, 11, 12};
  weft_tensor *left = weft_tensor_from(scope, WEFT_F32, 2, (const int64_t[]){2, 3}, a);
  weft_tensor *right = weft_tensor_from(scope, WEFT_F32, 2, (const int64_t[]){3, 2}, b);
  weft_tensor *product = weft_matmul(scope, left, right, &(weft_matmul_attrs){0});
  if (!product) return weft_last_status();
  return weft_tensor_read(product, c, 4 * sizeof *c);
}

int main(void) {
  weft_device *device = NULL;
  weft_scope *scope = NULL;
  float c[4];
  weft_status status = weft_device_open(&device, NULL);
  if (!status) status = weft_scope_open(&scope, device, NULL);
  if (!status) status = multiply(scope, c);
  if (status)
    fprintf(stderr, "matmul: %s\n", weft_last_error());
  else
    print_matrix(c, 2, 2);
  weft_scope_close(scope);
  weft_device_close(device);
  return status != WEFT_OK;
}
