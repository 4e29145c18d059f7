#!/usr/bin/env python3
"""Times PyTorch's attention on the CPU, as a ceiling for keel's. One JSON line per shape.

A shape is BATCH,HEADS,TIME,HEAD_SIZE; q, k and v are contiguous (batch, heads, time, head size).
PyTorch 2 runs scaled_dot_product_attention, 1.13 the masked products written out. Operations count
the query-key pairs that the mask admits. The backward time is the difference between forward with
backward and forward alone that still records its graph.
"""

import argparse
import json
import math

import torch
from torch.nn import functional as F

import common

DEFAULT_SHAPES = ["12,4,64,32", "16,6,256,64", "4,12,256,64", "1,12,1024,64"]
FUSED = hasattr(F, "scaled_dot_product_attention")


def parse_shape(text):
    shape = tuple(int(x) for x in text.split(","))
    if len(shape) != 4 or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"expected BATCH,HEADS,TIME,HEAD_SIZE, got {text!r}")
    return shape


def attention(q, k, v, future):
    """future: (time, time), true where a query must not look; or None for full attention."""
    if FUSED:
        return F.scaled_dot_product_attention(q, k, v, is_causal=future is not None)
    scores = q @ k.transpose(2, 3) * (1.0 / math.sqrt(q.shape[3]))
    if future is not None:
        scores = scores.masked_fill(future, float("-inf"))
    return F.softmax(scores, dim=3) @ v


def measure(shape, options):
    batch, heads, length, head_size = shape
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    q, k, v = (torch.randn(shape).to(dtype).requires_grad_() for _ in range(3))
    grad_y = torch.randn(shape).to(dtype)
    future = None
    pairs = length * length
    if not options.full:
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        pairs = length * (length + 1) // 2
    operations = 4 * batch * heads * pairs * head_size  # two products, forward

    def forward():
        return attention(q, k, v, future)

    def forward_backward():
        return torch.autograd.grad(forward(), (q, k, v), grad_y)

    forward_seconds = common.median_seconds(forward, options.seconds)
    both_seconds = common.median_seconds(forward_backward, options.seconds)
    return {
        **common.environment(options.dtype),
        "fused": FUSED,
        "batch": batch,
        "heads": heads,
        "time": length,
        "head_size": head_size,
        "causal": not options.full,
        "forward_seconds": forward_seconds,
        "forward_gflops": operations / forward_seconds * 1e-9,
        "backward_seconds": both_seconds - forward_seconds,
        "forward_backward_seconds": both_seconds,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", type=parse_shape, action="append", metavar="B,H,T,D")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--full", action="store_true", help="no causal mask")
    parser.add_argument("--threads", type=int, default=common.default_threads())
    parser.add_argument("--seconds", type=float, default=0.5, help="for each of the two timings")
    options = parser.parse_args()
    common.set_threads(options.threads)
    torch.manual_seed(1)
    for shape in options.shape or [parse_shape(text) for text in DEFAULT_SHAPES]:
        print(json.dumps(measure(shape, options)), flush=True)


if __name__ == "__main__":
    main()
