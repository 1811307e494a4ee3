/* weft/ops.h - the operators.
 *
 * An operator makes a new tensor in `scope`.  Given a NULL operand it returns NULL with the error already set, so a whole
 * expression is checked once, at its end.  Wrong shapes, dtypes or devices: NULL, EINVAL.  What is wrong in an operand's
 * contents, an index out of range, is EINVAL, too: on the CPU at once; a GPU makes the result without the elements that
 * the index stands for, and the device's next read or sync tells, of the first that was found.  (A result without elements is
 * not computed there, so nothing is looked at.)
 * Rows, formulas and shapes: weft/ops.def. */
#ifndef WEFT_OPS_H
#define WEFT_OPS_H

#include "weft/op_enums.h"
#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_scale_attrs {
  float factor;
} weft_scale_attrs;
typedef weft_scale_attrs weft_scale_in_place_attrs;

/* matmul multiplies real tensors of ranks 1 to 8 as NumPy does: the last two axes are matrices, the axes before them are
 * broadcast.  A rank-1 a is one row, a rank-1 b one column, and the result lacks that axis; a vector has no transpose.
 * Any view will do.  A quantised b is one matrix [N,K] and comes with transpose_b; a is then not transposed.
 * Weights that stay the same are better multiplied by matmul_nt: it takes them packed and quantised, sums each output
 * in the same order whatever the other rows are, and its right operand is always one matrix [M,K]. */
typedef struct weft_matmul_attrs {
  int transpose_a; /* 1: a is [...,K,M] */
  int transpose_b; /* 1: b is [...,N,K] */
} weft_matmul_attrs;

/* Axes are counted from 0, the outermost. */
typedef struct weft_concat_attrs {
  int axis;
} weft_concat_attrs;

typedef enum weft_relation {
  WEFT_EQUAL,
  WEFT_NOT_EQUAL, /* the one that holds for NaN */
  WEFT_LESS,
  WEFT_LESS_EQUAL,
  WEFT_GREATER,
  WEFT_GREATER_EQUAL,
} weft_relation;

typedef struct weft_compare_attrs {
  weft_relation relation;
} weft_compare_attrs;

typedef struct weft_clamp_attrs {
  float min, max; /* min <= max; either may be infinite */
} weft_clamp_attrs;

/* cast rounds to the nearest, ties to even; to i32 it drops the fraction, what lies outside becomes the nearest i32 and
 * NaN becomes 0.  A quantised tensor casts to f32: that is its dequantisation. */
typedef struct weft_cast_attrs {
  weft_dtype dtype;
} weft_cast_attrs;

/* quantize stores a tensor of any shape in fewer bits: for matmul_nt's and matmul's right operand, or to be cast back.
 * Rows are padded with zeros to whole blocks of 32 along the last axis; of each block one d, an f16, and 32 codes, with
 * the layout of GGUF's types:
 *   q8_0 (9 bytes for 8 elements' 32): x = d*q, d = max|x| / 127, q = x / d to the nearest, ties to even, -127 .. 127
 *   q4_0 (9 bytes for 16 elements' 64): x = d*(q-8), d = x_m / -8 for the x_m of largest magnitude, q = x / d + 8 likewise,
 *     0 .. 15
 * where x / d takes d as it is stored.  Every device makes the same bits.  The result is packed as weft_weight_from's are;
 * weft_tensor_read gives its blocks.  EINVAL for elements that are not finite, or whose d exceeds f16. */
typedef struct weft_quantize_attrs {
  weft_dtype dtype; /* WEFT_Q8_0 or WEFT_Q4_0 */
} weft_quantize_attrs;

/* The reductions sum, mean, max, min and argmax.  Zeros: over all axes, which then are gone.  The CPU keeps sums in
 * double and rounds once; neither the order of the terms nor the result depends on the number of threads.  A GPU sums
 * in f32, in a fixed order: within 2^-16 of the terms' magnitudes, some 2^-22 in practice.  argmax gives the place in
 * the row-major order of the reduced axes: with one axis, the index along it.  NaN counts as the largest, as in NumPy.
 * max, min and argmax of no elements are EINVAL. */
