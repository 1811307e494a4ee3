/* scope.c - scopes: the lists that own tensor handles.
 *
 * Invariant: every handle is in exactly one scope's list.  A scope is one thread's. */
#include "tensor/tensor.h"

struct weft_scope {
  weft_device *device;
  weft_scope *parent;
  weft_tensor *first; /* newest */
};

weft_status weft_scope_open(weft_scope **out, weft_device *device, weft_scope *parent) {
  if (!device) return weft__error(WEFT_EINVAL, "scope: no device (open one with weft_device_open)");
  if (parent && parent->device != device)
    return weft__error(WEFT_EINVAL, "scope: the parent is on another device (nest scopes of one device)");
  weft_scope *scope = weft__calloc(1, sizeof *scope);
  if (!scope) return WEFT_ENOMEM;
  scope->device = device;
  scope->parent = parent;
  *out = scope;
  return WEFT_OK;
}

void weft_scope_close(weft_scope *scope) {
  if (!scope) return;
  while (scope->first) weft_tensor_free(scope->first);
  weft_free(scope);
}

weft_tensor *weft_scope_keep(weft_scope *scope, weft_tensor *tensor) {
  if (!tensor) return NULL;
  if (tensor->scope != scope || !scope->parent) {
    weft__error(WEFT_EINVAL, "keep: %s (keep a tensor of a nested scope)",
                scope->parent ? "the tensor is another scope's" : "the scope has no parent");
    return NULL;
  }
  weft__scope_detach(tensor);
  weft__scope_attach(scope->parent, tensor);
  return tensor;
}

void weft__scope_attach(weft_scope *scope, weft_tensor *t) {
  t->scope = scope;
  t->prev = NULL;
  t->next = scope->first;
  if (t->next) t->next->prev = t;
  scope->first = t;
}

void weft__scope_detach(weft_tensor *t) {
  if (t->prev)
    t->prev->next = t->next;
  else
    t->scope->first = t->next;
  if (t->next) t->next->prev = t->prev;
  t->scope = NULL;
}

weft__backend *weft__scope_backend(const weft_scope *scope) { return scope->device->backend; }
weft_device *weft__scope_device(const weft_scope *scope) { return scope->device; }
