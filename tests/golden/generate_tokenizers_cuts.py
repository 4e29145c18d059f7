#!/usr/bin/env python3
"""Pieces that pre-tokenizers of the Tokenizers library cut random texts into, and what its Replace normalizer makes of them.

The file: see README.md. Texts are drawn from the characters below, all of them older than Unicode 14.
"""

import json
import sys

import golden

SEED = 9
WORDS = ["a", "Ab", "word", "HTTPServer", "x1", "naïve", "дом", "ДОМ", "漢字", "ひらカター", "한국", "Ǆǅǆ", "ʰª", "ไทย", "नमस्ते"]
CONTRACTIONS = ["'s", "'LL", "'re", "'T", "'ve", "'ſ", "'d", "'x", "don't", "WE'RE"]
NUMBERS = ["0", "12", "345", "67890", "½", "²", "Ⅷ", "٣٤", "𝟘"]
SIGNS = [".", ",", "!?", "--", "$", "_", "(", "…", "。", "€", "☃", "😀", "👩‍💻", "\u0301", "\u200d", "Ⓐ", "▁", "/", "\\", "⸪", "⹋"]
SPACES = [" ", " ", " ", "  ", "\n", "\r\n", "\t", "\n\n ", "\u00a0", "\u3000", "\u2028", "   "]
KINDS = [WORDS, WORDS, CONTRACTIONS, NUMBERS, SIGNS, SPACES, SPACES]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BREAKS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CAPITALS, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE, OTHERS = r"[^\r\n\p{L}\p{N}]?", r"| ?[^\s\p{L}\p{N}]+"


def cased(suffix, digits):
    words = f"{BEFORE}{CAPITALS}*{SMALL}+{suffix}|{BEFORE}{CAPITALS}+{SMALL}*{suffix}"
    return words + "|" + digits + OTHERS + r"[\r\n/]*" + BREAKS


EXPRESSIONS = [
    GPT2,
    CONTRACTED + "|" + BEFORE + r"\p{L}+|\p{N}{1,3}" + OTHERS + r"[\r\n]*" + BREAKS,
    CONTRACTED + "|" + BEFORE + r"\p{L}+|\p{N}" + OTHERS + r"[\r\n]*" + BREAKS,
    CONTRACTED + "|" + BEFORE + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + BREAKS,
    cased(CONTRACTED + "?", r"\p{N}{1,3}"),
    cased("", r"\p{N}"),
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*""" + BREAKS,
    "[一-龥぀-ゟ゠-ヿ]+",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    r"[\r\n]",
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"\w+|[^\w\s]+",
    r"\s+",
    r"\s",
    " {2,}",
    r"\p{N}{1,3}",
    r"\p{N}+",
    r"\p{N}",
    r"\d+",
    r"\d",
    r"\p{P}+",
    r"\p{P}",
    r"\p{L}+",
    r"\w+",
]
DELIMITERS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def texts(name, count):
    numbers = iter(golden.words(SEED, name, 64 * count).tolist())
    found = []
    for _ in range(count):
        parts = []
        for _ in range(next(numbers) % 9):
            kind = KINDS[next(numbers) % len(KINDS)]
            parts.append(kind[next(numbers) % len(kind)])
        found.append("".join(parts))
    return found


def case(name, cutter, count=10, **options):
    label = name + json.dumps(options, sort_keys=True)
    rows = []
    for text in texts(label, count):
        pieces = cutter.pre_tokenize_str(text)
        rows.append([text, [piece for piece, _ in pieces], [place for _, places in pieces for place in places]])
    return {"name": name, **options, "texts": rows}


def cases(pre, Regex):
    yield from (case("split", pre.Split(Regex(each), "isolated"), 16, expression=each, delimiter="isolated", invert=False)
                for each in EXPRESSIONS)
    for delimiter in DELIMITERS:
        yield case("punctuation", pre.Punctuation(delimiter), 6, delimiter=delimiter)
        for invert in (False, True):
            yield case("split", pre.Split(Regex(r"\s"), delimiter, invert=invert), 6, expression=r"\s", delimiter=delimiter,
                       invert=invert)
            yield case("split", pre.Split("a", delimiter, invert=invert), 6, literal="a", delimiter=delimiter, invert=invert)
    for space in (False, True):
        for regex in (False, True):
            yield case("byte_level", pre.ByteLevel(add_prefix_space=space, use_regex=regex), add_prefix_space=space,
                       use_regex=regex)
    for scheme in ("always", "first", "never"):
        for split in (False, True):
            yield case("metaspace", pre.Metaspace(replacement="▁", prepend_scheme=scheme, split=split), scheme=scheme,
                       split=split)
    yield case("whitespace", pre.Whitespace(), 20)
    yield case("whitespace_split", pre.WhitespaceSplit())
    yield case("bert", pre.BertPreTokenizer(), 20)
    yield case("char_delimiter", pre.CharDelimiterSplit("a"))
    yield case("unicode_scripts", pre.UnicodeScripts(), 20)
    for individual in (False, True):
        yield case("digits", pre.Digits(individual_digits=individual), individual=individual)
    for length in (1, 3):
        yield case("fixed_length", pre.FixedLength(length), 6, length=length)
    for outer, cutter in (("whitespace_split", pre.WhitespaceSplit()), ("digits", pre.Digits(individual_digits=True))):
        yield case("byte_level_behind", pre.Sequence([cutter, pre.ByteLevel(add_prefix_space=True)]), outer=outer)
        yield case("metaspace_behind", pre.Sequence([cutter, pre.Metaspace(replacement="▁", prepend_scheme="first")]),
                   outer=outer)


def generate():
    from tokenizers import Regex, normalizers
    from tokenizers import pre_tokenizers as pre

    replaced = []
    for expression in (r"\s+", " {2,}", r"\p{N}"):
        normalizer = normalizers.Replace(Regex(expression), "<é>")
        rows = [[text, normalizer.normalize_str(text)] for text in texts("replace " + expression, 8)]
        replaced.append({"expression": expression, "content": "<é>", "texts": rows})
    return {"cuts": list(cases(pre, Regex)), "replaced": replaced}


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "tokenizers_cuts.json", generate, ensure_ascii=False, separators=(",", ":")))
