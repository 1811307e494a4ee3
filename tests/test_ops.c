/* test_ops.c - the operator table: every operator's shape rule takes what fits and refuses the rest, and every operator
 * has a suite that tests its results. */
#include "support/tensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- shape rules ---- */

/* An operand to be made: of zeros, as `form` says. */
typedef struct operand {
  weft_dtype dtype;
  enum { WHOLE, TURNED /* the last two axes change places */, COLUMNS /* of rows one longer */, PACKED } form;
  int rank;
  int64_t shape[4];
} operand;

#define EXTENTS(...)                                                                                                   \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), { __VA_ARGS__ }
#define F32(...)                                                                                                       \
  { WEFT_F32, WHOLE, EXTENTS(__VA_ARGS__) }
#define F16(...)                                                                                                       \
  { WEFT_F16, WHOLE, EXTENTS(__VA_ARGS__) }
#define BF16(...)                                                                                                      \
  { WEFT_BF16, WHOLE, EXTENTS(__VA_ARGS__) }
#define I32(...)                                                                                                       \
  { WEFT_I32, WHOLE, EXTENTS(__VA_ARGS__) }
#define Q8(...)                                                                                                        \
  { WEFT_Q8_0, WHOLE, EXTENTS(__VA_ARGS__) }
#define TURNED_F32(...)                                                                                                \
  { WEFT_F32, TURNED, EXTENTS(__VA_ARGS__) }
#define COLUMNS_F32(...)                                                                                               \
  { WEFT_F32, COLUMNS, EXTENTS(__VA_ARGS__) }
#define PACKED_F32(...)                                                                                                \
  { WEFT_F32, PACKED, EXTENTS(__VA_ARGS__) }
#define SCALAR                                                                                                         \
  {                                                                                                                    \
    WEFT_F32, WHOLE, 0, { 0 }                                                                                          \
  }
/* Caches of 4 blocks, 2 heads of 8; 3 tokens in 2 slots. */
#define CACHES F32(4, 2, 8, 32), F32(4, 2, 32, 8)
#define PLACES I32(2, 2), I32(3), I32(3)

static const weft_scale_attrs TWICE = {2};
static const weft_scale_in_place_attrs TWICE_IN_PLACE = {2};
static const weft_compare_attrs LESS = {WEFT_LESS}, NO_RELATION = {(weft_relation)6};
static const weft_clamp_attrs BOUNDS = {-1, 1}, BOUNDS_TURNED = {1, -1}, BOUNDS_NAN = {0, NAN};
static const weft_cast_attrs TO_BF16 = {WEFT_BF16}, TO_F32 = {WEFT_F32}, TO_Q8 = {WEFT_Q8_0},
                             TO_NOTHING = {WEFT_DTYPE_COUNT};
static const weft_fill_attrs FILL = {1};
static const weft_fill_uniform_attrs UNIFORM = {1, 0, -1, 1}, UNIFORM_NAN = {1, 0, NAN, 1},
                                     UNIFORM_WIDE = {1, 0, -FLT_MAX, FLT_MAX};
static const weft_fill_normal_attrs NORMAL = {1, 0, 0, 1}, NORMAL_NEGATIVE = {1, 0, 0, -1},
                                    NORMAL_INFINITE = {1, 0, INFINITY, 1};
static const weft_dropout_attrs HALF = {1, 0, 0.5f}, NO_DROP = {1, 0, 0}, ALL_DROPPED = {1, 0, 1},
                                NEGATIVE_DROP = {1, 0, -0.5f}, NAN_DROP = {1, 0, NAN};
static const weft_copy_rows_into_attrs FROM[] = {{0}, {1}, {2}, {-1}};
static const weft_reduce_attrs OVER_1 = {1, {1}, 0}, OVER_ALL = {0, {0}, 0}, OVER_TWICE = {2, {1, 1}, 0},
                               OVER_NEGATIVE = {1, {-1}, 0}, OVER_TOO_MANY = {3, {0, 1, 2}, 0};
static const weft_top_k_attrs TOP_2 = {1, 2}, TOP_0 = {1, 0};
static const weft_gather_attrs ALONG[] = {{0}, {1}, {2}};
static const weft_embed_grad_attrs FIVE_ROWS = {5}, NEGATIVE_ROWS = {-1};
static const weft_matmul_attrs PLAIN_PRODUCT = {0, 0}, TURNED_PRODUCT = {0, 1};
static const weft_concat_attrs AXIS[] = {{0}, {1}, {2}, {-1}};
static const weft_rms_norm_attrs EPS = {1e-5f};
static const weft_rope_table_attrs TABLE = {4, 10000, 1, 0, 0, 0}, ODD_TABLE = {5, 10000, 1, 0, 0, 0},
                                   EMPTY_TABLE = {0, 10000, 1, 0, 0, 0}, NEGATIVE_TABLE = {-2, 10000, 1, 0, 0, 0},
                                   BASE_0 = {4, 0, 1, 0, 0, 0}, BASE_NAN = {4, NAN, 1, 0, 0, 0},
                                   BASE_INFINITE = {4, INFINITY, 1, 0, 0, 0}, SCALE_NAN = {4, 10000, NAN, 0, 0, 0},
                                   YARN = {4, 10000, 1, 8, 4096, 1.2f}, YARN_BELOW_1 = {4, 10000, 1, 0.5f, 4096, 1},
                                   YARN_NAN = {4, 10000, 1, NAN, 4096, 1}, YARN_NOWHERE = {4, 10000, 1, 8, 0, 1},
                                   MAGNITUDE_NEGATIVE = {4, 10000, 1, 0, 0, -1};
static const weft_rope_attrs HEADS_OF_8 = {8, WEFT_ROPE_HALVES, 0}, HEADS_OF_3 = {3, WEFT_ROPE_HALVES, 0},
                             HEADS_OF_2 = {2, WEFT_ROPE_HALVES, 0}, HEADS_OF_0 = {0, WEFT_ROPE_HALVES, 1},
                             NO_PAIRING = {8, (weft_rope_pairing)7, 0};
static const weft_paged_attention_attrs HEADS_4 = {4, 1, 0}, HEADS_3 = {3, 1, 0}, HEADS_0 = {0, 1, 0},
                                        HEADS_2 = {2, 1, 0}, NAN_SCALE = {4, NAN, 0}, WINDOW_5 = {4, 1, 5},
                                        WINDOW_NEGATIVE = {4, 1, -1};
static const weft_matmul_nt_gated_attrs SILU = {WEFT_GATE_SILU}, GELU_TANH = {WEFT_GATE_GELU_TANH},
                                        NO_GATE = {(weft_gate)2};
static const weft_attention_attrs TWO_HEADS = {2, 0.5f, WEFT_MASK_CAUSAL, 0}, NO_HEADS = {0, 0.5f, WEFT_MASK_CAUSAL, 0},
                                  TWO_WINDOWS = {2, 0.5f, WEFT_MASK_CAUSAL, 3},
                                  WINDOW_UNMASKED = {2, 0.5f, WEFT_MASK_NONE, 3},
                                  WINDOW_BELOW_0 = {2, 0.5f, WEFT_MASK_CAUSAL, -1},
                                  NO_MASK = {2, 0.5f, (weft_mask)7, 0};

static const weft_window2d_attrs WINDOW_3 = {{0, 0}, {3, 3}, {2, 2}, {1, 1}, {0, 0}},
                                 WINDOW_2_OF_5_6 = {{5, 6}, {2, 2}, {0, 0}, {0, 0}, {0, 0}},
                                 PADDED = {{5, 6}, {0, 0}, {0, 0}, {1, 0}, {0, 0}},
                                 WINDOW_0 = {{5, 6}, {2, 0}, {0, 0}, {0, 0}, {0, 0}},
                                 WINDOW_6 = {{5, 6}, {6, 2}, {0, 0}, {0, 0}, {0, 0}},
                                 DILATED = {{5, 6}, {2, 2}, {0, 0}, {0, 0}, {1, 6}},
                                 PADDED_BELOW_0 = {{5, 6}, {2, 2}, {0, 0}, {-1, 0}, {0, 0}},
                                 STRIDE_BELOW_0 = {{5, 6}, {2, 2}, {0, -1}, {0, 0}, {0, 0}},
                                 PADDED_FAR = {{5, 6}, {3, 3}, {0, 0}, {2, 0}, {0, 0}},
                                 PADDED_HUGE = {{2, 2}, {1, 1}, {0, 0}, {INT32_MAX, INT32_MAX}, {0, 0}},
                                 STRIDE_HUGE = {{5, 6}, {2, 2}, {INT64_MAX, 1}, {0, 0}, {0, 0}},
                                 WINDOW_1_PADDED = {{1, 1}, {1, 1}, {0, 0}, {1, 1}, {0, 0}};
