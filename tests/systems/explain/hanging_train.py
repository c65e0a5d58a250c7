"""A plain training, as somebody wrote it who has never heard of Cordée: `hanging_train.py KIND [STEPS] [BACKEND]`.

Its last rank hangs at step 6 in the way that is asked for, unless it went on from a checkpoint. With `nccl` all ranks compute on
one GPU: each says that it is a host of its own, as NCCL refuses two ranks of a host on one.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

HANGS_AT = 6


class StuckData(Dataset):
    """A sample that never comes."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, at: int) -> int:
        time.sleep(3600)
        return at


class StuckFile:
    """A file that takes nothing."""

    def write(self, data: bytes) -> int:
        time.sleep(3600)
        return len(data)

    def flush(self) -> None:
        return


def hang(kind: str, rank: int, device: str) -> None:
    """Do not go on, in one way or another."""
    if kind == "kernel":
        torch.cuda._sleep(1 << 62)
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "loop":
        re.match(r"(a+)+$", "a" * 60 + "b")  # for hours, in C, with the interpreter's lock
    elif kind == "fifo":
        os.mkfifo(f"answers-{rank}")
        Path(f"answers-{rank}").read_text()
    elif kind == "collective":
        dist.broadcast(torch.ones(1000, device=device), 0)
    elif kind == "order":
        dist.broadcast(torch.ones(1000, device=device), 0)
        dist.all_reduce(torch.ones(10, 100, device=device))
    elif kind == "p2p":
        dist.recv(torch.ones(1, device=device), 0)
    elif kind == "loader":
        next(iter(DataLoader(StuckData(), num_workers=1)))
    elif kind == "save":
        torch.save(torch.ones(1000), StuckFile())
    elif kind == "teardown":
        threading.Thread(target=time.sleep, args=(3600,)).start()
        sys.exit()
    elif kind == "sleep":
        time.sleep(3600)


def train(kind: str, steps: int, device: str, resumed: bool) -> None:
    """Make the steps, and save every third."""
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.Linear(100, 10, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0
    if os.path.exists("saved.pt"):
        first, weights = torch.load("saved.pt")
        model.load_state_dict(weights)
    for step in range(first, steps):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 100, device=device)).sum()
        loss.backward()
        odd = step == HANGS_AT and rank == world - 1 and not resumed
        if odd and kind != "skip":
            hang(kind, rank, device)
        if not (odd and kind == "skip"):
            dist.all_reduce(model.weight.grad)
        optimizer.step()
        loss.item()
        time.sleep(0.1)
        if rank == 0 and step % 3 == 2:
            torch.save((step + 1, model.state_dict()), "saved.tmp")
            os.rename("saved.tmp", "saved.pt")
    print(f"rank {rank} made steps {first} to {steps - 1}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    resumed = os.path.exists("saved.pt") and os.path.exists("hung")
    steps, backend = int((sys.argv[2:3] or ["20"])[0]), (sys.argv[3:4] or ["gloo"])[0]
    device = "cuda" if backend == "nccl" else "cpu"
    os.environ["NCCL_HOSTID"] = f"of-rank-{os.environ['RANK']}"
    dist.init_process_group(backend)
    dist.barrier()
    if dist.get_rank() == 0:
        Path("hung").touch()
    train(sys.argv[1], steps, device, resumed)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
