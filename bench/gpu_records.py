"""What scripts/gpu-suite recorded in a folder, for bench/gpu_report.py.

A part's folder (build, tests, sanitize, bench, peers) holds

  about.tsv      NAME, VALUE: the machine when the part began; commit, time, and the run that it was a part of
  steps.tsv      STEP, STATUS, SECONDS, LIMIT, WHY; a log STEP.log beside it
  running        STEP, LIMIT: while a step runs
  env.txt        what `keel env` printed
  *.jsonl        lines of bench_gpu (one file a group) and of bench/peers/gpu.py (pytorch.jsonl)
  libraries.tsv  NAME, STATE: what configuring said (build)
  ninja_log      Ninja's own, of how long each file took (build)
  LastTest.log   of CTest (tests)

Any of them may be missing or cut: a run may be killed at any time.
"""

import json
import os
import re
import typing

PARTS = ("build", "tests", "sanitize", "bench", "peers")
GROUPS = ("training", "matmul", "attention", "memory")
LIBRARIES = ("cuBLASLt", "cuDNN", "NCCL")
LOST = "it was running when this was written, or when the run was killed"


class Step(typing.NamedTuple):
    part: str
    name: str
    status: str  # passed, failed, cut (at its limit), skipped, lost
    seconds: str
    limit: str
    why: str


def text_of(*path):
    """A file's text; empty when it cannot be read."""
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def rows_of(*path, columns):
    """The lines of a table, each with so many columns."""
    for line in text_of(*path).splitlines():
        if line:
            yield (line.split("\t") + [""] * columns)[:columns]


def json_lines(*path):
    """The last object of each case in a file of JSON lines; a line that was cut is left out."""
    cases = {}
    for text in text_of(*path).splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if isinstance(line, dict) and "group" in line and "case" in line:
            if line.get("begun"):
                line = {**line, "error": "the program ended in this case, or its time was over"}
            cases[line["group"], line["case"]] = line
    return list(cases.values())


class Part:
    def __init__(self, folder, name):
        self.name = name
        self.folder = os.path.join(folder, name)
        self.about = dict(rows_of(self.folder, "about.tsv", columns=2))
        self.steps = [Step(name, *row) for row in rows_of(self.folder, "steps.tsv", columns=5)]
        self.steps += [
            Step(name, step, "lost", "", limit, LOST) for step, limit in rows_of(self.folder, "running", columns=2)
        ]
        self.env = {}
        text = text_of(self.folder, "env.txt")
        for line in text.splitlines():
            key, _, value = line.partition(" ")
            if key and value.strip():
                self.env.setdefault(key, value.strip())
        if "keel" not in self.env and os.path.exists(os.path.join(self.folder, "env.txt")):
            self.env = dict.fromkeys(LIBRARIES, f"nothing: {first_line(text)}")

    def is_there(self):
        return bool(self.about or self.steps)

    def log(self, step):
        return text_of(self.folder, f"{step}.log")


class Tests:
    """Tests by how they ended, from CTest's own log."""

    HEAD = re.compile(r"^\d+/\d+ Testing: (.*)$")

    def __init__(self, part):
        self.names = {"passed": [], "failed": [], "skipped": []}
        self.output = {}
        self._read_results(part.log("tests"))
        self._read_output(text_of(part.folder, "LastTest.log"))

    def _read_results(self, log):
        for line in log.splitlines():
            match = re.match(r"\s*\d+/\d+ Test +#\d+: (\S+) \.*\s*(.*)", line)
            if match:
                kind = "passed" if match[2].startswith("Passed") else "skipped" if "Skipped" in match[2] else "failed"
                self.names[kind].append(match[1])

    def _read_output(self, log):
        lines = None
        for line in log.splitlines():
            match = self.HEAD.match(line)
            if match:
                lines = self.output.setdefault(match[1], [])
            elif lines is not None:
                lines.append(line)

    def __bool__(self):
        return any(self.names.values())

    def skip_reason(self, name):
        lines = self.output.get(name, [])
        for i, line in enumerate(lines):
            if line.endswith(": Skipped") and i + 1 < len(lines):
                return lines[i + 1].strip()
        return "it gives no reason"

    def first_words(self, name, most=4):
        """What a failed test said first."""
        lines = self.output.get(name, [])
        begin = next((i + 1 for i, line in enumerate(lines) if line.startswith("[ RUN ")), 0)
        return [line for line in lines[begin:] if line.strip()][:most]


