"""The pool of tasks of one attempt on one node: a launch that starts tasks, as the node has slots for them, in the place of ranks."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from typing import Any, NamedTuple, Optional, Sequence

from cordee.control.launch import Launch, LaunchHost, RankCommand
from cordee.control.world import AttemptWorld
from cordee.core.errors import CordeeError
from cordee.machine.slots import Given
from cordee.machine.tasks.task import Task, TaskExit
from cordee.runs.plan import RunPlan
from cordee.systems.trials.node.commands import filled_in
from cordee.systems.trials.node.report import TrialReport
from cordee.systems.trials.node.task_list import FarmTask, task_of
from cordee.wire.messages import PoolTasks

# News of tasks that end at about the same time is one message.
_TOGETHER_S = 0.02
_READ_S = 0.5
# How far behind a task that does not fit now others are looked for, and how often it lets others by.
_LOOK_AHEAD, _MOST_PASSES = 32, 64
# What the only rank of a world is told, and no task of a pool is: many of them run at once, and none is of a world.
_OF_WORLD = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
    "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "TF_CONFIG", "CORDEE_CHANNEL", "CORDEE_RESUME_FROM",
)  # fmt: skip


class PoolOrder(NamedTuple):
    """A task as a node is ordered to run it: `number` counts its tries, `end_at` is when the job ends, UTC epoch seconds; None: never."""

    task: FarmTask
    number: int
    end_at: Optional[float] = None

    def document(self) -> dict[str, Any]:
        """Return it as it is sent."""
        return {**self.task.document(), "number": self.number, "end_at": self.end_at}


class TaskPool(Launch):
    """See Launch. The node's only rank is the pool: it runs until the last task that it is to have has ended."""

    def __init__(self, host: LaunchHost, plan: RunPlan, world: AttemptWorld) -> None:
        super().__init__(host, world)
        self._tasks, self._waiting = host.watched.tasks, deque[PoolOrder]()
        self._command: Optional[RankCommand] = None
        self._running: dict[str, PoolOrder] = {}
        self._metric: Optional[str] = plan.step.systems["trials"].get("metric")
        self._reports: dict[str, TrialReport] = {}
        self._reading: Optional[asyncio.TimerHandle] = None
        self._passed = 0
        self._last = self._stopping = self._over = self._abandoned = False
        self._began = time.monotonic()
        self._ended: list[list[Any]] = []
        self._telling: Optional[asyncio.TimerHandle] = None

    def start(self, ranks: Sequence[RankCommand]) -> None:
        """Take the command that each task fills in, and say what there is to run it on."""
        (self._command,) = ranks
        self.host.slots.look_again()
        self.host.rank_started(self.world, self._command.rank, os.getpid())
        has = self.host.slots.has
        devices = sum(len(gpu.instances) or 1 for gpu in has.gpus)
        self._say({"room": [len(has.cores), devices, has.memory_bytes]})

    def take_tasks(self, order: PoolTasks, body: bytes) -> None:
        """Take more tasks."""
        self._last = order.last
        for document in json.loads(body) if body else ():
            self._waiting.append(PoolOrder(task_of(document), int(document["number"]), document.get("end_at")))
        self._go_on()

    def signal(self, number: int) -> None:
        """Send a signal to the main process of each task."""
        self._tasks.signal(self.group, number)

    def stop(self, grace_s: float) -> None:
        """End the tasks; those that wait are not started."""
        self._stopping = True
        for order in self._waiting:
            self._tell(order, TaskExit("", None, None, "stopped", 0.0))
        self._waiting.clear()
        self._tasks.stop(self.group, grace_s)
        self._go_on()

    def abandon(self) -> None:
        """Kill the tasks and report nothing more."""
        self._abandoned = True
        self.stop(0.0)
        for task in list(self._running):
            self.host.slots.take_back(task)

    def pids(self) -> dict[int, int]:
        """Return none: no process of a pool is a rank."""
        return {}

    def _go_on(self) -> None:
        """Start what fits; end the pool where it is over."""
        while self._waiting and not self._stopping and self._start_one():
            pass
        if (self._last or self._stopping) and not self._waiting and not self._running and not self._over:
            self._over = True
            self._tell_now()
            if not self._abandoned and self._command is not None:
                reason = "stopped" if self._stopping else "exited"
                code = None if self._stopping else 0
                ended = TaskExit(
                    "", code, "SIGTERM" if self._stopping else None, reason, time.monotonic() - self._began
                )
                self.host.rank_ended(self.world, self._command.rank, ended)

    def _start_one(self) -> bool:
        """Start the first task that fits, and return whether there was one; the first of all is not passed by for ever."""
        ahead = _LOOK_AHEAD if self._passed < _MOST_PASSES else 1
        for index in range(min(len(self._waiting), ahead)):
            order = self._waiting[index]
            name = f"task-{self.world.attempt}-{order.task.id}-{order.number}"
            try:
                given = self.host.slots.lend(name, order.task.asks)
            except CordeeError as error:
                del self._waiting[index]
                text = f"{error.text}: {error.given}; there are {error.allowed}"
                self._tell(order, TaskExit(name, None, None, "not_started", 0.0, text))
                return True
            if given is not None:
                del self._waiting[index]
                self._passed = self._passed + 1 if index else 0
                self._start(name, order, given)
                return True
        return False

    def _start(self, name: str, order: PoolOrder, given: Given) -> None:
        command, task = self._command, order.task
        assert command is not None
        env = {key: value for key, value in command.env.items() if key not in _OF_WORLD}
        env.update(_environment(order, given, self.host.slots.has.gpus != ()))
        self._running[name] = order
        if self._metric is not None:
            report = self._reports[name] = TrialReport(self.host.meeting_place / f"{name}.trial", self._metric)
            env["CORDEE_CHANNEL"] = str(report.path)
            if self._reading is None:
                self._read_reports()

        def ended(how: TaskExit) -> None:
            self._running.pop(name, None)
            self.host.slots.take_back(name)
            report = self._reports.pop(name, None)
            self._tell(order, how, report.close() if report is not None else None)
            self._go_on()

        def output(stream: int, data: bytes) -> None:
            self.host.rank_output(self.world, task.id, stream, data)

        argv = filled_in(command.argv, {**task.values, "number": str(task.id)})
        run = Task(name, argv, env, command.cwd, deadline_s=task.time_s, group=self.group, cpus=given.cpus, quick=True)
        self.host.watched.run_task(run, ended, output=output)

    def _read_reports(self) -> None:
        """Take what trials have logged, so that there is room for more."""
        for report in self._reports.values():
            report.read()
        again = bool(self._reports) and not self._abandoned
        self._reading = asyncio.get_running_loop().call_later(_READ_S, self._read_reports) if again else None

    def _tell(self, order: PoolOrder, how: TaskExit, value: Optional[float] = None) -> None:
        """Tell how a task ended, together with others."""
        peak = how.peak_bytes if how.peak_bytes > _own_peak() else 0
        seconds, cpu_s = round(how.seconds, 4), round(how.cpu_s, 3)
        self._ended.append(
            [order.task.id, order.number, how.code, how.signal, how.reason, seconds, peak, cpu_s, how.text[:400], value]
        )
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_TOGETHER_S, self._tell_now)

    def _tell_now(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        ended, self._ended, self._telling = self._ended, [], None
        if ended:
            self._say({"ended": ended})

    def _say(self, news: dict[str, Any]) -> None:
        if not self._abandoned:
            self.host.pool_news(self.world, json.dumps(news, separators=(",", ":")).encode())


def _own_peak() -> int:
    """Return the most memory that this process had: a child begins as a copy of it, and the kernel counts that as its own."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _environment(order: PoolOrder, given: Given, gpus: bool) -> dict[str, str]:
    """Return what a task finds set beyond what all do."""
    env = {
        "CORDEE_TASK_ID": str(order.task.id),
        "CORDEE_TASK_TRY": str(order.number),
        "OMP_NUM_THREADS": str(max(1, given.cores)),
    }
    if order.end_at is not None:
        env["CORDEE_END_TIME"] = f"{order.end_at:.0f}"
    if gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(given.gpus)
    return env
