#!/usr/bin/env python3
"""PyTorch's fused AdamW on GPT-2's 124 million fp32 weights: "step N" on standard input makes N updates.

Answers as bench_update does; bench/compare_update.py races the two.

  adamw.py [threads] [--foreach]
"""

import json
import sys
import time

import torch

import common


def shapes(layers=12, width=768, vocabulary=50257, block=1024):
    """Of GPT-2's weights, the output layer tied."""
    yield (vocabulary, width)
    yield (block, width)
    for _ in range(layers):
        yield from [(width,)] * 4
        yield from [(width, 3 * width), (3 * width,), (width, width), (width,)]
        yield from [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    yield from [(width,)] * 2


def main():
    flags = [word for word in sys.argv[1:] if word.startswith("--")]
    numbers = [word for word in sys.argv[1:] if not word.startswith("--")]
    common.set_threads(int(numbers[0]) if numbers else common.default_threads())
    weights = [torch.full(shape, 0.02, requires_grad=True) for shape in shapes()]
    for weight in weights:
        weight.grad = torch.full_like(weight, 1e-3)
    variant = {"foreach": True} if "--foreach" in flags else {"fused": True}
    optimizer = torch.optim.AdamW(weights, lr=1e-4, **variant)
    for _ in range(3):
        optimizer.step()
    for line in sys.stdin:
        word, *count = line.split()
        if word != "step":
            break
        start = time.perf_counter()
        for _ in range(int(count[0])):
            optimizer.step()
        answer = {
            "steps": int(count[0]),
            "seconds": time.perf_counter() - start,
            "peak_rss_bytes": common.peak_rss_bytes(),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
