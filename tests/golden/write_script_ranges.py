#!/usr/bin/env python3
"""Writes tokenizers/script_ranges.cpp: which characters the Tokenizers library's UnicodeScripts cuts between.

The library is asked, for each of its scripts, which characters stay beside a character of it. Scripts are numbered in
the order of their first characters; 0 has the characters that stay beside all.
"""

import os

from tokenizers import pre_tokenizers

CUTTER = pre_tokenizers.UnicodeScripts()
HEAD = """// Written by tests/golden/write_script_ranges.py.

#include "keel/tokenizers/script_ranges.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace keel {
namespace {

// A range's first character, and in the last 8 bits its script; it ends before the next one.
constexpr std::uint32_t kScriptRanges[] = {
"""
TAIL = """};

}  // namespace

std::uint8_t script_of(char32_t character) {
  const auto behind = std::ranges::upper_bound(kScriptRanges, static_cast<std::uint32_t>(character) << 8 | 0xff);
  return static_cast<std::uint8_t>(*std::prev(behind) & 0xff);
}

}  // namespace keel
"""


def stay(one, others):
    """For each of others, whether it stays in one piece with the character before it."""
    pieces = CUTTER.pre_tokenize_str(one + "".join(other + one for other in others))
    begins = {begin for _, (begin, _) in pieces}
    return [2 * i + 1 not in begins for i in range(len(others))]


def scripts():
    """Each character's number."""
    left = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    beside_all = [a and b for a, b in zip(stay("a", left), stay("\u0433", left))]
    found = {c: 0 for c, it in zip(left, beside_all) if it}
    left = [c for c, it in zip(left, beside_all) if not it]
    number = 0
    while left:
        number += 1
        same = stay(left[0], left)
        found.update((c, number) for c, it in zip(left, same) if it)
        left = [c for c, it in zip(left, same) if not it]
    return found


def main():
    found = scripts()
    ranges, last = [], None
    for c in sorted(found):
        if found[c] != last:
            ranges.append(ord(c) << 8 | found[c])
            last = found[c]
    lines = []
    for i in range(0, len(ranges), 9):
        lines.append("    " + " ".join(f"{value:#x}," for value in ranges[i : i + 9]))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tokenizers/script_ranges.cpp")
    with open(path, "w", encoding="ascii") as file:
        file.write(HEAD + "\n".join(lines) + "\n" + TAIL)


if __name__ == "__main__":
    main()
