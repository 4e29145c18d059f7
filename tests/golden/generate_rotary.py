#!/usr/bin/env python3
"""Frequencies, cosines and sines of transformers' rotary positions in every scaling, and heads that it rotates.

The file: see README.md. transformers computes them in fp32; numbers are stored as text.
"""

import sys

import golden

LONG = [1.0 + 0.5 * pair for pair in range(8)]
SHORT = [1.0 + 0.0625 * pair for pair in range(8)]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}

# Parameters, and a number of positions that the text has.
CASES = {
    "default": ({"rope_type": "default"}, 60),
    "theta": ({"rope_type": "default", "rope_theta": 500000.0}, 60),
    "linear": ({"rope_type": "linear", "factor": 2.5}, 60),
    "dynamic_short": ({"rope_type": "dynamic", "factor": 2.0}, 60),
    "dynamic_long": ({"rope_type": "dynamic", "factor": 2.0}, 3000),
    "yarn": (YARN, 60),
    "yarn_attention_factor": (dict(YARN, attention_factor=1.7, beta_fast=16.0, beta_slow=2.0), 60),
    "yarn_mscale": (dict(YARN, mscale=0.707, mscale_all_dim=0.5, factor=40.0), 60),
    "yarn_ramp": (dict(YARN, truncate=False, original_max_position_embeddings=2048), 60),
    "yarn_without_factor": (dict(YARN, factor=None), 60),
    "yarn_partial": (dict(YARN, partial_rotary_factor=0.5), 60),
    "longrope_short": (
        {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "original_max_position_embeddings": 256},
        60,
    ),
    "longrope_long": (
        {"rope_type": "longrope", "short_factor": SHORT, "long_factor": LONG, "original_max_position_embeddings": 256},
        300,
    ),
    "longrope_attention_factor": (
        {
            "rope_type": "longrope",
            "short_factor": SHORT,
            "long_factor": LONG,
            "original_max_position_embeddings": 256,
            "attention_factor": 1.25,
            "factor": 3.0,
        },
        300,
    ),
    "llama3": (
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
        60,
    ),
    "llama3_partial": (
        {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 0.5,
            "high_freq_factor": 6.0,
            "original_max_position_embeddings": 128,
            "partial_rotary_factor": 0.75,
        },
        60,
    ),
    "proportional": ({"rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 2.0}, 60),
}
HEAD, MOST = 16, 1024
POSITIONS = [0, 1, 7, 50]


def scaled(parameters, length):
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    given = dict({"rope_theta": 10000.0}, **parameters)
    config = LlamaConfig(
        hidden_size=2 * HEAD, num_attention_heads=2, max_position_embeddings=MOST, rope_parameters=given
    )
    module = LlamaRotaryEmbedding(config)
    places = torch.tensor([POSITIONS + [length - 1]])
    cosines, sines = module(torch.zeros(1), places)
    pairs = module.inv_freq.numel()
    return {
        "head_dim": HEAD,
        "max_position_embeddings": MOST,
        "rope_parameters": given,
        "length": length,
        "angles": module.inv_freq.tolist(),
        "attention_factor": float(module.attention_scaling),
        "positions": POSITIONS,
        "cosines": cosines[0, : len(POSITIONS), :pairs].reshape(-1).tolist(),
        "sines": sines[0, : len(POSITIONS), :pairs].reshape(-1).tolist(),
    }


def heads(shape):
    import torch

    return torch.sin(torch.arange(torch.Size(shape).numel(), dtype=torch.float32) * 0.7).reshape(shape)


def rotations():
    """(1, 2, 3, 8): of Llama, of Phi, which turns half of a head, and of GPT-J, whose pairs are neighbours."""
    import torch
    from transformers import PhiConfig
    from transformers.models.gptj import modeling_gptj
    from transformers.models.llama import modeling_llama
    from transformers.models.phi import modeling_phi

    x = heads((1, 2, 3, 8))
    places = torch.tensor([[2, 3, 11]])
    found = {"x": x.reshape(-1).tolist(), "positions": places[0].tolist()}
    from transformers import LlamaConfig

    llama = modeling_llama.LlamaRotaryEmbedding(LlamaConfig(hidden_size=16, num_attention_heads=2))
    found["halves"] = modeling_llama.apply_rotary_pos_emb(x, x, *llama(x, places))[0].reshape(-1).tolist()
    phi = modeling_phi.PhiRotaryEmbedding(PhiConfig(hidden_size=16, num_attention_heads=2, partial_rotary_factor=0.5))
    turned = modeling_phi.apply_rotary_pos_emb(x[..., :4], x[..., :4], *phi(x, places))[0]
    found["partial"] = torch.cat((turned, x[..., 4:]), dim=-1).reshape(-1).tolist()
    table = modeling_gptj.create_sinusoidal_positions(64, 8)[places[0]]
    sines, cosines = torch.split(table[None], 4, dim=-1)
    turned = modeling_gptj.apply_rotary_pos_emb(x.permute(0, 2, 1, 3), sines, cosines)
    found["interleaved"] = turned.permute(0, 2, 1, 3).reshape(-1).tolist()
    return found


def generate():
    import transformers

    transformers.logging.set_verbosity_error()
    return {"tables": {name: scaled(*case) for name, case in CASES.items()}, "rotations": rotations()}


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "rotary.json", generate, compare=golden.json_differences(2e-6, 2e-6), indent=0))
