"""A hang as agents leave it in a run's folder, made by hand: eight ranks on two nodes, of which tests change some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WAITS = """\
Thread 0x00007f01 (most recent call first):
  File "/x/lib/python3.11/threading.py", line 982 in run
  File "/x/cordee/client/pulse.py", line 60 in run

Current thread 0x00007f02 (most recent call first):
  File "/x/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/home/me/train.py", line 40 in step
  File "/home/me/train.py", line 90 in <module>
"""
SINCE = 1_000_000.0


def stack(*frames: tuple[str, int, str]) -> str:
    """Return what faulthandler writes of a main thread, the innermost call first."""
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    return "\n".join(["Current thread 0x00007f02 (most recent call first):", *lines, ""])


class MadeHang:
    """Writes RUN/hangs/1: all ranks wait in collective 17 of the group 0 at train.py:40 unless `rank` says otherwise."""

    def __init__(self, run: Path, world: int = 8, **told: Any) -> None:
        self.run, self.world = run, world
        self.folder = run / "hangs" / "1"
        self.folder.mkdir(parents=True)
        self.told: dict[str, Any] = {
            "schema": "cordee.hang/1",
            "number": 1,
            "attempt": 1,
            "since": SINCE,
            "declared_at": SINCE + 61,
            "after_s": 60.0,
            "action": "report",
            "world": world,
            "ranks": {str(rank): [self.node(rank), 61.0, 61.0, ""] for rank in range(world)},
            "ended": {},
            **told,
        }
        for rank in range(world):
            self.rank(rank)
        self.write()

    def node(self, rank: int) -> str:
        return f"node-{rank // 4 + 1}"

    def write(self) -> None:
        (self.folder / "hang.json").write_text(json.dumps(self.told))

    def rank(
        self, rank: int, stacks: str | None = WAITS, *, enqueued: int = 17, completed: int = 16, **about: Any
    ) -> None:
        """Say where a rank stands; `stacks` None: it wrote none."""
        document = {
            "schema": "cordee.stand/1",
            "rank": rank,
            "node": self.node(rank),
            "pid": 4000 + rank,
            "attempt": 1,
            "state": "S",
            "wchan": "futex_do_wait",
            "why": "",
            "groups": [{"name": "0", "size": self.world, "enqueued": enqueued, "completed": completed}],
            **about,
        }
        (self.folder / f"rank-{rank}.json").write_text(json.dumps(document))
        path = self.folder / f"rank-{rank}.stacks"
        path.unlink(missing_ok=True)
        if stacks is not None:
            path.write_text(stacks)

    def ended(self, rank: int, code: int = 0) -> None:
        """Say that a rank has ended."""
        self.told["ranks"].pop(str(rank))
        self.told["ended"][str(rank)] = code
        self.write()
        self.gone(rank)

    def gone(self, rank: int) -> None:
        """Nothing was collected of a rank."""
        for path in self.folder.glob(f"rank-{rank}.*"):
            path.unlink()

    def on_node(self, node: str, **about: Any) -> None:
        """Say something of a node."""
        (self.folder / f"node-{node}.json").write_text(json.dumps({"node": node, **about}))
