#!/usr/bin/env python3
"""Times PyTorch's all-reduce by gloo among processes of this machine, as bench_comm does keel's.

usage: gloo_allreduce.py [--ranks N] [--seconds S] [--sizes BYTES,...] [--json]

The time of a call is the slowest rank's mean over a batch of calls, its median over batches.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = [24, 1000, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def timed(calls, x):
    """Seconds of a call on the slowest rank."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x)
    taken = torch.tensor([(time.perf_counter() - start) / calls], dtype=torch.float64)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    return taken.item()


def rows(rank, arguments, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=arguments.ranks)
    for name, dtype in DTYPES.items():
        for size in arguments.sizes:
            x = torch.zeros(size // dtype.itemsize, dtype=dtype)
            timed(2, x)
            calls = max(1, int(0.01 / timed(2, x)))
            samples = []
            while len(samples) < 5 or sum(samples) * calls < arguments.seconds:
                samples.append(timed(calls, x))
            if rank == 0:
                report(arguments, name, size, samples)
    dist.destroy_process_group()


def report(arguments, dtype, size, samples):
    microseconds = statistics.median(samples) * 1e6
    if arguments.json:
        line = {"ranks": arguments.ranks, "dtype": dtype, "bytes": size, "gloo_us": microseconds}
        print(json.dumps(line | {"rounds": len(samples), "torch": torch.__version__}), flush=True)
    else:
        print(f"{dtype:<6} {size:>9} {microseconds:>12.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each size and dtype")
    parser.add_argument("--sizes", type=lambda text: [int(x) for x in text.split(",")], default=SIZES)
    parser.add_argument("--json", action="store_true", help="one object a line")
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{'dtype':<6} {'bytes':>9} {'gloo us':>12}", flush=True)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rows, args=(arguments, os.path.join(folder, "store")), nprocs=arguments.ranks)


if __name__ == "__main__":
    sys.exit(main())
