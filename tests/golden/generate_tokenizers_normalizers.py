#!/usr/bin/env python3
"""What the Tokenizers library says of characters, and makes of texts, by its normalizers.

The file: see README.md. Texts are drawn from pools of characters that Unicode 14 has; the map of characters in SentencePiece's
form is made here.
"""

import base64
import random
import struct
import sys
import unicodedata

import golden

SEED = 9

# Texts of the character map and what each becomes: nothing, less, more, and a text of two characters.
RULES = {
    "\x01": "", "\t": " ", "\u3000": " ", "\u200b": "", "\ufb01": "fi", "\u2460": "1", "\uff21": "A", "\u2026": "...",
    "\ufdfa": "\u0635\u0644\u0649 \u0627", "e\u0301": "\u00e9", "\u0301": "", "\u30ab\u3099": "\u30ac", "\u1112\u1161": "\ud558",
    "A": "a", "\r\n": "\n", "\u00c4": "\u00e4", "\u0623": "\u0627\u0654", "#\ufe0f": "no",
}  # fmt: skip


class DoubleArray:
    """A trie as Darts-clone stores it: a unit has the byte that led to it, the exclusive or that leads on, and whether a text ends."""

    def __init__(self, values):
        self.units, self.taken = {0: 0}, {0}
        self.place(0, sorted((key.encode() + b"\0", value) for key, value in values.items()), 0)
        size = -(-(max(self.units) + 1) // 256) * 256
        self.bytes = b"".join(struct.pack("<I", self.units.get(i, 0)) for i in range(size))

    def place(self, node, keys, depth):
        labels = sorted({key[depth] for key, _ in keys})
        offset = 1
        while any(node ^ offset ^ label in self.taken for label in labels) or offset >= 1 << 21:
            offset += 1
        base = node ^ offset
        self.units[node] |= offset << 10 | (256 if labels[0] == 0 else 0)
        self.taken |= {base ^ label for label in labels}
        for label in labels:
            below = [(key, value) for key, value in keys if key[depth] == label]
            if label == 0:
                self.units[base] = 1 << 31 | below[0][1]
            else:
                self.units[base ^ label] = label
                self.place(base ^ label, below, depth + 1)


def character_map():
    blob, values = b"", {}
    for text, becomes in RULES.items():
        values[text] = len(blob)
        blob += becomes.encode() + b"\0"
    trie = DoubleArray(values).bytes
    return struct.pack("<I", len(trie)) + trie + blob


def normalizers():
    from tokenizers import normalizers as n

    def bert(clean, chinese, strip, lower):
        return n.BertNormalizer(clean_text=clean, handle_chinese_chars=chinese, strip_accents=strip, lowercase=lower)

    return {
        "nfc": n.NFC(), "nfd": n.NFD(), "nfkc": n.NFKC(), "nfkd": n.NFKD(), "lowercase": n.Lowercase(), "nmt": n.Nmt(),
        "strip_accents": n.StripAccents(), "byte_level": n.ByteLevel(), "strip": n.Strip(), "strip left": n.Strip(left=True, right=False),
        "bert": bert(True, True, None, True), "bert cased": bert(True, True, None, False), "bert strip": bert(False, False, True, False),
        "llama": n.Sequence([n.Prepend("\u2581"), n.Replace(" ", "\u2581")]), "replace": n.Replace("aa", "\u00e9b"),
        "replace nothing": n.Replace("", "+"), "precompiled": n.Precompiled(character_map()),
        "albert": n.Sequence([n.Replace("''", '"'), n.NFKD(), n.StripAccents(), n.Lowercase(), n.Precompiled(character_map())]),
    }  # fmt: skip


def is_known(c):
    return not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) not in ("Cn", "Co")


def texts(draw):
    known = [c for c in range(0x110000) if is_known(c)]
    marks = [c for c in known if unicodedata.category(chr(c))[0] == "M"]
    made = [c for c in known if unicodedata.decomposition(chr(c))]
    spaces = [ord(c) for c in " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u202f\u200b\u2581\ufeff"]
    latin = [ord(c) for c in "eaAI\u0301\u0323\u0307\u00e9\u1ebf\u0130\u1e9b"]
    scripts = [0x1100, 0x1161, 0x11A7, 0x11A8, 0xAC00, 0xAC01, 0x9C7, 0x9BE, 0x9D7, 0x344, 0x1D15E, 0x1D165, 0x302E, 0x8D4, 0x11938]
    emoji = [0x1F468, 0x200D, 0x1F469, 0x1F3FD, 0xFE0F, 0x1F1E6, 0x1F1E7, 0xA9, 0x23]
    mapped = [ord(c) for text in RULES for c in text] + [0x62, 0x63]
    pools = [known, marks + latin, made, spaces + [97, 98], latin, scripts, emoji, mapped, mapped, list(range(32, 127)), [0x4E00, 0xF900, 0x3042, 97]]
    drawn = ["".join(chr(draw.choice(pool)) for _ in range(size)) for pool in pools for size in (1, 4, 9, 16)]
    words = ["", "Caf\u00e9 ''A'' aaaa aaa", "  \u2009both ends\u2009\n", "\u0301\u0323a", "\x01\u200bfront\u2026\u0301"]
    return words + drawn


def characters(draw):
    """Of each: its number, and bits that say what it is."""
    from tokenizers import normalizers as n
    from tokenizers import pre_tokenizers as p

    def bert(clean, chinese, strip):
        return n.BertNormalizer(clean_text=clean, handle_chinese_chars=chinese, strip_accents=strip, lowercase=False).normalize_str

    def pieces(pre_tokenizer):
        return lambda text: len(pre_tokenizer.pre_tokenize_str(text))

    word, space, mark = pieces(p.Whitespace()), pieces(p.WhitespaceSplit()), pieces(p.BertPreTokenizer())
    clean, chinese, strip, accents = bert(True, False, False), bert(False, True, False), bert(False, False, True), n.StripAccents().normalize_str
    digit = pieces(p.Digits())
    known = [c for c in range(0x250, 0x110000) if is_known(c)]
    found = []
    for c in sorted(list(range(0x250)) + draw.sample(known, 1500) + draw.sample([c for c in known if c < 0x3100 or c > 0x10000 and c < 0x13460], 1500)):
        around = f"a{chr(c)}b"
        answers = [space(around) == 2, word(around) == 1, mark(around) == 3, clean("a" + chr(c)) == "a", accents(chr(c)) == "",
                   strip("a" + chr(c)) == "a", chinese(chr(c)) != chr(c), digit(around) == 3]  # fmt: skip
        found.append([c, sum(1 << i for i, answer in enumerate(answers) if answer)])
    return found


def generate():
    from tokenizers import Tokenizer, models

    draw = random.Random(SEED)
    drawn = texts(draw)
    found = {"map": base64.b64encode(character_map()).decode(), "texts": drawn, "normalizers": {}, "characters": characters(draw)}
    for name, normalizer in normalizers().items():
        # Each character is a token, so that the offsets of all are seen.
        tokenizer = Tokenizer(models.BPE(vocab={"u": 0}, merges=[], unk_token="u", fuse_unk=False))
        tokenizer.normalizer = normalizer
        found["normalizers"][name] = [
            [normalizer.normalize_str(text), [number for pair in tokenizer.encode(text).offsets for number in pair]] for text in drawn
        ]
    return found


def again(_):
    if unicodedata.unidata_version != "14.0.0":
        raise golden.CannotCheck(f"this Python draws from Unicode {unicodedata.unidata_version} instead of 14")
    return generate()


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "tokenizers_normalizers.json", generate, again, separators=(",", ":")))