#define ADAM_NUMBERS .lr = 1e-3, .beta1 = 0.9, .eps = 1e-8, .weight_decay = 0.1
static const weft_adam_step_attrs ADAM = {ADAM_NUMBERS, .beta2 = 0.999, .step = 1},
                                  ADAM_STEP_0 = {ADAM_NUMBERS, .beta2 = 0.999},
                                  ADAM_BETA_1 = {ADAM_NUMBERS, .beta2 = 1, .step = 1},
                                  ADAM_NO_DECAY = {ADAM_NUMBERS, .step = 1, .decay = (weft_decay)2},
                                  ADAM_NAN = {.lr = NAN, .step = 1};
static const weft_sgd_step_attrs SGD = {.lr = 0.1}, SGD_NESTEROV = {.lr = 0.1, .nesterov = 1},
                                 SGD_NEGATIVE = {.lr = 0.1, .momentum = -1};
static const weft_clip_factor_attrs CLIP = {1}, CLIP_INFINITE = {INFINITY}, CLIP_NAN = {NAN}, CLIP_NEGATIVE = {-1};

/* One operator, operands that fit it and operands that do not. */
typedef struct rule_case {
  weft_op op;
  bool fits;
  const void *attrs;
  operand in[WEFT__OP_MAX_INPUTS];
} rule_case;

#define FITS(name, attrs, ...)                                                                                         \
  {                                                                                                                    \
    WEFT_OP_ID_##name, true, attrs, { __VA_ARGS__ }                                                                    \
  }
#define WRONG(name, attrs, ...)                                                                                        \
  {                                                                                                                    \
    WEFT_OP_ID_##name, false, attrs, { __VA_ARGS__ }                                                                   \
  }

