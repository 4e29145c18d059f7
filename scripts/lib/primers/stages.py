"""stages.md: what a rank keeps and sends in the stages 0 to 3."""

from drawing import Drawing

MAKER = "scripts/draw-primers"
STAGES = ("ddp", "zero1", "zero2", "zero3")
RANKS = 4
KINDS = (
    ("parameter_bytes", "weights", "a"),
    ("gradient_bytes", "gradients", "b"),
    ("optimizer_bytes", "optimizer", "c"),
)


def holders():
    d = Drawing("Who holds what", 800, 262, MAKER)
    d.text(20, 24, f"What each of {RANKS} ranks keeps from step to step: filled is kept, empty is not", "head")
    for s, stage in enumerate(STAGES):
        left = 20 + 192 * s
        d.text(left, 52, f"stage {s}: {stage}", "head")
        for r in range(RANKS):
            d.text(left + 42 * r + 18, 72, f"rank {r}", "small", "middle")
            for k, (_, _, kind) in enumerate(KINDS):
                whole = s < 3 - k
                top = 80 + 52 * k
                for part in range(RANKS):
                    kept = whole or part == r
                    d.box(left + 42 * r, top + 10 * part, 36, 10, kind if kept else "plain")
    d.text(
        20,
        252,
        "from above: weights, gradients, optimizer state; each is cut into four shards, one below the other",
        "small",
    )
    return d.svg()


def sizes(plans, parameters):
    d = Drawing("Bytes of a rank in each stage", 800, 300, MAKER)
    d.text(20, 24, f"A GPT of {parameters:,} numbers in bf16 on {RANKS} ranks: bytes of one rank", "head")
    largest = max(plans[s]["kept_bytes"] for s in STAGES)
    for i, stage in enumerate(STAGES):
        plan, y, x = plans[stage], 66 + 54 * i, 90
        d.text(20, y + 17, stage, "head")
        for key, name, kind in KINDS:
            width = 410 * plan[key] / largest
            d.box(x, y, width, 26, kind, name if width > 64 else "", "small")
            x += width
        d.text(x + 8, y + 17, f"{plan['kept_bytes']:,}", "mono")
        d.text(90, y + 41, ", ".join(f"{name} {plan[key]:,}" for key, name, _ in KINDS), "small")
        d.text(620, y + 10, f"at once more: {plan['bucket_bytes']:,}", "small")
        d.text(620, y + 26, f"sent a step: {plan['sent_bytes']:,}", "small")
    d.text(90, 54, "kept from step to step", "small")
    d.text(620, 54, "for a while, and as messages", "small")
    return d.svg()


def draw(keel):
    plans, parameters = {}, 0
    for stage in STAGES:
        name = f"{stage}-bf16"
        said = keel.json(f"plan examples/addition.yaml -N {RANKS} --strat {name} --json")
        plans[stage], parameters = said["plans"][name], said["parameters"]
    return {"stages-holders": holders(), "stages-bytes": sizes(plans, parameters)}
