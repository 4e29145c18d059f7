"""overlap.md: one step of a rank on a time line, without gathering ahead and with it. The times were measured once."""

from drawing import Drawing
from primers.program import measured

MAKER = "scripts/draw-primers"
WORDS = ("a unit is gathered when it is needed", "the next unit travels while this one computes")


def lane(d, y, spans, scale, kind, label):
    d.text(112, y + 14, label, "small", "end")
    d.line(120, y + 22, 780, y + 22, "grid")
    for name, begin, length in spans:
        width = max(1.0, length * scale)
        d.box(120 + begin * scale, y, width, 20, kind)
        if width > 7.0 * len(name):
            d.text(120 + begin * scale + width / 2, y + 14, name, "small", "middle")


def timeline(step):
    runs = step["runs"]
    longest = max(run["step_us"] for run in runs)
    scale = 650 / longest
    d = Drawing("One step of a rank on a time line", 800, 388, MAKER)
    d.text(20, 24, "A step of rank 0 of 2 under zero3 on a slow network: what happens at the same time", "head")
    for i, run in enumerate(runs):
        y = 44 + 158 * i
        d.text(20, y + 10, f"sharding.prefetch={run['prefetch']}: " + WORDS[run["prefetch"]], "head")
        lane(d, y + 22, run["computing"], scale, "a", "computing")
        lane(d, y + 48, run["communication"], scale, "b", "messages")
        lane(d, y + 74, run["second"], scale, "b", "more messages")
        lane(d, y + 100, run["waiting"], scale, "d", "waiting")
        d.text(
            780,
            y + 10,
            f"{run['step_us'] / 1000:.1f} ms, of which {run['waited_us'] / 1000:.1f} ms waiting",
            "small",
            "end",
        )
    for ms in range(0, int(longest / 1000) + 1, 10):
        d.text(120 + ms * 1000 * scale, 362, f"{ms}" + (" ms" if ms == 0 else ""), "small", "middle")
        d.line(120 + ms * 1000 * scale, 346, 120 + ms * 1000 * scale, 350, "line")
    d.text(
        20,
        382,
        "f, b: forward and backward of a block; g: its weights are gathered; r: its gradients are summed; "
        "0 to 2: blocks; *: the root",
        "small",
    )
    return d.svg()


def draw(keel):
    keel.shown += measured("overlap")["commands"]
    return {"overlap-step": timeline(measured("overlap"))}
