#!/usr/bin/env python3
"""Fifty steps of PyTorch's Muon on matrices, with PyTorch's AdamW on the rest, by given gradients.

The file: see README.md. PyTorch's Muon multiplies in bf16; here its products are in float64, as everything else is. The
numbers are stored in fp32.
"""

import sys

import numpy as np
import torch

import golden

SEED = 11
STEPS = 50
STORED = (1, 2, 7, 50)
# `qkv` is three matrices, one below the other. `free` has half the rate and no decay, and gradients of `still` are 0.
SHAPES = {"qkv": (16, 8), "wide": (6, 10), "tall": (10, 6), "free": (5, 7), "still": (3, 4), "head": (4, 8), "norm": (9,)}
PARTS = {"qkv": (8, 4, 4)}
BY_ADAMW = ("head", "norm")

# name: (options of Muon, lr, factor on AdamW's rate)
CASES = {
    "match_rms_adamw": ({"adjust_lr_fn": "match_rms_adamw"}, 1e-2, 1.0),
    "original": ({"adjust_lr_fn": "original", "momentum": 0.9, "nesterov": False, "ns_steps": 3}, 2e-2, 0.1),
}


class WideProducts:
    """torch as its Muon sees it: bfloat16 is float64."""

    bfloat16 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def rate(lr, step):
    """As in generate_optimizers.py."""
    return lr * (1.0 - 0.01 * step)


def make_problem():
    start = {name: golden.values(SEED, f"{name}/start", shape, 1.0) for name, shape in SHAPES.items()}
    gradients = {name: golden.values(SEED, f"{name}/gradients", (STEPS, *shape), 1.0) for name, shape in SHAPES.items()}
    gradients["still"][:] = 0.0
    return start, gradients


def run(options, lr, adamw_factor, start, gradients):
    split = {name: torch.split(torch.from_numpy(start[name].astype(np.float64)), PARTS.get(name, len(start[name])))
             for name in start}
    parameters = {name: [part.clone().requires_grad_() for part in parts] for name, parts in split.items()}
    optimizers = []
    for name, parts in parameters.items():
        decay = 0.0 if name in ("free", "norm") else 0.1
        if name in BY_ADAMW:
            made = torch.optim.AdamW(parts, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
        else:
            made = torch.optim.Muon(parts, lr=lr, weight_decay=decay, **options)
        optimizers.append((made, (adamw_factor if name in BY_ADAMW else 1.0) * (0.5 if name == "free" else 1.0)))
    for step in range(STEPS):
        for name, parts in parameters.items():
            given = torch.from_numpy(gradients[name][step].astype(np.float64))
            for part, gradient in zip(parts, torch.split(given, PARTS.get(name, len(given)))):
                part.grad = gradient.clone()
        for optimizer, factor in optimizers:
            optimizer.param_groups[0]["lr"] = rate(lr, step) * factor
            optimizer.step()
        yield {name: torch.cat([part.detach() for part in parts]).numpy() for name, parts in parameters.items()}


def generate():
    start, gradients = make_problem()
    result = {f"problem/{name}": array for name, array in start.items()}
    result.update({f"problem/{name}_gradients": array for name, array in gradients.items() if name != "still"})
    for case, (options, lr, factor) in CASES.items():
        history = list(run(options, lr, factor, start, gradients))
        for name in SHAPES:
            result[f"{case}/{name}"] = np.stack([history[step - 1][name] for step in STORED])
    return result


if __name__ == "__main__":
    if not hasattr(torch.optim, "Muon"):
        print(f"muon.safetensors: skipped, PyTorch {torch.__version__} has no Muon; 2.9 has it")
        sys.exit(0)
    torch.set_default_dtype(torch.float64)
    torch.optim._muon.torch = WideProducts()
    sys.exit(golden.run(__doc__, "muon.safetensors", generate))
