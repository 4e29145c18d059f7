#!/usr/bin/env python3
"""Writes report.md and report.json from what scripts/gpu-suite recorded in a folder (bench/gpu_records.py says what).

  gpu_report.py [--print] FOLDER

--print prints the report, too, its sections in reverse: what matters most comes last. Exit code 3: something failed, or a
file could not be written.
"""

import json
import os
import re
import sys

from gpu_goals import GOALS, KERNELS, MFU, outcome
from gpu_records import PARTS, Suite, first_line, ratio, way_of


def goals_of(suite):
    for goal in GOALS:
        value, detail = goal.measure(suite, goal.least)
        yield {
            "what": goal.what,
            "of": goal.against,
            "measured": value,
            "goal": goal.least,
            "outcome": outcome(value, goal.least),
            "detail": detail,
        }


def failures_of(suite):
    """(what, how, why) of each step that did not pass, of libraries that should be in use, and of cases that failed."""
    for part in suite.there():
        for step in part.steps:
            if step.status in ("failed", "cut", "lost"):
                yield f"{part.name}: {step.name}", step.status, step.why
    for library, used, why in suite.library_checks():
        if used is False:
            yield f"{library} in use", "failed", why
    for by, lines in (("bench_gpu", suite.cases), ("PyTorch", suite.peer)):
        for line in lines:
            if "error" in line:
                yield f"{by}: {line['group']}, {line['case']}", "failed", line["error"]


TROUBLE = re.compile(
    r"\berror\b|fatal|FAILED|terminate called|what\(\):|Traceback|=========.*(Invalid|hazard)", re.IGNORECASE
)


def excerpt(log, most=16, behind=2):
    """The lines of a log that tell most of why it failed: those of trouble, each with some behind it; or else the last."""
    lines = [line.rstrip()[:240] for line in log.splitlines() if line.strip()]
    wanted = set()
    for i, line in enumerate(lines):
        if TROUBLE.search(line):
            wanted.update(range(i, min(i + behind + 1, len(lines))))
    return [lines[i] for i in sorted(wanted)][:most] or lines[-most:]


def number(value, digits=2):
    return "" if value is None else f"{value:,.{digits}f}"


def markdown_table(header, rows):
    rows = list(rows)
    if not rows:
        return
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(first_line(str(cell)).replace("|", "/") for cell in row) + " |"
    yield ""


def goals_section(suite):
    rows = (
        (g["what"], g["of"], number(g["measured"]), number(g["goal"]), g["outcome"], g["detail"])
        for g in goals_of(suite)
    )
    yield from markdown_table(("what", "of", "measured", "at least", "", ""), rows)
    yield MFU + (f" {suite.missing_peak}." if suite.missing_peak else "")
    yield ""


def failures_section(suite):
    failures = list(failures_of(suite))
    if not failures and not suite.tests.names["failed"]:
        yield "None."
        yield ""
    yield from markdown_table(("what", "how", "why"), failures)
    for name in suite.tests.names["failed"][:20]:
        yield f"- test {name}" + "".join(f"\n      {line[:240]}" for line in suite.tests.first_words(name))
    if suite.tests.names["failed"]:
        yield ""
    for part in suite.there():
        for step in part.steps:
            if step.status in ("failed", "cut") and not (step.name == "tests" and suite.tests.names["failed"]):
                lines = excerpt(part.log(step.name))
                if lines:
                    yield f"{part.name}: {step.name}, from its log:"
                    yield ""
                    yield from ("    " + line for line in lines)
                    yield ""


