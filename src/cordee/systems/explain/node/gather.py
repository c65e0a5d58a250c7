"""What shows where the ranks of a node stand, or what they do, asked by the supervisor, collected by a process apart, and told in parts.

What is looked at may hang whoever looks, as a file system does: the agent only passes on what the collecting process prints.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Callable, Optional, Union

from cordee.control.agent.companions import CompanionHost
from cordee.core.clock import monotonic
from cordee.machine.processes.module_command import module_argv
from cordee.machine.tasks.task import STDOUT, Task, TaskExit
from cordee.runs.plan import RunPlan
from cordee.systems.explain.node.parts import PartReader
from cordee.systems.explain.node.patience import MOST_S, patience_s, times_longer
from cordee.systems.explain.node.used_paths import used_paths
from cordee.wire.messages import Gather, Gathered, ProfileRanks

_MOST_ON_ITS_WAY = 4 << 20
_LOOK_AGAIN_S = 0.02
_STARTS_S = 3.0


class Gathering:
    """Does what `Gather` or `ProfileRanks` orders, one at a time; the same one is done again only for another session.

    Args:
        module: what is run to collect.
        plan: the run's.
        node: the node's name.
        host: what the agent lends.
        about: returns when the attempt began, in UTC seconds, and what is known of the processes of its ranks.
        of_hang: whether ranks are asked for their dumps first, and a busy node has longer.
    """

    def __init__(
        self,
        module: str,
        plan: RunPlan,
        node: str,
        host: CompanionHost,
        about: Callable[[bool], tuple[float, list[dict[str, Any]]]],
        of_hang: bool,
    ) -> None:
        self._module, self._of_hang = module, of_hang
        self._plan, self._node, self._host, self._about = plan, node, host, about
        self._done: Optional[tuple[str, str]] = None
        self._task = ""
        self._reader = PartReader()
        self._count = 0

    @property
    def at_work(self) -> bool:
        """Whether something is being collected; what comes late is no more awaited."""
        return bool(self._task) and not self._reader.over

    def begin(self, order: Union[Gather, ProfileRanks], body: bytes) -> None:
        """Start to collect, unless it is done already or at work."""
        asked = (self._host.uplink.identifier, order.id)
        if asked == self._done:
            return
        self._done = asked
        tasks = self._host.watched.tasks
        if self._task:
            tasks.hang_up(self._task)
        tell = self._host.uplink.teller()
        if order.attempt != self._host.attempt():
            tell(Gathered(order.id, text=f"attempt {order.attempt} has no ranks on {self._node}"))
            return
        began_at, ranks = self._about(self._of_hang)
        if isinstance(order, ProfileRanks) and not any(about["rank"] in order.wanted for about in ranks):
            tell(Gathered(order.id))
            return
        deadline_s = most_s = order.deadline_s
        if isinstance(order, Gather):
            times = times_longer(len(ranks))
            if times > 1.0:
                tell(Gathered(order.id, times=times))
            deadline_s = patience_s(deadline_s, times)
            most_s = MOST_S if order.late else patience_s(order.deadline_s + _STARTS_S, times)
        asked_for = {
            **order._asdict(),
            "idle_s": order.deadline_s,
            "deadline_s": deadline_s,
            "most_s": most_s,
            "node": self._node,
            "folder": str(self._host.folder()),
            "places": used_paths(self._plan),
            "asked_at": monotonic(),
            "began_at": began_at,
            "ranks": ranks,
        }
        self._run(json.dumps(asked_for).encode(), asked_for["asked_at"] + most_s, order.id, tell)

    def _run(
        self, asked_for: bytes, until: float, identifier: str, tell: Callable[..., None], again: bool = False
    ) -> None:
        """Start the process that collects, and of a hang once more where somebody kills it."""
        reader = self._reader = PartReader()
        self._count += 1
        self._task = name = f"{self._module.rpartition('.')[2]}-{self._count}"

        def printed(stream: int, data: bytes) -> None:
            if stream != STDOUT:
                return
            for part, content in reader.read(data):
                tell(Gathered(identifier, part.name, part.last, part.text), content)
            self._slow_down(name)

        def finished(ended: TaskExit) -> None:
            mine = self._task == name
            if mine:
                self._task = ""
            if mine and self._of_hang and not (reader.over or again) and ended.reason == "exited" and ended.signal:
                tell(Gathered(identifier, times=1.0))
                self._run(asked_for, until, identifier, tell, again=True)
            elif not reader.over:
                how = ended.text or f"{ended.reason}, code {ended.code}, signal {ended.signal}"
                tell(Gathered(identifier, text=f"collecting on {self._node} has ended early: {how}"))

        task = Task(
            name,
            tuple(module_argv(self._module)),
            dict(os.environ, PYTHONPATH=str(self._host.node_zip)),
            "/",
            deadline_s=max(1.0, until - monotonic()),
            group="gather",
            stdin=asked_for,
        )
        self._host.watched.run_task(task, finished, output=printed)

    def _slow_down(self, task: str) -> None:
        """Read no more of what is collected while much of it has not arrived."""
        tasks = self._host.watched.tasks
        if self._host.uplink.unacknowledged_bytes > _MOST_ON_ITS_WAY:
            tasks.pause_one(task, True)
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._slow_down, task)
        else:
            tasks.pause_one(task, False)
