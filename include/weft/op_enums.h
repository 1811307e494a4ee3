/* weft/op_enums.h - of what operators are told, the part that kernels know too.  It stands apart from the table of operators,
 * so that a new row does not compile every kernel anew. */
#ifndef WEFT_OP_ENUMS_H
#define WEFT_OP_ENUMS_H

/* The function of a gated product; zero is the default. */
typedef enum weft_gate {
  WEFT_GATE_SILU,
  WEFT_GATE_GELU_TANH,
} weft_gate;

/* Positions that a block of the key/value cache holds. */
#define WEFT_KV_BLOCK 32

#endif
