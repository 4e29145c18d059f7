"""loss-scaling.md: what fp16 can hold, and how the scale of a run moves."""

import math

from drawing import Axes, Drawing

MAKER = "scripts/draw-primers"


def formats_in(page):
    """Of `keel docs formats`: by dtype the significant bits, and the largest, smallest normal and smallest number."""
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in page.splitlines() if line[:2] == "| "]
    return {
        row[0]: {
            "bits": int(row[2]),
            "largest": float(row[3]),
            "normal": exponent_in(row[4]),
            "smallest": exponent_in(row[5]),
        }
        for row in rows
        if len(row) == 7 and row[0] != "dtype"
    }


def exponent_in(cell):
    """Of "6.10352e-05 (2^-14)"."""
    return int(cell[cell.index("^") + 1 : -1])


def range_of_numbers(formats):
    fp16 = formats["f16"]
    normal, smallest, end = fp16["normal"], fp16["smallest"], math.ceil(math.log2(fp16["largest"]))

    def held(exponent):
        """A power of two below the largest number, in fp16: what is not above half the smallest becomes 0."""
        return 0.0 if exponent <= smallest - 1 else 2.0**exponent

    d = Drawing("The numbers that fp16 can hold", 800, 236, MAKER)
    d.text(20, 24, "fp16 from its smallest number to its largest, and a gradient that is moved into it", "head")
    low, high = -34, 18

    def x(exponent):
        return 30 + 740 * (exponent - low) / (high - low)

    y = 92
    d.box(
        x(normal),
        y - 16,
        x(math.log2(fp16["largest"])) - x(normal),
        32,
        "a",
        f"{fp16['bits']} significant bits",
        "small",
    )
    d.box(x(smallest), y - 16, x(normal) - x(smallest), 32, "b", "fewer and fewer bits", "small")
    d.box(x(low), y - 16, x(smallest - 1) - x(low), 32, "faint", "becomes 0", "small")
    d.box(x(end), y - 16, x(high) - x(end), 32, "faint", "inf", "small")
    for exponent, words in (
        (smallest, f"2^{smallest} = {2.0**smallest:.1e}"),
        (normal, f"2^{normal} = {2.0**normal:.1e}"),
        (end, f"{fp16['largest']:,.0f}"),
    ):
        d.line(x(exponent), y - 26, x(exponent), y + 16, "line")
        d.text(x(exponent), y - 32, words, "small", "middle")
    gradient, scale = -28, 16
    scaled = gradient + scale
    d.line(x(gradient), y + 56, x(scaled), y + 56, "line", tip=True)
    d.dot(x(gradient), y + 56, "dot-a")
    d.text(x(gradient), y + 80, f"g = 2^{gradient} = {2.0**gradient:.1e}", "small", "middle")
    d.text(x(gradient), y + 97, f"in fp16: {held(gradient):.0f}", "small", "middle")
    d.text(x((gradient + scaled) / 2), y + 48, f"times the scale 2^{scale} = {2**scale:,}", "small", "middle")
    d.text(x(scaled), y + 80, f"2^{scaled} = {2.0**scaled:.1e}", "small", "middle")
    d.text(x(scaled), y + 97, f"in fp16: {held(scaled):.1e}", "small", "middle")
    least = max(formats[each]["normal"] for each in ("bf16", "f32"))
    d.text(
        30,
        y + 130,
        f"on the axis, factors of two; bf16 and fp32 have numbers down to 2^{least} with all their bits",
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
    formats = formats_in(keel.say("docs formats"))
    interval = 12
    records = keel.records(
        f"train learn/gpt.yaml device=cpu kernels=plain threads=1 strategy=fp16 steps=60 "
        f"scheduler.warmup=5 log.every=1 eval.every=0 loss_scale.interval={interval} run=RUN"
    )
    return {"scaling-range": range_of_numbers(formats), "scaling-run": run_of_scale(records, interval)}
