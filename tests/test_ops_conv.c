/* test_ops_conv.c - the operators on images, against loops in double on every CPU variant and every generation of the WebGPU
 * library: im2col, col2im, conv2d and max_pool2d with their gradients.  Extents, strides, padding and dilation of all sorts,
 * dtypes, views, empty tensors, batches that are convolved in rounds.  The gradients' loops themselves are compared with
 * central differences. */
#include "support/gradient.h"
#include "support/tensors.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Images, filters, and the windows that slide over them; all attributes are set. */
typedef struct geometry {
  int64_t n, c, m, in[2];
  int64_t kernel[2], stride[2], padding[2], dilation[2];
} geometry;

static weft_window2d_attrs attrs_of(const geometry *g) {
  weft_window2d_attrs a;
  for (int i = 0; i < 2; i++) {
    a.input[i] = g->in[i];
    a.kernel[i] = g->kernel[i];
    a.stride[i] = g->stride[i];
    a.padding[i] = g->padding[i];
    a.dilation[i] = g->dilation[i];
  }
  return a;
}

static int64_t out_of(const geometry *g, int axis) {
  return (g->in[axis] + 2 * g->padding[axis] - g->dilation[axis] * (g->kernel[axis] - 1) - 1) / g->stride[axis] + 1;
}

static size_t n_x(const geometry *g) { return (size_t)(g->n * g->c * g->in[0] * g->in[1]); }
static size_t n_w(const geometry *g) { return (size_t)(g->m * g->c * g->kernel[0] * g->kernel[1]); }
static size_t n_windows(const geometry *g) { return (size_t)(g->n * out_of(g, 0) * out_of(g, 1)); }
static size_t n_rows(const geometry *g) { return (size_t)(g->c * g->kernel[0] * g->kernel[1]); }

/* Place in x of what row `row` and column `column` of the columns has; -1 outside the image. */
static int64_t place_of(const geometry *g, int64_t row, int64_t column) {
  int64_t kx = row % g->kernel[1], ky = row / g->kernel[1] % g->kernel[0], c = row / g->kernel[1] / g->kernel[0];
  int64_t ox = column % out_of(g, 1), oy = column / out_of(g, 1) % out_of(g, 0),
          n = column / out_of(g, 1) / out_of(g, 0);
  int64_t y = oy * g->stride[0] - g->padding[0] + ky * g->dilation[0];
  int64_t x = ox * g->stride[1] - g->padding[1] + kx * g->dilation[1];
  if (y < 0 || y >= g->in[0] || x < 0 || x >= g->in[1]) return -1;
  return ((n * g->c + c) * g->in[0] + y) * g->in[1] + x;
}

static const geometry GEOMETRIES[] = {
    {1, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 3, 4, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {1, 2, 3, {63, 65}, {3, 2}, {2, 3}, {1, 0}, {1, 1}},
    {2, 2, 5, {9, 7}, {3, 3}, {1, 2}, {2, 3}, {2, 3}},
    {3, 1, 2, {5, 8}, {5, 8}, {1, 1}, {0, 0}, {1, 1}},
    {2, 4, 3, {6, 5}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 3, 2, {8, 9}, {1, 1}, {3, 2}, {0, 0}, {1, 1}},
    {1, 1, 2, {2, 3}, {4, 3}, {1, 1}, {1, 2}, {1, 1}},
    {1, 1, 65, {1, 257}, {1, 7}, {1, 1}, {0, 3}, {1, 1}},
    {70, 9, 1, {3, 1}, {2, 1}, {1, 1}, {0, 0}, {1, 1}},
    {1, 1, 1, {3, 2200}, {3, 3}, {1, 2}, {1, 1}, {1, 1}},
    /* empty ones: no images, no channels, no filters, images without rows whose padding the windows meet */
    {0, 3, 4, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 0, 4, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 0, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 4, {0, 7}, {2, 3}, {1, 1}, {1, 1}, {1, 1}},
};

/* The forms and dtypes that operands come in. */
static const struct {
  test_form form;
  weft_dtype dtype;
} OPERANDS[] = {
    {TEST_WHOLE, WEFT_F32},  {TEST_TURNED, WEFT_F32},   {TEST_COLUMNS, WEFT_F32},
    {TEST_TURNED, WEFT_F16}, {TEST_COLUMNS, WEFT_BF16},
};

/* Every geometry meets whole f32 tensors and one other kind of operands, the second one all kinds. */
static bool is_tested(size_t index, size_t operand) {
  return operand == 0 || index == 1 || operand == 1 + index % (WEFT_COUNT(OPERANDS) - 1);
}

static weft_tensor *images(test_device *d, const geometry *g, size_t operand) {
  return test_operand(d, OPERANDS[operand].form, OPERANDS[operand].dtype, TEST_SHAPE(g->n, g->c, g->in[0], g->in[1]),
                      -1, 1, 1);
}

/* ---- im2col and col2im ---- */

static void check_im2col(test_device *d, const geometry *g, size_t operand) {
  const weft_im2col_attrs attrs = attrs_of(g);
  weft_tensor *x = images(d, g, operand), *y = weft_im2col(d->scope, x, &attrs);
  int64_t rows = (int64_t)n_rows(g), columns = (int64_t)n_windows(g);
  test_expect_shape("im2col", y, WEFT_F32, TEST_SHAPE(rows, columns));
  double *elements = test_values(x), *want = test_doubles(n_rows(g) * n_windows(g));
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = 0; column < columns; column++) {
      int64_t place = place_of(g, row, column);
      if (place >= 0) want[row * columns + column] = elements[place];
    }
  test_expect_values("im2col", d, y, want, 0);
  free(want);
  free(elements);
}

