"""10,000 ranks fail at once, and a week of progress: what the journal asks of the disk, and for how long the loop stands still.

    python benchmarks/journal_burst.py [RANKS] [FSYNC_MS]

`before` writes as the journal did: on the loop, one open and one fsync for each event.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable

from cordee.control.supervisor.decisions.attempt import Attempt
from cordee.control.supervisor.decisions.nodes import Node
from cordee.control.supervisor.decisions.vocabulary import RankNews
from cordee.control.supervisor.timing.progress import ProgressPace
from cordee.runs.disk import Disk
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.runs.journal_follower import JournalFollower
from cordee.runs.lane import Inline, Lane
from cordee.runs.state import replay
from cordee.wire import messages

WEEK_S = 7 * 86400


class SlowDisk(Disk):
    """A disk whose fsync takes a while longer."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.opens = self.fsyncs = 0

    def open(self, *arguments, **more) -> int:
        self.opens += 1
        return super().open(*arguments, **more)

    def fsync(self, descriptor: int) -> None:
        self.fsyncs += 1
        time.sleep(self.pause_s)
        super().fsync(descriptor)


class Before(JournalWriter):
    """As it was: every failing rank is durable at once."""

    def append(self, event: str, *, durable: bool = True, **fields):
        return super().append(event, durable=True, **fields)


async def burst(make: Callable[..., JournalWriter], lane: Inline, ranks: int, pause_s: float) -> str:
    disk = SlowDisk(pause_s)
    folder = RunFolder.create(tempfile.mkdtemp(), "b-20260101T000000Z-abcd")
    journal = make(folder.journal, "supervisor-1", 1, disk=disk, lane=lane)
    nodes = [Node(f"n{index}") for index in range(ranks // 4)]
    attempt = Attempt(1, nodes, 4, "fork", epoch=1, silent_s=2.0)
    worst = 0.0

    async def watch() -> None:
        nonlocal worst
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.01)
            worst = max(worst, time.perf_counter() - began - 0.01)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0.05)
    began = time.perf_counter()
    for rank in range(ranks):
        news = messages.RanksEnded(1, (messages.EndedRank(rank, 1, None, "exited", 1.0, "NCCL"),))
        for written in attempt.decide(RankNews(0.0, f"n{rank // 4}", news)):
            journal.append(written.event, durable=written.durable, **written.fields)
        if rank % 64 == 63:  # the loop takes messages in parts
            await asyncio.sleep(0)
    journal.append("attempt_ended", attempt=1, outcome="failed", reason="", progress=False, failure=None)
    await journal.durable()
    seconds = time.perf_counter() - began
    await asyncio.sleep(0.05)
    watching.cancel()
    found = sum(event["event"] == "rank_exited" for event in read_journal(folder.journal))
    assert found == ranks, found
    return f"{disk.fsyncs} fsyncs, {disk.opens} opens, durable after {seconds:.2f} s, the loop stood still for {worst * 1000:.0f} ms at most"


def week(every: Callable[[float, int], bool]) -> str:
    folder = RunFolder.create(tempfile.mkdtemp(), "w-20260101T000000Z-abcd")
    fields = {"schema": "cordee.journal/1", "epoch": 1, "writer": "supervisor-1", "event": "progress", "total": 10**7}
    lines = []
    for second in range(0, WEEK_S, 2):
        if every(float(second), second):
            more = {"seq": len(lines), "time": "2026-11-22T10:00:00.000Z", "mono": float(second), "step": second}
            lines.append(json.dumps({**fields, **more}, separators=(",", ":")))
    (folder.journal / "supervisor-1.jsonl").write_text("\n".join(lines) + "\n")
    size = (folder.journal / "supervisor-1.jsonl").stat().st_size / 2**20
    began = time.process_time()
    JournalFollower(folder, keep=False).read()
    own = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.process_time()
    replay(read_journal(folder.journal))
    others = time.process_time() - began
    return f"{len(lines)} lines, {size:.1f} MiB; its own processes replay it in {own:.2f} s (peak memory {peak:.0f} MiB), others in {others:.2f} s"


def main() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    pause_s = (float(sys.argv[2]) if len(sys.argv) > 2 else 10.0) / 1000
    pace = ProgressPace()
    print("a week, progress as it is paced:", week(lambda now, step: pace.due(now, step, None)))
    print("a week, progress every 2 s:     ", week(lambda now, step: True))
    print(f"{ranks} ranks fail, fsync takes {pause_s * 1000:.0f} ms:")
    few = min(ranks, 500)
    print(f"  before, {few} ranks:", asyncio.run(burst(Before, Inline(), few, pause_s)))
    print(f"  now, {ranks} ranks:", asyncio.run(burst(JournalWriter, Lane("writing"), ranks, pause_s)))


if __name__ == "__main__":
    main()
