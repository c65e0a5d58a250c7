"""Four real Gloo ranks for each way to hang, and the dump of every rank: `python gloo_ranks.py DIR KIND...`."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

RANKS = 4
QUIET_S = 1.5


def train(kind: str, rank: int, here: Path) -> None:
    """Make a few steps, then hang in the way that is asked for."""
    import torch
    import torch.distributed as dist

    pairs = [dist.new_group(ranks, group_desc="pair") for ranks in ([0, 1], [2, 3])]
    pair = pairs[rank // 2]
    for _ in range(3):
        dist.all_reduce(torch.ones(8))
        dist.broadcast(torch.ones(4), 0)
        dist.all_reduce(torch.ones(2), group=pair)
    (here / f"about-{rank}").touch()
    odd = rank == 2
    if kind == "stall" and odd:
        time.sleep(600)  # as a data loader that gets nothing
    if kind == "left-out" and odd:
        dist.broadcast(torch.ones(4), 0)
    if kind == "collective" and odd:
        dist.broadcast(torch.ones(8), 0)
    if kind == "size":
        dist.all_reduce(torch.ones(9 if odd else 8))
    if kind == "dtype":
        dist.all_reduce(torch.ones(8, dtype=torch.float64 if odd else torch.float32))
    if kind == "order":
        if odd:
            dist.all_reduce(torch.ones(8))
        dist.all_reduce(torch.ones(2), group=pair)
    if kind == "transfer":
        dist.send(torch.ones(2), 1) if rank == 0 else None
        dist.recv(torch.ones(2), 0) if rank == 1 else None
        dist.all_reduce(torch.ones(8))
        dist.recv(torch.ones(2), 3) if odd else None
    dist.all_reduce(torch.ones(8))


def rank_of(kind: str, rank: int, folder: Path) -> None:
    """Be one rank; what it calls may never end, so another thread dumps."""
    import torch._C._distributed_c10d as c10d
    import torch.distributed as dist

    here = folder / f".{kind}"
    dist.init_process_group("gloo", init_method=f"file://{here}/store", rank=rank, world_size=RANKS)

    def dump() -> None:
        while len(list(here.glob("about-*"))) < RANKS:
            time.sleep(0.05)
        size, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET_S:
            now = len(c10d._dump_fr_trace_json())
            if now != size:
                size, since = now, time.monotonic()
            time.sleep(0.1)
        for name, data in (("pkl", c10d._dump_fr_trace()), ("json", c10d._dump_fr_trace_json())):
            target = folder / f"{kind}-{name}" / f"rank-{rank}.{name}"
            target.write_bytes(data)
        (here / f"dumped-{rank}").touch()
        while len(list(here.glob("dumped-*"))) < RANKS:
            time.sleep(0.05)
        os._exit(0)

    thread = threading.Thread(target=dump)
    thread.start()
    try:
        train(kind, rank, here)
    except RuntimeError as error:
        print(f"{kind} {rank}: {error}", file=sys.stderr, flush=True)
    thread.join()


def main(folder: Path, kinds: list[str]) -> None:
    import torch._inductor  # once, before ranks are forked: the recorder imports it for its first dump
    import torch.distributed

    assert torch.distributed.is_gloo_available()
    children = {}
    for kind in kinds:
        for name in (f".{kind}", f"{kind}-pkl", f"{kind}-json"):
            (folder / name).mkdir()
        for rank in range(RANKS):
            child = os.fork()
            if child == 0:
                rank_of(kind, rank, folder)
                os._exit(1)
            children[child] = folder / f".{kind}" / f"dumped-{rank}"
    while children:
        child, _ = os.wait()
        children.pop(child).touch()  # Gloo ends a process that gets more than it expects


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
