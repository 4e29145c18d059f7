#!/usr/bin/env python3
"""Steps of PyTorch's LBFGS on Rosenbrock's function, with and without a line search.

The file: see README.md. Everything is computed in float64 and stored as text that reads back to the bit.
"""

import sys

import torch

import golden

STEPS = 12
SIZE = 6
CASES = {
    "plain": {"lr": 0.2, "max_iter": 4},
    "plain_short_history": {"lr": 0.3, "max_iter": 5, "history_size": 2},
    "wolfe": {"line_search_fn": "strong_wolfe", "max_iter": 4},
    "wolfe_long_first_step": {"lr": 9.0, "line_search_fn": "strong_wolfe", "max_iter": 3, "max_eval": 20},
    "wolfe_until_it_is_solved": {"line_search_fn": "strong_wolfe"},
}


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def run(options):
    x = torch.tensor([-1.2, 1.0] * (SIZE // 2), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], **options)

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(x)
        loss.backward()
        return loss

    rows = []
    for _ in range(STEPS):
        loss = float(optimizer.step(closure).detach())
        evaluations = optimizer.state[x]["func_evals"]
        rows.append({"loss": loss, "evaluations": evaluations, "weights": x.detach().tolist()})
    return rows


def generate():
    return {name: {"options": options, "steps": run(options)} for name, options in CASES.items()}


def weights_that_differ(expected, actual):
    def weights(file):
        return {name: [step["weights"] for step in case["steps"]] for name, case in file.items()}

    return golden.json_differences(1e-9, 1e-9)(weights(expected), weights(actual))


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "lbfgs.json", generate, compare=weights_that_differ, indent=0))
