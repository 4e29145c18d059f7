#!/usr/bin/env python3
"""Times PyTorch's linear layer on the CPU, as a ceiling for keel's matmul. One JSON line per shape.

A shape is ROWS,OUT,IN: y (rows, out) = x (rows, in) times the transpose of weight (out, in), plus
bias with --bias. The backward time is of both products together: grad_x = grad_y weight and
grad_weight = grad_y^T x. bf16 means that x, weight and grad_y are bf16, as autocast has them once
cast. Data are random, since constant data flatter a processor's clock.
"""

import argparse
import json

import torch
from torch.nn import functional as F

import common

# The linear layers of train_gpt.py's settings a, b and c: q|k|v, projection, feed-forward in and
# out, head.
DEFAULT_SHAPES = (
    "768,384,128 768,128,128 768,512,128 768,128,512 768,65,128 "
    "4096,1152,384 4096,384,384 4096,1536,384 4096,384,1536 4096,65,384 "
    "1024,2304,768 1024,768,768 1024,3072,768 1024,768,3072 1024,50257,768"
).split()


def parse_shape(text):
    shape = tuple(int(x) for x in text.split(","))
    if len(shape) != 3 or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"expected ROWS,OUT,IN, got {text!r}")
    return shape


def measure(shape, options):
    rows, out, inner = shape
    dtype = torch.bfloat16 if options.dtype == "bf16" else torch.float32
    x = torch.randn(rows, inner).to(dtype)
    weight = torch.randn(out, inner).to(dtype)
    bias = torch.randn(out).to(dtype) if options.bias else None
    grad_y = torch.randn(rows, out).to(dtype)
    operations = 2 * rows * out * inner  # a multiplication and an addition each count

    forward = common.median_seconds(lambda: F.linear(x, weight, bias), options.seconds)
    backward = common.median_seconds(
        lambda: (torch.mm(grad_y, weight), torch.mm(grad_y.t(), x)), options.seconds
    )
    return {
        **common.environment(options.dtype),
        "rows": rows,
        "out": out,
        "in": inner,
        "bias": options.bias,
        "forward_seconds": forward,
        "forward_gflops": operations / forward * 1e-9,
        "backward_seconds": backward,
        "backward_gflops": 2 * operations / backward * 1e-9,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", type=parse_shape, action="append", metavar="ROWS,OUT,IN")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--bias", action="store_true")
    parser.add_argument("--threads", type=int, default=common.default_threads())
    parser.add_argument("--seconds", type=float, default=0.5, help="for each of the two timings")
    options = parser.parse_args()
    common.set_threads(options.threads)
    torch.manual_seed(1)
    for shape in options.shape or [parse_shape(text) for text in DEFAULT_SHAPES]:
        print(json.dumps(measure(shape, options)), flush=True)


if __name__ == "__main__":
    main()
