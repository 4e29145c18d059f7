#!/usr/bin/env python3
"""Writes report.md and report.json from what scripts/gpu-suite recorded in a folder.

  gpu_report.py FOLDER

Reads about.tsv and parts.tsv (NAME, VALUE and PART, STATUS, SECONDS, LIMIT, WHY), bench-*.jsonl of bench_gpu,
pytorch.jsonl of bench/peers/gpu.py, and tests.log of CTest; any of them may be missing.
"""

import glob
import json
import os
import re
import sys

COPY_GOAL = 0.85
BENCH_GROUPS = ("memory", "matmul", "attention", "training")


def lines_of(path):
    """The JSON lines of a file; a line that a time limit cut is left out."""
    if not os.path.exists(path):
        return []
    lines = []
    with open(path, encoding="utf-8") as file:
        for text in file:
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                continue
    return lines


def table_of(path, columns):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        rows = (line.rstrip("\n").split("\t") for line in file)
        return [dict(zip(columns, row + [""] * len(columns))) for row in rows]


class Suite:
    """What one run of the suite recorded."""

    def __init__(self, folder):
        self.about = {
            row["name"]: row["value"] for row in table_of(os.path.join(folder, "about.tsv"), ("name", "value"))
        }
        self.parts = table_of(os.path.join(folder, "parts.tsv"), ("part", "status", "seconds", "limit", "why"))
        self.cases, self.missing_peak = [], ""
        for group in BENCH_GROUPS:
            for path in sorted(glob.glob(os.path.join(folder, f"bench-{group}.jsonl"))):
                lines = lines_of(path)
                self.cases += [line for line in lines if line.get("group") == group]
                self.missing_peak = next((line["peak_missing"] for line in lines if "peak_missing" in line), "")
        self.peer = lines_of(os.path.join(folder, "pytorch.jsonl"))
        self.tests = tests_of(os.path.join(folder, "tests.log"))

    def group(self, name, lines=None):
        return [line for line in (self.cases if lines is None else lines) if line.get("group") == name]

    def case(self, group, name):
        """The measured line of a case, or nothing."""
        for line in self.group(group):
            if line["case"] == name and "error" not in line and "skipped" not in line:
                return line
        return {}

    def fastest(self, *names):
        """The line with most tokens/s among training cases, or nothing."""
        found = (self.case("training", name) for name in names)
        return max(
            (line for line in found if "tokens_per_s" in line), key=lambda line: line["tokens_per_s"], default={}
        )

    def peer_attention(self, name):
        return next((line for line in self.group("attention", self.peer) if line["case"] == name), {})

    def peer_training(self, kind):
        """PyTorch's fastest training of that kind: "compiled" or "eager"."""
        found = [line for line in self.group("training", self.peer) if kind in line["case"] and "tokens_per_s" in line]
        return max(found, key=lambda line: line["tokens_per_s"], default={})


def tests_of(path):
    """How many tests passed, failed and were skipped, by CTest's own lines."""
    if not os.path.exists(path):
        return {}
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failed = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            match = re.match(r"\s*\d+/\d+ Test +#\d+: (\S+) \.*\s*(.*)", line)
            if not match:
                continue
            kind = "passed" if match[2].startswith("Passed") else "skipped" if "Skipped" in match[2] else "failed"
            counts[kind] += 1
            if kind == "failed":
                failed.append(match[1])
    return {**counts, "names_of_failed": failed}


def ratio(a, b):
    return a / b if a and b else None