typedef struct weft_reduce_attrs {
  int n_axes; /* 0: all of them */
  int axes[WEFT_MAX_RANK];
  int keep_dims; /* 1: reduced axes stay, with extent 1 */
} weft_reduce_attrs;
typedef weft_reduce_attrs weft_sum_attrs, weft_mean_attrs, weft_max_attrs, weft_min_attrs, weft_argmax_attrs;

/* top_k: [..,k,..] i32 in descending order of the elements; the lower place first among equals, NaN before all numbers.
 * The elements themselves are gather(a, top_k(a), the same axis). */
typedef struct weft_top_k_attrs {
  int axis;
  int64_t k; /* 1 to the axis's extent */
} weft_top_k_attrs;

/* gather and scatter_add.  b has a's rank.  Along the axis, y (gather) or c (scatter_add) has b's extent, and b's
 * elements are indices 0 .. a's extent - 1: another one is EINVAL, and it is named.  Along the other axes a, b and y of
 * gather broadcast; c of scatter_add has a's extents, and b has them or 1.  So b [N,1] and axis 0 look up, or add to,
 * whole rows.  On the CPU what is added to one place is added in the order of the indices, on any number of threads; on a
 * GPU in no fixed order, so that sums of more than two terms may differ in their last places from run to run. */
typedef struct weft_gather_attrs {
  int axis;
} weft_gather_attrs;
typedef weft_gather_attrs weft_scatter_add_attrs;

/* embed_grad: the gradient of embed's table [V,C], from the ids [N] and dy [N,C].  Rows of a token that stands at several
 * places are sums, ordered as scatter_add's.  An id outside 0 .. V - 1 is EINVAL. */
typedef struct weft_embed_grad_attrs {
  int64_t n_rows; /* V */
} weft_embed_grad_attrs;

/* cross_entropy(logits [N,V] real, targets [N] i32) is each row's loss [N]: the negative logarithm of the target's softmax.
 * A negative target masks its row: loss and gradient are 0.  A target of V or more is EINVAL, and it is named.
 * The mean over the M rows that are not masked, which training minimises, is sum(cross_entropy) / M; its gradient by the
 * logits is cross_entropy_grad(logits, targets, c) with every element of c 1/M.
 * A row that holds NaN or an infinity above 0, or whose elements are all -infinity, has a loss and a gradient of NaN. */

/* fill sets every element.  fill_uniform and fill_normal draw from Philox4x32-10 (Salmon et al. 2011): element e of the
 * row-major order gets word e % 4 of block e / 4 under (seed, stream), so a draw depends on neither device nor threads.
 *   uniform: u = floor(word / 2^8) / 2^24, then low + u * (high - low) in f32, the number next to high if that rounds to it
 *   normal:  words are taken in pairs, u1 = (floor(word / 2^8) + 1) / 2^24 and u2 as above (Box and Muller 1958):
 *            r = sqrt(-2 ln u1), z = r cos(2 pi u2) and r sin(2 pi u2), then mean + z * deviation
 * Devices agree on u to the bit; on z to the last places, as their logarithms and cosines do. */
typedef struct weft_fill_attrs {
  float value;
} weft_fill_attrs;

typedef struct weft_fill_uniform_attrs {
  uint64_t seed, stream; /* one stream a tensor or a step */
  float low, high;       /* finite, and so is high - low */
} weft_fill_uniform_attrs;

typedef struct weft_fill_normal_attrs {
  uint64_t seed, stream;
  float mean, deviation; /* finite, deviation >= 0 */
} weft_fill_normal_attrs;

/* dropout (Srivastava et al. 2014), scaled so that the mean stays: element e is kept if the draw u that fill_uniform makes of
 * it under (seed, stream) is p or more, else it is 0, whatever it was.  The mask is the same on all devices and for the
 * gradient. */
typedef struct weft_dropout_attrs {
  uint64_t seed, stream; /* one stream a layer and step */
  float p;               /* what is dropped of all elements: 0 <= p < 1 */
} weft_dropout_attrs;

/* copy_rows_into writes N rows of a, from row `first` on, in a's dtype. */
typedef struct weft_copy_rows_into_attrs {
  int64_t first;
} weft_copy_rows_into_attrs;

