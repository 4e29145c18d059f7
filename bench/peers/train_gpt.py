#!/usr/bin/env python3
"""GPT-2 training steps in PyTorch on the CPU: the peer that keel's trainer is compared with.

The model is GPT-2 (Radford et al., 2019): pre-norm blocks, learned positions, tanh GELU, biases
everywhere, output head tied to the token embedding. Dropout is 0. One step is forward, backward,
clipping to global norm 1, AdamW and clearing the gradients. Runs on PyTorch 1.13 and 2.x.

  train_gpt.py --setting b --steps 20                 time steps on random tokens
  train_gpt.py --setting b --serve                    time steps on request (see serve())
  train_gpt.py --setting a --data FILE --steps 2000   learn a text, report its validation loss

Standard output carries JSON only, one object per line; progress goes to standard error.
"""

import argparse
import dataclasses
import json
import math
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

import common


@dataclasses.dataclass
class Config:
    layers: int
    heads: int
    width: int
    vocabulary: int
    block: int
    batch: int


SETTINGS = {
    "a": Config(layers=4, heads=4, width=128, vocabulary=65, block=64, batch=12),
    "b": Config(layers=6, heads=6, width=384, vocabulary=65, block=256, batch=16),
    "c": Config(layers=12, heads=12, width=768, vocabulary=50257, block=256, batch=4),
}


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.c_attn = nn.Linear(config.width, 3 * config.width)
        self.c_proj = nn.Linear(config.width, config.width)
        self.fused = hasattr(F, "scaled_dot_product_attention")
        if not self.fused:
            ones = torch.ones(config.block, config.block, dtype=torch.bool)
            self.register_buffer("future", ones.triu(1), persistent=False)

    def forward(self, x):  # x: (batch, time, width)
        batch, length, width = x.shape
        # each: (batch, heads, time, head size)
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(width, dim=2)
        )
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) * (1.0 / math.sqrt(q.shape[3]))
            scores = scores.masked_fill(self.future[:length, :length], float("-inf"))
            y = F.softmax(scores, dim=3) @ v
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.width, 4 * config.width)
        self.c_proj = nn.Linear(4 * config.width, config.width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = FeedForward(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocabulary, config.width)
        self.wpe = nn.Embedding(config.block, config.width)
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width)
        self.initialise(config.layers)

    def initialise(self, layers):
        """Normal(0, 0.02); projections into the residual stream are divided by sqrt(2 layers)."""
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                into_residual = name.endswith("c_proj.weight")
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers if into_residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):  # both: (batch, time); returns the mean loss
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        # CPU autocast would take the log-softmax in bf16; on CUDA it is fp32, as it is here.
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def make_optimizer(model, lr, betas):
    """AdamW with decay 0.1 on matrices only, in the fastest form this PyTorch has on the CPU."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    for form in ({"fused": True}, {"foreach": True}, {}):
        groups = [
            {"params": matrices, "weight_decay": 0.1},
            {"params": vectors, "weight_decay": 0.0},
        ]
        try:
            optimizer = torch.optim.AdamW(groups, lr=lr, betas=betas, eps=1e-8, **form)
        except (TypeError, RuntimeError, ValueError):
            continue
        return optimizer, next(iter(form), "default")
    raise RuntimeError("torch.optim.AdamW accepts none of the known forms")


def seeded_gpt(config, options):
    torch.manual_seed(options.seed)
    return GPT(config)


class Trainer:
    """Model, optimizer and the step that is timed. next_batch() returns (tokens, targets)."""

    def __init__(self, model, options, next_batch, betas=(0.9, 0.95)):
        self.model = model
        self.optimizer, self.optimizer_form = make_optimizer(self.model, options.lr, betas)
        self.dtype = options.dtype
        self.next_batch = next_batch
        self.forward = self.model
        if options.compile:
            if not hasattr(torch, "compile"):
                raise SystemExit(f"--compile needs PyTorch 2, this is {torch.__version__}")
            self.forward = torch.compile(self.model)
        self.loss = float("nan")
        self.losses = []  # of the first steps

    def step(self):
        tokens, targets = self.next_batch()
        with common.autocast(self.dtype):
            loss = self.forward(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = loss.item()
        if len(self.losses) < 8:
            self.losses.append(self.loss)

    def timed_steps(self, steps=None, seconds=None, before_step=lambda index: None):
        """Seconds of each step; ends after `steps`, or when `seconds` have passed."""
        times = []
        deadline = time.perf_counter() + (seconds or math.inf)
        while len(times) != steps and (not times or time.perf_counter() < deadline):
            before_step(len(times))
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        return times


def random_batch(config, seed):
    """One fixed batch of random tokens, made once."""
    generator = torch.Generator().manual_seed(seed)
    shape = (config.batch, config.block)
    tokens = torch.randint(config.vocabulary, shape, generator=generator)
    targets = torch.randint(config.vocabulary, shape, generator=generator)
    return lambda: (tokens, targets)


def report(trainer, config, options, times):
    median = statistics.median(times)
    return {
        **common.environment(options.dtype),
        "setting": options.setting,
        "compile": options.compile,
        "optimizer": trainer.optimizer_form,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "steps": len(times),
        "step_seconds": median,
        "tokens_per_s": config.batch * config.block / median,
        "peak_rss_bytes": common.peak_rss_bytes(),
        "loss": trainer.loss,
        "losses": trainer.losses,
    }


def serve(trainer):
    """Runs steps on request, so that a driver can interleave this program with another.

    Request "step N": N steps are run, and the answer is one line {"seconds": ..., "steps": N, ...}.
    Request "quit", or the end of the input, ends the program. Nothing else is printed; the warm-up
    happens before the first request is read.
    """
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            break
        if len(words) == 2 and words[0] == "step" and words[1].isdigit() and int(words[1]) > 0:
            start = time.perf_counter()
            for _ in range(int(words[1])):
                trainer.step()
            answer = {"seconds": time.perf_counter() - start, "steps": int(words[1])}
            answer.update(loss=trainer.loss, losses=trainer.losses, peak_rss_bytes=common.peak_rss_bytes())
        else:
            answer = {"error": f"expected 'step N' or 'quit', got {line.strip()!r}"}
        print(json.dumps(answer), flush=True)


class Text:
    """A file as characters numbered in code-point order: 90 % to train, the rest to validate."""

    def __init__(self, path, config, seed):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        characters = sorted(set(text))
        number = {character: i for i, character in enumerate(characters)}
        data = torch.tensor([number[character] for character in text])
        split = int(0.9 * len(data))
        self.train, self.validation = data[:split], data[split:]
        self.vocabulary = len(characters)
        self.config = config
        self.generator = torch.Generator().manual_seed(seed)

    def next_batch(self):
        """Windows at uniformly random starts of the training part."""
        block = self.config.block
        starts = torch.randint(
            len(self.train) - block, (self.config.batch,), generator=self.generator
        )
        windows = torch.stack([self.train[s : s + block + 1] for s in starts.tolist()])
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    @torch.no_grad()
    def validation_loss(self, model, dtype):
        """Mean loss over every character of the validation part but its first.

        The part is cut into consecutive windows of `block` inputs that do not overlap; the last one
        is shorter. So an early position of a window sees little context, as in training.
        """
        block, data = self.config.block, self.validation
        inputs, targets = data[:-1], data[1:]
        whole = len(inputs) // block * block
        windows = (part[:whole].view(-1, block).split(64) for part in (inputs, targets))
        pieces = list(zip(*windows))
        if whole < len(inputs):
            pieces.append((inputs[whole:].view(1, -1), targets[whole:].view(1, -1)))
        total = 0.0
        for x, y in pieces:
            with common.autocast(dtype):
                total += model(x, y).item() * y.numel()
        return total / len(inputs)


def scheduled_lr(step, steps, highest=1e-3, lowest=1e-4, warmup=100):
    """Learning rate of step 0, 1, ...: linear over `warmup` steps, then half a cosine to `lowest`.

    Step `warmup` - 1 uses `highest`; step `steps` would use `lowest`.
    """
    if step < warmup:
        return highest * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return lowest + 0.5 * (highest - lowest) * (1.0 + math.cos(math.pi * progress))


def learn(options, config):
    """Trains on a text and reports the validation loss beside the speed."""
    text = Text(options.data, config, options.seed)
    config.vocabulary = text.vocabulary
    steps = options.steps or 2000
    trainer = Trainer(seeded_gpt(config, options), options, text.next_batch, betas=(0.9, 0.99))

    def before_step(index):
        for group in trainer.optimizer.param_groups:
            group["lr"] = scheduled_lr(index, steps)
        if index and index % 100 == 0:
            print(f"step {index}: loss {trainer.loss:.4f}", file=sys.stderr, flush=True)

    times = trainer.timed_steps(steps=steps, before_step=before_step)
    result = report(trainer, config, options, times)
    result["vocabulary"] = text.vocabulary
    result["validation_loss"] = text.validation_loss(trainer.model, options.dtype)
    return result


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--setting", choices=sorted(SETTINGS), default="a")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--compile", action="store_true", help="torch.compile (PyTorch 2)")
    parser.add_argument("--threads", type=int, default=common.default_threads())
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help="timed steps (10; with --data 2000)")
    length.add_argument("--seconds", type=float, help="time steps for this long instead")
    parser.add_argument("--warmup", type=int, default=3, help="steps before the timed ones")
    parser.add_argument("--lr", type=float, default=1e-3, help="ignored with --data")
    parser.add_argument("--seed", type=int, default=1)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--serve", action="store_true", help="step when standard input says so")
    mode.add_argument("--data", metavar="FILE", help="learn this text character by character")
    options = parser.parse_args()
    if options.data and options.seconds:
        parser.error("--data needs --steps: its schedule depends on their number")
    return options


def main():
    options = parse_options()
    common.set_threads(options.threads)
    config = dataclasses.replace(SETTINGS[options.setting])
    if options.data:
        print(json.dumps(learn(options, config)), flush=True)
        return

    trainer = Trainer(seeded_gpt(config, options), options, random_batch(config, options.seed))
    for _ in range(options.warmup):
        trainer.step()
    if options.serve:
        serve(trainer)
        return
    steps = options.steps or (None if options.seconds else 10)
    times = trainer.timed_steps(steps=steps, seconds=options.seconds)
    print(json.dumps(report(trainer, config, options, times)), flush=True)


if __name__ == "__main__":
    main()