def parts_section(suite):
    last = suite.last().get("commit", "unknown")
    rows = []
    for part in suite.there():
        commit = part.about.get("commit", "unknown")
        if commit != last:
            commit += " (the last part: " + last + ")"
        for step in part.steps:
            rows.append(
                (part.name, step.name, step.status, step.seconds, step.limit, part.about.get("began", ""), commit)
            )
    yield from markdown_table(("part", "step", "how it ended", "seconds", "limit", "part began", "commit"), rows)
    missing = [name for name in PARTS if not suite.parts[name].is_there()]
    if missing:
        yield f"Nothing is there of: {', '.join(missing)}."
        yield ""
    slowest = ", ".join(f"{os.path.basename(output)} {seconds:.0f} s" for seconds, output in suite.slowest_files())
    if slowest:
        yield f"What took longest to compile: {slowest}."
        yield ""
    if suite.tests:
        names = suite.tests.names
        yield "Tests of label gpu: " + ", ".join(
            f"{len(names[kind])} {kind}" for kind in ("passed", "failed", "skipped")
        ) + "."
        yield ""
        reasons = {}
        for name in names["skipped"]:
            reasons.setdefault(suite.tests.skip_reason(name), []).append(name)
        for reason, skipped in reasons.items():
            yield f"- skipped {len(skipped)} ({skipped[0]}{', ...' if len(skipped) > 1 else ''}): {reason}"
        if reasons:
            yield ""


def use_section(suite):
    about = suite.last()
    yield from markdown_table(("", "found by the last part"), ((k, v) for k, v in about.items() if k != "run"))
    rows = [
        (library, {True: "in use", False: "not in use", None: "nothing tells"}[used], why)
        for library, used, why in suite.library_checks()
    ]
    yield from markdown_table(("library", "by keel's programs", ""), rows)


def training_section(suite):
    rows = []
    for line in suite.group("training"):
        if line.get("tokens_per_s"):
            how = f"batch {line.get('batch')}" + (", recomputing blocks" if line.get("recompute") else "")
            rows.append(("keel", line, how, line.get("mfu")))
    for line in suite.group("training", suite.peer):
        if line.get("tokens_per_s"):
            model = suite.case("training", line["case"].split(",")[0])
            flops = line["tokens_per_s"] * model["flops_of_token"] if "flops_of_token" in model else None
            mfu = ratio(flops, 1e12 * suite.peak if suite.peak else None)
            rows.append(("PyTorch", line, f"batch {line.get('batch')}, {line.get('how')}", mfu))
    if not rows:
        return
    yield "Forward, loss, backward, clipping and AdamW in bf16, T 1024."
    yield ""
    header = ("by", "case", "how", "tokens/s", "MFU", "MFLOP a token", "peak GB")
    yield from markdown_table(
        header,
        (
            (
                by,
                line["case"],
                how,
                number(line["tokens_per_s"], 0),
                number(mfu),
                number(line["flops_of_token"] / 1e6, 1) if "flops_of_token" in line else "",
                number(line.get("peak_bytes", 0) / 1e9, 1),
            )
            for by, line, how, mfu in rows
        ),
    )


def matmul_section(suite):
    rows = [
        (
            line["case"],
            line.get("dtype", ""),
            f"{line.get('m')} x {line.get('n')} x {line.get('k')}",
            number(line["own_tflops"], 1),
            number(line.get("library_tflops"), 1),
            number(line.get("own_of_library")),
            number(line.get("library_of_peak")),
        )
        for line in suite.group("matmul")
        if line.get("own_tflops")
    ]
    if rows:
        yield "TFLOP/s on random numbers; m x n x k."
        yield ""
        yield from markdown_table(
            ("product", "dtype", "shape", "own", "library", "own / library", "library / peak"), rows
        )


def attention_section(suite):
    rows = []
    for line in suite.group("attention"):
        peer = suite.peer_attention(line["case"])
        for way in ("forward", "backward"):
            own, library, theirs = (
                x.get(f"{who}{way}_tflops") for x, who in ((line, "own_"), (line, "library_"), (peer, ""))
            )
            if own:
                ratios = number(ratio(own, theirs)), number(ratio(library, theirs))
                figures = number(own, 1), number(library, 1), number(theirs, 1)
                rows.append((f"{line['case']}, {way}", *figures, peer.get(f"{way}_by", ""), *ratios))
    if rows:
        yield "bf16, causal, TFLOP/s; operations of the admitted half, backward 2.5 times forward."
        yield ""
        header = ("case", "own", "library", "PyTorch", "PyTorch by", "own / PyTorch", "library / PyTorch")
        yield from markdown_table(header, rows)