static void check_col2im(test_device *d, const geometry *g, size_t operand) {
  const weft_col2im_attrs attrs = attrs_of(g);
  int64_t rows = (int64_t)n_rows(g), columns = (int64_t)n_windows(g);
  weft_tensor *a =
      test_operand(d, OPERANDS[operand].form, OPERANDS[operand].dtype, TEST_SHAPE(rows, columns), -1, 1, 2);
  weft_tensor *y = weft_col2im(d->scope, a, &attrs);
  test_expect_shape("col2im", y, WEFT_F32, TEST_SHAPE(g->n, g->c, g->in[0], g->in[1]));
  double *elements = test_values(a), *want = test_doubles(n_x(g));
  for (int64_t row = 0; row < rows; row++)
    for (int64_t column = 0; column < columns; column++) {
      int64_t place = place_of(g, row, column);
      if (place >= 0) want[place] += elements[row * columns + column];
    }
  /* Some tens of numbers below 1 meet at a place. */
  test_compare("col2im", d, y, want, NULL, 1e-6, TEST_ROUNDING);
  free(want);
  free(elements);
}

static void check_columns(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(GEOMETRIES); i++)
    for (size_t operand = 0; operand < WEFT_COUNT(OPERANDS); operand++) {
      if (!is_tested(i, operand)) continue;
      check_im2col(d, &GEOMETRIES[i], operand);
      check_col2im(d, &GEOMETRIES[i], operand);
    }
}

static void columns_are_what_windows_meet(void **state) {
  (void)state;
  test_each_device(2, check_columns);
}

/* ---- conv2d ---- */

/* What a convolution makes: y [N,M,Ho,Wo], and of dy the gradients by x and w; those that are not NULL, from zeros. */
static void convolve(const geometry *g, const double *x, const double *w, const double *dy, double *y, double *dx,
                     double *dw) {
  int64_t windows = out_of(g, 0) * out_of(g, 1), rows = (int64_t)n_rows(g);
  for (int64_t column = 0; column < (int64_t)n_windows(g); column++)
    for (int64_t row = 0; row < rows; row++) {
      int64_t place = place_of(g, row, column);
      for (int64_t m = 0; m < g->m && place >= 0; m++) {
        int64_t made = (column / windows * g->m + m) * windows + column % windows;
        if (y) y[made] += x[place] * w[m * rows + row];
        if (dx) dx[place] += dy[made] * w[m * rows + row];
        if (dw) dw[m * rows + row] += dy[made] * x[place];
      }
    }
}

