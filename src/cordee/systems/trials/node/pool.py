"""The pool of tasks of one attempt on one node: a launch that starts tasks, as the node has slots for them, in the place of ranks."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any, Collection, NamedTuple, Optional, Sequence

from cordee.control.launch import Launch, LaunchHost, RankCommand
from cordee.control.world import AttemptWorld
from cordee.core.errors import CordeeError
from cordee.machine.slots import Given
from cordee.machine.tasks.task import Task, TaskExit
from cordee.runs.plan import RunPlan
from cordee.systems.trials.node.commands import filled_in
from cordee.systems.trials.node.report import Reached, ResultFile, TrialReport, result_file
from cordee.systems.trials.node.rungs import Rungs
from cordee.systems.trials.node.task_list import FarmTask, task_of
from cordee.systems.trials.node.task_states import HALVED
from cordee.systems.trials.node.trial_world import TrialPlaces, as_one, environments, is_bad
from cordee.wire.messages import PoolTasks
from cordee.wire.ports import pick_ports

# News of tasks that end at about the same time is one message.
_TOGETHER_S = 0.02
_READ_S = 0.5
# How far behind a task that does not fit now others are looked for, and how often it lets others by.
_LOOK_AHEAD, _MOST_PASSES = 32, 64
# By which the tasks are stopped: one name for all attempts that a pool serves.
_GROUP = "pool"


class PoolOrder(NamedTuple):
    """A task as a node is ordered to run it: `number` counts its tries, `end_at` is when the job ends, UTC epoch seconds; None: never.

    `places` are those of a task of several ranks, of which this node has some.
    """

    task: FarmTask
    number: int
    end_at: Optional[float] = None
    places: Optional[TrialPlaces] = None

    def document(self) -> dict[str, Any]:
        """Return it as it is sent."""
        places = {} if self.places is None else {"places": self.places}
        return {**self.task.document(), "number": self.number, "end_at": self.end_at, **places}


def _order_of(document: dict[str, Any]) -> PoolOrder:
    nodes, ports = document.get("places") or ((), ())
    places = TrialPlaces(tuple(nodes), tuple(ports)) if nodes else None
    return PoolOrder(task_of(document), int(document["number"]), document.get("end_at"), places)


class TaskPool(Launch):
    """See Launch. The node's only rank is the pool: it runs until the last task that it is to have has ended.

    It outlives a supervisor: its tasks run on, and the next supervisor is told which it holds, and again how tasks ended of
    which the one before may not have kept the end.
    """

    def __init__(self, host: LaunchHost, plan: RunPlan, world: AttemptWorld) -> None:
        super().__init__(host, world)
        self._tasks, self._waiting = host.watched.tasks, deque[PoolOrder]()
        self._command: Optional[RankCommand] = None
        self._running: dict[str, PoolOrder] = {}
        self._ranks: dict[str, list[str]] = {}
        self._plan = plan
        self._alone: Optional[dict[str, str]] = None
        part = plan.step.systems["trials"]
        self._metrics = [metric for _, metric in part.get("goals", ())]
        self._names, self._result = part.get("names", ()), part.get("result")
        self._rungs = Rungs(*part["halving"]) if part.get("halving") else None
        self._reports: dict[str, TrialReport] = {}
        self._files: dict[str, ResultFile] = {}
        self._halved: set[str] = set()
        self._reading: Optional[asyncio.TimerHandle] = None
        self._passed = 0
        self._last = self._stopping = self._over = self._abandoned = self._aside = False
        self._began = time.monotonic()
        self._ended: list[list[Any]] = []
        self._told, self._known = deque[list[Any]](), 0
        self._telling: Optional[asyncio.TimerHandle] = None

    def start(self, ranks: Sequence[RankCommand]) -> None:
        """Take the command that each task fills in, and say what there is to run it on, and what was kept."""
        (self._command,) = ranks
        self.host.slots.look_again()
        self.host.rank_started(self.world, self._command.rank, os.getpid())
        held = [[one.task.id, one.number] for one in (*self._running.values(), *self._waiting)]
        self._say({"room": self._room(), "held": held, "ended": self._take_ended()})

    def _room(self) -> list[int]:
        has = self.host.slots.has
        return [len(has.cores), sum(len(gpu.instances) or 1 for gpu in has.gpus), has.memory_bytes]

    def _look_for_gpus(self) -> None:
        """A task that had GPUs has failed: what has gone under it no other one is given."""
        before = self._room()
        self.host.slots.look_again()
        if self._room() != before:
            self._say({"room": self._room()})

    def take_tasks(self, order: PoolTasks, body: bytes) -> None:
        """Take more tasks, or which trials are to end early."""
        self._last = order.last
        documents = json.loads(body) if body else ()
        if isinstance(documents, dict):
            self._halve(documents.get("halved", ()))
            self._break_off(documents.get("broken", ()))
            self._find_ports(documents.get("meet", ()))
            self._forget_told(documents.get("known", 0))
            return
        self._waiting.extend(map(_order_of, documents))
        self._go_on()

    def _forget_told(self, known: int) -> None:
        """The ends that were told first, so many, are kept for good by the supervisor."""
        for _ in range(known - self._known):
            self._told.popleft()
        self._known = max(known, self._known)

    def _halve(self, trials: Sequence[Sequence[int]]) -> None:
        for task, number in trials:
            name = self._name(task, number)
            if name in self._running and name not in self._halved:
                self._halved.add(name)
                self._hang_up(name)

    def _hang_up(self, name: str) -> None:
        for rank in self._ranks.get(name, ()):
            self._tasks.hang_up(rank)

    def _break_off(self, trials: Sequence[Sequence[int]]) -> None:
        """End this node's ranks of trials of which a rank has failed elsewhere."""
        for task, number in trials:
            self._hang_up(self._name(task, number))
            for order in [one for one in self._waiting if (one.task.id, one.number) == (task, number)]:
                self._waiting.remove(order)
                self._tell(order, TaskExit("", None, None, "stopped", 0.0))
        self._go_on()

    def _find_ports(self, trials: Sequence[Sequence[int]]) -> None:
        """Say where ranks of trials whose first one is to run here can meet."""
        found: list[list[Any]] = []
        for task, number in trials:
            try:
                found.append([task, number, pick_ports(self.world.addresses[self.world.node_rank], 2), ""])
            except CordeeError as error:
                found.append([task, number, None, f"{error.text}: {error.given}"])
        if found:
            self._say({"met": found})

    def _name(self, task: int, number: int) -> str:
        return f"task-{task}-{number}"

    def signal(self, number: int) -> None:
        """Send a signal to the main process of each task."""
        self._tasks.signal(_GROUP, number)

    def stop(self, grace_s: float) -> None:
        """End the tasks; those that wait are not started."""
        self._stopping = True
        for order in self._waiting:
            self._tell(order, TaskExit("", None, None, "stopped", 0.0))
        self._waiting.clear()
        self._tasks.stop(_GROUP, grace_s)
        self._go_on()

    def abandon(self) -> None:
        """Kill the tasks and report nothing more."""
        self._abandoned = True
        self.stop(0.0)
        for task in list(self._running):
            self.host.slots.take_back(task)

    def keep(self) -> bool:
        """Have the tasks run on, and those start that wait, but for trials of several ranks: their other nodes may be lost."""
        if self._last or self._stopping or self._abandoned or self._command is None:
            self.abandon()
            return False
        self._aside = True
        self._waiting = deque(order for order in self._waiting if order.places is None)
        for name, order in self._running.items():
            if order.places is not None:
                self._hang_up(name)
        return True

    @property
    def kept(self) -> Collection[str]:
        """The ids of the Tasks that run on."""
        return [rank for name, order in self._running.items() if order.places is None for rank in self._ranks[name]]

    def go_on(self, host: LaunchHost, world: AttemptWorld) -> None:
        """Serve the next attempt, and tell again what may not be known."""
        super().go_on(host, world)
        self._aside, self._alone, self._known = False, None, 0
        self._ended = [*self._told, *self._ended]
        self._told.clear()

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
                how = (None, "SIGTERM", "stopped") if self._stopping else (0, None, "exited")
                ended = TaskExit("", how[0], how[1], how[2], time.monotonic() - self._began)
                self.host.rank_ended(self.world, self._command.rank, ended)

    def _start_one(self) -> bool:
        """Start the first task that fits, and return whether there was one; the first of all is not passed by for ever."""
        ahead = _LOOK_AHEAD if self._passed < _MOST_PASSES else 1
        for index in range(min(len(self._waiting), ahead)):
            order = self._waiting[index]
            name = self._name(order.task.id, order.number)
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
        ranks = self._environments(order)
        own = _environment(order, given, self.host.slots.has.gpus != ())
        # Not the run's: a trial would go on from the weights of another.
        own["CORDEE_CHECKPOINT_DIR"] = os.path.join(self._plan.step.checkpoint.path, f"task-{task.id}")
        self._running[name] = order
        names = self._ranks[name] = [name] if len(ranks) == 1 else [f"{name}.{rank}" for rank in range(len(ranks))]
        values = {**task.values, "number": str(task.id)}
        if self._metrics and (order.places is None or order.places.nodes[0] == self.world.node):
            report = TrialReport(self.host.meeting_place / f"{name}.trial", self._metrics, self._rungs)
            self._reports[name], ranks[0]["CORDEE_CHANNEL"] = report, str(report.path)
            if self._result is not None:
                self._files[name] = result_file(Path(command.cwd, *filled_in([self._result], values)))
            if self._reading is None:
                self._read_reports()

        ends: list[TaskExit] = []

        def ended(how: TaskExit) -> None:
            if name in self._halved and how.reason == "stopped":
                how = dataclasses.replace(how, reason=HALVED)
            ends.append(how)
            if len(ends) < len(names):
                if is_bad(how.code, how.reason):
                    self._hang_up(name)
                return
            self._running.pop(name, None)
            self._ranks.pop(name, None)
            self.host.slots.take_back(name)
            self._halved.discard(name)
            whole = as_one(ends)
            if given.gpus and is_bad(whole.code, whole.reason):
                self._look_for_gpus()
            self._tell(order, whole, self._values(name))
            self._go_on()

        def output(stream: int, data: bytes) -> None:
            self.host.rank_output(self.world, task.id, stream, data)

        argv = filled_in(command.argv, values, self._names)
        how: dict[str, Any] = {"deadline_s": task.time_s, "group": _GROUP, "cpus": given.cpus, "quick": True}
        for rank, env in zip(names, ranks):
            self.host.watched.run_task(Task(rank, argv, {**env, **own}, command.cwd, **how), ended, output=output)

    def _environments(self, order: PoolOrder) -> list[dict[str, str]]:
        """Return the environment of each rank of a task on this node, but for what it was given."""
        assert self._command is not None
        if order.places is not None:
            world = order.places.world(self.world, order.task.ranks)
            return environments(self._command.env, self._plan, world)
        if self._alone is None:
            world = TrialPlaces((self.world.node,), (0, 0)).world(self.world, 1)
            (self._alone,) = environments(self._command.env, self._plan, world)
        return [dict(self._alone)]

    def _read_reports(self) -> None:
        """Take what trials have logged, so that there is room for more; where nobody hears of it now, later."""
        reached: list[list[Any]] = []
        for name, report in () if self._aside else self._reports.items():
            order = self._running.get(name)
            found: list[Reached] = report.read()
            if order is not None:
                reached += [[order.task.id, order.number, rung, value] for rung, value in found]
        if reached:
            self._say({"reached": reached})
        again = bool(self._reports) and not self._abandoned
        self._reading = asyncio.get_running_loop().call_later(_READ_S, self._read_reports) if again else None

    def _values(self, name: str) -> Any:
        """Return what a trial that has ended was worth: a number, a list for several goals, None where it is not known."""
        report, file = self._reports.pop(name, None), self._files.pop(name, None)
        values = report.close() if report is not None else None
        if file is not None:
            values = file.values(self._metrics)
        return values[0] if values is not None and len(values) == 1 else values

    def _tell(self, order: PoolOrder, how: TaskExit, value: Any = None) -> None:
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
            self._telling = None
        if self._ended and not self._aside:
            self._say({"ended": self._take_ended()})

    def _take_ended(self) -> list[list[Any]]:
        """Return the ends that are to be told now."""
        ended, self._ended = self._ended, []
        self._told += ended
        return ended

    def _say(self, news: dict[str, Any]) -> None:
        if not self._abandoned and not self._aside:
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
        "OMP_NUM_THREADS": str(max(1, given.cores // order.task.ranks)),
    }
    if order.end_at is not None:
        env["CORDEE_END_TIME"] = f"{order.end_at:.0f}"
    if gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(given.gpus)
    if given.share < 1:  # where an MPS server runs, it keeps to that
        env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{100 * given.share:.0f}"
    return env
