"""message.md: times of all-reduce on a slow network, beside formulas, and the bytes of each algorithm."""

import json

from drawing import Axes, Drawing, size_words
from primers.program import measured, number_in

MAKER = "scripts/draw-primers"
RANKS = 4
ALGORITHMS = ("ordered", "direct", "ring", "rhd", "hier", "tree", "flat")
KINDS = {"direct": "a", "tree": "b", "ring": "c"}


def costs(keel):
    """By algorithm, of an all-reduce among 4 ranks: steps, and tensors that pass the busiest rank's link one after another."""
    found = {}
    for name in KINDS:
        said = keel.say(f"comm --draw {name} -N {RANKS} --out RUN.html")
        parts, following = (number_in(pattern, said) for pattern in (r"of (\d+) parts", r"and (\d+) follow"))
        found[name] = number_in(r"in (\d+) steps", said), following / parts
    return found


def times(run, costs):
    d = Drawing("What an all-reduce costs", 800, 360, MAKER)
    delay_ms, bandwidth = run["delay_us"] / 1000, run["bandwidth"]
    d.text(
        20,
        24,
        f"All-reduce among {RANKS} ranks: a message takes {delay_ms:.0f} ms, a rank sends "
        f"{size_words(bandwidth)} a second",
        "head",
    )
    ax = Axes(d, 70, 48, 530, 306, (8, 2 << 20), (2, 1000))
    ax.ticks_y([(each, f"{each} ms") for each in (2, 5, 10, 20, 50, 100, 200, 500, 1000)])
    ax.ticks_x([(8 * 8**i, size_words(8 * 8**i)) for i in range(7)])
    d.text(300, 342, "bytes of the tensor, S", "small", "middle")
    for name, (steps, volume) in costs.items():
        points = [
            (size, steps * delay_ms + volume * size / bandwidth * 1000)
            for size in [8 * 2 ** (i / 2) for i in range(37)]
        ]
        ax.curve(points, "curve-" + KINDS[name])
        ax.dots([(size, us / 1000) for size, us in run["median_us"][name]], "dot-" + KINDS[name])
    y = d.lines(556, 66, ("lines: steps · delay", "+ bytes / bandwidth", "dots: medians that were measured"))
    words = {"direct": "solid", "tree": "dashed", "ring": "dotted"}
    for name, (steps, volume) in costs.items():
        small, large = run["median_us"][name][0][1], run["median_us"][name][-1][1]
        d.text(556, y + 20, f"{name} ({words[name]})", "head")
        y = d.lines(
            556,
            y + 37,
            (f"{steps} steps, {volume:g} S / bandwidth", f"8 B {small / 1000:.1f} ms, 2 MiB {large / 1000:.0f} ms"),
        )
    return d.svg()


def volumes(records, size):
    d = Drawing("Bytes that each algorithm sends", 800, 296, MAKER)
    d.text(20, 24, f"All-reduce of {size_words(size)} among {RANKS} ranks: what the rank that sends most sends", "head")
    largest = max(r["wire_inside_bytes"] for r in records)
    for i, record in enumerate(records):
        y = 42 + 34 * i
        width = 480 * record["wire_inside_bytes"] / largest
        d.text(84, y + 17, record["algorithm"], "head", "end")
        d.box(94, y, width, 24, "a")
        d.text(
            102 + width, y + 17, f"{record['wire_inside_bytes']:,} bytes, {record['wire_inside_bytes'] / size:g} S", ""
        )
    totals = {r["wire_total_bytes"] for r in records}
    if len(totals) == 1:
        d.text(
            20, 290, f"By each of them all ranks together send {totals.pop():,} bytes, {2 * (RANKS - 1)} S.", "small"
        )
    return d.svg()


def draw(keel):
    keel.shown += measured("message")["commands"]
    size = 1 << 20
    keel.say(
        f"comm all_reduce -N {RANKS} --threads --device cpu --algorithms {','.join(ALGORITHMS)} "
        "-b 1M -e 1M -n 1 -w 0 --json RUN.json"
    )
    records = json.loads(keel.run.with_suffix(".json").read_text())["records"]
    return {"message-times": times(measured("message"), costs(keel)), "message-bytes": volumes(records, size)}
