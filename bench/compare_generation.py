#!/usr/bin/env python3
"""keel's generation against that of transformers: a GPT-2 of 124M random weights, greedy, interleaved in one run.

  compare_generation.py --peer PYTHON [--dtypes fp32 bf16] [--batches 1 8] [--prompt 32] [--tokens 64]

A sample is one call that reads the prompts and adds so many tokens to each. Ratios are those of compare_training.py:
above 1 keel is the faster one. Output: one JSON object for each contestant, and a line on standard error.
"""

import argparse
import json
import os
import statistics
import sys

import compare_training

HERE = os.path.dirname(os.path.abspath(__file__))


def race(options, dtype, batch):
    words = [dtype, str(batch), str(options.prompt), str(options.threads), str(options.layers)]
    peer = [options.peer, os.path.join(HERE, "peers", "generation.py"), *words]
    racing = [
        compare_training.Contestant("keel", [options.keel, *words]),
        compare_training.Contestant("transformers", peer),
    ]
    for contestant in racing:
        if contestant.step(options.tokens) is None:  # the warm-up
            sys.exit(f"{contestant.name} could not start")
    for _ in range(options.rounds):
        for contestant in racing:
            contestant.samples.append(contestant.step(options.tokens))
    for contestant in racing:
        contestant.close()
    for contestant in racing:
        ratios = [theirs / ours for theirs, ours in zip(contestant.samples, racing[0].samples)]
        line = {
            "dtype": dtype,
            "batch": batch,
            "contestant": contestant.name,
            "rounds": options.rounds,
            "tokens_per_s": round(batch / statistics.median(contestant.samples), 2),
            "keel_is_faster_by": round(statistics.median(ratios), 3),
            "lowest": round(min(ratios), 3),
            "highest": round(max(ratios), 3),
        }
        if contestant.answer["tokens"] != batch * options.tokens:
            sys.exit(f"{contestant.name} made {contestant.answer['tokens']} tokens")
        print(json.dumps(line), flush=True)
        print(
            f"{dtype} batch {batch}  {contestant.name:14} {line['tokens_per_s']:8.2f} tokens/s"
            f"  keel x{line['keel_is_faster_by']:.2f} ({line['lowest']:.2f}-{line['highest']:.2f})",
            file=sys.stderr,
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keel", default="build/bench_generation", help="the benchmark program of keel")
    parser.add_argument("--peer", required=True, help="a Python interpreter that has transformers")
    parser.add_argument("--dtypes", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--prompt", type=int, default=32, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=64, help="that are added to each")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for dtype in options.dtypes:
        for batch in options.batches:
            race(options, dtype, batch)


if __name__ == "__main__":
    main()
