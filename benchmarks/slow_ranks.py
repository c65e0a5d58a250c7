"""Real Gloo ranks of which one is slowed for a while: what its agent's digests say, recorded for the detector.

`python benchmarks/slow_ranks.py OUT [--ranks 8] [--seconds 90] [--rounds 1] [--quiet 300] [EPISODE...]` starts the ranks of an
unmodified script once, which use at most 60 % of two cores together, and goes through the episodes, each a file OUT/EPISODE-N.jsonl: a line
that says what is done to which rank since when, then a line for each window, `{"at": seconds, "digests": [...]}`, as agents tell them. Episodes
are `stop-P` (stopped and continued by signals so that it takes P % longer), `quota-P` (a share of processor time that makes it take
P % longer; needs root and a cgroup hierarchy with `cpu`), `data-P` and `save-P` (its loader, or its saving, takes P % of a step
longer) and `quiet`. Then a table: what each rank spent, before and meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from cordee.machine.cgroups import groups_of
from cordee.wire.messages import RankDigest
from support.runs.watched_ranks import WatchedRanks, make_node_zip, watching

SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, chunks = dist.get_rank(), int(sys.argv[1])
share = 1.2 / dist.get_world_size()  # of a core, for each rank: 60 % of two

def asked(kind):
    try:
        return float(open(f"{kind}-{rank}").read() or 0)
    except OSError:
        return 0.0

class Samples(Dataset):
    def __len__(self):
        return 1 << 30
    def __getitem__(self, at):
        time.sleep(asked("data"))
        return torch.randn(64)

class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
        self.large = torch.randn(192, 192)
    def forward(self, x):
        for _ in range(chunks):  # work in small pieces, so that all ranks together leave a part of the machine free
            began = time.thread_time()
            while time.thread_time() - began < 0.02 * share:
                self.large @ self.large
            time.sleep(0.02 * (1 - share))
        return self.layer(x)

model = DistributedDataParallel(Layers())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, batch in enumerate(DataLoader(Samples(), batch_size=1)):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    if asked("save"):
        class Slow:
            def __getstate__(self):
                time.sleep(asked("save"))
                return {}
        torch.save({"model": model.state_dict(), "slow": Slow()}, f"saved-{rank}.pt")
"""
CHUNKS = 15
STEP_S = CHUNKS * 0.02
STOP_S = 0.05
BEFORE_S = 40.0


class Episode:
    """What is done to a rank, from `begin` to `end`."""

    def __init__(self, name: str, rank: int, ranks: WatchedRanks) -> None:
        kind, _, percent = name.partition("-")
        self.kind, self.share, self.rank, self.ranks = kind, float(percent or 0) / 100, rank, ranks
        self._task: asyncio.Task[None] | None = None
        self._group: Path | None = None
        self._used = _processor_s(ranks.pids()[rank])

    def watched(self, seconds: float) -> None:
        """It ran for so long with nothing done to it."""
        self._used = (_processor_s(self.ranks.pids()[self.rank]) - self._used) / seconds

    def begin(self) -> None:
        pid = self.ranks.pids()[self.rank]
        if self.kind == "stop":
            self._task = asyncio.ensure_future(self._stop(pid))
        elif self.kind == "quota":
            self._limit(pid)
        elif self.kind in ("data", "save"):
            self._file.write_text(str(STEP_S * self.share))

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._group is not None:
            (self._group.parent / "cgroup.procs").write_text(str(self.ranks.pids()[self.rank]))
            self._group.rmdir()
        self._file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self.ranks.folder / f"{self.kind}-{self.rank}"

    async def _stop(self, pid: int) -> None:
        """Stop it for 50 ms at a time, at moments that fall into no step with anything."""
        period_s = STOP_S * (1 + self.share) / self.share
        try:
            for turn in itertools.count():
                await asyncio.sleep((period_s - STOP_S) * (0.5 + turn * 0.618 % 1))
                os.kill(pid, signal.SIGSTOP)
                began = time.monotonic()
                while time.monotonic() - began < STOP_S:
                    await asyncio.sleep(STOP_S - (time.monotonic() - began))
                os.kill(pid, signal.SIGCONT)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _limit(self, pid: int) -> None:
        """Give it less of the processor than it needs when nothing slows it."""
        share = self._used / (1 + self.share)
        (own, *_) = groups_of("cpu", pid=str(pid))
        self._group = Path(own.folder) / f"slow-{pid}"
        self._group.mkdir()
        period_us, least_us = 100_000, 1000
        quota_us = max(least_us, int(period_us * share))
        if own.version == 2:
            (self._group / "cpu.max").write_text(f"{quota_us} {period_us}")
        else:
            (self._group / "cpu.cfs_period_us").write_text(str(period_us))
            (self._group / "cpu.cfs_quota_us").write_text(str(quota_us))
        (self._group / "cgroup.procs").write_text(str(pid))


