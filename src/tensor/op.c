/* op.c - the operator table and the one way to run an operator: check, make the result, hand over to the backend or
 * run the lowering.  (A tape's record hook belongs into weft__op_run, after the operator has run.) */
#include "tensor/tensor.h"

#define HAS_ATTRS_PLAIN false
#define HAS_ATTRS_ATTRS true

#define ROW(name, n_inputs, attributes, formula, lowering, in_place)                                                   \
  [WEFT_OP_ID_##name] = {#name, n_inputs, HAS_ATTRS_##attributes, formula, weft__shape_##name, lowering, in_place},

static const weft__op_row OPS[WEFT_OP_COUNT] = {
#define WEFT_OP(name, n_inputs, attributes, formula, gradient, cost)                                                   \
  ROW(name, n_inputs, attributes, formula, NULL, false)
#define WEFT_COMPOSITE(name, n_inputs, attributes, formula, gradient, cost)                                            \
  ROW(name, n_inputs, attributes, formula, weft__lower_##name, false)
#define WEFT_IN_PLACE(name, n_inputs, attributes, formula, gradient, cost)                                             \
  ROW(name, n_inputs, attributes, formula, NULL, true)
#include "weft/ops.def"
#undef WEFT_OP
};

const weft__op_row *weft__op_get(weft_op op) { return &OPS[op]; }

static weft_status check_operands(const weft__op_row *row, const weft__op_call *call, const weft__backend *backend) {
  for (int i = 0; i < call->n_inputs; i++)
    if (call->in[i]->storage->backend != backend)
      return weft__error(WEFT_EINVAL, "%s: operand %c is on another device", row->name, 'a' + i);
  if (row->has_attrs && !call->attrs) return weft__error(WEFT_EINVAL, "%s: no attributes given", row->name);
  return WEFT_OK;
}

/* Runs the lowering in a scope of its own, so that only the result outlives it. */
static weft_tensor *run_lowering(weft_scope *scope, const weft__op_row *row, const weft__op_call *call) {
  weft_scope *inner;
  if (weft_scope_open(&inner, weft__scope_device(scope), scope)) return NULL;
  weft_tensor *out = row->lower(inner, call);
  if (out) out = weft_scope_keep(inner, out);
  weft_scope_close(inner);
  return out;
}

weft_tensor *weft__op_run(weft_scope *scope, weft_op op, weft_tensor *const *in, const void *attrs,
                          bool force_lowering) {
  const weft__op_row *row = &OPS[op];
  weft__op_call call = {.op = op, .n_inputs = row->n_inputs, .attrs = attrs};
  for (int i = 0; i < row->n_inputs; i++) {
    if (!in[i]) {
      if (!weft_last_status()) weft__error(WEFT_EINVAL, "%s: operand %c is NULL", row->name, 'a' + i);
      return NULL;
    }
    call.in[i] = in[i];
  }
  weft__backend *backend = weft__scope_backend(scope);
  weft__shape shape;
  if (check_operands(row, &call, backend) || row->shape_rule(&call, &shape)) return NULL;
  weft__op_function run = backend->class->ops[op];
  if (run && backend->class->supports && !backend->class->supports(backend, &call)) run = NULL;
  if (row->lower && (!run || force_lowering)) return run_lowering(scope, row, &call);
  if (!run && !backend->fallback) {
    weft__error(WEFT_EUNSUPPORTED, "%s: not available on %s", row->name, backend->name);
    return NULL;
  }
  call.out =
      row->is_in_place ? weft__tensor_alias(scope, in[0]) : weft_tensor_new(scope, shape.dtype, shape.rank, shape.dim);
  if (!call.out) return NULL;
  if (backend->class->lock) backend->class->lock(backend);
  backend->current_op = op;
  weft_status status = run ? run(backend, &call) : weft__op_fallback(backend, row, &call);
  if (backend->class->unlock) backend->class->unlock(backend);
  if (status) {
    weft_tensor_free(call.out);
    return NULL;
  }
  return call.out;
}

/* ---- the public functions, one a row ---- */

#define OPERANDS_1 a
#define OPERANDS_2 OPERANDS_1, b
#define OPERANDS_3 OPERANDS_2, c
#define OPERANDS_4 OPERANDS_3, d
#define OPERANDS_5 OPERANDS_4, e
#define OPERANDS_6 OPERANDS_5, f
#define OPERANDS_7 OPERANDS_6, g
#define OPERANDS_8 OPERANDS_7, h
#define OPERANDS_9 OPERANDS_8, i
#define ATTRS_POINTER_PLAIN NULL
#define ATTRS_POINTER_ATTRS attrs

#define WEFT_OP(name, n_inputs, attributes, formula, gradient, cost)                                                   \
  weft_tensor *weft_##name(weft_scope *scope, WEFT_OP_INPUTS_##n_inputs WEFT_OP_##attributes(name)) {                  \
    weft_tensor *const in[] = {OPERANDS_##n_inputs};                                                                   \
    return weft__op_run(scope, WEFT_OP_ID_##name, in, ATTRS_POINTER_##attributes, false);                              \
  }
#include "weft/ops.def"
#undef WEFT_OP
