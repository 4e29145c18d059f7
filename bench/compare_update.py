#!/usr/bin/env python3
"""keel's AdamW against PyTorch's fused one: updates of GPT-2's 124 million fp32 weights, interleaved in one run.

  compare_update.py --peer PYTHON [--threads 2] [--seconds 30]

Rounds and ratios are those of compare_training.py: above 1 keel is the faster one. Output: one JSON object for each
contestant, and a line on standard error.
"""

import argparse
import json
import os
import statistics
import sys

import compare_training

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keel", default="build/bench_update", help="the benchmark program of keel")
    parser.add_argument("--peer", action="append", required=True, help="a Python interpreter that has PyTorch")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--sample", type=float, default=1, help="seconds of each contestant in a round")
    options = parser.parse_args()
    racing = [compare_training.Contestant("keel", [options.keel, str(options.threads)])]
    for python in options.peer:
        command = [python, os.path.join(HERE, "peers", "adamw.py"), str(options.threads)]
        racing.append(compare_training.Contestant(f"fused AdamW of {python}", command))
    racing = compare_training.race_of(racing, options)
    keel = racing[0]
    for contestant in racing:
        ratios = [theirs / ours for theirs, ours in zip(contestant.samples, keel.samples)]
        line = {
            "contestant": contestant.name,
            "rounds": len(ratios),
            "update_seconds": round(statistics.median(contestant.samples), 6),
            "keel_is_faster_by": round(statistics.median(ratios), 3),
            "lowest": round(min(ratios), 3),
            "highest": round(max(ratios), 3),
        }
        print(json.dumps(line), flush=True)
        print(
            f"{contestant.name:40} {1e3 * line['update_seconds']:8.1f} ms  keel x{line['keel_is_faster_by']:.2f}"
            f" ({line['lowest']:.2f}-{line['highest']:.2f})",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    main()
