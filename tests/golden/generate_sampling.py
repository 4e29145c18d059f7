#!/usr/bin/env python3
"""Probabilities of next tokens as transformers' processors of logits leave them.

usage: generate_sampling.py [--output FILE | --check FILE]
"""

import sys

import golden

CASES = [
    {},
    {"temperature": 0.7},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7, "temperature": 1.5, "top_k": 12, "top_p": 0.9},
    {"repetition_penalty": 2.0, "temperature": 2.0, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 3.0, "top_k": 20, "top_p": 0.3, "min_p": 0.2},
]
TEXT = [3, 5, 3, 0, 23, 11]
LOGITS = [(i * i * 37 % 97 - 48) / 8 for i in range(24)]  # exact in fp32


def probabilities(case):
    import torch
    from transformers.generation import logits_process

    made = {
        "repetition_penalty": logits_process.RepetitionPenaltyLogitsProcessor,
        "temperature": logits_process.TemperatureLogitsWarper,
        "top_k": logits_process.TopKLogitsWarper,
        "top_p": logits_process.TopPLogitsWarper,
        "min_p": logits_process.MinPLogitsWarper,
    }
    scores = torch.tensor([LOGITS])
    for name, processor in made.items():
        if name in case:
            scores = processor(case[name])(torch.tensor([TEXT]), scores)
    return [round(share, 9) for share in torch.softmax(scores.double(), -1)[0].tolist()]


def generate():
    import transformers

    transformers.logging.set_verbosity_error()
    cases = [{**case, "probabilities": probabilities(case)} for case in CASES]
    return {"logits": LOGITS, "text": TEXT, "cases": cases}


if __name__ == "__main__":
    sys.exit(golden.run_json(__doc__, "sampling.json", generate, compare=golden.json_differences(absolute=1e-6)))
