#!/usr/bin/env python3
"""Holds `keel comm all_reduce --algorithms backend` against the same loop in plain MPI: one table.

usage: compare_backend.py KEEL BENCH_MPI_ALLREDUCE [--ranks N,...] [--sizes BYTES,...] [--rounds R] [--calls N] [--json]
       [--fail-above PERCENT]

Both call MPI_Allreduce of the same library with the same launcher, back to back, with the clock around each call, and so
many timed calls after as many again to warm up. They take turns, and who begins changes from round to round, since what
else a machine does would otherwise hit one of them more. Times are means over calls and ranks, medians over rounds; the
ratio is the median over rounds of keel's time over plain MPI's in the same round, and the range that holds the middle
half of those ratios stands beside it. "single us" is plain MPI started with MPI_THREAD_SINGLE, which a program with
threads may not ask for: what MPI's own locks cost, for either. On a machine that does other things, too, these say little: "quietest" is the
ratio of the smallest first quartile of calls of any round. The launcher is $MPIEXEC or mpirun.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

# Also as root, also with more ranks than cores. Where process_vm_readv is forbidden, Open MPI needs
# OMPI_MCA_btl_vader_single_copy_mechanism=none in the environment, too.
LAUNCH = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMP_NUM_THREADS": "1",
}


def run(ranks, words):
    launcher = os.environ.get("MPIEXEC", "mpirun")
    environment = {**LAUNCH, **os.environ}
    if ranks > os.cpu_count():
        environment.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    answer = subprocess.run([launcher, "-n", str(ranks), *words], env=environment, stdout=subprocess.PIPE, text=True,
                            check=True)
    return answer.stdout


def plain(arguments, ranks, size, *level):
    calls = str(arguments.calls)
    found = json.loads(run(ranks, [arguments.bench, str(size), calls, calls, *level]).splitlines()[-1])
    return found["mean_us"], found["p25_us"]


def single(arguments, ranks, size):
    return plain(arguments, ranks, size, "single")


def keel(arguments, ranks, size):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keel.json")
        run(ranks, [arguments.keel, "comm", "all_reduce", "--algorithms=backend", f"--begin={size}", f"--end={size}",
                    f"--iters={arguments.calls}", f"--warmup={arguments.calls}", "--json=" + path])
        with open(path, encoding="utf-8") as file:
            timing = json.load(file)["records"][0]["out_of_place"]
    return timing["time_us"], timing["p25_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("keel")
    parser.add_argument("bench", help="bench_mpi_allreduce")
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--sizes", default="8,1024,32768,1048576,16777216")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1000, help="of sizes up to 64 KiB; fewer of larger ones")
    parser.add_argument("--json", action="store_true", help="one object a row")
    parser.add_argument("--fail-above", type=float, metavar="PERCENT", help="exit 1 where a ratio of means is larger")
    arguments = parser.parse_args()
    most_calls = arguments.calls
    if not arguments.json:
        print(f"{'ranks':>5} {'bytes':>10} {'single us':>10} {'MPI us':>10} {'keel us':>10} {'keel/MPI':>9} {'middle half':>15}"
              f" {'quietest':>9}")
    worst = 0.0
    for ranks in map(int, arguments.ranks.split(",")):
        for size in map(int, arguments.sizes.split(",")):
            arguments.calls = max(20, min(most_calls, most_calls * 65536 // size))
            mean, times, quartiles = [], {plain: [], keel: [], single: []}, {plain: [], keel: [], single: []}
            for turn in range(arguments.rounds):
                order = (single, plain, keel) if turn % 2 == 0 else (single, keel, plain)
                now = {contestant: contestant(arguments, ranks, size) for contestant in order}
                for contestant, found in now.items():
                    times[contestant].append(found[0])
                    quartiles[contestant].append(found[1])
                mean.append(now[keel][0] / now[plain][0])
            low, middle, high = statistics.quantiles(mean, n=4) if len(mean) > 1 else mean * 3
            worst = max(worst, middle)
            row = {"ranks": ranks, "bytes": size, "mpi_single_us": statistics.median(times[single]), "mpi_us": statistics.median(times[plain]),
                   "keel_us": statistics.median(times[keel]), "ratio": middle, "ratio_low": low, "ratio_high": high,
                   "ratio_of_quietest": min(quartiles[keel]) / min(quartiles[plain]), "rounds": arguments.rounds, "calls": arguments.calls}
            if arguments.json:
                print(json.dumps(row))
            else:
                print(f"{ranks:>5} {size:>10} {row['mpi_single_us']:>10.2f} {row['mpi_us']:>10.2f} {row['keel_us']:>10.2f} {middle:>9.3f}"
                      f" {low:>7.3f}-{high:<7.3f} {row['ratio_of_quietest']:>9.3f}")
            sys.stdout.flush()
    if arguments.fail_above is not None and worst > 1 + arguments.fail_above / 100:
        print(f"keel costs {100 * (worst - 1):.1f}% more than plain MPI at worst", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
