"""Beside the ranks of a node: the process that keeps their checkpoints, started again where it has ended."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Optional

from cordee.control.agent.companions import Companion, CompanionHost
from cordee.control.agent.orders import Handlers
from cordee.core.clock import monotonic
from cordee.machine.processes.module_command import module_argv
from cordee.machine.tasks.task import Task, TaskExit
from cordee.runs.folder import RunFolder, say
from cordee.runs.plan import RunPlan
from cordee.systems.checkpoints.node.tiers.object_saves import address_of
from cordee.systems.checkpoints.node.tiers.writer_links import KEEPER
from cordee.wire.stores.access import access_of

_MODULE = "cordee.systems.checkpoints.node.tiers.keeper"
_AGAIN_S = 5.0
_END_S = 5.0


class CheckpointCompanion(Companion):
    """See Companion. Nothing runs where checkpoints are not written beside the training."""

    def __init__(self, plan: RunPlan, node: str) -> None:
        super().__init__(plan, node)
        self._host: Optional[CompanionHost] = None
        self._task, self._count = "", 0
        self._not_before = 0.0
        self._ended = asyncio.Event()

    def attach(self, host: CompanionHost) -> Handlers:
        self._host = host
        return {}

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        self.look(monotonic())
        if self._host is None or not self._task:
            return env
        return {**env, KEEPER: self._socket(self._host)}

    def look(self, now: float) -> None:
        host, policy = self._host, self.plan.step.checkpoint
        if host is None or self._task or not policy.asynchronous or now < self._not_before:
            return
        if host.uplink.connection is None:
            return
        self._count += 1
        self._task = name = f"checkpoints-{self._count}"
        self._ended.clear()

        def printed(stream: int, data: bytes) -> None:
            say(f"cordee checkpoints on {self.node}: {data.decode(errors='replace').rstrip()}")

        def finished(ended: TaskExit) -> None:
            if self._task == name:
                self._task, self._not_before = "", monotonic() + _AGAIN_S
                self._ended.set()

        begin = {
            "node": self.node,
            "run": self.plan.run,
            "host": host.uplink.connection.own_address,
            "control": str(RunFolder(self.plan.folder).control),
            "socket": self._socket(host),
            "tier": next((tier for tier in policy.tiers if tier != "shared"), ""),
            "declared": policy.node_places,
            "store": address_of(policy.tiers, self.plan.run),
        }
        task = Task(
            name,
            tuple(module_argv(_MODULE, user_site=bool(begin["store"]))),
            {**os.environ, **access_of(self.plan.step.tasks.env), "PYTHONPATH": str(host.node_zip)},
            "/",
            group="checkpoints",
            stdin=json.dumps(begin).encode() + b"\n",
            open_stdin=True,
        )
        host.watched.run_task(task, finished, output=printed)

    async def close(self) -> None:
        if self._host is None or not self._task:
            return
        self._host.watched.tasks.write(self._task, b"end\n")
        try:
            await asyncio.wait_for(self._ended.wait(), _END_S)
        except asyncio.TimeoutError:
            return

    def _socket(self, host: CompanionHost) -> str:
        return str(host.folder() / "checkpoints.sock")