static const rule_case RULE_CASES[] = {
    FITS(add, NULL, F32(2, 3), F16(3)),
    FITS(add, NULL, TURNED_F32(2, 3), SCALAR),
    WRONG(add, NULL, F32(2, 3), F32(2, 4)),
    WRONG(add, NULL, F32(2, 3), F32(2)),
    WRONG(add, NULL, F32(0, 3), F32(2, 3)),
    WRONG(add, NULL, F32(2, 3), I32(2, 3)),
    WRONG(add, NULL, F32(2, 32), Q8(2, 32)),
    WRONG(add, NULL, F32(2, 3), PACKED_F32(2, 3)),
    FITS(sub, NULL, TURNED_F32(2, 3), BF16(3)),
    WRONG(sub, NULL, F32(2, 3), F32(2, 4)),
    WRONG(sub, NULL, F32(2, 3), I32(2, 3)),
    WRONG(sub, NULL, F32(2, 3), PACKED_F32(2, 3)),
    FITS(mul, NULL, TURNED_F32(2, 3), BF16(3)),
    WRONG(mul, NULL, F32(2, 3), F32(2, 4)),
    WRONG(mul, NULL, F32(2, 3), I32(2, 3)),
    WRONG(mul, NULL, F32(2, 3), PACKED_F32(2, 3)),
    FITS(div, NULL, TURNED_F32(2, 3), BF16(3)),
    WRONG(div, NULL, F32(2, 3), F32(2, 4)),
    WRONG(div, NULL, F32(2, 3), I32(2, 3)),
    WRONG(div, NULL, F32(2, 3), PACKED_F32(2, 3)),
    FITS(pow, NULL, TURNED_F32(2, 3), BF16(3)),
    WRONG(pow, NULL, F32(2, 3), F32(2, 4)),
    WRONG(pow, NULL, F32(2, 3), I32(2, 3)),
    WRONG(pow, NULL, F32(2, 3), PACKED_F32(2, 3)),
    FITS(maximum, NULL, TURNED_F32(2, 3), BF16(3)),
    WRONG(maximum, NULL, F32(2, 3), F32(2, 4)),
    WRONG(maximum, NULL, F32(2, 3), I32(2, 3)),
    WRONG(maximum, NULL, F32(2, 3), PACKED_F32(2, 3)),
    FITS(minimum, NULL, TURNED_F32(2, 3), BF16(3)),
    WRONG(minimum, NULL, F32(2, 3), F32(2, 4)),
    WRONG(minimum, NULL, F32(2, 3), I32(2, 3)),
    WRONG(minimum, NULL, F32(2, 3), PACKED_F32(2, 3)),
    FITS(compare, &LESS, F32(2, 3), BF16(3)),
    FITS(compare, &LESS, I32(2, 3), I32(3)),
    WRONG(compare, &LESS, I32(2, 3), F32(3)),
    WRONG(compare, &LESS, F32(2, 3), I32(3)),
    WRONG(compare, &LESS, F32(2, 3), F32(2)),
    WRONG(compare, &NO_RELATION, F32(2, 3), F32(3)),
    FITS(where, NULL, I32(2, 1), F16(3), F16(1, 3)),
    WRONG(where, NULL, F32(2, 1), F32(3), F32(3)),
    WRONG(where, NULL, I32(2, 1), F32(3), F16(3)),
    WRONG(where, NULL, I32(2, 2), F32(3), F32(3)),
    WRONG(where, NULL, I32(2, 1), F32(3), F32(2)),
    WRONG(where, NULL, I32(2), Q8(32), Q8(32)),
    FITS(relu, NULL, TURNED_F32(2, 3)),
    FITS(relu, NULL, F16(2, 3)),
    WRONG(relu, NULL, I32(2, 3)),
    WRONG(relu, NULL, PACKED_F32(2, 3)),
    FITS(gelu, NULL, TURNED_F32(2, 3)),
    FITS(gelu, NULL, F16(2, 3)),
    WRONG(gelu, NULL, I32(2, 3)),
    WRONG(gelu, NULL, PACKED_F32(2, 3)),
    FITS(gelu_tanh, NULL, TURNED_F32(2, 3)),
    FITS(gelu_tanh, NULL, F16(2, 3)),
    WRONG(gelu_tanh, NULL, I32(2, 3)),
    WRONG(gelu_tanh, NULL, PACKED_F32(2, 3)),
    FITS(silu, NULL, TURNED_F32(2, 3)),
    FITS(silu, NULL, F16(2, 3)),
    WRONG(silu, NULL, I32(2, 3)),
    WRONG(silu, NULL, PACKED_F32(2, 3)),
    FITS(relu_grad, NULL, F16(3, 2), TURNED_F32(3, 2)),
    FITS(relu_grad, NULL, COLUMNS_F32(2, 3), F32(2, 3)),
    WRONG(relu_grad, NULL, F32(2, 3), F32(3)),
    WRONG(relu_grad, NULL, F32(2, 3), F32(2, 4)),
    WRONG(relu_grad, NULL, F32(2, 3), I32(2, 3)),
    WRONG(relu_grad, NULL, Q8(2, 32), F32(2, 32)),
    FITS(tanh_grad, NULL, F16(3, 2), TURNED_F32(3, 2)),
    FITS(tanh_grad, NULL, COLUMNS_F32(2, 3), F32(2, 3)),
    WRONG(tanh_grad, NULL, F32(2, 3), F32(3)),
    WRONG(tanh_grad, NULL, F32(2, 3), F32(2, 4)),
    WRONG(tanh_grad, NULL, F32(2, 3), I32(2, 3)),
    WRONG(tanh_grad, NULL, Q8(2, 32), F32(2, 32)),
    FITS(sigmoid_grad, NULL, F16(3, 2), TURNED_F32(3, 2)),
    FITS(sigmoid_grad, NULL, COLUMNS_F32(2, 3), F32(2, 3)),
    WRONG(sigmoid_grad, NULL, F32(2, 3), F32(3)),
    WRONG(sigmoid_grad, NULL, F32(2, 3), F32(2, 4)),
    WRONG(sigmoid_grad, NULL, F32(2, 3), I32(2, 3)),
    WRONG(sigmoid_grad, NULL, Q8(2, 32), F32(2, 32)),
    FITS(gelu_grad, NULL, F16(3, 2), TURNED_F32(3, 2)),
    FITS(gelu_grad, NULL, COLUMNS_F32(2, 3), F32(2, 3)),
    WRONG(gelu_grad, NULL, F32(2, 3), F32(3)),
    WRONG(gelu_grad, NULL, F32(2, 3), F32(2, 4)),
    WRONG(gelu_grad, NULL, F32(2, 3), I32(2, 3)),
    WRONG(gelu_grad, NULL, Q8(2, 32), F32(2, 32)),
    FITS(gelu_tanh_grad, NULL, F16(3, 2), TURNED_F32(3, 2)),
    FITS(gelu_tanh_grad, NULL, COLUMNS_F32(2, 3), F32(2, 3)),
    WRONG(gelu_tanh_grad, NULL, F32(2, 3), F32(3)),
    WRONG(gelu_tanh_grad, NULL, F32(2, 3), F32(2, 4)),
    WRONG(gelu_tanh_grad, NULL, F32(2, 3), I32(2, 3)),
    WRONG(gelu_tanh_grad, NULL, Q8(2, 32), F32(2, 32)),
    FITS(silu_grad, NULL, F16(3, 2), TURNED_F32(3, 2)),
    FITS(silu_grad, NULL, COLUMNS_F32(2, 3), F32(2, 3)),
    WRONG(silu_grad, NULL, F32(2, 3), F32(3)),
    WRONG(silu_grad, NULL, F32(2, 3), F32(2, 4)),
    WRONG(silu_grad, NULL, F32(2, 3), I32(2, 3)),
    WRONG(silu_grad, NULL, Q8(2, 32), F32(2, 32)),
    FITS(gelu_mul, NULL, F16(3, 2), TURNED_F32(3, 2)),
    FITS(gelu_mul, NULL, COLUMNS_F32(2, 3), F32(2, 3)),
    WRONG(gelu_mul, NULL, F32(2, 3), F32(3)),
    WRONG(gelu_mul, NULL, F32(2, 3), F32(2, 4)),
    WRONG(gelu_mul, NULL, F32(2, 3), I32(2, 3)),
    WRONG(gelu_mul, NULL, Q8(2, 32), F32(2, 32)),
    FITS(scale_in_place, &TWICE_IN_PLACE, BF16(2, 3)),
    WRONG(scale_in_place, &TWICE_IN_PLACE, TURNED_F32(2, 3)),
    WRONG(scale_in_place, &TWICE_IN_PLACE, I32(2, 3)),
    WRONG(scale_in_place, &TWICE_IN_PLACE, PACKED_F32(2, 3)),
    FITS(abs, NULL, TURNED_F32(2, 3)),
    FITS(abs, NULL, F16(2, 3)),
    WRONG(abs, NULL, I32(2, 3)),
    WRONG(abs, NULL, PACKED_F32(2, 3)),
    FITS(neg, NULL, TURNED_F32(2, 3)),
    FITS(neg, NULL, F16(2, 3)),
    WRONG(neg, NULL, I32(2, 3)),
    WRONG(neg, NULL, PACKED_F32(2, 3)),
    FITS(exp, NULL, TURNED_F32(2, 3)),
    FITS(exp, NULL, F16(2, 3)),
    WRONG(exp, NULL, I32(2, 3)),
    WRONG(exp, NULL, PACKED_F32(2, 3)),
    FITS(log, NULL, TURNED_F32(2, 3)),
    FITS(log, NULL, F16(2, 3)),
    WRONG(log, NULL, I32(2, 3)),
    WRONG(log, NULL, PACKED_F32(2, 3)),
    FITS(sqrt, NULL, TURNED_F32(2, 3)),
    FITS(sqrt, NULL, F16(2, 3)),
    WRONG(sqrt, NULL, I32(2, 3)),
    WRONG(sqrt, NULL, PACKED_F32(2, 3)),
    FITS(tanh, NULL, TURNED_F32(2, 3)),
    FITS(tanh, NULL, F16(2, 3)),
    WRONG(tanh, NULL, I32(2, 3)),
    WRONG(tanh, NULL, PACKED_F32(2, 3)),
    FITS(sigmoid, NULL, TURNED_F32(2, 3)),
    FITS(sigmoid, NULL, F16(2, 3)),
    WRONG(sigmoid, NULL, I32(2, 3)),
    WRONG(sigmoid, NULL, PACKED_F32(2, 3)),
    FITS(scale, &TWICE, TURNED_F32(2, 3)),
    WRONG(scale, &TWICE, I32(2, 3)),
    WRONG(scale, &TWICE, PACKED_F32(2, 3)),
    FITS(clamp, &BOUNDS, TURNED_F32(2, 3)),
    WRONG(clamp, &BOUNDS, I32(2, 3)),
    WRONG(clamp, &BOUNDS_TURNED, F32(2, 3)),
    WRONG(clamp, &BOUNDS_NAN, F32(2, 3)),
    FITS(cast, &TO_BF16, I32(2, 3)),
    WRONG(cast, &TO_Q8, F32(2, 32)),
    WRONG(cast, &TO_NOTHING, F32(2, 32)),
    WRONG(cast, &TO_BF16, PACKED_F32(2, 32)),
    FITS(cast, &TO_F32, Q8(2, 33)),
    WRONG(cast, &TO_BF16, Q8(2, 32)),
    FITS(quantize, &TO_Q8, F16(2, 33)),
    WRONG(quantize, &TO_Q8, I32(2, 33)),
    WRONG(quantize, &TO_Q8, SCALAR),
    WRONG(quantize, &TO_Q8, Q8(2, 32)),
    WRONG(quantize, &TO_F32, F32(2, 33)),
    FITS(contiguous, NULL, TURNED_F32(2, 3)),
    WRONG(contiguous, NULL, Q8(2, 32)),
    WRONG(contiguous, NULL, PACKED_F32(2, 3)),
    FITS(fill, &FILL, I32(2, 3)),
    WRONG(fill, &FILL, TURNED_F32(2, 3)),
    WRONG(fill, &FILL, Q8(2, 32)),
    FITS(fill_uniform, &UNIFORM, BF16(2, 3)),
    WRONG(fill_uniform, &UNIFORM, I32(2, 3)),
    WRONG(fill_uniform, &UNIFORM, COLUMNS_F32(2, 3)),
    WRONG(fill_uniform, &UNIFORM_NAN, F32(2, 3)),
    WRONG(fill_uniform, &UNIFORM_WIDE, F32(2, 3)),
    FITS(fill_normal, &NORMAL, F16(2, 3)),
    WRONG(fill_normal, &NORMAL, I32(2, 3)),
    WRONG(fill_normal, &NORMAL_NEGATIVE, F32(2, 3)),
    WRONG(fill_normal, &NORMAL_INFINITE, F32(2, 3)),
    FITS(dropout, &HALF, TURNED_F32(2, 3)),
    FITS(dropout, &NO_DROP, F16(2, 3)),
    WRONG(dropout, &HALF, I32(2, 3)),
    WRONG(dropout, &HALF, Q8(2, 32)),
    WRONG(dropout, &ALL_DROPPED, F32(2, 3)),
    WRONG(dropout, &NEGATIVE_DROP, F32(2, 3)),
    WRONG(dropout, &NAN_DROP, F32(2, 3)),
    FITS(copy_rows_into, &FROM[1], F16(4, 3), TURNED_F32(3, 3)),
    WRONG(copy_rows_into, &FROM[2], F32(4, 3), F32(3, 3)),
    WRONG(copy_rows_into, &FROM[0], F32(4, 3), F32(5, 3)),
    WRONG(copy_rows_into, &FROM[3], F32(4, 3), F32(1, 3)),
    WRONG(copy_rows_into, &FROM[0], TURNED_F32(4, 3), F32(1, 3)),
    WRONG(copy_rows_into, &FROM[0], F32(4, 3), I32(1, 3)),
    WRONG(copy_rows_into, &FROM[0], F32(4, 3), F32(1, 2)),
    WRONG(copy_rows_into, &FROM[0], F32(4, 3), F32(3)),
    WRONG(copy_rows_into, &FROM[0], SCALAR, SCALAR),
    FITS(sum, &OVER_1, TURNED_F32(2, 3)),
    FITS(sum, &OVER_ALL, F16(2, 3)),
    WRONG(sum, &OVER_1, F32(2)),
    WRONG(sum, &OVER_TWICE, F32(2, 3)),
    WRONG(sum, &OVER_NEGATIVE, F32(2, 3)),
    WRONG(sum, &OVER_TOO_MANY, F32(2, 3)),
    WRONG(sum, &OVER_1, I32(2, 3)),
    FITS(mean, &OVER_1, TURNED_F32(2, 3)),
    FITS(mean, &OVER_ALL, F16(2, 3)),
    WRONG(mean, &OVER_1, F32(2)),
    WRONG(mean, &OVER_TWICE, F32(2, 3)),
    WRONG(mean, &OVER_NEGATIVE, F32(2, 3)),
    WRONG(mean, &OVER_TOO_MANY, F32(2, 3)),
    WRONG(mean, &OVER_1, I32(2, 3)),
    FITS(max, &OVER_1, TURNED_F32(2, 3)),
    FITS(max, &OVER_ALL, F16(2, 3)),
    WRONG(max, &OVER_1, F32(2)),
    WRONG(max, &OVER_TWICE, F32(2, 3)),
    WRONG(max, &OVER_NEGATIVE, F32(2, 3)),
    WRONG(max, &OVER_TOO_MANY, F32(2, 3)),
    WRONG(max, &OVER_1, I32(2, 3)),
    FITS(max, &OVER_1, F32(0, 0)),
    WRONG(max, &OVER_1, F32(2, 0)),
    FITS(min, &OVER_1, TURNED_F32(2, 3)),
    FITS(min, &OVER_ALL, F16(2, 3)),
    WRONG(min, &OVER_1, F32(2)),
    WRONG(min, &OVER_TWICE, F32(2, 3)),
    WRONG(min, &OVER_NEGATIVE, F32(2, 3)),
    WRONG(min, &OVER_TOO_MANY, F32(2, 3)),
    WRONG(min, &OVER_1, I32(2, 3)),
    FITS(min, &OVER_1, F32(0, 0)),
    WRONG(min, &OVER_1, F32(2, 0)),
    FITS(argmax, &OVER_1, TURNED_F32(2, 3)),
    FITS(argmax, &OVER_ALL, F16(2, 3)),
    WRONG(argmax, &OVER_1, F32(2)),
    WRONG(argmax, &OVER_TWICE, F32(2, 3)),
    WRONG(argmax, &OVER_NEGATIVE, F32(2, 3)),
    WRONG(argmax, &OVER_TOO_MANY, F32(2, 3)),
    WRONG(argmax, &OVER_1, I32(2, 3)),
    FITS(argmax, &OVER_1, F32(0, 0)),
    WRONG(argmax, &OVER_1, F32(2, 0)),
    FITS(top_k, &TOP_2, TURNED_F32(2, 3)),
    WRONG(top_k, &TOP_2, I32(2, 3)),
    WRONG(top_k, &TOP_2, F32(2, 1)),
    WRONG(top_k, &TOP_2, F32(3)),
    WRONG(top_k, &TOP_0, F32(2, 3)),
    FITS(gather, &ALONG[1], BF16(2, 3), I32(2, 5)),
    FITS(gather, &ALONG[0], I32(2, 3), I32(5, 1)),
    WRONG(gather, &ALONG[0], F32(2, 3), F32(5, 1)),
    WRONG(gather, &ALONG[0], F32(2, 3), I32(5, 2)),
    WRONG(gather, &ALONG[0], F32(2, 3), I32(5)),
    WRONG(gather, &ALONG[2], F32(2, 3), I32(2, 3)),
    WRONG(gather, &ALONG[0], Q8(2, 32), I32(2, 1)),
    FITS(scatter_add, &ALONG[0], F16(4, 3), I32(2, 1), F32(2, 3)),
    WRONG(scatter_add, &ALONG[0], F32(4, 3), I32(2, 1), F32(2, 2)),
    WRONG(scatter_add, &ALONG[0], F32(4, 3), I32(2, 1), F32(1, 3)),
    WRONG(scatter_add, &ALONG[0], F32(4, 3), I32(2), F32(2, 3)),
    WRONG(scatter_add, &ALONG[2], F32(4, 3), I32(4, 3), F32(4, 3)),
    WRONG(scatter_add, &ALONG[0], F32(4, 3), F32(2, 1), F32(2, 3)),
    WRONG(scatter_add, &ALONG[0], I32(4, 3), I32(2, 1), I32(2, 3)),
    FITS(matmul, &PLAIN_PRODUCT, F32(2, 3), F32(3, 4)),
    WRONG(matmul, &PLAIN_PRODUCT, F32(2, 3), F32(4, 3)),
    FITS(matmul, &PLAIN_PRODUCT, F32(2, 3), F16(3, 4)),
    FITS(matmul, &TURNED_PRODUCT, F32(2, 3), Q8(4, 3)),
    WRONG(matmul, &PLAIN_PRODUCT, F32(2, 3), Q8(3, 4)),
    FITS(matmul, &TURNED_PRODUCT, F16(2, 3), Q8(4, 3)),
    WRONG(matmul, &TURNED_PRODUCT, F32(2, 3), Q8(4, 4)),
    WRONG(matmul, &PLAIN_PRODUCT, F32(2, 3), I32(3, 4)),
    FITS(softmax, NULL, COLUMNS_F32(2, 3)),
    FITS(softmax, NULL, F16(2, 3)),
    WRONG(softmax, NULL, I32(2, 3)),
    WRONG(softmax, NULL, SCALAR),
    FITS(softmax, NULL, TURNED_F32(2, 3)),
    WRONG(softmax, NULL, PACKED_F32(2, 3)),
    FITS(softmax, NULL, COLUMNS_F32(2, 2, 3)),
    FITS(softmax_grad, NULL, F16(2, 3), TURNED_F32(2, 3)),
    WRONG(softmax_grad, NULL, F32(2, 3), F32(2, 1)),
    WRONG(softmax_grad, NULL, F32(2, 3), I32(2, 3)),
    WRONG(softmax_grad, NULL, SCALAR, SCALAR),
    FITS(cross_entropy, NULL, BF16(2, 3), I32(2)),
    WRONG(cross_entropy, NULL, F32(2, 3), I32(3)),
    WRONG(cross_entropy, NULL, F32(2, 3), I32(2, 1)),
    WRONG(cross_entropy, NULL, F32(2, 3), F32(2)),
    WRONG(cross_entropy, NULL, I32(2, 3), I32(2)),
    WRONG(cross_entropy, NULL, F32(2, 0), I32(2)),
    WRONG(cross_entropy, NULL, F32(2, 3, 1), I32(2)),
    FITS(cross_entropy_grad, NULL, TURNED_F32(2, 3), I32(2), F32(2)),
    WRONG(cross_entropy_grad, NULL, F32(2, 3), I32(2), F32(3)),
    WRONG(cross_entropy_grad, NULL, F32(2, 3), I32(2), F16(2)),
    WRONG(cross_entropy_grad, NULL, F32(2, 3), I32(2), F32(2, 1)),
    WRONG(cross_entropy_grad, NULL, F32(2, 3), I32(3), F32(2)),
    FITS(concat, &AXIS[1], F32(2, 3), F32(2, 5)),
    WRONG(concat, &AXIS[0], F32(2, 3), F32(2, 5)),
    WRONG(concat, &AXIS[1], F32(2, 3), F32(3, 3)),
    WRONG(concat, &AXIS[1], F32(2, 3), F32(2, 3, 1)),
    WRONG(concat, &AXIS[2], F32(2, 3), F32(2, 3)),
    WRONG(concat, &AXIS[3], F32(2, 3), F32(2, 3)),
    WRONG(concat, &AXIS[0], SCALAR, SCALAR),
    WRONG(concat, &AXIS[0], F32(2), I32(2)),
    FITS(concat, &AXIS[0], F32(3, 2), TURNED_F32(3, 2)),
    FITS(concat, &AXIS[0], I32(3, 2), I32(1, 2)),
    WRONG(concat, &AXIS[0], Q8(3, 32), Q8(1, 32)),
    WRONG(concat, &AXIS[1], F32(0, INT64_MAX), F32(0, INT64_MAX)), /* an extent that overflows */
    FITS(rms_norm, &EPS, COLUMNS_F32(2, 3), F32(3)),
    WRONG(rms_norm, &EPS, F32(2, 3), F32(2)),
    WRONG(rms_norm, &EPS, F32(2, 3), F32(1, 3)),
    WRONG(rms_norm, &EPS, F32(2, 3), F16(3)),
    FITS(rms_norm, &EPS, F16(2, 3), F32(3)),
    WRONG(rms_norm, &EPS, I32(2, 3), F32(3)),
    FITS(rms_norm, &EPS, TURNED_F32(2, 3), F32(3)),
    WRONG(rms_norm, &EPS, SCALAR, F32(1)),
    FITS(rms_norm_xhat, &EPS, TURNED_F32(2, 3)),
    FITS(rms_norm_xhat, &EPS, BF16(2, 3)),
    WRONG(rms_norm_xhat, &EPS, I32(2, 3)),
    WRONG(rms_norm_xhat, &EPS, SCALAR),
    FITS(rms_norm_grad, &EPS, TURNED_F32(2, 3), F32(3), F16(2, 3)),
    WRONG(rms_norm_grad, &EPS, F32(2, 3), F32(2), F32(2, 3)),
    WRONG(rms_norm_grad, &EPS, F32(2, 3), F32(3), F32(3, 2)),
    WRONG(rms_norm_grad, &EPS, F32(2, 3), F32(3), I32(2, 3)),
    FITS(layer_norm, &EPS, TURNED_F32(2, 3), F32(3), F32(3)),
    FITS(layer_norm, &EPS, F16(2, 0), F32(0), F32(0)),
    WRONG(layer_norm, &EPS, F32(2, 3), F32(3), F32(2)),
    WRONG(layer_norm, &EPS, F32(2, 3), F32(2), F32(3)),
    WRONG(layer_norm, &EPS, F32(2, 3), F32(3), F16(3)),
    WRONG(layer_norm, &EPS, I32(2, 3), F32(3), F32(3)),
    WRONG(layer_norm, &EPS, SCALAR, F32(1), F32(1)),
    FITS(layer_norm_xhat, &EPS, COLUMNS_F32(2, 3)),
    WRONG(layer_norm_xhat, &EPS, I32(2, 3)),
    WRONG(layer_norm_xhat, &EPS, SCALAR),
    FITS(layer_norm_grad, &EPS, BF16(2, 3), F32(3), TURNED_F32(2, 3)),
    WRONG(layer_norm_grad, &EPS, F32(2, 3), F32(2), F32(2, 3)),
    WRONG(layer_norm_grad, &EPS, F32(2, 3), F32(3), F32(3)),
    WRONG(layer_norm_grad, &EPS, F32(2, 3), F16(3), F32(2, 3)),
    FITS(embed, NULL, Q8(5, 32), I32(2)),
    WRONG(embed, NULL, F32(5, 3), F32(2)),
    WRONG(embed, NULL, F32(5, 3), I32(1, 2)),
    WRONG(embed, NULL, F32(15), I32(2)),
    WRONG(embed, NULL, I32(5, 3), I32(2)),
    WRONG(embed, NULL, TURNED_F32(5, 3), I32(2)),
    WRONG(embed, NULL, COLUMNS_F32(5, 3), I32(2)),
    WRONG(embed, NULL, PACKED_F32(5, 3), I32(2)),
    FITS(embed_grad, &FIVE_ROWS, I32(2), F16(2, 3)),
    FITS(embed_grad, &FIVE_ROWS, I32(3), TURNED_F32(3, 2)),
    WRONG(embed_grad, &FIVE_ROWS, I32(2), F32(3, 3)),
    WRONG(embed_grad, &FIVE_ROWS, I32(2), F32(2)),
    WRONG(embed_grad, &FIVE_ROWS, I32(2), I32(2, 3)),
    WRONG(embed_grad, &FIVE_ROWS, F32(2), F32(2, 3)),
    WRONG(embed_grad, &FIVE_ROWS, I32(2, 1), F32(2, 3)),
    WRONG(embed_grad, &NEGATIVE_ROWS, I32(2), F32(2, 3)),
    FITS(matmul_nt, NULL, F32(2, 3), F32(4, 3)),
    FITS(matmul_nt, NULL, F32(2, 3), PACKED_F32(4, 3)),
    WRONG(matmul_nt, NULL, F32(2, 3), F32(3, 4)),
    WRONG(matmul_nt, NULL, F32(2, 3), F32(3)),
    WRONG(matmul_nt, NULL, F32(2, 3), I32(4, 3)),
    FITS(matmul_nt, NULL, F16(2, 3), F32(4, 3)),
    WRONG(matmul_nt, NULL, PACKED_F32(2, 3), F32(4, 3)),
    FITS(matmul_nt, NULL, TURNED_F32(2, 3), F32(4, 3)),
    WRONG(matmul_nt, NULL, F32(2, 3), TURNED_F32(4, 3)),
    FITS(rope_table, &TABLE, I32(3), F32(2)),
    WRONG(rope_table, &TABLE, I32(3), F32(3)),
    WRONG(rope_table, &TABLE, I32(3), F32(2, 1)),
    WRONG(rope_table, &TABLE, I32(3), F16(2)),
    WRONG(rope_table, &TABLE, F32(3), F32(2)),
    WRONG(rope_table, &TABLE, I32(3, 1), F32(2)),
    WRONG(rope_table, &ODD_TABLE, I32(3), F32(2)),
    WRONG(rope_table, &EMPTY_TABLE, I32(3), F32(2)),
    WRONG(rope_table, &NEGATIVE_TABLE, I32(3), F32(2)),
    WRONG(rope_table, &BASE_0, I32(3), F32(2)),
    WRONG(rope_table, &BASE_NAN, I32(3), F32(2)),
    WRONG(rope_table, &BASE_INFINITE, I32(3), F32(2)),
    WRONG(rope_table, &SCALE_NAN, I32(3), F32(2)),
    FITS(rope_table, &YARN, I32(3), F32(2)),
    WRONG(rope_table, &YARN_BELOW_1, I32(3), F32(2)),
    WRONG(rope_table, &YARN_NAN, I32(3), F32(2)),
    WRONG(rope_table, &YARN_NOWHERE, I32(3), F32(2)),
    WRONG(rope_table, &MAGNITUDE_NEGATIVE, I32(3), F32(2)),
    FITS(rope, &HEADS_OF_8, COLUMNS_F32(3, 16), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), F32(2, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), F32(3, 1, 4)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), F32(3, 2, 5)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), F32(3, 8)),
    WRONG(rope, &HEADS_OF_8, F32(3, 12), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_3, F32(3, 16), F32(3, 2, 1)),
    WRONG(rope, &HEADS_OF_2, F32(3, 16), F32(3, 2, 4)),
    WRONG(rope, &NO_PAIRING, F32(3, 16), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_0, F32(3, 16), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F32(48), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F16(3, 16), F32(3, 2, 4)),
    WRONG(rope, &HEADS_OF_8, F32(3, 16), I32(3, 2, 4)),
    FITS(kv_append, NULL, CACHES, COLUMNS_F32(3, 16), COLUMNS_F32(3, 16), PLACES),
    WRONG(kv_append, NULL, CACHES, F32(3, 16), F32(3, 15), PLACES),
    WRONG(kv_append, NULL, CACHES, F32(3, 15), F32(3, 15), PLACES),
    WRONG(kv_append, NULL, CACHES, F32(2, 16), F32(2, 16), PLACES),
    WRONG(kv_append, NULL, CACHES, F16(3, 16), F16(3, 16), PLACES),
    WRONG(kv_append, NULL, F32(4, 2, 8, 32), F32(4, 2, 8, 32), F32(3, 16), F32(3, 16), PLACES),
    WRONG(kv_append, NULL, F32(4, 2, 8, 32), F16(4, 2, 32, 8), F32(3, 16), F32(3, 16), PLACES),
    WRONG(kv_append, NULL, I32(4, 2, 8, 32), I32(4, 2, 32, 8), F32(3, 16), F32(3, 16), PLACES),
    WRONG(kv_append, NULL, F32(4, 2, 8, 16), F32(4, 2, 16, 8), F32(3, 16), F32(3, 16), PLACES),
    WRONG(kv_append, NULL, CACHES, F32(3, 16), F32(3, 16), I32(4), I32(3), I32(3)),
    WRONG(kv_append, NULL, CACHES, F32(3, 16), F32(3, 16), I32(2, 2), F32(3), I32(3)),
    WRONG(kv_append, NULL, CACHES, F32(3, 16), F32(3, 16), I32(2, 2), I32(3), I32(2)),
    FITS(paged_attention, &HEADS_4, COLUMNS_F32(3, 32), CACHES, PLACES),
    FITS(paged_attention, &WINDOW_5, F32(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &WINDOW_NEGATIVE, F32(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_3, F32(3, 24), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_0, F32(3, 0), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_2, F32(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &NAN_SCALE, F32(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_4, F32(2, 32), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_4, F16(3, 32), CACHES, PLACES),
    WRONG(paged_attention, &HEADS_4, F32(3, 32), F32(4, 2, 8, 32), F32(3, 2, 32, 8), PLACES),
    WRONG(paged_attention, &HEADS_4, F32(3, 32), CACHES, I32(2, 2), I32(3), F32(3)),
    FITS(attention, &TWO_HEADS, F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3)),
    FITS(attention, &TWO_HEADS, COLUMNS_F32(5, 6), F32(5, 6), F32(5, 6)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F32(2, 7, 4), F32(2, 7, 4)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F32(2, 4, 6), F32(2, 4, 6)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F32(2, 7, 6), F32(2, 6, 6)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F32(7, 6), F32(7, 6)),
    WRONG(attention, &TWO_HEADS, F32(2, 5, 6), F16(2, 7, 6), F16(2, 7, 6)),
    FITS(attention, &TWO_WINDOWS, F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3)),
    WRONG(attention, &WINDOW_UNMASKED, F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3)),
    WRONG(attention, &NO_MASK, F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3)),
    WRONG(attention, &WINDOW_BELOW_0, F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3)),
    FITS(attention_lse, &TWO_WINDOWS, F32(2, 5, 6), F32(2, 5, 2), F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3)),
    FITS(attention_lse, &TWO_HEADS, F32(5, 6), F32(5, 2), COLUMNS_F32(5, 6), F32(5, 6), F32(5, 6)),
    WRONG(attention_lse, &TWO_HEADS, COLUMNS_F32(5, 6), F32(5, 2), F32(5, 6), F32(5, 6), F32(5, 6)),
    WRONG(attention_lse, &TWO_HEADS, F32(5, 6), TURNED_F32(5, 2), F32(5, 6), F32(5, 6), F32(5, 6)),
    WRONG(attention_lse, &TWO_HEADS, F32(5, 6), F32(5, 3), F32(5, 6), F32(5, 6), F32(5, 6)),
    WRONG(attention_lse, &TWO_HEADS, F32(5, 3), F32(5, 2), F32(5, 6), F32(5, 6), F32(5, 6)),
    WRONG(attention_lse, &TWO_HEADS, F16(5, 6), F32(5, 2), F32(5, 6), F32(5, 6), F32(5, 6)),
    WRONG(attention_lse, &NO_HEADS, F32(5, 6), F32(5, 2), F32(5, 6), F32(5, 6), F32(5, 6)),
    WRONG(attention_lse, &TWO_HEADS, F32(5, 6), F32(5, 2), F32(5, 6), F32(4, 6), F32(4, 6)),
