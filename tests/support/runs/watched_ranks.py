"""Real ranks beside a real companion, as an agent has them, and a supervisor that keeps what it is told."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cordee.control.agent.companions import CompanionHost
from cordee.control.agent.uplink import Uplink
from cordee.core.backends import HERE
from cordee.job.submit.bundle import write_node_zip
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import Task, TaskExit, TaskRunner
from cordee.runs.plan import RunPlan, plan_of
from cordee.systems.explain.node.companion import StandWatch
from cordee.testing.patience import PatientWait
from cordee.wire.messages import Gather, Gathered, RankStand

TIMEOUTS = dict.fromkeys(("connect_s", "heartbeat_s", "lost_s", "orphan_s", "kill_s", "lease_s"), 5.0)


def plan_for(folder: Path, **explain: Any) -> RunPlan:
    step = {"tasks": {"argv": ["x"], "env": {}}, "checkpoint": {"path": str(folder)}, "systems": {"explain": explain}}
    places = {"job_folder": str(folder), "workdir": str(folder), "folder": str(folder)}
    about = {"run": "run", "backend": HERE, **places, "steps": [step], "timeouts": TIMEOUTS}
    return plan_of({**about, "sampling": {"interval_s": 1.0}})


class RecordingUplink(Uplink):
    """The agent's end of the connection: keeps what is told."""

    identifier = "session"
    unacknowledged_bytes = 0

    def __init__(self) -> None:
        super().__init__(5.0, 5.0, lambda error: None)
        self.parts: list[tuple[Gathered, bytes]] = []

    def teller(self) -> Callable[..., None]:
        return lambda message, body=b"": self.parts.append((message, body))

    def files(self, order: str) -> dict[str, bytes]:
        """Return the files that are whole, by their names, and the last word under the empty one."""
        found: dict[str, bytes] = {}
        for message, body in self.parts:
            if message.id == order and not message.times:
                found[message.name] = found.get(message.name, b"") + body + message.text.encode()
        return found


class WatchedRanks:
    """Ranks, from their start to their end, with a companion that looks at them.

    Args:
        folder: of the run.
        node_zip: the node side.
    """

    def __init__(self, folder: Path, node_zip: Path, **explain: Any) -> None:
        self.folder, self.meeting, self.told = folder, folder / "meeting", RecordingUplink()
        self.meeting.mkdir(mode=0o700)
        self.attempt = 1
        self.steps: dict[int, int] = {}
        self.ended: dict[str, TaskExit] = {}
        self.printed: dict[str, bytes] = {}
        owner = f"run-{os.getpid()}/n/1"
        self.watched = WatchedTasks(lambda **told: TaskRunner(owner, **told))
        self._node_zip = node_zip
        self.companion = StandWatch(plan_for(folder, **explain), "n")
        host = CompanionHost(
            lambda: self.attempt, self.pids, lambda: self.steps, lambda: self.meeting, node_zip, self.watched, self.told
        )
        self.orders = self.companion.attach(host)
        self._ranks: list[int] = []

    def pids(self) -> dict[int, int]:
        """Return the main pid of each rank that runs."""
        found = {rank: self.watched.tasks.pid(f"rank-{rank}") for rank in self._ranks}
        return {rank: pid for rank, pid in found.items() if pid is not None}

    def start(self, rank: int, *argv: str, packages: Path | None = None, **env: str) -> None:
        """Start a rank: Python with these arguments."""
        paths = [str(self._node_zip), *([str(packages)] if packages else [])]
        base = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(paths),
            "CORDEE_CHANNEL": str(self.meeting / f"{self.attempt}-{rank}.channel"),
            "CORDEE_ATTEMPT": str(self.attempt),
            "RANK": str(rank),
            "OMP_NUM_THREADS": "1",
        }
        task = Task(
            f"rank-{rank}",
            (sys.executable, *argv),
            {**self.companion.environment(base, rank), **env},
            str(self.folder),
            group="ranks",
        )
        self._ranks.append(rank)

        def printed(stream: int, data: bytes) -> None:
            self.printed[task.id] = self.printed.get(task.id, b"") + data

        self.watched.run_task(task, lambda ended: self.ended.update({task.id: ended}), output=printed)

    async def until(self, condition: Callable[[], Any], seconds: float = 60.0, every_s: float = 0.25) -> Any:
        """Look again and again until a condition holds, and return what it returns.

        Raises:
            AssertionError: it does not hold for so long; says what ranks have printed.
        """
        patience = PatientWait(seconds)
        while not patience.over():
            await asyncio.sleep(every_s)
            self.companion.look(time.monotonic())
            found = condition()
            if found:
                return found
        raise AssertionError((self.stands(), self.printed, self.ended))

    def stands(self) -> dict[int, RankStand]:
        return {stand.rank: stand for stand in self.companion.stands()}

    async def gather(self, name: str = "hang-1", deadline_s: float = 5.0) -> dict[str, bytes]:
        """Return all files that show where the ranks stand, and under the empty name what could not be had."""
        self.orders[Gather](Gather(name, self.attempt, deadline_s), b"")
        await self.until(lambda: "" in self.told.files(name))
        return self.told.files(name)

    def document_of(self, files: dict[str, bytes], rank: int) -> Any:
        """Return what was collected of a rank."""
        return json.loads(files[f"rank-{rank}.json"])


def watching(folder: Path, node_zip: Path, during: Callable[[WatchedRanks], Any], **explain: Any) -> None:
    """Have ranks watched for as long as `during(ranks)` takes."""

    async def live() -> None:
        ranks = WatchedRanks(folder, node_zip, **explain)
        try:
            await during(ranks)
        finally:
            await ranks.companion.close()
            ranks.watched.tasks.kill_everything()

    asyncio.run(live())


@contextmanager
def a_torch(folder: Path) -> Iterator[Path]:
    """Yield a folder with a package named torch that has nothing of it: importing it starts the pulse, and costs nothing."""
    (folder / "packages" / "torch").mkdir(parents=True)
    (folder / "packages" / "torch" / "__init__.py").write_text("__version__ = '2.9'\n")
    yield folder / "packages"


def make_node_zip(folder: Path) -> Path:
    write_node_zip(folder / "node.zip")
    return folder / "node.zip"
