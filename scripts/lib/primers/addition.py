"""addition.md: one sum in three orders, and which orders end in the same bits."""

import re

from drawing import Drawing
from primers.program import Failed

MAKER = "scripts/draw-primers"
DTYPE = "bf16"


def rows_of(said):
    """Of `keel comm --sum`: algorithm, shard, order, sums and result of each row."""
    rows = []
    for line in said.splitlines():
        cells = re.split(r"  +", line)
        if len(cells) == 5 and not line.startswith("#") and cells[0] != "algorithm":
            rows.append(cells)
    return rows


def steps_of(sums):
    """Of "256 + 1 = 257 -> 256, 1 + 1 = 2": what is added, its sum, and what this is rounded to."""
    return [re.fullmatch(r"(.+) = (\S+?)(?: -> (\S+))?", each).groups() for each in sums.split(", ")]


def words_of(step):
    added, total, rounded = step
    return f"{added} = {total}" + (f", rounded: {rounded}" if rounded else "")


def orders(said):
    """Rows: names of algorithms, their order as words, steps as words, the result."""
    rows = rows_of(said)
    once = [row for row in rows if row[2] == "0+1+2+3"]
    pairs = [row for row in rows if row[0] == "tree"]
    around = [row for row in rows if row[0] == "ring" and row[2].startswith("((0+")]
    if not once or len(pairs) != 1 or len(around) != 1:
        raise Failed(f"the orders of additions are not those of the drawing:\n{said}")
    ((added, total, rounded),) = steps_of(once[0][3])
    first, second, last = steps_of(pairs[0][3])
    begin, *more = steps_of(around[0][3])
    return (
        (
            ", ".join(row[0] for row in once),
            "one sum by rank in fp32, rounded once",
            (f"{added} = {total}", f"rounded to {DTYPE}: {rounded}"),
            once[0][4],
        ),
        (
            "tree",
            "pairs, rounded at each sum",
            (f"{words_of(first)};  {words_of(second)}", words_of(last)),
            pairs[0][4],
        ),
        (
            "ring",
            "the shard that begins at rank 0, rounded each time",
            (
                ";  ".join([words_of(begin)] + [f"+ {each[0].split(' + ')[1]}: {each[2]}" for each in more]),
                "each 1 is lost by itself",
            ),
            around[0][4],
        ),
    )


def one_sum(said):
    terms, exact = re.search(r"they bring (.+); added in f64: (\S+)", said).groups()
    d = Drawing("One sum of four numbers, in three orders", 800, 286, MAKER)
    d.text(
        20, 24, f"Four ranks bring {' and '.join(terms.rsplit(', ', 1))} in {DTYPE}. The exact sum is {exact}.", "head"
    )
    d.text(
        20,
        44,
        "From 256 to 512, bf16 has the even numbers alone. An odd one goes to the neighbour whose last bit is 0.",
        "small",
    )
    for i, (name, what, steps, result) in enumerate(orders(said)):
        y = 60 + 72 * i
        d.box(20, y, 760, 62, "abc"[i])
        d.text(32, y + 22, name, "head")
        d.text(32, y + 42, what, "small")
        d.text(345, y + 22, steps[0], "mono")
        d.text(345, y + 42, steps[1], "mono")
        d.text(766, y + 36, result, "head", "end")
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
    sums = keel.say(f"comm --sum 256,1,1,1 --dtype {DTYPE} --algorithms ordered,direct,flat,tree,ring --columns 140")
    said = keel.say(
        "compare learn/gpt.yaml -N 4 --threads --steps 4 --repeats 1 --columns 140 "
        "--algorithms ordered,direct,flat,ring,tree,rhd device=cpu strategy=bf16"
    )
    rows = fingerprints(said)
    if len(rows) != 6:
        raise Failed(f"the comparison has {len(rows)} rows instead of 6:\n{said}")
    return {
        "addition-orders": one_sum(sums),
        "addition-bits": same_bits(rows, weights_by_ranks(keel, 0), weights_by_ranks(keel, 4)),
    }
