/* operators_page.c - writes docs/operators.md, the reference of the operators, from weft/ops.def. */
#include <stdio.h>

/* Text in a cell of a table, where | ends the cell. */
static void print_cell(const char *text) {
  fputs(" ", stdout);
  for (; *text; text++) printf(*text == '|' ? "\\|" : "%c", *text);
  fputs(" |", stdout);
}

static void print_row(const char *name, int n_inputs, const char *attributes, const char *kind, const char *formula,
                      const char *gradient, const char *cost) {
  printf("| `%s` | %d%s | %s |", name, n_inputs, attributes, kind);
  print_cell(formula);
  print_cell(gradient);
  print_cell(cost);
  fputs("\n", stdout);
}

#define NAME_PLAIN ""
#define NAME_ATTRS " + attrs"
#define ROW(name, n_inputs, attributes, kind, formula, gradient, cost)                                                 \
  print_row(#name, n_inputs, NAME_##attributes, kind, formula, gradient, cost);

int main(void) {
  fputs("# Operators\n\n"
        "Made from `include/weft/ops.def` by `make docs`. Every operator runs on the CPU and on a GPU, with the same formula and\n"
        "shapes, but for sizes that gpu-kernels.md names; a test compares each with a double-precision reference on both. Operands are a, b, c ... in order, y is the\n"
        "result and dy a gradient by it; `...` stands for any leading axes and \"real\" for f32, f16 or bf16. `weft/ops.h` describes\n"
        "the attributes.\n\n"
        "Kinds: a *primitive* has kernels of its own; a *composite* is made of other operators where a device has no fused kernel;\n"
        "one *in place* writes to its operands and returns a view of a. The gradient column names the operator that computes it, or\n"
        "says how others do; gradients of broadcast operands are summed over the axes they were broadcast along.\n\n"
        "| operator | inputs | kind | formula, shapes, dtypes | gradient | cost |\n|---|---|---|---|---|---|\n",
        stdout);
#define WEFT_OP(name, n_inputs, attributes, formula, gradient, cost)                                                   \
  ROW(name, n_inputs, attributes, "primitive", formula, gradient, cost)
#define WEFT_COMPOSITE(name, n_inputs, attributes, formula, gradient, cost)                                            \
  ROW(name, n_inputs, attributes, "composite", formula, gradient, cost)
#define WEFT_IN_PLACE(name, n_inputs, attributes, formula, gradient, cost)                                             \
  ROW(name, n_inputs, attributes, "in place", formula, gradient, cost)
#include "weft/ops.def"
  return 0;
}
