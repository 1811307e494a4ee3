#!/usr/bin/env python3
"""Makes the tokenizers' reference data: strings with what the libraries that models were trained with make of them.

    python3 tests/golden/make_tokenizer_golden.py KIND OUT.json [--model MODEL.gguf] [--count N] [--seed S]

KIND         data                       reference
smollm2      tokenizer_smollm2.json     ids of `tokenizers`, from the vocabulary in MODEL
gemma        tokenizer_gemma.json       ids of `sentencepiece`, from the vocabulary in MODEL
spm          tokenizer_spm.json         ids of `sentencepiece`, from two small vocabularies that are made here
patterns     pretokenizer.json          pieces of `tokenizers`, for each pre-tokenizer

Needs `pip install tokenizers sentencepiece protobuf`; the tests do not need Python.  A case is {"text", "ids"}, and
"plain_ids" (special tokens read as ordinary text) where they differ; or {"pre", "text", "pieces"}.
"""
import argparse
import io
import json
import random
import re
import struct

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4


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


def build_bpe(metadata, with_special):
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
CHUNK_LIST = CHUNKS.strip().replace("\n", "|").split("|")
SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<|im_start|>user\n", "<|im_end|>\n", "<|im_start",
    "<|<|im_end|>", "<|im_<|im_start|>", "<|im_start|> user", "<filename>x", "<reponame>", "<issue_start>", "<|endoftext",
    "<empty_output>>", "<|im_start|><|im_start|>", "|im_end|>", "<bos>", "<start_of_turn>user\n", "<s>", "</s>", "<sep>",
    "</div> <div>", "\n\n\n", "\t" * 40, "<unused7>", "<0x0A>", "x\u2581y", "<unk>", "<bos", "[multimodal]",
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
    "<bos>x", "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n", "> </a>", "a  b   c    d", " <s> x </s> y",
]


# ---- references ----


def smollm2(args):
    metadata = read_metadata(args.model)
    full, without = build_bpe(metadata, True), build_bpe(metadata, False)

    def ids(text, tokenizer):
        return tokenizer.encode(text, add_special_tokens=False).ids

    return {"of": metadata["general.name"]}, lambda text: (ids(text, full), ids(text, without))


def build_spm(pieces, has_bytes, has_prefix):
    """A processor of `pieces`, (spelling, score, type) each."""
    proto = sentencepiece_model_pb2.ModelProto()
    for spelling, score, kind in pieces:
        proto.pieces.add(piece=spelling, score=score, type=kind)
    proto.trainer_spec.model_type = 2  # BPE
    proto.trainer_spec.byte_fallback = has_bytes
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = has_prefix
    proto.normalizer_spec.remove_extra_whitespaces = False
    proto.normalizer_spec.escape_whitespaces = True
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


def encode_spm(processor, special, text):
    """Ids of a text in which special tokens ({spelling: id}) match, longest first."""
    if not special:
        return processor.encode(text)
    pattern = "|".join(re.escape(t) for t in sorted(special, key=len, reverse=True))
    ids = []
    for part in re.split(f"({pattern})", text):
        ids += [special[part]] if part in special else processor.encode(part) if part else []
    return ids


def gemma(args):
    metadata = read_metadata(args.model)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    special = {t: i for i, (t, kind) in enumerate(zip(tokens, types)) if kind == CONTROL}
    # The library wants its unknown token called one, and writes spaces as U+2581 in user-defined pieces, too.
    types[metadata["tokenizer.ggml.unknown_token_id"]] = UNKNOWN
    tokens = [t.replace(" ", "\u2581") if kind == USER_DEFINED else t for t, kind in zip(tokens, types)]
    processor = build_spm(zip(tokens, metadata["tokenizer.ggml.scores"], types), True, False)
    return {"of": metadata["general.name"]}, lambda text: tuple(encode_spm(processor, s, text) for s in (special, {}))