def memory_section(suite):
    rows = [
        (
            line["case"],
            number(1e6 * line.get("seconds", 0), 1),
            number(line.get("gb_per_s"), 0),
            number(line.get("copy_gb_per_s"), 0),
            number(line["of_copy"]),
            outcome(line["of_copy"], KERNELS.least),
        )
        for line in suite.group("memory")
        if line.get("of_copy")
    ]
    if rows:
        yield "Bytes that must be read and written once, over the time; the copy runs in turn with each kernel."
        yield ""
        yield from markdown_table(
            ("kernel", "microseconds", "GB/s", "copy GB/s", "share", f"goal {KERNELS.least:.2f}"), rows
        )
    for line in suite.group("copy", suite.peer):
        if "gb_per_s" in line:
            yield f"PyTorch's own copy on the device: {number(line['gb_per_s'], 0)} GB/s."
            yield ""


def whose_section(suite):
    rows = []
    for line in suite.cases:
        case, ways = f"{line['group']}: {line['case']}", {}
        for message in line.get("log", ()):
            if way_of(message):
                ways[way_of(message)] = ways.get(way_of(message), 0) + 1
            else:
                rows.append((case, first_line(message)))
        if ways:
            rows.append(
                (case, "products by timing: " + ", ".join(f"{way} {count}" for way, count in sorted(ways.items())))
            )
    yield from markdown_table(("case", "what the libraries' entries logged"), rows)


def left_out_section(suite):
    rows = [
        (f"{part.name}: {step.name}", step.status, step.why)
        for part in suite.there()
        for step in part.steps
        if step.status == "skipped"
    ]
    for by, lines in (("bench_gpu", suite.cases), ("PyTorch", suite.peer)):
        rows += [
            (f"{by}: {line['group']}, {line['case']}", "skipped", line["skipped"])
            for line in lines
            if "skipped" in line
        ]
    yield from markdown_table(("what", "how", "why"), rows)


SECTIONS = (  # the most important one first
    ("Goals", goals_section),
    ("Failures", failures_section),
    ("Parts of the run", parts_section),
    ("What was in use", use_section),
    ("Left out", left_out_section),
    ("Training steps", training_section),
    ("Attention", attention_section),
    ("Matrix products", matmul_section),
    ("Memory-bound kernels", memory_section),
    ("Whose work it was", whose_section),
)


def markdown(suite, sections=SECTIONS):
    about = suite.last()
    yield f"# keel on {about.get('gpu', 'an unknown GPU')}, {about.get('began', 'time unknown')}"
    yield ""
    yield "Written by `scripts/gpu-suite`; every figure was measured in the parts that are named here."
    yield ""
    for title, section in sections:
        yield f"## {title}"
        yield ""
        lines = list(section(suite))
        yield from lines or ("Nothing.", "")


def as_json(suite):
    return {
        "about": {part.name: part.about for part in suite.there()},
        "goals": list(goals_of(suite)),
        "failures": [dict(zip(("what", "how", "why"), failure)) for failure in failures_of(suite)],
        "steps": [step._asdict() for part in suite.there() for step in part.steps],
        "libraries": [dict(zip(("name", "in_use", "why"), check)) for check in suite.library_checks()],
        "tests": suite.tests.names,
        "keel": suite.cases,
        "pytorch": suite.peer,
    }


def write(path, text):
    """Replaces a file, and says whether it could: a disk that is full does not stop the report from being printed."""
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".new", path)
        return True
    except OSError as error:
        print(f"gpu_report: {path} was not written: {error}", file=sys.stderr)
        return False


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--print"]
    if len(arguments) != 1 or not os.path.isdir(arguments[0]):
        sys.exit("usage: gpu_report.py [--print] FOLDER")
    folder = arguments[0]
    suite = Suite(folder)
    written = [
        write(os.path.join(folder, "report.json"), json.dumps(as_json(suite), indent=1) + "\n"),
        write(os.path.join(folder, "report.md"), "\n".join(markdown(suite)).rstrip("\n") + "\n"),
    ]
    if len(arguments) < len(sys.argv) - 1:
        print("\n".join(markdown(suite, SECTIONS[::-1])).rstrip("\n"))
    if any(failures_of(suite)) or not all(written):
        sys.exit(3)


if __name__ == "__main__":
    main()
