#!/usr/bin/env python3
"""Fifty steps of every optimizer, on three parameters in two groups with given gradients.

The file: see README.md. Cases without a PyTorch class are the formulas of the original libraries, written
out below. Everything is computed in float64 and stored in fp32.
"""

import os
import sys

import numpy as np
import torch

import golden

SEED = 4
STEPS = 50
STORED = (1, 2, 7, 50)
# Gradients of `still` are zero in every step. `free` is the group without decay, at half the rate.
SHAPES = {"decayed": (23,), "free": (11,), "still": (5,)}
GROUPS = {"decayed": "decays", "still": "decays", "free": "free"}


def values(name, shape, scale):
    return golden.values(SEED, name, shape, scale)


def problem():
    start = {name: values(f"{name}/start", shape, 1.0) for name, shape in SHAPES.items()}
    gradients = {name: values(f"{name}/gradients", (STEPS, *shape), 1.0) for name, shape in SHAPES.items()}
    gradients["still"][:] = 0.0
    return start, gradients


def rate(lr, step):
    """Falls from step to step, so that rules that remember a rate show it."""
    return lr * (1.0 - 0.01 * step)


def run_torch(make, decay, lr, start, gradients, schedule=None):
    """schedule(optimizer) sets rates and momenta; without one the rate falls."""
    parameters = {
        name: torch.from_numpy(array.astype(np.float64)).requires_grad_()
        for name, array in start.items()
    }
    decays = [parameters[name] for name in SHAPES if GROUPS[name] == "decays"]
    free = [parameters[name] for name in SHAPES if GROUPS[name] == "free"]
    groups = [{"params": decays}, {"params": free}]
    if decay is not None:
        groups[0]["weight_decay"], groups[1]["weight_decay"] = decay, 0.0
    groups[0]["lr"], groups[1]["lr"] = rate(lr, 0), 0.5 * rate(lr, 0)
    optimizer = make(groups)
    scheduler = schedule(optimizer) if schedule else None
    for step in range(STEPS):
        if not scheduler:
            for group, factor in zip(optimizer.param_groups, (1.0, 0.5)):
                group["lr"] = rate(lr, step) * factor
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(gradients[name][step].astype(np.float64))
        optimizer.step()
        if scheduler and step + 1 < STEPS:
            scheduler.step()
        yield {name: parameter.detach().numpy().copy() for name, parameter in parameters.items()}


def run_cycled(make, decay, lr, start, gradients):
    """OneCycleLR raises the rate to lr, and cycles the momentum, or beta1, the other way."""

    def schedule(optimizer):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=[lr, 0.5 * lr], total_steps=STEPS)

    yield from run_torch(make, decay, lr, start, gradients, schedule)


def run_formula(update, decay, lr, start, gradients):
    """update(p, g, state, t, lr, decay) returns the new p; t counts from 1."""
    parameters = {name: array.astype(np.float64) for name, array in start.items()}
    states = {name: {"m": 0.0, "v": 0.0, "v_max": 0.0} for name in SHAPES}
    for step in range(STEPS):
        for name in SHAPES:
            free = GROUPS[name] == "free"
            parameters[name] = update(
                parameters[name],
                gradients[name][step].astype(np.float64),
                states[name],
                step + 1,
                rate(lr, step) * (0.5 if free else 1.0),
                0.0 if free else decay,
            )
        yield {name: array.copy() for name, array in parameters.items()}


def moments(g, state, betas):
    state["m"] = betas[0] * state["m"] + (1 - betas[0]) * g
    state["v"] = betas[1] * state["v"] + (1 - betas[1]) * g * g


def hf_adamw(betas=(0.9, 0.999), eps=1e-8, correct_bias=True):
    """As the AdamW that the Transformers library had until version 4.x."""

    def update(p, g, state, t, lr, decay):
        moments(g, state, betas)
        size = lr
        if correct_bias:
            size = lr * np.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t)
        p = p - size * state["m"] / (np.sqrt(state["v"]) + eps)
        return p - lr * decay * p

    return update


def tf_adamw(betas=(0.9, 0.999), eps=1e-6, amsgrad=False):
    """As TensorFlow's BERT has it: neither bias is corrected."""

    def update(p, g, state, t, lr, decay):
        p = p * (1 - lr * decay)
        moments(g, state, betas)
        state["v_max"] = np.maximum(state["v_max"], state["v"])
        return p - lr * state["m"] / (np.sqrt(state["v_max" if amsgrad else "v"]) + eps)

    return update


def lion(betas=(0.9, 0.99), maximize=False):
    """Algorithm 2 of Chen et al. 2023."""

    def update(p, g, state, t, lr, decay):
        g = -g if maximize else g
        direction = np.sign(betas[0] * state["m"] + (1 - betas[0]) * g)
        state["m"] = betas[1] * state["m"] + (1 - betas[1]) * g
        return p - lr * (direction + decay * p)

    return update