/* rms_norm (Zhang and Sennrich 2019) and layer_norm (Ba, Kiros and Hinton 2016) along the last axis of a [...,C]; the
 * variance is divided by C.  NAME_xhat is what the gain b multiplies, so the gain's gradient is sum(dy * NAME_xhat(a)) over
 * the rows, and the bias's sum(dy).  NAME_grad(a, b, dy) is the gradient by a: with x = NAME_xhat(a) and g = dy * b,
 *   da = (g - x * mean(g * x)) / sqrt(mean(a^2) + eps)            rms_norm
 *   da = (g - mean g - x * mean(g * x)) / sqrt(var a + eps)       layer_norm
 * Elements may be as large as f32 holds, on a GPU those of layer_norm up to 1e36.  A row that lies far from 0 loses no more
 * than its elements' own rounding. */
typedef struct weft_rms_norm_attrs {
  float eps; /* added to the mean square, or the variance */
} weft_rms_norm_attrs;
typedef weft_rms_norm_attrs weft_rms_norm_xhat_attrs, weft_rms_norm_grad_attrs;
typedef weft_rms_norm_attrs weft_layer_norm_attrs, weft_layer_norm_xhat_attrs, weft_layer_norm_grad_attrs;

/* adam_step(parameters, gradient, m, v, factor) is a step of Adam (Kingma and Ba 2015), or with decoupled decay of AdamW
 * (Loshchilov and Hutter 2019), as torch.optim computes them; all of one shape but the factor, m and v zeros before step 1.
 * With g = factor * gradient (+ weight_decay * parameters, L2) and t = step:
 *   m = beta1 * m + (1 - beta1) * g,  v = beta2 * v + (1 - beta2) * g^2
 *   parameters = (1 - lr * weight_decay, decoupled) * parameters
 *                - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 * sgd_step(parameters, gradient, m, factor) is a step of gradient descent as torch.optim.SGD does it, m zeros before the
 * first: g = factor * gradient + weight_decay * parameters, m = momentum * m + g, and parameters -= lr * m, or with
 * Nesterov's lr * (g + momentum * m); without momentum lr * g, and m is not touched: it may be the parameters again.
 * Where the factor is infinite or NaN, nothing changes: the step is skipped on the device, and nobody has to read the
 * gradient's norm.  Attributes are in double, as 1 - beta is.  The operands that are changed overlap no other. */
typedef enum weft_decay {
  WEFT_DECAY_DECOUPLED, /* AdamW's */
  WEFT_DECAY_L2,        /* added to the gradient */
} weft_decay;

typedef struct weft_adam_step_attrs {
  double lr, beta1, beta2, eps, weight_decay; /* betas of [0, 1); the others finite, not negative */
  int64_t step;                               /* 1, 2, ... */
  weft_decay decay;
} weft_adam_step_attrs;

typedef struct weft_sgd_step_attrs {
  double lr, momentum, weight_decay; /* finite, not negative */
  int nesterov;                      /* 1: wants a momentum */
} weft_sgd_step_attrs;

/* A gradient of many tensors is clipped to a norm, as torch's clip_grad_norm_ does it, by the sum_squares of each, added
 * up, and the clip_factor of that, which the steps take; it stays on the device.  An element beyond f32's range, or a norm
 * beyond 1.8e19, makes the factor NaN, and the steps are skipped.  A GPU takes squares below 1.2e-38 for 0. */
typedef struct weft_clip_factor_attrs {
  double max_norm; /* not negative; infinite: the factor is 1, or NaN */
} weft_clip_factor_attrs;

typedef struct weft_matmul_nt_gated_attrs {
  weft_gate gate;
} weft_matmul_nt_gated_attrs;

/* Pair i turns by position * scale * f(base^(-2i/R)) / factor i.  The ways to stretch a context: linear scaling is scale =
 * 1/s; NTK's is another base; Llama 3 stretches the long waves alone, by the factors (1 leaves a pair as it is).  YaRN (Peng
 * et al. 2023) is f(w) = (1 - k) w/s + k w, with k from 0 to 1 as the pair turns 1 to 32 times within the context that the
 * model was trained on; its attention factor 0.1 ln s + 1 is the magnitude of cosines and sines. */
