#!/usr/bin/env python3
"""Steps of plain gradient descent on PyTorch's BatchNorm1d, on rows (n, c) and on (n, c, l).

The file: see README.md. Everything is computed in float64 and stored as text that reads back to the bit. Inputs of
(n, c, l) are stored with channels last, as keel has them.
"""

import argparse
import json
import os
import sys

import torch

STEPS = 4
CASES = {
    "rows": {"shape": [5, 3]},
    "channels": {"shape": [2, 3, 4]},
    "other_options": {"shape": [4, 2], "options": {"eps": 0.01, "momentum": 0.7}},
    "without_affine": {"shape": [4, 2], "options": {"affine": False}},
}


def last(x):
    return (x.movedim(1, -1) if x.dim() == 3 else x).detach().reshape(-1).tolist()


def run(shape, options=None):
    torch.manual_seed(7)
    layer = torch.nn.BatchNorm1d(shape[1], **(options or {})).double()
    steps = []
    for _ in range(STEPS):
        x = (3 * torch.randn(shape, dtype=torch.float64) + 1).requires_grad_()
        target = torch.randn(shape, dtype=torch.float64)
        y = layer(x)
        ((y - target) ** 2).mean().backward()
        step = {"x": last(x), "target": last(target), "y": last(y), "x_gradient": last(x.grad)}
        for name, parameter in layer.named_parameters():
            step[name + "_gradient"] = parameter.grad.tolist()
            parameter.data -= 0.5 * parameter.grad
            parameter.grad = None
            step[name] = parameter.tolist()
        step["running_mean"] = layer.running_mean.tolist()
        step["running_var"] = layer.running_var.tolist()
        steps.append(step)
    layer.eval()
    kept = [shape[0]] + shape[2:] + [shape[1]]
    return {"shape": kept, "options": options or {}, "steps": steps, "evaluated": last(layer(x))}


def close(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return one == other or abs(one - other) <= 1e-9 * max(1, abs(one))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "batch_norm.json")
    parser.add_argument("--output", default=default)
    parser.add_argument("--check", metavar="FILE", help="compare this file, write nothing")
    arguments = parser.parse_args()
    found = {name: run(**case) for name, case in CASES.items()}
    if arguments.check:
        with open(arguments.check, encoding="utf-8") as file:
            same = close(found, json.load(file))
        print(f"{arguments.check}: {'as generated' if same else 'differs'}")
        return 0 if same else 1
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=0)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
