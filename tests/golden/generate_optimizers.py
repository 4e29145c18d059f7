#!/usr/bin/env python3
"""Fifty steps of every optimizer, on parameters in two groups with given gradients.

The file: see README.md. Cases without a PyTorch class are formulas (optimizer_formulas.py); where transformers is
installed, Adafactor's is compared with its class. Everything is computed in float64 and stored in fp32.
"""

import sys

import numpy as np
import torch

import golden
from optimizer_formulas import adafactor, adam_8bit, dynamic_map, hf_adamw, lamb, lars, lion, tf_adamw

SEED = 4
STEPS = 50
STORED = (1, 2, 7, 50)
# Gradients of `still` are zero in every step. `free` is the group without decay, at half the rate. The second problem
# is for optimizers that look at whole parameters.
PROBLEMS = {
    "problem": {"decayed": (23,), "free": (11,), "still": (5,)},
    "matrices": {"decayed": (7, 5), "free": (3, 11), "still": (4, 3), "decayed_vector": (13,), "free_vector": (6,)},
    "blocks": {"decayed": (4140,), "free": (600,), "still": (5,)},
}
# The gradient of step i in `blocks` begins with number i of a row, so that the file holds one row for all steps.
ROWS = ("blocks",)


def values(name, shape, scale):
    return golden.values(SEED, name, shape, scale)


def is_free(name):
    return name.startswith("free")


def make_problem(problem, shapes):
    """Start, gradients of all steps, and what the file holds of them."""
    start = {name: values(f"{name}/start", shape, 1.0) for name, shape in shapes.items()}
    if problem in ROWS:
        # Of sizes from 1 to 0.01. Of smaller ones v becomes 0 in 8 bits, and whatever m is then left makes a long step.
        rows = {name: values(f"{name}/row", (shape[0] + STEPS,), 1.0) for name, shape in shapes.items()}
        for row in rows.values():
            row *= (10.0 ** -(np.arange(row.size) % 3)).astype(np.float32)
        gradients = {
            name: np.stack([row[step : step + shapes[name][0]] for step in range(STEPS)]) for name, row in rows.items()
        }
        gradients["still"][:] = 0.0
        return start, gradients, rows
    gradients = {name: values(f"{name}/gradients", (STEPS, *shape), 1.0) for name, shape in shapes.items()}
    gradients["still"][:] = 0.0
    return start, gradients, gradients


def rate(lr, step):
    """Falls from step to step, so that rules that remember a rate show it."""
    return lr * (1.0 - 0.01 * step)


def run_torch(make, decay, lr, start, gradients, schedule=None):
    """schedule(optimizer) sets rates and momenta; without one the rate falls."""
    parameters = {
        name: torch.from_numpy(array.astype(np.float64)).requires_grad_()
        for name, array in start.items()
    }
    decays = [parameters[name] for name in start if not is_free(name)]
    free = [parameters[name] for name in start if is_free(name)]
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
    states = {name: {"m": 0.0, "v": 0.0, "v_max": 0.0} for name in start}
    for step in range(STEPS):
        for name in start:
            free = is_free(name)
            parameters[name] = update(
                parameters[name],
                gradients[name][step].astype(np.float64),
                states[name],
                step + 1,
                rate(lr, step) * (0.5 if free else 1.0),
                0.0 if free else decay,
            )
        yield {name: array.copy() for name, array in parameters.items()}


EIGHT_BITS = {"adam_8bit": {"betas": (0.9, 0.95)}, "adamw_8bit": {}, "adamw_8bit_small": {"min_size": 512}}


def verify_8bit(gradients, start):
    """The formula against bitsandbytes on the processor, in fp32, for one group at a constant rate.

    On processors bitsandbytes (0.50.2) does not find the nearest code of every number, as it does on GPUs; here it is
    given what does.
    """
    try:
        import bitsandbytes
        from bitsandbytes.backends.cpu import ops
    except ImportError:
        print("optimizers.safetensors: 8-bit states were not compared with bitsandbytes, which is not installed")
        return

    def encode(x, code, scales, codes, block):
        for at, begin in enumerate(range(0, x.numel(), block)):
            part = x[begin : begin + block]
            scales[at] = part.abs().max()
            distances = (part / scales[at].clamp(min=1e-38)).unsqueeze(1) - code
            codes[begin : begin + block] = distances.abs().argmin(1).to(torch.uint8)

    ops._quant_blockwise_fp32_direct = encode
    for has_signs in (True, False):
        theirs = bitsandbytes.functional.create_dynamic_map(signed=has_signs).numpy()
        assert np.allclose(theirs[theirs >= 0], dynamic_map(has_signs), rtol=2e-7, atol=0), has_signs
    for case, options in EIGHT_BITS.items():
        update, state = adam_8bit(**options), {name: {"m": 0.0, "v": 0.0} for name in start}
        mine = {name: array.astype(np.float64) for name, array in start.items()}
        parameters = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in start.items()}
        theirs = {"min_8bit_size": options.get("min_size", 4096), "betas": options.get("betas", (0.9, 0.999))}
        optimizer = bitsandbytes.optim.AdamW8bit(list(parameters.values()), lr=1e-2, weight_decay=0.1, **theirs)
        for step in range(STEPS):
            for name, parameter in parameters.items():
                parameter.grad = torch.from_numpy(gradients[name][step].copy())
                mine[name] = update(mine[name], gradients[name][step].astype(np.float64), state[name], step + 1, 1e-2, 0.1)
            optimizer.step()
        for name, parameter in parameters.items():
            error = np.linalg.norm(mine[name] - parameter.detach().numpy()) / np.linalg.norm(mine[name])
            # Numbers at the border of two codes may fall to either side in fp32.
            assert error < 5e-6, (case, name, error)