typedef struct weft_rope_table_attrs {
  int n_dims;        /* R: rotated elements of a head, even */
  float base;        /* theta, 10000 in RoFormer (Su et al. 2021) */
  float scale;       /* of the position; 1 = none */
  float yarn_factor; /* s of YaRN, 1 or more; 0: no YaRN */
  int yarn_context;  /* positions that the model was trained on; with a yarn_factor */
  float magnitude;   /* above 0; 0 stands for 1 */
} weft_rope_table_attrs;

typedef enum weft_rope_pairing {
  WEFT_ROPE_INTERLEAVED, /* element 2i with 2i+1 */
  WEFT_ROPE_HALVES,      /* element i with i + R/2 */
} weft_rope_pairing;

typedef struct weft_rope_attrs {
  int head_size; /* D; elements R to D-1 of a head pass unchanged */
  weft_rope_pairing pairing;
  int inverse; /* 1: by the opposite angles, which is the gradient */
} weft_rope_attrs;

/* Paged key/value cache.  Positions are kept in blocks of WEFT_KV_BLOCK; keys are stored transposed within a block so
 * that a query meets WEFT_KV_BLOCK keys at a time:
 *   keys   [n_blocks, G, D, WEFT_KV_BLOCK]    values [n_blocks, G, WEFT_KV_BLOCK, D]      f32, f16 or q8_0, both alike
 * q8_0 (D a multiple of 32): each head's block is its D * WEFT_KV_BLOCK int8 in that order, then f16 scales
 *   [D/32, WEFT_KV_BLOCK], one for 32 dimensions of a position, keys and values alike; so only these operators read it.
 *   block_table [n_slots, n_blocks_per_slot] i32: block that holds positions i*WEFT_KV_BLOCK.. of a slot, -1 = none
 *
 * kv_append(keys, values, k [N,G*D], v [N,G*D], block_table, positions [N] i32, slots [N] i32) writes in place and
 *   returns a view of `keys`.
 * paged_attention(q [N,H*D], keys, values, block_table, positions [N], slots [N]): token n sees positions
 *   0 .. positions[n] of slots[n], or the last `window` of them; heads h*H/G .. share key/value head h (grouped-query
 *   attention) -> [N,H*D] f32.  Blocks that lie before the window are not read and need not exist.
 *   Softmax is computed online, block by block (Dao et al. 2022): no score matrix. */
typedef struct weft_paged_attention_attrs {
  int n_heads; /* H, a multiple of G */
  float scale; /* of the scores, usually 1/sqrt(D) */
  int window;  /* positions that a token sees, itself among them; 0: all up to its own */
} weft_paged_attention_attrs;

typedef enum weft_mask {
  WEFT_MASK_NONE,   /* every query sees every key */
  WEFT_MASK_CAUSAL, /* query i of T sees keys 0 .. i + S - T of S >= T */
} weft_mask;

/* attention(q [B,T,H*D], k [B,S,G*D], v [B,S,G*D]) -> [B,T,H*D]: softmax(q k^T * scale) v for each head, f32; without the
 * axis B all three have two axes.  S >= 1; rows are contiguous, at any stride.  Heads h*H/G .. share key/value head h.
 * Softmax is computed online (Dao et al. 2022): no matrix of scores.
 *
 * For training, without the axis B throughout or with it:
 * attention_lse(y [B,T,H*D], lse [B,T,H], q, k, v) writes y = attention(q, k, v) and, for each query and head,
 *   lse = log(sum of exp(scores * scale)) over the keys that it sees: all that the gradient needs of the scores.
 * attention_grad(dq, dk, dv, q, k, v, y, lse, dy) writes the gradients by q, k and v of sum(y * dy):
 *   p = exp(scores * scale - lse), ds = p * (dy v^T - rowsum(y * dy)) * scale, dv = p^T dy, dk = ds^T q, dq = ds k.
 *   Heads that share a key/value head are summed.  Tiles of p are computed anew; there is no T x S matrix.
 * What is written is f32 of one shape with what it belongs to, in storages that hold no operand that is read; y and lse
 * are contiguous, dq, dk and dv have contiguous rows at any stride that keeps them apart, so that they may be columns of
 * one tensor [B,T,(H+2G)*D].  Both return a view of the first operand. */
