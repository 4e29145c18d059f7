#!/usr/bin/env python3
"""What a run of scripts/gpu-suite is held against: the one table of goals.

  gpu_goals.py      prints it as docs/benchmarks.md has it

Each goal says how its ratio is formed of what was recorded (a Suite of gpu_records.py): of figures of the same run, and of
several cases the lowest.
"""

import typing

from gpu_records import ratio


def small_model(suite):
    return suite.fastest("gpt2 124M", "gpt2 124M, cuda_graph")


def small_mfu(suite, _):
    return small_model(suite).get("mfu"), small_model(suite).get("case", "")


def large_mfu(suite, _):
    large = suite.fastest("gpt2-xl 1.5B")
    return large.get("mfu"), "recomputing blocks" if large.get("recompute") else ""


def over_compiled(suite, _):
    small, peer = small_model(suite), suite.peer_training("compiled")
    detail = peer.get("how", "")
    if small and peer and not suite.same_run("bench", "peers"):
        detail += "; of another run than keel's"
    return ratio(small.get("tokens_per_s"), peer.get("tokens_per_s")), detail


def lowest(pairs, least):
    """Of (ratio, case): the lowest, and in words which it is and how many are below the goal."""
    pairs = sorted((pair for pair in pairs if pair[0]), key=lambda pair: pair[0])
    if not pairs:
        return None, ""
    below = sum(1 for value, _ in pairs if value < least)
    return pairs[0][0], f"{pairs[0][1]}; {below} of {len(pairs)} below the goal"


def kernels(suite, least):
    return lowest(((line.get("of_copy"), line["case"]) for line in suite.group("memory")), least)


def attention(who):
    def pairs(suite):
        for line in suite.group("attention"):
            peer = suite.peer_attention(line["case"])
            for direction in ("forward", "backward"):
                value = ratio(line.get(f"{who}_{direction}_tflops"), peer.get(f"{direction}_tflops"))
                yield value, f"{line['case']}, {direction}"

    return lambda suite, least: lowest(pairs(suite), least)


def products(dtype):
    def pairs(suite):
        return (
            (line.get("own_of_library"), line["case"]) for line in suite.group("matmul") if line.get("dtype") == dtype
        )

    return lambda suite, least: lowest(pairs(suite), least)


class Goal(typing.NamedTuple):
    what: str
    least: float
    against: str  # the ceiling or peer that the ratio is of
    measure: typing.Callable  # of the suite and `least`: the ratio, or None where it was not measured; and a detail


PEAK, PYTORCH, CUBLASLT = "the card's dense bf16 peak", "PyTorch's fastest attention", "cuBLASLt behind keel's entry"
KERNELS = Goal("memory-bound kernels: bytes/s, the lowest", 0.90, "a copy that runs in turn with each", kernels)
GOALS = (
    Goal("GPT-2 124M, T 1024, bf16: MFU", 0.57, PEAK, small_mfu),
    Goal("GPT-2 1.5B, T 1024, bf16: MFU", 0.63, PEAK, large_mfu),
    Goal("GPT-2 124M: tokens/s", 1.10, "torch.compile, the faster of its two precisions", over_compiled),
    KERNELS,
    Goal("own attention: TFLOP/s, the lowest", 0.50, PYTORCH, attention("own")),
    Goal("cuDNN's attention behind keel's entry: TFLOP/s, the lowest", 0.95, PYTORCH, attention("library")),
    Goal("own products in bf16: TFLOP/s, the lowest", 0.60, CUBLASLT, products("bf16")),
    Goal("own products in fp32: TFLOP/s, the lowest", 0.60, CUBLASLT, products("f32")),
)

# MFU counts what training_flops_of_token() in models/gpt.h does; bench_gpu writes the number beside each figure.
MFU = (
    "MFU counts 6 N + 6 L C T operations a token: N parameters (with the vocabulary rounded up to 50,304), L layers, "
    "width C, T tokens attended to, half of them on average; what is computed again does not count. For GPT-2 124M at "
    "T 1024 these are 803.5 MFLOP."
)


def outcome(value, least):
    return "not measured" if value is None else "reached" if value >= least else "missed"


def table():
    yield "| what | at least | of |"
    yield "|---|---|---|"
    for goal in GOALS:
        yield f"| {goal.what} | {goal.least:.2f} | {goal.against} |"


if __name__ == "__main__":
    print("\n".join(table()))
