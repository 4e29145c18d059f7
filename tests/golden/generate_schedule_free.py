#!/usr/bin/env python3
"""Fifty steps of the package schedulefree's AdamW, on parameters in two groups with given gradients.

The file: see README.md. Everything is computed in float64 and stored in fp32.
"""

import sys

import numpy as np
import torch

import golden

SEED = 12
STEPS = 50
STORED = (1, 2, 7, 50)
# `free` has half the rate and no decay, and gradients of `still` are 0.
SHAPES = {"decayed": (4, 5), "free": (3, 7), "still": (3, 4)}

# name: (options, lr, weight decay)
CASES = {
    "standard": ({"warmup_steps": 5}, 1e-2, 0.0),
    "decay": ({"warmup_steps": 10, "betas": (0.95, 0.99)}, 1e-2, 0.1),
    "powers": ({"warmup_steps": 3, "r": 1.5, "weight_lr_power": 0.5, "eps": 1e-3}, 2e-2, 0.1),
}


def make_problem():
    start = {name: golden.values(SEED, f"{name}/start", shape, 1.0) for name, shape in SHAPES.items()}
    gradients = {name: golden.values(SEED, f"{name}/gradients", (STEPS, *shape), 1.0) for name, shape in SHAPES.items()}
    gradients["still"][:] = 0.0
    return start, gradients


def run(options, lr, decay, start, gradients):
    import schedulefree

    parameters = {name: torch.from_numpy(array.astype(np.float64)).requires_grad_() for name, array in start.items()}
    groups = [{"params": [parameters[name]], "lr": lr * (0.5 if name == "free" else 1.0),
               "weight_decay": 0.0 if name == "free" else decay} for name in parameters]
    optimizer = schedulefree.AdamWScheduleFree(groups, lr=lr, **options)
    for step in range(STEPS):
        optimizer.train()
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(gradients[name][step].astype(np.float64))
        optimizer.step()
        trained = {name: parameter.detach().numpy().copy() for name, parameter in parameters.items()}
        optimizer.eval()
        yield trained, {name: parameter.detach().numpy().copy() for name, parameter in parameters.items()}


def generate():
    start, gradients = make_problem()
    result = {f"problem/{name}": array for name, array in start.items()}
    result.update({f"problem/{name}_gradients": array for name, array in gradients.items() if name != "still"})
    for case, (options, lr, decay) in CASES.items():
        history = list(run(options, lr, decay, start, gradients))
        for name in SHAPES:
            for kind, what in enumerate(("trained", "weights")):
                result[f"{case}/{name}_{what}"] = np.stack([history[step - 1][kind][name] for step in STORED])
    return result


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    sys.exit(golden.run(__doc__, "schedule_free.safetensors", generate))
