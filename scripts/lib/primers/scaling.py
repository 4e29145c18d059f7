"""loss-scaling.md: what fp16 can hold, and how the scale of a run moves."""

import math
import struct

from drawing import Axes, Drawing

MAKER = "scripts/draw-primers"
LARGEST, NORMAL, SMALLEST = 65504.0, 2.0**-14, 2.0**-24


def fp16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def range_of_numbers():
    d = Drawing("The numbers that fp16 can hold", 800, 236, MAKER)
    d.text(20, 24, "fp16 from its smallest number to its largest, and a gradient that is moved into it", "head")
    low, high = -34, 18

    def x(exponent):
        return 30 + 740 * (exponent - low) / (high - low)

    y = 92
    d.box(x(-14), y - 16, x(math.log2(LARGEST)) - x(-14), 32, "a", "11 significant bits", "small")
    d.box(x(-24), y - 16, x(-14) - x(-24), 32, "b", "fewer and fewer bits", "small")
    d.box(x(low), y - 16, x(-25) - x(low), 32, "faint", "becomes 0", "small")
    d.box(x(16), y - 16, x(high) - x(16), 32, "faint", "inf", "small")
    for exponent, words in ((-24, f"2^-24 = {SMALLEST:.1e}"), (-14, f"2^-14 = {NORMAL:.1e}"), (16, "65,504")):
        d.line(x(exponent), y - 26, x(exponent), y + 16, "line")
        d.text(x(exponent), y - 32, words, "small", "middle")
    gradient, scale = 2.0**-28, 2.0**16
    d.line(x(-28), y + 56, x(-12), y + 56, "line", tip=True)
    d.dot(x(-28), y + 56, "dot-a")
    d.text(x(-28), y + 80, f"g = 2^-28 = {gradient:.1e}", "small", "middle")
    d.text(x(-28), y + 97, f"in fp16: {fp16(gradient):.0f}", "small", "middle")
    d.text(x(-20), y + 48, "times the scale 2^16 = 65,536", "small", "middle")
    d.text(x(-12), y + 80, f"2^-12 = {gradient * scale:.1e}", "small", "middle")
    d.text(x(-12), y + 97, f"in fp16: {fp16(gradient * scale):.1e}", "small", "middle")
    d.text(
        30,
        y + 130,
        "on the axis, factors of two; bf16 and fp32 have numbers down to 2^-126 with all their bits",
        "small",
    )
    return d.svg()


def run_of_scale(records, interval):
    steps = [(r["step"], r["loss_scale"], r["grad_norm"] is None) for r in records if "loss_scale" in r]
    d = Drawing("The loss scale of a run", 800, 320, MAKER)
    d.text(
        20,
        24,
        f"The loss scale after each step of a small GPT in fp16, which doubles after {interval} taken steps",
        "head",
    )
    low = min(scale for _, scale, _ in steps)
    ax = Axes(d, 80, 52, 600, 262, (1, steps[-1][0] + 1), (low / 2, 131072), plain_x=True)
    ticks = [65536 / 4**i for i in range(6) if 65536 / 4**i >= low / 2]
    ax.ticks_y([(each, f"{each:,.0f}") for each in ticks])
    ax.ticks_x([(each, f"{each}") for each in range(10, steps[-1][0] + 1, 10)])
    d.text(350, 298, "step", "small", "middle")
    ax.steps([(step, scale) for step, scale, _ in steps], "curve-a")
    for step, scale, skipped in steps:
        if skipped:
            x, y = ax.x(step), ax.y(scale)
            d.line(x - 4, y - 4, x + 4, y + 4, "line")
            d.line(x - 4, y + 4, x + 4, y - 4, "line")
    first = [step for step, _, skipped in steps if skipped]
    begin = next(step for step, _, skipped in steps if not skipped)
    y = d.lines(620, 70, ("x: a step that was skipped,", "since a gradient was inf", "or NaN; the scale halves"))
    y = d.lines(
        620,
        y + 14,
        (f"{begin - 1} skips before the first", "step that is taken:", f"65,536 to {steps[begin - 1][1]:,.0f}"),
    )
    later = [each for each in first if each > begin]
    d.lines(
        620,
        y + 14,
        (
            f"of the {len(steps) - begin + 1} steps after it,",
            f"skipped, behind a growth: {len(later)}",
            f"({', '.join(f'step {each}' for each in later)})",
        ),
    )
    return d.svg()


def draw(keel):
    interval = 12
    records = keel.records(
        f"train learn/gpt.yaml device=cpu kernels=plain threads=1 strategy=fp16 steps=60 "
        f"scheduler.warmup=5 log.every=1 eval.every=0 loss_scale.interval={interval} run=RUN"
    )
    return {"scaling-range": range_of_numbers(), "scaling-run": run_of_scale(records, interval)}
