#!/usr/bin/env python3
"""Races keel's all-reduce against MPI_Allreduce and PyTorch's gloo on this machine: one table.

usage: compare_comm.py BENCH_COMM [--python PYTHON] [--ranks N,...] [--rounds R] [--seconds S] [--sizes BYTES,...]
       [--json]

In each round bench_comm (keel and MPI, interleaved) and peers/gloo_allreduce.py run after each other; figures are
medians over rounds, ratios those of the rounds. Above 1, keel over MPI is faster. PYTHON needs PyTorch; without one
gloo's columns stay empty. The MPI launcher is $MPIEXEC or mpirun.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

# Also as root, also with more ranks than cores. Where process_vm_readv is forbidden, Open MPI needs
# OMPI_MCA_btl_vader_single_copy_mechanism=none in the environment, too.
LAUNCH = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
NAMES = ["keel", "own", "messages", "threads", "mpi", "gloo", "floor"]


def lines(command):
    environment = {**LAUNCH, "OMP_NUM_THREADS": "1", **os.environ}
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]


def one_round(arguments, ranks):
    options = ["--json", "--seconds", str(arguments.seconds), "--sizes", arguments.sizes]
    launcher = os.environ.get("MPIEXEC", "mpirun")
    found = lines([launcher, "-n", str(ranks), arguments.bench_comm, *options])
    if arguments.python:
        script = str(Path(__file__).parent / "peers" / "gloo_allreduce.py")
        found += lines([arguments.python, script, "--ranks", str(ranks), *options])
    times = {}
    for line in found:
        cell = times.setdefault((line["dtype"], line["bytes"]), {})
        cell.update({name: line[f"{name}_us"] for name in NAMES if f"{name}_us" in line})
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench_comm")
    parser.add_argument("--python", help="one that has PyTorch")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--sizes", default="24,1000,16384,262144,1048576,26214400")
    parser.add_argument("--json", action="store_true", help="one object a row")
    arguments = parser.parse_args()
    if not arguments.json:
        columns = "".join(f"{name + ' us':>13}" for name in NAMES)
        print(f"ranks dtype      bytes{columns} {'MPI/keel':>9} {'gloo/keel':>9} {'floor/keel':>10}")
    for ranks in map(int, arguments.ranks.split(",")):
        rounds = [one_round(arguments, ranks) for _ in range(arguments.rounds)]
        for dtype, size in rounds[0]:
            cells = [times[dtype, size] for times in rounds]
            row = {name: statistics.median(c[name] for c in cells) for name in NAMES if name in cells[0]}
            ratio = {n: statistics.median(c[n] / c["keel"] for c in cells) for n in ("mpi", "gloo", "floor") if n in row}
            if arguments.json:
                print(json.dumps({"ranks": ranks, "dtype": dtype, "bytes": size, "us": row, "over_keel": ratio}))
            else:
                shown = "".join(f"{row[n]:13.1f}" if n in row else f"{'':13}" for n in NAMES)
                gloo = f"{ratio['gloo']:9.2f}" if "gloo" in ratio else " " * 9
                print(f"{ranks:<5} {dtype:<5} {size:>10}{shown} {ratio['mpi']:9.2f} {gloo} {ratio['floor']:10.2f}")
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