def train_spm(sentences, has_bytes):
    """Pieces of a small vocabulary that starts spaces as words do."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, model_type="bpe", vocab_size=512 if has_bytes else 256,
        byte_fallback=has_bytes, character_coverage=1.0, normalization_rule_name="identity", minloglevel=2,
        remove_extra_whitespaces=False, user_defined_symbols=["<sep>", "\n\n"], hard_vocab_limit=False)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    return [[piece.piece, piece.score, piece.type] for piece in proto.pieces]


def spm(args):
    rng = random.Random(args.seed)
    words = [chunk for chunk in CHUNK_LIST if chunk.isascii()] + ["naïve", "façade", "東京都", "  ", "   "]
    sentences = [" ".join(rng.choices(words, k=8)) for _ in range(2000)]
    vocabularies = [train_spm(sentences, has_bytes) for has_bytes in (True, False)]
    processors = [build_spm(pieces, has_bytes, True) for pieces, has_bytes in zip(vocabularies, (True, False))]
    # Both vocabularies give their added tokens the same ids.  Text behind one starts with a space as the whole text does:
    # so in `tokenizers` and llama.cpp, while the library would know its own user-defined pieces inside a text.
    user_defined = {"<sep>": 3, "\n\n": 4}
    added = {"<unk>": 0, "<s>": 1, "</s>": 2} | user_defined
    return {"vocabularies": vocabularies}, lambda text: [
        [encode_spm(processor, tokens, text) for tokens in (added, user_defined)] for processor in processors]


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
DIGITS = pre_tokenizers.Digits(individual_digits=True)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


PRE_TOKENIZERS = {
    "gpt2": (None, split(GPT2)),
    "smollm": (None, pre_tokenizers.Sequence([DIGITS, split(GPT2)])),
    "llama-bpe": (None, split(WORDS % "{1,3}")),
    "qwen2": (normalizers.NFC(), split(WORDS % "")),
}
ACCENTS = [chr(c) for low, high in ((0x300, 0x36F), (0x591, 0x5C7), (0x1AB0, 0x1ACE), (0x1DC0, 0x1DFF))
           for c in range(low, high + 1)] + list("\u1161\u11a8\u0f71\u0f72\u093c\u3099\U0001d165\U0001d16e\U00011127")


def accented(rng):
    letters = "aeAESω\u05e9\u1100\u30ab\u0915\u212b"
    return "".join(rng.choice(letters) + "".join(rng.choices(ACCENTS, k=rng.randint(0, 5))) for _ in range(4))


def patterns(args, texts):
    rng = random.Random(args.seed)
    cases = []
    for name, (normalizer, splitter) in PRE_TOKENIZERS.items():
        for text in texts:
            text += accented(rng) if rng.random() < 0.3 else ""
            normal = normalizer.normalize_str(text) if normalizer else text
            pieces = [piece for piece, _ in splitter.pre_tokenize_str(normal)]
            cases.append({"pre": name, "text": text, "pieces": pieces})
    return cases


# ---- writing ----


def case(text, ids):
    if isinstance(ids[0], list) and ids[0] and isinstance(ids[0][0], list):
        return {"text": text, "ids": [row[0] for row in ids]} | (
            {} if all(row[0] == row[1] for row in ids) else {"plain_ids": [row[1] for row in ids]})
    return {"text": text, "ids": ids[0]} | ({} if ids[0] == ids[1] else {"plain_ids": ids[1]})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["smollm2", "gemma", "spm", "patterns"])
    parser.add_argument("out")
    parser.add_argument("--model")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    texts = FIXED + [random_text(rng, CHUNK_LIST) for _ in range(args.count - len(FIXED))]
    about = {"about": f"Made by make_tokenizer_golden.py {args.kind} --count {args.count} --seed {args.seed} with "
                      f"tokenizers {tokenizers.__version__}, sentencepiece {sentencepiece.__version__}."}
    if args.kind == "patterns":
        cases = patterns(args, texts)
    else:
        more, encode = {"smollm2": smollm2, "gemma": gemma, "spm": spm}[args.kind](args)
        about |= more
        cases = [case(text, encode(text)) for text in texts]
    with open(args.out, "w", encoding="ascii") as file:
        head = json.dumps(about, separators=(",", ":"))
        rows = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        file.write(f'{head[:-1]},\n"cases": [\n{rows}\n]}}\n')


if __name__ == "__main__":
    main()