static void check_conv2d(test_device *d, const geometry *g, size_t operand) {
  const weft_conv2d_attrs attrs = attrs_of(g);
  const int64_t made[] = {g->n, g->m, out_of(g, 0), out_of(g, 1)}, kernel[] = {g->m, g->c, g->kernel[0], g->kernel[1]};
  size_t n_y = n_windows(g) * (size_t)g->m;
  weft_tensor *x = images(d, g, operand);
  weft_tensor *w = test_operand(d, OPERANDS[operand].form, OPERANDS[operand].dtype, 4, kernel, -1, 1, 3);
  weft_tensor *dy = test_operand(d, OPERANDS[operand].form, OPERANDS[operand].dtype, 4, made, -1, 1, 4);
  weft_tensor *y = weft_conv2d(d->scope, x, w, &attrs), *dx = weft_conv2d_grad_input(d->scope, dy, w, &attrs);
  weft_tensor *dw = weft_conv2d_grad_weight(d->scope, x, dy, &attrs);
  test_expect_shape("conv2d", y, WEFT_F32, 4, made);
  test_expect_shape("conv2d_grad_input", dx, WEFT_F32, TEST_SHAPE(g->n, g->c, g->in[0], g->in[1]));
  test_expect_shape("conv2d_grad_weight", dw, WEFT_F32, 4, kernel);
  double *of_x = test_values(x), *of_w = test_values(w), *of_dy = test_values(dy);
  double *want_y = test_doubles(n_y), *want_dx = test_doubles(n_x(g)), *want_dw = test_doubles(n_w(g));
  convolve(g, of_x, of_w, of_dy, want_y, want_dx, want_dw);
  /* Sums of products below 1: each addition rounds what the sum is by then, which grows like a root. */
  test_compare("conv2d", d, y, want_y, NULL, 1e-6 + 5e-8 * (double)n_rows(g), 0);
  test_compare("conv2d_grad_input", d, dx, want_dx, NULL, 1e-6 + 5e-8 * (double)(n_rows(g) * (size_t)g->m), 0);
  test_compare("conv2d_grad_weight", d, dw, want_dw, NULL, 1e-6 + 5e-8 * (double)n_windows(g), 0);
  double *const all[] = {of_x, of_w, of_dy, want_y, want_dx, want_dw};
  for (size_t i = 0; i < WEFT_COUNT(all); i++) free(all[i]);
}

static void check_convolutions(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(GEOMETRIES); i++)
    for (size_t operand = 0; operand < WEFT_COUNT(OPERANDS); operand++)
      if (is_tested(i, operand)) check_conv2d(d, &GEOMETRIES[i], operand);
}

static void conv2d_is_its_sum(void **state) {
  (void)state;
  test_each_device(2, check_convolutions);
}

/* Columns of more elements than are made at a time, for 7 images and then one, against those of the last image alone.  The
 * gradient by the weights is the sum of the parts'. */
