#!/usr/bin/env python3
"""What a run of scripts/gpu-suite is held against: the one table of goals.

  gpu_goals.py      prints it as docs/benchmarks.md has it

bench/gpu_report.py forms each ratio by the name of its goal. A ratio is of figures that were measured in the same run,
and of several cases it is the lowest.
"""

import typing


class Goal(typing.NamedTuple):
    name: str
    what: str
    least: float
    against: str  # the ceiling or peer that the ratio is of


GOALS = (
    Goal("mfu_124m", "GPT-2 124M, T 1024, bf16: MFU", 0.57, "the card's dense bf16 peak"),
    Goal("mfu_1.5b", "GPT-2 1.5B, T 1024, bf16: MFU", 0.63, "the card's dense bf16 peak"),
    Goal("over_compiled", "GPT-2 124M: tokens/s", 1.10, "torch.compile, the faster of its two precisions"),
    Goal("memory", "memory-bound kernels: bytes/s, the lowest", 0.90, "a copy that runs in turn with each"),
    Goal("own_attention", "own attention: TFLOP/s, the lowest", 0.50, "PyTorch's fastest attention"),
    Goal(
        "library_attention",
        "cuDNN's attention behind keel's entry: TFLOP/s, the lowest",
        0.95,
        "PyTorch's fastest attention",
    ),
    Goal("own_products_bf16", "own products in bf16: TFLOP/s, the lowest", 0.60, "cuBLASLt behind keel's entry"),
    Goal("own_products_fp32", "own products in fp32: TFLOP/s, the lowest", 0.60, "cuBLASLt behind keel's entry"),
)

# MFU counts what training_flops_of_token() in nn/models/gpt.h does; bench_gpu writes the number beside each figure.
MFU = (
    "MFU counts 6 N + 6 L C T operations a token: N parameters (with the vocabulary rounded up to 50,304), L layers, "
    "width C, T tokens attended to, half of them on average; what is computed again does not count. For GPT-2 124M at "
    "T 1024 these are 803.5 MFLOP."
)


def table():
    yield "| what | at least | of |"
    yield "|---|---|---|"
    for goal in GOALS:
        yield f"| {goal.what} | {goal.least:.2f} | {goal.against} |"


if __name__ == "__main__":
    print("\n".join(table()))