#define GRADS COLUMNS_F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3)
#define OPERANDS F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3)
    FITS(attention_grad, &TWO_WINDOWS, GRADS, OPERANDS, F32(2, 5, 6), F32(2, 5, 2), COLUMNS_F32(2, 5, 6)),
    WRONG(attention_grad, &WINDOW_UNMASKED, GRADS, OPERANDS, F32(2, 5, 6), F32(2, 5, 2), F32(2, 5, 6)),
    WRONG(attention_grad, &TWO_HEADS, GRADS, OPERANDS, F32(2, 5, 3), F32(2, 5, 2), F32(2, 5, 6)),
    WRONG(attention_grad, &TWO_HEADS, GRADS, OPERANDS, F32(2, 5, 6), F32(2, 5, 3), F32(2, 5, 6)),
    WRONG(attention_grad, &TWO_HEADS, GRADS, OPERANDS, F32(2, 5, 6), F32(2, 5, 2), F16(2, 5, 6)),
    WRONG(attention_grad, &TWO_HEADS, TURNED_F32(2, 5, 6), F32(2, 7, 3), F32(2, 7, 3), OPERANDS, F32(2, 5, 6),
          F32(2, 5, 2), F32(2, 5, 6)),
    WRONG(attention_grad, &TWO_HEADS, F32(2, 5, 6), F32(2, 7, 6), F32(2, 7, 3), OPERANDS, F32(2, 5, 6), F32(2, 5, 2),
          F32(2, 5, 6)),
    FITS(im2col, &WINDOW_3, TURNED_F32(2, 3, 5, 6)),
    FITS(im2col, &WINDOW_3, F16(0, 3, 5, 6)),
    WRONG(im2col, &WINDOW_3, I32(2, 3, 5, 6)),
    WRONG(im2col, &WINDOW_3, F32(3, 5, 6)),
    WRONG(im2col, &WINDOW_0, F32(2, 3, 5, 6)),
    WRONG(im2col, &WINDOW_6, F32(2, 3, 5, 6)),
    WRONG(im2col, &DILATED, F32(2, 3, 5, 6)),
    WRONG(im2col, &PADDED_BELOW_0, F32(2, 3, 5, 6)),
    WRONG(im2col, &STRIDE_BELOW_0, F32(2, 3, 5, 6)),
    WRONG(im2col, &STRIDE_HUGE, F32(2, 3, 5, 6)),
    WRONG(im2col, &PADDED_HUGE, F32(1, 1, 2, 2)), /* whose windows are more than can be counted */
    WRONG(col2im, &PADDED_HUGE, F32(1, 4)),
    WRONG(conv2d, &PADDED_HUGE, F32(1, 1, 2, 2), F32(1, 1, 1, 1)),
    WRONG(im2col, &WINDOW_1_PADDED, F32(INT64_MAX, 0, 1, 1)), /* an extent that overflows */
    FITS(col2im, &WINDOW_2_OF_5_6, COLUMNS_F32(12, 40)),
    FITS(col2im, &WINDOW_2_OF_5_6, BF16(0, 20)),
    WRONG(col2im, &WINDOW_2_OF_5_6, F32(12, 41)),
    WRONG(col2im, &WINDOW_2_OF_5_6, F32(13, 40)),
    WRONG(col2im, &WINDOW_2_OF_5_6, I32(12, 40)),
    WRONG(col2im, &WINDOW_6, F32(12, 40)),
    WRONG(col2im, &WINDOW_2_OF_5_6, F32(3, 4, 40)),
    FITS(conv2d, &PADDED, F16(2, 3, 5, 6), TURNED_F32(4, 3, 2, 2)),
    WRONG(conv2d, &PADDED, F32(2, 3, 5, 6), F32(4, 2, 2, 2)),
    WRONG(conv2d, &PADDED, F32(2, 3, 5, 6), F32(4, 3, 2)),
    WRONG(conv2d, &PADDED, F32(2, 3, 5, 6), F32(4, 3, 8, 2)),
    WRONG(conv2d, &PADDED, F32(2, 3, 5, 6), F32(4, 3, 0, 2)),
    WRONG(conv2d, &PADDED, F32(2, 3, 5, 6), I32(4, 3, 2, 2)),
    FITS(conv2d_grad_input, &PADDED, F32(2, 4, 6, 5), F16(4, 3, 2, 2)),
    WRONG(conv2d_grad_input, &PADDED, F32(2, 4, 5, 5), F32(4, 3, 2, 2)),
    WRONG(conv2d_grad_input, &PADDED, F32(2, 3, 6, 5), F32(4, 3, 2, 2)),
    WRONG(conv2d_grad_input, &PADDED, F32(2, 4, 6, 5), F32(4, 3, 2, 7)),
    WRONG(conv2d_grad_input, &PADDED, F32(2, 4, 6, 5), I32(4, 3, 2, 2)),
    FITS(conv2d_grad_weight, &WINDOW_2_OF_5_6, F32(2, 3, 5, 6), TURNED_F32(2, 4, 4, 5)),
    WRONG(conv2d_grad_weight, &WINDOW_2_OF_5_6, F32(2, 3, 5, 6), F32(3, 4, 4, 5)),
    WRONG(conv2d_grad_weight, &WINDOW_2_OF_5_6, F32(2, 3, 5, 6), F32(2, 4, 4, 6)),
    WRONG(conv2d_grad_weight, &WINDOW_6, F32(2, 3, 5, 6), F32(2, 4, 4, 5)),
    WRONG(conv2d_grad_weight, &WINDOW_2_OF_5_6, F32(2, 3, 5, 6), I32(2, 4, 4, 5)),
    FITS(max_pool2d, &WINDOW_3, TURNED_F32(2, 3, 5, 6)),
    WRONG(max_pool2d, &WINDOW_3, F32(3, 5, 6)),
    WRONG(max_pool2d, &WINDOW_3, I32(2, 3, 5, 6)),
    WRONG(max_pool2d, &PADDED_FAR, F32(2, 3, 5, 6)),
    WRONG(max_pool2d, &WINDOW_6, F32(2, 3, 5, 6)),
    FITS(max_pool2d_grad, &WINDOW_3, F16(2, 3, 5, 6), TURNED_F32(2, 3, 3, 3)),
    WRONG(max_pool2d_grad, &WINDOW_3, F32(2, 3, 5, 6), F32(2, 3, 3, 2)),
    WRONG(max_pool2d_grad, &WINDOW_3, F32(2, 3, 5, 6), F32(2, 1, 3, 3)),
    WRONG(max_pool2d_grad, &WINDOW_3, F32(2, 3, 5, 6), I32(2, 3, 3, 3)),
    FITS(adam_step, &ADAM, F32(2, 3), TURNED_F32(2, 3), F32(2, 3), F32(2, 3), SCALAR),
    FITS(adam_step, &ADAM, F32(2, 3), BF16(2, 3), F32(2, 3), F32(2, 3), F32(1, 1)),
    WRONG(adam_step, &ADAM, F16(2, 3), F32(2, 3), F32(2, 3), F32(2, 3), SCALAR),
    WRONG(adam_step, &ADAM, F32(2, 3), F32(3), F32(2, 3), F32(2, 3), SCALAR),
    WRONG(adam_step, &ADAM, F32(2, 3), F32(2, 3), TURNED_F32(2, 3), F32(2, 3), SCALAR),
    WRONG(adam_step, &ADAM, F32(2, 3), F32(2, 3), F32(2, 3), F16(2, 3), SCALAR),
    WRONG(adam_step, &ADAM, F32(2, 3), F32(2, 3), F32(2, 3), F32(2, 3), F32(2)),
    WRONG(adam_step, &ADAM, F32(2, 3), I32(2, 3), F32(2, 3), F32(2, 3), SCALAR),
    WRONG(adam_step, &ADAM_STEP_0, F32(3), F32(3), F32(3), F32(3), SCALAR),
    WRONG(adam_step, &ADAM_BETA_1, F32(3), F32(3), F32(3), F32(3), SCALAR),
    WRONG(adam_step, &ADAM_NO_DECAY, F32(3), F32(3), F32(3), F32(3), SCALAR),
    WRONG(adam_step, &ADAM_NAN, F32(3), F32(3), F32(3), F32(3), SCALAR),
    FITS(sgd_step, &SGD, F32(2, 3), F16(2, 3), F32(2, 3), F32(1)),
    WRONG(sgd_step, &SGD, COLUMNS_F32(2, 3), F16(2, 3), F32(2, 3), F32(1)),
    WRONG(sgd_step, &SGD, F32(2, 3), F32(2, 3), F32(3, 2), F32(1)),
    WRONG(sgd_step, &SGD, F32(2, 3), F32(2, 3), F32(2, 3), I32(1)),
    WRONG(sgd_step, &SGD_NESTEROV, F32(3), F32(3), F32(3), F32(1)),
    WRONG(sgd_step, &SGD_NEGATIVE, F32(3), F32(3), F32(3), F32(1)),
    FITS(sum_squares, NULL, TURNED_F32(2, 3)),
    FITS(sum_squares, NULL, F16(0)),
    WRONG(sum_squares, NULL, I32(2, 3)),
    WRONG(sum_squares, NULL, PACKED_F32(2, 3)),
    FITS(clip_factor, &CLIP, SCALAR),
    FITS(clip_factor, &CLIP_INFINITE, F32(1, 1)),
    WRONG(clip_factor, &CLIP, F32(2)),
    WRONG(clip_factor, &CLIP, F16(1)),
    WRONG(clip_factor, &CLIP_NAN, F32(1)),
    WRONG(clip_factor, &CLIP_NEGATIVE, F32(1)),
    FITS(silu_mul, NULL, COLUMNS_F32(2, 3), F32(2, 3)),
    WRONG(silu_mul, NULL, F32(2, 3), F32(3)),
    WRONG(silu_mul, NULL, F32(2, 3), F32(2, 4)),
    WRONG(silu_mul, NULL, F32(2, 3), I32(2, 3)),
    FITS(silu_mul, NULL, F16(3, 2), TURNED_F32(3, 2)),
    FITS(matmul_nt3, NULL, F32(2, 3), F32(4, 3), PACKED_F32(5, 3), F32(6, 3)),
    WRONG(matmul_nt3, NULL, F32(2, 3), F32(4, 3), F32(5, 3), F32(6, 4)),
    WRONG(matmul_nt3, NULL, F32(2, 3), F32(4, 3), I32(5, 3), F32(6, 3)),
    WRONG(matmul_nt3, NULL, F32(2, 0), F32(INT64_MAX, 0), F32(INT64_MAX, 0), F32(INT64_MAX, 0)), /* overflow again */
    FITS(matmul_nt_gated, &GELU_TANH, F32(2, 3), F32(4, 3), F32(4, 3)),
    WRONG(matmul_nt_gated, &NO_GATE, F32(2, 3), F32(4, 3), F32(4, 3)),
    FITS(matmul_nt_gated, &SILU, F32(2, 3), F32(4, 3), PACKED_F32(4, 3)),
    WRONG(matmul_nt_gated, &SILU, F32(2, 3), F32(4, 3), F32(5, 3)),
    WRONG(matmul_nt_gated, &SILU, F32(2, 3), F32(4, 3), F32(4, 2)),
    WRONG(matmul_nt_gated, &SILU, F32(2, 3), I32(4, 3), I32(4, 3)),
};

