"""The exercises of learn/: their list, texts and hints, and what the reader has done of them."""

import hashlib
import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LEARN = REPOSITORY / "learn"
STRANDS = {"numbers": "Numbers", "cuda": "CUDA", "ranks": "Ranks", "whole": "The whole"}
TYPICAL_MISTAKES = 3


@dataclass(frozen=True)
class Exercise:
    name: str
    strand: str
    title: str

    @property
    def suffix(self):
        return ".cu" if self.strand == "cuda" else ".cpp"

    @property
    def file(self):
        return LEARN / "exercises" / (self.name + self.suffix)

    @property
    def behind(self):
        return LEARN / "behind" / self.name

    @property
    def solution(self):
        return self.behind / ("solution" + self.suffix)

    @property
    def mistakes(self):
        """Typical wrong solutions, each with what must be said of it."""
        files = sorted(self.behind.glob("wrong-*" + self.suffix))
        return [(file, said_of(file)) for file in files]

    @property
    def hints(self):
        """Steps towards the solution, the smallest first."""
        return [step.strip() for step in re.split(r"\n\s*\n", (self.behind / "hints.txt").read_text()) if step.strip()]


def said_of(file):
    first = file.read_text().split("\n", 1)[0]
    if not first.startswith("// says: "):
        raise ValueError(f"{file}:1: a wrong solution begins with a line // says: WHAT THE READER IS TOLD")
    return first.removeprefix("// says: ").strip()


def all_exercises():
    exercises = []
    for number, line in enumerate((LEARN / "exercises.txt").read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        words = line.split(None, 2)
        if len(words) != 3 or words[1] not in STRANDS:
            raise ValueError(f"learn/exercises.txt:{number}: a line is NAME STRAND TITLE, a strand {', '.join(STRANDS)}")
        exercises.append(Exercise(*words))
    return exercises


def wrapped(text, indent):
    """Paragraphs at the width of a page. What is indented stays as it is."""
    lines = []
    for line in text.splitlines():
        whole = line.startswith(" ") or not line
        lines += [line] if whole else textwrap.wrap(line, 100 - indent) or [""]
    return textwrap.indent("\n".join(lines), " " * indent)


class Marks:
    """What the reader reached, in a file beside the exercises that git ignores."""

    FILE = LEARN / ".marks.json"

    def __init__(self):
        try:
            self.kept = json.loads(self.FILE.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            self.kept = {}

    @staticmethod
    def hash_of(file):
        return hashlib.sha256(file.read_bytes()).hexdigest()

    def keep(self, exercise, held, total):
        self.kept.setdefault(exercise.name, {}).update(held=held, total=total, hash=self.hash_of(exercise.file))
        self.write()

    def next_hint(self, exercise):
        """The number of the hint that comes next, counted from 0, without end; and the last one for good."""
        mine = self.kept.setdefault(exercise.name, {})
        number = min(mine.get("hints", 0), len(exercise.hints) - 1)
        mine["hints"] = number + 1
        self.write()
        return number

    def write(self):
        beside = self.FILE.with_suffix(".tmp")
        beside.write_text(json.dumps(self.kept, indent=1) + "\n")
        beside.replace(self.FILE)

    def of(self, exercise):
        """A mark and words for the list."""
        mine = self.kept.get(exercise.name, {})
        if "total" not in mine:
            return "·", ""
        changed = " (changed since)" if mine["hash"] != self.hash_of(exercise.file) else ""
        if mine["held"] == mine["total"]:
            return "✓", changed.strip()
        return "✗", f"{mine['held']} of {mine['total']} laws hold{changed}"
