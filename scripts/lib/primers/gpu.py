"""gpu.md: who shares which memory, and a sum over a block with and without its barrier."""

from drawing import Drawing, size_words
from primers.program import Failed, number_in

MAKER = "scripts/draw-primers"


def memories(threads, warp):
    d = Drawing("Threads, warps and blocks, and the memory that each has", 800, 330, MAKER)
    d.text(20, 24, "What shares which memory", "head")
    for block, left in enumerate((20, 300)):
        d.box(left, 40, 260, 196, "plain")
        d.text(left + 10, 60, f"block {block}: {threads} threads", "head")
        for w in range(threads // warp):
            y = 74 + 44 * w
            d.box(left + 10, y, 240, 36, "a")
            d.text(left + 18, y + 15, f"warp {w}: threads {w * warp} to {(w + 1) * warp - 1}", "small")
            d.text(left + 18, y + 30, "registers of each thread", "small")
        d.box(left + 10, 170, 240, 54, "b")
        d.text(left + 18, 190, f"shared memory: {threads} floats, {size_words(4 * threads)}", "small")
        d.text(left + 18, 208, "every thread of this block, no other", "small")
    d.box(20, 252, 540, 42, "c")
    d.text(30, 277, "device memory: the tensors; every thread of every block reads and writes them", "small")
    d.text(590, 60, "Who waits for whom", "head")
    y = d.lines(590, 84, ("threads of a warp: step together,", "pass registers by shuffles"))
    y = d.lines(590, y + 14, ("threads of a block: wait for each", "other at __syncthreads()"))
    y = d.lines(
        590, y + 14, ("blocks: not at all, in one kernel;", "the next kernel of the stream", "sees all that they wrote")
    )
    d.lines(590, y + 14, ("smaller and nearer: upwards", "larger and farther: downwards"))
    d.text(
        20,
        318,
        f"the kernel of keel race-demo has one such block; a warp is kWarp = {warp} of kernels/cuda/device.h",
        "small",
    )
    return d.svg()


def rounds_of(threads):
    """(half, what thread 0 adds with barriers, its sum then, what it adds without, its sum then) for each round."""
    ordered, alone = list(range(1, threads + 1)), list(range(1, threads + 1))
    half, rounds = threads // 2, []
    while half > 0:
        added, added_alone = ordered[half], alone[half]
        for t in range(half):
            ordered[t] += ordered[t + half]
        alone[0] += added_alone
        rounds.append((half, added, ordered[0], added_alone, alone[0]))
        half //= 2
    return rounds


def race(threads, right, wrong):
    rounds = rounds_of(threads)
    if (rounds[-1][2], rounds[-1][4]) != (right, wrong):
        raise Failed(
            f"by hand the sums are {rounds[-1][2]} and {rounds[-1][4]}; keel race-demo says {right} and {wrong}"
        )
    d = Drawing("A sum over a block, with its barrier and without", 800, 336, MAKER)
    d.text(20, 24, f"{threads} threads add 1 + 2 + ... + {threads}: what thread 0 reads in each round", "head")
    columns = (20, 120, 300, 470, 650)
    d.text(columns[1], 54, "with the barrier", "head")
    d.text(columns[3], 54, "without it, thread 0 first", "head")
    for x, words in zip(
        columns, ("round", "numbers[half]", "numbers[0] becomes", "numbers[half]", "numbers[0] becomes")
    ):
        d.text(x, 76, words, "small")
    for i, (half, added, total, added_alone, total_alone) in enumerate(rounds):
        y = 100 + 28 * i
        d.line(20, y - 18, 780, y - 18, "grid")
        d.text(columns[0], y, f"half = {half}", "mono")
        d.text(columns[1], y, f"+ {added}", "mono")
        d.text(columns[2], y, f"{total:,}", "mono")
        d.text(columns[3], y, f"+ {added_alone}" + ("" if added_alone == added else "   (not yet added up)"), "mono")
        d.text(columns[4], y, f"{total_alone}", "mono")
    y = 100 + 28 * len(rounds)
    d.line(20, y - 18, 780, y - 18, "line")
    d.text(columns[0], y + 4, "the sum", "head")
    d.text(columns[2], y + 4, f"{right:,}, right", "head")
    d.text(columns[4], y + 4, f"{wrong}, wrong", "head")
    d.lines(
        20,
        y + 32,
        (
            "With the barrier each number that thread 0 reads is a sum: its owner has finished the round before.",
            "Without it thread 0 may run through all rounds before thread 1 begins: it finds the numbers as they were.",
        ),
    )
    return d.svg()


def draw(keel):
    said = keel.say("race-demo")
    threads = number_in(r"rounds for (\d+) threads", said)
    wrong = number_in(r"the sum is (\d+) when threads run from the first", said)
    right = number_in(r"No complaint; the sum is (\d+)", said)
    warp = number_in(r"A warp has (\d+) threads", said)
    return {"gpu-memories": memories(threads, warp), "gpu-race": race(threads, right, wrong)}
