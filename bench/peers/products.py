#!/usr/bin/env python3
"""Races keel's matrix products and attention against PyTorch's, call by call in turn.

usage: products.py BENCH_PRODUCTS [--dtype fp32|bf16] [--only TEXT] [--rounds N]

Both programs stay alive; each round times a few calls of one, pauses until its idle threads sleep,
and times the other. The ratio is the median over rounds of PyTorch's time over keel's: above 1, keel
is faster. The shapes are those of train_gpt.py's settings a, b and c. y is the forward product with
bias, dX and dW are the gradients of input and weight; keel's dW is fp32, PyTorch's has the dtype of
its operands.
"""

import argparse
import statistics
import subprocess
import time

import torch
from torch.nn import functional as F

import common
from attention import attention
from matmul import DEFAULT_SHAPES

ATTENTION = ["12,4,64,32", "16,6,256,64", "4,12,256,64"]
PAUSE = 0.01  # seconds; OpenMP's threads spin for a few milliseconds after their last work


class Keel:
    def __init__(self, program, threads):
        self.process = subprocess.Popen(
            [program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise SystemExit(f"{self.process.args[0]} gave no answer to {line!r}")
        return answer


def torch_matmul(part, sizes, dtype):
    rows, out, inner = sizes
    x = torch.randn(rows, inner).to(dtype)
    weight = torch.randn(out, inner).to(dtype)
    bias = torch.randn(out).to(dtype)
    grad = torch.randn(rows, out).to(dtype)
    return {
        "y": lambda: F.linear(x, weight, bias),
        "dX": lambda: torch.mm(grad, weight),
        "dW": lambda: torch.mm(grad.t(), x),
    }[part]


def torch_attention(part, sizes, dtype):
    q, k, v = (torch.randn(sizes).to(dtype).requires_grad_() for _ in range(3))
    grad = torch.randn(sizes).to(dtype)
    future = torch.ones(sizes[2], sizes[2], dtype=torch.bool).triu(1)
    if part == "forward":
        return lambda: attention(q, k, v, future)
    out = attention(q, k, v, future)
    return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)


def cases():
    for shape in DEFAULT_SHAPES:
        for part in ("y", "dX", "dW"):
            yield "matmul", part, [int(x) for x in shape.split(",")]
    for shape in ATTENTION:
        for part in ("forward", "backward"):
            yield "attention", part, [int(x) for x in shape.split(",")]


def race(keel, kind, part, sizes, options):
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    call = (torch_matmul if kind == "matmul" else torch_attention)(part, sizes, dtype)
    name = "bf16" if options.dtype == "bf16" else "f32"
    keel.ask(" ".join([kind, name, part, *map(str, sizes)]))
    call()
    own, other = [], []
    for _ in range(options.rounds):
        own.append(float(keel.ask(f"time {options.seconds}")))
        time.sleep(PAUSE)
        other.append(common.median_seconds(call, options.seconds, warmup=0))
        time.sleep(PAUSE)
    return own, other


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="the path of bench_products")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--only", default="", help="cases whose line contains this text")
    parser.add_argument("--threads", type=int, default=common.default_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each program in a round")
    options = parser.parse_args()
    common.set_threads(options.threads)
    torch.manual_seed(1)
    keel = Keel(options.program, options.threads)
    described = common.environment(options.dtype)
    print(", ".join(f"{key} {value}" for key, value in described.items()))
    for kind, part, sizes in cases():
        line = f"{kind} {part} {' x '.join(map(str, sizes))}"
        if options.only not in line:
            continue
        own, other = race(keel, kind, part, sizes, options)
        ratio = statistics.median(b / a for a, b in zip(own, other))
        print(
            f"{line:42} keel {statistics.median(own) * 1e3:9.3f} ms  "
            f"PyTorch {statistics.median(other) * 1e3:9.3f} ms  ratio {ratio:5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
