#!/usr/bin/env python3
"""Writes decoders.json: what transformers' Llama, Mistral, Qwen2 and Qwen3 compute, each small and with random weights.

Weights are not stored: golden.values() makes them from their names, in fp32. transformers computes in float64, apart from
what its models always compute in fp32 (norms, softmax, angles). Stored are samples: each array's Euclidean norm, and
some of its elements. README.md says what is where. `--check FILE` compares a file with a fresh computation.
"""

import json
import math
import sys

import numpy as np

import golden

SEED = 12
LAYERS, WIDTH, HIDDEN, HEADS, VOCABULARY = 2, 64, 96, 4, 97
LENGTHS = [24, 17, 9]  # of the rows of a batch; what follows is padding
IGNORED = -100
STEPS = 20
GREEDY = 200

LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0,
    "short_factor": [1.0 + 0.02 * i for i in range(8)], "long_factor": [1.0 + 0.5 * i for i in range(8)],
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}


def rope(**parameters):
    return {"rope_theta": 10000.0, **parameters}


# name: model type, what its configuration has beside the sizes, and "documents": whether a batch of several documents in
# a row is computed, "greedy": whether a text is.
CASES = {
    "llama": ("llama", dict(num_key_value_heads=4, rms_norm_eps=1e-5, rope_parameters=rope(rope_theta=500000.0)), "documents"),
    "llama_biases_tied": ("llama", dict(num_key_value_heads=2, attention_bias=True, mlp_bias=True,
                                        tie_word_embeddings=True), "greedy"),
    "llama_head_dim": ("llama", dict(num_key_value_heads=1, head_dim=24, hidden_act="gelu"), ""),
    "llama_linear": ("llama", dict(rope_parameters=rope(rope_type="linear", factor=2.5)), ""),
    "llama_dynamic": ("llama", dict(max_position_embeddings=16,
                                    rope_parameters=rope(rope_type="dynamic", factor=16.0)), "greedy"),
    "llama_dynamic_short": ("llama", dict(rope_parameters=rope(rope_type="dynamic", factor=2.0)), ""),
    "llama_yarn": ("llama", dict(max_position_embeddings=64, rope_parameters=YARN), ""),
    "llama_yarn_scales": ("llama", dict(max_position_embeddings=64, rope_parameters=dict(
        YARN, mscale=1.5, mscale_all_dim=0.7, truncate=False, beta_fast=8.0, beta_slow=0.5)), ""),
    "llama_yarn_factor": ("llama", dict(max_position_embeddings=64, rope_parameters=dict(YARN, attention_factor=0.8)), ""),
    "llama_longrope_short": ("llama", dict(max_position_embeddings=256, rope_parameters=dict(
        LONGROPE, original_max_position_embeddings=64)), ""),
    "llama_longrope_long": ("llama", dict(max_position_embeddings=256, rope_parameters=dict(
        LONGROPE, original_max_position_embeddings=16)), "greedy"),
    "llama3": ("llama", dict(num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64)), "greedy"),
    "mistral": ("mistral", dict(num_key_value_heads=2, sliding_window=5), "documents greedy"),
    "mistral_no_window": ("mistral", dict(num_key_value_heads=2, sliding_window=None), ""),
    "qwen2": ("qwen2", dict(num_key_value_heads=4, rope_parameters=rope(rope_theta=1000000.0)), ""),
    "qwen2_windows": ("qwen2", dict(num_key_value_heads=2, use_sliding_window=True, sliding_window=7, max_window_layers=1,
                                    tie_word_embeddings=True), ""),
    "qwen3": ("qwen3", dict(num_key_value_heads=2, head_dim=32), "greedy"),
    "qwen3_windows": ("qwen3", dict(num_key_value_heads=1, head_dim=16, attention_bias=True, use_sliding_window=True,
                                    sliding_window=6, layer_types=["sliding_attention", "full_attention"]), "documents greedy"),
}


def make_model(kind, options):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = dict(num_hidden_layers=LAYERS, hidden_size=WIDTH, intermediate_size=HIDDEN, num_attention_heads=HEADS,
                 vocab_size=VOCABULARY, max_position_embeddings=256, bos_token_id=None, eos_token_id=None)
    config = AutoConfig.for_model(kind, **{**sizes, **options})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(initial_values(name, tuple(parameter.shape)).astype(np.float64)))
    return model


def initial_values(name, shape):
    if name.endswith(".bias"):
        return golden.values(SEED, name, shape, scale=0.1)
    if len(shape) == 1:
        return golden.values(SEED, name, shape, scale=0.2, offset=1.0)
    return golden.values(SEED, name, shape, scale=0.2)


