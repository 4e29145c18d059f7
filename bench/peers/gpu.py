#!/usr/bin/env python3
"""What PyTorch does on the same GPU: the peer of bench_gpu.

  gpu.py OUT.jsonl --batch 64     copy, attention, and GPT-2 124M training steps of 64 sequences, on cuda:0
  gpu.py OUT.jsonl --rehearse     everything once, tiny and without figures, on the CPU

OUT.jsonl gets one JSON object per case, as soon as it is known. Cases of attention and training have the names that
bench_gpu gives to the same work. Training: bf16 autocast, or (masters) bf16 weights beside fp32 masters as keel has
them; AdamW fused; the loss stays on the device.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F

import train_gpt

try:  # PyTorch 2.3 and later
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    SDPBackend = None


class Bench:
    def __init__(self, options):
        self.options = options
        self.device = "cpu" if options.rehearse else "cuda"
        self.start = time.perf_counter()
        self.file = open(options.out, "w", encoding="utf-8")
        name = "cpu" if options.rehearse else torch.cuda.get_device_name()
        self.write({"group": "device", "case": self.device, "name": name, "torch": torch.__version__})

    def write(self, line):
        for stream in (self.file, sys.stdout):
            print(json.dumps(line), file=stream, flush=True)

    def run(self, group, name, measure):
        """Runs one case; what it raises becomes its line's error."""
        if self.options.only not in f"{group}/{name}":
            return
        line = {"group": group, "case": name}
        if self.options.seconds_limit and time.perf_counter() - self.start > self.options.seconds_limit:
            self.write({**line, "skipped": "no time was left"})
            return
        try:
            measured = measure()
            line.update({"rehearsed": True} if self.options.rehearse else measured)
        except Exception as error:  # the next case may work
            line["error"] = f"{type(error).__name__}: {error}"
        if self.device == "cuda":
            torch.cuda.empty_cache()
        self.write(line)

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def seconds(self, function):
        """Median seconds of one call, in groups of at least 50 ms."""
        if self.options.rehearse:
            function()
            return 1.0
        for _ in range(3):
            function()
        calls = 2
        calls = max(1, int(0.05 / max(self.group(function, calls) / calls, 1e-6) + 1))
        rounds = 3 if self.options.quick else 5
        return statistics.median(self.group(function, calls) / calls for _ in range(rounds))

    def group(self, function, calls):
        self.wait()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        self.wait()
        return time.perf_counter() - start


def copy(bench):
    numbers = 1 << (10 if bench.options.rehearse else 28)  # 512 MiB read, as many written
    source = torch.randn(numbers, device=bench.device).to(torch.bfloat16)
    target = torch.empty_like(source)
    seconds = bench.seconds(lambda: target.copy_(source))
    return {"seconds": seconds, "gb_per_s": 4e-9 * numbers / seconds}


def backends(bench):
    """Name and context of each way in which PyTorch may compute attention."""
    yield "default", contextlib.nullcontext
    if SDPBackend is None or bench.options.rehearse:
        return
    for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        backend = getattr(SDPBackend, name, None)
        if backend is not None:
            yield name.lower(), lambda backend=backend: sdpa_kernel(backend)


def operands(bench, shape, layout):
    """q, k, v and a gradient, each (batch, heads, time, head size): contiguous, or views of one packed product."""
    batch, heads, length, head_size = shape
    kind = {"device": bench.device, "dtype": torch.bfloat16}
    if layout == "contiguous":
        q, k, v, grad = (torch.randn(shape, **kind) for _ in range(4))
    else:
        packed = torch.randn(batch, length, 3, heads, head_size, **kind)
        q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
        grad = torch.randn(batch, length, heads, head_size, **kind).transpose(1, 2)
    return [x.detach().requires_grad_() for x in (q, k, v)], grad


def attention(bench, shape):
    """The fastest of PyTorch's backends and both layouts, forward and backward each for itself."""
    batch, heads, length, head_size = shape
    operations = 2 * batch * heads * length * length * head_size  # two products, causal
    best = {}
    for layout in ("packed", "contiguous"):
        inputs, grad = operands(bench, shape, layout)
        for name, backend in backends(bench):
            try:
                with backend():
                    forward = bench.seconds(lambda: F.scaled_dot_product_attention(*inputs, is_causal=True))
                    y = F.scaled_dot_product_attention(*inputs, is_causal=True)
                    backward = bench.seconds(lambda: torch.autograd.grad(y, inputs, grad, retain_graph=True))
            except RuntimeError as error:
                if name == "default":
                    raise
                best.setdefault("refused", []).append(f"{name}, {layout}: {str(error).splitlines()[0]}")
                continue
            for part, seconds, factor in (("forward", forward, 1), ("backward", backward, 2.5)):
                tflops = factor * operations / seconds * 1e-12
                if tflops > best.get(f"{part}_tflops", 0):
                    best.update({f"{part}_tflops": tflops, f"{part}_by": f"{name}, {layout}"})
    return best