typedef struct weft_attention_attrs {
  int n_heads; /* H, a multiple of G */
  float scale; /* of the scores, usually 1/sqrt(D) */
  weft_mask mask;
  int window; /* with WEFT_MASK_CAUSAL: keys that a query sees, up to its own; 0: all of these */
} weft_attention_attrs;
typedef weft_attention_attrs weft_attention_lse_attrs, weft_attention_grad_attrs;

/* Windows of kh x kw elements slide over images [N,C,H,W]: Ho = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1 of them
 * along the height, rounded down, and Wo along the width.  Window (oy, ox) meets row oy * stride - padding + ky * dilation and
 * the column likewise.  A kernel larger than the padded image is EINVAL.
 *
 * im2col(x): column n*Ho*Wo + oy*Wo + ox has what that window meets in image n, row c*kh*kw + ky*kw + kx by row; zeros outside
 *   the image.  col2im is its transpose.  Reads kernel; col2im: input and kernel.
 * conv2d(x [N,C,H,W], w [M,C,kh,kw]): correlation, as neural networks have it; the columns of some images at a time are
 *   multiplied by w.  The kernel is w's.  A bias is added by add, as [M,1,1].
 * conv2d_grad_input(dy, w) reads input, conv2d_grad_weight(x, dy) kernel.
 * max_pool2d(x): places outside the image do not count, nor may padding exceed half of what a window spans; one that meets
 *   nothing, which wide dilation allows, makes -inf.  max_pool2d_grad(x, dy) adds dy where the largest element lies, the first
 *   in row-major order among equals; NaN counts as the largest. */
typedef struct weft_window2d_attrs { /* height, then width; below 2^31 */
  int64_t input[2];                  /* H and W of the images to be made */
  int64_t kernel[2];                 /* kh and kw */
  int64_t stride[2];                 /* 0: 1, for pooling the kernel's extent */
  int64_t padding[2];                /* on both sides */
  int64_t dilation[2];               /* between elements of the kernel; 0: 1 */
} weft_window2d_attrs;
typedef weft_window2d_attrs weft_im2col_attrs, weft_col2im_attrs, weft_conv2d_attrs, weft_conv2d_grad_input_attrs,
    weft_conv2d_grad_weight_attrs, weft_max_pool2d_attrs, weft_max_pool2d_grad_attrs;

#define WEFT_OP_INPUTS_1 weft_tensor *a
#define WEFT_OP_INPUTS_2 WEFT_OP_INPUTS_1, weft_tensor *b
#define WEFT_OP_INPUTS_3 WEFT_OP_INPUTS_2, weft_tensor *c
#define WEFT_OP_INPUTS_4 WEFT_OP_INPUTS_3, weft_tensor *d
#define WEFT_OP_INPUTS_5 WEFT_OP_INPUTS_4, weft_tensor *e
#define WEFT_OP_INPUTS_6 WEFT_OP_INPUTS_5, weft_tensor *f
#define WEFT_OP_INPUTS_7 WEFT_OP_INPUTS_6, weft_tensor *g
#define WEFT_OP_INPUTS_8 WEFT_OP_INPUTS_7, weft_tensor *h
#define WEFT_OP_INPUTS_9 WEFT_OP_INPUTS_8, weft_tensor *i
#define WEFT_OP_PLAIN(name)
#define WEFT_OP_ATTRS(name) , const weft_##name##_attrs *attrs

#define WEFT_OP(name, n_inputs, attributes, formula, gradient, cost)                                                   \
  WEFT_API weft_tensor *weft_##name(weft_scope *scope, WEFT_OP_INPUTS_##n_inputs WEFT_OP_##attributes(name));
#include "weft/ops.def"
#undef WEFT_OP

/* The operators' indices, for tables. */
typedef enum weft_op {
#define WEFT_OP(name, n_inputs, attributes, formula, gradient, cost) WEFT_OP_ID_##name,
#include "weft/ops.def"
#undef WEFT_OP
  WEFT_OP_COUNT
} weft_op;

#ifdef __cplusplus
}
#endif
#endif