static weft_tensor *make_whole(weft_scope *scope, const operand *o, const int64_t *shape) {
  weft_tensor *t = weft_tensor_new(scope, o->dtype, o->rank, shape);
  assert_non_null(t);
  void *zeros = test_alloc(weft_tensor_bytes(t), 1);
  assert_int_equal(weft_tensor_write(t, zeros, weft_tensor_bytes(t)), WEFT_OK);
  free(zeros);
  return t;
}

static weft_tensor *make_turned(weft_scope *scope, const operand *o) {
  int64_t shape[4];
  int axes[4];
  for (int i = 0; i < o->rank; i++) axes[i] = i;
  axes[o->rank - 2] = o->rank - 1, axes[o->rank - 1] = o->rank - 2;
  for (int i = 0; i < o->rank; i++) shape[i] = o->shape[axes[i]];
  return weft_permute(scope, make_whole(scope, o, shape), axes);
}

static weft_tensor *make_columns(weft_scope *scope, const operand *o) {
  int64_t shape[4];
  memcpy(shape, o->shape, sizeof shape);
  shape[o->rank - 1]++;
  return weft_slice(scope, make_whole(scope, o, shape), o->rank - 1, 0, o->shape[o->rank - 1]);
}

static weft_tensor *make_packed(weft_scope *scope, const operand *o) {
  static const float zeros[64];
  assert_true(o->shape[0] * o->shape[1] <= (int64_t)WEFT_COUNT(zeros));
  return weft__weight_load(scope, o->dtype, o->rank, o->shape, zeros, WEFT__WEIGHT_PRODUCT, NULL);
}

