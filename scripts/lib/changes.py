"""Changes of single operators and constants in a C++ source, and which of them are known to be equivalent to it."""

import hashlib
import re
import sys

# Operators between spaces: the style leaves none around those of templates, references and pointers.
SWAPPED = {
    "==": ["!="], "!=": ["=="], "<": ["<="], "<=": ["<"], ">": [">="], ">=": [">"], "&&": ["||"], "||": ["&&"],
    "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["/"], "+=": ["-="], "-=": ["+="], "*=": ["/="], "/=": ["*="],
    "|": ["&"], "&": ["|"], "|=": ["&="], "&=": ["|="],
}  # fmt: skip
BETWEEN = re.compile(r"(?<= )(?:[=!<>+\-*/|&]=|&&|\|\||[<>+\-*/%|&])(?= )")
WORDS = {"true": "false", "false": "true", "std::min": "std::max", "std::max": "std::min"}
WORD = re.compile(r"\b(?:true|false|std::min|std::max)\b(?=[^_])")
STEP = re.compile(r"\+\+|--")
NOT = re.compile(r"(?<=[(\s])!(?=[A-Za-z_(])")
# A whole number that is no part of a name, of another number or of a type.
NUMBER = re.compile(r"(?<![\w.'])(\d+)(?=[uUlL]*(?![\w.']))")
# Comments, texts, preprocessor lines and static_asserts, which are left alone.
OPAQUE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|'
    r"^[ ]*#[^\n]*|\bstatic_assert\b[^;]*;|\btemplate <[^\n]*",
    re.MULTILINE | re.DOTALL)
# A line of scripts/mutate for a change that was made: its place among all, the counts with it, what became of it.
MADE = re.compile(r"^\d+ of \d+, ([0-9a-f]+): (.*); (\S+):\d+ .*?(?: \((.*)\))?$", re.MULTILINE)
REPORTED = re.compile(r"^(\S+):\d+: (.*)\n    becomes: (.*)$", re.MULTILINE)


class Change:
    def __init__(self, file, number, line, column, old, new):
        self.file, self.number, self.line = file, number, line
        self.column, self.old, self.new = column, old, new
        self.changed = line[:column] + new + line[column + len(old):]
        self.order = ""

    def key(self):
        return self.file, " ".join(self.line.split()), " ".join(self.changed.split())

    def made_in(self, text):
        """The text of the file with this change."""
        lines = text.split("\n")
        lines[self.number - 1] = self.changed
        return "\n".join(lines)

    def place(self):
        return f"{self.file}:{self.number}"

    def __str__(self):
        return f"{self.place()}: {self.line.strip()}\n    becomes: {self.changed.strip()}"


def changes_of(file, text):
    """Every change of a source, in order."""
    visible = OPAQUE.sub(lambda found: re.sub(r"[^\n]", "\x01", found.group()), text)
    for number, (line, seen) in enumerate(zip(text.split("\n"), visible.split("\n")), 1):
        found = [(at.start(), at.group(), new) for at in BETWEEN.finditer(seen) for new in SWAPPED[at.group()]]
        found += [(at.start(), at.group(), WORDS[at.group()]) for at in WORD.finditer(seen)]
        found += [(at.start(), at.group(), "--" if at.group() == "++" else "++") for at in STEP.finditer(seen)]
        found += [(at.start(), "!", "") for at in NOT.finditer(seen)]
        for at in NUMBER.finditer(seen):
            value = int(at.group(1))
            found += [(at.start(1), at.group(1), str(new)) for new in (value + 1, value - 1) if new >= 0]
        for column, old, new in sorted(found):
            yield Change(file, number, line, column, old, new)


def in_random_order(changes, seed):
    """Sets the place of each, a random number of its own, so that the order of those that stay is the same once others are
    gone."""
    seen = {}
    for change in changes:
        key = change.key()
        seen[key] = seen.get(key, 0) + 1
        change.order = hashlib.sha256("\n".join((str(seed), *key, str(seen[key]))).encode()).hexdigest()[:16]
    return sorted(changes, key=lambda change: change.order)


def reported(path):
    """The keys of the changes that survived, as printed by scripts/mutate."""
    return {(file, " ".join(line.split()), " ".join(changed.split()))
            for file, line, changed in REPORTED.findall(path.read_text())}


class Earlier:
    """What an earlier time with the same seed has printed: its last change's place in the order, counts of results, and
    the tests that noticed changes of each file."""

    def __init__(self, path=None):
        self.order, self.counts, self.noticed = "", {}, {}
        for order, counts, file, test in MADE.findall(path.read_text()) if path else ():
            self.order = order
            self.counts = {name: int(count) for count, name in (told.split(" ", 1) for told in counts.split(", "))}
            if test and test not in self.noticed.setdefault(file, []):
                self.noticed[file].append(test)


def read_equivalents(path):
    """Stanzas of `file:`, `line:`, one or several `becomes:` and `why:`. Returns {(file, line, change): why}."""
    known, stanza = {}, {}
    if not path.exists():
        return known
    for number, row in enumerate(path.read_text().splitlines() + [""], 1):
        if row.startswith("#"):
            continue
        if row.strip():
            name, colon, value = row.strip().partition(": ")
            if not colon or name not in ("file", "line", "becomes", "why"):
                sys.exit(f"mutate: {path.name}:{number}: expects file:, line:, becomes: or why:")
            stanza.setdefault(name, []).append(" ".join(value.split()))
        elif stanza:
            if set(stanza) != {"file", "line", "becomes", "why"}:
                sys.exit(f"mutate: {path.name}:{number}: the entry before this line is not whole")
            for change in stanza["becomes"]:
                known[stanza["file"][0], stanza["line"][0], change] = " ".join(stanza["why"])
            stanza = {}
    return known