class Step:
    """Forward, backward, clipping, AdamW; nothing waits for the device."""

    def __init__(self, bench, config, masters, compiled):
        torch.manual_seed(1)
        self.bench = bench
        self.autocast = not masters
        self.model = train_gpt.GPT(config).to(bench.device)
        self.parameters = list(self.model.parameters())
        self.masters = self.parameters
        if masters:
            self.masters = [torch.nn.Parameter(p.detach().clone()) for p in self.parameters]
            self.model.to(torch.bfloat16)
        groups = [
            {"params": [p for p in self.masters if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in self.masters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
        self.forward = torch.compile(self.model) if compiled else self.model
        size = (config.batch, config.block)
        self.tokens = torch.randint(config.vocabulary, size, device=bench.device)
        self.targets = torch.randint(config.vocabulary, size, device=bench.device)

    def __call__(self):
        with torch.autocast(self.bench.device, dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.forward(self.tokens, self.targets)
        loss.backward()
        if self.masters is not self.parameters:
            for master, parameter in zip(self.masters, self.parameters):
                master.grad = torch.empty_like(master) if master.grad is None else master.grad
            torch._foreach_copy_([m.grad for m in self.masters], [p.grad for p in self.parameters])
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0, foreach=True)
        self.optimizer.step()
        if self.masters is not self.parameters:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.masters)
        for parameter in self.parameters:
            parameter.grad = None
        self.loss = loss.detach()


def training(bench, masters, compiled):
    if bench.options.rehearse:
        config = train_gpt.Config(layers=2, heads=1, width=64, vocabulary=96, block=16, batch=2)
    else:
        config = train_gpt.Config(layers=12, heads=12, width=768, vocabulary=50304, block=1024, batch=0)
    batches = [bench.options.batch // n for n in (1, 2, 4) if bench.options.batch >= n]
    for config.batch in batches:
        if bench.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            step = Step(bench, config, masters, compiled)
            seconds = bench.seconds(step)
            return {
                "how": ("bf16 weights and fp32 masters" if masters else "bf16 autocast")
                + (", compiled" if compiled else ", eager"),
                "batch": config.batch,
                "time": config.block,
                "parameters": sum(p.numel() for p in step.parameters),
                "step_seconds": seconds,
                "tokens_per_s": config.batch * config.block / seconds,
                "last_loss": step.loss.item(),
                "peak_bytes": torch.cuda.max_memory_allocated() if bench.device == "cuda" else 0,
            }
        except torch.cuda.OutOfMemoryError as error:
            reason = str(error)  # the exception itself would keep the tensors of its frames
        step = None
        torch.cuda.empty_cache()
    raise RuntimeError(f"no batch fits: {reason}")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="file for the lines of JSON")
    parser.add_argument(
        "--batch", type=int, default=64, help="sequences of a training step; less where it does not fit"
    )
    parser.add_argument("--only", default="", help="part of group/case")
    parser.add_argument("--seconds-limit", type=float, default=0, help="no case begins later")
    parser.add_argument("--quick", action="store_true", help="fewer cases and rounds")
    parser.add_argument("--rehearse", action="store_true", help="everything once on the CPU, tiny, no figures")
    options = parser.parse_args()
    if options.batch < 1:
        parser.error("--batch must be positive")
    if not options.rehearse and not torch.cuda.is_available():
        print("gpu.py: this PyTorch sees no GPU", file=sys.stderr)
        sys.exit(2)
    return options


def main():
    options = parse_options()
    bench = Bench(options)
    bench.run("copy", "copy", lambda: copy(bench))
    for head_size in (64, 128):
        for length in (40,) if options.rehearse else (1024, 4096):
            if options.quick and length > 1024:
                continue
            shape = (16384 // length, 2048 // head_size, length, head_size)
            if options.rehearse:
                shape = (1, 2, length, head_size)
            name = f"causal, head size {head_size}, T {length}"
            bench.run("attention", name, lambda: attention(bench, shape))
    # What keel is held against comes first.
    for masters, compiled in ((False, True), (True, True), (False, False), (True, False)):
        if options.quick and masters or options.rehearse and compiled:
            continue
        kind = f"{'masters' if masters else 'autocast'}, {'compiled' if compiled else 'eager'}"
        bench.run("training", f"gpt2 124M, {kind}", lambda: training(bench, masters, compiled))


if __name__ == "__main__":
    main()