static weft_tensor *make_operand(weft_scope *scope, const operand *o) {
  weft_tensor *t = o->form == TURNED    ? make_turned(scope, o)
                   : o->form == COLUMNS ? make_columns(scope, o)
                   : o->form == PACKED  ? make_packed(scope, o)
                                        : make_whole(scope, o, o->shape);
  assert_non_null(t);
  return t;
}

/* "b [2,3] f32": how a message names operand `index`. */
static void describe(const operand *o, int index, char *text, size_t n_bytes) {
  size_t n = (size_t)snprintf(text, n_bytes, "%c [", 'a' + index);
  for (int i = 0; i < o->rank; i++)
    n += (size_t)snprintf(text + n, n_bytes - n, i ? ",%lld" : "%lld", (long long)o->shape[i]);
  snprintf(text + n, n_bytes - n, "] %s", weft_dtype_name(o->dtype));
}

static void expect_rule_error(const rule_case *c, const weft_tensor *y) {
  const weft__op_row *row = weft__op_get(c->op);
  char start[64], shape[128];
  snprintf(start, sizeof start, "%s: ", row->name);
  if (y) fail_msg("%s: wrong operands were taken (row %d)", row->name, (int)(c - RULE_CASES));
  assert_int_equal(weft_last_status(), WEFT_EINVAL);
  if (strncmp(weft_last_error(), start, strlen(start)) != 0)
    fail_msg("\"%s\" does not begin with \"%s\"", weft_last_error(), start);
  for (int i = 0; i < row->n_inputs; i++) {
    describe(&c->in[i], i, shape, sizeof shape);
    if (!strstr(weft_last_error(), shape)) fail_msg("\"%s\" does not show \"%s\"", weft_last_error(), shape);
  }
}

