/* rule.h - what the files of shape rules share. */
#ifndef WEFT_RULE_H
#define WEFT_RULE_H

#include "tensor/tensor.h"

/* Fails with the operands' shapes in the message. */
static inline weft_status mismatch(const weft__op_call *call, const char *rule) {
  char text[WEFT__OP_MAX_INPUTS][160];
  weft__bytes list = {0};
  for (int i = 0; i < call->n_inputs; i++)
    if (weft__bytes_printf(&list, "%s%c %s", i ? ", " : "", 'a' + i, weft__shape_text(call->in[i], text[i]))) break;
  weft_status status =
      weft__error(WEFT_EINVAL, "%s: %s; got %s", weft__op_get(call->op)->name, rule, list.data ? list.data : "?");
  weft__bytes_clear(&list);
  return status;
}

static inline bool is_plain(const weft_tensor *t, weft_dtype dtype) {
  return t->dtype == dtype && t->storage->layout == WEFT__LAYOUT_PLAIN;
}

/* f32, or a half that is computed with as f32. */
static inline bool is_real(const weft_tensor *t) {
  return is_plain(t, WEFT_F32) || is_plain(t, WEFT_F16) || is_plain(t, WEFT_BF16);
}

static inline bool is_any(const weft_tensor *t) { return is_real(t) || is_plain(t, WEFT_I32); }

/* What an operator may write to: not the memory that a weight borrows from its file. */
static inline bool is_writable(const weft_tensor *t) { return !t->storage->is_borrowed && weft__is_contiguous(t); }

static inline void shape_of(const weft_tensor *t, weft__shape *out) {
  out->dtype = t->dtype;
  out->rank = t->rank;
  for (int i = 0; i < t->rank; i++) out->dim[i] = t->shape[i];
}

#endif
