"""Beside the ranks of a node: the services of a job that run there, and what every rank needs as their client."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Callable, Optional

from cordee.control.agent.companions import Companion, CompanionHost
from cordee.control.agent.orders import Handlers
from cordee.core.clock import monotonic
from cordee.machine.processes.module_command import module_argv
from cordee.machine.tasks.task import STDOUT, Task, TaskExit
from cordee.runs.folder import say
from cordee.runs.plan import RunPlan
from cordee.systems.services.node.container import REMOVAL_S
from cordee.systems.services.node.program import pause_after
from cordee.systems.services.node.texts import client_path, hosts_of, read_client
from cordee.wire.messages import StageOrder, Staging

SYSTEM = "services"
_MODULE = "cordee.systems.services.node.host"
_TOLD = ("state", "why", "endpoints", "ready_after_s", "hopeless")


class _Hosted:
    """One service on this node.

    Attributes:
        spec: what its host is started from; ports keep their numbers when it is started again.
        task: of its host; empty: none runs.
        tries: how often it was started since it was last ready.
        due: when it is started again.
        said: how it is, as it was told last.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.task = ""
        self.tries = 0
        self.due: Optional[float] = None
        self.said: dict[str, Any] = {}


def _end_s(spec: dict[str, Any]) -> float:
    """Return how long a service may take to end."""
    return float(spec["stop_s"]) + (REMOVAL_S if "container" in spec else 2.0)


class ServiceCompanion(Companion):
    """Starts the services that this node is ordered to have, and starts again what ends; see Companion."""

    def __init__(self, plan: RunPlan, node: str) -> None:
        super().__init__(plan, node)
        self._specs: dict[str, dict[str, Any]] = hosts_of(plan.step.systems)
        self._hosted: dict[str, _Hosted] = {}
        self._count = 0
        self._ending = False
        self._host: Optional[CompanionHost] = None

    def attach(self, host: CompanionHost) -> Handlers:
        self._host = host
        return {StageOrder: self._order}

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self._specs:
            found.update(read_client(client_path(Path(self.plan.folder), name)))
        return {**found, **env}

    def look(self, now: float) -> None:
        for hosted in self._hosted.values():
            if hosted.due is not None and now >= hosted.due and not self._ending:
                self._start(hosted)

    async def close(self) -> None:
        tasks = self._end()
        until = monotonic() + max([_end_s(one) for one in self._specs.values()], default=2.0)
        while self._host is not None and monotonic() < until and any(map(self._host.watched.tasks.pid, tasks)):
            await asyncio.sleep(0.05)

    def _order(self, order: StageOrder, body: bytes) -> None:
        if order.system != SYSTEM:
            return
        if order.request["do"] == "end":
            self._end()
            return
        self._ending = False
        for name, spec in self._specs.items():
            hosted = self._hosted.setdefault(name, _Hosted({**spec, "address": order.request["address"]}))
            if hosted.task:
                self._tell(hosted)
            else:
                hosted.tries = 0
                self._start(hosted)

    def _start(self, hosted: _Hosted) -> None:
        assert self._host is not None
        self._count += 1
        hosted.task, hosted.due = f"service-{self._count}", None
        hosted.tries += 1
        env = {**os.environ, "PYTHONPATH": str(self._host.node_zip), "CORDEE_RUN_DIR": self.plan.folder}
        task = Task(
            hosted.task,
            tuple(module_argv(_MODULE, "-")),
            {**env, "CORDEE_NODE": self.node},
            "/",
            group=SYSTEM,
            stdin=json.dumps(hosted.spec).encode() + b"\n",
            open_stdin=True,
        )
        printed = self._reader(lambda said: self._hear(hosted, said))
        self._host.watched.run_task(task, lambda ended: self._ended(hosted, ended), output=printed)

    def _reader(self, hear: Callable[[dict[str, Any]], None]) -> Callable[[int, bytes], None]:
        rest = bytearray()

        def printed(stream: int, data: bytes) -> None:
            if stream != STDOUT:
                say(data.decode(errors="replace").rstrip())
                return
            rest.extend(data)
            while b"\n" in rest:
                line, _, after = bytes(rest).partition(b"\n")
                rest[:] = after
                hear(json.loads(line))

        return printed

    def _hear(self, hosted: _Hosted, said: dict[str, Any]) -> None:
        before, hosted.said = hosted.said, {key: said.get(key) for key in _TOLD}
        for endpoint in said["endpoints"]:
            hosted.spec["ports"][endpoint["name"]]["number"] = endpoint["port"]
        if said["state"] == "ready":
            hosted.tries = 0
        if before.get("state") != said["state"] and said["state"] != "stopped":
            self._tell(hosted)

    def _tell(self, hosted: _Hosted) -> None:
        assert self._host is not None
        self._host.uplink.teller()(Staging(SYSTEM, {"service": hosted.spec["service"], **hosted.said}))

    def _ended(self, hosted: _Hosted, ended: TaskExit) -> None:
        hosted.task = ""
        if self._ending or hosted.said.get("state") == "stopped":
            hosted.said = {"state": "stopped", "why": "the run is over", "endpoints": []}
        else:
            hosted.due = monotonic() + pause_after(hosted.tries)
            if hosted.said.get("state") != "failed":
                how = ended.text or f"{ended.reason}, code {ended.code}, signal {ended.signal}"
                hosted.said = {"state": "failed", "why": f"its host ended: {how}", "endpoints": []}
        self._tell(hosted)

    def _end(self) -> list[str]:
        self._ending = True
        tasks = [hosted.task for hosted in self._hosted.values() if hosted.task]
        for task in tasks if self._host is not None else ():
            self._host.watched.tasks.close_stdin(task)  # type: ignore[union-attr]
        return tasks
