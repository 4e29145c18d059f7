"""addition.md: one sum in three orders, and which orders end in the same bits."""

import struct

from drawing import Drawing
from primers.program import Failed

MAKER = "scripts/draw-primers"
TERMS = (256.0, 1.0, 1.0, 1.0)  # what ranks 0 to 3 bring


def fp32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16(x):
    """The nearest of 8 significant bits, ties to even: of an fp32 number its upper half, rounded."""
    word = struct.unpack("<I", struct.pack("<f", x))[0]
    word += 0x7FFF + (word >> 16 & 1)
    return struct.unpack("<f", struct.pack("<I", word & 0xFFFF0000))[0]


def orders():
    """Rows: name of the order, steps as words, the result."""
    a, b, c, e = TERMS
    once = fp32(fp32(fp32(a + b) + c) + e)
    ring = [a]
    for term in (b, c, e):
        ring.append(bf16(ring[-1] + term))
    left, right = bf16(a + b), bf16(c + e)
    return (
        (
            "ordered, direct, flat",
            "one sum by rank in fp32, rounded once",
            (f"((256 + 1) + 1) + 1 = {once:.0f}", f"rounded to bf16: {bf16(once):.0f}"),
            bf16(once),
        ),
        (
            "tree",
            "pairs, rounded at each sum",
            (
                f"256 + 1 = 257, rounded: {left:.0f};  1 + 1 = {right:.0f}",
                f"{left:.0f} + {right:.0f} = {bf16(left + right):.0f}",
            ),
            bf16(left + right),
        ),
        (
            "ring",
            "the shard that begins at rank 0, rounded each time",
            (
                f"256 + 1 = 257, rounded: {ring[1]:.0f};  + 1: {ring[2]:.0f};  + 1: {ring[3]:.0f}",
                "each 1 is lost by itself",
            ),
            ring[3],
        ),
    )


def one_sum():
    d = Drawing("One sum of four numbers, in three orders", 800, 286, MAKER)
    d.text(20, 24, "Four ranks bring 256, 1, 1 and 1 in bf16. The exact sum is 259.", "head")
    d.text(
        20,
        44,
        "From 256 to 512, bf16 has the even numbers alone. An odd one goes to the neighbour whose last bit is 0.",
        "small",
    )
    for i, (name, what, steps, result) in enumerate(orders()):
        y = 60 + 72 * i
        d.box(20, y, 760, 62, "abc"[i])
        d.text(32, y + 22, name, "head")
        d.text(32, y + 42, what, "small")
        d.text(345, y + 22, steps[0], "mono")
        d.text(345, y + 42, steps[1], "mono")
        d.text(766, y + 36, f"{result:.0f}", "head", "end")
    return d.svg()


def fingerprints(said):
    """Of `keel compare`: the beginning of each algorithm's weights."""
    rows = {}
    for line in said.splitlines():
        words = line.split()
        if len(words) > 3 and words[0] in ("ordered", "direct", "flat", "ring", "tree", "rhd"):
            rows[words[0]] = words[1]
    return rows


def same_bits(algorithms, plain, virtual):
    d = Drawing("Which runs end in the same bits", 800, 330, MAKER)
    d.text(20, 24, "The same training by four ranks in bf16: whose weights are those of ordered?", "head")
    y = 48
    for i, (name, weights) in enumerate(algorithms.items()):
        same = weights == algorithms["ordered"]
        x = 20 + 128 * i
        d.box(x, y, 116, 44, "a" if same else "b")
        d.text(x + 58, y + 18, name, "head", "middle")
        d.text(x + 58, y + 35, "the same bits" if same else "others", "small", "middle")
    d.text(20, 128, "The same training by 1, 2 and 4 ranks in fp32: do the three agree?", "head")
    both = (
        ("sharding.virtual_ranks = 0: each rank adds its rows, then the ranks add", plain),
        ("sharding.virtual_ranks = 4: one tree over four virtual ranks, whoever has them", virtual),
    )
    for row, (words, sums) in enumerate(both):
        y = 148 + 86 * row
        d.text(20, y + 14, words, "small")
        for i, ranks in enumerate((1, 2, 4)):
            same = sums[i] == sums[0]
            d.box(20 + 176 * i, y + 24, 160, 44, "a" if same else "b")
            d.text(100 + 176 * i, y + 42, f"{ranks} rank{'s' if ranks > 1 else ''}", "head", "middle")
            words = "these bits" if i == 0 else "the same bits" if same else "others"
            d.text(100 + 176 * i, y + 59, words, "small", "middle")
    return d.svg()


def weights_by_ranks(keel, virtual_ranks):
    """Bytes of the weights that 1, 2 and 4 ranks end in."""
    found = []
    for ranks in (1, 2, 4):
        keel.say(
            "launch -N $n --threads train learn/gpt.yaml device=cpu kernels=plain steps=4 scheduler.warmup=1 eval.every=0 "
            "sharding.virtual_ranks=$v run=RUN",
            v=virtual_ranks,
            n=ranks,
        )
        found.append((keel.run / "model.safetensors").read_bytes())
    return found


def draw(keel):
    said = keel.say(
        "compare learn/gpt.yaml -N 4 --threads --steps 4 --repeats 1 --columns 140 "
        "--algorithms ordered,direct,flat,ring,tree,rhd device=cpu strategy=bf16"
    )
    rows = fingerprints(said)
    if len(rows) != 6:
        raise Failed(f"the comparison has {len(rows)} rows instead of 6:\n{said}")
    return {
        "addition-orders": one_sum(),
        "addition-bits": same_bits(rows, weights_by_ranks(keel, 0), weights_by_ranks(keel, 4)),
    }