/* Operands that fit differ from those beside them in one thing, so that is what is refused. */
static void check_rules(test_device *d) {
  int n_fits[WEFT_OP_COUNT] = {0}, n_wrong[WEFT_OP_COUNT] = {0};
  for (size_t k = 0; k < WEFT_COUNT(RULE_CASES); k++) {
    const rule_case *c = &RULE_CASES[k];
    weft__op_call call = {.op = c->op, .n_inputs = weft__op_get(c->op)->n_inputs, .attrs = c->attrs};
    weft__shape shape;
    weft_scope *scope = NULL;
    assert_int_equal(weft_scope_open(&scope, d->device, NULL), WEFT_OK);
    for (int i = 0; i < call.n_inputs; i++) call.in[i] = make_operand(scope, &c->in[i]);
    weft__error(WEFT_EIO, "left from an earlier check");
    bool lacks_layout = false; /* wants a layout that this device has not */
    for (int i = 0; i < call.n_inputs; i++)
      lacks_layout |= c->in[i].form == PACKED && call.in[i]->storage->layout == WEFT__LAYOUT_PLAIN;
    if (!c->fits && !lacks_layout)
      expect_rule_error(c, weft__op_run(scope, c->op, call.in, c->attrs, false));
    else if (c->fits && weft__op_get(c->op)->shape_rule(&call, &shape))
      fail_msg("row %zu: %s", k, weft_last_error());
    (c->fits ? n_fits : n_wrong)[c->op]++;
    weft_scope_close(scope);
  }
  for (int op = 0; op < WEFT_OP_COUNT; op++)
    if (!n_fits[op] || n_wrong[op] < 2)
      fail_msg("%s: RULE_CASES wants operands that fit, a wrong shape and a wrong dtype",
               weft__op_get((weft_op)op)->name);
}

