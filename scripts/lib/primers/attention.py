"""flash-attention.md: memory over the length of a text, and a row of attention computed from blocks."""

import math

from drawing import Axes, Drawing

MAKER = "scripts/draw-primers"
LENGTHS = (128, 256, 512, 1024, 2048)
HEADS = 4
ROW = ((1.0, 3.0), (2.0, 5.0))  # scores of one query, in two blocks of keys
VALUES = ((10.0, 20.0), (30.0, 40.0))


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


def folded():
    """What is known after each block: largest score, factor on what came before, sum of exponentials, sum of values."""
    largest, total, value, rows = -math.inf, 0.0, 0.0, []
    for scores, values in zip(ROW, VALUES):
        new = max(largest, *scores)
        factor = math.exp(largest - new)
        weights = [math.exp(s - new) for s in scores]
        total = total * factor + sum(weights)
        value = value * factor + sum(w * v for w, v in zip(weights, values))
        largest = new
        rows.append((scores, values, largest, factor, weights, total, value))
    return rows


def running():
    rows = folded()
    scores, values = ROW[0] + ROW[1], VALUES[0] + VALUES[1]
    weights = [math.exp(s - max(scores)) for s in scores]
    whole = sum(w * v for w, v in zip(weights, values)) / sum(weights)
    d = Drawing("A row of attention from two blocks", 800, 318, MAKER)
    d.text(20, 24, "One query, four keys in two blocks: what a thread keeps is m, l and o, not the scores", "head")
    for i, (block, own, largest, factor, exps, total, value) in enumerate(rows):
        y = 42 + 98 * i
        d.box(20, y, 760, 86, "ab"[i])
        d.text(32, y + 22, f"block {i}", "head")
        d.text(32, y + 44, f"scores {block[0]:.0f}, {block[1]:.0f}", "mono")
        d.text(32, y + 64, f"values {own[0]:.0f}, {own[1]:.0f}", "mono")
        d.text(180, y + 22, f"m = {largest:.0f}", "mono")
        told = "the largest score so far"
        if i != 0:
            told += f"; what came before counts e^({rows[0][2]:.0f} - {largest:.0f}) = {factor:.4f} of what it did"
        d.text(250, y + 22, told, "small")
        before = "" if i == 0 else f"{rows[0][5]:.4f} · {factor:.4f} + "
        d.text(180, y + 44, f"l = {before}{exps[0]:.4f} + {exps[1]:.4f} = {total:.4f}", "mono")
        before = "" if i == 0 else f"{rows[0][6]:.4f} · {factor:.4f} + "
        parts = " + ".join(f"{e:.4f} · {v:.0f}" for e, v in zip(exps, own))
        d.text(180, y + 64, f"o = {before}{parts} = {value:.4f}", "mono")
    last = rows[-1]
    d.text(
        20,
        258,
        f"result: o / l = {last[6]:.4f} / {last[5]:.4f} = {last[6] / last[5]:.4f};  kept for backward: "
        f"m + log l = {last[2] + math.log(last[5]):.4f}",
        "mono",
    )
    shares = ", ".join(f"{w / sum(weights):.4f}" for w in weights)
    d.text(20, 282, f"all four scores at once: softmax gives {shares}, and the same {whole:.4f}", "mono")
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
        "attention-running": running(),
        "attention-blocks": blocks(queries, 8 * queries),
    }