def goals_of(suite):
    """Rows (what, ratio or None, goal, detail); a ratio that could not be formed is None."""
    rows = []
    small = suite.fastest("gpt2 124M", "gpt2 124M, cuda_graph")
    for name, line, goal in (("gpt2 124M", small, 0.50), ("gpt2-xl 1.5B", suite.fastest("gpt2-xl 1.5B"), 0.55)):
        rows.append((f"{name}, T 1024, bf16: MFU", line.get("mfu"), goal, line.get("case", "")))
    keel = small.get("tokens_per_s")
    for kind, goal in (("compiled", 1.1), ("eager", None)):
        peer = suite.peer_training(kind)
        rows.append(
            (
                f"gpt2 124M: tokens/s over PyTorch {kind}",
                ratio(keel, peer.get("tokens_per_s")),
                goal,
                peer.get("how", ""),
            )
        )
    shares = [(line["of_copy"], line["case"]) for line in suite.group("memory") if "of_copy" in line]
    below = sum(1 for share, _ in shares if share < COPY_GOAL)
    detail = f"{below} of {len(shares)} kernels are below; the lowest is {min(shares)[1]}" if shares else ""
    rows.append(
        (
            "memory-bound kernels: share of the copy bandwidth, the lowest",
            min(shares)[0] if shares else None,
            COPY_GOAL,
            detail,
        )
    )
    for who, goal in (("own", 0.50), ("library", 0.95)):
        found = attention_ratios(suite, who)
        detail = min(found)[1] if found else ""
        rows.append((f"{who} attention over PyTorch's, the lowest", min(found)[0] if found else None, goal, detail))
    square = suite.case("matmul", "4096 x 4096 x 4096")
    rows.append(("own matmul over the library's, 4096 x 4096 x 4096", square.get("own_of_library"), 0.60, ""))
    return rows


def attention_ratios(suite, who):
    found = []
    for line in suite.group("attention"):
        peer = suite.peer_attention(line["case"])
        for direction in ("forward", "backward"):
            value = ratio(line.get(f"{who}_{direction}_tflops"), peer.get(f"{direction}_tflops"))
            if value:
                found.append((value, f"{line['case']}, {direction}"))
    return found


def outcome(value, goal):
    if value is None:
        return "not measured"
    if goal is None:
        return ""
    return "reached" if value >= goal else "missed"


def number(value, digits=2):
    return "" if value is None else f"{value:,.{digits}f}"


def markdown_table(header, rows):
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"
    yield ""


def memory_rows(suite):
    for line in suite.group("memory"):
        if "of_copy" in line:
            share = line["of_copy"]
            yield (
                line["case"],
                number(1e6 * line["seconds"], 1),
                number(line["gb_per_s"], 0),
                number(line["copy_gb_per_s"], 0),
                number(share),
                outcome(share, COPY_GOAL),
            )


def matmul_rows(suite):
    for line in suite.group("matmul"):
        if "own_tflops" in line:
            shape = f"{line['m']} x {line['n']} x {line['k']}"
            yield (
                line["case"],
                shape,
                number(line["own_tflops"], 1),
                number(line.get("library_tflops"), 1),
                number(line.get("own_of_library")),
                number(line.get("library_of_peak")),
            )


def attention_rows(suite):
    for line in suite.group("attention"):
        peer = suite.peer_attention(line["case"])
        for direction in ("forward", "backward"):
            own, library, theirs = (
                x.get(f"{who}{direction}_tflops") for x, who in ((line, "own_"), (line, "library_"), (peer, ""))
            )
            if own:
                yield (
                    f"{line['case']}, {direction}",
                    number(own, 1),
                    number(library, 1),
                    number(theirs, 1),
                    peer.get(f"{direction}_by", ""),
                    number(ratio(own, theirs)),
                    number(ratio(library, theirs)),
                )


def training_rows(suite):
    for line in suite.group("training"):
        if "tokens_per_s" in line:
            how = f"batch {line['batch']}" + (", recomputing blocks" if line.get("recompute") else "")
            yield (
                "keel",
                line["case"],
                how,
                number(line["tokens_per_s"], 0),
                number(line.get("mfu")),
                number(line["peak_bytes"] / 1e9, 1),
            )
    for line in suite.group("training", suite.peer):
        if "tokens_per_s" in line:
            yield (
                "PyTorch",
                line["case"].split(",")[0],
                f"batch {line['batch']}, {line['how']}",
                number(line["tokens_per_s"], 0),
                "",
                number(line["peak_bytes"] / 1e9, 1),
            )


