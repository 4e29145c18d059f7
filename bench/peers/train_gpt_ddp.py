#!/usr/bin/env python3
"""The steps of train_gpt.py by several ranks: PyTorch's DistributedDataParallel over gloo, on this machine.

  train_gpt_ddp.py --ranks 2 --setting b --dtype bf16 --threads 1 --serve

Each rank is a process with its rows of the batch. The first one answers requests as train_gpt.py does, and passes them
on. --compress sends gradients as bf16 (PyTorch's bf16_compress_hook); without it they travel as fp32.
"""

import argparse
import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import common
import train_gpt


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Trainer(train_gpt.Trainer):
    """One rank's part of each step."""

    def __init__(self, config, options, next_batch):
        super().__init__(train_gpt.seeded_gpt(config, options), options, next_batch)
        self.model = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        if options.compress:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            self.model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        self.forward = torch.compile(self.model) if options.compile else self.model

    def step(self):
        """The request of the first rank is for all."""
        if dist.get_rank() == 0:
            dist.broadcast(torch.ones(1, dtype=torch.int64), 0)
        super().step()

    def follow(self):
        go_on = torch.ones(1, dtype=torch.int64)
        while True:
            dist.broadcast(go_on, 0)
            if not go_on.item():
                return
            super().step()


def own_rows(batch, rank, ranks):
    rows = batch[0].shape[0]
    first, last = rank * rows // ranks, (rank + 1) * rows // ranks
    mine = tuple(part[first:last].contiguous() for part in batch)
    return lambda: mine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--setting", choices=sorted(train_gpt.SETTINGS), default="b")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--compress", action="store_true")
    parser.add_argument("--serve", action="store_true", required=True)
    options = parser.parse_args()

    others = []
    if "RANK" not in os.environ:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(options.ranks))
        for rank in range(1, options.ranks):
            environment = {**os.environ, "RANK": str(rank)}
            others.append(subprocess.Popen([sys.executable, *sys.argv], env=environment, stdin=subprocess.DEVNULL))
        os.environ["RANK"] = "0"
    common.set_threads(options.threads)
    dist.init_process_group("gloo")
    config = train_gpt.SETTINGS[options.setting]
    batch = own_rows(train_gpt.random_batch(config, options.seed)(), dist.get_rank(), options.ranks)
    trainer = Trainer(config, options, batch)
    if dist.get_rank() == 0:
        for _ in range(3):
            trainer.step()
        train_gpt.serve(trainer)
        dist.broadcast(torch.zeros(1, dtype=torch.int64), 0)
    else:
        trainer.follow()
    dist.destroy_process_group()
    for other in others:
        other.wait()


if __name__ == "__main__":
    main()
