#!/usr/bin/env python3
"""Steps of PyTorch's LBFGS on Rosenbrock's function, with and without a line search.

The file: see README.md. Everything is computed in float64 and stored as text that reads back to the bit.
"""

import argparse
import json
import os
import sys

import torch

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lbfgs.json")
    parser.add_argument("--output", default=default)
    parser.add_argument("--check", metavar="FILE", help="compare this file, write nothing")
    arguments = parser.parse_args()
    found = {name: {"options": options, "steps": run(options)} for name, options in CASES.items()}
    if arguments.check:
        with open(arguments.check, encoding="utf-8") as file:
            stored = json.load(file)
        same = stored.keys() == found.keys() and all(
            abs(a - b) <= 1e-9 * max(1, abs(a))
            for name in found
            for one, other in zip(stored[name]["steps"], found[name]["steps"])
            for a, b in zip(one["weights"], other["weights"])
        )
        print(f"{arguments.check}: {'as generated' if same else 'differs'}")
        return 0 if same else 1
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=0)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
