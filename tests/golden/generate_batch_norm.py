#!/usr/bin/env python3
"""Steps of plain gradient descent on PyTorch's BatchNorm1d, on rows (n, c) and on (n, c, l).

The file: see README.md. Everything is computed in float64 and stored as text that reads back to the bit. Inputs of
(n, c, l) are stored with channels last, as keel has them.
"""

import sys

import torch

import golden

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


def generate():
    return {name: run(**case) for name, case in CASES.items()}


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "batch_norm.json", generate, compare=golden.json_differences(1e-9, 1e-9), indent=0))