ADAFACTORS = {
    "adafactor": ({}, 1.0),
    "adafactor_warmup": ({"warmup": True, "decay_rate": -0.6}, 1.0),
    "adafactor_rate": ({"relative": False, "eps": (1e-3, 0.6)}, 1e-2),
    "adafactor_framework": ({"relative": False, "scale": False, "beta1": 0.9, "clip": 0.5}, 1e-2),
}


def verify_adafactor(gradients, start):
    """The formula against transformers' class, for one group at a constant rate."""
    try:
        from transformers.optimization import Adafactor
    except ImportError:
        print("optimizers.safetensors: Adafactor's formula was not compared with transformers, which is not installed")
        return
    for case, (options, lr) in ADAFACTORS.items():
        relative = options.get("relative", True)
        names = {"scale": "scale_parameter", "relative": "relative_step", "warmup": "warmup_init", "clip": "clip_threshold"}
        theirs = {names.get(option, option): value for option, value in options.items()}
        update, state = adafactor(**options), {name: {} for name in start}
        mine = {name: array.astype(np.float64) for name, array in start.items()}
        parameters = {name: torch.from_numpy(array.astype(np.float64)).requires_grad_() for name, array in start.items()}
        optimizer = Adafactor(list(parameters.values()), lr=None if relative else lr, weight_decay=0.1, **theirs)
        for step in range(STEPS):
            for name, parameter in parameters.items():
                g = gradients[name][step].astype(np.float64)
                parameter.grad = torch.from_numpy(g)
                mine[name] = update(mine[name], g, state[name], step + 1, lr, 0.1)
            optimizer.step()
        for name, parameter in parameters.items():
            assert np.allclose(mine[name], parameter.detach().numpy(), rtol=1e-12, atol=1e-13), (case, name)


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


def matrix_cases():
    """The same for optimizers that look at whole parameters."""
    return {
        "lamb": (run_formula, lamb(), 0.1, 1e-2),
        "lamb_bounded": (run_formula, lamb(betas=(0.8, 0.9), eps=1e-3, bounds=(0.5, 0.6)), 0.1, 1e-2),
        "lamb_biased": (run_formula, lamb(correct_bias=False), 0.1, 1e-3),
        "lamb_apex": (run_formula, lamb(adapt_without_decay=False, bounds=(0.0, 1e9)), 0.1, 1e-2),
        "lars": (run_formula, lars(), 0.1, 1.0),
        "lars_dampened": (run_formula, lars(momentum=0.8, dampening=0.3, trust=0.02, eps=1e-2), 0.1, 1.0),
        "lars_nesterov": (run_formula, lars(nesterov=True), 0.1, 1.0),
        "lars_plain": (run_formula, lars(momentum=0.0), 0.1, 1.0),
        **{case: (run_formula, adafactor(**options), 0.1, lr) for case, (options, lr) in ADAFACTORS.items()},
    }


def block_cases():
    """Optimizers that keep states in blocks."""
    return {case: (run_formula, adam_8bit(**options), 0.1, 1e-2) for case, options in EIGHT_BITS.items()}


def generate():
    result = {}
    for (problem, shapes), each in zip(PROBLEMS.items(), (cases(), matrix_cases(), block_cases())):
        start, gradients, stored = make_problem(problem, shapes)
        for name, array in start.items():
            result[f"{problem}/{name}"] = array
            if name != "still":
                result[f"{problem}/{name}_gradients"] = stored[name]
        for case, (run, factory, decay, lr) in each.items():
            history = list(run(factory, decay, lr, start, gradients))
            for name in shapes:
                result[f"{case}/{name}"] = np.stack([history[step - 1][name] for step in STORED])
        {"matrices": verify_adafactor, "blocks": verify_8bit}.get(problem, lambda *_: None)(gradients, start)
    return result


if __name__ == "__main__":
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 3):
        print(f"optimizers.safetensors: skipped, PyTorch {torch.__version__} lacks some of the optimizers; 2.3 has them")
        sys.exit(0)
    torch.set_default_dtype(torch.float64)
    sys.exit(golden.run(__doc__, "optimizers.safetensors", generate))
