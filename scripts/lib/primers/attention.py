"""flash-attention.md: memory over the length of a text, and a row of attention computed from blocks."""

import re

from drawing import Axes, Drawing
from primers.program import Failed

MAKER = "scripts/draw-primers"
LENGTHS = (128, 256, 512, 1024, 2048)
HEADS = 4


def memory(peaks):
    """peaks: bytes of activations by length."""
    d = Drawing("Memory of activations over the length of a text", 800, 330, MAKER)
    d.text(20, 24, "Peak of the activations of a step: one block of a GPT, 4 heads, width 64, one row", "head")
    ax = Axes(d, 80, 48, 560, 280, (LENGTHS[0], LENGTHS[-1]), (1e5, 1e8))
    ax.ticks_y([(1e5, "0.1 MB"), (1e6, "1 MB"), (1e7, "10 MB"), (1e8, "100 MB")])
    ax.ticks_x([(each, f"{each:,}") for each in LENGTHS])
    d.text(320, 316, "tokens of a row, T", "small", "middle")
    scores = [(each, HEADS * each * each * 4) for each in LENGTHS]
    ax.curve(list(peaks.items()), "curve-a")
    ax.dots(list(peaks.items()), "dot-a")
    ax.curve(scores, "curve-b")
    first, last = LENGTHS[0], LENGTHS[-1]
    d.text(576, 54, "scores of all pairs,", "head")
    d.lines(
        576,
        70,
        ("if they were kept (dashed):", f"{HEADS} T² numbers of 4 bytes,", f"{scores[-1][1] / 1e6:.1f} MB at {last}"),
    )
    d.text(576, 134, "all activations of keel", "head")
    d.lines(
        576,
        150,
        (
            "(line and dots), counted:",
            f"{peaks[first] / 1e6:.2f} MB at {first}, " f"{peaks[last] / 1e6:.2f} MB at {last:,}",
            f"{last // first} times the tokens,",
            f"{peaks[last] / peaks[first]:.1f} times the bytes",
        ),
    )
    return d.svg()


def running(said):
    """said: what `keel softmax-demo` prints of four scores in two blocks."""
    found = re.findall(
        r"block (\d+): scores (.+); values (.+)\n  (m = .+), (the largest .+)\n  (l = .+)\n  (o = .+)\n", said
    )
    result, shares, whole = re.search(
        r"\n(result: .+)\nall scores at once.*: softmax gives (.+), and the result (.+)\n", said
    ).groups()
    if len(found) != 2 or f" = {whole};" not in result:
        raise Failed(f"there are no two blocks that end in the softmax of the whole row:\n{said}")
    d = Drawing("A row of attention from two blocks", 800, 318, MAKER)
    d.text(20, 24, "One query, four keys in two blocks: what a thread keeps is m, l and o, not the scores", "head")
    for i, (block, scores, values, largest, told, total, value) in enumerate(found):
        y = 42 + 98 * i
        d.box(20, y, 760, 86, "ab"[i])
        d.text(32, y + 22, f"block {block}", "head")
        d.text(32, y + 44, f"scores {scores}", "mono")
        d.text(32, y + 64, f"values {values}", "mono")
        d.text(180, y + 22, largest, "mono")
        d.text(250, y + 22, told, "small")
        d.text(180, y + 44, total.replace("*", "·"), "mono")
        d.text(180, y + 64, value.replace("*", "·"), "mono")
    d.text(20, 258, result.replace("; ", ";  "), "mono")
    d.text(20, 282, f"all four scores at once: softmax gives {shares}, and the same {whole}", "mono")
    d.text(20, 306, "m: largest score;  l: sum of e^(score - m);  o: sum of e^(score - m) · value", "small")
    return d.svg()


def blocks(queries, length):
    """Which scores exist at a time on a processor, of a causal row of `length`."""
    d = Drawing("Blocks of scores under a causal mask", 800, 300, MAKER)
    d.text(
        20, 24, f"Scores that exist at a time: {queries} queries against the keys that they see (T = {length})", "head"
    )
    side, left, top = 232, 70, 44
    count = length // queries
    step = side / count
    for i in range(count):
        seen = step * (i + 1)
        d.box(left, top + step * i, seen, step, "a" if i == count - 2 else "faint")
    d.box(left, top, side, side, "plain")
    d.text(left + side / 2, top + side + 17, "keys", "small", "middle")
    d.text(left - 8, top + side / 2, "queries", "small", "end")
    most = queries * length
    d.lines(
        330,
        62,
        (
            f"A row of the staircase is one block of {queries} queries.",
            "The framed one is being computed; the next takes its memory.",
            "",
            f"all pairs: {length} · {length} = {length * length:,} scores of a head",
            f"at a time: {queries} · {length} = {most:,} at most, of a task",
            "",
            f"T = 8,192: {8192 * 8192:,} against {queries * 8192:,}",
            "",
            "Right of the staircase the causal mask hides every key:",
            "those products are left out.",
        ),
        "",
        21,
    )
    return d.svg()


def draw(keel):
    peaks = {}
    for length in LENGTHS:
        records = keel.records(
            "train examples/text.yaml data.path=docs/architecture.md device=cpu threads=1 data.workers=0 strategy=fp32 "
            "steps=1 time_limit=0 scheduler.warmup=0 batch.global=1 model.layers=1 model.width=64 model.block=$t run=RUN",
            t=length,
        )
        peaks[length] = records[-1]["peak_activation_bytes"]
    queries = keel.json("env --json")["attention"]["query_block"]
    return {
        "attention-memory": memory(peaks),
        "attention-running": running(keel.say("softmax-demo 1 3 2 5 --values 10,20,30,40 --block 2")),
        "attention-blocks": blocks(queries, 8 * queries),
    }