static void check_rounds(test_device *d) {
  const weft_window2d_attrs attrs = {{64, 64}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  weft_tensor *x = test_random(d, TEST_SHAPE(8, 16, 64, 64), 1, 1), *w = test_random(d, TEST_SHAPE(2, 16, 3, 3), 1, 2);
  weft_tensor *dy = test_random(d, TEST_SHAPE(8, 2, 64, 64), 1, 3);
  weft_tensor *last_x = weft_slice(d->scope, x, 0, 7, 1), *last_dy = weft_slice(d->scope, dy, 0, 7, 1);
  double *want = test_values(weft_conv2d(d->scope, last_x, w, &attrs));
  test_compare("conv2d", d, weft_slice(d->scope, weft_conv2d(d->scope, x, w, &attrs), 0, 7, 1), want, NULL, 3e-5, 0);
  free(want);
  want = test_values(weft_conv2d_grad_input(d->scope, last_dy, w, &attrs));
  test_compare("conv2d_grad_input", d, weft_slice(d->scope, weft_conv2d_grad_input(d->scope, dy, w, &attrs), 0, 7, 1),
               want, NULL, 3e-5, 0);
  free(want);
  want = test_values(weft_conv2d_grad_weight(d->scope, last_x, last_dy, &attrs));
  double *first = test_values(
      weft_conv2d_grad_weight(d->scope, weft_slice(d->scope, x, 0, 0, 7), weft_slice(d->scope, dy, 0, 0, 7), &attrs));
  for (int i = 0; i < 2 * 16 * 3 * 3; i++) want[i] += first[i];
  test_compare("conv2d_grad_weight", d, weft_conv2d_grad_weight(d->scope, x, dy, &attrs), want, NULL, 1e-3, 0);
  free(want);
  free(first);
}

static void large_batches_are_convolved_in_rounds(void **state) {
  (void)state;
  test_each_device(2, check_rounds);
}

/* Fails unless every 1009th element of `y` is that of `x` which `place` finds for it, or 0. */
static void expect_sampled(const char *what, const weft_tensor *x, const weft_tensor *y, const geometry *g,
                           int64_t (*place)(const geometry *g, int64_t e)) {
  float *from = test_read(x), *got = test_read(y);
  for (int64_t e = 0; e < weft_tensor_numel(y); e += 1009) {
    int64_t at = place(g, e);
    if (!(got[e] == (at < 0 ? 0 : from[at]))) fail_msg("%s: element %lld is %g", what, (long long)e, (double)got[e]);
  }
  free(from);
  free(got);
}

static int64_t place_in_image(const geometry *g, int64_t e) {
  return place_of(g, e / (int64_t)n_windows(g), e % (int64_t)n_windows(g));
}

/* Of windows of one element, a stride apart: the column that an element of the image comes from. */
static int64_t place_in_columns(const geometry *g, int64_t e) {
  int64_t x = e % g->in[1], y = e / g->in[1];
  return x % g->stride[1] || y % g->stride[0] ? -1 : y / g->stride[0] * out_of(g, 1) + x / g->stride[1];
}

/* Results larger than the lowest limit of a binding. */
static void check_large(test_device *d) {
  if (strcmp(d->variant, "gpu lowest limits")) return;
  const geometry wide = {1, 1, 0, {810, 909}, {7, 7}, {1, 1}, {3, 3}, {1, 1}};
  const geometry sparse = {1, 1, 0, {5800, 5900}, {1, 1}, {3, 3}, {0, 0}, {1, 1}};
  const weft_window2d_attrs of_wide = attrs_of(&wide), of_sparse = attrs_of(&sparse);
  weft_tensor *x = test_random(d, TEST_SHAPE(1, 1, 810, 909), 1, 1);
  expect_sampled("im2col", x, weft_im2col(d->scope, x, &of_wide), &wide, place_in_image);
  weft_tensor *columns = test_random(d, TEST_SHAPE(1, (int64_t)n_windows(&sparse)), 1, 2);
  expect_sampled("col2im", columns, weft_col2im(d->scope, columns, &of_sparse), &sparse, place_in_columns);
}

static void results_exceed_a_binding(void **state) {
  (void)state;
  test_each_gpu(WEFT_EXACT, check_large);
}

/* Attributes of zeros: strides and dilations of 1, for pooling strides of the kernel. */
static void check_defaults(test_device *d) {
  weft_tensor *x = test_random(d, TEST_SHAPE(1, 2, 7, 8), 1, 1), *w = test_random(d, TEST_SHAPE(3, 2, 3, 3), 1, 2);
  test_expect_shape("conv2d", weft_conv2d(d->scope, x, w, &(weft_conv2d_attrs){.stride = {0, 0}}), WEFT_F32,
                    TEST_SHAPE(1, 3, 5, 6));
  test_expect_shape("max_pool2d", weft_max_pool2d(d->scope, x, &(weft_max_pool2d_attrs){.kernel = {2, 3}}), WEFT_F32,
                    TEST_SHAPE(1, 2, 3, 2));
}

/* A kernel of 2^62 elements, of which one meets the image. */
static void check_huge_kernel(test_device *d) {
  const int64_t padding = (INT64_C(1) << 30) - 2;
  const weft_max_pool2d_attrs attrs = {.kernel = {INT32_MAX - 2, INT32_MAX - 2}, .padding = {padding, padding}};
  const float element = -0.75f;
  weft_tensor *x = weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(1, 1, 1, 1), &element);
  test_expect_values("max_pool2d", d, weft_max_pool2d(d->scope, x, &attrs), (const double[]){-0.75}, 0);
  test_expect_values("max_pool2d_grad", d, weft_max_pool2d_grad(d->scope, x, x, &attrs), (const double[]){-0.75}, 0);
}

static void kernels_may_be_larger_than_images(void **state) {
  (void)state;
  test_each_device(1, check_huge_kernel);
}

