#!/usr/bin/env python3
"""Writes quant.json: random blocks of each quantised type and the values that the Python package gguf gives them.

Usage: make_quant_golden.py OUTPUT     (needs the packages gguf and numpy; the file was made with gguf 0.19.0)

A case is a type, N_BLOCKS blocks of random bytes as hexadecimal text, and the bits of their values in f32 as hexadecimal words.
The f16 fields of a block are finite numbers of all sizes, subnormal ones and both zeros among them, so that no value is
a NaN, whose bits nothing defines.
"""
import json
import sys

import numpy
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

N_BLOCKS = {32: 24, 256: 4}
# Where a block has an f16.
F16_PLACES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "BF16": [],
}
EXTREMES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x3C00]


def random_f16(rng, index):
    if index < len(EXTREMES):
        return EXTREMES[index]
    return int(rng.integers(0, 2)) << 15 | int(rng.integers(0, 0x7C00))


def make_case(name):
    kind = GGMLQuantizationType[name]
    rng = numpy.random.Generator(numpy.random.PCG64(int(kind)))
    block_len, block_bytes = GGML_QUANT_SIZES[kind]
    n_blocks = N_BLOCKS.get(block_len, 256)
    blocks = rng.integers(0, 256, (n_blocks, block_bytes), dtype=numpy.uint8)
    n_drawn = 0
    for block in blocks:
        for place in F16_PLACES[name]:
            block[place:place + 2] = numpy.frombuffer(random_f16(rng, n_drawn).to_bytes(2, "little"), numpy.uint8)
            n_drawn += 1
    if name == "MXFP4":
        blocks[:4, 0] = [0, 1, 2, 254]
    if name == "BF16":
        blocks[:, 1] &= 0xBF  # no exponent of all ones
    values = dequantize(blocks, kind).astype(numpy.float32).reshape(-1)
    assert not numpy.isnan(values).any()
    bits = "".join(f"{int(v):08x}" for v in values.view(numpy.uint32))
    return {"type": name.lower(), "n_blocks": n_blocks, "blocks": blocks.tobytes().hex(), "values": bits}


def main():
    cases = [make_case(name) for name in F16_PLACES]
    with open(sys.argv[1], "w", encoding="ascii") as out:
        json.dump({"cases": cases}, out, indent=1)
        out.write("\n")


main()