static void shape_rules_refuse_what_does_not_fit(void **state) {
  (void)state;
  test_each_device(1, check_rules);
}

/* ---- coverage ---- */

/* The suite that tests an operator's results: tests/test_SUITE.c.  A row of ops.def without one fails. */
static const char *const SUITES[WEFT_OP_COUNT] = {
    [WEFT_OP_ID_add] = "ops_elementwise",
    [WEFT_OP_ID_sub] = "ops_elementwise",
    [WEFT_OP_ID_mul] = "ops_elementwise",
    [WEFT_OP_ID_div] = "ops_elementwise",
    [WEFT_OP_ID_pow] = "ops_elementwise",
    [WEFT_OP_ID_maximum] = "ops_elementwise",
    [WEFT_OP_ID_minimum] = "ops_elementwise",
    [WEFT_OP_ID_compare] = "ops_elementwise",
    [WEFT_OP_ID_where] = "ops_elementwise",
    [WEFT_OP_ID_scale] = "ops_elementwise",
    [WEFT_OP_ID_clamp] = "ops_elementwise",
    [WEFT_OP_ID_abs] = "ops_elementwise",
    [WEFT_OP_ID_neg] = "ops_elementwise",
    [WEFT_OP_ID_exp] = "ops_elementwise",
    [WEFT_OP_ID_log] = "ops_elementwise",
    [WEFT_OP_ID_sqrt] = "ops_elementwise",
    [WEFT_OP_ID_tanh] = "ops_elementwise",
    [WEFT_OP_ID_sigmoid] = "ops_elementwise",
    [WEFT_OP_ID_relu] = "ops_elementwise",
    [WEFT_OP_ID_gelu] = "ops_elementwise",
    [WEFT_OP_ID_gelu_tanh] = "ops_elementwise",
    [WEFT_OP_ID_silu] = "ops_elementwise",
    [WEFT_OP_ID_relu_grad] = "ops_elementwise",
    [WEFT_OP_ID_tanh_grad] = "ops_elementwise",
    [WEFT_OP_ID_sigmoid_grad] = "ops_elementwise",
    [WEFT_OP_ID_gelu_grad] = "ops_elementwise",
    [WEFT_OP_ID_gelu_tanh_grad] = "ops_elementwise",
    [WEFT_OP_ID_silu_grad] = "ops_elementwise",
    [WEFT_OP_ID_scale_in_place] = "ops_elementwise",
    [WEFT_OP_ID_gelu_mul] = "ops_rows",
    [WEFT_OP_ID_cast] = "ops_copy",
    [WEFT_OP_ID_quantize] = "ops_quantize",
    [WEFT_OP_ID_contiguous] = "ops_copy",
    [WEFT_OP_ID_concat] = "ops_copy",
    [WEFT_OP_ID_copy_rows_into] = "ops_copy",
    [WEFT_OP_ID_fill] = "ops_copy",
    [WEFT_OP_ID_fill_uniform] = "ops_copy",
    [WEFT_OP_ID_fill_normal] = "ops_copy",
    [WEFT_OP_ID_dropout] = "ops_copy",
    [WEFT_OP_ID_sum] = "ops_reduce",
    [WEFT_OP_ID_mean] = "ops_reduce",
    [WEFT_OP_ID_max] = "ops_reduce",
    [WEFT_OP_ID_min] = "ops_reduce",
    [WEFT_OP_ID_argmax] = "ops_reduce",
    [WEFT_OP_ID_embed] = "ops_index",
    [WEFT_OP_ID_embed_grad] = "ops_index",
    [WEFT_OP_ID_gather] = "ops_index",
    [WEFT_OP_ID_scatter_add] = "ops_index",
    [WEFT_OP_ID_top_k] = "ops_index",
    [WEFT_OP_ID_softmax] = "ops_rows",
    [WEFT_OP_ID_softmax_grad] = "ops_softmax",
    [WEFT_OP_ID_cross_entropy] = "ops_softmax",
    [WEFT_OP_ID_cross_entropy_grad] = "ops_softmax",
    [WEFT_OP_ID_rms_norm] = "ops_norm",
    [WEFT_OP_ID_rms_norm_xhat] = "ops_norm",
    [WEFT_OP_ID_rms_norm_grad] = "ops_norm",
    [WEFT_OP_ID_layer_norm] = "ops_norm",
    [WEFT_OP_ID_layer_norm_xhat] = "ops_norm",
    [WEFT_OP_ID_layer_norm_grad] = "ops_norm",
    [WEFT_OP_ID_adam_step] = "ops_optimizer",
    [WEFT_OP_ID_sgd_step] = "ops_optimizer",
    [WEFT_OP_ID_sum_squares] = "ops_optimizer",
    [WEFT_OP_ID_clip_factor] = "ops_optimizer",
    [WEFT_OP_ID_silu_mul] = "ops_rows",
    [WEFT_OP_ID_rope_table] = "ops_rope",
    [WEFT_OP_ID_rope] = "ops_rope",
    [WEFT_OP_ID_matmul] = "gemm",
    [WEFT_OP_ID_matmul_nt] = "matmul",
    [WEFT_OP_ID_matmul_nt3] = "matmul",
    [WEFT_OP_ID_matmul_nt_gated] = "matmul",
    [WEFT_OP_ID_kv_append] = "attention",
    [WEFT_OP_ID_paged_attention] = "attention",
    [WEFT_OP_ID_im2col] = "ops_conv",
    [WEFT_OP_ID_col2im] = "ops_conv",
    [WEFT_OP_ID_conv2d] = "ops_conv",
    [WEFT_OP_ID_conv2d_grad_input] = "ops_conv",
    [WEFT_OP_ID_conv2d_grad_weight] = "ops_conv",
    [WEFT_OP_ID_max_pool2d] = "ops_conv",
    [WEFT_OP_ID_max_pool2d_grad] = "ops_conv",
    [WEFT_OP_ID_attention] = "dense_attention",
    [WEFT_OP_ID_attention_lse] = "dense_attention",
    [WEFT_OP_ID_attention_grad] = "dense_attention",
};

/* The text of a suite, freed with free. */
static char *read_suite(const char *suite) {
  char path[64];
  snprintf(path, sizeof path, "tests/test_%s.c", suite);
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("%s: there is no such suite (run the tests in the repository's top folder)", path);
  enum { ROOM = 1 << 20 };
  char *text = test_alloc(ROOM + 1, 1);
  text[fread(text, 1, ROOM, file)] = 0;
  fclose(file);
  return text;
}

/* Does `name` stand in the text, as a whole word? */
static bool has_word(const char *text, const char *name) {
  for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
    char after = at[strlen(name)];
    if (!isalnum((unsigned char)after) && after != '_') return true;
  }
  return false;
}

/* Is the operator called, by its function or by its row in a table of cases? */
static bool calls(const char *text, const char *operator) {
  char function[64], row[64];
  snprintf(function, sizeof function, "weft_%s", operator);
  snprintf(row, sizeof row, "{WEFT_OP_ID_%s", operator);
  return has_word(text, function) || has_word(text, row);
}

static void every_operator_has_a_suite(void **state) {
  (void)state;
  for (int op = 0; op < WEFT_OP_COUNT; op++) {
    const char *name = weft__op_get((weft_op)op)->name;
    if (!SUITES[op]) fail_msg("%s: no suite tests it; write the test, then name its suite in SUITES", name);
    char *text = read_suite(SUITES[op]);
    bool is_called = calls(text, name);
    free(text);
    if (!is_called) fail_msg("%s: the suite %s does not call it", name, SUITES[op]);
  }
}

int main(void) {
  test_use_gpus();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shape_rules_refuse_what_does_not_fit),
      cmocka_unit_test(every_operator_has_a_suite),
  };
  return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