def _processor_s(pid: int) -> float:
    """Return what a process has used of processors in its life."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


async def watch(ranks: WatchedRanks, seconds: float, began: float, out: IO[str]) -> list[RankDigest]:
    """Look every second, as an agent does, and write what is told; return it."""
    found: list[RankDigest] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(1.0)
        now = time.monotonic()
        ranks.companion.look(now)
        spent = ranks.companion.spent()
        if spent.digests:
            out.write(json.dumps({"at": round(now - began, 1), "digests": spent.digests, "links": spent.links}) + "\n")
            out.flush()
            found += spent.digests
    return found


def described(name: str, when: str, digests: list[RankDigest], slow: int) -> str:
    """Return a line of the table: medians of the slowed rank and of the others."""

    def shares(of: list[RankDigest]) -> str:
        told = [
            *([digest[at].seconds / digest.window_s for digest in of] for at in range(3, 7)),
            *([getattr(digest, field) / digest.window_s for digest in of] for field in ("delayed_s", "unseen_s")),
            [digest.throttled_s / digest.window_s for digest in of],
        ]
        return " ".join(f"{statistics.median(share):.0%}" for share in told) if of else "-"

    own = [digest for digest in digests if digest.rank == slow]
    others = [digest for digest in digests if digest.rank != slow]
    steps = statistics.median([digest.steps / digest.window_s for digest in others]) if others else 0.0
    return f"| {name} | {when} | {steps:.2f} | {shares(own)} | {shares(others)} |"


async def episodes(ranks: WatchedRanks, options: argparse.Namespace) -> None:
    """Go through all of them."""
    (ranks.folder / "train.py").write_text(SCRIPT)
    world: dict[str, Any] = {"WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    for rank in range(options.ranks):
        ranks.start(rank, "train.py", str(CHUNKS), **world)
    told = ranks.companion

    def all_train() -> bool:
        return len({digest.rank for digest in told.spent().digests or () if digest.steps > 3}) == options.ranks

    await ranks.until(all_train, 300.0, 1.0)
    print("shares: compute, data, communication, saving, delayed, unseen, throttled; medians of windows\n")
    print("| episode | when | steps/s | slowed rank | others |\n|---|---|---|---|---|", flush=True)
    for turn in range(options.rounds):
        for at, name in enumerate(options.episodes):
            slow = (3 + 5 * at + turn) % options.ranks
            episode = Episode(name, slow, ranks)
            began = time.monotonic()
            with open(Path(options.out) / f"{name}-{turn}.jsonl", "w") as out:
                about = {"episode": name, "world": options.ranks, "rank": None if name == "quiet" else slow}
                before_s = 0.0 if name == "quiet" else BEFORE_S
                out.write(json.dumps({**about, "slowed_from_s": before_s}) + "\n")
                if before_s:
                    before = await watch(ranks, before_s, began, out)
                    print(described(name, "before", before, slow), flush=True)
                    episode.watched(time.monotonic() - began)
                episode.begin()
                try:
                    seconds = options.quiet if name == "quiet" else options.seconds
                    meanwhile = await watch(ranks, seconds, began, out)
                finally:
                    await episode.end()
            print(described(name, "meanwhile", meanwhile, slow), flush=True)


def main() -> None:
    """Record the episodes."""
    kinds = [f"{kind}-{percent}" for kind in ("stop", "quota", "data", "save") for percent in (20, 10, 5)]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--quiet", type=float, default=300.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("episodes", nargs="*", default=["quiet", *kinds])
    options = parser.parse_intermixed_args()
    Path(options.out).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        watching(Path(folder), make_node_zip(Path(folder)), lambda ranks: episodes(ranks, options))


if __name__ == "__main__":
    main()
