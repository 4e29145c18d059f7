#!/usr/bin/env python3
"""Writes lora.safetensors: PEFT's adapters on the small GPT-2 of generate_gpt2_tiny.py: logits, gradients and 10 AdamW steps.
Names that begin with "head." are of a small Llama, of whose layers q_proj and the head have adapters, and the embedding is trained.

The arithmetic is that of transformers and PEFT in float64, from fp32 numbers that golden.values() makes from keel's names, and
rounded to fp32 when stored. `--check FILE` compares a file with a fresh computation. README.md lists what is stored.
"""

import sys

import numpy as np

import golden

SEED, RANK, ALPHA, STEPS = 1, 3, 5, 10


def number_of(name, shape):
    """What keel's test gives a parameter of this name."""
    scale, offset = (0.2, 1.0) if len(shape) == 1 else (0.2, 0.0)
    return golden.values(SEED, name, tuple(shape), scale=scale, offset=offset).astype(np.float64)


def batch():
    import generate_gpt2_tiny as tiny

    tokens, targets = tiny.token_ids("tokens"), tiny.token_ids("targets")
    targets[1, 3] = tiny.IGNORED
    return tokens, targets


def trained_by_adamw(model, parameters):
    """The first step's logits and gradients, the losses of all steps, and what `parameters`, by keel's names, are behind them."""
    import torch

    import generate_gpt2_tiny as tiny

    tokens, targets = batch()
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=tiny.IGNORED)
        loss.backward()
        if step == 0:
            first = logits.detach().numpy()
            gradients = {name: golden.without_noise(p.grad.numpy()) for name, p in parameters.items()}
        losses.append(loss.item())
        optimizer.step()
    return {
        "logits": first,
        **{f"grad.{name}": gradient for name, gradient in gradients.items()},
        **{f"param{STEPS}.{name}": p.detach().numpy() for name, p in parameters.items()},
        "loss_per_step": losses,
    }


def with_head():
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    import generate_gpt2_tiny as tiny

    config = LlamaConfig(
        vocab_size=tiny.VOCABULARY, max_position_embeddings=tiny.BLOCK, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-6, rope_theta=10000.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    base = LlamaForCausalLM(config).double()
    packed = {"self_attn.qkv_proj": ["q_proj", "k_proj", "v_proj"], "mlp.gate_up_proj": ["gate_proj", "up_proj"]}
    with torch.no_grad():
        done = set()
        for layer in range(2):
            for name, parts in packed.items():
                path = f"model.layers.{layer}.{name}"
                own = [f"{path.rsplit('.', 1)[0]}.{part}.weight" for part in parts]
                rows = [base.get_parameter(each).shape[0] for each in own]
                value = number_of(f"{path}.weight", (sum(rows), 24))
                for each, part in zip(own, np.split(value, np.cumsum(rows)[:-1])):
                    base.get_parameter(each).copy_(torch.from_numpy(part))
                    done.add(each)
        for name, parameter in base.named_parameters():
            if name not in done:
                parameter.copy_(torch.from_numpy(number_of(name, parameter.shape)))
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["q_proj", "lm_head"], modules_to_save=["embed_tokens"])
    model = get_peft_model(base, lora)
    trained = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        own = name.removeprefix("base_model.model.").replace(".default", "").replace(".modules_to_save", "")
        own = own.replace("self_attn.q_proj", "self_attn.qkv_proj.q_proj")
        trained[own] = parameter
        if ".lora_" in own:
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(number_of(own, parameter.shape)))
    return {f"head.{name}": value for name, value in trained_by_adamw(model, trained).items()}


def generate():
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    import generate_gpt2_tiny as tiny

    config = GPT2Config(
        vocab_size=tiny.VOCABULARY, n_positions=tiny.BLOCK, n_embd=tiny.WIDTH, n_layer=tiny.LAYERS, n_head=tiny.HEADS,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    base = GPT2LMHeadModel(config).double()
    with torch.no_grad():
        for name, shape in tiny.parameter_shapes().items():
            value = torch.from_numpy(tiny.initial_values(name, shape).astype(np.float64))
            target = base.transformer.get_parameter(name)
            target.copy_(value if target.shape == value.shape and not name.endswith("proj.weight") else value.T)
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True)
    model = get_peft_model(base, lora)
    adapters = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        own = name.removeprefix("base_model.model.transformer.").replace(".default", "")
        adapters[own] = parameter
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(golden.values(SEED, own, tuple(parameter.shape), scale=0.2).astype(np.float64)))
    tokens, targets = batch()
    return {"tokens": tokens.numpy(), "targets": targets.numpy(), **trained_by_adamw(model, adapters), **with_head()}


if __name__ == "__main__":
    sys.exit(golden.run(__doc__, "lora.safetensors", generate))