static void zeros_are_the_defaults(void **state) {
  (void)state;
  test_each_device(1, check_defaults);
}

/* ---- max_pool2d ---- */

static const geometry POOLS[] = {
    {2, 3, 0, {7, 7}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},  {1, 2, 0, {63, 65}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {2, 2, 0, {9, 7}, {3, 2}, {1, 1}, {1, 1}, {2, 3}},  {1, 1, 0, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {3, 1, 0, {5, 8}, {5, 8}, {1, 1}, {0, 0}, {1, 1}},  {1, 1, 0, {2, 2100}, {2, 5}, {1, 1}, {0, 2}, {1, 1}},
    {70, 9, 0, {3, 2}, {2, 1}, {1, 1}, {0, 0}, {1, 1}}, {0, 3, 0, {7, 7}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
    {1, 0, 0, {7, 7}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},  {1, 1, 0, {1, 6}, {2, 2}, {1, 2}, {2, 0}, {3, 1}},
    {2, 3, 0, {0, 5}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
};

/* Largest elements of the windows, and in places where they lie in x; -inf and -1 where a window meets none. */
static void pool(const geometry *g, const double *x, double *y, int64_t *places) {
  geometry one = *g; /* a channel's windows as an image's */
  one.n = g->n * g->c, one.c = 1;
  for (int64_t column = 0; column < (int64_t)n_windows(&one); column++) {
    y[column] = -INFINITY, places[column] = -1;
    for (int64_t row = 0; row < (int64_t)n_rows(&one); row++) {
      int64_t place = place_of(&one, row, column);
      if (place < 0) continue;
      if (places[column] < 0 || x[place] > y[column] || (isnan(x[place]) && !isnan(y[column])))
        y[column] = x[place], places[column] = place;
    }
  }
}

static void pool_formula(const void *context, const double *const *in, double *y) {
  const geometry *g = context;
  int64_t *places = test_alloc(n_windows(g) * (size_t)g->c, sizeof *places);
  pool(g, in[0], y, places);
  free(places);
}

static void check_pool(test_device *d, const geometry *g, weft_tensor *x, size_t operand) {
  const weft_max_pool2d_attrs attrs = attrs_of(g);
  const int64_t made[] = {g->n, g->c, out_of(g, 0), out_of(g, 1)};
  size_t n_y = n_windows(g) * (size_t)g->c;
  weft_tensor *dy = test_operand(d, OPERANDS[operand].form, OPERANDS[operand].dtype, 4, made, -1, 1, 5);
  weft_tensor *y = weft_max_pool2d(d->scope, x, &attrs), *dx = weft_max_pool2d_grad(d->scope, x, dy, &attrs);
  test_expect_shape("max_pool2d", y, WEFT_F32, 4, made);
  test_expect_shape("max_pool2d_grad", dx, WEFT_F32, TEST_SHAPE(g->n, g->c, g->in[0], g->in[1]));
  double *of_x = test_values(x), *of_dy = test_values(dy), *want = test_doubles(n_y), *want_dx = test_doubles(n_x(g));
  int64_t *places = test_alloc(n_y, sizeof *places);
  pool(g, of_x, want, places);
  for (size_t i = 0; i < n_y; i++)
    if (places[i] >= 0) want_dx[places[i]] += of_dy[i];
  test_expect_values("max_pool2d", d, y, want, 0);
  test_compare("max_pool2d_grad", d, dx, want_dx, NULL, 1e-6, TEST_ROUNDING); /* sums of few numbers below 1 */
  free(places);
  free(of_x);
  free(of_dy);
  free(want);
  free(want_dx);
}

static void check_pools(test_device *d) {
  for (size_t i = 0; i < WEFT_COUNT(POOLS); i++)
    for (size_t operand = 0; operand < WEFT_COUNT(OPERANDS); operand++)
      if (is_tested(i, operand)) check_pool(d, &POOLS[i], images(d, &POOLS[i], operand), operand);
}

static void max_pool2d_takes_the_largest(void **state) {
  (void)state;
  test_each_device(2, check_pools);
}

/* Three values only, and NaN, infinities and both zeros among them. */
static void check_equals(test_device *d) {
  const geometry g = {2, 2, 0, {8, 9}, {3, 3}, {2, 1}, {1, 1}, {1, 1}};
  float x[2 * 2 * 8 * 9];
  test_fill(x, WEFT_COUNT(x), 1.5f, 9);
  for (size_t i = 0; i < WEFT_COUNT(x); i++) x[i] = roundf(x[i]);
  check_pool(d, &g, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(2, 2, 8, 9), x), 0);
  for (size_t i = 0; i < WEFT_COUNT(x); i++)
    x[i] = i % 7 == 3 ? NAN : i % 5 == 1 ? INFINITY : i % 2 ? -INFINITY : -0.0f;
  check_pool(d, &g, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(2, 2, 8, 9), x), 0);
  for (size_t i = 0; i < WEFT_COUNT(x); i++) x[i] = -INFINITY;
  check_pool(d, &g, weft_tensor_from(d->scope, WEFT_F32, TEST_SHAPE(2, 2, 8, 9), x), 0);
}

static void the_first_of_equals_is_taken(void **state) {
  (void)state;
  test_each_device(1, check_equals);
}

/* ---- the loops that the gradients are compared with ---- */

static void conv_formula(const void *context, const double *const *in, double *y) {
  const geometry *g = context;
  for (size_t i = 0; i < n_windows(g) * (size_t)g->m; i++) y[i] = 0;
  convolve(g, in[0], in[1], NULL, y, NULL, NULL);
}

static double *doubles(size_t n, uint64_t seed) {
  float *values = test_alloc(n, sizeof *values);
  double *x = test_doubles(n);
  test_fill(values, n, 1, seed);
  for (size_t i = 0; i < n; i++) x[i] = (double)values[i];
  free(values);
  return x;
}

static void expect_slope(const double *got, double *slope, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!(fabs(got[i] - slope[i]) <= 1e-8)) fail_msg("element %zu: %g, not %g", i, got[i], slope[i]);
  free(slope);
}

static void gradients_are_slopes(void **state) {
  (void)state;
  const geometry g = {2, 2, 3, {5, 4}, {3, 2}, {2, 1}, {1, 1}, {1, 2}};
  size_t n_y = n_windows(&g) * (size_t)g.m;
  double *in[] = {doubles(n_x(&g), 1), doubles(n_w(&g), 2)}, *dy = doubles(n_y, 3);
  double *dx = test_doubles(n_x(&g)), *dw = test_doubles(n_w(&g));
  convolve(&g, in[0], in[1], dy, NULL, dx, dw);
  expect_slope(dx, test_gradient(conv_formula, &g, in, 0, n_x(&g), dy, n_y), n_x(&g));
  expect_slope(dw, test_gradient(conv_formula, &g, in, 1, n_w(&g), dy, n_y), n_w(&g));
  const geometry p = {2, 2, 0, {5, 4}, {3, 2}, {2, 1}, {1, 1}, {1, 1}};
  size_t n_pooled = n_windows(&p) * (size_t)p.c;
  double *y = test_doubles(n_pooled);
  int64_t *places = test_alloc(n_pooled, sizeof *places);
  pool(&p, in[0], y, places);
  for (size_t i = 0; i < n_x(&p); i++) dx[i] = 0;
  for (size_t i = 0; i < n_pooled; i++) dx[places[i]] += dy[i];
  expect_slope(dx, test_gradient(pool_formula, &p, in, 0, n_x(&p), dy, n_pooled), n_x(&p));
  double *const all[] = {in[0], in[1], dy, dx, dw, y};
  for (size_t i = 0; i < WEFT_COUNT(all); i++) free(all[i]);
  free(places);
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(columns_are_what_windows_meet),
      cmocka_unit_test(conv2d_is_its_sum),
      cmocka_unit_test(large_batches_are_convolved_in_rounds),
      cmocka_unit_test(results_exceed_a_binding),
      cmocka_unit_test(zeros_are_the_defaults),
      cmocka_unit_test(kernels_may_be_larger_than_images),
      cmocka_unit_test(max_pool2d_takes_the_largest),
      cmocka_unit_test(the_first_of_equals_is_taken),
      cmocka_unit_test(gradients_are_slopes),
  };
  return cmocka_run_group_tests_name("ops_conv", tests, NULL, NULL);
}
