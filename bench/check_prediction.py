#!/usr/bin/env python3
"""Holds what keel predicts for more ranks against those ranks: one table.

usage: check_prediction.py KEEL [--calibrate N,...] [--predict N] [--algorithms NAMES] [--strategies NAMES]
       [--delay US] [--bandwidth SIZE] [--steps N] [--fail-above PERCENT]

All ranks are processes of this machine, and their network is slowed, so that what they wait for is the network and not
each other's turn on a processor. `keel comm` measures on the smaller numbers of ranks; a training on the largest of those
tells what a step computes and waits for. From these alone `keel comm --predict` and `keel plan --predict` say what more
ranks will take; then those are started, too. A ratio is measured over predicted.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from compare_backend import LAUNCH

COLLECTIVES = {"ddp": ["all_reduce"], "zero1": ["reduce_scatter", "all_gather"]}
CONFIG = """
run: {run}
steps: {steps}
model: {{layers: 2, heads: 4, width: 128, block: 10}}
data: {{type: addition, digits: 2}}
batch: {{global: {rows}, micro: 1}}
sharding: {{algorithm: {algorithm}}}
strategy: {strategy}
log: {{every: 1}}
eval: {{every: 0}}
threads: 1
"""


class Laboratory:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        network = {"--delay": arguments.delay, "--bandwidth": arguments.bandwidth}
        self.network = [f"{option}={value}" for option, value in network.items() if value]

    def keel(self, *words):
        environment = {**LAUNCH, "OMPI_MCA_mpi_yield_when_idle": "1", **os.environ}
        answer = subprocess.run([self.arguments.keel, *words], cwd=self.folder, env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if answer.returncode != 0:
            sys.exit(f"keel {' '.join(words)} ended with {answer.returncode}:\n{answer.stdout}{answer.stderr}")
        return answer.stdout

    def measure(self, collective, algorithm, ranks, dtype="f32", sizes=("64K", "4M")):
        """The file of `keel comm`."""
        name = f"{collective}-{algorithm}-{dtype}-{ranks}.json"
        if not os.path.exists(os.path.join(self.folder, name)):
            self.keel("comm", collective, f"-N={ranks}", f"--algorithms={algorithm}", f"--dtype={dtype}",
                      f"--begin={sizes[0]}", f"--end={sizes[1]}", "--factor=4", "--no-check", "--iters=9", "--warmup=2",
                      f"--json={name}", *self.network)
        return name

    def times_of(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            records = json.load(file)["records"]
        return {each["bytes"]: (each.get("out_of_place") or each["in_place"])["p50_us"] / 1e3 for each in records}

    def train(self, config, ranks, run):
        """Milliseconds of a step, the first apart."""
        self.keel("launch", f"-N={ranks}", self.arguments.keel, "train", config, f"run={run}", *self.network)
        with open(os.path.join(self.folder, run, "metrics.jsonl"), encoding="utf-8") as file:
            steps = [each["step_ms"] for each in map(json.loads, file) if "step_ms" in each]
        return statistics.median(steps[1:])


def collective_rows(laboratory, algorithm, collective, arguments):
    """(bytes, predicted, low, high, measured)"""
    files = [laboratory.measure(collective, algorithm, n) for n in arguments.calibrate]
    measured = laboratory.times_of(laboratory.measure(collective, algorithm, arguments.predict))
    for line in laboratory.keel("comm", "--from=" + ",".join(files), f"--predict={arguments.predict}").splitlines():
        if not line.startswith("#"):
            size, _, _, *predicted = map(float, line.split())
            yield int(size), *(each / 1e3 for each in predicted), measured[size]


def step_row(laboratory, strategy, algorithm, arguments):
    largest = max(arguments.calibrate)
    config = f"{strategy}-{algorithm}.yaml"
    run = f"{strategy}-{algorithm}"
    with open(os.path.join(laboratory.folder, config), "w", encoding="utf-8") as file:
        file.write(CONFIG.format(run=f"{run}-{largest}", steps=arguments.steps, rows=arguments.predict,
                                 algorithm=algorithm, strategy=strategy))
    collectives = COLLECTIVES["ddp" if strategy.startswith("ddp") else "zero1"]
    files = [laboratory.measure(each, algorithm, n) for each in collectives for n in arguments.calibrate]
    files += [laboratory.measure("all_gather", algorithm, n, "u8", ("64", "1K")) for n in arguments.calibrate]
    laboratory.train(config, largest, f"{run}-{largest}")
    plan = json.loads(laboratory.keel("plan", config, "--json", f"--strat={strategy}", f"--predict={arguments.predict}",
                                      "--from=" + ",".join(files)))
    measured = laboratory.train(config, arguments.predict, f"{run}-{arguments.predict}")
    return plan["predictions"][0], measured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keel")
    parser.add_argument("--calibrate", default="2,4,8", help="numbers of ranks")
    parser.add_argument("--predict", type=int, default=16)
    parser.add_argument("--algorithms", default="ring,rhd,ordered")
    parser.add_argument("--strategies", default="ddp-fp32,zero1-fp32")
    parser.add_argument("--delay", default="500", help="microseconds of a message")
    parser.add_argument("--bandwidth", default="20M", help="bytes a second of a rank")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--fail-above", type=float, metavar="PERCENT", help="exit 1 where a prediction is further off")
    arguments = parser.parse_args()
    arguments.keel = os.path.abspath(arguments.keel)
    arguments.calibrate = [int(n) for n in arguments.calibrate.split(",")]
    print(f"{'what':<36} {'predicted ms':>12} {'low':>9} {'high':>9} {'measured ms':>12} {'ratio':>6}")
    errors = []

    def show(what, predicted, low, high, measured):
        ratio = measured / predicted
        errors.append(abs(ratio - 1))
        print(f"{what:<36} {predicted:>12.2f} {low:>9.2f} {high:>9.2f} {measured:>12.2f} {ratio:>6.3f}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        laboratory = Laboratory(arguments, folder)
        for algorithm in arguments.algorithms.split(","):
            for collective in sorted({each for names in COLLECTIVES.values() for each in names}):
                for size, *row in collective_rows(laboratory, algorithm, collective, arguments):
                    show(f"{collective}, {algorithm}, {size >> 10} KiB", *row)
            for strategy in arguments.strategies.split(","):
                prediction, measured = step_row(laboratory, strategy, algorithm, arguments)
                show(f"step, {strategy}, {algorithm}", prediction["step_ms"], prediction["low_ms"],
                     prediction["high_ms"], measured)
    print(f"predictions are {100 * statistics.median(errors):.1f}% off in the median, {100 * max(errors):.1f}% at most")
    return int(arguments.fail_above is not None and max(errors) > arguments.fail_above / 100)


if __name__ == "__main__":
    sys.exit(main())