def left_out(suite):
    if suite.missing_peak:
        yield ("MFU", "not formed", suite.missing_peak)
    for part in suite.parts:
        if part["status"] != "passed":
            yield (part["part"], part["status"], part["why"])
    for line in suite.cases + suite.peer:
        for status in ("skipped", "error"):
            if status in line:
                yield (f"{line['group']}: {line['case']}", status, line[status].split("\n")[0])


def logged(suite):
    for line in suite.cases:
        for message in line.get("log", ()):
            yield (f"{line['group']}: {line['case']}", message.split("\n")[0])


SECTIONS = (
    (
        "Training steps",
        "Forward, loss, backward, clipping and AdamW in bf16, T 1024. MFU counts 6N + 6LCT operations a token.",
        ("by", "model", "how", "tokens/s", "MFU", "peak GB"),
        training_rows,
    ),
    (
        "Matrix products",
        "bf16, TFLOP/s on random numbers; m x n x k.",
        ("product", "shape", "own", "library", "own / library", "library / peak"),
        matmul_rows,
    ),
    (
        "Attention",
        "bf16, causal, TFLOP/s; operations of the admitted half, backward 2.5 times forward.",
        ("case", "own", "library", "PyTorch", "PyTorch by", "own / PyTorch", "library / PyTorch"),
        attention_rows,
    ),
    (
        "Memory-bound kernels",
        "Bytes that must be read and written once, over the time; the copy runs in turn with each kernel.",
        ("kernel", "microseconds", "GB/s", "copy GB/s", "share", f"goal {COPY_GOAL}"),
        memory_rows,
    ),
)


def markdown(suite):
    about = suite.about
    yield f"# keel on {about.get('gpu', 'an unknown GPU')}, {about.get('date', 'date unknown')}"
    yield ""
    yield "Written by `scripts/gpu-suite`; every figure was measured in this one run."
    yield ""
    yield from markdown_table(("", ""), about.items())
    yield "## Goals"
    yield ""
    goals = (
        (what, number(value), goal or "", outcome(value, goal), detail) for what, value, goal, detail in goals_of(suite)
    )
    yield from markdown_table(("what", "measured", "goal", "", ""), goals)
    yield "## Parts of the run"
    yield ""
    yield from markdown_table(
        ("part", "how it ended", "seconds", "limit"),
        ((p["part"], p["status"], p["seconds"], p["limit"]) for p in suite.parts),
    )
    if suite.tests:
        counts = ", ".join(f"{suite.tests[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
        names = "; failed: " + ", ".join(suite.tests["names_of_failed"]) if suite.tests["names_of_failed"] else ""
        yield f"Tests of label gpu: {counts}{names}."
        yield ""
    for title, text, header, rows in SECTIONS:
        found = list(rows(suite))
        yield f"## {title}"
        yield ""
        if found:
            yield text
            yield ""
            yield from markdown_table(header, found)
        else:
            yield "Nothing was measured."
            yield ""
    copies = [line for line in suite.group("copy", suite.peer) if "gb_per_s" in line]
    if copies:
        yield f"PyTorch's own copy on the device: {number(copies[0]['gb_per_s'], 0)} GB/s."
        yield ""
    messages = list(logged(suite))
    if messages:
        yield "## Whose work it was"
        yield ""
        yield "What the libraries' entries logged: the way that timing chose, or why keel's own kernel took their place."
        yield ""
        yield from markdown_table(("case", ""), messages)
    yield "## Left out"
    yield ""
    missing = list(left_out(suite))
    if missing:
        yield from markdown_table(("what", "how", "why"), missing)
    else:
        yield "Nothing."


def main():
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        sys.exit("usage: gpu_report.py FOLDER")
    folder = sys.argv[1]
    suite = Suite(folder)
    goals = [
        {"what": what, "measured": value, "goal": goal, "outcome": outcome(value, goal), "detail": detail}
        for what, value, goal, detail in goals_of(suite)
    ]
    report = {
        "about": suite.about,
        "goals": goals,
        "parts": suite.parts,
        "tests": suite.tests,
        "keel": suite.cases,
        "pytorch": suite.peer,
    }
    with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    with open(os.path.join(folder, "report.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(markdown(suite)).rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
