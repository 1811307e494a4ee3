/* fault.c - the words for what is wrong in operands' contents, the same on every device. */
#include "tensor/tensor.h"

weft_status weft__fault(weft_op op, weft__fault_kind kind, const int64_t numbers[4]) {
  static const char *const texts[] = {
#define WEFT_FAULT(name, text) [WEFT__FAULT_##name] = text,
#include "tensor/faults.def"
#undef WEFT_FAULT
  };
  return weft__error(WEFT_EINVAL, texts[kind], weft__op_get(op)->name, (long long)numbers[0], (long long)numbers[1],
                     (long long)numbers[2], (long long)numbers[3]);
}
