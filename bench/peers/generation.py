#!/usr/bin/env python3
"""transformers' generate() on a GPT-2 of random weights: "step N" on standard input continues the prompts by N tokens.

Greedily, with its cache of keys and values. Answers as bench_generation does; bench/compare_generation.py races them.

  generation.py fp32|bf16 BATCH PROMPT THREADS [LAYERS]      PROMPT: tokens of each prompt
"""

import json
import sys
import time

import torch
import transformers


def main():
    dtype = torch.bfloat16 if sys.argv[1] == "bf16" else torch.float32
    batch, prompt, threads = map(int, sys.argv[2:5])
    torch.set_num_threads(threads)
    layers = int(sys.argv[5]) if len(sys.argv) > 5 else 12
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=layers)).to(dtype).eval()
    prompts = torch.tensor([[(row + i * i) % 50000 for i in range(prompt)] for row in range(batch)])
    mask = torch.ones_like(prompts)
    for line in sys.stdin:
        word, *count = line.split()
        if word != "step":
            break
        steps = int(count[0])
        start = time.perf_counter()
        with torch.inference_mode():
            made = model.generate(
                prompts, attention_mask=mask, do_sample=False, min_new_tokens=steps, max_new_tokens=steps, pad_token_id=0
            )
        seconds = time.perf_counter() - start
        tokens = made.numel() - prompts.numel()
        print(json.dumps({"steps": steps, "seconds": seconds, "tokens": tokens}), flush=True)


if __name__ == "__main__":
    main()
