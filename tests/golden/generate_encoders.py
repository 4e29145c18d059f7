#!/usr/bin/env python3
"""Writes encoders.json: what transformers computes with small BERT-like models, and their config.json.

The arithmetic is PyTorch's in float64, from fp32 weights that golden.values() makes from names. Of each
tensor two numbers are stored: its norm, and its product with numbers in [-1, 1) that follow from its
name. `--check FILE` compares a file with a fresh computation and exits with 1 if they differ. README.md
lists what is stored.
"""

import json
import sys

import numpy as np
import torch
from torch.nn import functional as F

import golden

SEED = 1
TIME, VOCABULARY, STEPS = 10, 53, 20
IGNORED = -100

SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.2,
    "classifier_dropout": 0.3,
}
DISTILBERT = {
    "vocab_size": VOCABULARY,
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 96,
    "max_position_embeddings": 16,
}
HEADS = {
    "masked_language": "ForMaskedLM",
    "sequence": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "replaced": "ForPreTraining",
}
OUTPUTS = {"sequence": 3, "tokens": 5}
# class, options, heads. Options differ in what heads may confuse: activations, widths, positions.
FAMILIES = {
    "bert": ("Bert", SHAPE, ["masked_language", "sequence", "tokens"]),
    "roberta": (
        "Roberta",
        {**SHAPE, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "relu"},
        ["masked_language", "sequence", "tokens"],
    ),
    "xlm_roberta": ("XLMRoberta", {**SHAPE, "layer_norm_eps": 1e-5}, ["masked_language", "sequence"]),
    "distilbert": (
        "DistilBert",
        {**DISTILBERT, "activation": "gelu_new"},
        ["masked_language", "sequence", "tokens"],
    ),
    "electra": (
        "Electra",
        {**SHAPE, "embedding_size": 32, "hidden_act": "silu"},
        ["masked_language", "sequence", "tokens", "replaced"],
    ),
}


def initial_values(name, shape):
    if name.endswith("bias"):
        return golden.values(SEED, name, shape, scale=0.1)
    if len(shape) == 1:
        return golden.values(SEED, name, shape, scale=0.2, offset=1.0)
    return golden.values(SEED, name, shape, scale=0.2)


def drawn(name, below):
    ids = np.floor(golden.uniform(SEED, name, TIME * TIME).astype(np.float64) * below)
    return torch.from_numpy(ids.astype(np.int64).reshape(TIME, TIME))


# Row r has r + 1 tokens; the rest is padding. Tokens 0 and 1, of which one is the padding, occur nowhere else.
LENGTHS = torch.arange(1, TIME + 1)
VALID = torch.arange(TIME)[None, :] < LENGTHS[:, None]


def inputs_of(config):
    tokens = torch.where(VALID, 2 + drawn("tokens", VOCABULARY - 2), config.pad_token_id)
    inputs = {"input_ids": tokens, "attention_mask": VALID.long()}
    if getattr(config, "type_vocab_size", 1) > 1:
        second = torch.arange(TIME)[None, :] >= (LENGTHS[:, None] + 1) // 2
        inputs["token_type_ids"] = (second & VALID).long()
    return inputs


def loss_of(head, logits):
    if head == "sequence":
        return F.cross_entropy(logits, LENGTHS % OUTPUTS[head])
    if head == "replaced":
        labels = drawn("replaced", 2).double()
        return F.binary_cross_entropy_with_logits(logits[VALID], labels[VALID])
    if head == "masked_language":
        labelled = VALID & (drawn("masked", 3) == 0)
        labels = torch.where(labelled, drawn("masked_language", VOCABULARY), IGNORED)
    else:
        labels = torch.where(VALID, drawn("tokens_labels", OUTPUTS[head]), IGNORED)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def short(number):
    return float(f"{float(number):.10g}")


def summary(name, tensor):
    array = golden.without_noise(tensor.detach().numpy())
    probe = golden.values(SEED, "probe." + name, array.shape, scale=1.0)
    return [short(np.linalg.norm(array)), short(np.sum(array * probe.astype(np.float64)))]


def by_rows(name, tensor):
    """Of each row of a batch; what stands at padding counts as 0."""
    return [
        summary(name, torch.where(VALID[r].reshape(-1, *[1] * (row.dim() - 1)), row, 0.0))
        for r, row in enumerate(tensor)
    ]


def run(class_name, options, head):
    import transformers

    config = getattr(transformers, class_name + "Config")(**options)
    if head in OUTPUTS:
        config.num_labels = OUTPUTS[head]
    config.architectures = [class_name + HEADS[head]]
    config._attn_implementation = "eager"
    model = getattr(transformers, class_name + HEADS[head])(config).double().eval()
    named = dict(model.named_parameters(remove_duplicate=False))
    for copy in model._tied_weights_keys or {}:
        del named[copy]
    for name, parameter in named.items():
        start = initial_values(name, tuple(parameter.shape))
        parameter.data = torch.from_numpy(start.astype(np.float64))
    model.tie_weights()
    inputs = inputs_of(config)
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in named.values() if p.dim() >= 2], "weight_decay": 0.01},
            {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=1e-3,
    )
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = model(**inputs, output_hidden_states=True)
        loss = loss_of(head, outputs.logits)
        loss.backward()
        losses.append(short(loss.item()))
        if step == 0:
            logits = outputs.logits
            found = {
                "states": by_rows("states", outputs.hidden_states[-1]),
                "logits": [summary("logits", row) for row in logits]
                if head == "sequence"
                else by_rows("logits", logits),
                "gradients": {name: summary(name, p.grad) for name, p in named.items()},
            }
        optimizer.step()
    found["losses"] = losses
    found["weights"] = {name: summary(name, p) for name, p in named.items()}
    written = json.loads(config.to_json_string(use_diff=True))
    del written["transformers_version"]
    return {"config": written, **found}


def generate():
    return {
        family: {head: run(class_name, options, head) for head in heads}
        for family, (class_name, options, heads) in FAMILIES.items()
    }


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "encoders.json", generate, compare=golden.json_differences(1e-6, 1e-8), separators=(",", ":")))
