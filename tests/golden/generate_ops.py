#!/usr/bin/env python3
"""Writes ops.safetensors: small inputs, outputs and gradients of single operations.

Inputs are fp32 numbers from golden.values(), results are PyTorch's in float64, rounded to fp32 when
stored. `--check FILE` compares a file with a fresh computation and exits with 1 if they differ.
README.md lists what is stored.
"""

import math
import sys

import numpy as np
import torch
from torch.nn import functional as F

import golden

SEED = 2
IGNORED = -100


def values(name, shape, scale, offset=0.0):
    return golden.values(SEED, name, shape, scale, offset)


def differentiate(case, function, inputs, upstream_scale=1.0):
    """Runs function(*inputs) and its backward in float64.

    Returns case/NAME for every input, case/output, case/grad_output and case/grad_NAME.
    """
    tensors = {
        name: torch.from_numpy(np.asarray(array, dtype=np.float64)).requires_grad_()
        for name, array in inputs.items()
    }
    output = function(*tensors.values())
    grad_output = values(f"{case}/grad_output", tuple(output.shape), upstream_scale)
    gradients = torch.autograd.grad(
        output, list(tensors.values()), torch.from_numpy(grad_output.astype(np.float64))
    )
    result = {f"{case}/{name}": array for name, array in inputs.items()}
    result[f"{case}/output"] = output.detach().numpy()
    result[f"{case}/grad_output"] = grad_output
    for name, gradient in zip(inputs, gradients):
        result[f"{case}/grad_{name}"] = golden.without_noise(gradient.numpy())
    return result


def cross_entropy(case, label_smoothing):
    """Mean over the rows whose target is not ignored; the upstream gradient is 1.5."""
    rows, classes = 7, 11
    start = values("cross_entropy/logits", (rows, classes), 4.0)
    logits = torch.from_numpy(start.astype(np.float64)).requires_grad_()
    targets = torch.tensor([3, 0, IGNORED, 10, 7, IGNORED, 3])
    loss = F.cross_entropy(logits, targets, ignore_index=IGNORED, label_smoothing=label_smoothing)
    grad_loss = 1.5
    (grad_logits,) = torch.autograd.grad(loss * grad_loss, logits)
    return {
        f"{case}/logits": logits.detach().numpy(),
        f"{case}/targets": targets.numpy(),
        f"{case}/loss": loss.item(),
        f"{case}/grad_loss": grad_loss,
        f"{case}/grad_logits": grad_logits.numpy(),
    }


def norms():
    rows, width = 5, 19
    weight = values("norm/weight", (width,), 0.5, offset=1.0)
    bias = values("norm/bias", (width,), 0.5)

    def layer_norm(x, weight, bias):
        return F.layer_norm(x, (width,), weight, bias, eps=1e-5)

    def rms_norm(x, weight):
        return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6) * weight

    result = {}
    for case, offset in (("layer_norm", 0.0), ("layer_norm_offset", 100.0)):
        x = values(f"{case}/x", (rows, width), 2.0, offset)
        result.update(differentiate(case, layer_norm, {"x": x, "weight": weight, "bias": bias}))
    x = values("rms_norm/x", (rows, width), 2.0)
    result.update(differentiate("rms_norm", rms_norm, {"x": x, "weight": weight}))
    return result


def attention(case, queries=7, keys=7, causal=False, q_offset=0, lengths=None):
    """q: (2, 4, queries, 8); k, v: (2, 2, keys, 8): query heads 0, 1 share key head 0, 2, 3 head 1.

    Query i stands at position q_offset + i. It sees key j if j < lengths[batch], and under `causal`
    if j <= q_offset + i.
    """
    batch, heads, kv_heads, head_size = 2, 4, 2, 8
    admitted = torch.ones(batch, 1, queries, keys, dtype=torch.bool)
    key = torch.arange(keys)
    if causal:
        admitted &= key[None, :] <= q_offset + torch.arange(queries)[:, None]
    if lengths:
        admitted &= (key < torch.tensor(lengths)[:, None])[:, None, None, :]

    def function(q, k, v):
        k, v = (x.repeat_interleave(heads // kv_heads, dim=1) for x in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(head_size)
        return F.softmax(scores.masked_fill(~admitted, -math.inf), dim=3) @ v

    inputs = {
        "q": values(f"{case}/q", (batch, heads, queries, head_size), 2.0),
        "k": values(f"{case}/k", (batch, kv_heads, keys, head_size), 2.0),
        "v": values(f"{case}/v", (batch, kv_heads, keys, head_size), 2.0),
    }
    result = differentiate(case, function, inputs)
    if lengths:
        result[f"{case}/lengths"] = lengths
    return result


def activations():
    x = values("activation/x", (45,), 6.0)
    x[:5] = [0.0, -20.0, 20.0, -1e-3, 1e-3]
    functions = {
        "gelu_exact": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
    }
    result = {}
    for case, function in functions.items():
        result.update(differentiate(case, function, {"x": x}))
    return result


def optimizer_steps(case, make_optimizer, state_names):
    """Five steps on 37 elements with given gradients; those of element 0 are zero."""
    steps, count = 5, 37
    start = values("optimizer/parameter", (count,), 1.0)
    gradients = values("optimizer/gradients", (steps, count), 1.0)
    gradients[:, 0] = 0.0
    parameter = torch.from_numpy(start.astype(np.float64)).requires_grad_()
    optimizer = make_optimizer([parameter])
    history = []
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient.astype(np.float64))
        optimizer.step()
        history.append(parameter.detach().numpy().copy())
    result = {
        f"{case}/parameter": start,
        f"{case}/gradients": gradients,
        f"{case}/parameter_per_step": np.stack(history),
    }
    for name in state_names:
        result[f"{case}/{name}"] = optimizer.state[parameter][name].numpy()
    return result


def generate():
    def adamw(parameters):
        return torch.optim.AdamW(
            parameters, lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1
        )

    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)

    return {
        **cross_entropy("cross_entropy", label_smoothing=0.1),
        **cross_entropy("cross_entropy_plain", label_smoothing=0.0),
        **norms(),
        **attention("attention_causal", causal=True),
        **attention("attention_lengths", lengths=[5, 7]),
        **attention("attention_causal_lengths", causal=True, lengths=[4, 7]),
        **attention("attention_offset", queries=3, causal=True, q_offset=4),
        **activations(),
        **optimizer_steps("adamw", adamw, ["exp_avg", "exp_avg_sq"]),
        **optimizer_steps("sgd", sgd, ["momentum_buffer"]),
    }


if __name__ == "__main__":
    sys.exit(golden.run(__doc__, "ops.safetensors", generate))
