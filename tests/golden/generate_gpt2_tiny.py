#!/usr/bin/env python3
"""Writes gpt2_tiny.safetensors: a small GPT-2's logits, loss, gradients and 20 AdamW steps.

The arithmetic is PyTorch's in float64, from fp32 weights that golden.values() makes from names, and
rounded to fp32 when stored. `--check FILE` compares a file with a fresh computation and exits with
1 if they differ. README.md lists what is stored.
"""

import math
import sys

import numpy as np
import torch
from torch.nn import functional as F

import golden

SEED = 1
LAYERS, HEADS, WIDTH, VOCABULARY, BLOCK, BATCH = 2, 4, 32, 61, 16, 2
IGNORED = -100
STEPS = 20


def parameter_shapes():
    """name -> shape in the model's order. Matrices of linear layers are (out, in)."""
    shapes = {"wte.weight": (VOCABULARY, WIDTH), "wpe.weight": (BLOCK, WIDTH)}

    def norm(name):
        shapes[f"{name}.weight"] = (WIDTH,)
        shapes[f"{name}.bias"] = (WIDTH,)

    def linear(name, out, inner):
        shapes[f"{name}.weight"] = (out, inner)
        shapes[f"{name}.bias"] = (out,)

    for layer in range(LAYERS):
        norm(f"h.{layer}.ln_1")
        linear(f"h.{layer}.attn.c_attn", 3 * WIDTH, WIDTH)
        linear(f"h.{layer}.attn.c_proj", WIDTH, WIDTH)
        norm(f"h.{layer}.ln_2")
        linear(f"h.{layer}.mlp.c_fc", 4 * WIDTH, WIDTH)
        linear(f"h.{layer}.mlp.c_proj", WIDTH, 4 * WIDTH)
    norm("ln_f")
    return shapes


def initial_values(name, shape):
    if name.endswith(".bias"):
        return golden.values(SEED, name, shape, scale=0.1)
    if len(shape) == 1:
        return golden.values(SEED, name, shape, scale=0.2, offset=1.0)
    return golden.values(SEED, name, shape, scale=0.2)


def token_ids(name):
    """(batch, time): word b * BLOCK + t of the name's stream, modulo the vocabulary."""
    ids = golden.words(SEED, name, BATCH * BLOCK) % np.uint64(VOCABULARY)
    return torch.from_numpy(ids.astype(np.int64).reshape(BATCH, BLOCK))


def attention(q, k, v):
    """q, k, v: (batch, heads, time, head size); causal."""
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    future = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
    return F.softmax(scores.masked_fill(future, -math.inf), dim=3) @ v


def forward(parameters, tokens):
    """tokens: (batch, time). Returns logits (batch, time, vocabulary)."""

    def norm(x, name):
        return F.layer_norm(
            x, (WIDTH,), parameters[f"{name}.weight"], parameters[f"{name}.bias"], eps=1e-5
        )

    def linear(x, name):
        return F.linear(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def heads(x):
        return x.view(BATCH, BLOCK, HEADS, WIDTH // HEADS).transpose(1, 2)

    x = parameters["wte.weight"][tokens] + parameters["wpe.weight"]
    for layer in range(LAYERS):
        q, k, v = linear(norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn").split(WIDTH, dim=2)
        y = attention(heads(q), heads(k), heads(v)).transpose(1, 2).reshape(BATCH, BLOCK, WIDTH)
        x = x + linear(y, f"h.{layer}.attn.c_proj")
        hidden = linear(norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
        x = x + linear(F.gelu(hidden, approximate="tanh"), f"h.{layer}.mlp.c_proj")
    return F.linear(norm(x, "ln_f"), parameters["wte.weight"])


def generate():
    start = {name: initial_values(name, shape) for name, shape in parameter_shapes().items()}
    parameters = {
        name: torch.from_numpy(value.astype(np.float64)).requires_grad_()
        for name, value in start.items()
    }
    tokens, targets = token_ids("tokens"), token_ids("targets")
    targets[1, 3] = IGNORED

    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = forward(parameters, tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        loss.backward()
        if step == 0:
            first_logits = logits.detach().numpy()
            gradients = {
                name: golden.without_noise(p.grad.numpy()) for name, p in parameters.items()
            }
        losses.append(loss.item())
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)))
        optimizer.step()

    return {
        "philox.uniform": golden.uniform(SEED, "wte.weight", 16),
        "tokens": tokens.numpy(),
        "targets": targets.numpy(),
        **{f"init4.{name}": value.reshape(-1)[:4] for name, value in start.items()},
        "logits": first_logits,
        "loss": losses[0],
        **{f"grad.{name}": gradient for name, gradient in gradients.items()},
        **{f"param20.{name}": p.detach().numpy() for name, p in parameters.items()},
        "loss_per_step": losses,
        "grad_norm_per_step": norms,
    }


if __name__ == "__main__":
    sys.exit(golden.run(__doc__, "gpt2_tiny.safetensors", generate))
