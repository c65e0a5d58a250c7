"""A node whose hardware is watched, as an agent has it: a host tree, a kernel log that is written to, and GPUs as told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cordee.control.agent.companions import CompanionHost
from cordee.core.clock import monotonic
from cordee.machine.gpus.model import Gpu
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.task import TaskRunner
from cordee.runs.plan import plan_of
from cordee.systems.explain.node.hardware.watch import HardwareWatch
from cordee.testing.patience import PatientWait
from support.hosts.host_tree import HostTree
from support.hosts.kernel_log import append_kmsg, write_kmsg

TIMEOUTS = dict.fromkeys(("connect_s", "heartbeat_s", "lost_s", "orphan_s", "kill_s", "lease_s"), 5.0)
_LONGEST_S = 30.0


class WatchedNode:
    """One node, with the watch as the agent's companion.

    Args:
        folder: of the test.
        pids: main pids of its ranks.
    """

    def __init__(self, folder: Path, pids: Mapping[int, int] | None = None, **sampling: Any) -> None:
        self.host = HostTree(folder / "host")
        write_kmsg(self.host.root, [(1.0, "Linux is up")])
        step = {"tasks": {"argv": ["x"], "env": {}}, "checkpoint": {"path": str(folder)}}
        places = {"job_folder": str(folder), "workdir": str(folder), "folder": str(folder)}
        about = {"run": folder.name, "backend": "slurm", **places, "steps": [step], "timeouts": TIMEOUTS}
        self._plan = plan_of({**about, "sampling": {"interval_s": 0.001, **sampling}})
        self._pids = dict(pids or {})

    @contextmanager
    def watched(self) -> Iterator[WatchedNode]:
        """Watch it, from what is there now; yields itself."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._loop = loop
        os.environ["CORDEE_HOST_ROOT"] = str(self.host.root)
        try:
            loop.run_until_complete(self._begin())
            yield self
        finally:
            del os.environ["CORDEE_HOST_ROOT"]
            loop.run_until_complete(self.watch.close())
            self._tasks.tasks.kill_everything()
            loop.close()

    async def _begin(self) -> None:
        owner = f"{self._plan.run}/n/1"
        self._tasks = WatchedTasks(lambda **told: TaskRunner(owner, **told))
        self.watch = HardwareWatch(self._plan, "n")
        nothing: Any = None
        self.watch.attach(
            CompanionHost(lambda: 1, lambda: self._pids, dict, lambda: Path("/"), Path("/"), self._tasks, nothing)
        )
        await self._look()

    async def _look(self) -> None:
        """Look until what was asked of the thread has come back."""
        self.watch.look(monotonic())
        await asyncio.sleep(0.02)

    def kernel_says(self, *lines: str) -> None:
        """Write lines to the kernel log."""
        append_kmsg(self.host.root, *lines)

    def driver_says(
        self, *gpus: Gpu, ranks: Mapping[str, Sequence[int]] | None = None, xids: Sequence[tuple[str, int]] = ()
    ) -> None:
        """Tell what the driver says of GPUs."""
        self.watch.gpus(gpus, ranks or {}, xids)
        self.watch.look(monotonic())

    def until(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Look until what was found is as wanted, and return it.

        Raises:
            AssertionError: it never is.
        """
        patience = PatientWait(_LONGEST_S)
        while not holds(self.found()):
            assert not patience.over(), self.found()
            self._loop.run_until_complete(self._look())
        return self.found()

    def look_often(self) -> list[dict[str, Any]]:
        """Look some times, and return what was found."""
        for _ in range(10):
            self._loop.run_until_complete(self._look())
        return self.found()

    def found(self) -> list[dict[str, Any]]:
        """Return the findings so far."""
        return [one.finding for one in self.watch.findings()]

    def levels(self) -> dict[str, int]:
        """Return how grave each cause is by now."""
        return {one.cause: one.level for one in self.watch.findings()}
