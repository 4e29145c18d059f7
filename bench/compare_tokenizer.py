#!/usr/bin/env python3
"""keel's tokenizers against the Tokenizers library and tiktoken: the lines of a text, one thread, interleaved in one run.

  compare_tokenizer.py TEXT --peer PYTHON --tokenizer TOKENIZER.json [--tiktoken FOLDER] [--seconds 20]

All must give as many tokens. Rounds and ratios are those of compare_training.py: above 1 keel is the faster one. Output:
one JSON object for each contestant, and a line on standard error.
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
    parser.add_argument("text")
    parser.add_argument("--keel", default="build/bench_tokenizer", help="the benchmark program of keel")
    parser.add_argument("--peer", required=True, help="a Python interpreter that has tokenizers and tiktoken")
    parser.add_argument("--tokenizer", required=True, help="tokenizer.json")
    parser.add_argument("--tiktoken", help="a folder with the encoder.json and vocab.bpe of that tokenizer")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--sample", type=float, default=0.5, help="seconds of each contestant in a round")
    options = parser.parse_args()
    script = os.path.join(HERE, "peers", "tokenizer.py")
    racing = [
        compare_training.Contestant("keel, ids", [options.keel, options.tokenizer, options.text, "ids"]),
        compare_training.Contestant("keel, offsets", [options.keel, options.tokenizer, options.text, "offsets"]),
        compare_training.Contestant("tokenizers", [options.peer, script, "tokenizers", options.tokenizer, options.text]),
    ]
    if options.tiktoken:
        command = [options.peer, script, "tiktoken", options.tiktoken, options.text]
        racing.append(compare_training.Contestant("tiktoken", command))
    racing = compare_training.race_of(racing, options)
    counts = {contestant.name: contestant.answer["tokens"] for contestant in racing}
    if len(set(counts.values())) != 1:
        sys.exit(f"they do not give as many tokens: {counts}")
    keel = {contestant.name: contestant for contestant in racing}
    for contestant in racing:
        line = {
            "contestant": contestant.name,
            "rounds": len(contestant.samples),
            "tokens": contestant.answer["tokens"],
            "mb_per_second": round(1e-6 * contestant.answer["bytes"] / statistics.median(contestant.samples), 2),
        }
        for name in ("keel, ids", "keel, offsets"):
            ratios = [theirs / ours for theirs, ours in zip(contestant.samples, keel[name].samples)]
            line[name] = {
                "faster_by": round(statistics.median(ratios), 3),
                "lowest": round(min(ratios), 3),
                "highest": round(max(ratios), 3),
            }
        print(json.dumps(line), flush=True)
        ids, offsets = line["keel, ids"], line["keel, offsets"]
        print(
            f"{contestant.name:14} {line['mb_per_second']:8.2f} MB/s  keel x{ids['faster_by']:.2f}"
            f" ({ids['lowest']:.2f}-{ids['highest']:.2f}), with offsets x{offsets['faster_by']:.2f}",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    main()
