"""A training that prints its losses as JSON and goes on: `observed_train.py with|without`; of a plain module, of DDP and of FSDP2."""

from __future__ import annotations

import json
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import cordee


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> float:
    """Make a step on made-up data, each rank its own."""
    optimizer.zero_grad()
    inputs = torch.randn(8, 32, generator=torch.Generator().manual_seed(seed * 2 + dist.get_rank()))
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    """Print the losses, then train on."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    losses = {}
    for kind in ("plain", "fsdp", "ddp"):
        torch.manual_seed(7)
        model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        if kind == "fsdp":
            fully_shard(model)
        elif kind == "ddp":
            model = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        if sys.argv[1] == "with":
            cordee.observe(model)
            cordee.observe(model)
        losses[kind] = [step(model, optimizer, seed) for seed in range(20)]
    print(json.dumps(losses), flush=True)
    while True:
        step(model, optimizer, 1)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
