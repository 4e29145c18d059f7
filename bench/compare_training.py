#!/usr/bin/env python3
"""keel's training steps against PyTorch's, interleaved in one run.

Every contestant is a process that makes its model, warms up, and then steps on request while all others wait. In each
round each contestant runs a few steps; a ratio is the median over the rounds of peer time / keel time, so that what
else the machine does hits both alike. Above 1 keel is the faster one.

  compare_training.py --settings a b --dtypes fp32 bf16 --peer /usr/bin/python3 --peer /opt/torch/bin/python:compile
  compare_training.py --settings llama bert --peer PYTHON --peer PYTHON:compile

Settings a, b and c are GPT-2s (bench/peers/train_gpt.py). The others are transformers' models (train_model.py): the first
peer, which must have transformers, writes the model with its random weights and a batch to a folder, and all contestants
start from there. Their losses of the first steps are printed side by side.

A peer is a Python interpreter that has PyTorch; ":compile" adds torch.compile, ":passive" sets OMP_WAIT_POLICY (see
bench/peers/common.py). Output: one JSON object for each setting, dtype and contestant, and a table on standard error.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


GPT = {"a": 12 * 64, "b": 16 * 256, "c": 4 * 256}  # tokens of a step
MODELS = {"llama": 4 * 512, "bert": 8 * 128, "bert-no-dropout": 8 * 128}


class Contestant:
    """One process that answers "step N" with a line of JSON."""

    def __init__(self, name, command, environment=None):
        self.name = name
        self.samples = []
        self.answer = {}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def step(self, steps):
        """Runs steps; returns the seconds of one. None when the contestant could not start."""
        try:
            self.process.stdin.write(f"step {steps}\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return None
        self.answer = json.loads(line)
        return self.answer["seconds"] / self.answer["steps"]

    def close(self):
        try:
            self.process.communicate("quit\n", timeout=10)
        except (BrokenPipeError, ValueError, subprocess.TimeoutExpired):
            self.process.kill()
        self.process.wait()


def write_model(options, setting, folder):
    program = os.path.join(HERE, "peers", "train_model.py")
    python = options.peer[0].split(":")[0]
    subprocess.run([python, program, "--setting", setting, "--write", folder], check=True, stderr=subprocess.DEVNULL)


def contestants(options, setting, dtype, folder):
    """`folder`: of a model of transformers' and its batch."""
    shared = ["--dtype", dtype, "--threads", str(options.threads), "--serve"]
    if setting in MODELS:
        shared += ["--lr", "1e-4"]
        program, ours, theirs = "train_model.py", ["--model", folder], ["--setting", setting, "--folder", folder]
    else:
        program, ours, theirs = "train_gpt.py", ["--setting", setting], ["--setting", setting]
    yield Contestant("keel", [options.keel, *ours, *shared])
    for peer in options.peer:
        python, *flags = peer.split(":")
        command = [python, os.path.join(HERE, "peers", program), *theirs, *shared]
        if "compile" in flags:
            command.append("--compile")
        passive = {"OMP_WAIT_POLICY": "passive"} if "passive" in flags else None
        version = subprocess.run(
            [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
        ).stdout.strip()
        yield Contestant(" ".join([f"torch-{version}", *flags]), command, passive)


def race_of(racing, options):
    """Runs the rounds and returns the contestants that took part."""
    first = {c.name: c.step(1) for c in racing}  # also waits for the warm-up
    for contestant in racing:
        if first[contestant.name] is None:
            print(f"{contestant.name} could not start and is left out", file=sys.stderr)
            contestant.close()
    racing = [c for c in racing if first[c.name] is not None]
    steps = {c.name: max(1, round(options.sample / first[c.name])) for c in racing}
    deadline = time.perf_counter() + options.seconds
    while len(racing[0].samples) < 3 or time.perf_counter() < deadline:
        for contestant in racing:
            contestant.samples.append(contestant.step(steps[contestant.name]))
    for contestant in racing:
        contestant.close()
    return racing


def report(setting, dtype, racing):
    tokens = {**GPT, **MODELS}[setting]
    keel = racing[0]
    for contestant in racing:
        ratios = [theirs / ours for theirs, ours in zip(contestant.samples, keel.samples)]
        seconds = statistics.median(contestant.samples)
        line = {
            "setting": setting,
            "dtype": dtype,
            "contestant": contestant.name,
            "rounds": len(ratios),
            "step_seconds": round(seconds, 6),
            "tokens_per_s": round(tokens / seconds, 1),
            "keel_is_faster_by": round(statistics.median(ratios), 3),
            "lowest": round(min(ratios), 3),
            "highest": round(max(ratios), 3),
            "peak_rss_bytes": contestant.answer["peak_rss_bytes"],
            "losses": [round(loss, 4) for loss in contestant.answer["losses"]],
        }
        if "step_flops" in contestant.answer:
            line["gflops"] = round(contestant.answer["step_flops"] / seconds * 1e-9, 1)
        print(json.dumps(line), flush=True)
        print(
            f"{setting} {dtype:4}  {contestant.name:28} {line['tokens_per_s']:10.1f} tok/s"
            f"  keel x{line['keel_is_faster_by']:.2f} ({line['lowest']:.2f}-{line['highest']:.2f})"
            f"  {contestant.answer['peak_rss_bytes'] / 1e6:8.0f} MB",
            file=sys.stderr,
            flush=True,
        )
        if setting in MODELS:
            print(f"      losses {line['losses']}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keel", default="build/bench_train", help="the benchmark program of keel")
    parser.add_argument("--peer", action="append", required=True, help="PYTHON[:compile][:passive]")
    parser.add_argument("--settings", nargs="+", choices=[*GPT, *MODELS], default=[*GPT])
    parser.add_argument("--dtypes", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=60, help="of each setting and dtype")
    parser.add_argument("--sample", type=float, default=1, help="seconds of each contestant in a round")
    options = parser.parse_args()
    for setting in options.settings:
        with tempfile.TemporaryDirectory() as folder:
            if setting in MODELS:
                write_model(options, setting, folder)
            for dtype in options.dtypes:
                report(setting, dtype, race_of(list(contestants(options, setting, dtype, folder)), options))


if __name__ == "__main__":
    main()
