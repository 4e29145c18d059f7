"""Formulas of optimizers that have no PyTorch class, as their original libraries have them, in float64.

Each makes update(p, g, state, t, lr, decay), which returns the new p; t counts from 1.
"""

import numpy as np


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


def lamb(betas=(0.9, 0.999), eps=1e-6, bounds=(0.01, 10.0), correct_bias=True, adapt_without_decay=True):
    """Algorithm 2 of You et al. 2020 with apex's correction of the bias, and DeepSpeed's bounds of the ratio."""

    def update(p, g, state, t, lr, decay):
        moments(g, state, betas)
        bias = [1 - beta**t if correct_bias else 1.0 for beta in betas]
        direction = state["m"] / bias[0] / (np.sqrt(state["v"] / bias[1]) + eps) + decay * p
        lengths = np.linalg.norm(p), np.linalg.norm(direction)
        ratio = 1.0
        if min(lengths) > 0 and (decay != 0 or adapt_without_decay):
            ratio = np.clip(lengths[0] / lengths[1], *bounds)
        return p - lr * ratio * direction

    return update


def lars(momentum=0.9, dampening=0.0, trust=1e-3, eps=1e-8, nesterov=False):
    """You et al. 2017, with the rate outside of the momentum as apex's LARC and PyTorch's SGD have it."""

    def update(p, g, state, t, lr, decay):
        d = g
        lengths = np.linalg.norm(p), np.linalg.norm(g)
        if p.ndim < 2:
            d = g + decay * p
        elif min(lengths) > 0:
            d = trust * lengths[0] / (lengths[1] + decay * lengths[0] + eps) * (g + decay * p)
        if momentum == 0:
            return p - lr * d
        state["m"] = d if t == 1 else momentum * state["m"] + (1 - dampening) * d
        return p - lr * (d + momentum * state["m"] if nesterov else state["m"])

    return update


def adafactor(eps=(1e-30, 1e-3), clip=1.0, decay_rate=-0.8, beta1=None, scale=True, relative=True, warmup=False):
    """Shazeer and Stern 2018, as the Adafactor of transformers has it; a relative step is times lr."""

    def rms(x):
        return np.linalg.norm(x) / np.sqrt(x.size)

    def average(state, name, keep, value):
        state[name] = keep * state.get(name, 0.0) + (1 - keep) * value
        return state[name]

    def update(p, g, state, t, lr, decay):
        if relative:
            lr = lr * min(1e-6 * t if warmup else 1e-2, 1 / np.sqrt(t))
        if scale:
            lr = lr * max(eps[1], rms(p))
        keep = 1 - t**decay_rate
        squares = g * g + eps[0]
        if p.ndim < 2:
            squares = average(state, "squares", keep, squares)
        else:
            rows = average(state, "rows", keep, squares.mean(axis=-1, keepdims=True))
            columns = average(state, "columns", keep, squares.mean(axis=-2, keepdims=True))
            squares = rows / rows.mean(axis=-2, keepdims=True) * columns
        step = g / np.sqrt(squares)
        step = lr * step / max(1.0, rms(step) / clip)
        if beta1 is not None:
            step = average(state, "mean", beta1, step)
        return p - decay * lr * p - step

    return update


def dynamic_map(has_signs):
    """Dettmers et al. 2022: sizes from 0 to 1, of which each decade has twice as many as the one below."""
    sizes = [0.0]
    for decade in range(7):
        edges = np.linspace(0.1, 1.0, (1 if has_signs else 2) * 2**decade + 1)
        sizes.extend(10.0 ** (decade - 6) * (edges[:-1] + edges[1:]) / 2)
    return np.array([*sizes, 1.0], dtype=np.float32)


def keep_8bit(x, has_signs, block=256):
    """What is left of x: the nearest sizes times the largest of each block, chosen in fp32."""
    sizes = dynamic_map(has_signs)
    borders = (sizes[:-1] + sizes[1:]) / np.float32(2)
    kept = np.empty_like(x)
    for begin in range(0, x.size, block):
        part = x[begin : begin + block]
        scale = np.abs(part).max()
        ratio = (part / scale if scale > 0 else part).astype(np.float32)
        number = np.searchsorted(borders, np.abs(ratio), side="left")
        number = np.where(ratio < 0, np.minimum(number, 127), number)  # there is no -1
        kept[begin : begin + block] = np.sign(ratio) * sizes[number] * scale
    return kept


def adam_8bit(betas=(0.9, 0.999), eps=1e-8, min_size=4096):
    """As bitsandbytes: AdamW on m and v that are in 8 bits between the steps."""

    def update(p, g, state, t, lr, decay):
        moments(g, state, betas)
        p = p * (1 - lr * decay)
        p = p - lr / (1 - betas[0] ** t) * state["m"] / (np.sqrt(state["v"] / (1 - betas[1] ** t)) + eps)
        if p.size >= min_size:
            state["m"], state["v"] = keep_8bit(state["m"], True), keep_8bit(state["v"], False)
        return p

    return update
