#!/usr/bin/env python3
"""Makes tokenizer_smollm2.json: strings with the ids that the Hugging Face `tokenizers` library gives them.

    python3 tests/golden/make_tokenizer_golden.py MODEL.gguf OUT.json [--count N] [--seed S]

The reference tokenizer is put together from the vocabulary and the merges inside the GGUF file, with the pre-tokenizer
and the special tokens of SmolLM2, so that both sides read the same data.  Needs `pip install tokenizers`; the tests do
not need Python.  A case is {"text", "ids"}, and "plain_ids" (special tokens read as ordinary text) where they differ.
"""
import argparse
import json
import random
import struct

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

CONTROL = 3


def read_metadata(path):
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as file:

        def number(fmt):
            return struct.unpack("<" + fmt, file.read(struct.calcsize(fmt)))[0]

        def value(kind):
            if kind == 8:
                return file.read(number("Q")).decode()
            if kind == 9:
                kind, n = number("I"), number("Q")
                return [value(kind) for _ in range(n)]
            return number(formats[kind])

        file.read(4 + 4 + 8)  # magic, version, number of tensors
        entries = {}
        for _ in range(number("Q")):
            key = value(8)
            entries[key] = value(number("I"))
        return entries


def build(metadata, with_special):
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    if with_special:
        special = [t for t, kind in zip(tokens, types) if kind == CONTROL]
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


# What strings are put together from: characters of ranges of code points, chunks (between bars or line breaks), special
# tokens and what nearly is one, white space.
RANGES = [
    (0x00, 0x1F), (0x20, 0x7E), (0x20, 0x7E), (0x20, 0x7E), (0x7F, 0xFF), (0x100, 0x24F), (0x250, 0x2FF),
    (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x58A), (0x591, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F),
    (0x980, 0x9FF), (0xE01, 0xE5B), (0xF00, 0xFDA), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x137F), (0x1780, 0x17F9), (0x1800, 0x18AA), (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x2070, 0x209C),
    (0x20A0, 0x20BF), (0x2100, 0x218B), (0x2190, 0x22FF), (0x2460, 0x24FF), (0x2500, 0x27BF), (0x3000, 0x303F),
    (0x3041, 0x30FF), (0x3105, 0x312F), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xA4C6), (0xAC00, 0xD7A3),
    (0xE000, 0xF8FF), (0xFE00, 0xFE6F), (0xFF00, 0xFFEF), (0x10000, 0x1FFFF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF),
    (0x20000, 0x323AF), (0xE0000, 0xE01EF), (0x40000, 0x10FFFF),
]
CHUNKS = """
's|'t|'re|'ve|'m|'ll|'d|'S|'T|'RE|'VE|'LL| 's|’s|WE'VE|don'T|THEY'LL|I'd|'''|''s|naïve|nai\u0308ve|façade|fac\u0327ade
— |€|½|²|Ⅷ|⑳|一二三|०१२३|٠١٢٣|１２３|𝟘𝟙|៣|1234567890|3.14159|1,000,000|0x1F|007|1e-9|v2.0.1|2024-01-15|12:34|a1b2|x86_64
👩‍👩‍👧‍👦|🏳️‍🌈|🇩🇪🇯🇵|👍🏽|1️⃣|☕️|🦓|é|e\u0301|한국어|각|日本語の文|東京都|ありがとう。|你好，世界！|Привет, мир|שָׁלוֹם|مرحبا
नमस्ते|ไทย|ខ្មែរ|ქართული|Ελληνικά|Tiếng Việt|ﬁ|ǆ|ß|İ|ı|\u180e|\ufeff|\u200b|\u200d|\u00ad|\u2028|\u2029|\u0085
for (int i = 0; i < n; i++) {|}|def f(x):|return|#include <stdio.h>|//|/*|*/|==|!=|=>|->|::|&&|{{|}}|</div>|<br/>|$HOME
http://example.com/a?b=c&d=%20|user@example.com|C:\\dir\\file|SELECT * FROM t;|\"\"\"|```|---|***|...|…|?!|(|)|[|]
The|the| the|capital| of|France|Hello|hello|HELLO|world|tokenizer|ization|un|antidisestablishmentarianism|ing|a|I|x|zzz
"""
SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<|im_start|>user\n", "<|im_end|>\n", "<|im_start",
    "<|<|im_end|>", "<|im_<|im_start|>", "<|im_start|> user", "<filename>x", "<reponame>", "<issue_start>", "<|endoftext",
    "<empty_output>>", "<|im_start|><|im_start|>", "|im_end|>",
]
SPACES = [" ", " ", " ", "  ", "   ", "    ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", "\t\t", "\u00a0", "\u3000", "\u2003",
          "\u202f", "\u1680", " \u00a0 ", "\v", "\f", "\x1c", "", "", "", ""]


def random_run(rng):
    """A few characters of one range, or of one kind of character repeated."""
    low, high = rng.choice(RANGES)
    run = [chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))]
    return run[0] * rng.randint(2, 20) if rng.random() < 0.1 else "".join(run)


def random_text(rng, chunks):
    parts = []
    for _ in range(rng.randint(1, 9)):
        draw = rng.random()
        parts.append(rng.choice(SPECIAL) if draw < 0.06 else random_run(rng) if draw < 0.4 else rng.choice(chunks))
        parts.append(rng.choice(SPACES))
    return "".join(parts)


FIXED = [
    "", " ", "\n", "\x00", "a\x00b", "Zebra 🦓.c", "a1234567 b12", "<s>q</s>", "<|im_start|>user", "<|im_start|> user",
    "WE'VE don'T THEY'LL I'd", "we've don't they'll I'd it's I'm you're he'd", "naïve façade — 77 €",
    "nai\u0308ve fac\u0327ade — 77 €", "a   1", "a  \n  b", "   ", "\n\n\n", "x\u0085\u0085y", "1 2  3   4", " 1", "½²Ⅷ⑳",
    ".\x04.", "\U00050000 \U000f0000x", "\u180e \u180e\u180e a",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    metadata = read_metadata(args.model)
    full, without = build(metadata, True), build(metadata, False)
    rng, chunks = random.Random(args.seed), CHUNKS.strip().replace("\n", "|").split("|")
    texts = FIXED + [random_text(rng, chunks) for _ in range(args.count - len(FIXED))]
    cases = []
    for text in texts:
        ids, plain_ids = (t.encode(text, add_special_tokens=False).ids for t in (full, without))
        cases.append({"text": text, "ids": ids} | ({} if ids == plain_ids else {"plain_ids": plain_ids}))
    about = (f"Made by make_tokenizer_golden.py --count {args.count} --seed {args.seed} with tokenizers "
             f"{tokenizers.__version__} from the vocabulary of {metadata['general.name']}.")
    with open(args.out, "w", encoding="ascii") as file:
        rows = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        file.write(f'{{"about": {json.dumps(about)},\n"cases": [\n{rows}\n]}}\n')


if __name__ == "__main__":
    main()
