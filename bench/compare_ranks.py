#!/usr/bin/env python3
"""Training by several ranks on one machine, interleaved: what the engine costs, and PyTorch's data parallel training.

  compare_ranks.py --setting b --dtype bf16 --ranks 2 --peer /opt/torch/bin/python --peer /opt/torch/bin/python:compress

Contestants: keel by one rank with as many threads as there are ranks (the reference of all ratios), the same without an
engine and in stages 1 to 3 (what the engine costs where there is nothing to share), keel by the ranks with one thread
each in the stages asked for, and each peer, PyTorch's DistributedDataParallel over gloo, by as many ranks. A ratio is the
median over the rounds of contestant's time / reference's time: below 1 is faster. See bench/compare_training.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

from compare_training import HERE, Contestant, race_of

LAUNCH = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--quiet"]


def contestants(options):
    shared = ["--setting", options.setting, "--dtype", options.dtype, "--serve"]
    alone = [options.keel, *shared, "--threads", str(options.ranks)]
    yield Contestant("keel alone", alone)
    yield Contestant("keel alone, no engine", [*alone, "--stage", "-1"])
    for stage in (1, 2, 3):
        yield Contestant(f"keel alone, stage {stage}", [*alone, "--stage", str(stage)])
    for stage in options.stages:
        ranks = [*LAUNCH, "-n", str(options.ranks), options.keel, *shared, "--threads", "1", "--mpi"]
        yield Contestant(f"keel {options.ranks} ranks, stage {stage}", [*ranks, "--stage", str(stage)])
    for peer in options.peer:
        python, *flags = peer.split(":")
        command = [python, os.path.join(HERE, "peers", "train_gpt_ddp.py"), *shared, "--threads", "1"]
        command += ["--ranks", str(options.ranks), *(f"--{flag}" for flag in flags)]
        version = subprocess.run(
            [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
        ).stdout.strip()
        yield Contestant(" ".join([f"torch-{version} DDP, {options.ranks} ranks", *flags]), command)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keel", default="build/bench_train")
    parser.add_argument("--setting", choices=["a", "b", "c"], default="b")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--stages", type=int, nargs="*", default=[0, 2, 3])
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=60, help="of measuring")
    parser.add_argument("--sample", type=float, default=1, help="seconds of one turn")
    options = parser.parse_args()
    racing = race_of(list(contestants(options)), options)
    for contestant in racing:
        ratios = [theirs / alone for theirs, alone in zip(contestant.samples, racing[0].samples)]
        line = {
            "setting": options.setting,
            "dtype": options.dtype,
            "contestant": contestant.name,
            "rounds": len(ratios),
            "step_seconds": round(statistics.median(contestant.samples), 6),
            "of_reference": round(statistics.median(ratios), 4),
            "lowest": round(min(ratios), 4),
            "highest": round(max(ratios), 4),
        }
        print(json.dumps(line), flush=True)
        print(
            f"{contestant.name:44} {1e3 * line['step_seconds']:9.2f} ms"
            f"  x{line['of_reference']:.3f} ({line['lowest']:.3f}-{line['highest']:.3f})",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    main()