def batch():
    """Tokens and targets (3, 24), and where tokens are."""
    import torch

    shape = (len(LENGTHS), max(LENGTHS))

    def drawn(name):
        ids = golden.words(SEED, name, shape[0] * shape[1]) % np.uint64(VOCABULARY)
        return torch.from_numpy(ids.astype(np.int64).reshape(shape))

    mask = torch.arange(shape[1])[None] < torch.tensor(LENGTHS)[:, None]
    targets = drawn("targets").masked_fill(~mask, IGNORED)
    targets[1, 3] = IGNORED
    return drawn("tokens"), targets, mask


def rounded(values):
    return [float(f"{value:.8g}") for value in values]


def sample(name, array, count):
    """The norm and some elements, at places that the name's stream draws."""
    flat = np.asarray(array, dtype=np.float64).reshape(-1)
    places = golden.words(SEED, f"sample.{name}", count) % np.uint64(len(flat))
    return rounded([math.sqrt(float(np.sum(flat * flat))), *flat[places.astype(np.int64)]])


def documents_logits(model, tokens):
    """Rows of several documents, which transformers tells apart by their positions; a document begins at each length."""
    import torch

    positions = torch.stack([torch.cat([torch.arange(length), torch.arange(tokens.shape[1] - length)]) for length in LENGTHS])
    with torch.no_grad():
        return model(input_ids=tokens, position_ids=positions, use_cache=False).logits


def greedy(model, tokens):
    """The likeliest tokens behind five of the first row, by a cache; and how much likelier than the second they are."""
    import inspect

    import torch

    # Newer versions call it `cache`.
    argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    found, margin, cache, unread = [], math.inf, None, tokens[:1, :5]
    with torch.no_grad():
        for _ in range(GREEDY):
            out = model(input_ids=unread, use_cache=True, **{argument: cache})
            cache = out[argument]
            best = out.logits[0, -1].topk(2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            found.append(int(best.indices[0]))
            unread = best.indices[None, :1]
    return found, margin


def train(model, tokens, targets, mask):
    import torch
    from torch.nn import functional as F

    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": 0.1},
         {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    # Within a window, places of padding may see nothing, which transformers makes NaN; what stands before needs no mask.
    seen = None if getattr(model.config, "sliding_window", None) else mask.long()
    case, losses, norms = {}, [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(input_ids=tokens, attention_mask=seen).logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        loss.backward()
        if step == 0:
            case["logits"] = sample("logits", logits.detach()[mask], 64)
            case["gradients"] = {name: sample(name, golden.without_noise(p.grad.numpy()), 4) for name, p in parameters.items()}
        losses.append(loss.item())
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)))
        optimizer.step()
    case["losses"], case["norms"] = rounded(losses), rounded(norms)
    case["weights"] = {name: sample(name, p.detach().numpy(), 3) for name, p in parameters.items()}
    return case


def generate():
    import torch

    torch.set_num_threads(1)
    cases = []
    for name, (kind, options, extras) in CASES.items():
        tokens, targets, mask = batch()
        model = make_model(kind, options)
        case = {"name": name, "config": json.loads(model.config.to_json_string(use_diff=True))}
        case["config"].pop("transformers_version", None)
        if "documents" in extras:
            case["documents"] = sample("documents", documents_logits(model, tokens), 64)
        if "greedy" in extras:
            case["greedy"], margin = greedy(model, tokens)
            assert margin > 1e-4, f"{name}: two tokens are equally likely, but for {margin}"
        # A model keeps the frequencies of the longest text that it has seen.
        case.update(train(make_model(kind, options), tokens, targets, mask))
        cases.append(case)
    return {"lengths": LENGTHS, "cases": cases}


def differences(expected, actual, place=""):
    """Sentences; numbers in one list may differ by 1e-6 of the largest."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [s for key in sorted({*expected, *actual}) for s in differences(expected.get(key), actual.get(key), f"{place}.{key}")]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        if all(isinstance(value, (int, float)) for value in [*expected, *actual]):
            largest = max((abs(value) for value in expected), default=0)
            worst = max((abs(a - b) for a, b in zip(expected, actual)), default=0)
            return [f"{place} differs by {worst:.3g} of {largest:.3g}"] if worst > 1e-6 * largest + 1e-12 else []
        return [s for i, pair in enumerate(zip(expected, actual)) for s in differences(*pair, f"{place}[{i}]")]
    return [] if expected == actual else [f"{place} is {actual!r}, not {expected!r}"]


if __name__ == "__main__":
    sys.exit(golden.run_json(
        __doc__, "decoders.json", generate, compare=differences, line_before='{"name"', separators=(",", ":"), allow_nan=False
    ))
