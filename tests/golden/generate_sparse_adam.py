#!/usr/bin/env python3
"""Fifty steps of PyTorch's SparseAdam on a table, of which each step uses some rows.

The file: see README.md. Everything is computed in float64 and stored in fp32.
"""

import sys

import numpy as np
import torch

import golden

SEED = 6
STEPS = 50
STORED = (1, 2, 7, 50)
ROWS, WIDTH, USED = 12, 5, 8
# What single rows are for.
NEVER, ONCE, STILL = 0, 1, 2
ONCE_AT = 3

# name: (options, lr)
CASES = {
    "standard": ({}, 1e-2),
    "options": ({"betas": (0.7, 0.9), "eps": 1e-2}, 1e-2),
    "maximize": ({"maximize": True}, 1e-2),
}


def make_problem():
    """Rows 3 to 11 are used at random and repeat; 0 never; 1 in one step; 2 in every fifth, with gradients of 0
    but in the first."""
    start = golden.values(SEED, "start", (ROWS, WIDTH), 1.0)
    gradients = golden.values(SEED, "gradients", (STEPS, USED, WIDTH), 1.0)
    draws = golden.values(SEED, "rows", (STEPS, USED), 1.0)
    rows = 3 + np.floor((draws + 1) / 2 * (ROWS - 3)).astype(np.int64)
    rows[ONCE_AT, 5] = ONCE
    rows[::5, 2] = rows[::5, 6] = STILL
    gradients[1:][rows[1:] == STILL] = 0.0  # its moments decay in the steps that use it
    assert not (rows == NEVER).any() and rows.max() < ROWS
    return start, rows, gradients


def rate(lr, step):
    """As in generate_optimizers.py."""
    return lr * (1.0 - 0.01 * step)


def run(options, lr, start, rows, gradients):
    table = torch.from_numpy(start.astype(np.float64)).requires_grad_()
    optimizer = torch.optim.SparseAdam([table], lr=lr, **options)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(lr, step)
        table.grad = torch.sparse_coo_tensor(
            torch.from_numpy(rows[step])[None], torch.from_numpy(gradients[step].astype(np.float64)), (ROWS, WIDTH),
            check_invariants=True,
        )
        optimizer.step()
        state = optimizer.state[table]
        yield table.detach().numpy().copy(), state["exp_avg"].numpy().copy(), state["exp_avg_sq"].numpy().copy()


def generate():
    start, rows, gradients = make_problem()
    result = {"problem/start": start, "problem/rows": rows.astype(np.float32), "problem/gradients": gradients}
    for case, (options, lr) in CASES.items():
        history = list(run(options, lr, start, rows, gradients))
        for kind, name in enumerate(("weights", "m", "v")):
            result[f"{case}/{name}"] = np.stack([history[step - 1][kind] for step in STORED])
    return result


if __name__ == "__main__":
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 0):
        print(f"sparse_adam.safetensors: skipped, PyTorch {torch.__version__} has no maximize; 2.0 has it")
        sys.exit(0)
    sys.exit(golden.run(__doc__, "sparse_adam.safetensors", generate))