def cases():
    """name: (runner, factory, decay, lr); the configuration of each is in golden_optimizers_test.cpp."""
    o = torch.optim

    def of(kind, run=run_torch, **options):
        return run, lambda groups: kind(groups, **options)

    return {
        "sgd": (*of(o.SGD), 0.1, 0.1),
        "sgd_momentum": (*of(o.SGD, momentum=0.9, dampening=0.3), 0.1, 0.1),
        "sgd_nesterov": (*of(o.SGD, momentum=0.9, nesterov=True), 0.1, 0.1),
        "sgd_maximize": (*of(o.SGD, momentum=0.9, maximize=True), 0.1, 0.1),
        "adam": (*of(o.Adam, betas=(0.9, 0.95)), 0.1, 1e-2),
        "adam_amsgrad": (*of(o.Adam, amsgrad=True), 0.1, 1e-2),
        "adam_maximize": (*of(o.Adam, maximize=True), 0.1, 1e-2),
        "adamw": (*of(o.AdamW), 0.1, 1e-2),
        "adamw_amsgrad": (*of(o.AdamW, amsgrad=True), 0.1, 1e-2),
        "adamw_maximize": (*of(o.AdamW, maximize=True), 0.1, 1e-2),
        "hf_adamw": (run_formula, hf_adamw(), 0.1, 1e-2),
        "hf_adamw_biased": (run_formula, hf_adamw(correct_bias=False), 0.1, 1e-2),
        "tf_adamw": (run_formula, tf_adamw(), 0.1, 1e-2),
        "tf_adamw_amsgrad": (run_formula, tf_adamw(amsgrad=True), 0.1, 1e-2),
        "adamax": (*of(o.Adamax), 0.1, 1e-2),
        "adamax_maximize": (*of(o.Adamax, maximize=True), 0.1, 1e-2),
        "nadam": (*of(o.NAdam), 0.1, 1e-2),
        "nadam_decoupled": (*of(o.NAdam, momentum_decay=0.1, decoupled_weight_decay=True), 0.1, 1e-2),
        "nadam_maximize": (*of(o.NAdam, maximize=True), 0.1, 1e-2),
        "radam": (*of(o.RAdam), 0.1, 1e-2),
        "radam_decoupled": (*of(o.RAdam, betas=(0.8, 0.9), decoupled_weight_decay=True), 0.1, 1e-2),
        "radam_maximize": (*of(o.RAdam, maximize=True), 0.1, 1e-2),
        "adagrad": (*of(o.Adagrad), 0.1, 1e-2),
        "adagrad_decaying": (*of(o.Adagrad, lr_decay=0.1, initial_accumulator_value=0.5), 0.1, 1e-1),
        "adagrad_maximize": (*of(o.Adagrad, maximize=True), 0.1, 1e-2),
        "adadelta": (*of(o.Adadelta), 0.1, 1.0),
        "adadelta_maximize": (*of(o.Adadelta, rho=0.8, maximize=True), 0.1, 1.0),
        "rmsprop": (*of(o.RMSprop), 0.1, 1e-2),
        "rmsprop_momentum": (*of(o.RMSprop, alpha=0.9, momentum=0.9), 0.1, 1e-3),
        "rmsprop_centered": (*of(o.RMSprop, alpha=0.9, centered=True), 0.1, 1e-3),
        "rmsprop_both": (*of(o.RMSprop, alpha=0.9, centered=True, momentum=0.9, eps=1e-3), 0.1, 1e-3),
        "rmsprop_maximize": (*of(o.RMSprop, maximize=True), 0.1, 1e-2),
        "rprop": (*of(o.Rprop), None, 1e-2),
        "rprop_limits": (*of(o.Rprop, etas=(0.4, 1.5), step_sizes=(5e-3, 2e-2), maximize=True), None, 1e-2),
        "asgd": (*of(o.ASGD, lambd=1e-2), 0.1, 1e-1),
        "asgd_averaging": (*of(o.ASGD, lambd=0.5, alpha=0.6, t0=10), 0.1, 1e-1),
        "asgd_maximize": (*of(o.ASGD, maximize=True), 0.1, 1e-2),
        "sgd_cycled": (*of(o.SGD, run_cycled), 0.1, 0.1),
        "sgd_nesterov_cycled": (*of(o.SGD, run_cycled, momentum=0.9, nesterov=True), 0.1, 0.1),
        "adam_cycled": (*of(o.Adam, run_cycled), 0.1, 1e-2),
        "adamax_cycled": (*of(o.Adamax, run_cycled), 0.1, 1e-2),
        "nadam_cycled": (*of(o.NAdam, run_cycled), 0.1, 1e-2),
        "radam_cycled": (*of(o.RAdam, run_cycled), 0.1, 1e-2),
        "rmsprop_cycled": (*of(o.RMSprop, run_cycled, centered=True), 0.1, 1e-3),
        "lion": (run_formula, lion(), 0.1, 1e-2),
        "lion_maximize": (run_formula, lion(betas=(0.95, 0.98), maximize=True), 0.1, 1e-2),
    }


def generate():
    start, gradients = problem()
    result = {}
    for name, array in start.items():
        result[f"problem/{name}"] = array
        if name != "still":
            result[f"problem/{name}_gradients"] = gradients[name]
    for case, (run, factory, decay, lr) in cases().items():
        history = list(run(factory, decay, lr, start, gradients))
        for name in SHAPES:
            result[f"{case}/{name}"] = np.stack([history[step - 1][name] for step in STORED])
    return result


if __name__ == "__main__":
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 3):
        print(f"optimizers.safetensors: skipped, PyTorch {torch.__version__} lacks some of the optimizers; 2.3 has them")
        sys.exit(0)
    torch.set_default_dtype(torch.float64)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "optimizers.safetensors")
    sys.exit(golden.run(__doc__.split("\n")[0], default, generate))
