"""Real Gloo ranks of which one is slowed for a while: what its agent's digests say is recorded, and replayed to the detector.

    python benchmarks/slow_ranks.py record OUT [--ranks 8] [--load 0.6] [--plain] [--seconds 90] [--turns 1] [--quiet 300] [--episodes EPISODE...]
    python benchmarks/slow_ranks.py replay [FILE...]

`record` starts the ranks of an unmodified script once, which use a share `--load` of two cores together, and goes through the episodes, each a file
OUT/EPISODE-N.jsonl.gz: see `Trace`. `--plain` runs tests/systems/explain/straggling_train.py instead, which mostly waits for its data. Episodes
are `stop-P` (stopped and continued by signals so that it takes P % longer), `quota-P` (a share of processor time that makes it take
P % longer; needs root and version 1 or 2 of a cgroup hierarchy with `cpu`; found by trying, from episode to episode), `data-P` and `save-P`
(its loader, or its saving, takes P % of a step longer) and `quiet`. Then a table: what each rank spent, before and meanwhile.

`replay` gives the recorded digests to the detector, without FILE those that are kept in tests/systems/explain/node/recorded: was the slowed
rank found within 60 s, with which cause, and who else was named for how long.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from cordee.machine.cgroups import groups_of
from cordee.wire.messages import RankDigest
from support.runs.slow_ranks import RECORDED, Replayed, Trace, replay
from support.runs.watched_ranks import WatchedRanks, make_node_zip, watching

SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, chunks = dist.get_rank(), int(sys.argv[1])
share = 2 * float(sys.argv[2]) / dist.get_world_size()  # of a core, for each rank

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
BEFORE_S, WITHIN_S = 40.0, 60.0
PLAIN = Path(__file__).parents[1] / "tests" / "systems" / "explain" / "straggling_train.py"


class Episode:
    """What is done to a rank, from `begin` to `end`.

    Args:
        scale: a quota is so many times what reckoning gives.
    """

    def __init__(self, name: str, rank: int, ranks: WatchedRanks, scale: float) -> None:
        self._scale = scale
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
        share = self._scale * self._used / (1 + self.share)
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


async def watch(ranks: WatchedRanks, seconds: float, began: float, trace: Trace) -> list[RankDigest]:
    """Look every second, as an agent does, and keep what is told; return it."""
    found: list[RankDigest] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(1.0)
        now = time.monotonic()
        ranks.companion.look(now)
        spent = ranks.companion.spent()
        if spent.digests:
            trace.rounds.append((now - began, list(spent.digests)))
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
    (ranks.folder / "train.py").write_text(PLAIN.read_text() if options.plain else SCRIPT)
    argv = ["1000000000"] if options.plain else [str(CHUNKS), str(options.load)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world: dict[str, Any] = {"WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for rank in range(options.ranks):
        ranks.start(rank, "train.py", *argv, **world)
    told = ranks.companion

    def all_train() -> bool:
        return len({digest.rank for digest in told.spent().digests or () if digest.steps > 3}) == options.ranks

    await ranks.until(all_train, 300.0, 1.0)
    print("shares: compute, data, communication, saving, delayed, unseen, throttled; medians of windows\n")
    print("| episode | when | steps/s | slowed rank | others |\n|---|---|---|---|---|", flush=True)
    scale = 1.0
    for turn in range(options.turns):
        for at, name in enumerate(options.episodes):
            slow = (3 + 5 * at + turn) % options.ranks
            episode = Episode(name, slow, ranks, scale)
            quiet = name == "quiet"
            trace = Trace(name, options.ranks, None if quiet else slow, 0.0 if quiet else BEFORE_S, [])
            began = time.monotonic()
            if not quiet:
                before = await watch(ranks, BEFORE_S, began, trace)
                print(described(name, "before", before, slow), flush=True)
                episode.watched(time.monotonic() - began)
            episode.begin()
            try:
                meanwhile = await watch(ranks, options.quiet if quiet else options.seconds, began, trace)
            finally:
                await episode.end()
                trace.write(Path(options.out) / f"{name}-{turn}.jsonl.gz")
            print(described(name, "meanwhile", meanwhile, slow), flush=True)
            if episode.kind == "quota":
                scale *= min(1.3, max(0.6, trace.longer() / (1 + episode.share)))


def replayed(paths: list[Path]) -> None:
    """Print what the detector says of recorded traces."""
    print(
        "| trace | ranks | slowed | steps took | stopped or throttled | found after s | as | slower by | innocents named, s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    all_found: list[Replayed] = []
    for path in paths:
        trace = Trace.read(path)
        found = replay(trace)
        all_found.append(found)
        slowed = ["-"] * 3 if trace.rank is None else [str(trace.rank), f"{trace.longer():.2f}", f"{trace.held():.0%}"]
        first = found.first
        told = (
            ["-"] * 3
            if first is None
            else [f"{found.after_s:.0f}", f"{first.cause.kind} {first.cause.how}".strip(), f"{first.slower:.0%}"]
        )
        innocent = ", ".join(f"{rank}: {seconds:.0f}" for rank, seconds in sorted(found.innocent_s.items())) or "-"
        print("|", " | ".join([path.name.partition(".")[0], str(trace.world), *slowed, *told, innocent]), "|")
    slowed_ones = [one for one in all_found if one.trace.slowed()]
    in_time = sum(one.after_s <= WITHIN_S for one in slowed_ones)
    hours = sum(one.rank_hours for one in all_found)
    alarms, alarm_s = sum(one.alarms for one in all_found), sum(sum(one.innocent_s.values()) for one in all_found)
    print(
        f"\nfound within {WITHIN_S:.0f} s: {in_time} of {len(slowed_ones)}; {alarms} false alarms, {alarm_s / 3600:.2f} h in all, in {hours:.1f} rank-hours"
    )


def main() -> None:
    """Record the episodes, or replay them."""
    kinds = [f"{kind}-{percent}" for kind in ("stop", "quota", "data", "save") for percent in (20, 10, 5)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    record = commands.add_parser("record")
    record.add_argument("out")
    record.add_argument("--ranks", type=int, default=8)
    record.add_argument("--load", type=float, default=0.6)
    record.add_argument("--plain", action="store_true")
    record.add_argument("--seconds", type=float, default=90.0)
    record.add_argument("--quiet", type=float, default=300.0)
    record.add_argument("--turns", type=int, default=1)
    record.add_argument("--episodes", nargs="+", default=["quiet", *kinds])
    again = commands.add_parser("replay")
    again.add_argument("files", nargs="*", type=Path, default=sorted(RECORDED.glob("*.jsonl.gz")))
    options = parser.parse_args()
    if options.what == "replay":
        replayed(options.files)
        return
    Path(options.out).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        watching(Path(folder), make_node_zip(Path(folder)), lambda ranks: episodes(ranks, options))


if __name__ == "__main__":
    main()