class Suite:
    """What is in a folder, of one run of the suite or of several."""

    def __init__(self, folder):
        self.parts = {name: Part(folder, name) for name in PARTS}
        self.libraries = dict(rows_of(folder, "build", "libraries.tsv", columns=2))
        self.cases, self.peak, self.missing_peak = [], None, ""
        for group in GROUPS:
            lines = json_lines(folder, "bench", f"{group}.jsonl")
            self.cases += [line for line in lines if line["group"] == group]
            for line in lines:
                self.peak = line.get("peak_tflops", self.peak)
                self.missing_peak = line.get("peak_missing", self.missing_peak)
        self.peer = json_lines(folder, "peers", "pytorch.jsonl")
        self.tests = Tests(self.parts["tests"])

    def slowest_files(self, most=5):
        """(seconds, output) of what took longest to build, also in earlier builds of the same folder."""
        seconds = {}
        for row in rows_of(self.parts["build"].folder, "ninja_log", columns=4):
            if row[0].isdigit() and row[1].isdigit():
                seconds[row[3]] = (int(row[1]) - int(row[0])) / 1000
        return sorted(((time, output) for output, time in seconds.items()), reverse=True)[:most]

    def there(self):
        """The parts that are there, in the order in which they began."""
        return sorted((p for p in self.parts.values() if p.is_there()), key=lambda p: p.about.get("began", ""))

    def last(self):
        """What the last part knew of machine and commit."""
        there = self.there()
        return there[-1].about if there else {}

    def same_run(self, *names):
        return len({self.parts[name].about.get("run") for name in names}) == 1

    def group(self, name, lines=None):
        return [line for line in (self.cases if lines is None else lines) if line["group"] == name]

    def case(self, group, name):
        """The measured line of a case, or nothing."""
        for line in self.group(group):
            if line["case"] == name and "error" not in line and "skipped" not in line:
                return line
        return {}

    def fastest(self, *names):
        """The line with most tokens/s among training cases, or nothing."""
        found = [line for line in (self.case("training", name) for name in names) if line.get("tokens_per_s")]
        return max(found, key=lambda line: line["tokens_per_s"], default={})

    def peer_attention(self, name):
        return next((line for line in self.group("attention", self.peer) if line["case"] == name), {})

    def peer_training(self, kind):
        """PyTorch's fastest training of that kind: "compiled" or "eager"."""
        found = [
            line for line in self.group("training", self.peer) if kind in line["case"] and line.get("tokens_per_s")
        ]
        return max(found, key=lambda line: line["tokens_per_s"], default={})

    def library_checks(self):
        """For each library (name, whether it is in use or None where nothing tells, why not)."""
        for library in LIBRARIES:
            states = [("configuring said", self.libraries.get(library))]
            states += [(f"keel env in part {part.name} said", part.env.get(library)) for part in self.there()]
            known = [(who, state) for who, state in states if state]
            why = [f"{who}: {state}" for who, state in known if not re.match(r"\d", state)]
            why += list(self._work_that_went_elsewhere(library))
            yield library, (not why if known or why else None), "; ".join(dict.fromkeys(why))

    def _work_that_went_elsewhere(self, library):
        if library == "NCCL":
            tests = [
                (kind, name) for kind, names in self.tests.names.items() for name in names if name.startswith("Nccl")
            ]
            if tests and all(kind == "skipped" for kind, _ in tests):
                yield f"all {len(tests)} tests with NCCL were skipped: {self.tests.skip_reason(tests[0][1])}"
            return
        entry = {"cuBLASLt": "matmul", "cuDNN": "attention"}[library]
        without = [line["case"] for line in self.group(entry) if line.get("library") == "none in this build"]
        if without:
            yield f"bench_gpu has it not: {without[0]}"
        for line in self.group(entry):
            for way in ("forward", "backward"):
                if line.get(f"library_{way}_by", "").startswith("keel"):
                    yield f"{entry}, {line['case']}, {way}: by {line[f'library_{way}_by']}"
        for line in self.cases:
            for message in line.get("log", ()):
                if message.startswith(entry) and "keel's own kernel" in message and not way_of(message):
                    yield f"{line['group']}, {line['case']}: {first_line(message)}"
        ways = [way_of(m) for line in self.group("matmul") for m in line.get("log", ()) if way_of(m)]
        if library == "cuBLASLt" and ways and not any(way.startswith(library) for way in ways):
            yield "timing chose keel's own kernel for every product of bench_gpu"


def first_line(text):
    return text.split("\n")[0]


def way_of(message):
    """Which kernel timing chose, by a message of the products' entry; empty for other messages."""
    match = re.match(r"matmul: .*: (cuBLASLt, then GELU|cuBLASLt|keel's own kernel), [-+.e\d]+ ms", message)
    return match[1] if match else ""


def ratio(a, b):
    return a / b if a and b else None
