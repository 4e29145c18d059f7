#!/usr/bin/env python3
"""Tokens that models of the Tokenizers library find in random pieces, and what its trainer of BPE makes of random texts.

The file: see README.md. Vocabularies, pieces and texts are drawn from the characters below.
"""

import json
import sys

import golden

SEED = 10
CHARACTERS = ["a", "b", "c", "é", "中", "\u0301", "😀"]
UNKNOWN = "<unk>"


class Draws:
    def __init__(self, name):
        self.numbers = iter(golden.words(SEED, name, 20000).tolist())

    def below(self, end):
        return next(self.numbers) % end

    def one_of(self, choices):
        return choices[self.below(len(choices))]

    def text(self, characters, most):
        return "".join(self.one_of(characters) for _ in range(1 + self.below(most)))


def bytes_of(draws, some):
    return [f"<0x{byte:02X}>" for byte in range(256) if not some or draws.below(4)]


def bpe_vocabulary(draws, prefix, suffix, fallback):
    ends = [""] + ([suffix] if suffix else [])
    base = [front + c + end for c in CHARACTERS[:5] for front in sorted({"", prefix}) for end in ends]
    tokens = dict.fromkeys([UNKNOWN] + base + (bytes_of(draws, fallback == "some") if fallback else []))
    merges = []
    base.append(UNKNOWN)
    for _ in range(60):
        first, second = draws.one_of(base), draws.one_of(base)
        if (suffix and first.endswith(suffix)) or not second.startswith(prefix):
            continue
        merged = first + second[len(prefix):]
        if len(merged) > 12:
            continue
        tokens[merged] = None
        base.append(merged)
        merges.append([first, second])
    return {token: number for number, token in enumerate(tokens)}, merges


def found_in(model, pieces):
    rows = []
    for piece in pieces:
        try:
            tokens = [[token.id, *token.offsets] for token in model.tokenize(piece)]
        except Exception:  # pylint: disable=broad-except
            rows.append([piece, None])
            continue
        size = len(piece.encode())
        rows.append([piece, [min(size, number) if i else number for token in tokens for i, number in enumerate(token)]])
    return rows


def bpe_case(models, number):
    draws = Draws(f"bpe {number}")
    prefix, suffix = ["", "", "##", "é"][number % 4], ["", "", "", "</w>", ""][number % 5]
    fallback = ["", "all", "", "some", ""][number % 5]
    vocabulary, merges = bpe_vocabulary(draws, prefix, suffix, fallback)
    options = {"fuse_unk": number % 2 == 0, "byte_fallback": bool(fallback), "ignore_merges": number % 7 == 6}
    if prefix:
        options["continuing_subword_prefix"] = prefix
    if suffix:
        options["end_of_word_suffix"] = suffix
    if number % 6 != 5:
        options["unk_token"] = UNKNOWN if number % 6 else "missing"
    model = models.BPE(vocab=vocabulary, merges=[tuple(merge) for merge in merges], **options)
    pieces = [draws.text(CHARACTERS, draws.one_of([6, 12, 130])) for _ in range(9)] + list(vocabulary)[-2:]
    return {"kind": "bpe", "options": options, "vocabulary": vocabulary, "merges": merges, "pieces": found_in(model, pieces)}


def word_piece_case(models, number):
    draws = Draws(f"word_piece {number}")
    prefix = ["##", "", "#"][number % 3]
    texts = [draws.one_of(["", prefix]) + draws.text(CHARACTERS[:5], 3) for _ in range(40)] + (["[UNK]"] if number != 4 else [])
    vocabulary = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    options = {"unk_token": "[UNK]", "continuing_subword_prefix": prefix, "max_input_chars_per_word": 9}
    pieces = [draws.text(CHARACTERS[:5], 10) for _ in range(30)] + ["éééééé中中中", "éééééé中中中a"]
    model = models.WordPiece(vocabulary, **options)
    return {"kind": "word_piece", "options": options, "vocabulary": vocabulary, "pieces": found_in(model, pieces)}


def unigram_case(models, number):
    draws = Draws(f"unigram {number}")
    texts = [draws.text(CHARACTERS[: 5 + number % 2], 4) for _ in range(40)]
    if number % 3 == 2:
        texts += bytes_of(draws, number % 2 == 1)
    steps = 1 if number % 2 else 64  # whole scores have ways that score the same
    vocabulary = [[text, (draws.below(4 * steps) - 3 * steps) / steps] for text in dict.fromkeys([UNKNOWN] + texts)]
    options = {"byte_fallback": number % 3 == 2}
    if number != 7:
        options["unk_id"] = 0 if number % 5 else 3
    pieces = [draws.text(CHARACTERS, draws.one_of([6, 12, 140])) for _ in range(9)] + [f"a{UNKNOWN}b", f"中{UNKNOWN}{UNKNOWN}"]
    model = models.Unigram([tuple(each) for each in vocabulary], options.get("unk_id"), options["byte_fallback"])
    return {"kind": "unigram", "options": options, "vocabulary": vocabulary, "pieces": found_in(model, pieces)}


def word_level_case(models, unknown):
    vocabulary = {"a": 4, "ab": 0, "中": 9} | ({UNKNOWN: 2} if unknown else {})
    model = models.WordLevel(vocabulary, unk_token=UNKNOWN)
    return {"kind": "word_level", "options": {"unk_token": UNKNOWN}, "vocabulary": vocabulary,
            "pieces": found_in(model, ["a", "ab", "abc", "中", "é"])}


def training_case(number):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    draws = Draws(f"training {number}")
    characters = [["a", "b"], ["a", "b", "c"], CHARACTERS][number % 3]
    words = [draws.text(characters, [4, 8, 30][number // 3 % 3]) for _ in range(60)]
    texts = [" ".join(draws.one_of(words) for _ in range(1 + draws.below(30))) for _ in range(12)]
    options = {"vocabulary_size": [20, 60, 400][number % 3], "min_frequency": [0, 2, 5, 0][number % 4],
               "specials": [[], ["<s>", "ab", "</s>", "<s>"], ["a"]][number % 3], "longest_token": [0, 0, 2, 4, 5][number % 5],
               "all_bytes": number % 7 == 0}
    more = {}
    if options["longest_token"]:
        more["max_token_length"] = options["longest_token"] + 1
    if options["all_bytes"]:
        more["initial_alphabet"] = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=options["vocabulary_size"], min_frequency=options["min_frequency"], special_tokens=options["specials"],
        show_progress=False, **more))
    model = json.loads(tokenizer.to_str())["model"]
    return {"options": options, "texts": texts, "tokens": sorted(model["vocab"], key=model["vocab"].get),
            "merges": [list(merge) for merge in model["merges"]]}


def generate():
    from tokenizers import models

    cases = [bpe_case(models, number) for number in range(14)]
    cases += [word_piece_case(models, number) for number in range(6)]
    cases += [unigram_case(models, number) for number in range(8)]
    cases += [word_level_case(models, unknown) for unknown in (True, False)]
    return {"models": cases, "training": [training_case(number) for number in range(10)]}


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "tokenizers_models.json", generate, ensure_ascii=False, separators=(",", ":")))
